"""Agents: their settings, and their experience, which is learned, copied, rendered for a prompt and ranked for a query.

Lessons are ranked by words alone, so that a request embeds nothing for them. In the prompt, stored text is data: it
cannot close its block, pose as another lesson, or contain a special token.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

from pydantic import Field
from typing_extensions import TypedDict

from app.audit.trail import owned
from app.core import prompt_text
from app.core import schemas as core
from app.core.caches import kept_by_digest
from app.core.clock import Clock, new_id, rfc3339, to_ms
from app.core.language import has_word_of
from app.core.prompt_text import EXPERIENCE, KNOWN_OF_USER, LEARNED, OF_USER, entry, json_line
from app.core.work import characters, off_loop
from app.errors import AlreadyExists, Forbidden, RecordDamaged, invalid, no_such
from app.facts.profile import EMPTY_PROFILE, USERS, ProfileLine, ProfileLines, UserProfile, UserRecord
from app.jobs.queue import OPERATIONS
from app.memories.agents import (
    AGENTS,
    DEFAULT_SETTINGS,
    AgentRecord,
    AgentSettings,
    Decays,
    Experience,
    Lesson,
    LessonList,
    settings_over,
)
from app.memories.repository import SOURCE, MemoryRepository
from app.memories.schemas import KEPT_AS_IS, MEMORIES, MemoryRecord, Source
from app.memories.search import true_at
from app.profiles.users import (
    LastActive,
    ListedUser,
    OwnedKind,
    OwnedRecords,
    ProfileReader,
    add_to,
    render_profile,
    status_of,
)
from app.storage import repository
from app.storage.protocol import Fetched, Store
from app.storage.schema import EVERYTHING, Absent, After, And, Collection, Eq, In, Not, Or, Range, both, matches
from app.storage.scope import Scope
from app.storage.text import normalise_content, text_ids
from app.writes.executor import Precondition, WriteResult, changed, etag

# --- Requests and answers ---------------------------------------------------------------------------------------------


class AgentCreate(core.Schema):
    model_config = core.example({"agent_id": "support", "name": "Support", "model": "gpt-5"})

    agent_id: core.Identifier | None = None
    name: ProfileLine
    description: str = ""
    model: str = ""
    system_prompt: str = ""
    settings: AgentSettings = {}


class AgentPatch(core.Schema):
    model_config = core.example({"description": "Answers customers"})

    name: Annotated[ProfileLine | None, core.NotNull] = None
    description: Annotated[str | None, core.CLEARS_TEXT] = None
    model: Annotated[str | None, core.CLEARS_TEXT] = None
    system_prompt: Annotated[str | None, core.CLEARS_TEXT] = None
    settings: AgentSettings | None = Field(None, description="What is absent in it stays, too; null: all defaults.")


class ExperiencePatch(core.Schema):
    """Lessons are added; one that is known is seen once more. At most 50 a list: the least seen leave."""

    model_config = core.example({"heuristics": ["Ask for the order number first."]})

    procedural_knowledge: str | None = None
    common_scenarios: ProfileLines | None = None
    effective_strategies: ProfileLines | None = None
    known_pitfalls: ProfileLines | None = None
    tool_patterns: ProfileLines | None = None
    heuristics: ProfileLines | None = None
    user_feedback: ProfileLines | None = None
    improvement_areas: ProfileLines | None = None


class ExperienceCopy(core.Schema):
    model_config = core.example({"from_agent_id": "support"})

    from_agent_id: core.Identifier = Field(description="The agent that has learned it.")


@core.shown
class Agent(TypedDict):
    agent_id: str
    name: str
    description: str
    model: str
    system_prompt: Annotated[str | None, Field(description="Null for a key that is bound to users.")]
    settings: Annotated[
        AgentSettings, Field(description="`extraction_instructions` are null for a key that is bound to users.")
    ]
    experience: Annotated[Experience | None, Field(description="Null for a key that is bound to users.")]
    version: int
    created_at: str
    updated_at: str


@core.shown
class ListedAgent(TypedDict):
    """An agent. One that was never registered works with the default settings; what else is only registered is null."""

    agent_id: str
    name: str | None
    description: str | None
    model: str | None
    system_prompt: Annotated[str | None, Field(description="Null for a key that is bound to users, too.")]
    settings: Annotated[
        AgentSettings, Field(description="`extraction_instructions` are null for a key that is bound to users.")
    ]
    experience: Annotated[Experience | None, Field(description="Null for a key that is bound to users, too.")]
    version: int | None
    created_at: str | None
    updated_at: str | None
    records: OwnedRecords
    last_active: LastActive


@core.shown
class Prompt(TypedDict):
    text: str
    tokens: core.Count


def render_agent(agent: AgentRecord, scope: Scope) -> Agent:
    """Renders an agent for a caller: a key that is bound to users does not see what an agent keeps from them. Lessons
    are kept, too: their sources name sessions and memories of other users."""
    whole = cast(Agent, {name: value for name, value in agent.items() if name not in ("tenant_id", "user_id")})
    if scope.users is None:
        return whole
    settings: AgentSettings = {**agent["settings"], "extraction_instructions": None}
    return {**whole, "system_prompt": None, "experience": None, "settings": settings}


PROMPT_MEMORIES = 100
"""The limit of memories in a prompt."""
READ_AT_ONCE = 500


class NamedUser(TypedDict):
    """The id of a user, and the name if it is known."""

    user_id: str
    name: str | None


Marker: TypeAlias = Callable[[NamedUser, list[MemoryRecord]], Awaitable[list[MemoryRecord]]]
"""Takes a user, and memories. Returns the memories, marked where a fact says otherwise."""


class AgentService:
    """The operations on agents within a caller's scope."""

    def __init__(
        self, agents: repository.Repository[AgentRecord], users: ProfileReader, memories: MemoryRepository, clock: Clock
    ) -> None:
        self._agents, self._users, self._memories, self._clock = agents, users, memories, clock

    async def create(self, body: AgentCreate, precondition: Precondition) -> WriteResult[Agent]:
        """Creates an agent. Raises AlreadyExists if the id or the name is taken."""
        precondition.check(None)
        now = rfc3339(self._clock.now())
        agent: AgentRecord = {
            **AGENTS.as_record(dict(body)),
            "agent_id": body.agent_id or new_id("agent"),
            "settings": settings_over(DEFAULT_SETTINGS, body.settings),
            "user_id": None,
            "experience": {**EMPTY_EXPERIENCE},
            "version": 1,
            "created_at": now,
            "updated_at": now,
        }
        # checked first, so that nobody learns which ids are taken
        self._agents.scope.require_write(agent["agent_id"], None)
        if await self._agents.holder(agent["agent_id"]) is not None:
            raise AlreadyExists("That agent_id is taken.")
        await self._check_name(agent)
        return WriteResult(self._shown(agent), [self._agents.insert(agent)], 201, {"ETag": etag(agent)})

    async def _check_name(self, agent: AgentRecord) -> None:
        holders = await self._agents.store.find(AGENTS, self._agents.scope.tenant, Eq("name", agent["name"]), limit=1)
        if holders and holders[0]["agent_id"] != agent["agent_id"]:
            raise AlreadyExists("That name is taken.")

    async def get(self, agent_id: str) -> Agent:
        """Returns an agent. Raises NotFound."""
        return self._shown(await self._agents.get(agent_id))

    async def patch(self, agent_id: str, body: AgentPatch, precondition: Precondition) -> WriteResult[Agent]:
        """Changes fields of an agent. Raises AlreadyExists if the new name is taken."""
        agent = await self._agents.get(agent_id)
        precondition.check(agent)
        stated = AGENTS.as_record(body.model_dump(exclude_unset=True))
        if "settings" in stated:
            # {"settings": null} restores all defaults; {"settings": {"decay": {"floor": 0.2}}} changes the floor alone
            stored = DEFAULT_SETTINGS if body.settings is None else agent["settings"]
            stated["settings"] = settings_over(stored, body.settings or {})
        fields = core.differing(agent, stated)
        if "name" in fields:
            await self._check_name({**agent, **fields})
        return self._changed(agent, fields)

    async def delete(self, agent_id: str, precondition: Precondition) -> WriteResult[None]:
        """Deletes the agent's settings and experience. Memories with its id stay."""
        agent = await self._agents.get_to_delete(agent_id)
        precondition.check(agent)
        return WriteResult(None, [self._agents.delete(agent)], 204)

    async def learn(self, agent_id: str, body: ExperiencePatch, precondition: Precondition) -> WriteResult[Experience]:
        """Adds lessons to the agent's experience, and returns the experience."""
        agent = await self._agents.get(agent_id)
        precondition.check(agent)
        source: Source = {**SOURCE, "api_key_id": self._agents.scope.key_id}
        patch, now = body.model_dump(exclude_unset=True), rfc3339(self._clock.now())
        return self._learned(agent, merge_experience(agent["experience"], patch, source, now))

    async def copy_experience(
        self, agent_id: str, from_agent_id: str, precondition: Precondition
    ) -> WriteResult[Experience]:
        """Adds what another agent has learned, and returns the experience. Raises NotFound for either agent."""
        agent = await self._agents.get(agent_id)
        precondition.check(agent)
        if from_agent_id == agent_id:
            raise invalid("/from_agent_id", "must be another agent")
        other = await self._agents.get(from_agent_id)
        self._agents.require_write(agent)
        return self._learned(agent, copy_experience(agent["experience"], other["experience"], from_agent_id))

    def _learned(self, agent: AgentRecord, experience: Experience) -> WriteResult[Experience]:
        outcome = self._changed(agent, {} if experience == agent["experience"] else {"experience": experience})
        return WriteResult(experience, outcome.changes, headers=outcome.headers)

    async def experience(self, agent_id: str) -> tuple[Experience, AgentRecord]:
        """Returns the experience and the agent that has it. Raises Forbidden for a key that is bound to users."""
        agent = await self._agents.get(agent_id)
        if self._agents.scope.users is not None:
            raise Forbidden(
                "A key that is bound to users does not read an agent's experience; experience-prompt gives the text."
            )
        return agent["experience"], agent

    async def prompt(self, agent_id: str, user_id: str | None, max_tokens: int | None, marks: Marker) -> Prompt:
        """Returns the experience prompt within `max_tokens`, optionally with the profile and memories of a user, which
        `marks` has marked."""
        agent = await self._agents.get(agent_id)
        user = None if user_id is None else await self._users.find(user_id)
        memories: list[MemoryRecord] = []
        if user_id is not None:
            named: NamedUser = {"user_id": user_id, "name": None if user is None else user.profile.get("name")}
            memories = await marks(named, await self._known_of(agent, user_id))
        profile = None if user is None else user.profile
        size = characters(agent["experience"], profile, [memory["content"] for memory in memories])
        text, size = await off_loop(size, compose, agent["experience"], profile, memories, max_tokens)
        return {"text": text, "tokens": size}

    async def _known_of(self, agent: AgentRecord, user_id: str) -> list[MemoryRecord]:
        """Returns what the agent may know of the user, single messages excluded, most important first."""
        now, least = self._clock.now(), agent["settings"].get("min_importance") or 0.0
        where = both(
            Eq("user_id", user_id),
            Or((Eq("agent_id", agent["agent_id"]), Absent("agent_id"))),
            And((Eq("status", "active"), Not(In("memory_type", ("message", *KEPT_AS_IS))))),
            repository.unexpired(rfc3339(now)),
            Range("importance", ge=least),  # the stored importance; the current one is not higher
        )
        decays = Decays(self._agents.store, self._agents.scope.tenant)
        best: list[tuple[float, MemoryRecord]] = []
        true = both(*true_at(rfc3339(now)))
        async for memories in repository.pages(partial(self._memories.find, where), MEMORIES, READ_AT_ONCE):
            best += [
                (await decays.importance(memory, to_ms(now)), memory) for memory in memories if matches(memory, true)
            ]
            best = sorted((entry for entry in best if entry[0] >= least), key=lambda entry: -entry[0])[:PROMPT_MEMORIES]
        return [memory for _, memory in best]

    def _shown(self, agent: AgentRecord) -> Agent:
        return render_agent(agent, self._agents.scope)

    def _changed(self, agent: AgentRecord, fields: AgentRecord) -> WriteResult[Agent]:
        return changed(self._agents, agent, fields, self._shown, rfc3339(self._clock.now()))


