"""Sessions and messages as they are stored, and as requests and responses show them."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Required, Self, TypeAlias, cast

import orjson
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    JsonValue,
    ModelWrapValidatorHandler,
    StringConstraints,
    model_validator,
    with_config,
)
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.core.work import characters
from app.storage.record_filters import fields_of
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


@core.shown
class Session(TypedDict, total=False):
    session_id: str
    agent_id: str
    user_id: str
    status: SessionStatus
    summary: Annotated[
        str | None,
        Field(description="As the language model or a caller wrote it. A `summary` memory holds it, too."),
    ]
    metadata: core.Object
    memorize: Memorize
    message_count: Annotated[core.Count, Field(description="Messages held now.")]
    token_count: Annotated[core.Count, Field(description="Their o200k tokens.")]
    last_message_at: str | None
    ended_at: str | None
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str


class SessionRecord(Session, BaseRecord, total=False):
    """A document of the collection `conversation_sessions`. `SESSIONS` explains its internal fields."""

    summary_id: str | None
    summary_seq: int | None
    metadata_terms: list[str]
    learned_seq: int
    revised: int


CallArguments = TypeAliasType("CallArguments", str | core.JsonObject)


@with_config(extra="allow", allow_inf_nan=False)
class FunctionCall(TypedDict, total=False):
    name: Required[str]
    arguments: Annotated[
        CallArguments | None,
        Field(json_schema_extra={"default": None}, description="JSON; some models give an object."),
    ]


@with_config(extra="allow", allow_inf_nan=False)
class ToolCall(TypedDict, total=False):
    """As the model gave it; fields that we do not know stay."""

    id: Annotated[
        str | None, Field(json_schema_extra={"default": None}, description="Of any length; some models give none.")
    ]
    type: Annotated[str, Field(json_schema_extra={"default": "function"})]
    function: Annotated[FunctionCall | None, core.UNSET]


@core.shown
@with_config(extra="allow")
class Message(TypedDict, total=False):
    """A message, with the fields of its vendor as they were sent, such as `reasoning_content`."""

    message_id: str
    session_id: str
    seq: Annotated[int, Field(description="1, 2, 3 …: no gaps, never restarts.")]
    role: MessageRole
    content: Annotated[
        str | list[core.JsonObject] | None, GetPydanticSchema(lambda _, handler: handler(MessageContent | None))
    ]
    name: str | None
    tool_calls: Annotated[list[ToolCall] | None, GetPydanticSchema(lambda _, handler: handler(list[core.Json] | None))]
    tool_call_id: str | None
    result: JsonValue
    metadata: core.Object
    refusal: str | None
    annotations: list[JsonValue] | None
    audio: JsonValue
    function_call: JsonValue
    timestamp: str
    tokens: core.Count
    edited_at: Annotated[str | None, Field(description="When it was edited last.")]
    deleted_at: Annotated[
        str | None,
        Field(description="When it was deleted. Its number, role and times stay; it says nothing."),
    ]
    created_at: str


class MessageRecord(Message, BaseRecord, total=False):
    """A document of the collection `messages`. `text` is the text of the message, its parts joined. `own_text`: what of
    it the speaker said, where a part holds a tool's answer; None for all of it. `extra`: fields that only the model's
    vendor knows."""

    agent_id: str
    user_id: str
    text: str
    own_text: str | None
    extra: core.JsonObject


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
SESSION_FIELDS = fields_of(SESSIONS, Session, "status", "expires_at", "created_at")
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
    opaque=("metadata", "content", "tool_calls", "result", "annotations", "audio", "function_call", "extra"),
    audited=False,
    internal=frozenset({"text", "own_text"}),
)
"""The collection of messages.

