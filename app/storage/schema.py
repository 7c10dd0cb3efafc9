"""Declarations of collections: fields, unique keys, indexes and the search schema.

Documents are plain JSON objects and are the same in every engine. Each has `tenant_id`, an id under the collection's
`id_field`, `version`, `created_at` and `updated_at`. Times are RFC 3339 strings (`clock.rfc3339`), which sort in order
of time.
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
    """A unique key: no two documents of a tenant have equal values in all `fields`.

    Only documents that match `when` are compared. Null is a value like any other.
    """

    name: str
    fields: tuple[str, ...]
    when: Filter = EVERYTHING


@dataclass(frozen=True, slots=True)
class SearchSchema:
    """Declares what search stores of a document beside its text and vector. Fields are paths, as in filters."""

    facets: tuple[str, ...]
    """Fields (text or list) that the filters Eq, In and Has may name."""
    ranges: tuple[str, ...]
    """Fields (number or time) that the filters Range and Absent may name."""
    time: tuple[str, ...]
    """Fields that say when it happened. The first one present is used."""
    anchor: tuple[str, ...]
    """Fields that say when its decay starts. The first one present is used."""
    content: tuple[str, ...] = ("content_hash",)
    """Fields with a content hash: of documents with equal hashes a search returns only one. The first field present is
    used."""
    importance: str = "base_importance"
    pinned: str = "pinned"
    session: str = "source.session_id"
    ordinal: str = "source.message_seq"
    speaker: str = "source.speaker"
    placed: str | None = None
    """A field without which a record that names a session has no position in it. None: every such record has one."""
    text: Callable[[Mapping[str, Any]], str] = itemgetter("content")
    """Returns the text of a document for a reranker: the text that was embedded."""
    flags: Callable[[Mapping[str, Any]], int] | None = None
    """Returns the flag bits of the document itself, in addition to those of its text (`storage/text.py`)."""
    flag_fields: tuple[str, ...] = ()
    """Top-level fields that `flags` reads."""


@dataclass(frozen=True, slots=True)
class After:
    """A position in a list: the value of the order field and the id of the last document seen."""

    value: str | int
    id: str


@dataclass(frozen=True, slots=True)
class Collection:
    """The declaration of a kind of document. Indexes, erasure, export, migration and the contract suite read it."""

    name: str
    id_field: str
    fields: Mapping[str, FieldKind]
    """Every field that a filter may name, except the id."""
    order: str = "created_at"
    """The field by which lists are sorted; the id breaks ties."""
    unique: tuple[Unique, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    """Fields that list queries compare for equality, one tuple for each index. Every index ends in the order field."""
    selective: tuple[str, ...] = ()
    """Indexed fields with few documents for each value. If a query names one, finding these documents and sorting them
    is faster than walking an index in order."""
    global_indexes: tuple[str, ...] = ()
    """Fields by which jobs query the documents of all tenants. Each gets an index without the tenant."""
    opaque: tuple[str, ...] = ()
    """Fields that contain callers' objects. Their keys are data and are never used as paths."""
    searched: SearchSchema | None = None
    """The search schema; None if the collection is not searched."""
    cached: bool = False
    """True if documents are read at each request and seldom written. An engine may cache what it read until the next
    commit."""
    internal: frozenset[str] = frozenset()
    """Fields that are never returned to callers, in addition to the tenant."""
    audited: bool = True
    """True if the audit trail names changes. False for internal records, and for children that change with their
    parent."""
    counted: bool = False
    """True for records that callers made. They count towards their tenant's quotas."""
    kind: str | None = None
    """The name of its records in the change log (`storage/change_log.py`); None: their changes are not logged."""
    columns: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The declared fields and the order field, without duplicates."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(dict.fromkeys([*self.fields, self.order])))

    @property
    def spec(self) -> SearchSchema:
        """The search schema. Raises TypeError if the collection is not searched."""
        if self.searched is None:
            raise TypeError(f"{self.name} is not searched")
        return self.searched

    def after(self, doc: Mapping[str, Any]) -> "After":
        """Returns the position of `doc` in lists."""
        return After(doc[self.order], doc[self.id_field])
