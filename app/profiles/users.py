"""Users: profile, interactions, issues and solutions. Issues and solutions are memories of these types.

A profile is what a user's record stores, and the fields that facts about the user state. Merging is pure: fields that a
patch does not name stay.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, cast, get_args

import orjson
from pydantic import Field, GetPydanticSchema, JsonValue, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.core.clock import Clock, rfc3339
from app.core.work import characters, off_loop
from app.errors import no_such
from app.facts.profile import (
    EMPTY_PROFILE,
    USERS,
    Age,
    Interaction,
    ProfileField,
    ProfileLine,
    ProfileLines,
    StatedProfile,
    UserProfile,
    UserRecord,
    new_user,
    profile_of,
)
from app.facts.repository import FactRepository, View
from app.facts.schemas import FactRecord
from app.facts.service import FactService
from app.memories.schemas import JOINED, Memory, MemoryCreate, MemoryPatch, MemoryRecord, MemoryType
from app.memories.service import MemoryService
from app.storage.protocol import Store
from app.storage.records import DAMAGED, left_out
from app.storage.repository import A, Listing, Repository, page_of, require_fit
from app.storage.schema import value_at
from app.storage.scope import Scope
from app.storage.text import normalise_content
from app.writes.executor import Precondition, WriteResult, etag

# --- Requests and answers ---------------------------------------------------------------------------------------------

IssueStatus = TypeAliasType("IssueStatus", Literal["open", "in_progress", "resolved", "closed"])
ISSUE_STATUSES: tuple[IssueStatus, ...] = get_args(IssueStatus.__value__)

ListField = Literal["interests", "conversation_preferences"]
ObjectField = Literal["preferences", "custom"]
LIST_FIELDS: tuple[ListField, ...] = get_args(ListField)
OBJECT_FIELDS: tuple[ObjectField, ...] = get_args(ObjectField)
"""The fields of a profile that are no facts: texts, and objects of the caller."""


class Profile(core.Schema):
    model_config = core.example({"name": "Ada", "interests": ["climbing"]})

    name: ProfileLine | None = None
    age: Age | None = None
    home: ProfileLine | None = Field(None, description="Town, neighbourhood.")
    occupation: ProfileLine | None = None
    interests: ProfileLines = []
    conversation_preferences: ProfileLines = Field([], description="How they like to be talked to, what to leave out.")
    preferences: core.Object = {}
    custom: core.Object = {}


class ProfilePatch(core.Schema):
    """Lists are added to, objects merged (null takes a key away), scalars overwritten (null clears)."""

    model_config = core.example({"home": "Boston", "interests": ["climbing"]})

    name: ProfileLine | None = None
    age: Age | None = None
    home: ProfileLine | None = None
    occupation: ProfileLine | None = None
    interests: ProfileLines | None = None
    conversation_preferences: ProfileLines | None = None
    preferences: core.Object | None = None
    custom: core.Object | None = None


@core.shown
class StoredProfile(UserProfile):
    user_id: str
    version: int
    created_at: str
    updated_at: str


OwnedKind = Literal["memories", "sessions", "facts", "actions", "tasks", "procedures"]


@core.shown
class OwnedRecords(TypedDict):
    """How many records there are of an owner, those included that have expired and are not purged yet."""

    memories: core.Count
    sessions: core.Count
    facts: Annotated[core.Count, Field(description="Statements of all times, those that hold no longer included.")]
    actions: core.Count
    tasks: core.Count
    procedures: core.Count


LastActive = Annotated[
    str | None, Field(description="The UTC day of the newest of these records; null: there is none.")
]


@core.shown
class ListedUser(UserProfile):
    """A user and the profile, which is empty if nobody has written one."""

    user_id: str
    records: OwnedRecords
    last_active: LastActive
    version: Annotated[int | None, Field(description="Null, as the times, where no profile was written.")]
    created_at: str | None
    updated_at: str | None


class InteractionIn(core.Schema):
    model_config = core.example({"summary": "Asked about an invoice", "outcome": "answered"})

    summary: ProfileLine
    outcome: ProfileLine | None = None
    agent_id: core.Identifier | None = Field(
        None, description="With whom: contexts of this agent alone tell it. Null: every agent of the user may know."
    )
    timestamp: core.Timestamp | None = Field(None, description="Default: now.")


@core.shown
class Interactions(TypedDict):
    items: Annotated[list[Interaction], Field(description="The last 50, newest first.")]
    next_cursor: Annotated[str | None, Field(default=None, description="Always null: this is all.")]


class IssueIn(core.Schema):
    model_config = core.example({"description": "Cannot log in since the update"})

    description: core.Text
    status: IssueStatus = "open"
    agent_id: core.Identifier | None = Field(None, description="Null: every agent of the user may know.")
    timestamp: core.Timestamp | None = Field(None, description="When it came up: `event_at` of the memory.")


class IssuePatch(core.Schema):
    model_config = core.example({"status": "resolved"})

    status: IssueStatus


OfUser = Annotated[str | None, WithJsonSchema({"type": "string"})]
"""Issues and solutions have one; other memories may not."""


@core.shown
class Issue(TypedDict):
    issue_id: Annotated[str, Field(description="It is a memory of type `issue` with this id.")]
    user_id: OfUser
    agent_id: str | None
    description: str
    # what a caller has written into the metadata may be no status
    status: Annotated[JsonValue, GetPydanticSchema(lambda _, handler: handler(IssueStatus))]
    timestamp: Annotated[str | None, Field(description="When it came up; null where nobody said.")]
    version: int
    created_at: str
    updated_at: str


class SolutionIn(core.Schema):
    model_config = core.example({"problem": "Cannot log in", "fix": "Cleared the cache"})

    problem: core.Text
    fix: core.Text
    agent_id: core.Identifier | None = None
    timestamp: core.Timestamp | None = Field(None, description="When it was solved: `event_at` of the memory.")


@core.shown
class Solution(TypedDict):
    solution_id: Annotated[str, Field(description="It is a memory of type `solution` with this id.")]
    user_id: OfUser
    agent_id: str | None
    problem: Annotated[JsonValue, WithJsonSchema({"type": "string"})]  # the caller's metadata may hold another value
    fix: Annotated[JsonValue, WithJsonSchema({"type": "string"})]
    timestamp: Annotated[str | None, Field(description="When it was solved; null where nobody said.")]
    version: int
    created_at: str
    updated_at: str


def render_profile(user: UserRecord) -> StoredProfile:
    return {
        **user["profile"],
        "user_id": user["user_id"],
        "version": user["version"],
        "created_at": user["created_at"],
        "updated_at": user["updated_at"],
    }


def status_of(memory: MemoryRecord) -> IssueStatus | None:
    """Returns the status of an issue as prompts show it, or None for any other memory. A caller's metadata may contain
    anything: an invalid status counts as `open`."""
    if memory["memory_type"] != "issue":
        return None
    status = memory["metadata"].get("status")
    return next((known for known in ISSUE_STATUSES if known == status), "open")


def render_issue(memory: Memory) -> Issue:
    status = memory["metadata"].get("status", "open")
    about = {"issue_id": memory["memory_id"], "description": memory["content"], "status": status}
    return cast(Issue, {**about, **_common(memory)})


def render_solution(memory: Memory) -> Solution:
    metadata = memory["metadata"]
    problem, fix = metadata.get("problem", memory["context"] or ""), metadata.get("fix", memory["content"])
    return cast(Solution, {"solution_id": memory["memory_id"], "problem": problem, "fix": fix, **_common(memory)})


def _common(memory: Memory) -> core.Json:
    names = ("user_id", "agent_id", "version", "created_at", "updated_at")
    return {"timestamp": memory["event_at"], **{name: value_at(memory, name) for name in names}}


FACT_FIELDS: tuple[ProfileField, ...] = get_args(ProfileField)
"""The fields of a profile that are facts."""
MAX_INTERACTIONS = 50
MAX_LISTED = 200


def merge_profile(profile: UserProfile, patch: core.Json) -> UserProfile:
    """Applies a patch to a whole profile: lists are added to, objects merged at every depth (null removes a key),
    scalars replaced. Null clears a field."""
    merged: UserProfile = {**profile}
    for scalar in FACT_FIELDS:
        if scalar in patch:
            merged[scalar] = patch[scalar]
    for name in LIST_FIELDS:
        if name in patch:
            texts = patch[name]
            merged[name] = [] if texts is None else add_to(profile[name], texts)[-MAX_LISTED:]
    for field in OBJECT_FIELDS:
        if field in patch:
            entries = patch[field]
            merged[field] = {} if entries is None else core.merge_patch(profile[field], entries)
    return merged


def add_to(old: Sequence[str], new: Iterable[str]) -> list[str]:
    """Returns old and new texts, each once, whatever its spelling."""
    texts = {normalise_content(text): text for text in reversed([*old, *new])}
    return list(reversed(texts.values()))


@dataclass(frozen=True, slots=True)
class ReadUser:
    """A user's record with the whole profile. `facts`: the facts that state its fields, by field. `stored`: the profile
    as the record has it; None if there is no record."""

    record: UserRecord
    facts: Mapping[str, FactRecord]
    stored: UserProfile | None

    @property
    def profile(self) -> UserProfile:
        return self.record["profile"]


class ProfileReader:
    """Reads the profiles of users within a caller's scope."""

    def __init__(self, store: Store, scope: Scope, clock: Clock) -> None:
        self._users, self._facts, self._clock = Repository(store, scope, USERS), FactRepository(store, scope), clock

    async def find(self, user_id: str, view: View | None = None) -> ReadUser | None:
        """Returns a user as of a point in both times, or None if nothing is known of them. What has no history (lists
        and objects) is read as it is now."""
        return (await self.find_many([user_id], view)).get(user_id)

    async def find_many(self, user_ids: Sequence[str], view: View | None = None) -> dict[str, ReadUser]:
        """Returns those of the users of whom a profile is known, by id."""
        records = await self._users.get_many(user_ids)
        stating = await self._stating(user_ids, view)
        users: dict[str, ReadUser] = {}
        for user_id in user_ids:
            if user_id in records or stating[user_id]:
                try:
                    users[user_id] = _read(user_id, records.get(user_id), stating[user_id])
                except DAMAGED as error:
                    left_out(USERS, user_id, type(error).__name__)
        return users

    async def of_records(self, records: Sequence[UserRecord]) -> list[ReadUser]:
        """Returns the users of these stored records, in order, with what is known and true of each now."""
        stating = await self._stating([record["user_id"] for record in records])
        return [_read(record["user_id"], record, stating[record["user_id"]]) for record in records]

    async def _stating(
        self, user_ids: Sequence[str], view: View | None = None
    ) -> Mapping[str, Mapping[str, FactRecord]]:
        """Returns the facts that state fields of the profiles, by user and field."""
        return await self._facts.of_profiles(user_ids, view or View(rfc3339(self._clock.now())))


