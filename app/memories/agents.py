"""The collection of registered agents. It is declared below `profiles`, which serves it, since the decay of an agent's
memories is among its settings."""

from typing import Literal, TypedDict

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


class LessonRecord(TypedDict, total=False):
    """A lesson that an agent has learned."""

    text: str
    seen: int
    learned_at: str
    first_learned_at: str
    source: Source
    copied_from: str


def first_learned_at(lesson: LessonRecord) -> str:
    """Returns when a lesson was learned first; empty for one of an earlier version, which noted no times."""
    return lesson.get("first_learned_at") or lesson.get("learned_at") or ""


class ExperienceRecord(TypedDict, total=False):
    """What an agent has learned: knowledge in prose, and the `LessonList`s."""

    procedural_knowledge: str
    common_scenarios: list[LessonRecord]
    effective_strategies: list[LessonRecord]
    known_pitfalls: list[LessonRecord]
    tool_patterns: list[LessonRecord]
    heuristics: list[LessonRecord]
    user_feedback: list[LessonRecord]
    improvement_areas: list[LessonRecord]


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
    experience: ExperienceRecord


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