# --- Experience: it is learned, copied, rendered for a prompt and ranked for a query ----------------------------------

LESSONS: tuple[LessonList, ...] = get_args(LessonList)
EMPTY_EXPERIENCE: Experience = {
    "procedural_knowledge": "",
    "common_scenarios": [],
    "effective_strategies": [],
    "known_pitfalls": [],
    "tool_patterns": [],
    "heuristics": [],
    "user_feedback": [],
    "improvement_areas": [],
}
MAX_LESSONS = 50
_BLANK_LINES = re.compile(r"(?<!\s)\s*\n\s*\n\s*")


def merge_experience(
    experience: Experience, patch: Mapping[str, Any], source: Source, now: str, names: Sequence[str] = ()
) -> Experience:
    """Adds lessons that were learned `now`. A known lesson is counted once more. Beyond `MAX_LESSONS` the least seen
    are dropped, then the oldest.

    `patch`: the fields of an `ExperiencePatch` that are set; null clears a list. Lessons that contain one of `names` (a
    session's user) are not learned: experience is about no user.
    """
    merged: Experience = {**experience}
    if "procedural_knowledge" in patch:
        merged["procedural_knowledge"] = patch["procedural_knowledge"] or ""
    for name in LESSONS:
        if name in patch and patch[name] is None:
            merged[name] = []
        texts = [text for text in patch.get(name) or () if not names_one(text, names)]
        if texts:
            lessons = experience[name]
            known = {normalise_content(lesson["text"]): lesson.copy() for lesson in lessons}
            for text in texts:
                new: Lesson = {"text": text, "seen": 0, "source": source, "learned_at": now, "first_learned_at": now}
                lesson = known.setdefault(normalise_content(text), new)
                lesson |= {"seen": lesson["seen"] + 1, "learned_at": now}
            learned = list(known.values())
            while len(learned) > MAX_LESSONS:
                learned.pop(min(range(len(learned)), key=lambda at: (learned[at]["seen"], at)))
            merged[name] = learned
    return merged


