"""The embedded engine: one SQLite database in a directory, through apsw. Any number of processes may open it.

Small reads run inline in the event loop, because a hop to a thread costs more than they do. Long reads, and those of
jobs and checks, run in a reader thread on its own connection. Writes go to the one writer of the process.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import orjson

from app.core.caches import kept
from app.core.work import json_work, off_loop
from app.storage import protocol
from app.storage.changes import Change, Committed, InsertListeners
from app.storage.index.record_codec import code, model_at, model_id
from app.storage.index.segment import PartitionState, Segment, SegmentCache, VersionedSegment, overview_of
from app.storage.records import Read, damage, first_whole, is_of, left_out, parsed, parsed_one, unreadable, whole
from app.storage.schema import EVERYTHING, After, Collection, Filter, R
from app.storage.scope import Partition
from app.storage.search import Columns, Ints, Overview, SearchQuery, concatenate
from app.storage.sqlite import files, search_rows, sql
from app.storage.sqlite.connections import FILE_NAME as FILE_NAME
from app.storage.sqlite.connections import (
    LISTS,
    PARTITIONS,
    SUMMED_BYTES,
    Faults,
    LogTruncation,
    ReadCache,
    ReadPool,
    connect,
    damaged,
    log_of,
    refuse_moved,
    translate_errors,
)
from app.storage.sqlite.connections import EmbeddedOptions as EmbeddedOptions
from app.storage.sqlite.writer import (
    DiskSpace,
    EmbeddedAccounting,
    EmbeddedChangeLog,
    WriterThread,
    execute,
    insert_document,
)
from app.storage.transfer import Counter, Record

# --- Decay ------------------------------------------------------------------------------------------------------------

LOOKED_AT = 50_000
"""Rows read by one `look`. While it runs, the WAL cannot be truncated."""
ROWS = 5_000
DAY_SECONDS = 86_400.0

_IDLE_DAYS = f"(unixepoch(?, 'subsec') - unixepoch(anchored_at, 'subsec')) / {DAY_SECONDS}"
_VALUE = f"max(min(base_importance, ?), base_importance * pow(?, max(0.0, {_IDLE_DAYS} - ?) / 30.0))"
_DECAYS = (
    "typeof(importance) IN ('integer', 'real') AND typeof(base_importance) IN ('integer', 'real') "
    "AND typeof(anchored_at) = 'text' AND unixepoch(anchored_at, 'subsec') IS NOT NULL"
)
"""Whether a rule can be applied to a document."""
_MOVED = "importance IS NOT faded AND ifnull(abs(importance - faded) >= ?, 1)"


@dataclass(slots=True)
class DecaySteps:
    """Applies a decay rule in row order, alternating `look` and `write`."""

    collection: Collection
    tenant: str | None
    rule: protocol.DecayRule
    where: Filter
    last: int = 0

    def look(self, connection: apsw.Connection) -> list[int] | None:
        """Returns the next rows to write; an empty list if none of the rows read has moved, None at the end."""
        table = sql.quoted(self.collection.name)
        if self.last >= (connection.execute(f"SELECT max(row) FROM {table}").get or 0):
            return None
        upto = self.last + LOOKED_AT
        faded, values = self._faded("row > ? AND row <= ?", [self.last, upto])
        statement = f"SELECT which FROM ({faded}) WHERE {_MOVED} ORDER BY which LIMIT {ROWS}"
        rows = [int(row) for (row,) in connection.execute(statement, (*values, self.rule.least))]
        self.last = rows[-1] if len(rows) == ROWS else upto
        return rows

    def write(self, rows: Sequence[int], connection: apsw.Connection) -> int:
        """Recomputes and writes the rows. A row that changed since `look` keeps the newer values. Returns how many
        changed."""
        table = sql.quoted(self.collection.name)
        faded, values = self._faded("row IN (SELECT value FROM json_each(?))", [orjson.dumps(rows).decode()])
        statement = (
            f"UPDATE {table} SET importance = faded, doc = json_set(doc, '$.importance', faded) FROM "
            f"({faded}) WHERE row = which AND {_MOVED.replace('importance', f'{table}.importance')}"
        )
        connection.execute(statement, (*values, self.rule.least)).fetchall()
        changed = connection.changes()
        connection.execute(
            f"UPDATE {table} SET doc_sum = sum_of(CAST(doc AS BLOB)) "
            f"WHERE row IN (SELECT value FROM json_each(?)) AND octet_length(doc) >= {SUMMED_BYTES}",
            (orjson.dumps(rows).decode(),),
        )
        return changed

    def _faded(self, rows: str, which: list[sql.Value]) -> sql.SqlFilter:
        """Returns a query for (which, importance, faded) of those of `rows` to which the rule applies."""
        condition, values = sql.selection(self.collection, self.tenant, protocol.unpinned(self.where))
        rule = self.rule
        formula: list[sql.Value] = [rule.floor, rule.factor, rule.now, rule.grace_days]
        statement = (
            f"SELECT row AS which, importance, {_VALUE} AS faded FROM {sql.quoted(self.collection.name)} "
            f"WHERE {rows} AND {condition} AND {_DECAYS}"
        )
        return statement, [*formula, *which, *values]


# --- Re-embedding -----------------------------------------------------------------------------------------------------

DROPPED_AT_ONCE = 5_000
_WHICH: dict[protocol.PartitionSelector, str] = {
    "every": "?1 = ?1",
    "unlike": "model <> ?1",
    "other": "model NOT IN (0, ?1)",
}


class EmbeddedReembedding:
    """Implements `Reembedding`."""

    def __init__(self, readers: ReadPool, writer: WriterThread) -> None:
        self._readers, self._writer = readers, writer

    async def partitions(
        self, collection: Collection, model: int, after: int, limit: int, which: protocol.PartitionSelector
    ) -> list[int]:
        statement = (
            f"SELECT partition FROM partitions WHERE +collection = ?2 AND count > 0 AND partition > ?3 "
            f"AND {_WHICH[which]} ORDER BY partition LIMIT ?4"
        )
        bound = (model, collection.name, after, limit)
        return await self._readers.apart(
            lambda connection: [int(partition) for (partition,) in connection.execute(statement, bound)]
        )

    async def missing_vectors(
        self, collection: Collection, partitions: Sequence[int], model: int, after: int, limit: int
    ) -> list[protocol.MissingVector]:
        statement = (
            f"SELECT row, {sql.WHOLE_DOC} FROM {sql.quoted(collection.name)} WHERE row IN ("
            f"SELECT s.row FROM {sql.search_table(collection)} s WHERE s.partition IN ({_marks(partitions)}) "
            f"AND s.row > ? AND {_lacks(collection)} ORDER BY s.row LIMIT ?) ORDER BY row"
        )
        bound = (*partitions, after, code(model), limit)

        def read(connection: apsw.Connection) -> list[protocol.MissingVector]:
            rows: Any = connection.execute(statement, bound)
            return [protocol.MissingVector(row, orjson.loads(doc)) for row, doc in rows]

        return await self._readers.apart(read)

    async def mark_migrated(self, collection: Collection, partitions: Sequence[int], model: int) -> None:
        statement = (
            f"UPDATE partitions SET model = ? WHERE partition IN ({_marks(partitions)}) AND NOT EXISTS ("
            f"SELECT 1 FROM {sql.search_table(collection)} s WHERE s.partition = partitions.partition "
            f"AND {_lacks(collection)})"
        )

        def write(connection: apsw.Connection) -> None:
            connection.execute(statement, (model, *partitions, code(model)))

        await self._writer.submit(write)

    async def counts(self, collection: Collection, model: int, dim: int) -> protocol.VectorCounts:
        of = f"substr(head, {model_at(collection.spec) + 1}, 4)"
        statement = (
            f"SELECT (SELECT count(*) FROM {sql.quoted(collection.name)}), count(vector), "
            f"ifnull(sum({of} = ?1 AND (length(vector) = ?2 OR (length(vector) - 1) % ?2 = 0)), 0), "
            "(SELECT count(*) FROM kept_vectors k JOIN partitions p ON p.partition = k.partition "
            f"WHERE p.collection = ?3) FROM {sql.search_table(collection)} WHERE head IS NOT NULL"
        )

        def read(connection: apsw.Connection) -> protocol.VectorCounts:
            return protocol.VectorCounts.of(*connection.execute(statement, (code(model), dim, collection.name)).get)

        return await self._readers.apart(read)

    async def drop_previous_vectors(self, collection: Collection) -> int:
        statement = (
            "SELECT k.partition FROM kept_vectors k JOIN partitions p ON p.partition = k.partition "
            "WHERE k.partition > ? AND p.collection = ? ORDER BY k.partition LIMIT ?"
        )
        after, dropped, found = 0, 0, DROPPED_AT_ONCE

        def drop_some(connection: apsw.Connection, after: int, dropped: int) -> tuple[int, int, int]:
            rows: Any = connection.execute(statement, (after, collection.name, DROPPED_AT_ONCE)).fetchall()
            for (partition,) in dict.fromkeys(rows):
                connection.execute("DELETE FROM kept_vectors WHERE partition = ?", (partition,))
                dropped += connection.changes()
                after = partition
            return after, dropped, len(rows)

        while found == DROPPED_AT_ONCE:  # others can write in between
            after, dropped, found = await self._writer.submit(partial(drop_some, after=after, dropped=dropped))
        return dropped


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))


def _lacks(collection: Collection) -> str:
    """Returns the condition that the search row `s` lacks a vector of a model. Its parameter is the model's code."""
    of = f"substr(s.head, {model_at(collection.spec) + 1}, 4)"
    return f"s.head IS NOT NULL AND ({of} <> ? OR s.vector IS NULL)"


