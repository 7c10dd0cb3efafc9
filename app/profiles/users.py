"""Manages users: profile, interactions, issues and solutions. Issues and solutions are memories of these types."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson

from app.audit.trail import owned
from app.core.clock import Clock, rfc3339
from app.core.schemas import require_size, same
from app.errors import NotFound
from app.jobs.models import OPERATIONS
from app.memories.schemas import MemoryCreate, MemoryPatch
from app.memories.service import MemoryService
from app.profiles import merge
from app.profiles.schemas import (
    USERS,
    InteractionIn,
    IssueIn,
    Profile,
    ProfilePatch,
    SolutionIn,
    render_issue,
    render_profile,
    render_solution,
)
from app.setting_groups import LimitSettings
from app.storage.filters import EVERYTHING, In
from app.storage.repository import Listing, Repository, open_cursor, seal_cursor
from app.storage.schema import After, Collection, Doc
from app.writes.executor import IfMatch, WriteResult, changed, etag

ISSUE_IMPORTANCE = 0.6


class UserService:
    """The operations on users within a caller's scope."""

    def __init__(self, users: Repository, memories: MemoryService, limits: LimitSettings, clock: Clock) -> None:
        self._users, self._memories, self._limits, self._clock = users, memories, limits, clock

    async def profile(self, user_id: str) -> Doc:
        """Returns the profile of a user. Raises NotFound."""
        return render_profile(await self._users.get(user_id))

    async def put_profile(self, user_id: str, body: Profile, precondition: IfMatch) -> WriteResult:
        """Replaces the whole profile."""
        return await self._change(user_id, precondition, lambda _: {"profile": self._bounded(body.model_dump())})

    async def patch_profile(self, user_id: str, body: ProfilePatch, precondition: IfMatch) -> WriteResult:
        """Merges a patch into the profile; see `merge.merge_profile`."""
        patch = body.model_dump(exclude_unset=True)
        return await self._change(
            user_id, precondition, lambda doc: {"profile": self._bounded(merge.merge_profile(doc["profile"], patch))}
        )

    def _bounded(self, profile: Doc) -> Doc:
        """Returns the profile. Raises Invalid, naming its largest part, if it is too large."""
        largest = max(profile, key=lambda name: len(orjson.dumps(profile[name])))
        require_size(profile, self._limits.object_bytes, "the profile", f"/{largest}")
        return profile

    async def interact(self, user_id: str, body: InteractionIn, precondition: IfMatch) -> WriteResult:
        """Records an interaction and keeps only the last `MAX_INTERACTIONS`. The profile's version stays."""
        now = rfc3339(self._clock.now())
        entry = body.model_dump() | {"timestamp": body.timestamp or now}
        old = await self._users.find_one(user_id)
        precondition.check(old)
        if old is None:
            return WriteResult(entry, [self._users.insert(_new(user_id, now) | {"interactions": [entry]})], 201)
        kept = [*old["interactions"], entry][-merge.MAX_INTERACTIONS :]
        before = old.get("interacted")
        counted = {"interactions": kept, "interacted": (before or 0) + 1}
        return WriteResult(entry, [self._users.append(old, counted, expect={"interacted": before})], 201)

    async def interactions(self, user_id: str) -> Doc:
        """Returns the recorded interactions, the newest first."""
        doc = await self._users.get(user_id)
        return {"items": doc["interactions"][::-1], "next_cursor": None}

    async def _change(self, user_id: str, precondition: IfMatch, fields_of: Callable[[Doc], Doc]) -> WriteResult:
        now = rfc3339(self._clock.now())
        old = await self._users.find_one(user_id)
        precondition.check(old)
        if old is None:
            doc = _new(user_id, now)
            doc |= fields_of(doc)
            return WriteResult(render_profile(doc), [self._users.insert(doc)], 200, {"ETag": etag(doc)})
        fields = {name: value for name, value in fields_of(old).items() if not same(old[name], value)}
        return changed(self._users, old, fields, render_profile, now)

    # --- Issues and solutions -----------------------------------------------------------------------------------------

    async def add_issue(self, user_id: str, body: IssueIn, precondition: IfMatch) -> WriteResult:
        """Stores an issue as a memory."""
        memory = MemoryCreate(
            agent_id=body.agent_id,
            user_id=user_id,
            memory_type="issue",
            content=body.description,
            importance=ISSUE_IMPORTANCE,
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
            metadata={"problem": body.problem, "fix": body.fix},
        )
        return _as(await self._memories.create(memory, precondition), render_solution)

    async def set_issue(self, user_id: str, issue_id: str, status: str, precondition: IfMatch) -> WriteResult:
        """Changes the status of an issue. Raises NotFound if the memory is not an issue of this user."""

        def moved(memory: Doc) -> MemoryPatch:
            if memory["memory_type"] != "issue" or memory["user_id"] != user_id:
                raise NotFound()
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


class UserDirectory:
    """Lists everyone of whom a record is stored, within a caller's scope. Operations are left out: that of an erasure
    outlives its user."""

    def __init__(self, users: Repository, collections: Sequence[Collection]) -> None:
        self._users = users
        records = [one for one in owned(collections) if one.audited and one is not OPERATIONS]
        self._owned = [Repository(users.store, users.scope, collection) for collection in records]

    async def page(self, listing: Listing) -> Doc:
        """Returns a page of users by their ids, each with the profile, which is empty if none was written."""
        scope, limit = self._users.scope, listing.limit
        mark = repr((scope.tenant, USERS.name, listing.order))
        after = None if listing.cursor is None else open_cursor(listing.cursor, mark).id
        bound = EVERYTHING if scope.users is None else In("user_id", tuple(sorted(scope.users)))
        asked = (one.values("user_id", bound, order=listing.order, after=after, limit=limit + 1) for one in self._owned)
        found = {user for part in await asyncio.gather(*asked) for user in part}
        ordered = sorted(found, reverse=listing.order == "desc")
        shown = ordered[:limit]
        profiles = await self._users.get_many(shown)
        following = seal_cursor(After(shown[-1], shown[-1]), mark) if len(ordered) > limit else None
        return {"items": [_listed(user, profiles.get(user)) for user in shown], "next_cursor": following}


def _listed(user_id: str, doc: Doc | None) -> Doc:
    if doc is not None:
        return render_profile(doc)
    return {**merge.EMPTY_PROFILE, "user_id": user_id, **dict.fromkeys(("version", "created_at", "updated_at"))}


def _new(user_id: str, now: str) -> Doc:
    """Returns a new user. A user is created with the first record about them."""
    return {
        "user_id": user_id,
        "agent_id": None,
        "profile": dict(merge.EMPTY_PROFILE),
        "interactions": [],
        "interacted": 0,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def _as(outcome: WriteResult, render: Callable[[Doc], Doc]) -> WriteResult:
    return replace(outcome, body=render(outcome.body))
