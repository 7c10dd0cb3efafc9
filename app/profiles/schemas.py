"""Users and agents as they are stored, and as requests and responses show them."""

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, JsonValue, StringConstraints
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import (
    CLEARS_TEXT,
    WHOLE,
    Count,
    Identifier,
    Json,
    NotNull,
    Object,
    Schema,
    Share,
    Text,
    Timestamp,
    example,
)
from app.facts.keys import MAX_AGE, MAX_LINE, UserProfile, UserRecord
from app.memories.agents import AgentRecord, AgentSettingsRecord
from app.memories.schemas import Memory, MemoryRecord, Source
from app.storage.scope import Scope

ProfileLine = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE, pattern=r"\S")]
ProfileLines = Annotated[list[ProfileLine], Field(max_length=200)]
IssueStatus = TypeAliasType("IssueStatus", Literal["open", "in_progress", "resolved", "closed"])
ISSUE_STATUSES: tuple[IssueStatus, ...] = get_args(IssueStatus.__value__)

ListField = Literal["interests", "conversation_preferences"]
ObjectField = Literal["preferences", "custom"]
LIST_FIELDS: tuple[ListField, ...] = get_args(ListField)
OBJECT_FIELDS: tuple[ObjectField, ...] = get_args(ObjectField)
"""The fields of a profile that are no facts: texts, and objects of the caller."""

Age = Annotated[int, Field(strict=True, ge=0, le=MAX_AGE), WHOLE]


class Profile(Schema):
    model_config = example({"name": "Ada", "interests": ["climbing"]})

    name: ProfileLine | None = None
    age: Age | None = None
    home: ProfileLine | None = Field(None, description="Town, neighbourhood.")
    occupation: ProfileLine | None = None
    interests: ProfileLines = []
    conversation_preferences: ProfileLines = Field([], description="How they like to be talked to, what to leave out.")
    preferences: Object = {}
    custom: Object = {}


class ProfilePatch(Schema):
    """Lists are added to, objects merged (null takes a key away), scalars overwritten (null clears)."""

    model_config = example({"home": "Boston", "interests": ["climbing"]})

    name: ProfileLine | None = None
    age: Age | None = None
    home: ProfileLine | None = None
    occupation: ProfileLine | None = None
    interests: ProfileLines | None = None
    conversation_preferences: ProfileLines | None = None
    preferences: Object | None = None
    custom: Object | None = None


class StoredProfile(Profile):
    model_config = ConfigDict(json_schema_extra=None)  # the example of a request has neither id nor version

    user_id: str
    version: int
    created_at: str
    updated_at: str


class OwnedRecords(Schema):
    """How many records there are of an owner, those included that have expired and are not purged yet."""

    memories: Count
    sessions: Count
    facts: Count = Field(description="Statements of all times, those that hold no longer included.")
    actions: Count
    tasks: Count
    procedures: Count


LastActive = Annotated[
    str | None, Field(description="The UTC day of the newest of these records; null: there is none.")
]


class ListedUser(Profile):
    """A user and the profile, which is empty if nobody has written one."""

    model_config = ConfigDict(json_schema_extra=None)

    user_id: str
    records: OwnedRecords
    last_active: LastActive
    version: int | None = Field(description="Null, as the times, where no profile was written.")
    created_at: str | None
    updated_at: str | None


class InteractionIn(Schema):
    model_config = example({"summary": "Asked about an invoice", "outcome": "answered"})

    summary: ProfileLine
    outcome: ProfileLine | None = None
    agent_id: Identifier | None = Field(
        None, description="With whom: contexts of this agent alone tell it. Null: every agent of the user may know."
    )
    timestamp: Timestamp | None = Field(None, description="Default: now.")


class Interaction(Schema):
    timestamp: str
    summary: str
    outcome: str | None
    agent_id: str | None = Field(None, description="With whom; null where every agent of the user may know.")


class Interactions(Schema):
    items: list[Interaction] = Field(description="The last 50, newest first.")
    next_cursor: str | None = Field(None, description="Always null: this is all.")


