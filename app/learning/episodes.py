"""Calls of tools and their results, as the model sees them where an agent learns its work. Pure functions.

What a tool gave back is nobody's word: no memory, fact or profile is learned from it.

Batches of episodes, and rules for what may be learned from them. Pure functions.

An episode is logged by a caller, as a message is. A derived record has the lowest trust of its episodes, which is 1.

Revised steps of a failing procedure: what the model is shown, and the rule by which its answer is taken.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, TypeVar

import orjson
from pydantic import ValidationError

from app.actions.schemas import ACTIONS, ActionRecord
from app.core import prompt_text
from app.core.clock import new_id, rfc3339
from app.core.language import is_unspaced, words
from app.core.prompt_text import count
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.errors import Invalid
from app.facts.schemas import FactCreate
from app.learning import derivations, prompts
from app.learning.checks import numbers_said, stands, time_said
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationRecord
from app.learning.extraction import UNSUPPORTED, DroppedCounts, about, is_user
from app.learning.prompts import StatedFact, StatedProcedure, TranscriptLine
from app.llm.base import LLM, Budget
from app.memories.repository import same_pair
from app.memories.schemas import Source
from app.procedures.schemas import ProcedureCreate, ProcedureRecord, ProcedureTrial
from app.procedures.service import ended_trial, learned
from app.procedures.track_record import new_trial
from app.sessions.schemas import MessageRecord
from app.storage.changes import Change
from app.storage.repository import Repository
from app.storage.schema import Collection, OwnedRecord
from app.storage.scope import Scope
from app.storage.text import normalise_content

MAX_CALLS = 40
"""The limit of calls in one request to the model: the last ones."""
ARGUMENT_CHARS, RESULT_CHARS = 300, 500


class EpisodeCall(TypedDict):
    """A call of a tool as the model sees it. Of a result whose call is not known, there are no arguments."""

    seq: int
    tool: str | None
    arguments: str | None
    result: str | None


def of_messages(messages: Iterable[MessageRecord]) -> list[EpisodeCall]:
    """Returns the calls in messages, in their order, each with its result, or None where none came. A result whose call
    is not among the messages stands alone."""
    calls: list[EpisodeCall] = []
    waiting: dict[str, EpisodeCall] = {}
    for message in messages:
        for made in message.get("tool_calls") or ():
            function = made.get("function")
            arguments = as_text(function and function.get("arguments"), ARGUMENT_CHARS)
            call: EpisodeCall = {
                "seq": message["seq"],
                "tool": function and function.get("name"),
                "arguments": arguments,
                "result": None,
            }
            waiting[str(made.get("id"))] = call
            calls.append(call)
        if message["role"] == "tool":
            answered = waiting.get(str(message.get("tool_call_id")))
            if answered is None:
                answered = {"seq": message["seq"], "tool": message["name"], "arguments": None, "result": None}
                calls.append(answered)
            answered["result"] = as_text(message["text"] or message.get("result"), RESULT_CHARS)
    return calls[-MAX_CALLS:]


def as_text(value: object, most: int) -> str | None:
    """Returns a value as text of at most `most` characters, without text that the service itself served."""
    if value is None:
        return None
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return strip_served(text).strip()[:most]


T = TypeVar("T", StatedFact, StatedProcedure)

TRUST = 1.0
CHUNK_TOKENS = 6_000
MOST = 50
"""The limit of episodes in one request to the model."""
CONTENT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes of one partition in order of time. The model refers to them by number, from 1."""

    scope: Scope
    agent_id: str | None
    user_id: str | None
    actions: Sequence[ActionRecord]

    @property
    def owner(self) -> OwnedRecord:
        """The agent and user of the episodes, as fields."""
        return {"agent_id": self.agent_id, "user_id": self.user_id}

    @property
    def prompt(self) -> str:
        """The name of the prompt that the parts' prompts follow."""
        return "episodes"

    def data(self, known: Json) -> str:
        """Returns the episodes, and further data, as JSON for the model."""
        return orjson.dumps({"episodes": self.shown(), **known}).decode()

    def shown(self) -> list[Json]:
        """Returns the episodes as the model sees them."""
        return [_shown(number, action) for number, action in enumerate(self.actions, start=1)]

    def cited(self, numbers: Sequence[int]) -> list[ActionRecord]:
        """Returns the episodes with these numbers, in order. Unknown numbers are ignored."""
        return [self.actions[number - 1] for number in sorted({*numbers}) if 1 <= number <= len(self.actions)]

    @property
    def size(self) -> int:
        """The number of episodes."""
        return len(self.actions)

    @property
    def action_ids(self) -> list[str]:
        """The ids of the episodes."""
        return ids_of(self.actions)

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """Returns an id that is the same for the same episodes, extractor and prompt."""
        return derivations.id_of(self.action_ids, extractor, prompt_id)

    @property
    def record(self) -> tuple[Collection, str]:
        """The first episode."""
        return ACTIONS, self.actions[0]["action_id"]

    def described(self) -> DerivationRecord:
        """Returns owner and episodes, as fields of a derivation."""
        return {"agent_id": self.agent_id, "user_id": self.user_id, "action_ids": self.action_ids}

    def unchanged(self) -> list[Change]:
        """Returns no changes: what was logged does not change."""
        return []


