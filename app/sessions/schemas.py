"""Sessions and messages as they are stored, and as requests and responses show them."""

from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import TypeAliasType

from app.core.schemas import (
    CLEARS_OBJECT,
    Count,
    Identifier,
    Json,
    JsonObject,
    NotNull,
    Object,
    Schema,
    Timestamp,
    example,
)
from app.storage.schema import BaseRecord, Collection, Unique

MessageRole = TypeAliasType("MessageRole", Literal["system", "developer", "user", "assistant", "tool"])
Memorize = TypeAliasType(
    "Memorize",
    Annotated[
        Literal["none", "messages", "extract"],
        Field(
            description="`messages`: what user and assistant say becomes long-term memory at once; `extract`: on end."
        ),
    ],
)
SessionStatus = TypeAliasType("SessionStatus", Literal["active", "ended"])


class SessionRecord(BaseRecord, total=False):
    """A document of the collection `conversation_sessions`. `SESSIONS` explains its internal fields."""

    session_id: str
    agent_id: str
    user_id: str
    status: SessionStatus
    summary: str | None
    summary_id: str | None
    summary_seq: int | None
    metadata: JsonObject
    metadata_terms: list[str]
    memorize: Memorize
    message_count: int
    token_count: int
    last_message_at: str | None
    ended_at: str | None
    expires_at: str | None
    learned_seq: int
    revised: int


class CalledFunction(TypedDict, total=False):
    """What a tool call names: `{"name": "now", "arguments": "{}"}`."""

    name: str
    arguments: str


class ToolCallRecord(TypedDict, total=False):
    """A tool call of a message. Fields that we do not know stay as the model gave them."""

    id: str
    type: str
    function: CalledFunction | None


class MessageRecord(BaseRecord, total=False):
    """A document of the collection `messages`. `text` is the text of the message, its parts joined."""

    message_id: str
    session_id: str
    agent_id: str
    user_id: str
    seq: int
    role: MessageRole
    content: str | list[JsonObject] | None
    name: str | None
    tool_calls: list[ToolCallRecord] | None
    tool_call_id: str | None
    result: JsonValue
    metadata: JsonObject
    refusal: str | None
    annotations: list[JsonValue] | None
    audio: JsonValue
    function_call: JsonValue
    timestamp: str
    edited_at: str | None
    deleted_at: str | None
    text: str
    tokens: int


SUMMARY_INTERNAL = frozenset({"summary_id", "summary_seq"})
"""Internal fields of the summary.

`summary_id`: the memory with the same text. `summary_seq`: the last message that the summary covers, if the service
wrote it.
"""
SESSIONS: Collection[SessionRecord] = Collection(
    name="conversation_sessions",
    kind="session",
    counted=True,
    id_field="session_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "status": "text",
        "metadata_terms": "list",
        "expires_at": "time",
        "created_at": "time",
    },
    indexes=(("agent_id", "user_id"), ("user_id",)),
    global_indexes=("expires_at",),
    opaque=("metadata",),
    internal=SUMMARY_INTERNAL | {"learned_seq", "revised", "metadata_terms"},
)
"""The collection of sessions. Some of its fields:

`learned_seq`: learning has processed the messages up to this one. `revised`: how often messages were edited or deleted.
`metadata_terms`: a digest of each entry of the metadata, as memories have them.
"""
MESSAGES: Collection[MessageRecord] = Collection(
    name="messages",
    kind="message",
    counted=True,
    id_field="message_id",
    fields={
        "session_id": "text",
        "agent_id": "text",
        "user_id": "text",
        "seq": "number",
        "role": "text",
        "timestamp": "time",
        "deleted_at": "time",
    },
    order="seq",
    unique=(Unique("seq", ("session_id", "seq")),),
    indexes=(("session_id",), ("user_id",)),
    covered=("deleted_at",),
    opaque=("metadata", "content", "tool_calls", "result", "annotations", "audio", "function_call"),
    audited=False,
    internal=frozenset({"text"}),
)
"""The collection of messages.

`seq` comes from a counter of the session's id, which outlives the session: it has no gaps and never restarts.
"""

