"""The storage protocol: how a collection is declared, what a change is, and what an engine can do.

Documents are plain JSON objects, the same in every engine: they carry `tenant_id`, an id under the collection's
`id_field`, `version`, `created_at`, `updated_at`; times are RFC 3339 strings (`clock.rfc3339`), which sort as they are.
Writes are data: a service computes a list of changes and `Store.commit` makes all of them or none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from app.errors import Conflict
from app.storage.derived import Derived
from app.storage.filters import EVERYTHING, Filter
from app.storage.rules import Fade
from app.storage.scope import Pair
from app.storage.search import Columns, Floats, Ints, ScopeFacts, SearchQuery
from app.storage.text import IndexedText

Doc: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["text", "number", "flag", "time", "list"]
Order: TypeAlias = Literal["asc", "desc"]


# --- Declarations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unique:
    """No two documents of a tenant agree on all `fields`; only documents matching `when` count. Null is a value."""

    name: str
    fields: tuple[str, ...]
    when: Filter = EVERYTHING


@dataclass(frozen=True, slots=True)
class Searched:
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
    fields: Mapping[str, Kind]
    """Every field that a filter may name, beside the id."""
    order: str = "created_at"
    """Lists go by this, then by id."""
    unique: tuple[Unique, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    """Equality prefixes that lists are asked by; each index ends in the order."""
    selective: tuple[str, ...] = ()
    """Indexed fields of which few documents share a value: where one is asked for, it is better to find these and sort
    them than to walk an index in the order."""
    everywhere: tuple[str, ...] = ()
    """Fields by which jobs ask for every tenant's documents; each is an index without the tenant."""
    opaque: tuple[str, ...] = ()
    """Fields that hold callers' objects: their keys are data and can never be a path."""
    searched: Searched | None = None
    asked_always: bool = False
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
    def spec(self) -> Searched:
        """Of one that is searched."""
        if self.searched is None:
            raise TypeError(f"{self.name} is not searched")
        return self.searched

    def after(self, doc: Mapping[str, Any]) -> "After":
        """The place of `doc` in lists."""
        return After(doc[self.order], doc[self.id_field])


# --- Changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """What search needs of a text. `vector` is unit length, of `model`; None while its embedding is pending."""

    text: IndexedText
    vector: Floats | None
    model: str
    further: Floats | None = None
    """(n, dim): the vectors of a long text's windows after the first, whose is `vector`. None: it has one window."""

    def __post_init__(self) -> None:
        if self.vector is None:
            return
        if not abs(float(np.linalg.norm(self.vector)) - 1.0) < 1e-3:
            raise ValueError("a vector must be finite and of unit length")
        if self.further is not None and not (np.abs(np.linalg.norm(self.further, axis=1) - 1) < 1e-3).all():
            raise ValueError("the vectors of further windows must be finite and of unit length")


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for an allocated value, plus an offset, anywhere in the documents of the same commit."""

    name: str
    plus: int = 0


@dataclass(frozen=True, slots=True)
class Insert:
    collection: Collection
    doc: Doc
    entry: SearchEntry | None = None
    like: str | None = None
    """In place of `entry`: the id of a document of the same owners that was there before this commit, and whose text
    it leaves alone. The new one has the same text, and takes the other's terms and vectors."""


@dataclass(frozen=True, slots=True)
class Update:
    """Sets and increments top-level fields of one document that must be there and agree with `expect`."""

    collection: Collection
    tenant: str
    id: str
    set: Doc = field(default_factory=dict)
    inc: Mapping[str, int] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)
    entry: SearchEntry | None = None
    """None: text and vector stay as they are."""
    text: IndexedText | None = None
    """In place of `entry`: new terms, under which it is found by words; its vectors stay."""
    keep: bool = False
    """The vector that `entry` replaces stays beside it, for those who search by its model."""
    user: str | None = field(default=None, compare=False)
    """Whose document it is: nothing that an engine looks at."""


@dataclass(frozen=True, slots=True)
class Delete:
    collection: Collection
    tenant: str
    id: str
    expect: Mapping[str, Any] = field(default_factory=dict)
    user: str | None = field(default=None, compare=False)
    """Whose document it is."""


@dataclass(frozen=True, slots=True)
class DeleteWhere:
    """Deletes what matches at the moment of the commit; `Committed.deleted` counts it."""

    collection: Collection
    tenant: str
    where: Filter


@dataclass(frozen=True, slots=True)
class Allocate:
    """Takes `count` values of a gap-free counter, the first of which `Ref(name)` stands for. Counters start at 1."""

    name: str
    tenant: str
    count: int = 1


Change: TypeAlias = Insert | Update | Delete | DeleteWhere | Allocate


@dataclass(frozen=True, slots=True)
class Committed:
    allocated: Mapping[str, int]
    deleted: int


