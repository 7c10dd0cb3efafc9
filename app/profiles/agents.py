"""Agents, their settings and their experience, and the ranking of their lessons for a query.

Lessons are ranked by words alone, so that a request embeds nothing for them.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from app.core.clock import Clock, new_id, rfc3339, to_ms
from app.errors import AlreadyExists, Forbidden, invalid
from app.memories.agents import AGENTS
from app.memories.decays import Decays
from app.memories.models import MEMORIES
from app.memories.records import SOURCE
from app.memories.repository import MemoryRepository
from app.memories.search_filters import true_at
from app.profiles import merge
from app.profiles.merge import LESSONS, ProfileReader
from app.profiles.overlap import shares
from app.profiles.schemas import Agent, AgentCreate, AgentPatch, AgentSettings, ExperiencePatch, render_agent
from app.storage.repository import Listing, Repository, pages, render_items, unexpired
from app.storage.schema import EVERYTHING, Absent, And, Doc, Eq, Not, Or, Range, both, matches
from app.writes.executor import IfMatch, WriteResult, changed, etag

PROMPT_MEMORIES = 100
"""The limit of memories in a prompt."""
READ_AT_ONCE = 500


Marker: TypeAlias = Callable[[Doc, list[Doc]], Awaitable[list[Doc]]]
"""Takes the id and name of a user, and memories. Returns the memories, marked where a fact says otherwise."""


class AgentService:
    """The operations on agents within a caller's scope."""

    def __init__(self, agents: Repository, users: ProfileReader, memories: MemoryRepository, clock: Clock) -> None:
        self._agents, self._users, self._memories, self._clock = agents, users, memories, clock

    async def create(self, body: AgentCreate, precondition: IfMatch) -> WriteResult:
        """Creates an agent. Raises AlreadyExists if the id or the name is taken."""
        precondition.check(None)
        now = rfc3339(self._clock.now())
        doc = {
            **body.model_dump(),
            "agent_id": body.agent_id or new_id("agent"),
            "user_id": None,
            "experience": dict(merge.EMPTY_EXPERIENCE),
            "version": 1,
            "created_at": now,
            "updated_at": now,
        }
        # checked first, so that nobody learns which ids are taken
        self._agents.scope.require_write(doc["agent_id"], None)
        if await self._agents.holder(doc["agent_id"]) is not None:
            raise AlreadyExists("That agent_id is taken.")
        await self._check_name(doc)
        return WriteResult(self._shown(doc), [self._agents.insert(doc)], 201, {"ETag": etag(doc)})

    async def _check_name(self, doc: Doc) -> None:
        found = await self._agents.store.find(AGENTS, self._agents.scope.tenant, Eq("name", doc["name"]), limit=1)
        if found and found[0]["agent_id"] != doc["agent_id"]:
            raise AlreadyExists("That name is taken.")

    async def get(self, agent_id: str) -> Doc:
        """Returns an agent. Raises NotFound."""
        return self._shown(await self._agents.get(agent_id))

    async def page(self, listing: Listing) -> Doc:
        """Returns a page of agents."""
        docs, cursor = await self._agents.page(EVERYTHING, listing, mark=AGENTS.name)
        return {"items": await render_items(AGENTS, docs, self._shown, Agent), "next_cursor": cursor}

    async def patch(self, agent_id: str, body: AgentPatch, precondition: IfMatch) -> WriteResult:
        """Changes fields of an agent. Raises AlreadyExists if the new name is taken."""
        doc = await self._agents.get(agent_id)
        precondition.check(doc)
        named = body.model_dump(include=body.model_fields_set)
        if "settings" in named:
            named["settings"] = _settings(doc["settings"], body.settings)
        fields = {name: value for name, value in named.items() if doc[name] != value}
        if "name" in fields:
            await self._check_name(doc | fields)
        return self._changed(doc, fields)

    async def delete(self, agent_id: str, precondition: IfMatch) -> WriteResult:
        """Deletes the agent's settings and experience. Memories with its id stay."""
        doc = await self._agents.get(agent_id)
        precondition.check(doc)
        return WriteResult(None, [self._agents.delete(doc)], 204)

    async def learn(self, agent_id: str, body: ExperiencePatch, precondition: IfMatch) -> WriteResult:
        """Adds lessons to the agent's experience, and returns the experience."""
        doc = await self._agents.get(agent_id)
        precondition.check(doc)
        source, now = {**SOURCE, "api_key_id": self._agents.scope.key_id}, rfc3339(self._clock.now())
        experience = merge.merge_experience(doc["experience"], body.model_dump(exclude_unset=True), source, now)
        outcome = self._changed(doc, {} if experience == doc["experience"] else {"experience": experience})
        return WriteResult(experience, outcome.changes, headers=outcome.headers)

    async def copy_experience(self, agent_id: str, from_agent_id: str, precondition: IfMatch) -> WriteResult:
        """Adds what another agent has learned, and returns the experience. Raises NotFound for either agent."""
        doc = await self._agents.get(agent_id)
        precondition.check(doc)
        if from_agent_id == agent_id:
            raise invalid("/from_agent_id", "must be another agent")
        other = await self._agents.get(from_agent_id)
        self._agents.require_write(doc)
        experience = merge.copy_experience(doc["experience"], other["experience"], from_agent_id)
        outcome = self._changed(doc, {} if experience == doc["experience"] else {"experience": experience})
        return WriteResult(experience, outcome.changes, headers=outcome.headers)

    async def experience(self, agent_id: str) -> tuple[Doc, Doc]:
        """Returns the experience and the agent that has it. Raises Forbidden for a key that is bound to users."""
        doc = await self._agents.get(agent_id)
        if self._for_users:
            raise Forbidden(
                "A key that is bound to users does not read an agent's experience; experience-prompt gives the text."
            )
        return doc["experience"], doc

    async def prompt(self, agent_id: str, user_id: str | None, max_tokens: int | None, marks: Marker) -> Doc:
        """Returns the experience prompt within `max_tokens`, optionally with the profile and memories of a user, which
        `marks` has marked."""
        agent = await self._agents.get(agent_id)
        user = None if user_id is None else await self._users.find(user_id)
        memories: list[Doc] = []
        if user_id is not None:
            known = {"user_id": user_id, "name": None if user is None else user.profile.get("name")}
            memories = await marks(known, await self._known_of(agent, user_id))
        text, size = merge.compose(agent["experience"], None if user is None else user.profile, memories, max_tokens)
        return {"text": text, "tokens": size}

    async def _known_of(self, agent: Doc, user_id: str) -> list[Doc]:
        """Returns what the agent may know of the user, single messages excluded, most important first."""
        now, least = self._clock.now(), agent["settings"]["min_importance"]
        where = both(
            Eq("user_id", user_id),
            Or((Eq("agent_id", agent["agent_id"]), Absent("agent_id"))),
            And((Eq("status", "active"), Not(Eq("memory_type", "message")))),
            unexpired(rfc3339(now)),
            Range("importance", ge=least),  # the stored importance; the current one is not higher
        )
        decays = Decays(self._agents.store, self._agents.scope.tenant)
        best: list[tuple[float, Doc]] = []
        true = both(*true_at(rfc3339(now)))
        async for docs in pages(partial(self._memories.find, where), MEMORIES, READ_AT_ONCE):
            best += [(await decays.importance(doc, to_ms(now)), doc) for doc in docs if matches(doc, true)]
            best = sorted((one for one in best if one[0] >= least), key=lambda one: -one[0])[:PROMPT_MEMORIES]
        return [doc for _, doc in best]

    @property
    def _for_users(self) -> bool:
        """Whether the caller stands for users: it then does not see what an agent keeps from them."""
        return self._agents.scope.users is not None

    def _shown(self, doc: Doc) -> Doc:
        return render_agent(doc, self._agents.scope)

    def _changed(self, doc: Doc, fields: Doc) -> WriteResult:
        return changed(self._agents, doc, fields, self._shown, rfc3339(self._clock.now()))