MESSAGE_INTERNAL = frozenset({"tenant_id", "agent_id", "user_id", "text"})
"""Fields of messages that no response contains. `text`: the text of a message, its parts joined."""


def counter(session_id: str) -> str:
    """Returns the name of the session's counter."""
    return f"messages:{session_id}"


MessageName = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class SessionCreate(Schema):
    model_config = example({"session_id": "chat-1", "agent_id": "support", "user_id": "ada"})

    session_id: Identifier | None = Field(None, description="Yours, unique in the tenant; made up if you give none.")
    agent_id: Identifier
    user_id: Identifier
    memorize: Memorize = "messages"
    metadata: Object = {}
    expires_at: Timestamp | None = None


class SessionPatch(Schema):
    model_config = example({"summary": "Ada moved to Boston.", "expires_at": None})

    metadata: Annotated[Object | None, CLEARS_OBJECT] = None
    memorize: Annotated[Memorize | None, NotNull] = None
    summary: str | None = None
    expires_at: Timestamp | None = None


class Session(Schema):
    session_id: str
    agent_id: str
    user_id: str
    status: SessionStatus
    summary: str | None = Field(
        description="As the language model or a caller wrote it. A `summary` memory holds it, too."
    )
    metadata: Object
    memorize: Memorize
    message_count: Count = Field(description="Messages held now.")
    token_count: Count = Field(description="Their o200k tokens.")
    last_message_at: str | None
    ended_at: str | None
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str


class FunctionCall(Schema):
    model_config = ConfigDict(extra="allow")

    name: str
    arguments: str


class ToolCall(Schema):
    """As the model gave it; fields that we do not know stay."""

    model_config = ConfigDict(extra="allow")

    id: str
    type: str = "function"
    function: FunctionCall | None = None


class ContentPart(Schema):
    """The text of `{"type": "text", "text": …}`, and of any other part whose type ends in `text` (`input_text`,
    `output_text`), is the message's; all else is kept as it is."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None

    @model_validator(mode="after")
    def _texts_have_text(self) -> Self:
        if self.type == "text" and self.text is None:
            raise ValueError("a part of type text needs a text")
        return self


def is_text_part(kind: str) -> bool:
    """Returns whether the text of a content part of this type is said in the conversation. What a model thinks is
    not."""
    return kind.endswith("text") and not kind.startswith(("reasoning", "thinking"))


MessageContent = TypeAliasType("MessageContent", str | Annotated[list[ContentPart], Field(min_length=1)])


class _MessageFields(Schema):
    content: MessageContent | None = Field(None, description="Text, content parts, or null beside tool_calls.")
    name: MessageName | None = Field(None, description="Who speaks; else the role.")
    tool_calls: Annotated[list[ToolCall] | None, BeforeValidator(lambda value: None if value == [] else value)] = None
    tool_call_id: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    result: JsonValue = Field(None, description="A tool's result, as JSON.")
    metadata: Annotated[Object | None, CLEARS_OBJECT] = Field(None, validate_default=True)
    timestamp: Timestamp | None = Field(None, description="When it was said; default: now.")
    refusal: str | None = Field(None, description="As the model's client gives it; kept, like the three below.")
    annotations: list[JsonValue] | None = None
    audio: JsonValue = None
    function_call: JsonValue = None


SPEAKING = ("user", "assistant")
"""Roles whose messages say something. A tool may return nothing, and a prompt may be empty."""


class StoredMessage(_MessageFields):
    """A message as one may be stored: earlier versions took messages that say nothing."""

    role: MessageRole

    def text(self) -> str:
        """Returns the text of the message; of text parts, one a line."""
        if isinstance(self.content, list):
            texts = (part.text for part in self.content if part.text and is_text_part(part.type))
            return "\n".join(texts)
        return self.content or ""


class MessageIn(StoredMessage):
    """A message as OpenAI's clients hold it, `model_dump()` included."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        others = (self.tool_calls, self.result, self.refusal, self.audio, self.function_call)
        if all(other is None for other in others):
            if self.content is None:
                raise _without("content is required, unless there are tool_calls, a result or a refusal")
            if self.role in SPEAKING and not self._has_content():
                raise _without("is empty: a message of a user or assistant has a text, another part or tool_calls")
        if self.tool_calls is not None and self.role != "assistant":
            raise ValueError("tool_calls belong to the role assistant")
        return self

    def _has_content(self) -> bool:
        parts = self.content if isinstance(self.content, list) else []
        return any(not is_text_part(part.type) for part in parts) or bool(self.text().strip())


