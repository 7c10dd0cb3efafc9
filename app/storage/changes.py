"""Changes as data: a service computes a list of changes, and `Store.commit` makes all of them or none. It counts what
tenants store, and deletions may use space that is kept back for them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from app.errors import Conflict, QuotaExceeded, StorageFull
from app.storage.schema import Collection, Doc, Filter, R
from app.storage.text import IndexedTerms

# --- What a tenant stores ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """A number of records and their bytes, without indexes: as JSON in the embedded store, as BSON in MongoDB."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.records + other.records, self.bytes + other.bytes)


UsageByTenant: TypeAlias = Mapping[str, Mapping[str, Usage]]
"""Usage by tenant and collection, without those that have nothing."""


def total(usage: Mapping[str, Usage]) -> Usage:
    """Returns the sum over all collections."""
    return sum(usage.values(), Usage())


def by_tenant(counted: Iterable[tuple[tuple[str, str], Usage]]) -> dict[str, dict[str, Usage]]:
    """Returns the sums of the usages of a (tenant, collection), without collections and tenants that have nothing."""
    sums: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
    for key, usage in counted:
        sums[key] += usage
    usages: defaultdict[str, dict[str, Usage]] = defaultdict(dict)
    for (tenant, name), usage in sums.items():
        if usage != Usage():
            usages[tenant][name] = usage
    return dict(usages)


def differences(stored: UsageByTenant, counted: UsageByTenant) -> list[str]:
    """Returns a sentence for each tenant whose stored usage is not the one that was counted."""
    return [
        f"tenant {tenant} is said to have {_in_words(stored, tenant)} and has {_in_words(counted, tenant)}"
        for tenant in sorted({*stored, *counted})
        if stored.get(tenant, {}) != counted.get(tenant, {})
    ]


def _in_words(usage: UsageByTenant, tenant: str) -> str:
    whole = total(usage.get(tenant, {}))
    return f"{whole.records} records of {whole.bytes} bytes"


@dataclass(frozen=True, slots=True)
class StoredTotals:
    """What all tenants store together: how many tenants have records, and the usage by collection."""

    tenants: int
    collections: Mapping[str, Usage]

    @classmethod
    def of(cls, tenants: int, collections: Mapping[str, Usage]) -> "StoredTotals":
        """Returns the totals without collections that have nothing."""
        return cls(tenants, {name: usage for name, usage in collections.items() if usage != Usage()})


# --- Changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The terms and vectors of a text, for the search index.

    `vector` has unit length and comes from `model`; it is None while the embedding is pending.
    """

    terms: IndexedTerms
    vector: NDArray[np.float32] | None
    model: str
    further: NDArray[np.float32] | None = None
    """(n, dim): the vectors of a long text's windows after the first, which is `vector`. None if the text has one
    window."""

    def __post_init__(self) -> None:
        if self.vector is None:
            return
        if not abs(float(np.linalg.norm(self.vector)) - 1.0) < 1e-3:
            raise ValueError("a vector must be finite and of unit length")
        if self.further is not None and not (np.abs(np.linalg.norm(self.further, axis=1) - 1) < 1e-3).all():
            raise ValueError("the vectors of further windows must be finite and of unit length")


@dataclass(frozen=True, slots=True)
class Ref:
    """A placeholder for an allocated value plus an offset, anywhere in the documents of the same commit."""

    name: str
    plus: int = 0

    @classmethod
    def number(cls, name: str, plus: int = 0) -> int:
        """Returns the placeholder as a record holds it, typed as what the commit makes of it:
        `{"seq": Ref.number("messages:ses_1")}`."""
        return cast(int, cls(name, plus))


@dataclass(frozen=True, slots=True)
class Insert(Generic[R]):
    """Inserts a document. Conflicts if its id or a unique key exists."""

    collection: Collection[R]
    doc: R
    entry: IndexEntry | None = None
    like: str | None = None
    """Used in place of `entry`: the id of a document with the same owners and the same text, which existed before this
    commit and whose text the commit does not change. The new document copies its terms and vectors."""


@dataclass(frozen=True, slots=True)
class Update(Generic[R]):
    """Sets and increments top-level fields of one document.

    The document must exist, and its fields must equal those of `expect`.
    """

    collection: Collection[R]
    tenant: str
    id: str
    set: R = field(default_factory=dict)  # type: ignore[assignment]  # an empty dict is a change of any record
    inc: Mapping[str, int] = field(default_factory=dict)
    expect: Mapping[str, object] = field(default_factory=dict)
    entry: IndexEntry | None = None
    """New terms and vectors; None leaves both unchanged."""
    terms: IndexedTerms | None = None
    """Used in place of `entry`: replaces the terms by which it is found; its vectors stay."""
    keep: bool = False
    """True keeps the vector that `entry` replaces, for searches by its model."""
    user: str | None = field(default=None, compare=False)
    """The owner of the document. Engines ignore it."""

    def fields(self, doc: Mapping[str, object], allocated: Mapping[str, int]) -> Doc:
        """Returns the new values of the fields that change. A field without a value counts from 0."""
        new: Doc = dict(resolve(self.set, allocated))
        return new | {name: (new.get(name, doc.get(name)) or 0) + by for name, by in self.inc.items()}


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes one document, which must exist and whose fields must equal those of `expect`."""

    collection: Collection
    tenant: str
    id: str
    expect: Mapping[str, object] = field(default_factory=dict)
    user: str | None = field(default=None, compare=False)
    """The owner of the document. Engines ignore it."""