def _settings(old: Doc, patch: AgentSettings | None) -> Doc:
    """Merges settings: absent fields stay, also inside `decay`; null restores all defaults."""
    if patch is None:
        return AgentSettings().model_dump()
    named = patch.model_dump(exclude_unset=True)
    return old | named | {"decay": old["decay"] | named.get("decay", {})}


KNOWLEDGE = "procedural_knowledge"
LEAST, MOST = 0.02, 0.4
"""The score of a lesson that shares no word with the query, and of one that contains all of its words. They are
compared with the calibrated scores of other sections: a lesson is about no user and is seldom the answer itself."""


@dataclass(frozen=True, slots=True)
class RankedLesson:
    """One entry of the experience. `name` is the name of its list; `score` is 0 to 1; `learned_at` is None for
    hand-written knowledge, and for lessons of earlier versions."""

    name: str
    index: int
    text: str
    learned_at: str | None
    seen: float
    score: float


def ranked(query: str, experience: Doc) -> list[RankedLesson]:
    """Returns every lesson, best first. Of equal scores hand-written knowledge comes before lessons, then the lessons
    of the latest day, then the most seen ones.

    The score grows with the share of the query's terms that the lesson has.
    """
    knowledge = [
        (KNOWLEDGE, index, text, None, math.inf)
        for index, text in enumerate(merge.paragraphs(experience[KNOWLEDGE]))  # ranked one by one
    ]
    lessons = [
        (name, index, lesson["text"], lesson.get("learned_at"), float(lesson["seen"]))
        for name in LESSONS
        for index, lesson in enumerate(experience[name])
    ]
    entries = [*knowledge, *lessons]
    parts = shares(query, [text for _, _, text, _, _ in entries])
    scored = [RankedLesson(*one, LEAST + (MOST - LEAST) * part) for one, part in zip(entries, parts, strict=True)]
    scored.sort(key=lambda one: ((one.learned_at or "")[:10], one.seen), reverse=True)
    return sorted(scored, key=lambda one: (-one.score, one.name != KNOWLEDGE))