def copy_experience(experience: Experience, other: Experience, from_agent_id: str) -> Experience:
    """Adds the lessons of another agent's experience that are not known. Each keeps its source and its count and says
    where it was copied from. Own lessons stay; the most seen of the others fill the list up to `MAX_LESSONS`. Knowledge
    is added by paragraphs. Copying twice changes nothing."""
    own, theirs = paragraphs(experience["procedural_knowledge"]), paragraphs(other["procedural_knowledge"])
    known = {normalise_content(text) for text in own}
    new = [text for text in add_to([], theirs) if normalise_content(text) not in known]
    merged: Experience = {**experience}
    if new:
        merged["procedural_knowledge"] = "\n\n".join([*own, *new])
    for name in LESSONS:
        mine = experience[name]
        known = {normalise_content(lesson["text"]) for lesson in mine}
        unknown = [lesson for lesson in other[name] if normalise_content(lesson["text"]) not in known]
        chosen = sorted(unknown, key=lambda lesson: -lesson["seen"])[: max(MAX_LESSONS - len(mine), 0)]
        copies: list[Lesson] = [{**lesson, "copied_from": from_agent_id} for lesson in unknown if lesson in chosen]
        merged[name] = [*mine, *copies]
    return merged


def paragraphs(text: str) -> list[str]:
    """Returns the parts of a text that blank lines separate."""
    return [part for part in _BLANK_LINES.split(text.strip()) if part]


