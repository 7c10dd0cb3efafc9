"""Manages users: profile, interactions, issues and solutions. Issues and solutions are memories of these types."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import orjson

from app.audit.trail import owned
from app.core.clock import Clock, rfc3339
from app.core.limits import OBJECT_BYTES
from app.core.schemas import equal_json, require_size
from app.errors import no_such
from app.facts.drafts import NOTHING, LearnedValue, StatedProfile
from app.facts.keys import EMPTY_PROFILE, PREDICATES, USERS, new_user
from app.facts.repository import View
from app.facts.service import FactService
from app.jobs.models import OPERATIONS
from app.memories.schemas import MemoryCreate, MemoryPatch
from app.memories.service import MemoryService
from app.profiles import merge
from app.profiles.earlier import with_change
from app.profiles.merge import ProfileReader, ReadUser
from app.profiles.schemas import (
    Interaction,
    InteractionIn,
    IssueIn,
    ListedUser,
    Profile,
    ProfilePatch,
    SolutionIn,
    render_issue,
    render_profile,
    render_solution,
)
from app.storage.records import left_out
from app.storage.repository import Listing, Repository, fault_of, open_cursor, render_items, seal_cursor
from app.storage.schema import EVERYTHING, After, Collection, Doc, In
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteResult, etag

ISSUE_IMPORTANCE = 0.6


class UserService:
    """The operations on users within a caller's scope."""

    def __init__(self, users: Repository, facts: FactService, memories: MemoryService, clock: Clock) -> None:
        self._users, self._facts, self._memories = users, facts, memories
        self._clock = clock
        self._reader = ProfileReader(users.store, users.scope, clock)

    async def profile(self, user_id: str, as_of: str | None = None, known_at: str | None = None) -> Doc:
        """Returns the profile of a user, as far as it was known at `known_at`, and true at `as_of`. Raises NotFound."""
        read = await self._reader.find(user_id, View(as_of or rfc3339(self._clock.now()), known_at))
        if read is None:
            raise no_such("user")
        return render_profile(read.record)

    async def put_profile(self, user_id: str, body: Profile, precondition: IfMatch) -> WriteResult:
        """Replaces the whole profile."""
        return await self._change(user_id, precondition, lambda _: body.model_dump(), tuple(PREDICATES))

    async def patch_profile(
        self, user_id: str, body: ProfilePatch, precondition: IfMatch, learned: Mapping[str, LearnedValue] | None = None
    ) -> WriteResult:
        """Merges a patch into the profile; see `merge.merge_profile`. `learned`: for what the service has learned, the
        trust, source and time of each field that is a fact."""
        patch = body.model_dump(exclude_unset=True)
        named = [name for name in patch if name in PREDICATES]
        return await self._change(
            user_id, precondition, lambda profile: merge.merge_profile(profile, patch), named, learned or {}
        )

    def _bounded(self, profile: Doc) -> Doc:
        """Returns the profile. Raises Invalid, naming its largest part, if it is too large."""
        largest = max(profile, key=lambda name: len(orjson.dumps(profile[name])))
        require_size(profile, OBJECT_BYTES, "the profile", f"/{largest}")
        return profile

    async def interact(self, user_id: str, body: InteractionIn, precondition: IfMatch) -> WriteResult:
        """Records an interaction and keeps only the last `MAX_INTERACTIONS`. The profile's version stays."""
        if body.agent_id is not None:
            self._users.scope.require_write(body.agent_id, user_id)
        now = rfc3339(self._clock.now())
        entry = body.model_dump() | {"timestamp": body.timestamp or now}
        old = await self._users.find_one(user_id)
        precondition.check(old)
        if old is None:
            return WriteResult(entry, [self._users.insert(new_user(user_id, now) | {"interactions": [entry]})], 201)
        kept = [*old["interactions"], entry][-merge.MAX_INTERACTIONS :]
        before = old.get("interacted")
        counted = {"interactions": kept, "interacted": (before or 0) + 1}
        return WriteResult(entry, [self._users.append(old, counted, expect={"interacted": before})], 201)

    async def interactions(self, user_id: str) -> Doc:
        """Returns the recorded interactions that the caller may see, the newest first. Those that cannot be read are
        named in the log and left out."""
        user = await self._users.get(user_id)
        return {"items": await recorded_interactions(user, self._users.scope), "next_cursor": None}

    async def _change(
        self,
        user_id: str,
        precondition: IfMatch,
        merged: Callable[[Doc], Doc],
        named: Sequence[str],
        learned: Mapping[str, LearnedValue] = NOTHING,
    ) -> WriteResult:
        """Changes a profile. `named` are those of the fields to write that are facts: they are asserted, and the
        others stored in the record."""
        now = rfc3339(self._clock.now())
        read = await self._reader.find(user_id)
        old = read.record if read is not None else None
        precondition.check(old)
        record = old or new_user(user_id, now)
        self._users.require_write(record)
        stored = dict(EMPTY_PROFILE if read is None or read.stored is None else read.stored)
        wanted = self._bounded(merged(record["profile"]))
        earlier = {name: stored.get(name) for name in named}
        values = {name: wanted[name] for name in named}
        changes, hold = await self._facts.state_profile(user_id, StatedProfile(values, earlier, learned))
        kept = {**stored, **{name: wanted[name] for name in wanted if name not in PREDICATES}, **dict.fromkeys(named)}
        profile = wanted | {name: hold.get(name) for name in named}
        if read is None or read.stored is None:
            body = render_profile(record | {"profile": profile, "updated_at": now})
            return WriteResult(
                body, [*changes, self._users.insert(record | {"profile": kept})], 200, {"ETag": etag(record)}
            )
        fields = {}
        if not equal_json(kept, read.stored):
            fields = {"profile": kept, "earlier": with_change(record, kept, read.stored, now)}
        if not fields and not changes:
            return WriteResult(render_profile(record | {"profile": profile}), headers={"ETag": etag(record)})
        new = record | {"profile": profile, "version": record["version"] + 1, "updated_at": now}
        return WriteResult(
            render_profile(new), [*changes, self._users.update(record, fields, now=now)], headers={"ETag": etag(new)}
        )

    # --- Issues and solutions -----------------------------------------------------------------------------------------

    async def add_issue(self, user_id: str, body: IssueIn, precondition: IfMatch) -> WriteResult:
        """Stores an issue as a memory."""
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

    async def add_solution(self, user_id: str, body: SolutionIn, precondition: IfMatch) -> WriteResult:
        """Stores a solution as a memory."""
        memory = MemoryCreate(
            agent_id=body.agent_id,
            user_id=user_id,
            memory_type="solution",
            content=f"{body.problem}\n{body.fix}",
            importance=ISSUE_IMPORTANCE,
            event_at=body.timestamp,
            metadata={"problem": body.problem, "fix": body.fix},
        )
        return _as(await self._memories.create(memory, precondition), render_solution)

    async def set_issue(self, user_id: str, issue_id: str, status: str, precondition: IfMatch) -> WriteResult:
        """Changes the status of an issue. Raises NotFound if the memory is not an issue of this user."""

        def moved(memory: Doc) -> MemoryPatch:
            if memory["memory_type"] != "issue" or memory["user_id"] != user_id:
                raise no_such("issue")
            return MemoryPatch(metadata=memory["metadata"] | {"status": status})

        return _as(await self._memories.change(issue_id, moved, precondition), render_issue)

    async def issues(self, user_id: str, listing: Listing) -> Doc:
        """Returns a page of the user's active issues."""
        return await self._page(user_id, "issue", render_issue, listing)

    async def solutions(self, user_id: str, listing: Listing) -> Doc:
        """Returns a page of the user's active solutions."""
        return await self._page(user_id, "solution", render_solution, listing)

    async def _page(self, user_id: str, kind: str, render: Callable[[Doc], Doc], listing: Listing) -> Doc:
        filters = {"user_id": user_id, "memory_type": kind, "status": "active"}
        page = await self._memories.page(filters, listing)
        return page | {"items": [render(memory) for memory in page["items"]]}


