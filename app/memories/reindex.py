"""Brings search entries to the rules of this version, in the background, while searches work as before.

Entries that an earlier version made lack what this one adds: terms of tags, flags of speaker and origin, vectors of a
long text's further windows. The walk goes through the pairs (agent, user) by number and through their records by row,
and notes its place now and then, so that it goes on there after a crash. A record that is rewritten twice is the same.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from app.core.clock import Clock, rfc3339
from app.core.process import off_loop
from app.embedding.embedder import Embedder
from app.errors import EmbeddingUnavailable
from app.memories.embedding_backfill import Embeddable
from app.memories.indexing import Embeddings, IndexText
from app.memories.models import INDEXING
from app.storage.changes import CommitConflict, IndexEntry, Insert, Update
from app.storage.protocol import Finding, MissingVector, Store
from app.storage.schema import Doc
from app.storage.scope import SYSTEM
from app.storage.text import IndexedText

REVISION = 1
"""Of the rules by which entries are made. Raise it when they change, so that stores catch up. 1: tags are terms, flags
of the document, vectors of windows, `standing`."""

SEARCH = "search"
"""Id of the one note."""
NO_MODEL = 0
"""The code of no model: `missing_vectors` then names all records."""
PAIRS_AT_ONCE = 200
RECORDS_AT_ONCE = 200
COMMITTED_AT_ONCE = 32
LONG_COST = 64
"""Short texts that are rewritten in the time of a long one, whose windows are embedded."""


class Reindex:
    def __init__(self, store: Store, embedder: Embedder, kinds: Sequence[Embeddable], clock: Clock) -> None:
        self._store, self._embedder, self._kinds, self._clock = store, embedder, kinds, clock

    async def unfinished(self) -> bool:
        """Whether `catch_up` has anything left to look at. Reads only."""
        return not _Walk(await self._store.get(INDEXING, SYSTEM, SEARCH), 0).finished

    async def catch_up(self, limit: int) -> int:
        """Rewrites about `limit` records, long ones counting as `LONG_COST`, or what is left; how many.

        Where the embedding model is away it ends early, and goes on there another time.
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
        """Of one collection, from the walk's place on."""
        reading, collection = self._store.reembedding, kind.collection
        walk.enter(collection.name)
        while walk.goes_on() and (
            pairs := await reading.pairs(collection, NO_MODEL, walk.pair - 1, PAIRS_AT_ONCE, "every")
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
        docs = [one.doc for one in page]
        passages = [kind.passage(doc) for doc in docs]
        windows = await self._embedder.windows([passage.content for passage in passages])
        long = [at for at, parts in enumerate(windows) if len(parts) > 1]
        embeddings = Embeddings(self._embedder)
        entries = dict(zip(long, await embeddings.entries_each([passages[at] for at in long]), strict=True))
        texts = await off_loop(sum(len(one.content) for one in passages), _indexed, passages)
        updates = [
            update
            for at, (doc, text) in enumerate(zip(docs, texts, strict=True))
            if (update := _update(kind, doc, passages[at], text, entries.get(at), embeddings)) is not None
        ]
        for start in range(0, len(updates), COMMITTED_AT_ONCE):
            await self._commit(updates[start : start + COMMITTED_AT_ONCE])
        walk.did(page[-1].row, len(updates), len(page) + LONG_COST * len(long))

    async def _commit(self, updates: Sequence[Update]) -> None:
        """A record that has changed meanwhile was written by the rules of this version."""
        try:
            await self._store.commit(updates)
        except CommitConflict:
            for update in updates:
                with suppress(CommitConflict):
                    await self._store.commit([update])

    async def _note(self, walk: "_Walk") -> None:
        now = rfc3339(self._clock.now())
        fields = {**walk.note(), "updated_at": now}
        with suppress(CommitConflict):
            await self._store.commit([Update(INDEXING, SYSTEM, SEARCH, set=fields)])
            return
        with suppress(CommitConflict):  # another worker was first
            first = {"tenant_id": SYSTEM, "index_id": SEARCH, "created_at": now}
            await self._store.commit([Insert(INDEXING, first | fields)])


class _Walk:
    """Where it is: in `collection`, at `pair`, after `row`; pairs of smaller numbers are done."""

    def __init__(self, noted: Doc | None, limit: int) -> None:
        noted = noted or {}
        self.finished = noted.get("revision", 0) >= REVISION
        mine = noted if noted.get("target") == REVISION else {}
        self._revision: int = noted.get("revision", 0)
        self._collection: str | None = mine.get("collection")
        self.pair: int = mine.get("pair", 0)
        self.row: int = mine.get("row", 0)
        self._done: int = mine.get("done", 0)
        self._most, self._cost = limit, 0
        self._noted = 0
        self.rewritten = 0

    @property
    def due(self) -> bool:
        """So much was done since the last note that it should not be done again."""
        return self._cost - self._noted >= RECORDS_AT_ONCE

    def goes_on(self) -> bool:
        return self._cost < self._most

    def passed(self, name: str, kinds: Sequence[Embeddable]) -> bool:
        """Whether the collection was done before the walk's place."""
        names = [kind.collection.name for kind in kinds]
        return self._collection in names and names.index(name) < names.index(self._collection)

    def enter(self, name: str) -> None:
        if name != self._collection:
            self._collection, self.pair, self.row = name, 0, 0

    def turn_to(self, pair: int) -> None:
        if pair != self.pair:
            self.pair, self.row = pair, 0

    def did(self, row: int, rewritten: int, cost: int) -> None:
        self.row = row
        self._done += rewritten
        self.rewritten += rewritten
        self._cost += cost

    def end(self) -> None:
        self._revision, self._collection, self.pair, self.row = REVISION, None, 0, 0

    def note(self) -> dict[str, Any]:
        self._noted = self._cost
        return {
            "revision": self._revision,
            "target": REVISION,
            "collection": self._collection,
            "pair": self.pair,
            "row": self.row,
            "done": self._done,
        }


def _indexed(passages: Sequence[IndexText]) -> list[IndexedText]:
    return [passage.indexed() for passage in passages]


def _update(
    kind: Embeddable,
    doc: Doc,
    passage: IndexText,
    text: IndexedText,
    entry: IndexEntry | None,
    embeddings: Embeddings,
) -> Update | None:
    """Nothing that a caller asked for, so the version stays. None where this revision adds nothing to the record."""
    missing, expected = kind.repair(doc), {"version": doc["version"]}
    update = Update(
        kind.collection, doc["tenant_id"], doc[kind.collection.id_field], set=missing, expect=expected, text=text
    )
    if entry is not None and entry.vector is not None:
        fields = {**missing, **kind.fields(embeddings.info(entry))}
        return replace(update, set=fields, text=None, entry=entry, keep=True)
    return update if passage.tags or missing or kind.collection.spec.flags is not None else None


async def forget(store: Store) -> None:
    """After entries were taken in that another version may have made: the walk begins anew."""
    with suppress(CommitConflict):
        await store.commit([Update(INDEXING, SYSTEM, SEARCH, set={"revision": 0, "target": 0, "done": 0})])


async def finding(store: Store) -> Finding:
    """For `recalld doctor`."""
    noted = await store.get(INDEXING, SYSTEM, SEARCH) or {}
    revision, done = noted.get("revision", 0), noted.get("done", 0)
    if revision >= REVISION:
        return Finding("index revision", True, f"{revision}")
    behind = f"{revision} of {REVISION}: {done} records are rewritten; a running service goes on in the background"
    return Finding("index revision", True, behind)