def ids_of(actions: Iterable[ActionRecord]) -> list[str]:
    """Returns the ids of actions."""
    return [action["action_id"] for action in actions]


def _shown(number: int, action: ActionRecord) -> Json:
    feedback = {name: value for name, value in action["feedback"].items() if value is not None}
    # what the action holds of its call: input, output, duration and any other key that is set
    call = {
        name: value if name == "duration_ms" else as_text(value, RESULT_CHARS)
        for name, value in action["action"].items()
        if value is not None and name != "tool"
    }
    return {
        "number": number,
        "at": action["timestamp"],
        "event_type": action["event_type"],
        "action_type": action["action_type"],
        "actor": action["actor"],
        "outcome": action["outcome"],
        "entities": action["entities"],
        "tool": action["action"].get("tool"),
        "content": strip_served(action["content"]).strip()[:CONTENT_CHARS],
        **({"call": call} if call else {}),
        **({"feedback": feedback} if feedback else {}),
    }


def chunks(batch: Batch, limit: int = CHUNK_TOKENS, max_episodes: int = MOST) -> Iterator[Batch]:
    """Splits a batch into batches of at most `limit` tokens and `max_episodes` episodes. A longer episode is a batch of
    its own."""
    for actions in prompt_text.in_chunks(batch.actions, _as_prompted, limit, max_episodes):
        yield replace(batch, actions=actions)


def _as_prompted(action: ActionRecord) -> str:
    return orjson.dumps(_shown(0, action)).decode()


def as_read(action: ActionRecord) -> tuple[str, str]:
    """Returns an episode as the model is shown it, and as a lesson may quote it."""
    return _as_prompted(action), _quotable(action)


def lines(batch: Batch) -> list[TranscriptLine]:
    """Returns the episodes as lines that a lesson may quote."""
    return [
        TranscriptLine(number, "tool", None, action["timestamp"], _quotable(action))
        for number, action in enumerate(batch.actions, start=1)
    ]


def _quotable(action: ActionRecord) -> str:
    shown = _shown(0, action)
    return " ".join([shown["content"], *(str(value) for value in shown.get("call", {}).values())])


def facts(
    stated: Sequence[StatedFact],
    batch: Batch,
    dropped: DroppedCounts,
    names: Sequence[str] = (),
    *,
    looked: bool = True,
) -> list[tuple[FactCreate, Source]]:
    """Returns the facts to assert with the ids of their episodes, as a field of the source. Facts that cite no episode,
    or whose object none of them contains, are dropped. A fact without a time, or with one that its episodes do not
    say, is valid from its first episode on. `names` are the user's."""
    lines_of = {line.seq: line for line in lines(batch)}
    result: list[tuple[FactCreate, Source]] = []
    for fact, cited in _citing(stated, batch, dropped):
        texts = {name: strip_served(getattr(fact, name)).strip() for name in ("subject", "predicate", "object")}
        if not stands(texts["object"], " ".join(map(_as_prompted, cited))):
            dropped["not_said"] += 1
            continue
        logged = [lines_of[number] for number in fact.episode_numbers if number in lines_of]
        begun = None if fact.valid_from is None else time_said(fact.valid_from, logged, looked=looked)
        if fact.valid_from is not None and begun is None:
            dropped["not_said"] += 1
        user = batch.scope.agents is None and is_user(texts["subject"], names)
        try:
            fields = about(fact.model_copy(update=texts), batch.owner, user=user)
            fields["valid_from"] = begun or cited[0]["timestamp"]
            body = FactCreate.model_validate({**batch.owner, **fields, "trust": TRUST})
        except (ValidationError, Invalid):
            dropped["invalid"] += 1
            continue
        result.append((body, {"action_ids": ids_of(cited)}))
    return result


def procedures(
    stated: Sequence[StatedProcedure], batch: Batch, dropped: DroppedCounts
) -> Iterator[tuple[StatedProcedure, ProcedureCreate, list[ActionRecord]]]:
    """Yields the procedures that cite episodes, each as a body and with its episodes. Their numbers stand there."""
    lines_of = {line.seq: line for line in lines(batch)}
    for procedure, cited in _citing(stated, batch, dropped):
        fields = {
            "name": strip_served(procedure.name).strip(),
            "trigger": strip_served(procedure.trigger).strip(),
            "preconditions": _lines(procedure.preconditions),
            "steps": _lines(procedure.steps),
            "notes": _lines(procedure.notes),
        }
        try:
            body = ProcedureCreate.model_validate({**batch.owner, **fields, "trust": TRUST})
        except ValidationError:
            dropped["invalid"] += 1
            continue
        text = " ".join([body.trigger, *body.preconditions, *body.steps, *body.notes])
        if numbers_said(text, [lines_of[number] for number in procedure.episode_numbers if number in lines_of]).stands:
            yield procedure, body, cited
        else:
            dropped["not_said"] += 1