def names_one(text: str, names: Sequence[str]) -> bool:
    """Returns True if a text contains a word of one of the names."""
    return any(has_word_of(name, text) for name in names)


def compose(
    experience: Experience | None,
    profile: UserProfile | None,
    memories: Sequence[MemoryRecord],
    max_tokens: int | None,
) -> tuple[str, int]:
    """Returns the text and its tokens, never more than `max_tokens`. Memories are given most important first. If the
    budget is short, the last of them are left out first, then the least seen lessons."""
    filled = {name: value for name, value in (profile or {}).items() if value not in (None, [], {})}
    lessons = _lessons(experience)
    parts = [json_line(filled) if filled else "", *lessons, *(_memory(memory) for memory in memories)]

    def render(count: int) -> str:
        taken = parts[:count]
        if not any(taken):
            return ""
        return _blocks(taken[:1], taken[1 : 1 + len(lessons)], taken[1 + len(lessons) :])

    text, size, _ = prompt_text.most_that_fit(parts, render, max_tokens)
    return text, size


def _blocks(profile: Sequence[str], lessons: Sequence[str], memories: Sequence[str]) -> str:
    blocks: list[str] = []
    if lessons:
        blocks.append(_block(EXPERIENCE, "\n".join([LEARNED, *lessons])))
    inner = [*(_block("user_profile", text) for text in profile if text)]
    if memories:
        inner.append(_block("memories", "\n".join(memories)))
    if inner:
        blocks.append(_block(OF_USER, "\n".join([KNOWN_OF_USER, *inner])))
    return "\n\n".join(blocks)