def _without(detail: str) -> ValidationError:
    """Returns the error of a message that says nothing. It points to its content."""
    fault = InitErrorDetails(type=PydanticCustomError("value_error", detail), loc=("content",), input=None)
    return ValidationError.from_exception_data("MessageIn", [fault])


class MessagePatch(_MessageFields):
    """What is absent stays; null clears. The result must be a message."""

    model_config = example({"content": "I moved to Boston last month."})

    timestamp: Annotated[Timestamp | None, NotNull] = Field(None, description="When it was said.")


class MessagesAppend(Schema):
    model_config = example(
        {
            "agent_id": "support",
            "user_id": "ada",
            "messages": [{"role": "user", "name": "Ada", "content": "I moved to Boston last week."}],
        }
    )

    LONG_TEXTS: ClassVar = frozenset({"messages"})

    messages: Annotated[list[MessageIn], Field(min_length=1, description="At most 500.")]
    agent_id: Identifier | None = Field(None, description="Required where the session is new.")
    user_id: Identifier | None = Field(None, description="Required where the session is new.")
    memorize: Memorize | None = Field(None, description="For a new session; default: messages.")
    metadata: Object | None = Field(None, description="Of a new session.")


class Message(Schema):
    message_id: str
    session_id: str
    seq: int = Field(description="1, 2, 3 …: no gaps, never restarts.")
    role: MessageRole
    content: MessageContent | None
    name: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_call_id: str | None
    result: JsonValue
    metadata: Object
    refusal: str | None
    annotations: list[JsonValue] | None
    audio: JsonValue
    function_call: JsonValue
    timestamp: str
    tokens: Count
    edited_at: str | None = Field(description="When it was edited last.")
    deleted_at: str | None = Field(description="When it was deleted. Its number, role and times stay; it says nothing.")
    created_at: str


class MessageWarning(Schema):
    """What of a message was not kept."""

    code: str = Field(
        description="`text_shortened`: a text over the limit is kept by its beginning and end. `file_not_kept`: the "
        "data of an image or file over the limit became `{type, size, sha256}`."
    )
    pointer: str = Field(description="Where in the request, such as `/messages/3/content`.")
    detail: str


class Appended(Schema):
    session_id: str
    items: list[Message]
    memory_ids: list[str] = Field(description="Long-term memories made from these messages.")
    warnings: list[MessageWarning] = Field([], description="What was over the limit of a text, and is kept short.")


class ContextMessage(Schema):
    seq: int
    role: MessageRole
    name: str | None
    content: str


class SessionContext(Schema):
    text: str = Field(description="`role: content` lines, the summary first, as data: escaped, further lines indented.")
    messages: list[ContextMessage]
    summary: str | None
    tokens: Count = Field(description="o200k tokens of `text`.")
    truncated: bool = Field(description="Earlier messages were left out.")


class SessionStats(Schema):
    session_id: str
    message_count: Count
    by_role: dict[str, int]
    token_count: Count
    first_message_at: str | None
    last_message_at: str | None
    memories: Count = Field(description="Long-term memories that came of it.")


def render(session: SessionRecord) -> Json:
    """Returns a session as responses show it."""
    return SESSIONS.public(session)


def render_message(message: MessageRecord) -> Json:
    """Returns a message as responses show it. Messages of earlier versions were never edited."""
    shown = {name: value for name, value in message.items() if name not in MESSAGE_INTERNAL}
    return {"edited_at": None, "deleted_at": None, **shown}
