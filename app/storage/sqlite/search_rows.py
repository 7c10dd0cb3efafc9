"""Search rows, clustered by partition, and the record of each partition: version, count, speakers.

Each list of changes increments the version of the partitions that it touches. A row stores the version that wrote it
(`rev`), and a deleted one leaves a tombstone, so that any process can update its copy of a partition with the rows that
changed. The `text_rev` in its head moves less often: see `head_dtype`.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Any
from zlib import crc32

import apsw
import orjson

from app.storage.changes import IndexEntry
from app.storage.index.record_codec import (
    Block,
    PackedRecord,
    Row,
    at_version,
    code,
    model_at,
    model_of,
    overlaid,
    pack,
    repack,
    reword,
    sources_of,
)
from app.storage.index.segment import PartitionState, Segment
from app.storage.schema import Collection, Doc
from app.storage.scope import ANY_AGENT, Partition
from app.storage.sqlite import sql
from app.storage.sqlite.connections import FILE_NAME, PARTITIONS, ReadKey, damaged
from app.storage.text import IndexedTerms
from app.storage.transfer import Record

AT_ONCE = 500
"""Maximum number of values in one `IN`."""
BLOCK = 1_000
"""Number of rows read by one statement."""


def sum_of(packed: PackedRecord) -> int:
    """Returns the sum of a search row. A row may take several pages, as a long document does (`SUMMED_BYTES`)."""
    total = 0
    for part in (packed.head, packed.vector or b"", packed.terms, packed.facets):
        total = crc32(part, total)
    return total


def checked(row: int, total: int, head: bytes, vector: bytes | None, terms: bytes, facets: bytes) -> PackedRecord:
    """Returns a search row as it is stored. Raises StoreDamaged if its sum is wrong."""
    packed = PackedRecord(head, vector, terms, facets)
    if sum_of(packed) != total:
        raise damaged(FILE_NAME, f"the sum of search row {row} fails")
    return packed


_FIGURES = ("number", "version", "floor", "count", "tombstones", "model")


def read(
    connection: apsw.Connection, collection: Collection, tenant: str, wanted: Sequence[Partition]
) -> list[PartitionState]:
    """Returns the existing partitions among those wanted, by number.

    Each has a statement of its own: joined by OR, they would walk all partitions of the tenant.
    """
    states: dict[int, PartitionState] = {}
    for partition in wanted:
        of_agent, values = (
            ("", (partition.user,))
            if partition.agent is ANY_AGENT
            else (" AND agent = ?", (partition.user, partition.agent))
        )
        statement = (
            "SELECT agent, speakers, partition, version, floor, count, tombstones, model FROM partitions "
            f"WHERE collection = ? AND tenant = ? AND user = ?{of_agent}"
        )
        bound = (collection.name, tenant, *(value or "" for value in values))
        rows: list[Any] = connection.execute(statement, bound).fetchall()
        for agent, speakers, *figures in rows:
            plain = dict(zip(_FIGURES, figures, strict=True))
            states[plain["number"]] = PartitionState(agent=agent or None, speakers=orjson.loads(speakers), **plain)
    return [states[number] for number in sorted(states)]


def whole(
    connection: apsw.Connection, collection: Collection, state: PartitionState, segment: Segment, model: int
) -> Segment:
    """Fills `segment` with all live rows of the partition, with their vectors of `model` if they have one. Returns it.

    Rows that change meanwhile may be included or not: their version is later than that of `state`, so the next update
    reads them.
    """
    kept_ones = "SELECT 1 FROM kept_vectors WHERE partition = ? AND model = ? LIMIT 1"
    if connection.execute(kept_ones, (state.number, code(model))).fetchone() is not None:
        segment.apply(_rows(connection, collection, state.number, "head IS NOT NULL", (), model, segment.dim))
    else:
        segment.fill(_blocks(connection, collection, state.number), state.count)
    return segment


def _blocks(connection: apsw.Connection, collection: Collection, partition: int) -> Iterator[Block]:
    """Yields the partition's rows in blocks.

    SQLite joins the rows, so that a large partition does not become a hundred thousand Python objects first. The blocks
    are small, so that the joined bytes reuse the same memory: the first touch of each page costs more than the write
    itself.
    """
    joined = ", ".join(f"CAST(group_concat({part}, '') AS BLOB)" for part in ("head", "vector", "terms", "facets"))
    lengths = ", ".join(f"json_group_array(ifnull(length({part}), 0))" for part in ("vector", "terms", "facets"))
    statement = (
        f"SELECT json_group_array(row), {joined}, {lengths}, json_group_array(sum) "
        "FROM (SELECT row, sum, head, vector, terms, facets "
        f"FROM {sql.search_table(collection)} WHERE partition = ? AND row > ? AND head IS NOT NULL ORDER BY row "
        f"LIMIT {BLOCK})"
    )
    last, more = -1, True
    while more:
        block: Any = connection.execute(statement, (partition, last)).fetchone()
        ids, *sizes, sums = (orjson.loads(text) for text in (block[0], *block[5:]))
        heads, *parts = (part or b"" for part in block[1:5])
        if [len(part) for part in parts] != [sum(counts) for counts in sizes]:
            raise RuntimeError("SQLite did not join the rows as they are")
        if ids:
            _check_sums(ids, sums, [(heads, [len(heads) // len(ids)] * len(ids)), *zip(parts, sizes, strict=True)])
            yield Block(ids, heads, *parts, *sizes)
            last = ids[-1]
        more = len(ids) == BLOCK


def _check_sums(ids: Sequence[int], sums: Sequence[int], parts: Sequence[tuple[bytes, Sequence[int]]]) -> None:
    """Raises StoreDamaged if the sum of one of many rows is wrong. `parts`: joined, and the length of each."""
    totals = [0] * len(ids)
    for joined, lengths in parts:
        view, at = memoryview(joined), 0
        for place, length in enumerate(lengths):
            totals[place] = crc32(view[at : at + length], totals[place])
            at += length
    for row, total, stored in zip(ids, totals, sums, strict=True):
        if total != stored:
            raise damaged(FILE_NAME, f"the sum of search row {row} fails")


def changed_rows(
    connection: apsw.Connection, collection: Collection, partition: int, since: int, model: int, dim: int
) -> list[Row]:
    """Returns the rows written after version `since`, tombstones included, with their vectors of `model` (dimension
    `dim`) if they have one."""
    return _rows(connection, collection, partition, "rev > ?", (since,), model, dim)


def _rows(
    connection: apsw.Connection,
    collection: Collection,
    partition: int,
    which: str,
    values: tuple[int, ...],
    model: int,
    dim: int,
) -> list[Row]:
    statement = (
        f"SELECT row, sum, head, vector, terms, facets FROM {sql.search_table(collection)} "
        f"WHERE partition = ? AND {which} ORDER BY row"
    )
    rows = [
        Row(row, None if parts[1] is None else checked(row, *parts))
        for row, *parts in connection.execute(statement, (partition, *values))
    ]
    return overlaid(collection.spec, rows, model, dim, lambda others: _alternates(connection, partition, model, others))


def _alternates(connection: apsw.Connection, partition: int, model: int, rows: Sequence[int]) -> dict[int, bytes]:
    """Returns the alternate vectors of `model`, by row."""
    vectors: dict[int, bytes] = {}
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        statement = (
            "SELECT row, vector FROM kept_vectors "
            f"WHERE partition = ? AND model = ? AND row IN ({', '.join('?' * len(part))})"
        )
        vectors.update(connection.execute(statement, (partition, code(model), *part)))
    return vectors


def records_where(
    connection: apsw.Connection, collection: Collection, which: str, bound: tuple[int, int]
) -> list[Record]:
    """Returns records with their search rows. `which`: a condition on `d` with two parameters, and the order."""
    table = sql.quoted(collection.name)
    named: tuple[str, ...] = ()
    if collection.searched is None:
        statement = f"SELECT d.row, {sql.WHOLE_DOC}, NULL, NULL, NULL, NULL, NULL FROM {table} d WHERE {which}"
    else:
        named = (collection.name,)
        statement = (
            f"SELECT d.row, {sql.WHOLE_DOC}, s.sum, s.head, s.vector, s.terms, s.facets FROM {table} d "
            "LEFT JOIN partitions p ON p.collection = ? AND p.tenant = d.tenant "
            "AND p.user = ifnull(d.user_id, '') AND p.agent = ifnull(d.agent_id, '') "
            f"LEFT JOIN {sql.search_table(collection)} s ON s.partition = p.partition AND s.row = d.row WHERE {which}"
        )
    return [
        Record(orjson.loads(doc), None if parts[1] is None else checked(row, *parts), str(row))
        for row, doc, *parts in connection.execute(statement, (*named, *bound))
    ]


class SearchRowWriter:
    """Writes the search rows of one list of changes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._touched: dict[tuple[str, str, str, str], PartitionState] = {}  # by collection, tenant, user, agent
        self._collections: dict[int, Collection] = {}

    @property
    def stale_reads(self) -> set[ReadKey]:
        """What cached reads forget (`ReadCache`): those of the partitions that were touched."""
        return {(collection, tenant, PARTITIONS) for collection, tenant, _, _ in self._touched}

    def add(self, collection: Collection, doc: Doc, row: int, entry: IndexEntry) -> None:
        """Writes the row of a new document."""
        state = self._partition_at_next_version(collection, doc)
        self._write(collection, state, doc, row, pack(collection.spec, doc, entry, state.version), new=True)

    def add_like(self, collection: Collection, doc: Doc, row: int, like: int) -> None:
        """Writes the row of a new document with the text and vectors of the row `like`, if it exists."""
        state = self._partition_at_next_version(collection, doc)
        old = self._packed(collection, state.number, like)
        if old is None:
            return
        packed = repack(collection.spec, doc, old, state.version)
        self._write(collection, state, doc, row, at_version(collection.spec, packed, state.version), new=True)
        self._connection.execute(
            "INSERT INTO kept_vectors SELECT partition, ?, model, vector FROM kept_vectors "
            "WHERE partition = ? AND row = ?",
            (row, state.number, like),
        )

    def take_in(self, collection: Collection, doc: Doc, row: int, packed: PackedRecord) -> None:
        """Writes the row of a new document from a record of another store."""
        state = self._partition_at_next_version(collection, doc)
        self._write(collection, state, doc, row, at_version(collection.spec, packed, state.version), new=True)

    def put(self, collection: Collection, doc: Doc, row: int, entry: IndexEntry, *, keep: bool = False) -> None:
        """Writes or overwrites the row of a document. `keep` keeps the replaced vector as an alternate vector."""
        state = self._partition_at_next_version(collection, doc)
        if not self._there(collection, state.number, row):
            self.add(collection, doc, row, entry)
            return
        packed = pack(collection.spec, doc, entry, state.version)
        if keep:  # the text is the same; the row has no alternate vector of the new one's model
            model, of = (
                code(model_of(collection.spec, packed.head)),
                f"substr(head, {model_at(collection.spec) + 1}, 4)",
            )
            self._connection.execute(
                f"INSERT OR REPLACE INTO kept_vectors SELECT partition, row, {of}, vector "
                f"FROM {sql.search_table(collection)} WHERE partition = ? AND row = ? "
                f"AND vector IS NOT NULL AND {of} <> ?",
                (state.number, row, model),
            )
            statement = "DELETE FROM kept_vectors WHERE partition = ? AND row = ? AND model = ?"
            self._connection.execute(statement, (state.number, row, model))
        else:
            self._connection.execute("DELETE FROM kept_vectors WHERE partition = ? AND row = ?", (state.number, row))
        self._write(collection, state, doc, row, packed, new=False)

    def amend(
        self, collection: Collection, doc: Doc, row: int, changed: Set[str], terms: IndexedTerms | None = None
    ) -> None:
        """Updates the row of a document, if it exists, after the fields `changed` changed. `terms`: its new terms;
        its vectors stay."""
        if terms is None and changed.isdisjoint(sources_of(collection.spec)):
            return
        state = self._partition_at_next_version(collection, doc)
        old = self._packed(collection, state.number, row)
        if old is None:
            return
        if terms is None:
            packed = repack(collection.spec, doc, old, state.version, changed)
        else:
            packed = reword(collection.spec, doc, old, terms, state.version)
        state.note_speaker(collection, doc)
        self._connection.execute(
            f"UPDATE {sql.search_table(collection)} SET rev = ?, sum = ?, head = ?, terms = ?, facets = ? "
            "WHERE partition = ? AND row = ?",
            (state.version, sum_of(packed), packed.head, packed.terms, packed.facets, state.number, row),
        )

    def _write(
        self, collection: Collection, state: PartitionState, doc: Doc, row: int, packed: PackedRecord, *, new: bool
    ) -> None:
        state.written(collection, doc, model_of(collection.spec, packed.head), new=new)
        self._connection.execute(
            f"INSERT OR REPLACE INTO {sql.search_table(collection)} VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (state.number, row, state.version, sum_of(packed), packed.head, packed.vector, packed.terms, packed.facets),
        )

    def remove(self, collection: Collection, doc: Doc, row: int) -> None:
        """Replaces the row of a deleted document with a tombstone, if it exists."""
        state = self._partition_at_next_version(collection, doc)
        if not self._there(collection, state.number, row):
            return
        state.removed()
        self._connection.execute(
            f"INSERT OR REPLACE INTO {sql.search_table(collection)} VALUES (?, ?, ?, NULL, NULL, NULL, NULL, NULL)",
            (state.number, row, state.version),
        )
        self._connection.execute("DELETE FROM kept_vectors WHERE partition = ? AND row = ?", (state.number, row))

    def write_partitions(self) -> None:
        """Writes the partitions that were touched, after all their rows."""
        for state in self._touched.values():
            if state.worn:
                table = sql.search_table(self._collections[state.number])
                self._connection.execute(f"DELETE FROM {table} WHERE partition = ? AND head IS NULL", (state.number,))
                state.tombstones_dropped()  # copies older than this version must be reloaded
            self._connection.execute(
                "UPDATE partitions SET version = ?, floor = ?, count = ?, tombstones = ?, speakers = ?, model = ? "
                "WHERE partition = ?",
                (
                    state.version,
                    state.floor,
                    state.count,
                    state.tombstones,
                    orjson.dumps(state.speakers).decode(),
                    state.model,
                    state.number,
                ),
            )

    def _partition_at_next_version(self, collection: Collection, doc: Doc) -> PartitionState:
        """Returns the partition of a document, at the version that this list of changes makes. A new partition gets its
        row here."""
        user, agent = doc.get("user_id") or "", doc.get("agent_id") or ""
        key = (collection.name, doc["tenant_id"], user, agent)
        state = self._touched.get(key)
        if state is None:
            states = read(self._connection, collection, key[1], [Partition(agent, user)])
            if states:
                state = states[0]
            else:
                created = (
                    "INSERT INTO partitions (collection, tenant, user, agent, version, count) VALUES (?, ?, ?, ?, 0, 0)"
                )
                self._connection.execute(created, key)
                state = PartitionState(number=self._connection.last_insert_rowid(), agent=agent or None)
            state.version += 1
            self._touched[key], self._collections[state.number] = state, collection
        return state

    def _packed(self, collection: Collection, partition: int, row: int) -> PackedRecord | None:
        stored = self._connection.execute(
            f"SELECT sum, head, vector, terms, facets FROM {sql.search_table(collection)} "
            "WHERE partition = ? AND row = ? AND head IS NOT NULL",
            (partition, row),
        ).get
        return None if stored is None else checked(row, *stored)

    def _there(self, collection: Collection, partition: int, row: int) -> bool:
        statement = f"SELECT head IS NOT NULL FROM {sql.search_table(collection)} WHERE partition = ? AND row = ?"
        return bool(self._connection.execute(statement, (partition, row)).get)