async def recorded_interactions(user: Doc, scope: Scope) -> list[Doc]:
    """Returns the interactions of a user's record that a scope may see, the last recorded first. Those that cannot be
    read are named in the log and left out."""
    stored, items = user.get("interactions"), list[Doc]()
    for interaction in reversed(stored if isinstance(stored, list) else []):
        if (fault := await fault_of(interaction, dict, Interaction, items)) is not None:
            left_out(USERS, user["user_id"], fault)
    return [one for one in items if scope.sees({"agent_id": one.get("agent_id"), "user_id": user["user_id"]})]


class UserDirectory:
    """Lists everyone of whom a record is stored, within a caller's scope. Operations are left out: that of an erasure
    outlives its user."""

    def __init__(self, users: Repository, collections: Sequence[Collection], clock: Clock) -> None:
        self._users, self._reader = users, ProfileReader(users.store, users.scope, clock)
        records = [one for one in owned(collections) if one.audited and one is not OPERATIONS]
        self._owned = [Repository(users.store, users.scope, collection) for collection in records]

    async def page(self, listing: Listing) -> Doc:
        """Returns a page of users by their ids, each with the profile, which is empty if none was written."""
        scope, limit = self._users.scope, listing.limit
        mark = repr((scope.tenant, USERS.name, listing.order))
        after = None if listing.cursor is None else open_cursor(listing.cursor, mark, str).id
        bound = EVERYTHING if scope.users is None else In("user_id", tuple(sorted(scope.users)))
        queries = (
            one.values("user_id", bound, order=listing.order, after=after, limit=limit + 1) for one in self._owned
        )
        found = {user for part in await asyncio.gather(*queries) for user in part}
        ordered = sorted(found, reverse=listing.order == "desc")
        named = ordered[:limit]
        profiles = await self._reader.find_many(named)

        def listed(user: Doc) -> Doc:
            return _listed(user["user_id"], profiles.get(user["user_id"]))

        following = seal_cursor(After(named[-1], named[-1]), mark) if len(ordered) > limit else None
        return {
            "items": await render_items(USERS, [{"user_id": user} for user in named], listed, ListedUser),
            "next_cursor": following,
        }


def _listed(user_id: str, read: ReadUser | None) -> Doc:
    if read is not None:
        return render_profile(read.record)
    return {**EMPTY_PROFILE, "user_id": user_id, **dict.fromkeys(("version", "created_at", "updated_at"))}


def _as(outcome: WriteResult, render: Callable[[Doc], Doc]) -> WriteResult:
    return replace(outcome, body=render(outcome.body))