def _read(user_id: str, record: UserRecord | None, facts: Mapping[str, FactRecord]) -> ReadUser:
    """Returns a user. Facts alone make a user, too: those that were imported without the record."""
    stored = None if record is None else record["profile"]
    base = record or new_user(user_id, min((fact["created_at"] for fact in facts.values()), default=""))
    return ReadUser({**base, "profile": profile_of(stored or {}, facts)}, facts, stored)


ISSUE_IMPORTANCE = 0.6


class UserService:
    """The operations on users within a caller's scope."""

    def __init__(
        self, users: Repository[UserRecord], facts: FactService, memories: MemoryService, clock: Clock
    ) -> None:
        self._users, self._facts, self._memories = users, facts, memories
        self._clock = clock
        self._reader = ProfileReader(users.store, users.scope, clock)

    async def profile(self, user_id: str, as_of: str | None = None, known_at: str | None = None) -> StoredProfile:
        """Returns the profile of a user, as far as it was known at `known_at`, and true at `as_of`. Raises NotFound."""
        user = await self._reader.find(user_id, View(as_of or rfc3339(self._clock.now()), known_at))
        if user is None:
            raise no_such("user")
        return render_profile(user.record)

    async def put_profile(self, user_id: str, body: Profile, precondition: Precondition) -> WriteResult[StoredProfile]:
        whole = cast(UserProfile, dict(body))
        return await self._change(user_id, precondition, characters(vars(body)), lambda _: whole, FACT_FIELDS)

    async def patch_profile(
        self, user_id: str, body: ProfilePatch, precondition: Precondition
    ) -> WriteResult[StoredProfile]:
        """Merges a patch into the profile; see `merge_profile`."""

        def merged(profile: UserProfile) -> UserProfile:
            return merge_profile(profile, body.model_dump(exclude_unset=True))

        named = [name for name in FACT_FIELDS if name in body.model_fields_set]
        return await self._change(user_id, precondition, characters(vars(body)), merged, named)

    async def interact(self, user_id: str, body: InteractionIn, precondition: Precondition) -> WriteResult[Interaction]:
        """Records an interaction and keeps only the last `MAX_INTERACTIONS`. The profile's version stays."""
        if body.agent_id is not None:
            self._users.scope.require_write(body.agent_id, user_id)
        now = rfc3339(self._clock.now())
        entry: Interaction = {
            "summary": body.summary,
            "outcome": body.outcome,
            "agent_id": body.agent_id,
            "timestamp": body.timestamp or now,
        }
        user = await self._users.find_one(user_id)
        precondition.check(user)
        if user is None:
            return WriteResult(entry, [self._users.insert({**new_user(user_id, now), "interactions": [entry]})], 201)
        interactions = [*user["interactions"], entry][-MAX_INTERACTIONS:]
        before = user.get("interacted")
        counted: UserRecord = {"interactions": interactions, "interacted": (before or 0) + 1}
        return WriteResult(entry, [self._users.append(user, counted, expect={"interacted": before})], 201)

    async def interactions(self, user_id: str) -> Interactions:
        """Returns the recorded interactions that the caller may see, the newest first. Those that cannot be read are
        named in the log and left out."""
        user = await self._users.get(user_id)
        return {"items": await recorded_interactions(user, self._users.scope), "next_cursor": None}

    async def _change(
        self,
        user_id: str,
        precondition: Precondition,
        length: int,
        merged: Callable[[UserProfile], UserProfile],
        named: Sequence[ProfileField],
    ) -> WriteResult[StoredProfile]:
        """Changes a profile by a body of that length. `named` are those of the fields to write that are facts: they are
        asserted, and the others stored in the record."""
        now = rfc3339(self._clock.now())
        user = await self._reader.find(user_id)
        old = user.record if user is not None else None
        precondition.check(old)
        record = old or new_user(user_id, now)
        self._users.require_write(record)
        stored: UserProfile = {**(EMPTY_PROFILE if user is None or user.stored is None else user.stored)}

        def within_size() -> UserProfile:
            wanted = merged(record["profile"])
            largest, _ = max(wanted.items(), key=lambda part: len(orjson.dumps(part[1])))
            core.require_size(wanted, core.OBJECT_BYTES, "the profile", f"/{largest}")
            return wanted

        wanted = await off_loop(length, within_size)
        values: dict[str, object] = {name: wanted[name] for name in named}
        changes, stating = await self._facts.state_profile(user_id, StatedProfile(values))
        cleared = cast(UserProfile, dict.fromkeys(named))
        not_facts = cast(UserProfile, {name: wanted[name] for name in (*LIST_FIELDS, *OBJECT_FIELDS)})
        own: UserProfile = {**stored, **not_facts, **cleared}
        profile = profile_of({**wanted, **cleared}, stating)
        if user is None or user.stored is None:
            rendered = render_profile({**record, "profile": profile, "updated_at": now})
            insert = self._users.insert({**record, "profile": own})
            return WriteResult(rendered, [*changes, insert], headers={"ETag": etag(record)})
        fields: UserRecord = {}
        if not core.equal_json(own, user.stored):
            fields = {"profile": own}
        if not fields and not changes:
            return WriteResult(render_profile({**record, "profile": profile}), headers={"ETag": etag(record)})
        new: UserRecord = {**record, "profile": profile, "version": record["version"] + 1, "updated_at": now}
        update = self._users.update(record, fields, now=now)
        return WriteResult(render_profile(new), [*changes, update], headers={"ETag": etag(new)})

    # --- Issues and solutions -----------------------------------------------------------------------------------------

    async def add_issue(self, user_id: str, body: IssueIn, precondition: Precondition) -> WriteResult[Issue]:
        memory = MemoryCreate(
            agent_id=body.agent_id,
            user_id=user_id,
            memory_type="issue",
            content=body.description,
            importance=ISSUE_IMPORTANCE,
            event_at=body.timestamp,
            metadata={"status": body.status},
            deduplicate=False,  # an issue that recurs is not the one that was closed
        )
        return _as(await self._memories.create(memory, precondition), render_issue)

    async def add_solution(self, user_id: str, body: SolutionIn, precondition: Precondition) -> WriteResult[Solution]:
        memory = MemoryCreate.model_validate(
            {
                "agent_id": body.agent_id,
                "user_id": user_id,
                "memory_type": "solution",
                "content": f"{body.problem}\n{body.fix}",
                "importance": ISSUE_IMPORTANCE,
                "event_at": body.timestamp,
                "metadata": {"problem": body.problem, "fix": body.fix},
            },
            context=JOINED,
        )
        return _as(await self._memories.create(memory, precondition), render_solution)

    async def set_issue(
        self, user_id: str, issue_id: str, status: IssueStatus, precondition: Precondition
    ) -> WriteResult[Issue]:
        """Changes the status of an issue. Raises NotFound if the memory is not an issue of this user."""

        def moved(memory: MemoryRecord) -> MemoryPatch:
            if memory["memory_type"] != "issue" or memory["user_id"] != user_id:
                raise no_such("issue")
            return MemoryPatch(metadata={**memory["metadata"], "status": status})

        return _as(await self._memories.change(issue_id, moved, precondition), render_issue)

    async def issues(self, user_id: str, listing: Listing) -> core.Page[Issue]:
        return await self._page(user_id, "issue", render_issue, listing)

    async def solutions(self, user_id: str, listing: Listing) -> core.Page[Solution]:
        return await self._page(user_id, "solution", render_solution, listing)

    async def _page(
        self, user_id: str, kind: MemoryType, render: Callable[[Memory], A], listing: Listing
    ) -> core.Page[A]:
        page = await self._memories.page({"user_id": user_id, "memory_type": kind, "status": "active"}, listing)
        return page_of([render(memory) for memory in page["items"]], page["next_cursor"])


async def recorded_interactions(user: UserRecord, scope: Scope) -> list[Interaction]:
    """Returns the interactions of a user's record that a scope may see, the last recorded first. Those that cannot be
    read are named in the log and left out."""
    stored, readable = user.get("interactions"), list[Interaction]()
    for interaction in reversed(stored if isinstance(stored, list) else []):
        try:
            require_fit(interaction, Interaction)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is about one interaction)
            left_out(USERS, user["user_id"], type(error).__name__)
        else:
            readable.append(interaction)
    return [
        interaction
        for interaction in readable
        if scope.sees({"agent_id": interaction.get("agent_id"), "user_id": user["user_id"]})
    ]


def _as(outcome: WriteResult, render: Callable[[Memory], A]) -> WriteResult[A]:
    return WriteResult(render(outcome.body), outcome.changes, outcome.status, outcome.headers)
