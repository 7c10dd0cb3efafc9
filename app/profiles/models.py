"""The collections of users and agents, and access to an agent's settings."""

from collections.abc import Mapping
from typing import Any

from app.storage.protocol import Store
from app.storage.schema import Collection, Unique

USERS = Collection(
    name="users",
    id_field="user_id",
    fields={"user_id": "text", "agent_id": "text", "created_at": "time"},
    indexes=(("user_id",),),
    opaque=("profile", "interactions"),
    internal=frozenset({"interacted"}),
)
AGENTS = Collection(
    name="agents",
    id_field="agent_id",
    fields={"agent_id": "text", "user_id": "text", "name": "text", "created_at": "time"},
    unique=(Unique("name", ("name",)),),
    global_indexes=("created_at",),
    opaque=("settings", "experience"),
    cached=True,
)


class StoredAgentSettings:
    """Implements `AgentSettings` of `app/resources.py`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, tenant: str, agent_id: str) -> Mapping[str, Any] | None:
        """Returns the settings of an agent, or None if there is no such agent."""
        agent = await self._store.get(AGENTS, tenant, agent_id)
        found: Mapping[str, Any] | None = None if agent is None else agent["settings"]
        return found