# --- The store --------------------------------------------------------------------------------------------------------

T = TypeVar("T")

INLINE_ROWS = 2_000
OPENING_BYTES = 256 << 10
"""Room that SQLite needs to open a store: for its index of the log, for an empty database, and for a migration."""
KEPT_BYTES = 32 << 20
"""Of parsed documents that are cached for searches: a thousand. Most take some 8 kB, ten times their text."""
MAX_KEPT_CHARS = 4_000


def _fetched(text: str) -> protocol.Fetched | None:
    """Returns a document that was selected as JSON text, for a search, or None if it cannot be read."""
    try:
        return protocol.Fetched(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


class EmbeddedStore:
    """Implements `Store`. Open with `EmbeddedStore.open`, from within the event loop that will use it."""

    name = "embedded"

    def __init__(self, path: Path, collections: Sequence[Collection], options: EmbeddedOptions, *, dim: int) -> None:
        self._path, self._dim, self._busy_timeout_ms, self._key = path, dim, options.busy_timeout_ms, options.key
        self._collections = tuple(collections)
        self._cache, self._large = SegmentCache(options.cache_bytes), options.large
        self._faults = Faults()
        self._folder: int | None = None
        """The open folder, which keeps a backup from being restored into it."""
        self._readers = ReadPool(path, options.busy_timeout_ms, self._faults, options.key)
        self._reader = self._readers.inline
        self._loads: dict[tuple[int, int], asyncio.Task[VersionedSegment]] = {}
        # by partition and model. None is removed, since another search may wait for it: there is one for each large one
        self._in_threads: dict[tuple[int, int], asyncio.Lock] = {}
        # by the text that was just read, so that a document in the cache is always what is stored
        self._parse = kept(KEPT_BYTES, longest=MAX_KEPT_CHARS)(_fetched)
        self._listeners = InsertListeners()
        self._wal = LogTruncation(self._readers.apart, options.idle_seconds)
        writing = connect(path, options.busy_timeout_ms, options.key)
        self._space = DiskSpace(path, options.reserve_bytes)
        self.writer = WriterThread(
            writing, execute, options.observe_commit, self._wal.written, self._faults, self._space
        )
        self._reads = ReadCache(self._reader, self._faults, self.writer.own_commits)
        self.accounting = EmbeddedAccounting(self._collections, self._readers, self.writer)
        self.change_log = EmbeddedChangeLog(self._readers, self.writer, options.log)
        self._verifying = asyncio.create_task(files.verify_rest(path, self._faults, key=options.key))

    @classmethod
    async def open(
        cls, directory: Path, collections: Sequence[Collection], options: EmbeddedOptions | None = None, *, dim: int
    ) -> "EmbeddedStore":
        """Opens the store, creating it if needed. Raises StoreUnavailable if directory or database cannot be used."""
        path, options = directory / FILE_NAME, options or EmbeddedOptions()
        with translate_errors():
            held = files.make_folder(path)

        def make_ready() -> None:
            with DiskSpace(path, options.reserve_bytes).room_for(OPENING_BYTES, "open the store"):
                files.prepare(path, collections, options.busy_timeout_ms, options.key, logs=options.log.enabled)

        try:
            await asyncio.to_thread(make_ready)
            store = cls(path, collections, options, dim=dim)
        except BaseException:
            os.close(held)
            raise
        store._folder = held
        return store

    async def close(self) -> None:
        self._verifying.cancel()
        await self.change_log.watch.close()
        await self.writer.close()
        await self._wal.close()
        for load in self._loads.values():
            load.cancel()
        self._readers.close()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    # --- Documents ----------------------------------------------------------------------------------------------------

    async def get(self, collection: Collection[R], tenant: str, doc_id: str) -> R | None:
        if collection.cached:

            def read() -> tuple[Any, int]:
                text = self._select(collection, tenant, doc_id)
                return text, len(text or "")

            text = self._reads.get((collection.name, tenant, doc_id), read)
        else:
            text = self._select(collection, tenant, doc_id)
        if text is None:
            return None
        doc = await off_loop(json_work(len(text)), parsed_one, collection, doc_id, text)
        if doc is None:
            with self._faults.translated():
                raise unreadable(collection, doc_id, sql.known_by_columns(self._reader, collection, tenant, doc_id))
        return doc

    def _select(self, collection: Collection, tenant: str, doc_id: str) -> Any:
        """Returns the JSON text of a document, or None."""
        statement = f"SELECT {sql.WHOLE_DOC} FROM {sql.quoted(collection.name)} WHERE tenant = ? AND id = ?"
        with self._faults.translated():
            return self._reader.execute(statement, (tenant, doc_id)).get

    async def find(
        self,
        collection: Collection[R],
        tenant: str | None,
        where: Filter = EVERYTHING,
        *,
        order: protocol.Order = "desc",
        after: After | None = None,
        limit: int = 100,
    ) -> list[R]:
        return await first_whole(limit, partial(self._first, collection, tenant, where, order, after))

    async def _first(
        self,
        collection: Collection[R],
        tenant: str | None,
        where: Filter,
        order: protocol.Order,
        after: After | None,
        most: int,
    ) -> Read[R]:
        def read(connection: apsw.Connection) -> list[tuple[str, str]]:
            return sql.select_documents(connection, collection, tenant, where, order, after, most)

        if tenant is None:
            return await self._readers.apart(lambda connection: parsed(collection, read(connection)))
        if collection.cached and after is None:

            def load() -> Any:
                texts = read(self._reader)
                return parsed(collection, texts), sum(len(text) for _, text in texts)

            held: Read[R] = self._reads.get_part((collection.name, tenant, LISTS), (where, order, most), load)
            return [*held]
        rows = await self._readers.bounded(read)
        return await off_loop(json_work(sum(len(text) for _, text in rows)), parsed, collection, rows)

    async def find_fetched(
        self,
        collection: Collection[R],
        tenant: str,
        where: Filter = EVERYTHING,
        *,
        order: protocol.Order = "desc",
        after: After | None = None,
        limit: int = 100,
    ) -> list[protocol.Fetched[R]]:
        async def first(most: int) -> list[protocol.Fetched[R] | None]:
            rows = await self._readers.bounded(
                lambda connection: sql.select_documents(connection, collection, tenant, where, order, after, most)
            )
            length = sum(len(text) for _, text in rows if len(text) > MAX_KEPT_CHARS)  # others may be parsed already
            return await off_loop(json_work(length), lambda: [self._listed(collection, *row) for row in rows])

        return await first_whole(limit, first)

    def _listed(self, collection: Collection[R], doc_id: str, text: str) -> protocol.Fetched[R] | None:
        """Returns a document that was selected by its id, or None if it cannot be read."""
        document: protocol.Fetched[R] | None = self._parse(text)
        if document is not None and is_of(collection, doc_id, document.doc):
            return document if whole(collection, doc_id, document.doc) is not None else None
        left_out(collection, doc_id, orjson.JSONDecodeError.__name__)
        return None

    async def count(self, collection: Collection, tenant: str | None, where: Filter = EVERYTHING) -> int:
        condition, bound = sql.selection(collection, tenant, where)
        statement = f"SELECT count(*) FROM {sql.quoted(collection.name)} WHERE {condition}"

        def count(connection: apsw.Connection) -> int:
            return int(connection.execute(statement, bound).get)

        return await (self._readers.apart(count) if tenant is None else self._readers.bounded(count))

    async def tally(
        self,
        collection: Collection,
        tenant: str,
        fields: Sequence[str],
        where: Filter = EVERYTHING,
        *,
        first: int | None = None,
    ) -> protocol.Tallied:
        columns = [sql.column_of(collection, field) for field in fields]
        condition, bound = sql.selection(collection, tenant, where)
        if first is not None:
            columns[-1] = f"substr({columns[-1]}, 1, {int(first)})"
        groups = ", ".join(str(place) for place in range(1, len(columns) + 1))
        statement = (
            f"SELECT {', '.join(columns)}, count(*) FROM {sql.quoted(collection.name)} WHERE {condition} "
            f"GROUP BY {groups} ORDER BY {groups}"
        )
        return await self._readers.apart(
            lambda connection: {tuple(group): count for *group, count in connection.execute(statement, bound)}
        )

    async def values(
        self, collection: Collection, tenant: str, field: str, where: Filter, *, order: protocol.Order, limit: int
    ) -> list[str]:
        # each value is found from the one before by one look into an index, however many documents have it
        name, column = sql.quoted(collection.name), sql.column_of(collection, field)
        condition, bound = sql.selection(collection, tenant, where)
        first = f"SELECT {column} FROM {name} WHERE {column} IS NOT NULL AND {condition}"
        further = f"{first} AND {column} {'<' if order == 'desc' else '>'} found.value"
        nearest = f"ORDER BY {column} {order} LIMIT 1"
        statement = (
            f"WITH RECURSIVE found(value) AS (SELECT * FROM ({first} {nearest}) UNION ALL "
            f"SELECT ({further} {nearest}) FROM found WHERE found.value IS NOT NULL LIMIT {int(limit)}) "
            "SELECT value FROM found WHERE value IS NOT NULL"
        )
        return await self._readers.bounded(
            lambda connection: [value for (value,) in connection.execute(statement, [*bound, *bound])]
        )

    async def commit(self, changes: Sequence[Change]) -> Committed:
        committed = await self.writer.commit(changes, self.change_log.options.stamp(changes))
        self._listeners.notify(changes)
        self.change_log.watch.committed(changes)
        return committed

    def on_insert(self, collection: Collection, callback: Callable[[], None]) -> None:
        self._listeners.add(collection, callback)

    async def apply(
        self, collection: Collection, tenant: str | None, rule: protocol.DecayRule, where: Filter = EVERYTHING
    ) -> int:
        steps, changed = DecaySteps(collection, tenant, rule, where), 0
        while (rows := await self._readers.apart(steps.look)) is not None:
            if rows:
                changed += await self.writer.submit(partial(steps.write, rows))
        return changed

    async def would_change(
        self, collection: Collection, tenant: str | None, rule: protocol.DecayRule, where: Filter = EVERYTHING
    ) -> bool:
        steps = DecaySteps(collection, tenant, rule, where)
        while (rows := await self._readers.apart(steps.look)) is not None:
            if rows:
                return True
        return False

    async def undecayable(
        self, collection: Collection, tenant: str | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> list[str]:
        condition, values = sql.selection(collection, tenant, protocol.unpinned(where))
        table = sql.quoted(collection.name)
        statement = f"SELECT id FROM {table} WHERE {condition} AND NOT ({_DECAYS}) ORDER BY row LIMIT {int(limit)}"
        return await self._readers.apart(lambda c: [doc_id for (doc_id,) in c.execute(statement, values)])

    # --- Search -------------------------------------------------------------------------------------------------------

    async def overview(self, collection: Collection, tenant: str, wanted: Sequence[Partition]) -> Overview:
        states = self._states(collection, tenant, wanted)
        for state in states:
            # a search follows: large partitions are loaded while its query is embedded
            loads_slowly = state.count > INLINE_ROWS and state.model
            if loads_slowly and self._cache.get((state.number, state.model), state.floor) is None:
                self._loading(collection, state, state.model)
        return overview_of(states)

    async def search(self, collection: Collection, query: SearchQuery) -> Columns:
        states = self._states(collection, query.tenant, query.partitions)
        model = model_id(query.model, self._dim)
        found = [await self._columns(collection, state, model, query) for state in states if state.count]
        return concatenate(found or [self._empty(collection).columns(query)])

    async def _columns(self, collection: Collection, state: PartitionState, model: int, query: SearchQuery) -> Columns:
        """Returns the columns of a partition. A large one is searched in a thread: what changes it waits meanwhile,
        also if the caller is gone."""
        key = (state.number, model)
        if state.count <= self._large and key not in self._in_threads:
            return (await self._segment(collection, state, model)).columns(query)
        lock = self._in_threads.setdefault(key, asyncio.Lock())

        async def search() -> Columns:
            async with lock:
                segment = await self._segment(collection, state, model)
                return await asyncio.to_thread(segment.columns, query)

        return await asyncio.shield(search())

    async def fetch(self, collection: Collection[R], tenant: str, rows: Ints) -> list[protocol.Fetched[R] | None]:
        cached, wanted = self._reads.cached(), rows.tolist()
        documents = {row: cached.get((collection.name, tenant, row)) for row in wanted}
        missing = [row for row, document in documents.items() if document is None]
        texts: list[Any] = []

        def read(connection: apsw.Connection, of_rows: Sequence[int], column: str) -> list[Any]:
            # "+" keeps SQLite from walking all of the tenant in one of its indexes
            table, marks = sql.quoted(collection.name), _marks(of_rows)
            statement = f"SELECT row, {column} FROM {table} WHERE row IN ({marks}) AND +tenant = ?"
            return connection.execute(statement, (*of_rows, tenant)).fetchall()

        if missing:
            short = f"CASE WHEN octet_length(doc) <= {4 * MAX_KEPT_CHARS} THEN {sql.WHOLE_DOC} END"
            with self._faults.translated():
                texts = read(self._reader, missing, short)
        long = [(row, text) for row, text in texts if text is not None and len(text) > MAX_KEPT_CHARS]
        for row, text in texts:
            if text is not None and len(text) <= MAX_KEPT_CHARS:  # before the first await, at which others may write
                documents[row] = self._undamaged(collection, row, self._parse(text))
                self._reads.keep((collection.name, tenant, row), documents[row], len(text))
        if large := [row for row, text in texts if text is None]:
            long += await self._readers.bounded(lambda connection: read(connection, large, sql.WHOLE_DOC))
        length = sum(len(text) for _, text in long)
        made = await off_loop(json_work(length), lambda: [self._parse(text) for _, text in long])
        for (row, _), document in zip(long, made, strict=True):
            documents[row] = self._undamaged(collection, row, document)
        return [documents[row] for row in wanted]

    def _undamaged(
        self, collection: Collection[R], row: int, document: protocol.Fetched[R] | None
    ) -> protocol.Fetched[R] | None:
        """Returns a document that was selected by its row, or None if it cannot be read."""
        if document is None:
            with self._faults.translated():
                statement = f"SELECT id FROM {sql.quoted(collection.name)} WHERE row = ?"
                doc_id = self._reader.execute(statement, (row,)).get
            left_out(collection, doc_id or f"row {row}", orjson.JSONDecodeError.__name__)
        elif (fault := document.memo.once("damage", partial(damage, collection), document.doc)) is not None:
            left_out(collection, document.doc.get(collection.id_field), fault)
            return None
        return document

    def _states(self, collection: Collection, tenant: str, wanted: Sequence[Partition]) -> list[PartitionState]:
        def read() -> tuple[list[PartitionState], int]:
            states = search_rows.read(self._reader, collection, tenant, wanted)
            return states, sum(len(name) for state in states for name in state.speakers)

        return self._reads.get_part((collection.name, tenant, PARTITIONS), tuple(wanted), read)

    def _empty(self, collection: Collection, agent: str | None = None) -> Segment:
        return Segment(collection.spec, self._dim, agent, large=self._large)

    async def _segment(self, collection: Collection, state: PartitionState, model: int) -> Segment:
        """Returns the partition's segment, at least as new as `state`, with its vectors of `model`."""
        key = (state.number, model)
        cached = self._cache.get(key, state.floor)
        # so many new documents are better read anew, in a thread; those replaced or deleted do not show in this count
        if cached is not None and state.count - len(cached.segment) > INLINE_ROWS:
            cached = None
        while cached is None or cached.version < state.floor:
            if state.count > INLINE_ROWS:
                # a load that was already running may give a version older than `state`
                cached = await asyncio.shield(self._loading(collection, state, model))
            else:
                with self._faults.translated():
                    segment = search_rows.whole(
                        self._reader, collection, state, self._empty(collection, state.agent), model
                    )
                self._cache.put(key, segment, state.version)
                cached = VersionedSegment(segment, state.version)
        segment, version = cached
        if version < state.version:
            with self._faults.translated():
                rows = search_rows.changed_rows(self._reader, collection, state.number, version, model, self._dim)
            self._cache.update(key, segment, state.version, rows)
        return segment

    def _loading(self, collection: Collection, state: PartitionState, model: int) -> asyncio.Task[VersionedSegment]:
        """Returns the load of a large partition in a thread, which all searches that need it share."""
        key = (state.number, model)

        async def load() -> VersionedSegment:
            empty = self._empty(collection, state.agent)
            segment = await self._readers.apart(
                lambda connection: search_rows.whole(connection, collection, state, empty, model)
            )
            self._cache.put(key, segment, state.version)
            return VersionedSegment(segment, state.version)

        def loaded(task: asyncio.Task[VersionedSegment]) -> None:
            self._loads.pop(key, None)
            if not task.cancelled():
                task.exception()  # marks the exception as retrieved; waiting callers get it from the task

        task = self._loads.get(key)
        if task is None:
            task = self._loads[key] = asyncio.create_task(load())
            task.add_done_callback(loaded)
        return task

    @property
    def reembedding(self) -> EmbeddedReembedding:
        return EmbeddedReembedding(self._readers, self.writer)

    # --- Moving -------------------------------------------------------------------------------------------------------

    async def export(self, collection: Collection, after: str | None, limit: int) -> list[Record]:
        which, bound = "d.row > ? ORDER BY d.row LIMIT ?", (int(after or 0), limit)
        return await self._readers.apart(lambda c: search_rows.records_where(c, collection, which, bound))

    async def load(self, collection: Collection, records: Sequence[Record]) -> int:
        def load(connection: apsw.Connection) -> int:
            rows, new = search_rows.SearchRowWriter(connection), 0
            there = f"SELECT 1 FROM {sql.quoted(collection.name)} WHERE tenant = ? AND id = ?"
            for record in records:
                named = (record.doc["tenant_id"], str(record.doc[collection.id_field]))
                if connection.execute(there, named).fetchone() is not None:
                    continue
                row = insert_document(connection, collection, record.doc)
                if record.packed is not None:
                    rows.take_in(collection, record.doc, row, record.packed)
                new += 1
            rows.write_partitions()
            return new

        return await self.writer.submit(load)

    async def backup(self, target: Path) -> int:
        return await asyncio.to_thread(files.backup, self._path, target, self._busy_timeout_ms, self._key)

    async def counters(self) -> list[Counter]:
        def read(connection: apsw.Connection) -> list[Counter]:
            rows = connection.execute("SELECT tenant, name, value FROM counters")
            return [Counter(str(tenant), str(name), int(value)) for tenant, name, value in rows]

        return await self._readers.apart(read)

    async def load_counters(self, counters: Sequence[Counter], *, only: bool = False) -> None:
        statement = "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)"
        values = [(counter.tenant, counter.name, counter.value) for counter in counters]

        def load(connection: apsw.Connection) -> None:
            if only:
                connection.execute("DELETE FROM counters")
            connection.executemany(statement, values)

        await self.writer.submit(load)

    async def notes(self, new: Mapping[str, str] | None = None) -> dict[str, str]:
        return await self.writer.submit(partial(sql.notes, new=new or {}))

    # --- Erasing ------------------------------------------------------------------------------------------------------

    async def purge(self, tenant: str, user: str, counters: Sequence[str]) -> None:
        def empty_partitions(connection: apsw.Connection) -> list[int]:
            statement = "SELECT partition FROM partitions WHERE tenant = ? AND user = ? AND count = 0"
            rows: list[Any] = connection.execute(statement, (tenant, user)).fetchall()
            return [int(partition) for (partition,) in rows]

        def forget(connection: apsw.Connection) -> None:
            searched = [sql.search_table(collection) for collection in self._collections if collection.searched]
            for partition in empty_partitions(connection):
                for table in (*searched, "kept_vectors", "partitions"):
                    connection.execute(f"DELETE FROM {table} WHERE partition = ?", (partition,))
            named = [(tenant, name) for name in counters]
            connection.executemany("DELETE FROM counters WHERE tenant = ? AND name = ?", named)

        gone = await self._readers.apart(empty_partitions)
        await self.writer.submit(forget)
        await self.change_log.forget(tenant, user)
        self._cache.drop_partitions(gone)
        self._parse.forget()

    async def scrub(self) -> None:
        def overwrite(_: apsw.Connection) -> None:
            files.scrub(self._path, self._busy_timeout_ms, self._space, self._key)

        await self.writer.submit(overwrite, 0, reserve=False, alone=True)

    # --- Operating ----------------------------------------------------------------------------------------------------

    async def check(self, *, deep: bool = False, told: protocol.Told = protocol.untold) -> list[protocol.Finding]:
        if deep:
            return await self._readers.apart(lambda connection: files.deep(connection, self._collections, told))
        with self._faults.translated():
            refuse_moved(self._reader)
            self._reader.execute("SELECT 1 FROM counters LIMIT 1").fetchall()
            missing = files.missing_commits(self._path, self._reader)
            if missing:
                raise damaged(log_of(self._path).name, missing)
        self._space.refuse_read_only()
        if self.writer.failure is not None or self._space.missing():
            await self.writer.refuse_failing()
        return [protocol.Finding("store", True, "writable"), protocol.Finding("search", True, "exact")]
