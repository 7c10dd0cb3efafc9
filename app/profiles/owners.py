"""Everyone who owns a record, registered or not: people and agents, with what they own and when they were active."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from typing_extensions import TypedDict

from app.audit.trail import owned
from app.core.clock import Clock
from app.core.schemas import Page
from app.errors import RecordDamaged, no_such
from app.facts.profile import EMPTY_PROFILE, USERS, UserRecord
from app.jobs.models import OPERATIONS
from app.memories.agents import AGENTS, AgentRecord
from app.profiles.schemas import (
    AgentSettings,
    ListedAgent,
    ListedUser,
    OwnedKind,
    OwnedRecords,
    render_agent,
    render_profile,
    stored_settings,
)
from app.profiles.users import ProfileReader
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository, open_cursor, page_of, render_items, seal_cursor
from app.storage.schema import EVERYTHING, After, Collection, Eq, In
from app.storage.scope import Scope

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

    async def users(self, listing: Listing) -> Page[ListedUser]:
        """Returns a page of users, each with the profile, which is empty if none was written."""
        ids, following = await self._ids("user_id", self._of_users, self._scope.users, listing)
        return page_of(await self._shown(ids), following)

    async def user(self, user_id: str) -> ListedUser:
        """Returns a user as the list shows them. Raises NotFound, or RecordDamaged."""
        queries = (
            Repository(self._store, self._scope, collection).values(
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
            return {
                **EMPTY_PROFILE,
                "version": None,
                "created_at": None,
                "updated_at": None,
                "user_id": user_id,
                **owns[user_id],
            }

        users: list[UserRecord] = [{"user_id": one} for one in ids]
        return await render_items(USERS, users, listed, ListedUser)

    async def agents(self, listing: Listing) -> Page[ListedAgent]:
        """Returns a page of agents. One that is not registered works with the defaults."""
        ids, following = await self._ids("agent_id", [AGENTS, *self._counted.values()], self._scope.agents, listing)
        registered = Repository(self._store, self._scope, AGENTS)
        owns, agents = await asyncio.gather(self._owned("agent_id", ids), registered.get_many(ids))

        def listed(agent: AgentRecord) -> ListedAgent:
            agent_id, known = agent["agent_id"], agents.get(agent["agent_id"])
            if known is not None:
                return {**render_agent(known, self._scope), **owns[agent_id]}
            return {
                "agent_id": agent_id,
                "name": None,
                "description": None,
                "model": None,
                "system_prompt": None,
                "settings": stored_settings(AgentSettings()),
                "experience": None,
                "version": None,
                "created_at": None,
                "updated_at": None,
                **owns[agent_id],
            }

        owners: list[AgentRecord] = [{"agent_id": one} for one in ids]
        return page_of(await render_items(AGENTS, owners, listed, ListedAgent), following)

    async def _ids(
        self,
        owner: Literal["user_id", "agent_id"],
        collections: Sequence[Collection],
        bound: frozenset[str] | None,
        listing: Listing,
    ) -> tuple[list[str], str | None]:
        """Returns the ids of a page, and the cursor of the next."""
        request = repr((self._scope.tenant, owner, listing.order))
        after = None if listing.cursor is None else open_cursor(listing.cursor, request, str).id
        where = EVERYTHING if bound is None else In(owner, tuple(sorted(bound)))
        queries = [
            Repository(self._store, self._scope, collection).values(
                owner, where, order=listing.order, after=after, limit=listing.limit + 1
            )
            for collection in collections
        ]
        everyone = {one for part in await asyncio.gather(*queries) for one in part}
        ids = sorted(everyone, reverse=listing.order == "desc")
        page = ids[: listing.limit]
        return page, seal_cursor(After(page[-1], page[-1]), request) if len(ids) > len(page) else None

    async def _owned(self, owner: str, ids: Sequence[str]) -> dict[str, Ownership]:
        """Returns what each of the owners owns."""
        of_these = In(owner, tuple(ids))
        tallies = [
            Repository(self._store, self._scope, collection).tally((owner, collection.order), of_these, first=DAY)
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
