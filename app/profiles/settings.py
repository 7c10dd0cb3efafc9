"""Agents' settings, for the layers below."""

from collections.abc import Mapping
from typing import Any

from app.profiles.models import AGENTS
from app.storage.collection import Store


class StoredAgentSettings:
    """Implements `AgentSettings` of `app/state.py`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, tenant: str, agent_id: str) -> Mapping[str, Any] | None:
        agent = await self._store.get(AGENTS, tenant, agent_id)
        found: Mapping[str, Any] | None = None if agent is None else agent["settings"]
        return found
