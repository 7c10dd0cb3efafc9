"""Moving to another embedding model, in SQLite. See `Reembedding`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import apsw
import orjson

from app.storage.alternate_vectors import code, model_at
from app.storage.protocol import MissingVector, PartitionSelector, VectorCounts
from app.storage.schema import Collection
from app.storage.sqlite import sql
from app.storage.sqlite.writer import WriterTask

T = TypeVar("T")

DROPPED_AT_ONCE = 5_000
_WHICH: dict[PartitionSelector, str] = {"every": "?1 = ?1", "unlike": "model <> ?1", "other": "model NOT IN (0, ?1)"}


class RunApart(Protocol):
    """Runs a long read in a thread, on that thread's connection."""

    def __call__(self, work: Callable[[apsw.Connection], T], /) -> Awaitable[T]: ...


class EmbeddedReembedding:
    """Implements `Reembedding`."""

    def __init__(self, apart: RunApart, submit: Callable[[WriterTask[None]], Awaitable[None]]) -> None:
        self._apart, self._submit = apart, submit

    async def pairs(
        self, collection: Collection, model: int, after: int, limit: int, which: PartitionSelector
    ) -> list[int]:
        statement = (
            f"SELECT pair FROM pairs WHERE +collection = ?2 AND count > 0 AND pair > ?3 AND {_WHICH[which]} "
            "ORDER BY pair LIMIT ?4"
        )
        bound = (model, collection.name, after, limit)
        return await self._apart(lambda connection: [int(pair) for (pair,) in connection.execute(statement, bound)])

    async def missing_vectors(
        self, collection: Collection, pairs: Sequence[int], model: int, after: int, limit: int
    ) -> list[MissingVector]:
        statement = (
            f"SELECT row, doc FROM {sql.quoted(collection.name)} WHERE row IN ("
            f"SELECT s.row FROM {sql.search_table(collection)} s WHERE s.pair IN ({_marks(pairs)}) AND s.row > ? "
            f"AND {_lacks(collection)} ORDER BY s.row LIMIT ?) ORDER BY row"
        )
        bound = (*pairs, after, code(model), limit)

        def read(connection: apsw.Connection) -> list[MissingVector]:
            found: Any = connection.execute(statement, bound)
            return [MissingVector(row, orjson.loads(doc)) for row, doc in found]

        return await self._apart(read)

    async def mark_migrated(self, collection: Collection, pairs: Sequence[int], model: int) -> None:
        statement = (
            f"UPDATE pairs SET model = ? WHERE pair IN ({_marks(pairs)}) AND NOT EXISTS ("
            f"SELECT 1 FROM {sql.search_table(collection)} s WHERE s.pair = pairs.pair AND {_lacks(collection)})"
        )

        def write(connection: apsw.Connection) -> None:
            connection.execute(statement, (model, *pairs, code(model)))

        await self._submit(write)

    async def counts(self, collection: Collection, model: int, dim: int) -> VectorCounts:
        of = f"substr(head, {model_at(collection.spec) + 1}, 4)"
        statement = (
            f"SELECT (SELECT count(*) FROM {sql.quoted(collection.name)}), count(vector), "
            f"ifnull(sum({of} = ?1 AND (length(vector) = ?2 OR (length(vector) - 1) % ?2 = 0)), 0), "
            "(SELECT count(*) FROM kept_vectors k JOIN pairs p ON p.pair = k.pair WHERE p.collection = ?3) "
            f"FROM {sql.search_table(collection)} WHERE head IS NOT NULL"
        )

        def read(connection: apsw.Connection) -> VectorCounts:
            found: Any = connection.execute(statement, (code(model), dim, collection.name)).fetchone()
            records, vectors, of_model, kept = map(int, found)
            return VectorCounts(records, of_model, records - vectors, vectors - of_model, kept)

        return await self._apart(read)

    async def drop_previous_vectors(self, collection: Collection) -> int:
        step = _Dropping(collection)
        while not step.done:
            await self._submit(step.run)
        return step.dropped


class _Dropping:
    """Drops the alternate vectors of some partitions at a time, so that others can write in between."""

    def __init__(self, collection: Collection) -> None:
        self._collection, self._after = collection, 0
        self.dropped, self.done = 0, False

    def run(self, connection: apsw.Connection) -> None:
        statement = (
            "SELECT k.pair FROM kept_vectors k JOIN pairs p ON p.pair = k.pair "
            "WHERE k.pair > ? AND p.collection = ? ORDER BY k.pair LIMIT ?"
        )
        found: Any = connection.execute(statement, (self._after, self._collection.name, DROPPED_AT_ONCE)).fetchall()
        for (pair,) in dict.fromkeys(found):
            connection.execute("DELETE FROM kept_vectors WHERE pair = ?", (pair,))
            self.dropped += connection.changes()
            self._after = pair
        self.done = len(found) < DROPPED_AT_ONCE


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))


def _lacks(collection: Collection) -> str:
    """Returns the condition that the search row `s` lacks a vector of a model. Its parameter is the model's code."""
    of = f"substr(s.head, {model_at(collection.spec) + 1}, 4)"
    return f"s.head IS NOT NULL AND ({of} <> ? OR s.vector IS NULL)"