class IssueIn(Schema):
    model_config = example({"description": "Cannot log in since the update"})

    description: Text
    status: IssueStatus = "open"
    agent_id: Identifier | None = Field(None, description="Null: every agent of the user may know.")
    timestamp: Timestamp | None = Field(None, description="When it came up: `event_at` of the memory.")


class IssuePatch(Schema):
    model_config = example({"status": "resolved"})

    status: IssueStatus


class Issue(Schema):
    issue_id: str = Field(description="It is a memory of type `issue` with this id.")
    user_id: str
    agent_id: str | None
    description: str
    status: IssueStatus
    timestamp: str | None = Field(description="When it came up; null where nobody said.")
    version: int
    created_at: str
    updated_at: str


class SolutionIn(Schema):
    model_config = example({"problem": "Cannot log in", "fix": "Cleared the cache"})

    problem: Text
    fix: Text
    agent_id: Identifier | None = None
    timestamp: Timestamp | None = Field(None, description="When it was solved: `event_at` of the memory.")


class Solution(Schema):
    solution_id: str = Field(description="It is a memory of type `solution` with this id.")
    user_id: str
    agent_id: str | None
    problem: str
    fix: str
    timestamp: str | None = Field(description="When it was solved; null where nobody said.")
    version: int
    created_at: str
    updated_at: str


class Decay(Schema):
    """How what this agent remembers fades (docs/concepts/retrieval.md)."""

    factor: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.95
    grace_days: Annotated[float, Field(strict=True, ge=0, le=36500)] = 30.0
    floor: Share = 0.1


class AgentSettings(Schema):
    max_context_tokens: Annotated[int, Field(strict=True, ge=1, le=10_000_000), WHOLE] = 8000
    min_importance: Share = 0.0
    decay: Decay = Decay()
    extraction_instructions: Text | None = None


class AgentCreate(Schema):
    model_config = example({"agent_id": "support", "name": "Support", "model": "gpt-5"})

    agent_id: Identifier | None = None
    name: ProfileLine
    description: str = ""
    model: str = ""
    system_prompt: str = ""
    settings: AgentSettings = AgentSettings()


class AgentPatch(Schema):
    model_config = example({"description": "Answers customers"})

    name: Annotated[ProfileLine | None, NotNull] = None
    description: Annotated[str | None, CLEARS_TEXT] = None
    model: Annotated[str | None, CLEARS_TEXT] = None
    system_prompt: Annotated[str | None, CLEARS_TEXT] = None
    settings: AgentSettings | None = Field(None, description="What is absent in it stays, too; null: all defaults.")


class Lesson(Schema):
    text: str
    seen: Count = Field(description="How often it was learned.")
    learned_at: str | None = Field(
        None, description="When it was learned last; absent where an earlier version stored it."
    )
    first_learned_at: str | None = Field(
        None, description="When it was learned first; absent where an earlier version stored it."
    )
    source: Source
    copied_from: str | None = Field(None, description="The agent that it was copied from.")


class Experience(Schema):
    procedural_knowledge: str
    common_scenarios: list[Lesson]
    effective_strategies: list[Lesson]
    known_pitfalls: list[Lesson]
    tool_patterns: list[Lesson]
    heuristics: list[Lesson]
    user_feedback: list[Lesson]
    improvement_areas: list[Lesson]


class ExperiencePatch(Schema):
    """Lessons are added; one that is known is seen once more. At most 50 a list: the least seen leave."""

    model_config = example({"heuristics": ["Ask for the order number first."]})

    procedural_knowledge: str | None = None
    common_scenarios: ProfileLines | None = None
    effective_strategies: ProfileLines | None = None
    known_pitfalls: ProfileLines | None = None
    tool_patterns: ProfileLines | None = None
    heuristics: ProfileLines | None = None
    user_feedback: ProfileLines | None = None
    improvement_areas: ProfileLines | None = None


class ExperienceCopy(Schema):
    model_config = example({"from_agent_id": "support"})

    from_agent_id: Identifier = Field(description="The agent that has learned it.")


