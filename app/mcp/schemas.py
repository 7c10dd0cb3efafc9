"""Arguments of the MCP tools and their JSON schemas. A model reads the schemas at every turn of every conversation, so
they contain only what it needs to choose; the API validates the rest."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator
from pydantic.json_schema import SkipJsonSchema

from app.core.schemas import WHOLE, Flag, Identifier, Json, Object, Schema, Text, Timestamp, TimeZone
from app.facts.profile import Age, ProfileLine, ProfileLines
from app.facts.schemas import FactName
from app.memories import schemas as memories
from app.profiles.users import ProfilePatch
from app.sessions.schemas import MessageName
from app.tasks.schemas import StepStatus, TaskStatus

CLEARABLE: Any = {"x-clearable": True}
"""Marks fields of an update that null clears. Their JSON schemas keep the null, which the others lose."""
STORED: Any = {"x-stored": True}
"""Marks types to store. Their JSON schemas have `instruction` only where a model may store it."""
INSTRUCTION = "instruction"

MemoryKind = Literal["fact", "preference", "instruction", "experience", "learned", "issue", "solution"]


ABSENT = (None, "", "null", "None", "undefined")
"""What clients send in the place of an optional argument that they do not set."""


class Arguments(Schema):
    """Arguments of a tool, or an object in them."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, arguments: Any) -> Any:
        """Leaves out what is not set: `{"query": "boat", "since": "null"}` is `{"query": "boat"}`. A null that clears a
        field stays."""
        if not isinstance(arguments, dict):
            return arguments
        optional = {name: field for name, field in cls.model_fields.items() if not field.is_required()}
        clearable = {name for name, field in optional.items() if field.json_schema_extra == CLEARABLE}
        return {
            name: value
            for name, value in arguments.items()
            if name not in optional or value not in ABSENT or (value is None and name in clearable)
        }


class Whose(Arguments):
    agent_id: Identifier | None = Field(None, description="")
    user_id: Identifier | None = Field(None, description="About whom. It or agent_id is needed.")


class AgentsOwn(Arguments):
    agent_id: Identifier = Field(description="")
    user_id: Identifier | None = Field(None, description="About whom.")


class RememberArguments(Whose):
    content: memories.MemoryText = Field(
        description="One statement that stands alone: names, dates and places spelt out."
    )
    memory_type: MemoryKind | None = Field(None, description="Default: fact.", json_schema_extra=STORED)
    key: memories.MemoryKey | None = Field(None, description="A name such as home_city: replaces what it held before.")
    context: str | None = Field(None, description="When it applies.")
    importance: memories.Importance | None = Field(None, description="0 to 1; default 0.5.")
    always: memories.AlwaysKind | None = None
    tags: memories.Tags | None = None
    event_at: Timestamp | None = Field(None, description="When it happened or will, RFC 3339 with zone.")
    event_at_precision: memories.EventPrecision | None = None
    due_at: Timestamp | None = Field(None, description="To be done then.")
    surface_at: Timestamp | None = Field(None, description="Hidden until then.")
    rrule: memories.RRule | None = Field(None, description="")
    supersedes: list[Identifier] | None = Field(None, description="memory_ids that this makes untrue.")
    source: Object | None = Field(None, description="Where it comes from: session_id, message_seq, url, note.")
    shared: Flag = Field(False, description="True: for all agents of the user.")


class RecallArguments(Whose):
    query: memories.MemoryText = Field(description="What you want to know.")
    top_k: Annotated[int, Field(strict=True, ge=1, le=50), WHOLE] = 5
    limit: SkipJsonSchema[Annotated[int, Field(strict=True, ge=1, le=50), WHOLE] | None] = None
    """Another name of top_k, which models guess."""
    session_id: Identifier | None = Field(None, description="Said in this conversation only.")
    memory_types: Annotated[list[MemoryKind | Literal["message", "summary"]], Field(min_length=1)] | None = None
    tags: memories.Tags | None = Field(None, description="Has one of these.")
    since: Timestamp | None = Field(None, description="RFC 3339 with zone.")
    until: Timestamp | None = None