`seq` comes from a counter of the session's id, which outlives the session: it has no gaps and never restarts.
"""

_NOT_IN_ANSWERS = MESSAGES.internal | {"tenant_id", "agent_id", "user_id", "extra"}
"""Fields of messages that no answer contains. An export of a user shows the owners, which an answer has with the
session; what `extra` holds stands beside the other fields, as it was sent."""


def counter(session_id: str) -> str:
    return f"messages:{session_id}"


MessageName = Annotated[
    Annotated[str, StringConstraints(max_length=256)] | None, BeforeValidator(lambda name: None if name == "" else name)
]


class SessionCreate(core.Schema):
    model_config = core.example({"session_id": "chat-1", "agent_id": "support", "user_id": "ada"})

    session_id: core.Identifier | None = Field(
        None, description="Yours, unique in the tenant; made up if you give none."
    )
    agent_id: core.Identifier
    user_id: core.Identifier
    memorize: Memorize = "messages"
    metadata: core.Object = {}
    expires_at: core.Timestamp | None = None


class SessionPatch(core.Schema):
    model_config = core.example({"summary": "Ada moved to Boston.", "expires_at": None})

    metadata: Annotated[core.Object | None, core.CLEARS_OBJECT] = None
    memorize: Annotated[Memorize | None, core.NotNull] = None
    summary: str | None = None
    expires_at: core.Timestamp | None = None


class ContentPart(core.Schema):
    """A part of any vendor, kept as it is: `{"type": "text", "text": "Hi."}`, `{"type": "tool_result", "content": "41
    crates"}`. What it says is the message's text, wherever it stands in the part."""

    model_config = ConfigDict(extra="allow")

    type: str | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _texts_have_text(self) -> Self:
        if self.type == "text" and self.text is None:
            raise core.fault_in("text", "a part of type text needs a text")
        return self


TextPlace: TypeAlias = tuple[Any, Any, str]
"""A container, the key or index of a value in it, and a pointer there."""
_WORDS = ("text", "refusal", "transcript", "content", "output", "result", "response", "value", "json")
"""Where the parts of all vendors hold what they say, in themselves or in an object within."""
_TEXT_NAME = re.compile(r"(text|transcript|transcription|stdout|stderr)$", re.IGNORECASE)
"""Finds a text under a name of its own: `file_text`, `stdout`."""
_DATA = _WORDS[4:]
"""Where a tool's answer may be JSON: `"output": {"type": "json", "value": {"crates": 41}}`."""
_ARGUMENTS = frozenset({"input", "arguments", "args", "parameters", "metadata"})
"""What a tool is called with is no text, though it may hold some."""
_THOUGHT = ("reasoning", "thinking", "thought", "redacted")
"""So begin the types and names of what a model thinks. Nobody said it."""
_OF_A_TOOL = re.compile(r"(call|tool[_-]?use)[_-]?id$|(tool|function).{0,40}(result|response|output)", re.IGNORECASE)
"""Finds the answer of a tool, by the type or a name in it: `tool_use_id`, `tool-result`, `functionResponse`."""
_BLOB = re.compile(r"(?:data:[^,\s]{0,255},)?[A-Za-z0-9+/=_.-]{200}")


def is_blob(text: str) -> bool:
    """Returns whether a text is data and not words: base64, a signature, a token."""
    return _BLOB.match(text) is not None


def is_thought(part: core.JsonObject) -> bool:
    """Returns whether a part holds what a model thinks."""
    return str(part.get("type")).startswith(_THOUGHT) or part.get("thought") is True


def said_in(holder: Any, key: Any, pointer: str = "") -> Iterator[TextPlace]:
    """Yields the places of the texts that `holder[key]` says, found by shape, not by vendor.

    An object that has words of its own says these (`{"type": "tool_result", "content": "41 crates"}`); another one says
    what the objects in it say (`{"type": "document", "source": {"type": "text", "data": "…"}}`). `pointer`: to the
    value."""
    value = holder[key]
    if isinstance(value, str):
        if value and (key in _WORDS[:3] or not is_blob(value)):
            yield holder, key, pointer
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from said_in(value, at, f"{pointer}/{at}")
    elif isinstance(value, dict) and not is_thought(value):
        own = _own_words(value, pointer)
        yield from own
        if not own:
            for name, inner in value.items():
                if isinstance(inner, dict) and name not in _ARGUMENTS and not name.startswith(_THOUGHT):
                    yield from said_in(value, name, f"{pointer}/{step(name)}")


