"""How a collection is declared: its fields, unique keys, indexes, and what is searched.

Documents are plain JSON objects, the same in every engine: they carry `tenant_id`, an id under the collection's
`id_field`, `version`, `created_at`, `updated_at`; times are RFC 3339 strings (`clock.rfc3339`), which sort as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, TypeAlias

from app.storage.filters import EVERYTHING, Filter

Doc: TypeAlias = dict[str, Any]
FieldKind: TypeAlias = Literal["text", "number", "flag", "time", "list"]


@dataclass(frozen=True, slots=True)
class Unique:
    """No two documents of a tenant agree on all `fields`; only documents matching `when` count. Null is a value."""

    name: str
    fields: tuple[str, ...]
    when: Filter = EVERYTHING


@dataclass(frozen=True, slots=True)
class SearchSchema:
    """What search keeps of a document beside its text and vector; fields by path, as in filters."""

    facets: tuple[str, ...]
    """Fields (text or list) that Eq, In and Has may name."""
    ranges: tuple[str, ...]
    """Fields (number or time) that Range and Absent may name."""
    time: tuple[str, ...]
    """When it happened: the first of these that is there."""
    anchor: tuple[str, ...]
    """Where its decay starts: the first of these that is there."""
    content: tuple[str, ...] = ("content_hash",)
    """Number that is equal for documents of which a search shows one: the first of these that is there."""
    importance: str = "base_importance"
    pinned: str = "pinned"
    session: str = "source.session_id"
    ordinal: str = "source.message_seq"
    speaker: str = "source.speaker"
    text: Callable[[Mapping[str, Any]], str] = itemgetter("content")
    """What a reranker reads of a document: the text that was embedded."""
    flags: Callable[[Mapping[str, Any]], int] | None = None
    """Flag bits that the document itself has, beside those of its text (`storage/text.py`)."""
    flag_fields: tuple[str, ...] = ()
    """Top-level fields that `flags` reads."""


@dataclass(frozen=True, slots=True)
class After:
    """A place in a list: the order field's value and the id of the last document seen."""

    value: str | int
    id: str


@dataclass(frozen=True, slots=True)
class Collection:
    """Declared once; indexes, erasure, export, migration and the contract suite read it."""

    name: str
    id_field: str
    fields: Mapping[str, FieldKind]
    """Every field that a filter may name, beside the id."""
    order: str = "created_at"
    """Lists go by this, then by id."""
    unique: tuple[Unique, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    """Equality prefixes that lists are asked by; each index ends in the order."""
    selective: tuple[str, ...] = ()
    """Indexed fields of which few documents share a value: where one is asked for, it is better to find these and sort
    them than to walk an index in the order."""
    global_indexes: tuple[str, ...] = ()
    """Fields by which jobs ask for every tenant's documents; each is an index without the tenant."""
    opaque: tuple[str, ...] = ()
    """Fields that hold callers' objects: their keys are data and can never be a path."""
    searched: SearchSchema | None = None
    cached: bool = False
    """Read at each request and seldom written: an engine may keep what it read until the next commit."""
    internal: frozenset[str] = frozenset()
    """Fields that never leave the service, beside the tenant."""
    audited: bool = True
    """Changes are named in the audit trail; not those of bookkeeping, and of children that go with their parent."""
    columns: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The fields, and the order's."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(dict.fromkeys([*self.fields, self.order])))

    @property
    def spec(self) -> SearchSchema:
        """Of one that is searched."""
        if self.searched is None:
            raise TypeError(f"{self.name} is not searched")
        return self.searched

    def after(self, doc: Mapping[str, Any]) -> "After":
        """The place of `doc` in lists."""
        return After(doc[self.order], doc[self.id_field])