class Agent(Schema):
    agent_id: str
    name: str
    description: str
    model: str
    system_prompt: str | None = Field(description="Null for a key that is bound to users.")
    settings: AgentSettings = Field(description="`extraction_instructions` are null for a key that is bound to users.")
    experience: Experience | None = Field(description="Null for a key that is bound to users.")
    version: int
    created_at: str
    updated_at: str


class ListedAgent(Schema):
    """An agent. One that was never registered works with the default settings; what else is only registered is null."""

    agent_id: str
    name: str | None
    description: str | None
    model: str | None
    system_prompt: str | None = Field(description="Null for a key that is bound to users, too.")
    settings: AgentSettings = Field(description="`extraction_instructions` are null for a key that is bound to users.")
    experience: Experience | None = Field(description="Null for a key that is bound to users, too.")
    version: int | None
    created_at: str | None
    updated_at: str | None
    records: OwnedRecords
    last_active: LastActive


class Prompt(Schema):
    text: str
    tokens: Count


class ProfileAnswer(UserProfile, total=False):
    """A user's profile as responses show it: the answers of `StoredProfile` and `ListedUser`."""

    user_id: str
    version: int | None
    created_at: str | None
    updated_at: str | None


class PromptAnswer(TypedDict):
    """The answer of `Prompt`."""

    text: str
    tokens: int


class IssueAnswer(TypedDict):
    """The answer of `Issue`. What a caller has written into the metadata may be no status."""

    issue_id: str
    description: str
    status: JsonValue
    timestamp: str | None
    user_id: str | None
    agent_id: str | None
    version: int
    created_at: str
    updated_at: str


class SolutionAnswer(TypedDict):
    """The answer of `Solution`. What a caller has written into the metadata may be no text."""

    solution_id: str
    problem: JsonValue
    fix: JsonValue
    timestamp: str | None
    user_id: str | None
    agent_id: str | None
    version: int
    created_at: str
    updated_at: str


def render_profile(user: UserRecord) -> ProfileAnswer:
    """Renders a user's profile."""
    return {
        **user["profile"],
        "user_id": user["user_id"],
        "version": user["version"],
        "created_at": user["created_at"],
        "updated_at": user["updated_at"],
    }


def render_agent(agent: AgentRecord, scope: Scope) -> Json:
    """Renders an agent for a caller: a key that is bound to users does not see what an agent keeps from them. Lessons
    are kept, too: their sources name sessions and memories of other users."""
    shown: Json = {name: value for name, value in agent.items() if name not in ("tenant_id", "user_id")}
    if scope.users is None:
        return shown
    settings: AgentSettingsRecord = {**agent["settings"], "extraction_instructions": None}
    return shown | {"system_prompt": None, "experience": None, "settings": settings}


def status_of(memory: MemoryRecord) -> IssueStatus | None:
    """Returns the status of an issue as prompts show it, or None for any other memory. A caller's metadata may contain
    anything: an invalid status counts as `open`."""
    if memory["memory_type"] != "issue":
        return None
    status = memory["metadata"].get("status")
    return next((known for known in ISSUE_STATUSES if known == status), "open")


def render_issue(memory: Memory) -> IssueAnswer:
    """Renders a memory as an issue."""
    return {
        "issue_id": memory["memory_id"],
        "description": memory["content"],
        "status": memory["metadata"].get("status", "open"),
        "timestamp": memory["event_at"],
        "user_id": memory["user_id"],
        "agent_id": memory["agent_id"],
        "version": memory["version"],
        "created_at": memory["created_at"],
        "updated_at": memory["updated_at"],
    }


def render_solution(memory: Memory) -> SolutionAnswer:
    """Renders a memory as a solution."""
    metadata = memory["metadata"]
    return {
        "solution_id": memory["memory_id"],
        "problem": metadata.get("problem", memory["context"] or ""),
        "fix": metadata.get("fix", memory["content"]),
        "timestamp": memory["event_at"],
        "user_id": memory["user_id"],
        "agent_id": memory["agent_id"],
        "version": memory["version"],
        "created_at": memory["created_at"],
        "updated_at": memory["updated_at"],
    }
