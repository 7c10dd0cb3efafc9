"""The collection of registered agents. It is declared below `profiles`, which serves it, since the decay of an agent's
memories is among its settings."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from app.core.schemas import Count, shown
from app.memories.schemas import Source
from app.storage.schema import BaseRecord, Collection, Unique

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


@shown
class Lesson(TypedDict, total=False):
    text: str
    seen: Annotated[Count, Field(description="How often it was learned.")]
    learned_at: Annotated[str, Field(description="When it was learned last.")]
    first_learned_at: Annotated[str, Field(description="When it was learned first.")]
    source: Source
    copied_from: Annotated[str | None, Field(default=None, description="The agent that it was copied from.")]


@shown
class Experience(TypedDict, total=False):
    procedural_knowledge: str
    common_scenarios: list[Lesson]
    effective_strategies: list[Lesson]
    known_pitfalls: list[Lesson]
    tool_patterns: list[Lesson]
    heuristics: list[Lesson]
    user_feedback: list[Lesson]
    improvement_areas: list[Lesson]


class DecaySettings(TypedDict, total=False):
    """How what an agent remembers fades (`retrieval/decay.py`)."""

    factor: float
    grace_days: float
    floor: float


class AgentSettingsRecord(TypedDict, total=False):
    """What an agent is set to."""

    max_context_tokens: int
    min_importance: float | None
    decay: DecaySettings
    extraction_instructions: str | None


class AgentRecord(BaseRecord, total=False):
    """A document of the collection `agents`. It belongs to no user."""

    agent_id: str
    user_id: None
    name: str
    description: str
    model: str
    system_prompt: str
    settings: AgentSettingsRecord
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
