"""What a store holds: declared collections and their fields, filters over them, and the layout that they are stored in.

**Documents** are plain JSON objects and are the same in every engine. Each has `tenant_id`, an id under the
collection's `id_field`, `version`, `created_at` and `updated_at`. Times are RFC 3339 strings (`clock.rfc3339`), which
sort in order of time. A collection declares fields, unique keys, indexes and a search schema.

**Records** are the same documents as features know them: a subclass of `BaseRecord` names the fields of a collection
and their types. `MEMORIES` is a `Collection[MemoryRecord]`, so what a store or a repository returns for it is a
`MemoryRecord`, and `memories.update(memory, {"contnet": ""}, now=now)` is an error of types. A record keeps the fields
that its class does not name: those of a newer release survive reading and writing (docs/decisions/0032).

**Filters** are typed conditions over declared fields. Field names come from our code, values from callers; a caller's
dict is never used. Each engine translates filters. `matches` defines their meaning, and the contract suite checks every
engine against it. Filters are treated as immutable but are not frozen: a frozen one takes five times as long to make,
and searches make eight.

**A layout** is how an engine lays out data. A release that adds collections, fields or indexes keeps the layout:
engines add these at the next start, and the release before goes on with the same store. What that release could not
read needs a new layout, with a step that makes it of the layout before. Example: `STEPS = {2: to_signed_times}` makes 2
the newest layout. A store of layout 1 is brought up to date at the next start, and a release that knows 1 refuses it
from then on.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Generic, Literal, TypeAlias, cast

from typing_extensions import TypedDict, TypeVar

from app import VERSION
from app.errors import StoreUnavailable

Scalar: TypeAlias = str | int | float | bool
Doc: TypeAlias = dict[str, Any]
FieldKind: TypeAlias = Literal["text", "number", "flag", "time", "list"]
GUIDE = "docs/operations/upgrading.md"


class BaseRecord(TypedDict, total=False):
    """What the documents of a collection contain: the base of `MemoryRecord`, `FactRecord` and so on.

    No field is required by the type, so that the changes of an update have it, too: `{"pinned": True}`. What a document
    cannot be read without stands in `Collection.needs`.
    """

    tenant_id: str
    version: int
    created_at: str
    updated_at: str


class OwnedRecord(BaseRecord, total=False):
    """A record of an agent, of a user, of both, or of the whole tenant."""

    agent_id: str | None
    user_id: str | None


S = TypeVar("S")
R = TypeVar("R", bound=Mapping[str, Any], default=Any)
"""The record type of a collection. Code that handles documents of any collection leaves it out: `Collection`."""


@dataclass(slots=True, unsafe_hash=True)
class Eq:
    """The field equals the value."""

    field: str
    value: Scalar


@dataclass(slots=True, unsafe_hash=True)
class In:
    """The field equals one of the values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(slots=True, unsafe_hash=True)
class Has:
    """The list field contains the value."""

    field: str
    value: str


@dataclass(slots=True, unsafe_hash=True)
class Range:
    """The number or time (RFC 3339, as stored) is within the bounds. An absent field is in no range."""

    field: str
    ge: str | float | None = None
    gt: str | float | None = None
    le: str | float | None = None
    lt: str | float | None = None


@dataclass(slots=True, unsafe_hash=True)
class Absent:
    """The field is null or missing."""

    field: str


@dataclass(slots=True, unsafe_hash=True)
class Not:
    """The part does not match."""

    part: "Filter"


@dataclass(slots=True, unsafe_hash=True)
class And:
    """All parts match. Without parts it matches every document."""

    parts: tuple["Filter", ...] = ()


@dataclass(slots=True, unsafe_hash=True)
class Or:
    """At least one part matches."""

    parts: tuple["Filter", ...]


Filter: TypeAlias = Eq | In | Has | Range | Absent | Not | And | Or

EVERYTHING = And()


