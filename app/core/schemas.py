"""What the shapes on the wire share: the strict base class, field types, ids of callers, times, patches and pages.

An id that a caller gives to an agent, user, session or task is any printable text, since identity providers make it:
`auth0|5f7c`, `a+b@x.com`, `Jörg Müller`. Two spellings of the same characters are one id: each door normalises what it
takes, and everything behind compares bytes.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Generic, NotRequired, Self, TypeAlias, TypeVar, cast

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
    with_config,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function
from typing_extensions import TypeAliasType, TypedDict

from app.core.clock import rfc3339, zone_named
from app.core.metadata_filter import ANY_ID, RecordFields, condition_of, filter_of
from app.errors import invalid

MAX = 255
"""The most characters of an id, once it is composed."""
RULE = (
    f"must be 1 to {MAX} printable characters, not . or .., with no / and no control or invisible characters, "
    "and without white space at the ends"
)
PATTERN = r"^[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]*[^\s/\x00-\x1f\x7f])?$"
"""What regular expressions of all languages can say of the rule. It refuses nothing that `identifier` takes. Nothing
above ASCII: Ruby does not compile `\\x9f`, and PHP finds it in the bytes of "ş"."""
_MOST_MARKS = 4
"""No character is composed of more. A longer text is refused before the work of composing it."""

TENANT = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
"""Matches the names of tenants."""
TENANT_RULE = "must be 1 to 128 characters of A-Z a-z 0-9 . _ : @ -"


def identifier(text: str) -> str:
    """Returns the id in Unicode's composed form (NFC). Raises ValueError if it is none."""
    composed = unicodedata.normalize("NFC", text) if len(text) <= _MOST_MARKS * MAX else text
    if not 1 <= len(composed) <= MAX or "/" in composed or not composed.isprintable():
        raise ValueError(RULE)
    if composed != composed.strip() or composed in (".", ".."):
        raise ValueError(RULE)
    return composed


Json: TypeAlias = dict[str, Any]
"""A JSON object that this service makes, or reads from another service."""
JsonObject = TypeAliasType(
    "JsonObject",
    Annotated[dict[str, JsonValue], Field(description="Any JSON object; its keys are data and come back unchanged.")],
)
"""A JSON object of a caller, such as metadata."""

T = TypeVar("T")
TypedShape = TypeVar("TypedShape")
M = TypeVar("M", bound=Mapping[str, Any])
"""A stored object, or a part of one: a typed dictionary."""

MAX_WHOLE = 2**53
"""Every JSON reader handles integers up to this value exactly."""
MAX_SEQ = 2**31 - 1
"""No message or checkpoint has a higher number. Generated clients hold it in 32 bits."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")


class Schema(BaseModel):
    """Unknown fields are refused. Limits on sizes are the service's settings and are checked on every body alike."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def over(self, stored: M) -> M:
        """Returns a stored object with the fields that this body states in place of its own:
        `StepPatch(status="completed").over(step)`. Objects inside are replaced whole."""
        return cast(M, {**stored, **self.model_dump(exclude_unset=True)})


def shown(kind: type[TypedShape]) -> type[TypedShape]:
    """Makes a `TypedDict` the one declaration of what an answer shows: its annotations are what endpoints and services
    return, and its fields in the OpenAPI document. A field is always there, unless it has a default.

        @shown
        class Rate(TypedDict):
            value: float
            low: Annotated[float, Field(description="Lower end of the 95 % Wilson interval.")]

    With `total=False` a record can extend it, so that the changes of an update are of its type, too. An example, and
    that other fields are allowed, stand below: `@with_config(example({"value": 0.9, "low": 0.7}))`.
    """
    below: ConfigDict = getattr(kind, "__pydantic_config__", ConfigDict())

    def all_required(schema: Json) -> None:
        schema.update(cast(Json, below.get("json_schema_extra", {})))
        always = [name for name, field in schema["properties"].items() if "default" not in field]
        if always:
            schema["required"] = always

    extra = below.get("extra", "forbid")
    return with_config(ConfigDict(extra=extra, allow_inf_nan=False, json_schema_extra=all_required))(kind)


UNSET = Field(json_schema_extra={"default": None})
"""Marks a field of a `TypedDict` in a body that is laid over what is stored: without it, nothing changes."""


def example(value: JsonObject) -> ConfigDict:
    """Returns a `model_config` that shows the value as an example in the documentation."""
    return ConfigDict(json_schema_extra={"examples": [value]})


def _in_utc(text: str) -> str:
    if not _RFC3339.fullmatch(text):
        raise ValueError("must be an RFC 3339 time with a zone, such as 2026-11-21T08:30:00Z")
    try:
        return rfc3339(datetime.fromisoformat(text.upper()))
    except OverflowError:
        raise ValueError("must lie between the years 1 and 9999 in UTC") from None


def _zone_name(name: str) -> str:
    zone_named(name)
    return name


