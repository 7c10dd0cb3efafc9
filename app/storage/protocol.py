"""The storage protocol: what an engine can do. A contract suite holds every engine to it.

A request has a deadline for the time that it waits for a remote store or for a disk, over all its calls: with only a
limit on each call, a request of four calls could take four times as long. In background work each call has its own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from app.storage.change_log import ChangeLog
from app.storage.changes import Change, Committed, StoredTotals, UsageByTenant
from app.storage.schema import EVERYTHING, After, Collection, Doc, Eq, Filter, Not, R, both
from app.storage.scope import Partition
from app.storage.search import Columns, Ints, Memo, Overview, SearchQuery

T = TypeVar("T")

Tallied: TypeAlias = dict[tuple[Any, ...], int]
"""Numbers of documents by their values of some fields."""


class RequestWait:
    """A stopwatch of one request: the seconds during which at least one of its calls was in progress. The time inside a
    `with` block of it counts, and blocks may overlap."""

    def __init__(self) -> None:
        self._spent, self._since, self._calls = 0.0, 0.0, 0

    @property
    def spent(self) -> float:
        """Seconds waited so far, including the calls in progress."""
        return self._spent + (time.monotonic() - self._since if self._calls else 0.0)

    def __enter__(self) -> None:
        if not self._calls:
            self._since = time.monotonic()
        self._calls += 1

    def __exit__(self, *_: object) -> None:
        self._calls -= 1
        if not self._calls:
            self._spent += time.monotonic() - self._since


_WAIT: ContextVar[RequestWait | None] = ContextVar("wait", default=None)


def start_stopwatch() -> None:
    """Starts the stopwatch of this context and of the tasks that are started in it. How long a request may wait is the
    engine's: it asks `left(5.0)`."""
    _WAIT.set(RequestWait())


def waiting() -> AbstractContextManager[None]:
    """Counts the time inside the block as waiting, if a request is being answered."""
    return _WAIT.get() or nullcontext()


def left(seconds: float) -> float:
    """Returns the seconds that the request may still wait, out of `seconds`.

    At least 0.001, because a driver reads 0 as no limit. Outside a request, returns `seconds`.
    """
    wait = _WAIT.get()
    return seconds if wait is None else max(0.001, seconds - wait.spent)


MAX_NAMED = 5
"""Faults that a finding names."""
Order: TypeAlias = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Fetched(Generic[R]):
    """A document that a search or list has read. It is read-only, because the engine may return the same object again.

    `memo` keeps what readers compute from the document.
    """

    doc: R
    memo: Memo = field(default_factory=Memo, compare=False)


@dataclass(frozen=True, slots=True)
class DecayRule:
    """Sets `importance` to its decayed value at `now` (RFC 3339), from `base_importance` and `anchored_at`.

    The formula is that of `retrieval/decay.py`; the contract suite checks every engine against it. Pinned documents do
    not change, nor do those whose importance would move by less than `least`.
    """

    now: str
    factor: float
    grace_days: float
    floor: float
    least: float = 0.0


