"""Rewrites index entries by the rules of this version, in the background, while searches continue.

Entries of an earlier version lack what this one adds: terms of tags, flags of speaker and origin, vectors of a long
text's further windows. The walk visits the partitions by number and their records by row, and stores its position
regularly, so that it continues there after a crash. Rewriting a record twice gives the same result.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from app.core.clock import Clock, rfc3339
from app.core.work import off_loop
from app.embedding.embedder import Embedder
from app.errors import EmbeddingUnavailable
from app.jobs.skipping import skipping
from app.memories.embedding import Embeddings, Passage
from app.memories.embedding_backfill import passage_of
from app.memories.pending import Embeddable
from app.storage.changes import CommitConflict, IndexEntry, Insert, Update
from app.storage.protocol import Finding, MissingVector, Store
from app.storage.schema import BaseRecord, Collection, R
from app.storage.scope import SYSTEM
from app.storage.text import IndexedText, has_emoji, initials, wholes


class IndexRevision(BaseRecord, total=False):
    """A document of the collection `index_revisions`: the revision of the entries that the walk has not visited, and
    its position on the way to the revision `target`."""

    index_id: str
    revision: int
    target: int
    collection: str | None
    pair: int
    row: int
    done: int


INDEXING: Collection[IndexRevision] = Collection(
    name="index_revisions", id_field="index_id", fields={}, cached=True, audited=False
)
"""Under the tenant `SYSTEM`: the revision of the search index and the position of the walk that
rewrites its entries."""

REVISION = 4
"""Revision of the rules by which index entries are made. Raise it when the rules change, so that stores are rewritten.

1: tags are terms, flags of the document, vectors of windows, `standing`.
2: emoji are terms; entities, tags and words of actions as filters compare them.
3: identifiers are terms beside their parts.
4: pairs of initials, and the parts of parseUserName, are terms.
A store at an earlier revision than this, except 0, has only records rewritten that have something of what came later.
"""

SEARCH = "search"
"""Id of the single document of the collection."""
NO_MODEL = 0
"""A model code that no record has, so that `missing_vectors` returns all records."""
PAIRS_AT_ONCE = 200
RECORDS_AT_ONCE = 200
COMMITTED_AT_ONCE = 32
LONG_COST = 64
"""Cost of a long text, whose windows are embedded, in short texts that are rewritten in the same time."""


class Reindex:
    """Rewrites the index entries of several collections."""

    def __init__(self, store: Store, embedder: Embedder, kinds: Sequence[Embeddable], clock: Clock) -> None:
        self._store, self._embedder, self._kinds, self._clock = store, embedder, kinds, clock

    async def unfinished(self) -> bool:
        """Returns whether `catch_up` has anything left to visit. It only reads."""
        return not _Walk(await self._store.get(INDEXING, SYSTEM, SEARCH), 0).finished

    async def catch_up(self, limit: int) -> int:
        """Rewrites about `limit` records, or what is left, and returns how many. A long record counts as `LONG_COST`.

        If the embedding model does not answer, it ends early; the next call continues from there.
        """
        walk = _Walk(await self._store.get(INDEXING, SYSTEM, SEARCH), limit)
        if walk.finished:
            return 0
        with suppress(EmbeddingUnavailable):
            for kind in self._kinds:
                if not walk.passed(kind.collection.name, self._kinds):
                    await self._walk(kind, walk)
                if not walk.goes_on():
                    break
            else:
                walk.end()
        await self._note(walk)
        return walk.rewritten

    async def _walk(self, kind: Embeddable, walk: "_Walk") -> None:
        """Walks one collection from the stored position on."""
        reading, collection = self._store.reembedding, kind.collection
        walk.enter(collection.name)
        while walk.goes_on() and (
            pairs := await reading.partitions(collection, NO_MODEL, walk.pair - 1, PAIRS_AT_ONCE, "every")
        ):
            for pair in pairs:
                walk.turn_to(pair)
                while walk.goes_on() and (
                    page := await reading.missing_vectors(collection, [pair], NO_MODEL, walk.row, RECORDS_AT_ONCE)
                ):
                    await self._page(kind, page, walk)
                    if walk.due:
                        await self._note(walk)
                if not walk.goes_on():
                    return
            walk.turn_to(pairs[-1] + 1)

    async def _page(self, kind: Embeddable, page: Sequence[MissingVector], walk: "_Walk") -> None:
        read = [(row.doc, await passage_of(kind, row.doc)) for row in page]
        readable = [(doc, text) for doc, text in read if text is not None]
        chosen = [(doc, text) for doc, text in readable if _is_behind(kind, doc, text, walk.revision)]
        docs, passages = [doc for doc, _ in chosen], [text for _, text in chosen]
        long = list[int]()
        if walk.revision < 1:
            windows = await self._embedder.windows([passage.content for passage in passages])
            long = [at for at, parts in enumerate(windows) if len(parts) > 1]
        embeddings = Embeddings(self._embedder)
        entries = dict(zip(long, await embeddings.entries_each([passages[at] for at in long]), strict=True))
        size = sum(len(passage.content) for passage in passages)
        texts = await off_loop(size, lambda: [passage.indexed() for passage in passages])
        updates = [
            update
            for at, (doc, text) in enumerate(zip(docs, texts, strict=True))
            if (update := _update(kind, doc, passages[at], text, entries.get(at), embeddings)) is not None
        ]
        for start in range(0, len(updates), COMMITTED_AT_ONCE):
            await self._commit(updates[start : start + COMMITTED_AT_ONCE])
        walk.did(page[-1].row, len(updates), len(page) + LONG_COST * len(long))

    async def _commit(self, updates: Sequence[Update]) -> None:
        """Commits the updates.

        A record that has changed meanwhile is skipped: it was written by the rules of this version.
        """
        try:
            await self._store.commit(updates)
        except CommitConflict:
            for update in updates:
                with suppress(CommitConflict):
                    await self._store.commit([update])

    async def _note(self, walk: "_Walk") -> None:
        now = rfc3339(self._clock.now())
        fields: IndexRevision = {**walk.note(), "updated_at": now}
        with suppress(CommitConflict):
            await self._store.commit([Update(INDEXING, SYSTEM, SEARCH, set=fields)])
            return
        with suppress(CommitConflict):  # another worker has inserted it
            first: IndexRevision = {"tenant_id": SYSTEM, "index_id": SEARCH, "created_at": now, **fields}
            await self._store.commit([Insert(INDEXING, first)])


class _Walk:
    """The position of the walk: in `collection`, at `pair`, after `row`. Partitions with smaller numbers are done."""

    def __init__(self, stored: IndexRevision | None, limit: int) -> None:
        noted: IndexRevision = stored or {}
        self.finished = noted.get("revision", 0) >= REVISION
        mine: IndexRevision = noted if noted.get("target") == REVISION else {}
        self.revision: int = noted.get("revision", 0)
        """The revision of the entries that the walk has not visited yet."""
        self._collection: str | None = mine.get("collection")
        self.pair: int = mine.get("pair", 0)
        self.row: int = mine.get("row", 0)
        self._done: int = mine.get("done", 0)
        self._most, self._cost = limit, 0
        self._noted = 0
        self.rewritten = 0

    @property
    def due(self) -> bool:
        """True if enough was done since the last note that the position should be stored."""
        return self._cost - self._noted >= RECORDS_AT_ONCE

    def goes_on(self) -> bool:
        """Returns whether the limit is not yet reached."""
        return self._cost < self._most

    def passed(self, name: str, kinds: Sequence[Embeddable]) -> bool:
        """Returns whether the collection lies before the walk's position."""
        names = [kind.collection.name for kind in kinds]
        return self._collection in names and names.index(name) < names.index(self._collection)

    def enter(self, name: str) -> None:
        """Moves to the beginning of the collection, unless the walk is in it."""
        if name != self._collection:
            self._collection, self.pair, self.row = name, 0, 0

    def turn_to(self, pair: int) -> None:
        """Moves to the beginning of the partition, unless the walk is in it."""
        if pair != self.pair:
            self.pair, self.row = pair, 0

    def did(self, row: int, rewritten: int, cost: int) -> None:
        """Moves to `row` and adds up rewritten records and cost."""
        self.row = row
        self._done += rewritten
        self.rewritten += rewritten
        self._cost += cost

    def end(self) -> None:
        """Marks the whole walk as done."""
        self.revision, self._collection, self.pair, self.row = REVISION, None, 0, 0

    def note(self) -> IndexRevision:
        """Returns the position as stored fields."""
        self._noted = self._cost
        return {
            "revision": self.revision,
            "target": REVISION,
            "collection": self._collection,
            "pair": self.pair,
            "row": self.row,
            "done": self._done,
        }