class NotNull:
    """Marks fields of a PATCH that can be left out but not cleared."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(cls._given, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return without_null(handler(core))

    @staticmethod
    def _given(value: Any) -> Any:
        if value is None:
            raise ValueError("must not be null: leave it out to keep it as it is")
        return value


def _clears(empty: Callable[[], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: empty() if value is None else value)


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() and abs(value) <= MAX_WHOLE else value


def without_null(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Returns the JSON schema of `X | None` without the null, for fields that can be left out but are never null."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    others = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**others, **options[0]}


Timestamp = Annotated[str, AfterValidator(_in_utc), Field(json_schema_extra={"format": "date-time"})]
"""Accepts RFC 3339 with a zone; becomes the same time in UTC with milliseconds."""
TimeZone = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64),
    AfterValidator(_zone_name),
    Field(
        description="IANA name: the zone whose days the query and the prompt speak of. Default: UTC.",
        examples=["Europe/Berlin"],
    ),
]
_ID_SCHEMA: Json = {"minLength": 1, "maxLength": MAX, "pattern": PATTERN}
Identifier = Annotated[str, AfterValidator(identifier), Field(examples=["user-456"], json_schema_extra=_ID_SCHEMA)]
"""An id of the caller, composed; or a record's id in a path."""
WHOLE = BeforeValidator(_whole)
"""For integers, placed after `strict` and the bounds: 50.0 is accepted, as in JSON Schema; "50" and true are not."""
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
TopK = Annotated[int, Field(strict=True, ge=1, le=100), WHOLE]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=0)]
Object: TypeAlias = JsonObject


def metadata_filter(entries: JsonObject) -> JsonObject:
    """Returns a filter on metadata. Raises ValueError if it is none."""
    condition_of(entries)
    return entries


MetadataFilter: TypeAlias = Annotated[JsonObject, AfterValidator(metadata_filter)]
METADATA_FILTER = (
    'Values, operators and logic: `{"topic": "billing", "priority": {"gte": 3}}`, `{"OR": [{"topic": "billing"}, '
    '{"NOT": {"seen": {"exists": true}}}]}`. Operators: eq, ne, gt, gte, lt, lte, in, nin, contains, icontains, '
    'exists; `"*"` is any value.'
)
FILTERS = (
    'As `metadata`, over fields of the record, too, as mem0 has it: `{"user_id": "ada", "created_at": {"gte": '
    '"2026-01-01T00:00:00Z"}, "topic": "billing"}`. `user_id` and `agent_id` are the owner, `"*"` any that the key may '
    "see. Other names of fields are those of the record, and the rest are entries of its metadata."
)


class RecordFilters(TypedDict, total=False):
    """What a request asks of the owner, the metadata and the fields of records. None or absent: nothing. The owner that
    `filters` names is `agent_id` and `user_id` here, where `ANY_ID` stands for any."""

    agent_id: str | None
    user_id: str | None
    metadata: JsonObject | None
    filters: JsonObject | None


def owner_of(filters: JsonObject, fields: RecordFields, beside: Mapping[str, Any]) -> dict[str, str]:
    """Returns the owner that a filter over fields and metadata names, such as `{"user_id": "ada"}`. Raises ValueError
    if it is no filter, or another owner than the one beside it."""
    _, owner = filter_of(filters, fields)
    for name, value in owner.items():
        owner[name] = value if value == ANY_ID else identifier(value)
        if beside.get(name) not in (None, owner[name]):
            raise ValueError(f"has another {name} than the one beside it")
    return owner


CLEARS_LIST, CLEARS_OBJECT, CLEARS_TEXT = _clears(list), _clears(dict), _clears(str)
"""For fields that null clears: it is stored as an empty list, object or text."""


OWNED = "agent_id, user_id or both are required."


def fault_in(field: str, detail: str) -> ValidationError:
    """Returns the error that a model's validator raises of one field: `fault_in("rrule", "needs due_at")`. With a
    ValueError, an answer would point to the whole body."""
    fault = InitErrorDetails(type=PydanticCustomError("value_error", detail), loc=(field,), input=None)
    return ValidationError.from_exception_data("", [fault])


class Owned(Schema):
    """Of an agent, of a user, or of an agent with one user: what is stored, or where something is looked for."""

    agent_id: Identifier | None = None
    user_id: Identifier | None = None

    @model_validator(mode="after")
    def _of_somebody(self) -> Self:
        return self._with_owner()

    def _with_owner(self) -> Self:
        """Replaced where a search may be of everyone."""
        if self.agent_id is None and self.user_id is None:
            raise ValueError(OWNED.rstrip("."))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        result = handler(core)
        shape = handler.resolve_ref_schema(result)
        # A word of ours: generators make one class for each choice of required fields, or require them all.
        shape["x-requires-one-of"] = ["agent_id", "user_id"]
        shape["description"] = f"{shape.get('description', '')}\n\n{OWNED}".strip()
        return result


def checked_filter(cls: Any, filters: JsonObject | None, info: ValidationInfo) -> JsonObject | None:
    """Validates `filters` by the fields of the schema's records. Raises ValueError as `owner_of`."""
    owner_of(filters or {}, cls.record_fields, info.data)
    return filters


