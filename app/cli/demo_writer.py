"""Writes the story of `recalld demo` (`app/cli/data/demo_story.json`) through the API, each part at its time.

The story is of a bicycle workshop with two agents and three people; everybody in it is invented. The clock of the
service stands at the time of each part, so that memories fade and facts become known as they would have. A scripted
language model answers with what the story says that it learned. Times are in days before today.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from app.auth.keys import unauthenticated
from app.core.clock import Clock, SystemClock, rfc3339
from app.core.schemas import Json
from app.lifespan import RealParts, job_runner
from app.llm.base import LLM, Allowance, Budget
from app.main import create_app
from app.mcp.transport import InProcess, checked, segment
from app.memories.access_log import AccessRecorder
from app.resources import Resources
from app.settings import Settings

STORY = Path(__file__).parent / "data" / "demo_story.json"
FIRST_DAY = 57.0
ACTION_DAYS = 28
"""Shorter than what actions are kept for: none of them is rolled up, a noise that hides the story."""
PATHS = {"agent": "/v1/agents", "memory": "/v1/memories", "fact": "/v1/facts"}
"""Where the parts go that are one call."""
OUTCOMES = {"+": "success", "-": "failure", "p": "partial"}
PAUSE_SECONDS = 40
"""Between two lines of a talk. Lines of the same time could not be told apart by a prompt for one of them."""
ADDED_MS = 1
"""The clock moves on by this at each look, so that creation orders lists."""

T = TypeVar("T", bound=BaseModel)


class StoryClock:
    """A clock that stands at the time of the story. It never goes back and never passes the real time."""

    def __init__(self, today: datetime) -> None:
        self.today, self._now = today, today - timedelta(days=FIRST_DAY)

    def now(self) -> datetime:
        """Returns the time of the story in UTC."""
        self._now = min(self._now + timedelta(milliseconds=ADDED_MS), self.today)
        return self._now

    def at(self, day: float) -> str:
        """Returns the time so many days before today as RFC 3339."""
        return rfc3339(self.today - timedelta(days=day))

    def move_to(self, day: float) -> None:
        """Moves the clock to so many days before today."""
        self._now = max(self._now, self.today - timedelta(days=day))


class ScriptedModel:
    """A language model whose answers are part of the story."""

    model = "a script, no model"

    def __init__(self) -> None:
        self.says: Mapping[str, Json] = {}

    prompt_tokens = 100_000

    def model_for(self, shape: type[BaseModel]) -> str:  # noqa: ARG002 (the protocol)
        return self.model

    def budget(self, allowance: Allowance | None = None) -> Budget:
        """Returns a budget that no run of the story reaches."""
        return Budget(1_000, 10_000_000, allowance)

    async def reply(self, instructions: str, data: str, shape: type[T], budget: Budget) -> T:  # noqa: ARG002 (the protocol)
        """Returns the answer of the story in this shape, or one that says nothing."""
        await budget.claim(0)
        answer: Json = {}
        for name, field in shape.model_fields.items():
            if name in self.says:
                answer[name] = self.says[name]
            elif field.annotation is str:
                answer[name] = "Nothing happened."
            else:
                answer[name] = None if NoneType in get_args(field.annotation) else []
        known = {memory["content"]: memory["memory_id"] for memory in json.loads(data).get("known_memories", ())}
        answer["statements"] = [
            one
            | {
                "replaces": [
                    {"memory_id": known[text], "words": text} for text in one.get("replaces", ()) if text in known
                ]
            }
            for one in answer.get("statements", ())
        ]
        answer = {name: value for name, value in answer.items() if name in shape.model_fields}
        return shape.model_validate(answer)

    async def close(self) -> None:
        """Does nothing: there is no connection."""


class DemoParts(RealParts):
    """Opens the real store and embedding model, with the clock and the language model of the story."""

    def __init__(self, clock: StoryClock) -> None:
        self._clock, self.scripted = clock, ScriptedModel()

    def clock(self) -> Clock:
        return self._clock

    def llm(self, settings: Settings) -> LLM | None:  # noqa: ARG002 (the protocol)
        return self.scripted


async def write_story(settings: Settings) -> dict[str, int]:
    """Fills the store of the settings. Returns how many parts of the story were written, by kind.

    `settings` have jobs disabled: they run here, at the time of the story. Raises ToolError if the service refuses a
    call.
    """
    clock = StoryClock(SystemClock().now().astimezone(UTC))
    parts = DemoParts(clock)
    app = create_app(settings, parts)
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        api = InProcess(app, state["resources"], unauthenticated("demo"))
        writer = StoryWriter(api, state["resources"], clock, parts.scripted)
        story = json.loads(STORY.read_text(encoding="utf-8"))
        for day, kind, entry in in_order(story):
            clock.move_to(day)
            if kind in PATHS:
                await writer.call("POST", PATHS[kind], entry)
            elif "calls" in entry:
                for method, path, body in entry["calls"]:
                    await writer.call(method, path, body)
            else:
                await getattr(writer, f"write_{kind}")(entry)
            writer.counts[kind] = writer.counts.get(kind, 0) + 1
        clock.move_to(0)
        await writer.work()
    return writer.counts


def in_order(story: Json) -> Iterator[tuple[float, str, Json]]:
    """Yields the parts of the story in order of time: day, kind and entry."""
    parts = [(FIRST_DAY, "agent", part) for part in story["agents"]]
    for plural, kind in (("memories", "memory"), ("facts", "fact"), ("talks", "talk"), ("searches", "search")):
        parts += [(part.pop("day"), kind, part) for part in story[plural]]
    parts += [(50.0 - 10 * number, "procedure", part) for number, part in enumerate(story["procedures"])]
    parts += [(part["day"], part["kind"], part) for part in story["calls"]]
    parts += [(day, "actions", {"types": story["action_types"], "day": day}) for day in range(ACTION_DAYS, 0, -1)]
    parts += [(float(day), "decay", {}) for day in range(49, 0, -7)]
    parts += [
        (15.0, "reflection", {"user_id": "jonas"}),
        (2.0, "feedback", {"key": "opening-hours"}),
    ]
    yield from sorted(parts, key=lambda dated: -dated[0])  # stable: equal days keep this order


class StoryWriter:
    """Sends parts of the story to the API."""

    def __init__(self, api: InProcess, resources: Resources, clock: StoryClock, model: ScriptedModel) -> None:
        self._api, self._resources, self._clock, self._model = api, resources, clock, model
        self.counts: dict[str, int] = {}
        self._sessions: dict[str, Json] = {}

    async def call(self, method: str, path: str, body: Json | None = None) -> Any:
        return checked(await self._api(method, path, body)).body

    async def work(self) -> None:
        """Runs every job that is due."""
        own = self._resources
        runner = job_runner(own.settings, own.store, own.embedder, own.clock, own.llm)
        while await runner.step():
            pass

    async def write_talk(self, talk: Json) -> None:
        """Holds a conversation and, if it ends, learns from it."""
        roles = ({"role": "user", "name": talk["name"]}, {"role": "assistant"})
        ended_at, last = self._clock.now(), len(talk["lines"]) - 1
        messages = [
            {
                **roles[number % 2],
                "content": line,
                "timestamp": rfc3339(ended_at - timedelta(seconds=PAUSE_SECONDS * (last - number))),
            }
            for number, line in enumerate(talk["lines"])
        ]
        body = {"agent_id": talk["agent_id"], "user_id": talk["user_id"], "messages": messages}
        path = f"/v1/sessions/{segment(talk['session_id'])}"
        await self.call("POST", f"{path}/messages", body)
        if talk["ends"]:
            await self.work()  # what waits learns from actions: this talk's answer is for the talk alone
            self._model.says = talk["learned"]
            await self.call("POST", f"{path}/end")
            await self.work()
            self._model.says = {}

    async def write_search(self, body: Json) -> None:
        """Searches, so that what is found was accessed at that time."""
        await self.call("POST", "/v1/memories/search", {**body, "top_k": 3})
        accesses = self._resources.accesses
        assert isinstance(accesses, AccessRecorder)
        await accesses.flush()

    async def write_procedure(self, body: Json) -> None:
        outcomes = body.pop("outcomes")
        made = await self.call("POST", "/v1/procedures", body)
        path = f"/v1/procedures/{made['procedure_id']}/outcomes"
        for attempt, outcome in enumerate(outcomes, 1):
            note = {} if outcome == "+" else {"note": f"Attempt {attempt} did not hold."}
            await self.call("POST", path, {"success": outcome == "+", **note})
        await self.work()  # a review that the outcomes ask for is made at once

    async def write_actions(self, entry: Json) -> None:
        """Logs what the agents did on one day."""
        day, items = int(entry["day"]), list[Json]()
        for number, kind in enumerate(entry["types"]):
            if (day * (number + 2) + number) % 5 > 1:
                sign = kind["outcomes"][(day + number) % len(kind["outcomes"])]
                outcome, notes = OUTCOMES[sign], kind["notes"][sign]
                items.append(
                    {
                        "agent_id": "front-desk" if kind["tool"].startswith("desk") else "workshop",
                        "action_type": kind["action_type"],
                        "outcome": outcome,
                        "content": notes[day % len(notes)],
                        "action": {"tool": kind["tool"], "duration_ms": 400 + 37 * ((day * 7 + number * 5) % 23)},
                        "entities": [kind["entity"]],
                        "feedback": {"user_rating": 3 + (day + number) % 3} if outcome == "success" else {},
                    }
                )
        await self.call("POST", "/v1/actions/batch", {"items": items})

    async def write_decay(self, _: Json) -> None:
        """Runs the job that stores how importance has faded."""
        await self.call("POST", "/v1/jobs/decay/run", {})
        await self.work()

    async def write_reflection(self, body: Json) -> None:
        """Looks for what contradicts itself in what is known of a person."""
        await self.call("POST", "/v1/reflect", body)
        await self.work()

    async def write_feedback(self, entry: Json) -> None:
        """Says that a memory helped."""
        (memory, *_) = (await self.call("GET", f"/v1/memories?key={entry['key']}"))["items"]
        items = [{"memory_id": memory["memory_id"], "helpful": True, "query": "When do you open?"}]
        await self.call("POST", "/v1/memories/feedback", {"items": items})