def _own_words(part: core.JsonObject, pointer: str) -> list[TextPlace]:
    own = list[TextPlace]()
    for name in _WORDS:
        if name in part:
            place = f"{pointer}/{name}"
            found = list(said_in(part, name, place))
            own += found or ([(part, name, place)] if name in _DATA and _is_data(part[name]) else [])
    if own:
        return own
    names = [name for name in part if _TEXT_NAME.search(name) and not name.startswith(_THOUGHT)]
    names += ["data"] if part.get("type") == "text" else []
    values = [(name, part.get(name)) for name in names]
    texts = [name for name, text in values if isinstance(text, str) and text and not is_blob(text)]
    return [(part, name, f"{pointer}/{step(name)}") for name in texts]


def said_by(part: core.JsonObject) -> list[str]:
    """Returns the texts that a part says. Data are JSON."""
    values = (holder[key] for holder, key, _ in said_in([part], 0))
    return [value if isinstance(value, str) else orjson.dumps(value).decode() for value in values]


MARK_CHARS = 48
"""What the mark of a cut takes at most, with its line breaks."""


def shortened(text: str, limit: int) -> str:
    """Returns the beginning and the end of a text, at most `limit` characters with the mark between them."""
    if len(text) <= limit:
        return text
    if limit <= MARK_CHARS:
        return text[: max(limit, 0)]
    left = limit - MARK_CHARS
    end = left // 2
    return f"{text[: left - end]}\n[… {len(text) - left:,} characters left out …]\n{text[len(text) - end :]}"


def step(key: str | int) -> str:
    """Returns a key as a step of a JSON pointer."""
    return str(key).replace("~", "~0").replace("/", "~1")


def _is_data(value: JsonValue) -> bool:
    """Returns whether a value is data, such as `{"crates": 41}`: no part with a type, and no blob in it."""
    values = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if not values or values == [None] or (isinstance(value, dict) and "type" in value):
        return False
    if not isinstance(value, dict | list):
        return not isinstance(value, str)
    return all(not is_blob(one) if isinstance(one, str) else one is None or _is_data(one) for one in values)


MessageContent = TypeAliasType("MessageContent", str | Annotated[list[ContentPart], Field(min_length=1)])


class _MessageFields(core.Schema):
    content: MessageContent | None = Field(None, description="Text, content parts, or null beside tool_calls.")
    name: MessageName = Field(None, description="Who speaks; else the role.")
    tool_calls: Annotated[list[ToolCall] | None, BeforeValidator(lambda value: None if value == [] else value)] = None
    tool_call_id: Annotated[str, StringConstraints(max_length=core.BODY_LIMITS.text_chars)] | None = None
    result: JsonValue = Field(None, description="A tool's result, as JSON.")
    metadata: Annotated[core.Object | None, core.CLEARS_OBJECT] = Field(None, validate_default=True)
    timestamp: core.Timestamp | None = Field(None, description="When it was said; default: now.")
    refusal: str | None = Field(None, description="As the model's client gives it; kept, like the three below.")
    annotations: list[JsonValue] | None = None
    audio: JsonValue = None
    function_call: JsonValue = None


SPEAKING = ("user", "assistant")
"""Roles whose messages say something: they are remembered, and learned from. A tool may return nothing, and a prompt
may be empty."""


class StoredMessage(_MessageFields):
    """A message, whether it says something or not."""

    model_config = ConfigDict(extra="allow")

    role: MessageRole

    def length(self) -> int:
        """Returns about how many characters and values the message has, as far as it matters to `off_loop`."""
        parts = self.content if isinstance(self.content, list) else []
        return characters(vars(self), self.model_extra, [(vars(part), part.model_extra) for part in parts])

    def text(self, *, own: bool = False) -> str:
        """Returns the text of the message, one line for each part: what its content says, else its refusal or the
        transcript of its audio. Neighbouring texts of a model are one: `["The capital is ", "Paris", "."]` was cut for
        its citations. `own`: without what a tool answered."""
        if isinstance(self.content, str) and self.content:
            return self.content
        parts = [part.model_dump(exclude_unset=True) for part in self.content or ()]
        # whether a part holds the answer of a tool: in Anthropic's messages, the user sends it
        texts, goes_on = list[str](), False
        for part in parts:
            if own and any(_OF_A_TOOL.search(word) for word in (str(part.get("type")), *part)):
                goes_on = False
                continue
            said = said_by(part)
            is_text = self.role == "assistant" and said == [part.get("text")]
            if goes_on and is_text:
                texts[-1] += said[0]
            else:
                texts += said
            goes_on = is_text
        if not texts and not parts:
            texts = [self.refusal] if self.refusal else said_by({"audio": self.audio})
        return "\n".join(texts)


