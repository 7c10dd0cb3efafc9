"""Agents' settings, for the layers below."""

from collections.abc import Mapping

from app.profiles.models import AGENTS
from app.storage.collection import Store


class StoredAgentSettings:
    """Implements `AgentSettings` of `app/state.py`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def decay(self, tenant: str, agent_id: str) -> Mapping[str, float] | None:
        agent = await self._store.get(AGENTS, tenant, agent_id)
        found: Mapping[str, float] | None = None if agent is None else agent["settings"]["decay"]
        return found