def _citing(stated: Sequence[T], batch: Batch, dropped: DroppedCounts) -> Iterator[tuple[T, list[ActionRecord]]]:
    """Yields the items that cite episodes and that the second look left, each with its episodes."""
    for item in stated:
        if item == UNSUPPORTED:
            dropped["unsupported"] += 1
        elif cited := batch.cited(item.episode_numbers):
            yield item, cited
        else:
            dropped["not_quoted"] += 1


def _lines(texts: Sequence[str]) -> list[str]:
    return [text for text in (strip_served(text).strip() for text in texts) if text]


def worked(cited: Sequence[ActionRecord]) -> bool:
    """Returns True if an episode succeeded. New steps are learned only from success."""
    return any(action["outcome"] == "success" for action in cited)


def refined(
    old: ProcedureRecord, body: ProcedureCreate, cited: Sequence[ActionRecord], dropped: DroppedCounts
) -> ProcedureRecord:
    """Returns the changed fields of a known procedure. It gains notes. Its steps change only if they were derived, have
    no more trust, and the new ones have worked. Name, trigger and preconditions stay."""
    changed: ProcedureRecord = {}
    notes, _ = learned(old["notes"], body.notes)
    if {*notes} - {*old["notes"]}:
        changed["notes"] = notes
    if body.steps != old["steps"]:
        derived = old["source"]["origin"] == "consolidation" and old["trust"] <= TRUST
        if derived and worked(cited):
            changed |= {"steps": body.steps, **ended_trial(old, {"steps": body.steps})}
        else:
            dropped["known"] += 1
    return changed


PROMPT = "procedure_revision"
MOST_TRIALS = 3
"""So many trials are dropped; then only a caller changes the steps."""


async def episodes_of(tools: Tools, scope: Scope, procedure: ProcedureRecord) -> dict[str, ActionRecord]:
    """Returns the actions that the procedure's outcomes name, by id. Those of other agents and users are left out: a
    procedure that serves all users is revised from nobody's own episodes."""
    ids = [outcome["action_id"] for outcome in procedure["recent_outcomes"] if outcome["action_id"]]
    actions = await Repository(tools.store, scope, ACTIONS).get_many(ids)
    return {action_id: action for action_id, action in actions.items() if same_pair(action, procedure)}


async def proposed(
    tools: Tools, scope: Scope, procedure: ProcedureRecord, llm: LLM, budget: Budget
) -> ProcedureTrial | None:
    """Asks the model for better steps. Returns a trial of them, or None if it knows none or the rule drops them.

    Raises what the model's client raises.
    """
    episodes = await episodes_of(tools, scope, procedure)
    prompt = prompts.load(PROMPT)
    room = llm.prompt_tokens - prompts.SHAPE_TOKENS - count(prompt.text)
    data = prompts.fitting(_data(procedure, episodes, scope), room)
    answer = await llm.reply(prompt.text, orjson.dumps(data).decode(), prompts.RevisedSteps, budget)
    steps = _lines(answer.revised_steps)
    known = [procedure["steps"], *(procedure.get("dropped_trials") or [])]
    if not founded(steps, data) or _normalised(steps) in map(_normalised, known):
        return None
    model, now = llm.model_for(prompts.RevisedSteps), rfc3339(tools.clock.now())
    return new_trial(new_id("trial"), steps, sorted(episodes), model, prompt.id, now)


def _data(procedure: ProcedureRecord, episodes: Mapping[str, ActionRecord], scope: Scope) -> Json:
    """Returns what the model is shown. The latest outcomes come first: what has no room goes from the end."""
    numbers = {action_id: number for number, action_id in enumerate(episodes)}
    shown = Batch(scope, procedure["agent_id"], procedure["user_id"], list(episodes.values())).shown()
    outcomes: list[Json] = []
    for outcome in reversed(procedure["recent_outcomes"]):
        number = None if outcome["action_id"] is None else numbers.get(outcome["action_id"])
        episode = {} if number is None else {"episode": {**shown[number], "number": number + 1}}
        note = {} if outcome["note"] is None else {"note": strip_served(outcome["note"])}
        outcomes.append({"success": outcome["success"], **note, **episode})
    return {
        "procedure": {
            "name": procedure["name"],
            "trigger": procedure["trigger"],
            "preconditions": procedure["preconditions"],
            "steps": procedure["steps"],
            "notes": procedure["notes"],
        },
        "outcomes": outcomes,
        "tried_in_vain": procedure.get("dropped_trials") or [],
    }


SMALL = 4
"""Words of so few letters join the others ("over", "dann", "avec") and need no evidence."""


def founded(steps: Sequence[str], data: Mapping[str, object]) -> bool:
    """Returns True if there are steps, and all their numbers and every word of them that is not `SMALL` stand in the
    procedure or its outcomes, in one of their forms. What was tried in vain is no evidence."""
    text = orjson.dumps([data["procedure"], data["outcomes"]]).decode()
    for step in steps:
        telling = [word for word in words(step) if len(word) > SMALL or not word.isalpha() or is_unspaced(word)]
        if not telling or not stands(" ".join(telling), text):
            return False
    return bool(steps)


def _normalised(steps: Sequence[str]) -> list[str]:
    return list(map(normalise_content, steps))