class MessageIn(StoredMessage):
    """A message as OpenAI's clients hold it, `model_dump()` included. Fields of any vendor are kept as they are."""

    __slots__ = ("_left_out",)  # a private attribute takes three times as long as all the rest of a short message

    @property
    def left_out(self) -> dict[str, str]:
        """What exceeds the limits on objects and was left out, with the reason: `{"/thinking_blocks/0": "It is nested
        too deep: it was left out."}`."""
        left_out: dict[str, str] = object.__getattribute__(self, "_left_out")
        return left_out

    @model_validator(mode="wrap")
    @classmethod
    def _within_limits(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        if value.keys() <= _PLAIN_TEXT and isinstance(value.get("content"), str):
            message = handler(value)
            object.__setattr__(message, "_left_out", {})
            return message
        ours = MessageRecord.__annotations__.keys() - cls.model_fields.keys()
        own = {f"/{name}": "It is the service's own: it was left out." for name in value if name in ours}
        fields, left_out = {name: inner for name, inner in value.items() if name not in ours}, dict[str, str]()
        if len(fields) > core.BODY_LIMITS.object_keys:
            left_out[""] = (
                f"It has more than {core.BODY_LIMITS.object_keys} fields: those that are not known were left out."
            )
            fields = {name: inner for name, inner in fields.items() if name in cls.model_fields}
        fields = {
            name: inner if name in _PLAIN else _kept(inner, f"/{step(name)}", left_out)
            for name, inner in fields.items()
        }
        fields = {name: inner for name, inner in fields.items() if f"/{step(name)}" not in left_out}
        if left_out and not any(fields.get(name) for name in fields.keys() - _ABOUT):
            fields["content"] = [{"type": "not_kept"}]
        message = handler(fields)
        object.__setattr__(message, "_left_out", own | left_out)
        return message

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        others = (self.tool_calls, self.result, self.refusal, self.audio, self.function_call)
        vendors = (self.model_extra or {}).values() if self.role == "assistant" else ()
        if all(other is None for other in (*others, *vendors)):
            if self.content is None:
                raise core.fault_in("content", "is required, unless there are tool_calls, a result or a refusal")
            if self.role in SPEAKING and not self._has_content():
                raise core.fault_in(
                    "content", "is empty: a message of a user or assistant has a text, another part or tool_calls"
                )
        if self.tool_calls is not None and self.role != "assistant":
            raise core.fault_in("tool_calls", "belong to the role assistant")
        return self

    def _has_content(self) -> bool:
        parts = self.content if isinstance(self.content, list) else []
        others = (part.text is None or is_thought(part.model_dump(exclude_unset=True)) for part in parts)
        return any(others) or bool(self.text().strip())


_PLAIN = frozenset({"role", "name", "tool_call_id", "timestamp", "refusal"})
"""Fields that hold no objects."""
_PLAIN_TEXT = _PLAIN | {"content"}
_ABOUT = (_PLAIN - {"refusal"}) | {"metadata"}
"""Fields that say nothing themselves."""
_MAX_LEVELS = core.BODY_LIMITS.json_depth - 4
"""Most levels of a part of a field: the body, the list of messages, the message and the field lie around it."""
_SEARCHED = 3
"""How deep in a field a value is left out alone: `tool_calls/0/function/arguments`. What exceeds a limit further down
takes what is around it along, so that a value is looked through a few times only."""


def _kept(value: Any, place: str, left_out: dict[str, str], levels: int = _MAX_LEVELS) -> Any:
    """Returns a field of a message without what exceeds the limits on objects, and notes that. A part keeps its text,
    and a call its name: of `{"text": "Hello", "logprobs": [… 600 …]}` stays `{"text": "Hello"}`."""
    if reason := _too_wide(value):
        left_out[place] = f"{reason}: it was left out."
        return None
    kept: dict[str | int, Any] = {}
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        reason = _excess(one, levels)
        smaller = levels > _MAX_LEVELS - _SEARCHED and (reason != _TOO_DEEP or isinstance(value, list))
        if reason and smaller and not _too_wide(one):
            kept[key] = _kept(one, f"{place}/{step(key)}", left_out, levels - 1)
        elif reason:
            left_out[f"{place}/{step(key)}"] = f"{reason}: it was left out."
        else:
            kept[key] = one
    if isinstance(value, list):
        return [*kept.values()]
    return kept if isinstance(value, dict) else value


_TOO_DEEP = "It is nested too deep"


def _excess(value: Any, levels: int) -> str | None:
    """Returns which limit of an object a value exceeds in its first `levels` levels; None for none."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not level:
            return None
        if reason := next(filter(None, map(_too_wide, level)), None):
            return reason
        containers = [one.values() if isinstance(one, dict) else one for one in level]
        level = [inner for container in containers for inner in container if isinstance(inner, dict | list)]
    return _TOO_DEEP if level else None


def _too_wide(value: Any) -> str | None:
    if isinstance(value, dict) and len(value) > core.BODY_LIMITS.object_keys:
        return f"It has more than {core.BODY_LIMITS.object_keys} keys"
    if isinstance(value, list) and len(value) > core.BODY_LIMITS.batch_items:
        return f"It has more than {core.BODY_LIMITS.batch_items} items"
    return None


class MessagePatch(_MessageFields):
    """What is absent stays; null clears. The result must be a message."""

    model_config = core.example({"content": "I moved to Boston last month."})

    timestamp: Annotated[core.Timestamp | None, core.NotNull] = Field(None, description="When it was said.")


class MessagesAppend(core.Schema):
    model_config = core.example(
        {
            "agent_id": "support",
            "user_id": "ada",
            "messages": [{"role": "user", "name": "Ada", "content": "I moved to Boston last week."}],
        }
    )

    LENIENT: ClassVar = frozenset({"messages"})

    messages: Annotated[
        list[MessageIn], Field(min_length=1, max_length=core.BODY_LIMITS.batch_items, description="At most 500.")
    ]
    agent_id: core.Identifier | None = Field(None, description="Required where the session is new.")
    user_id: core.Identifier | None = Field(None, description="Required where the session is new.")
    memorize: Memorize | None = Field(None, description="For a new session; default: messages.")
    metadata: core.Object | None = Field(None, description="Of a new session.")


@core.shown
class Appended(TypedDict):
    session_id: str
    items: list[Message]
    memory_ids: Annotated[list[str], Field(description="Long-term memories made from these messages.")]
    warnings: Annotated[
        list[core.TextWarning], Field(default=[], description="What was not kept whole, or has no text.")
    ]


@core.shown
class ContextMessage(TypedDict):
    seq: int
    role: MessageRole
    name: str | None
    content: str


@core.shown
class SessionContext(TypedDict):
    text: Annotated[
        str,
        Field(description="`role: content` lines, the summary first, as data: escaped, further lines indented."),
    ]
    messages: list[ContextMessage]
    summary: str | None
    tokens: Annotated[core.Count, Field(description="o200k tokens of `text`.")]
    truncated: Annotated[bool, Field(description="Earlier messages were left out.")]


@core.shown
class SessionStats(TypedDict):
    session_id: str
    message_count: core.Count
    by_role: dict[str, int]
    token_count: core.Count
    first_message_at: str | None
    last_message_at: str | None
    memories: Annotated[core.Count, Field(description="Long-term memories that came of it.")]


def render(session: SessionRecord) -> Session:
    return cast(Session, SESSIONS.public(session))


def render_message(message: MessageRecord) -> Message:
    public = {name: value for name, value in message.items() if name not in _NOT_IN_ANSWERS}
    return cast(Message, {**public, **message.get("extra", {})})


def own_text(message: MessageRecord) -> str:
    """Returns what the speaker said. The answer of a tool that a user's message brings is not the user's word."""
    own = message.get("own_text")
    return message["text"] if own is None else own


def speaker_role(message: MessageRecord) -> MessageRole:
    """Returns the role whose words a message has: `tool` where a user's message brings a tool's answer and no more."""
    return "tool" if message["text"] and not own_text(message) else message["role"]


def extra_of(message: core.Json) -> core.JsonObject:
    """Returns the fields of a message as answers show it that only its vendor knows."""
    return {name: value for name, value in message.items() if name not in MessageRecord.__annotations__}
