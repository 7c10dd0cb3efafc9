"""What the model answers with. Every field is asked for and bounded; none can say whose a record is or how far it is to
be believed: that is not the model's to say."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Line = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")]
Lines = Annotated[list[Line], Field(max_length=20)]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class LearnedMemory(Shape):
    content: Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"\S")]
    context: Line | None
    memory_type: Literal["fact", "preference", "instruction", "experience", "learned", "issue", "solution"]
    importance: Annotated[float, Field(ge=0, le=1)]
    message_seqs: Annotated[list[int], Field(max_length=100)]
    superseded_ids: Annotated[list[str], Field(max_length=50)]


class LearnedMemories(Shape):
    memories: Annotated[list[LearnedMemory], Field(max_length=50)]


class Fact(Shape):
    """What is said of a fact, whatever it was learned from."""

    subject: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"\S")]
    predicate: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"\S")]
    object: Line
    cardinality: Literal["one", "many"]
    valid_from: Annotated[str, StringConstraints(max_length=40)] | None


class LearnedFact(Fact):
    message_seqs: Annotated[list[int], Field(max_length=100)]


class LearnedFacts(Shape):
    facts: Annotated[list[LearnedFact], Field(max_length=50)]


class Preference(Shape):
    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    value: Line


class FoundFact(Fact):
    episode_numbers: Annotated[list[int], Field(max_length=100)]


class FoundFacts(Shape):
    facts: Annotated[list[FoundFact], Field(max_length=50)]


class FoundProcedure(Shape):
    procedure_id: Annotated[str, StringConstraints(max_length=128)] | None
    name: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"\S")]
    trigger: Line
    preconditions: Lines
    steps: Annotated[list[Line], Field(min_length=1, max_length=30)]
    notes: Lines
    episode_numbers: Annotated[list[int], Field(max_length=100)]


class FoundProcedures(Shape):
    procedures: Annotated[list[FoundProcedure], Field(max_length=20)]


class DayText(Shape):
    text: Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"\S")]


class LearnedProfile(Shape):
    name: Line | None
    age: Annotated[int, Field(ge=0, le=150)] | None
    home: Line | None
    occupation: Line | None
    interests: Lines
    conversation_preferences: Lines
    preferences: Annotated[list[Preference], Field(max_length=20)]


class LearnedExperience(Shape):
    common_scenarios: Lines
    effective_strategies: Lines
    known_pitfalls: Lines
    tool_patterns: Lines
    heuristics: Lines
    user_feedback: Lines
    improvement_areas: Lines


class Summary(Shape):
    summary: Annotated[str, StringConstraints(min_length=1, max_length=4000, pattern=r"\S")]