class CommitConflict(Conflict):
    """Nothing of the list was done: `reason` is `exists`, `missing`, `expect` or the name of a unique key."""

    def __init__(self, collection: str, doc_id: str, reason: str) -> None:
        super().__init__("The record changed meanwhile; please try again.")
        self.collection, self.doc_id, self.reason = collection, doc_id, reason


def resolve(tree: Any, allocated: Mapping[str, int]) -> Any:
    """The tree with every Ref replaced by its value."""
    if not allocated:
        return tree
    if isinstance(tree, Ref):
        return allocated[tree.name] + tree.plus
    if isinstance(tree, dict):
        return {k: resolve(v, allocated) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [resolve(v, allocated) for v in tree]
    return tree


def stale(doc: Mapping[str, Any], expect: Mapping[str, Any]) -> bool:
    return any(doc.get(name) != value for name, value in expect.items())


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document that a search found. The engine may hand out the same one again: it is never written into."""

    doc: Doc
    derived: Derived = field(default_factory=Derived, compare=False)


# --- Engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of `Store.check`."""

    name: str
    ok: bool
    detail: str


Which: TypeAlias = Literal["every", "unlike", "other"]
"""Pairs with documents: all; those not known to be of a model throughout; those known to be of another one."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A document that has no vector of the model asked for, or only beside another; `row` is where a page goes on."""

    row: int
    doc: Doc


@dataclass(frozen=True, slots=True)
class VectorCounts:
    """Of a collection: `records` = `of_model` + `without` any vector + `others`; `kept`: vectors beside those."""

    records: int
    of_model: int
    without: int
    others: int
    kept: int


class Reembedding(Protocol):
    """What moving to another embedding model needs of an engine, for every tenant; a model by its code (`model_id`).

    Pairs, by their numbers, know whether all of their vectors are of one model: a write of another one clears that.
    """

    async def pairs(self, collection: Collection, model: int, after: int, limit: int, which: Which) -> list[int]:
        """In the order of their numbers."""
        ...

    async def lacking(
        self, collection: Collection, pairs: Sequence[int], model: int, after: int, limit: int
    ) -> list[Lacking]: ...

    async def settle(self, collection: Collection, pairs: Sequence[int], model: int) -> None:
        """Notes which of the pairs have vectors of the model throughout."""
        ...

    async def counts(self, collection: Collection, model: int, dim: int) -> VectorCounts:
        """By looking at every row."""
        ...

    async def drop_kept(self, collection: Collection) -> int:
        """Forgets what `Update.keep` kept; how many vectors."""
        ...


class Store(Protocol):
    """One engine. Every method raises StoreUnavailable when the store cannot be read or written."""

    name: str

    @property
    def reembedding(self) -> Reembedding: ...

    async def get(self, collection: Collection, tenant: str, doc_id: str) -> Doc | None: ...

    async def find(
        self,
        collection: Collection,
        tenant: str | None,
        where: Filter = EVERYTHING,
        *,
        order: Order = "desc",
        after: After | None = None,
        limit: int = 100,
    ) -> list[Doc]:
        """Documents by `collection.order`, then id; keyset paging by `after`. Tenant None is every tenant: for jobs."""
        ...

    async def count(self, collection: Collection, tenant: str | None, where: Filter = EVERYTHING) -> int: ...

    async def scope_facts(self, collection: Collection, tenant: str, pairs: Sequence[Pair]) -> ScopeFacts: ...

    async def search(self, collection: Collection, query: SearchQuery) -> Columns:
        """Sees every commit that was acknowledged before the call."""
        ...

    async def fetch(self, collection: Collection, tenant: str, rows: Ints) -> list[Fetched | None]:
        """Documents by the handles of `Columns.rows`, in that order; None for one that went meanwhile."""
        ...

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """All changes, durably, or none. Raises CommitConflict."""
        ...

    async def apply(self, collection: Collection, tenant: str | None, rule: Fade, where: Filter = EVERYTHING) -> int:
        """Applies a rule to what matches, in steps that let others write between them; how many were changed.

        Nothing that a caller asked for: versions stay, and so do the pairs'. Tenant None is every tenant.
        """
        ...

    async def would_change(
        self, collection: Collection, tenant: str | None, rule: Fade, where: Filter = EVERYTHING
    ) -> bool:
        """Whether `apply` would change anything now. Writes nothing."""
        ...

    def on_insert(self, collection: Collection, callback: Callable[[], None]) -> None:
        """Calls `callback` after each commit of this process that inserts into the collection, in its event loop.
        What other processes insert is to be looked for."""
        ...

    async def purge(self, tenant: str, user: str, counters: Sequence[str]) -> None:
        """Forgets what the engine keeps by itself of a user without documents: pairs, tombstones, copies, and these
        counters."""
        ...

    async def scrub(self) -> None:
        """Leaves no byte of what was deleted in the engine's own files. Raises StoreUnavailable where it cannot."""
        ...

    async def check(self, *, deep: bool = False) -> list[Finding]:
        """Reachability; with `deep`, the integrity of everything stored."""
        ...

    async def close(self) -> None: ...