class GetContext(AgentsOwn):
    query: memories.MemoryText = Field(description="The user's message, or what you are about to do.")
    session_id: Identifier | None = Field(None, description="Adds its last messages.")
    task_id: Identifier | None = Field(None, description="Adds its state.")
    token_budget: Annotated[int, Field(strict=True, ge=1, le=100_000), WHOLE] | None = Field(
        None, description="Default 4000."
    )
    fill: Annotated[bool, Field(strict=True)] = False
    timezone: TimeZone | None = Field(None, description="")


class LogAction(AgentsOwn):
    action_type: str = Field(description="What kind, such as refund or deploy.")
    content: str | None = Field(None, description="What happened, in one line.")
    outcome: Literal["success", "failure", "partial"] | None = None
    tool: str | None = Field(None, description="What was called.")
    input: Any = None
    output: Any = None
    duration_ms: float | None = None
    entities: list[str] | None = Field(None, description="What it was about.")
    procedure_id: Identifier | None = Field(None, description="The procedure you followed: its success is counted.")
    session_id: Identifier | None = None
    task_id: Identifier | None = None


class FindProcedure(Whose):
    situation: memories.MemoryText = Field(description="What is to be done, or what has come up.")
    top_k: Annotated[int, Field(strict=True, ge=1, le=20), WHOLE] = 3


class UpdateTask(Arguments):
    task_id: Identifier | None = Field(None, description="Left out: begins a new task, which needs a goal.")
    agent_id: Identifier | None = Field(None, description="Of a new task; required there.")
    user_id: Identifier | None = Field(None, description="Of a new task.")
    session_id: Identifier | None = Field(None, description="Of a new task.")
    goal: str | None = None
    due_at: Timestamp | None = None
    surface_at: Timestamp | None = None
    plan: list[str] | None = Field(None, description="Steps in order; replaces the plan.")
    step: Annotated[int, Field(strict=True), WHOLE] | None = Field(
        None, description="Which step to mark, by its number in the working memory."
    )
    step_status: StepStatus | None = None
    step_result: Any = None
    context: Object | None = Field(None, description="Merged into the task's context; null removes a key.")
    note: str | None = Field(None, description="Joins the scratchpad.")
    status: TaskStatus | None = Field(None, description="Of the task; ends it, except in_progress.")


class MemoryFeedback(Arguments):
    helpful: list[Identifier] = Field([], description="memory_ids that helped.")
    misleading: list[Identifier] = Field([], description="memory_ids that were wrong or misled.")
    query: memories.MemoryText | None = Field(None, description="What you had asked for.")


class Forget(Arguments):
    memory_ids: Annotated[list[Identifier], Field(min_length=1, max_length=50)]


class ListMemories(Whose):
    memory_type: MemoryKind | Literal["message", "summary"] | None = None
    tag: memories.Tag | None = None
    since: Timestamp | None = Field(None, description="Stored then or later.")
    until: Timestamp | None = None
    limit: Annotated[int, Field(strict=True, ge=1, le=50), WHOLE] = 20
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = Field(
        None, description="next_cursor of the page before."
    )


class ListUpcoming(Whose):
    until: Timestamp | None = None
    limit: Annotated[int, Field(strict=True, ge=1, le=50), WHOLE] = 20


class GetMemory(Arguments):
    memory_id: Identifier


class UpdateMemory(Arguments):
    memory_id: Identifier
    content: memories.MemoryText | None = Field(None, description="")
    memory_type: MemoryKind | None = Field(None, json_schema_extra=STORED)
    key: memories.MemoryKey | None = Field(None, json_schema_extra=CLEARABLE)
    context: str | None = Field(None, json_schema_extra=CLEARABLE)
    importance: memories.Importance | None = Field(None, description="0 to 1.")
    tags: memories.Tags | None = Field(None, description="Replaces all tags.")
    event_at: Timestamp | None = Field(None, json_schema_extra=CLEARABLE)
    due_at: Timestamp | None = Field(None, json_schema_extra=CLEARABLE)
    surface_at: Timestamp | None = Field(None, description="Later: snoozed.")
    done_at: Timestamp | None = None
    expires_at: Timestamp | None = Field(None, description="Forgotten from then on.", json_schema_extra=CLEARABLE)
    status: memories.SettableStatus | None = Field(None, description="archived: out of searches.")