class FilteredSearch(Owned):
    """What a search asks of the owner, the fields and the metadata of records."""

    record_fields: ClassVar[RecordFields]

    metadata: MetadataFilter | None = Field(None, description=METADATA_FILTER)
    filters: JsonObject | None = Field(None, description=FILTERS)

    _is_filter = field_validator("filters")(checked_filter)

    @model_validator(mode="after")
    def _of_somebody(self) -> Self:  # replaces that of `Owned`: `filters` may name the owner, {"user_id": "ann"}
        for name, value in owner_of(self.filters or {}, self.record_fields, {}).items():
            setattr(self, name, value)
        return self._with_owner()

    def asked(self) -> RecordFilters:
        return {"metadata": self.metadata, "filters": self.filters}


def equal_json(value: Any, other: Any) -> bool:
    """Returns whether two JSON values are equal. To Python, 1, 1.0 and true are equal."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def differing(stored: M, fields: Mapping[str, object]) -> M:
    """Returns the fields whose value differs from that of the stored object."""
    return cast(M, {name: value for name, value in fields.items() if not equal_json(stored.get(name), value)})


def shown_as(shape: type[T], record: Mapping[str, object]) -> T:
    """Returns the fields of a record that an answer shows, in the order of its type: `shown_as(Fact, fact)`."""
    return cast(T, {name: record[name] for name in shape.__annotations__})


def require_size(value: Any, limit: int, name: str, pointer: str) -> None:
    """Raises Invalid if the value exceeds `limit` bytes as JSON. Several patches, each within its limits, may add
    up."""
    size = len(orjson.dumps(value))
    if size > limit:
        raise invalid(pointer, f"{name} would have {size} bytes as JSON: at most {limit} are kept")


def merge_patch(target: Any, patch: Any) -> Any:
    """Applies an RFC 7396 merge patch: objects merge by key, null removes a key, anything else replaces.

    Keys are data, never paths.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


@shown
class TextWarning(TypedDict):
    """What of a text that was sent was not kept, or holds something that nobody should keep."""

    code: Annotated[
        str,
        Field(
            description="`text_shortened`: a text over the limit is kept by its beginning and end. `file_not_kept`: "
            "the data of an image or file over the limit became `{type, size, sha256}`. `not_kept`: what is over a "
            "limit of objects was left out. `no_text`: what the place holds is kept, and has no text for memories and "
            "prompts. `secret_found`: a secret or personal data is stored as it was sent. `secret_replaced`: its "
            "`kind` stands in its place. `private_left_out`: `<private>…</private>` is not stored."
        ),
    ]
    pointer: Annotated[str, Field(description="Where in the request, such as `/messages/3/content`.")]
    detail: str
    kind: NotRequired[
        Annotated[
            str | None, Field(default=None, description="What was found.", examples=["openai_key", "card", "iban"])
        ]
    ]
    start: NotRequired[
        Annotated[Count | None, Field(default=None, description="Its first character in the text as it was sent.")]
    ]
    end: NotRequired[Annotated[Count | None, Field(default=None, description="The character behind its last.")]]


NextCursor = Annotated[
    str | None, Field(default=None, description="Pass as `cursor` for the next page; null on the last one.")
]


@shown
class PageWarning(TypedDict):
    code: Annotated[str, Field(description="`record_damaged`: a stored record cannot be read and is left out.")]
    detail: str


@shown
class Page(TypedDict, Generic[T]):
    items: list[T]
    next_cursor: NextCursor
    warnings: NotRequired[
        Annotated[
            list[PageWarning],
            Field(
                description="What the page goes without; absent if it lacks nothing.",
                json_schema_extra={"default": []},
            ),
        ]
    ]


@shown
class ProblemError(TypedDict):
    pointer: Annotated[str, Field(description="JSON pointer into the body, or `/query/…`, `/path/…`, `/header/…`.")]
    detail: str


@shown
class Problem(TypedDict):
    """RFC 9457 problem details, the body of every error."""

    type: Annotated[str, Field(examples=["about:blank"])]
    title: str
    status: int
    detail: str
    code: Annotated[str, Field(description="Stable snake_case word.", examples=["not_found"])]
    request_id: str
    trace_id: NotRequired[
        Annotated[
            str | None, Field(default=None, description="The trace of the request; absent where nothing is traced.")
        ]
    ]
    errors: Annotated[list[ProblemError], Field(default=[])]


# --- The sizes of what callers send and store -------------------------------------------------------------------------

OBJECT_BYTES = 256 << 10
"""Largest context of a task, or profile, as JSON, after all patches: a body alone may be small each time."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a JSON body may hold."""

    text_chars: int = 32_000
    """Longest text of a memory or message. What is longer is a document, and sent as one."""
    batch_items: int = 500
    """Most items in a batch, or messages in one append."""
    json_depth: int = 32
    """Deepest nesting."""
    json_values: int = 250_000
    """Most values, of all levels together: 4 MiB of `[[],[],…` would be two million objects."""
    object_keys: int = 256
    """Most keys in a metadata or context object."""


BODY_LIMITS = BodyLimits()