def both(*parts: Filter | None) -> Filter:
    """Returns the conjunction of the parts that are not None, flattened."""
    flat: list[Filter] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, And) else () if part is None else (part,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def value_at(doc: Mapping[str, object], field: str) -> Any:
    """Returns the value at a path such as `source.session_id`, or None if it is missing."""
    if "." not in field:
        return doc.get(field)
    value: Any = doc
    for name in field.split("."):
        value = value.get(name) if value.__class__ is dict else None  # `Mapping` takes ten times as long to ask
    return value


def top_of(field: str) -> str:
    """Returns the top-level field of a path."""
    return field.partition(".")[0]


def matches(doc: Mapping[str, object], where: Filter) -> bool:
    match where:
        case And(parts):
            return all(matches(doc, part) for part in parts)
        case Or(parts):
            return any(matches(doc, part) for part in parts)
        case Not(part):
            return not matches(doc, part)
        case Absent(field):
            return value_at(doc, field) is None
        case Eq(field, wanted):
            return bool(value_at(doc, field) == wanted)
        case In(field, values):
            return value_at(doc, field) in values
        case Has(field, wanted):
            return wanted in (value_at(doc, field) or ())
        case Range():
            value = value_at(doc, where.field)
            return (
                value is not None
                and (where.ge is None or value >= where.ge)
                and (where.gt is None or value > where.gt)
                and (where.le is None or value <= where.le)
                and (where.lt is None or value < where.lt)
            )


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique key: no two documents of a tenant have equal values in all `fields`.

    Only documents that match `when` are compared. Null is a value like any other.
    """

    name: str
    fields: tuple[str, ...]
    when: Filter = EVERYTHING


@dataclass(frozen=True, slots=True)
class SearchSchema(Generic[R]):
    """Declares what search stores of a document beside its text and vector. Fields are paths, as in filters."""

    facets: tuple[str, ...]
    """Fields (text or list) that the filters Eq, In and Has may name."""
    ranges: tuple[str, ...]
    """Fields (number or time) that the filters Range and Absent may name."""
    time: tuple[str, ...]
    """Fields that say when it happened. The first one present is used."""
    anchor: tuple[str, ...]
    """Fields that say when its decay starts. The first one present is used."""
    until: tuple[str, ...] = ()
    """Range fields with the last moment of what lasts, such as a day. The first one present is used, else `time`."""
    told: tuple[str, ...] = ()
    """Range fields that say when it was told. The first one present is used, else `time`."""
    content: tuple[str, ...] = ("content_hash",)
    """Fields with a content hash: of documents with equal hashes a search returns only one. The first field present is
    used."""
    said_with: tuple[str, ...] = ()
    """Fields that two documents must have alike to say the same where one text repeats the other. Without any
    they are not compared."""
    later_replaces: bool = False
    """Whether a later document that says something else with the same words of a query goes before an earlier one."""
    importance: str = "base_importance"
    pinned: str = "pinned"
    session: str = "source.session_id"
    ordinal: str = "source.message_seq"
    speaker: str = "source.speaker"
    placed: str | None = None
    """A field without which a record that names a session has no position in it. None: every such record has one."""
    text: Callable[[R], str] = itemgetter("content")
    """Returns the text of a document for a reranker: the text that was embedded."""
    flags: Callable[[R], int] | None = None
    """Returns the flag bits of the document itself, in addition to those of its text (`storage/text.py`)."""
    flag_fields: tuple[str, ...] = ()
    """Top-level fields that `flags` reads."""


@dataclass(frozen=True, slots=True)
class After:
    """A position in a list: the value of the order field and the id of the last document seen."""

    value: str | int
    id: str


@dataclass(frozen=True, slots=True)
class Collection(Generic[R]):
    """The declaration of a kind of document. Indexes, erasure, export, migration and the contract suite read it.

    The parameter is the type of its records: `MEMORIES: Collection[MemoryRecord] = Collection("agent_memories", …)`.
    """

    name: str
    id_field: str
    fields: Mapping[str, FieldKind]
    """Every field that a filter may name, except the id."""
    order: str = "created_at"
    """The field by which lists are sorted; the id breaks ties."""
    unique: tuple[Unique, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    """Fields that list queries compare for equality, one tuple for each index. Every index ends in the order field."""
    covered: tuple[str, ...] = ()
    """Fields that the index of the whole tenant's list has besides, so that what counts or filters by them alone reads
    no documents: `status` of 100,000 memories is counted in 40 ms, not in a second. They stand at the end, where no
    engine takes them for what finds the documents of a user."""
    selective: tuple[str, ...] = ()
    """Indexed fields with few documents for each value. If a query names one, finding these documents and sorting them
    is faster than walking an index in order."""
    global_indexes: tuple[str, ...] = ()
    """Fields by which jobs query the documents of all tenants. Each gets an index without the tenant."""
    opaque: tuple[str, ...] = ()
    """Fields that contain callers' objects. Their keys are data and are never used as paths."""
    searched: SearchSchema[R] | None = None
    """The search schema; None if the collection is not searched."""
    needs: Mapping[str, FieldKind | Literal["object"]] = field(default_factory=dict)
    """Fields without which a document cannot be read, and what they are. Documents of every version have them."""
    cached: bool = False
    """True if documents are read at each request and seldom written. An engine may cache what it read until the next
    commit."""
    internal: frozenset[str] = frozenset()
    """Fields that are never returned to callers, in addition to the tenant."""
    audited: bool = True
    """True if the audit trail names changes. False for internal records, and for children that change with their
    parent."""
    counted: bool = False
    """True for what callers made. It counts towards their tenant's quotas."""
    only_bytes: bool = False
    """True if its documents count towards the bytes of a quota and not towards the records: stored answers and keys."""
    payer: str = "tenant_id"
    """The field with the tenant towards whose quotas a document counts."""
    kind: str | None = None
    """The name of its records in the change log (`storage/change_log.py`); None: their changes are not logged."""
    columns: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The declared fields and the order field, without duplicates."""

    def __post_init__(self) -> None:
        if self.order not in self.fields and self.order != "created_at":
            raise TypeError(f"{self.name} declares no kind for {self.order}, by which its lists are sorted")
        object.__setattr__(self, "columns", tuple(dict.fromkeys([*self.fields, self.order])))

    def list_index(self, prefix: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Returns the name of the index for lists with equal values of `prefix`, such as `by_user_id_created_at`, and
        the fields that it has behind the id."""
        behind = () if prefix else self.covered
        return "_".join(("by", *prefix, self.order, *(("with", *behind) if behind else ()))), behind

    @property
    def noun(self) -> str:
        """What one of its documents is called: `memory`."""
        return self.id_field.removesuffix("_id")

    @property
    def spec(self) -> SearchSchema[R]:
        """The search schema. Raises TypeError if the collection is not searched."""
        if self.searched is None:
            raise TypeError(f"{self.name} is not searched")
        return self.searched

    def public(self, doc: Mapping[str, object]) -> Doc:
        """Returns a document without its tenant and its internal fields: what answers show of it."""
        shown = dict(doc)
        for name in ("tenant_id", *self.internal):
            shown.pop(name, None)
        return shown

    def as_record(self, fields: Mapping[str, object]) -> R:
        """Returns a copy of the fields, unchecked, as a record, where their names are known only at run time:
        `MEMORIES.as_record(body.model_dump(exclude_unset=True))`, what a PATCH sets."""
        return cast(R, dict(fields))

    @property
    def place(self) -> type[str] | type[int]:
        """The type of the order field in a cursor: a time or text, or a number such as `seq`."""
        return int if self.fields.get(self.order) == "number" else str

    def after(self, doc: R) -> "After":
        """Returns the position of `doc` in lists."""
        return After(doc[self.order], doc[self.id_field])


@dataclass(frozen=True, slots=True)
class Written:
    """What a store says of itself: its layout, and the release that last brought it up to date, if it says so."""

    layout: int
    release: str | None = None

    def __str__(self) -> str:
        by = f"Recalld {self.release}" if self.release else "a release that did not leave its name"
        return f"layout {self.layout}, last started by {by}"


def newest(first: int, steps: Mapping[int, object]) -> int:
    """Returns the newest layout that an engine knows. `first` is the newest one that needs no step."""
    return max(steps, default=first)


def refuse_newer_layout(what: str, written: Written, known: int) -> None:
    """Raises StoreUnavailable if a store has a layout that is not known. `what` names it, as "The store"."""
    if written.layout <= known:
        return
    release = written.release or "of a newer version"
    start = f"Start {written.release} or later" if written.release else "Start the newer release"
    raise StoreUnavailable(
        f"{what} was written by a newer version: Recalld {release} (layout {written.layout}). "
        f"This is Recalld {VERSION}, which knows layouts up to {known}. {start}, or restore a backup from before the "
        f"upgrade ({GUIDE}). "
        "Nothing was changed.",
        retry_after=None,
    )


def due(before: int, steps: Mapping[int, S]) -> Iterator[tuple[int, S]]:
    """Yields the layouts that a store of layout `before` has to go through, each with its step."""
    yield from ((layout, steps[layout]) for layout in sorted(steps) if layout > before)