class AssertFact(Whose):
    subject: FactName
    predicate: FactName = Field(description="Such as lives_in.")
    object: Text
    valid_from: Timestamp | None = Field(
        None, description="When it began to be true; default: now; null: always was.", json_schema_extra=CLEARABLE
    )
    valid_until: Timestamp | None = Field(None, description="That moment excluded.")
    many: Flag = Field(False, description="True: several objects can be true at once.")
    shared: Flag = Field(False, description="True: for all agents of the user.")


class FindFacts(Whose):
    query: Text = Field(description="What you want to know.")
    subject: FactName | None = None
    predicate: FactName | None = None
    as_of: Timestamp | None = Field(None, description="True at that time; default: now.")
    known_at: Timestamp | None = Field(None, description="As it was known then; default: now.")
    top_k: Annotated[int, Field(strict=True, ge=1, le=50), WHOLE] = 5


class SaidMessage(Arguments):
    role: Literal["user", "assistant"]
    content: Text
    name: MessageName | None = None
    timestamp: Timestamp | None = None


class AppendMessages(AgentsOwn):
    user_id: Identifier = Field(description="Of which user.")
    session_id: Identifier = Field(description="A name of yours, the same for the whole conversation.")
    messages: Annotated[list[SaidMessage], Field(min_length=1, max_length=100)]


class GetProfile(Arguments):
    user_id: Identifier


class UpdateProfile(Arguments, ProfilePatch):
    user_id: Identifier
    name: ProfileLine | None = Field(None, json_schema_extra=CLEARABLE)
    age: Age | None = Field(None, json_schema_extra=CLEARABLE)
    home: ProfileLine | None = Field(None, json_schema_extra=CLEARABLE)
    occupation: ProfileLine | None = Field(None, json_schema_extra=CLEARABLE)
    conversation_preferences: ProfileLines | None = Field(None, description="How they like to be talked to.")
    preferences: Object | None = Field(None, description="null removes a key.")
    custom: Object | None = Field(None, description="Anything else, by name.")


_WORTHLESS = frozenset(
    {"title", "pattern", "format", "examples", "default"}
    | {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)
"""Keywords that are left out of schemas. A value that violates such a rule is refused with the rule's message."""


def schema(arguments: type[Schema], fixed: frozenset[str], *, instructions: bool = False) -> Json:
    """Returns the JSON schema of a tool's arguments as short as possible, without arguments that the
    connection fixes. `instructions`: a model may store memories of that type."""
    result = arguments.model_json_schema()
    defaults = {name: given.get("default") for name, given in result["properties"].items()}
    defs = result.get("$defs", {})
    properties = {name: _short(given, defs) for name, given in result["properties"].items() if name not in fixed}
    for name, given in properties.items():
        if given.pop("x-stored", False) and not instructions:
            given["enum"] = [kind for kind in given["enum"] if kind != INSTRUCTION]
        if isinstance(defaults[name], int) and not isinstance(defaults[name], bool):
            given["default"] = defaults[name]
    required = [name for name in result.get("required", []) if name not in fixed]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _short(node: Any, defs: Json) -> Any:
    """Returns the node without what a model does not need, and with named types written out."""
    if isinstance(node, list):
        return [_short(entry, defs) for entry in node]
    if not isinstance(node, dict):
        return node
    if node.get("x-clearable"):
        short = _short({name: value for name, value in node.items() if name != "x-clearable"}, defs)
        about = {name: short.pop(name) for name in ("description",) if name in short}
        return {"anyOf": [short, {"type": "null"}], **about}  # not `["string", "null"]`, which one client refuses
    if "$ref" in node:
        beside = {name: value for name, value in node.items() if name != "$ref"}
        return _short({**defs[node["$ref"].rpartition("/")[2]], **beside}, defs)
    options = [_short(option, defs) for option in node.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        beside = {name: value for name, value in node.items() if name != "anyOf"}
        return _short({**options[0], **beside}, defs)
    if options and all("enum" in option or "const" in option for option in options):
        words = [word for option in options for word in option.get("enum", [option.get("const")])]
        return {"type": "string", "enum": words}
    short = {name: _short(value, defs) for name, value in node.items() if name not in _WORTHLESS and value != ""}
    if short.get("additionalProperties") is True or isinstance(short.get("additionalProperties"), dict):
        del short["additionalProperties"]
    return short