def _missing(kind: Embeddable[R], record: R) -> R:
    """Returns the fields that a record of an earlier version lacks; none of one that a job skips."""
    with skipping(kind.collection, record.get(kind.collection.id_field)):
        if kind.repair is not None:
            return kind.repair(record)
    return kind.collection.as_record({})


def _is_behind(kind: Embeddable[R], record: R, passage: Passage, revision: int) -> bool:
    """Returns whether an entry of this revision lacks something that the rules of this version add."""
    if revision < 1 or initials(passage.content) or _any_text(wholes, passage):
        return True
    return revision < 2 and (_any_text(has_emoji, passage) or bool(_missing(kind, record)))


def _any_text(has: Callable[[str], object], passage: Passage) -> bool:
    return any(map(has, (passage.content, passage.context or "", *passage.tags)))


def _update(
    kind: Embeddable[R],
    record: R,
    passage: Passage,
    text: IndexedText,
    entry: IndexEntry | None,
    embeddings: Embeddings,
) -> Update[R] | None:
    """Returns the update of one record, or None if this revision adds nothing.

    Internal change: does not bump versions.
    """
    missing = _missing(kind, record)
    update = Update(
        kind.collection,
        record["tenant_id"],
        record[kind.collection.id_field],
        set=missing,
        expect={"version": record["version"]},
        text=text,
    )
    if entry is not None and entry.vector is not None:
        fields = kind.collection.as_record({**missing, **kind.fields(embeddings.info(entry))})
        return replace(update, set=fields, text=None, entry=entry, keep=True)
    plain = not (
        passage.tags
        or missing
        or _any_text(has_emoji, passage)
        or _any_text(wholes, passage)
        or initials(passage.content)
    )
    differs = not plain or kind.collection.spec.flags is not None
    return update if differs else None


async def forget(store: Store) -> None:
    """Restarts the walk. It is called after an import of index entries that another version may have made."""
    with suppress(CommitConflict):
        await store.commit([Update(INDEXING, SYSTEM, SEARCH, set={"revision": 0, "target": 0, "done": 0})])


async def finding(store: Store) -> Finding:
    """Returns the finding of `recalld doctor` about the index revision."""
    noted: IndexRevision = await store.get(INDEXING, SYSTEM, SEARCH) or {}
    revision, done = noted.get("revision", 0), noted.get("done", 0)
    if revision >= REVISION:
        return Finding("index revision", True, f"{revision}")
    behind = f"{revision} of {REVISION}: {done} records are rewritten; a running service goes on in the background"
    return Finding("index revision", True, behind)