@dataclass(frozen=True, slots=True)
class DeleteWhere:
    """Deletes the documents that match at the moment of the commit. `Committed.deleted` counts them."""

    collection: Collection
    tenant: str
    where: Filter


@dataclass(frozen=True, slots=True)
class Allocate:
    """Takes `count` values of a gap-free counter. `Ref(name)` stands for the first of them. Counters start at 1."""

    name: str
    tenant: str
    count: int = 1

    def first(self, last: int) -> int:
        """Returns the first value taken, if the counter stands at `last` afterwards."""
        return last - self.count + 1


@dataclass(frozen=True, slots=True)
class WithinQuota:
    """Refuses the list if it would raise the tenant's usage above these limits; 0 means no limit.

    A list that does not raise the usage is made however high it is, so that records can always be deleted.
    """

    tenant: str
    records: int
    bytes: int

    def check(self, before: Usage, after: Usage) -> None:
        """Raises QuotaExceeded with the figures. `before` and `after`: the tenant's usage without and with the list."""
        figures = (
            ("records", self.records, before.records, after.records),
            ("bytes", self.bytes, before.bytes, after.bytes),
        )
        for unit, limit, used, wanted in figures:
            if limit and wanted > limit and wanted > used:
                raise QuotaExceeded(
                    f"The quota of this tenant is {limit} {unit}. {used} are used, and this write would make it "
                    f"{wanted}: delete some first."
                )


Change: TypeAlias = Insert | Update | Delete | DeleteWhere | Allocate | WithinQuota


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit: the first value of each allocated counter, and the number of deletions."""

    allocated: Mapping[str, int]
    deleted: int
    """Number of documents deleted by `Delete` and `DeleteWhere` changes."""


class CommitConflict(Conflict):
    """A change conflicted, and none of the list was made.

    `reason` is `exists`, `missing`, `expect` or the name of a unique key.
    """

    def __init__(self, collection: str, doc_id: str, reason: str) -> None:
        super().__init__("The record changed meanwhile; please try again.")
        self.collection, self.doc_id, self.reason = collection, doc_id, reason


_NO_REF = frozenset((str, int, float, bool, type(None)))


def resolve(tree: Any, allocated: Mapping[str, int]) -> Any:
    """Returns the tree with each Ref replaced by its allocated value."""
    if not allocated:
        return tree
    if isinstance(tree, Ref):
        return allocated[tree.name] + tree.plus
    if isinstance(tree, dict):
        return {k: v if v.__class__ in _NO_REF else resolve(v, allocated) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [resolve(v, allocated) for v in tree]
    return tree


def stale(doc: Mapping[str, object], expect: Mapping[str, object]) -> bool:
    """Returns whether any field of `doc` differs from its value in `expect`."""
    return any(doc.get(name) != value for name, value in expect.items())


class InsertListeners:
    """Callbacks by collection. They are called in the event loop of the commit, after the commit."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callable[[], None]]] = {}

    def add(self, collection: Collection, callback: Callable[[], None]) -> None:
        """Registers a callback for inserts into the collection."""
        self._callbacks.setdefault(collection.name, []).append(callback)

    def notify(self, changes: Sequence[Change]) -> None:
        """Calls each callback whose collection has an insert among the changes."""
        if not self._callbacks:
            return
        inserted = {change.collection.name for change in changes if isinstance(change, Insert)}
        for name in inserted & self._callbacks.keys():
            for callback in self._callbacks[name]:
                callback()


# --- Space for deletions ----------------------------------------------------------------------------------------------


def fewer_at_once(error: StorageFull, number: int) -> int:
    """Returns how many documents to delete in one commit after `error` at the deletion of `number`. Raises `error` if
    it was only one."""
    if number == 1:
        raise error
    return max(1, number // 4)


_USES_RESERVE: ContextVar[bool] = ContextVar("uses_reserve", default=False)


@contextmanager
def using_reserve(*, allowed: bool = True) -> Iterator[None]:
    """Lets commits inside the block use the space that an engine keeps back for deletions; `allowed=False` ends that.

    It is for what frees space, such as the erasure of a user, and for what must not wait, such as revoking a key.
    """
    token = _USES_RESERVE.set(allowed)
    try:
        yield
    finally:
        _USES_RESERVE.reset(token)


def may_use_reserve(changes: Sequence[Change] = ()) -> bool:
    """Returns whether a commit may use the space kept back: inside `using_reserve`, or if it only deletes."""
    return _USES_RESERVE.get() or (
        bool(changes) and all(isinstance(change, Delete | DeleteWhere) for change in changes)
    )
