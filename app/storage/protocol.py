"""The storage protocol: what an engine can do. A contract suite holds every engine to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from app.storage.changes import Change, Committed
from app.storage.filters import EVERYTHING, Filter
from app.storage.memo import Memo
from app.storage.schema import After, Collection, Doc
from app.storage.scope import Partition
from app.storage.search import Columns, Ints, ScopeFacts, SearchQuery

Order: TypeAlias = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document that a search found. The engine may hand out the same one again: it is never written into."""

    doc: Doc
    derived: Memo = field(default_factory=Memo, compare=False)


@dataclass(frozen=True, slots=True)
class DecayRule:
    """Writes down what `importance` has become at `now` (RFC 3339), from `base_importance` and `anchored_at`.

    The formula is that of `memories/strength.py`; the contract suite holds every engine to it. Pinned ones stay, and so
    does what would move by less than `least`.
    """

    now: str
    factor: float
    grace_days: float
    floor: float
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of `Store.check`."""

    name: str
    ok: bool
    detail: str


PartitionSelector: TypeAlias = Literal["every", "unlike", "other"]
"""Pairs with documents: all; those not known to be of a model throughout; those known to be of another one."""


@dataclass(frozen=True, slots=True)
class MissingVector:
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

    async def pairs(
        self, collection: Collection, model: int, after: int, limit: int, which: PartitionSelector
    ) -> list[int]:
        """In the order of their numbers."""
        ...

    async def missing_vectors(
        self, collection: Collection, pairs: Sequence[int], model: int, after: int, limit: int
    ) -> list[MissingVector]: ...

    async def mark_migrated(self, collection: Collection, pairs: Sequence[int], model: int) -> None:
        """Notes which of the pairs have vectors of the model throughout."""
        ...

    async def counts(self, collection: Collection, model: int, dim: int) -> VectorCounts:
        """By looking at every row."""
        ...

    async def drop_previous_vectors(self, collection: Collection) -> int:
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

    async def scope_facts(self, collection: Collection, tenant: str, pairs: Sequence[Partition]) -> ScopeFacts: ...

    async def search(self, collection: Collection, query: SearchQuery) -> Columns:
        """Sees every commit that was acknowledged before the call."""
        ...

    async def fetch(self, collection: Collection, tenant: str, rows: Ints) -> list[Fetched | None]:
        """Documents by the handles of `Columns.rows`, in that order; None for one that went meanwhile."""
        ...

    async def commit(self, changes: Sequence[Change]) -> Committed:
        """All changes, durably, or none. Raises CommitConflict."""
        ...

    async def apply(
        self, collection: Collection, tenant: str | None, rule: DecayRule, where: Filter = EVERYTHING
    ) -> int:
        """Applies a rule to what matches, in steps that let others write between them; how many were changed.

        Nothing that a caller asked for: versions stay, and so do the pairs'. Tenant None is every tenant.
        """
        ...

    async def would_change(
        self, collection: Collection, tenant: str | None, rule: DecayRule, where: Filter = EVERYTHING
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