def unpinned(where: Filter) -> Filter:
    """Returns the filter of what matches and may decay."""
    return both(where, Not(Eq("pinned", True)))


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `Store.check`."""

    name: str
    ok: bool
    detail: str

    @classmethod
    def of(cls, name: str, faults: Sequence[str]) -> "Finding":
        """Returns the result of a check that has found these faults."""
        shown = "; ".join(faults[:MAX_NAMED])
        return cls(name, not faults, f"{len(faults)} faults: {shown}" if faults else "ok")


Told: TypeAlias = Callable[[str, int, int | None], None]
"""Called now and then by a check that reads much: its name, how many records (or pages) it has read, and how many there
are, None if that is not known: `told("facts: documents", 2000, 10000)`."""
TOLD_EVERY = 1_000


def untold(name: str, done: int, total: int | None) -> None:
    """Tells nobody."""


def telling(told: Told, name: str, total: int, read: Iterable[T]) -> Iterator[T]:
    """Yields what is read, and tells how far it is."""
    for done, one in enumerate(read):
        if not done % TOLD_EVERY:
            told(name, done, total)
        yield one


PartitionSelector: TypeAlias = Literal["every", "unlike", "other"]
"""Selects partitions that have documents. `every`: all; `unlike`: those not known to have only vectors of the given
model; `other`: those known to have only vectors of another model."""


@dataclass(frozen=True, slots=True)
class MissingVector:
    """A document without a vector of the requested model, or with one only as its alternate vector.

    `row` is the position after which the next page starts.
    """

    row: int
    doc: Doc


@dataclass(frozen=True, slots=True)
class VectorCounts:
    """Counts of a collection: `records` = `of_model` + `without` any vector + `others`.

    `alternates` counts alternate vectors, which come in addition.
    """

    records: int
    of_model: int
    without: int
    others: int
    alternates: int

    @classmethod
    def of(cls, records: int, vectors: int, of_model: int, alternates: int) -> "VectorCounts":
        """Returns the counts, of `vectors` that are of any model."""
        return cls(records, of_model, records - vectors, vectors - of_model, alternates)


class Reembedding(Protocol):
    """Operations for moving all tenants to another embedding model. A model is named by its code (`model_id`).

    Each partition has a number and records whether all of its vectors are of one model. A write with another model
    clears that mark.
    """

    async def partitions(
        self, collection: Collection, model: int, after: int, limit: int, which: PartitionSelector
    ) -> list[int]:
        """Returns the numbers of up to `limit` partitions after the number `after`, ascending."""

    async def missing_vectors(
        self, collection: Collection, partitions: Sequence[int], model: int, after: int, limit: int
    ) -> list[MissingVector]:
        """Returns up to `limit` documents of the partitions, by row, which follow the row `after`."""

    async def mark_migrated(self, collection: Collection, partitions: Sequence[int], model: int) -> None:
        """Marks those of the partitions in which every document has a vector of `model`."""

    async def counts(self, collection: Collection, model: int, dim: int) -> VectorCounts:
        """Counts vectors by model. Reads every row."""

    async def drop_previous_vectors(self, collection: Collection) -> int:
        """Deletes the vectors that `Update.keep` kept. Returns how many."""


class Accounting(Protocol):
    """Reads and repairs the usage of tenants. Collections count if they are declared `counted`."""

    async def stored(self) -> UsageByTenant:
        """Returns the usage of every tenant, as kept up by the commits."""

    async def totals(self) -> StoredTotals:
        """Returns the sums over all tenants, added up by the engine. Raises StoreUnavailable."""

    async def recount(self) -> list[str]:
        """Counts every record and corrects the stored usage. Returns a sentence for each tenant that was wrong."""


class Store(Protocol):
    """A storage engine. Every method raises StoreUnavailable when the store cannot be read or written."""

    name: str

    @property
    def reembedding(self) -> Reembedding:
        """The operations for moving to another embedding model."""

    @property
    def accounting(self) -> Accounting:
        """The records and bytes of tenants."""

    @property
    def change_log(self) -> ChangeLog:
        """The log of what was committed."""

    async def get(self, collection: Collection[R], tenant: str, doc_id: str) -> R | None:
        """Returns a document by its id, or None."""

    async def find(
        self,
        collection: Collection[R],
        tenant: str | None,
        where: Filter = EVERYTHING,
        *,
        order: Order = "desc",
        after: After | None = None,
        limit: int = 100,
    ) -> list[R]:
        """Returns documents sorted by `collection.order`, then id, starting after `after` (keyset paging).

        With `tenant` None it searches all tenants, for jobs.
        """

    async def find_fetched(
        self,
        collection: Collection[R],
        tenant: str,
        where: Filter = EVERYTHING,
        *,
        order: Order = "desc",
        after: After | None = None,
        limit: int = 100,
    ) -> list[Fetched[R]]:
        """As `find`, for who only shows the documents: an engine may return what it has parsed before."""

    async def count(self, collection: Collection, tenant: str | None, where: Filter = EVERYTHING) -> int:
        """Counts the documents that match, of one tenant or, with None, of all."""

    async def values(
        self, collection: Collection, tenant: str, field: str, where: Filter, *, order: Order, limit: int
    ) -> list[str]:
        """Returns the first distinct values of a text field among the documents that match, sorted by code points.

        Absent values are left out. It is fast for fields that an index begins with.
        """

    async def tally(
        self,
        collection: Collection,
        tenant: str,
        fields: Sequence[str],
        where: Filter = EVERYTHING,
        *,
        first: int | None = None,
    ) -> Tallied:
        """Counts the documents that match by their values of the fields: `{("fact", "active"): 7, (None, "active"): 1}`
        of `("memory_type", "status")`. None is a value that is absent.

        `first`: of the last field, a time, by that many first characters, such as 10 for days. It reads all that match,
        or an index that covers the fields.
        """

    async def overview(self, collection: Collection, tenant: str, partitions: Sequence[Partition]) -> Overview:
        """Returns the number of documents, the speakers and the agents of the partitions."""

    async def search(self, collection: Collection, query: SearchQuery) -> Columns:
        """Returns columns of the query's partitions, for ranking. Sees every commit acknowledged before the call, or
        before `query.overview` was read."""

    async def fetch(self, collection: Collection[R], tenant: str, rows: Ints) -> list[Fetched[R] | None]:
        """Returns documents for the handles in `Columns.rows`, in the same order; None for one deleted since, or that
        cannot be read."""

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """Makes all changes durably, or none. Raises CommitConflict, or QuotaExceeded for a `WithinQuota`."""

    async def apply(
        self, collection: Collection, tenant: str | None, rule: DecayRule, where: Filter = EVERYTHING
    ) -> int:
        """Applies a rule to the documents that match, in steps between which others can write. Returns how many
        changed.

        Internal change: does not bump the versions of documents or of partitions. With `tenant` None it applies to all
        tenants.
        """

    async def would_change(
        self, collection: Collection, tenant: str | None, rule: DecayRule, where: Filter = EVERYTHING
    ) -> bool:
        """Returns whether `apply` would change anything now. Writes nothing."""

    async def undecayable(
        self, collection: Collection, tenant: str | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> list[str]:
        """Returns the ids of documents that match and that no rule can be applied to, because an importance is no
        number or `anchored_at` no time. `apply` leaves them as they are."""

    def on_insert(self, collection: Collection, callback: Callable[[], None]) -> None:
        """Calls `callback` in the event loop after each commit of this process that inserts into the collection.

        Inserts of other processes are not reported: poll for them.
        """

    async def purge(self, tenant: str, user: str, counters: Sequence[str]) -> None:
        """Deletes the engine's own records of a user without documents: partitions, tombstones, cached copies, these
        counters, and the entries of the change log that name the user."""

    async def scrub(self) -> None:
        """Removes all bytes of deleted records from the engine's own files. Raises StoreUnavailable if it cannot."""

    async def check(self, *, deep: bool = False, told: Told = untold) -> list[Finding]:
        """Checks that the store can be reached; with `deep`, also the integrity of everything stored. `told` may be
        called in another thread."""

    async def close(self) -> None:
        """Closes the store. It cannot be used afterwards."""