def _block(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"


def _lessons(experience: Experience | None) -> list[str]:
    if experience is None:
        return []
    known = experience["procedural_knowledge"]
    lines = [_lesson("procedural_knowledge", known)] if known else []
    lessons = [(name, lesson) for name in LESSONS for lesson in experience[name]]
    lessons.sort(key=lambda entry: -entry[1]["seen"])
    return lines + [_lesson(name, lesson["text"]) for name, lesson in lessons]


def _lesson(name: str, text: str) -> str:
    return entry(f"{name}: ", text).removesuffix("\n")


def _memory(memory: MemoryRecord) -> str:
    told = {"id": memory["memory_id"], "category": memory["memory_type"], "content": memory["content"]}
    if memory["context"]:
        told["context"] = memory["context"]
    if status := status_of(memory):
        told["status"] = status
    return json_line(told)


KNOWLEDGE: Final = "procedural_knowledge"
SHARES_NONE, SHARES_ALL = -4.7, 1.4
"""Log-odds that a lesson helps that shares no word with the query, and one that has all of its words. Fitted as
`OF_COLLECTION` of `app/retrieval/model_weights.py` is, on 20 lessons."""


@dataclass(frozen=True, slots=True)
class RankedLesson:
    """One entry of the experience. `name` is the name of its list; `score` is 0 to 1; `learned_at` is None for
    hand-written knowledge."""

    name: str
    index: int
    text: str
    learned_at: str | None
    seen: float
    score: float
    is_near: bool
    """Whether it has a rare word of the query."""


def ranked_lessons(query: str, experience: Experience, known_at: str | None = None) -> list[RankedLesson]:
    """Returns every lesson, or those that had been learned by `known_at`, best first. Of equal scores hand-written
    knowledge comes before lessons, then the lessons of the latest day, then the most seen ones.

    The score grows with the share of the query's terms that the lesson has.
    """
    knowledge = [
        (KNOWLEDGE, index, text, None, math.inf)
        for index, text in enumerate(paragraphs(experience[KNOWLEDGE]))  # ranked one by one
    ]
    lessons = [
        (name, index, lesson["text"], lesson["learned_at"], float(lesson["seen"]))
        for name in LESSONS
        for index, lesson in enumerate(experience[name])
        if known_at is None or lesson["first_learned_at"] <= known_at
    ]
    entries = [*knowledge, *lessons]
    parts = overlaps(query, [text for _, _, text, _, _ in entries])
    scored = [
        RankedLesson(*entry, likely_helps(part.share), part.has_rare)
        for entry, part in zip(entries, parts, strict=True)
    ]
    scored.sort(key=lambda lesson: ((lesson.learned_at or "")[:10], lesson.seen), reverse=True)
    return sorted(scored, key=lambda lesson: (-lesson.score, lesson.name != KNOWLEDGE))


def likely_helps(share: float) -> float:
    """Returns the probability that a lesson helps that has this share of the query's words."""
    return 1 / (1 + math.exp(-SHARES_NONE - (SHARES_ALL - SHARES_NONE) * share))


class Overlap(NamedTuple):
    """What a text has of a query: the share of its terms, 0 to 1, and whether it has one that is rare."""

    share: float
    has_rare: bool


def overlaps(query: str, texts: Sequence[str]) -> list[Overlap]:
    """Returns what each text has of the query's terms.

    A term weighs log(1 + n / texts with it), so common terms weigh little: where every text is about parcels, a text
    about refunds has more of "refund a parcel" than the others. One of at least half of the largest weight is rare.
    """
    term_sets, query_terms = [_terms(text) for text in texts], frozenset(text_ids(query).tolist())
    often = Counter(term for terms in term_sets for term in terms & query_terms)
    weights = {term: math.log(1 + len(texts) / max(often[term], 1)) for term in query_terms}
    whole = sum(weights.values()) or 1.0
    rare = {term for term, weight in weights.items() if 2 * weight >= math.log(1 + len(texts))}
    return [
        Overlap(sum(weights[term] for term in terms & query_terms) / whole, not rare.isdisjoint(terms))
        for terms in term_sets
    ]


@kept_by_digest(16 << 20, lambda ids: 100 * len(ids))
def _terms(text: str) -> frozenset[int]:
    """Kept, because to analyse the 350 lessons of a full experience takes tens of milliseconds. No text of a lesson
    stays in the process after it was erased."""
    return frozenset(text_ids(text).tolist())


# --- Everyone who owns a record, registered or not: what they own, and when they were active --------------------------

KINDS: Mapping[str, OwnedKind] = {
    "memory": "memories",
    "session": "sessions",
    "fact": "facts",
    "action": "actions",
    "task": "tasks",
    "procedure": "procedures",
}
"""The kinds of records that are counted for an owner, and what they are called in answers."""
DAY = len("2026-06-01")


class Ownership(TypedDict):
    """What an owner owns: `{"records": {"memories": 7, …}, "last_active": "2026-06-01"}`."""

    records: OwnedRecords
    last_active: str | None


class OwnerDirectory:
    """Lists owners within a caller's scope, by their ids. Operations are left out: that of an erasure outlives its
    user. What each owns is counted by indexes, not by reading it."""

    def __init__(self, store: Store, scope: Scope, collections: Sequence[Collection], clock: Clock) -> None:
        self._store, self._scope, self._profiles = store, scope, ProfileReader(store, scope, clock)
        self._of_users = [one for one in owned(collections) if one.audited and one is not OPERATIONS]
        by_kind = {one.kind: one for one in collections}
        self._counted = {called: by_kind[kind] for kind, called in KINDS.items()}

    async def users(self, listing: repository.Listing) -> core.Page[ListedUser]:
        """Returns a page of users, each with the profile, which is empty if none was written."""
        ids, following = await self._ids("user_id", self._of_users, self._scope.users, listing)
        return repository.page_of(await self._shown(ids), following)

    async def user(self, user_id: str) -> ListedUser:
        """Returns a user as the list shows them. Raises NotFound, or RecordDamaged."""
        queries = (
            repository.Repository(self._store, self._scope, collection).values(
                "user_id", Eq("user_id", user_id), order="asc", limit=1
            )
            for collection in self._of_users
        )
        if not any(await asyncio.gather(*queries)):
            raise no_such("user")
        for user in await self._shown([user_id]):
            return user
        raise RecordDamaged

    async def _shown(self, ids: Sequence[str]) -> list[ListedUser]:
        owns, profiles = await asyncio.gather(self._owned("user_id", ids), self._profiles.find_many(ids))

        def listed(user: UserRecord) -> ListedUser:
            user_id, known = user["user_id"], profiles.get(user["user_id"])
            if known is not None:
                return {**render_profile(known.record), **owns[user_id]}
            unwritten = cast(ListedUser, dict.fromkeys(("version", "created_at", "updated_at")))
            return {**unwritten, **EMPTY_PROFILE, "user_id": user_id, **owns[user_id]}

        users: list[UserRecord] = [{"user_id": one} for one in ids]
        return await repository.render_items(USERS, map(Fetched, users), listed, ListedUser)

    async def agents(self, listing: repository.Listing) -> core.Page[ListedAgent]:
        """Returns a page of agents. One that is not registered works with the defaults."""
        ids, following = await self._ids("agent_id", [AGENTS, *self._counted.values()], self._scope.agents, listing)
        registered = repository.Repository(self._store, self._scope, AGENTS)
        owns, agents = await asyncio.gather(self._owned("agent_id", ids), registered.get_many(ids))

        def listed(agent: AgentRecord) -> ListedAgent:
            agent_id, known = agent["agent_id"], agents.get(agent["agent_id"])
            if known is not None:
                return {**render_agent(known, self._scope), **owns[agent_id]}
            unknown = cast(ListedAgent, dict.fromkeys(ListedAgent.__annotations__))
            settings = settings_over(DEFAULT_SETTINGS, {})
            return {**unknown, "agent_id": agent_id, "settings": settings, **owns[agent_id]}

        owners: list[AgentRecord] = [{"agent_id": one} for one in ids]
        return repository.page_of(
            await repository.render_items(AGENTS, map(Fetched, owners), listed, ListedAgent), following
        )

    async def _ids(
        self,
        owner: Literal["user_id", "agent_id"],
        collections: Sequence[Collection],
        bound: frozenset[str] | None,
        listing: repository.Listing,
    ) -> tuple[list[str], str | None]:
        """Returns the ids of a page, and the cursor of the next."""
        request = repr((self._scope.tenant, owner, listing.order))
        after = None if listing.cursor is None else repository.open_cursor(listing.cursor, request, str).id
        where = EVERYTHING if bound is None else In(owner, tuple(sorted(bound)))
        queries = [
            repository.Repository(self._store, self._scope, collection).values(
                owner, where, order=listing.order, after=after, limit=listing.limit + 1
            )
            for collection in collections
        ]
        everyone = {one for part in await asyncio.gather(*queries) for one in part}
        ids = sorted(everyone, reverse=listing.order == "desc")
        page = ids[: listing.limit]
        return page, repository.seal_cursor(After(page[-1], page[-1]), request) if len(ids) > len(page) else None

    async def _owned(self, owner: str, ids: Sequence[str]) -> dict[str, Ownership]:
        """Returns what each of the owners owns."""
        of_these = In(owner, tuple(ids))
        tallies = [
            repository.Repository(self._store, self._scope, collection).tally(
                (owner, collection.order), of_these, first=DAY
            )
            for collection in self._counted.values()
        ]
        owns: dict[str, Ownership] = {}
        for owner_id in ids:
            none: OwnedRecords = {"memories": 0, "sessions": 0, "facts": 0, "actions": 0, "tasks": 0, "procedures": 0}
            owns[owner_id] = {"records": none, "last_active": None}
        for kind, tallied in zip(self._counted, await asyncio.gather(*tallies), strict=True):
            for (owner_id, day), count in tallied.items():  # {("ada", "2026-06-01"): 7}
                ownership = owns[owner_id]
                ownership["records"][kind] += count
                ownership["last_active"] = max(filter(None, (ownership["last_active"], day)), default=None)
        return owns
