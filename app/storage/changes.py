"""Writes are data: a service computes a list of changes, and `Store.commit` makes all of them or none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from app.errors import Conflict
from app.storage.filters import Filter
from app.storage.schema import Collection, Doc
from app.storage.search import Floats
from app.storage.text import IndexedText


@dataclass(frozen=True, slots=True)
class IndexEntry:
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
    entry: IndexEntry | None = None
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
    entry: IndexEntry | None = None
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
    """Documents that the `Delete` and `DeleteWhere` changes of the list deleted."""


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
