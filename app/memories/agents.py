"""Registered agents, and the decay of memories: each fades as its agent's settings say, or by the defaults if the agent
is not registered. `profiles` serves agents; their collection lies here, below it."""

from collections.abc import Sequence
from typing import Annotated, Literal, cast

import numpy as np
from pydantic import Field
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from app.core import schemas as core
from app.core.clock import to_ms
from app.memories.schemas import Memory, MemoryRecord, Source, render
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve, fading_one_by_one
from app.storage.protocol import Store
from app.storage.schema import BaseRecord, Collection, Unique
from app.storage.search import Columns
from app.storage.text import name_id

LessonList = Literal[
    "common_scenarios",
    "effective_strategies",
    "known_pitfalls",
    "tool_patterns",
    "heuristics",
    "user_feedback",
    "improvement_areas",
]
"""The lists of lessons in an agent's experience."""


@core.shown
class Lesson(TypedDict, total=False):
    text: str
    seen: Annotated[core.Count, Field(description="How often it was learned.")]
    learned_at: Annotated[str, Field(description="When it was learned last.")]
    first_learned_at: Annotated[str, Field(description="When it was learned first.")]
    source: Source
    copied_from: Annotated[str | None, Field(default=None, description="The agent that it was copied from.")]


@core.shown
class Experience(TypedDict, total=False):
    procedural_knowledge: str
    common_scenarios: list[Lesson]
    effective_strategies: list[Lesson]
    known_pitfalls: list[Lesson]
    tool_patterns: list[Lesson]
    heuristics: list[Lesson]
    user_feedback: list[Lesson]
    improvement_areas: list[Lesson]


def _unless_said(value: float) -> FieldInfo:
    """Returns what shows the default of a setting. It is filled in where an agent is made."""
    return cast(FieldInfo, Field(json_schema_extra={"default": value}))


@core.shown
class Decay(TypedDict, total=False):
    """How what this agent remembers fades (docs/contributing/ranking.md)."""

    factor: Annotated[float, Field(strict=True, gt=0, le=1), _unless_said(0.95)]
    grace_days: Annotated[float, Field(strict=True, ge=0, le=36500), _unless_said(30.0)]
    floor: Annotated[core.Share, _unless_said(0.1)]


@core.shown
class AgentSettings(TypedDict, total=False):
    max_context_tokens: Annotated[int, Field(strict=True, ge=1, le=10_000_000), core.WHOLE, _unless_said(8000)]
    min_importance: Annotated[core.Share, _unless_said(0.0)]
    decay: Annotated[Decay, core.UNSET]
    extraction_instructions: Annotated[core.Text | None, core.UNSET]


DEFAULT_SETTINGS: AgentSettings = {
    "max_context_tokens": 8000,
    "min_importance": 0.0,
    "decay": {"factor": 0.95, "grace_days": 30.0, "floor": 0.1},
    "extraction_instructions": None,
}


def settings_over(stored: AgentSettings, stated: AgentSettings) -> AgentSettings:
    """Returns settings with those that a body states in place of the stored ones, also inside `decay`."""
    return {**stored, **stated, "decay": {**stored["decay"], **stated.get("decay", {})}}


class AgentRecord(BaseRecord, total=False):
    """A document of the collection `agents`. It belongs to no user."""

    agent_id: str
    user_id: None
    name: str
    description: str
    model: str
    system_prompt: str
    settings: AgentSettings
    experience: Experience


AGENTS: Collection[AgentRecord] = Collection(
    name="agents",
    kind="agent",
    counted=True,
    id_field="agent_id",
    fields={"agent_id": "text", "user_id": "text", "name": "text", "created_at": "time"},
    unique=(Unique("name", ("name",)),),
    global_indexes=("created_at",),
    opaque=("settings", "experience"),
    cached=True,
)


# --- Decay ------------------------------------------------------------------------------------------------------------


class Decays:
    """Decay settings for one request in one tenant. Each agent's settings are read once."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store, self._tenant = store, tenant
        self._known: dict[str | None, tuple[DecayCurve, float]] = {None: (DEFAULT_DECAY, 0.0)}

    async def of(self, agent_id: str | None) -> DecayCurve:
        """Returns the decay curve of an agent; the default for None and for agents that are not registered."""
        return (await self._read(agent_id))[0]

    async def least_importance(self, agent_id: str | None) -> float:
        """Returns the minimum importance of memories that the agent is shown: its setting, or 0 if it is not
        registered."""
        return (await self._read(agent_id))[1]

    async def _read(self, agent_id: str | None) -> tuple[DecayCurve, float]:
        if agent_id not in self._known:
            assert agent_id is not None
            agent = await self._store.get(AGENTS, self._tenant, agent_id)
            if agent is None:
                self._known[agent_id] = DEFAULT_DECAY, 0.0
            else:
                settings = agent["settings"]
                self._known[agent_id] = DecayCurve(**settings["decay"]), settings.get("min_importance") or 0.0
        return self._known[agent_id]

    async def of_all(self, agents: Sequence[str | None], columns: Columns) -> DecayCurve:
        """Returns the decay of a scope of several agents, with one value for each document if their settings differ."""
        if len(agents) == 1:
            return await self.of(agents[0])
        curves = {0 if agent is None else name_id(agent): await self.of(agent) for agent in agents}
        first, *others = curves.values() or [DEFAULT_DECAY]
        if all(other == first for other in others):
            return first

        def by_document() -> DecayCurve:
            rows = [curves[code] for code in columns.agent.tolist()]
            names = "factor", "grace_days", "floor"
            return DecayCurve(*(np.array([getattr(row, name) for row in rows]) for name in names))

        return columns.memo.get("decay", (columns.agent, curves), by_document)

    async def importance(self, memory: MemoryRecord, now_ms: int) -> float:
        """Returns the importance of a memory at `now_ms`. A pinned one and one of this moment, as each new one is, have
        not faded by any settings, and none are read."""
        if memory["pinned"] or (anchored := to_ms(memory["anchored_at"])) >= now_ms:
            return float(memory["base_importance"])
        curve = await self.of(memory["agent_id"])
        return fading_one_by_one(now_ms, curve)(memory["base_importance"], anchored)

    async def render_at(self, memory: MemoryRecord, now_ms: int) -> Memory:
        """Returns a memory as responses show it, with its importance at that time."""
        return render(memory, await self.importance(memory, now_ms))
