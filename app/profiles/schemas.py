"""Users and agents as they are stored, and as requests and responses show them."""

from typing import Annotated, Literal, cast, get_args

from pydantic import Field, GetPydanticSchema, JsonValue, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import (
    CLEARS_TEXT,
    WHOLE,
    Count,
    Identifier,
    NotNull,
    Object,
    Schema,
    Share,
    Text,
    Timestamp,
    example,
    shown,
)
from app.facts.profile import Age, Interaction, ProfileLine, ProfileLines, UserProfile, UserRecord
from app.memories.agents import AgentRecord, AgentSettingsRecord, Experience
from app.memories.schemas import Memory, MemoryRecord
from app.storage.scope import Scope

IssueStatus = TypeAliasType("IssueStatus", Literal["open", "in_progress", "resolved", "closed"])
ISSUE_STATUSES: tuple[IssueStatus, ...] = get_args(IssueStatus.__value__)

ListField = Literal["interests", "conversation_preferences"]
ObjectField = Literal["preferences", "custom"]
LIST_FIELDS: tuple[ListField, ...] = get_args(ListField)
OBJECT_FIELDS: tuple[ObjectField, ...] = get_args(ObjectField)
"""The fields of a profile that are no facts: texts, and objects of the caller."""


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


@shown
class StoredProfile(UserProfile):
    user_id: str
    version: int
    created_at: str
    updated_at: str


OwnedKind = Literal["memories", "sessions", "facts", "actions", "tasks", "procedures"]


@shown
class OwnedRecords(TypedDict):
    """How many records there are of an owner, those included that have expired and are not purged yet."""

    memories: Count
    sessions: Count
    facts: Annotated[Count, Field(description="Statements of all times, those that hold no longer included.")]
    actions: Count
    tasks: Count
    procedures: Count


LastActive = Annotated[
    str | None, Field(description="The UTC day of the newest of these records; null: there is none.")
]


@shown
class ListedUser(UserProfile):
    """A user and the profile, which is empty if nobody has written one."""

    user_id: str
    records: OwnedRecords
    last_active: LastActive
    version: Annotated[int | None, Field(description="Null, as the times, where no profile was written.")]
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


@shown
class Interactions(TypedDict):
    items: Annotated[list[Interaction], Field(description="The last 50, newest first.")]
    next_cursor: Annotated[str | None, Field(default=None, description="Always null: this is all.")]


class IssueIn(Schema):
    model_config = example({"description": "Cannot log in since the update"})

    description: Text
    status: IssueStatus = "open"
    agent_id: Identifier | None = Field(None, description="Null: every agent of the user may know.")
    timestamp: Timestamp | None = Field(None, description="When it came up: `event_at` of the memory.")


class IssuePatch(Schema):
    model_config = example({"status": "resolved"})

    status: IssueStatus


OfUser = Annotated[str | None, WithJsonSchema({"type": "string"})]
"""Issues and solutions have one; other memories may not."""


@shown
class Issue(TypedDict):
    issue_id: Annotated[str, Field(description="It is a memory of type `issue` with this id.")]
    user_id: OfUser
    agent_id: str | None
    description: str
    # what a caller has written into the metadata may be no status
    status: Annotated[JsonValue, GetPydanticSchema(lambda _, handler: handler(IssueStatus))]
    timestamp: Annotated[str | None, Field(description="When it came up; null where nobody said.")]
    version: int
    created_at: str
    updated_at: str


class SolutionIn(Schema):
    model_config = example({"problem": "Cannot log in", "fix": "Cleared the cache"})

    problem: Text
    fix: Text
    agent_id: Identifier | None = None
    timestamp: Timestamp | None = Field(None, description="When it was solved: `event_at` of the memory.")


@shown
class Solution(TypedDict):
    solution_id: Annotated[str, Field(description="It is a memory of type `solution` with this id.")]
    user_id: OfUser
    agent_id: str | None
    problem: Annotated[JsonValue, WithJsonSchema({"type": "string"})]  # the caller's metadata may hold another value
    fix: Annotated[JsonValue, WithJsonSchema({"type": "string"})]
    timestamp: Annotated[str | None, Field(description="When it was solved; null where nobody said.")]
    version: int
    created_at: str
    updated_at: str


class Decay(Schema):
    """How what this agent remembers fades (docs/contributing/ranking.md)."""

    factor: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.95
    grace_days: Annotated[float, Field(strict=True, ge=0, le=36500)] = 30.0
    floor: Share = 0.1


class AgentSettings(Schema):
    max_context_tokens: Annotated[int, Field(strict=True, ge=1, le=10_000_000), WHOLE] = 8000
    min_importance: Share = 0.0
    decay: Decay = Decay()
    extraction_instructions: Text | None = None


def stored_settings(settings: AgentSettings) -> AgentSettingsRecord:
    """Returns settings as an agent's record has them."""
    return cast(AgentSettingsRecord, settings.model_dump())


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


ShownSettings = Annotated[
    AgentSettingsRecord,
    GetPydanticSchema(lambda _, handler: handler(AgentSettings)),
    Field(description="`extraction_instructions` are null for a key that is bound to users."),
]


@shown
class Agent(TypedDict):
    agent_id: str
    name: str
    description: str
    model: str
    system_prompt: Annotated[str | None, Field(description="Null for a key that is bound to users.")]
    settings: ShownSettings
    experience: Annotated[Experience | None, Field(description="Null for a key that is bound to users.")]
    version: int
    created_at: str
    updated_at: str


@shown
class ListedAgent(TypedDict):
    """An agent. One that was never registered works with the default settings; what else is only registered is null."""

    agent_id: str
    name: str | None
    description: str | None
    model: str | None
    system_prompt: Annotated[str | None, Field(description="Null for a key that is bound to users, too.")]
    settings: ShownSettings
    experience: Annotated[Experience | None, Field(description="Null for a key that is bound to users, too.")]
    version: int | None
    created_at: str | None
    updated_at: str | None
    records: OwnedRecords
    last_active: LastActive


@shown
class Prompt(TypedDict):
    text: str
    tokens: Count


def render_profile(user: UserRecord) -> StoredProfile:
    """Renders a user's profile."""
    return {
        **user["profile"],
        "user_id": user["user_id"],
        "version": user["version"],
        "created_at": user["created_at"],
        "updated_at": user["updated_at"],
    }


def render_agent(agent: AgentRecord, scope: Scope) -> Agent:
    """Renders an agent for a caller: a key that is bound to users does not see what an agent keeps from them. Lessons
    are kept, too: their sources name sessions and memories of other users."""
    whole = cast(Agent, {name: value for name, value in agent.items() if name not in ("tenant_id", "user_id")})
    if scope.users is None:
        return whole
    settings: AgentSettingsRecord = {**agent["settings"], "extraction_instructions": None}
    return {**whole, "system_prompt": None, "experience": None, "settings": settings}


def status_of(memory: MemoryRecord) -> IssueStatus | None:
    """Returns the status of an issue as prompts show it, or None for any other memory. A caller's metadata may contain
    anything: an invalid status counts as `open`."""
    if memory["memory_type"] != "issue":
        return None
    status = memory["metadata"].get("status")
    return next((known for known in ISSUE_STATUSES if known == status), "open")


def render_issue(memory: Memory) -> Issue:
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


def render_solution(memory: Memory) -> Solution:
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
