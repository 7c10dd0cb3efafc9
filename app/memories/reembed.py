"""Moves all searchable records to another embedding model while the store is in use.

The new vector of a record replaces the old one, which is kept as an alternate vector until it is dropped. Searches by
the old model therefore find the same as before. Progress is read from the rows themselves: an interrupted move
continues, and a row that is written with the old model meanwhile counts as missing the new vector.

`EmbeddingJob` is the job `embed_pending`: it embeds missing vectors and moves records to the current model.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from app.core.clock import Clock, SystemClock
from app.embedding.embedder import Embedder
from app.errors import EmbeddingUnavailable, StoreUnavailable
from app.jobs.runner import Done, Run
from app.memories.embedding import HARMLESS, Embeddings
from app.memories.embedding_backfill import PendingEmbeddings, passage_of
from app.memories.pending import PENDING, Embeddable
from app.storage.changes import CommitConflict, Insert, Update
from app.storage.index.record_codec import model_id
from app.storage.protocol import MissingVector, PartitionSelector, Store, VectorCounts
from app.storage.schema import BaseRecord, Collection
from app.storage.scope import SYSTEM


class EmbeddingMove(BaseRecord, total=False):
    """A document of the collection `embedding_moves`."""

    move_id: str
    model: str
    dim: int


MOVES: Collection[EmbeddingMove] = Collection(name="embedding_moves", id_field="move_id", fields={}, cached=True)
"""The embedding model that the last `recalld reembed` moves everything to, under the tenant `SYSTEM`."""

AT_ONCE = 256
"""Number of documents that are read and embedded together."""
COMMITTED_AT_ONCE = 32
"""Number of documents in one commit. It is small because other writers to the same scopes wait for a commit."""
PAIRS_AT_ONCE = 200
ROUNDS, SMALL_ROUNDS = 5, 20
"""`ROUNDS`: how often records are counted.

`SMALL_ROUNDS`: how often, before each count, records that others have just written are looked for.
"""
PAUSE_SECONDS = 0.25
LATEST = "latest"

log = logging.getLogger(__name__)

ReportProgress = Callable[[int], None]


class Reembed:
    """Embeds the records of several collections with one model."""

    def __init__(self, store: Store, embedder: Embedder, kinds: Sequence[Embeddable], *, patience: float = 0) -> None:
        """Creates the move. `patience`: how many seconds a write is retried while the store is unavailable."""
        self._store, self._embedder, self._kinds, self._patience = store, embedder, kinds, patience
        self._vectors = store.reembedding
        self._model = model_id(embedder.name, embedder.dim)

    async def begin(self, now: str) -> None:
        """Stores the model as the target of the move. Services that run this model then embed what is left."""
        fields: EmbeddingMove = {"model": self._embedder.name, "dim": self._embedder.dim, "updated_at": now}
        first: EmbeddingMove = {"tenant_id": SYSTEM, "move_id": LATEST, "created_at": now, **fields}
        with suppress(CommitConflict):
            await self._store.commit([Insert(MOVES, first)])
            return
        await self._store.commit([Update(MOVES, SYSTEM, LATEST, set=fields)])

    async def run(self, seen: ReportProgress) -> dict[str, VectorCounts]:
        """Runs until all records have a vector of the model, or until no more can be embedded.

        Returns the final counts by collection. Raises EmbeddingUnavailable if the model does not answer; finished work
        stays.
        """
        seen(await PendingEmbeddings(self._store, self._embedder, self._kinds, SystemClock()).embed_all())
        await self._rounds(seen)
        counts = await self.counts()
        for _ in range(ROUNDS):
            # The counts do not agree with the partitions' marks, so all partitions are visited.
            if whole(counts) or not await self.move("every", seen):
                break
            await self._rounds(seen)
            counts = await self.counts()
        return counts

    async def _rounds(self, seen: ReportProgress) -> None:
        for _ in range(SMALL_ROUNDS):
            if not await self.move("unlike", seen):
                break

    async def move(
        self, which: PartitionSelector, seen: ReportProgress = lambda done: None, *, limit: int | None = None
    ) -> int:
        """Makes one round over the selected partitions, or over `limit` documents of them.

        Returns how many were embedded.
        """
        done = 0
        for kind in self._kinds:
            after = 0
            while pairs := await self._vectors.partitions(kind.collection, self._model, after, PAIRS_AT_ONCE, which):
                after = pairs[-1]
                done += await self._move_pairs(kind, pairs, seen, None if limit is None else limit - done)
                if limit is not None and done >= limit:
                    return done
        return done

    async def _move_pairs(self, kind: Embeddable, pairs: Sequence[int], seen: ReportProgress, limit: int | None) -> int:
        """Embeds the records of some partitions. While one page is written, the next is read and embedded."""
        place = begun = done = 0
        writing: asyncio.Task[int] | None = None
        try:
            while (limit is None or begun < limit) and (
                page := await self._vectors.missing_vectors(kind.collection, pairs, self._model, place, AT_ONCE)
            ):
                place, begun = page[-1].row, begun + len(page)
                updates = await self._updates(kind, page)
                if writing is not None:
                    done += await writing
                writing = asyncio.create_task(self._write(updates, seen))
        finally:
            if writing is not None:
                done += await writing
        await self._vectors.mark_migrated(kind.collection, pairs, self._model)
        return done

    async def behind(self) -> bool:
        """Returns whether `catch_up` would visit any partition. It only reads."""
        if not await self._moved_to_ours():
            return False
        for kind in self._kinds:
            if await self._vectors.partitions(kind.collection, self._model, 0, 1, "unlike"):
                return True
        return False

    async def catch_up(self, limit: int) -> int:
        """Embeds records that others wrote with another model, if the store was moved to this one. Returns how many."""
        if not await self._moved_to_ours():
            return 0
        with suppress(EmbeddingUnavailable):  # a later run tries again
            return await self.move("unlike", limit=limit)
        return 0

    async def _moved_to_ours(self) -> bool:
        move = await self._store.get(MOVES, SYSTEM, LATEST)
        return move is not None and (move["model"], move["dim"]) == (self._embedder.name, self._embedder.dim)

    async def counts(self) -> dict[str, VectorCounts]:
        """Returns the counts of vectors by collection."""
        dim = self._embedder.dim
        return {
            kind.collection.name: await self._vectors.counts(kind.collection, self._model, dim) for kind in self._kinds
        }

    async def drop_previous_vectors(self) -> int:
        """Deletes the alternate vectors of other models. Returns how many."""
        return sum([await self._vectors.drop_previous_vectors(kind.collection) for kind in self._kinds])

    async def _updates(self, kind: Embeddable, page: Sequence[MissingVector]) -> list[Update]:
        """Returns the updates of the records that the model accepts. Internal change: does not bump versions."""
        embeddings = Embeddings(self._embedder)
        read = [(row.doc, await passage_of(kind, row.doc)) for row in page]
        readable = [(doc, passage) for doc, passage in read if passage is not None]
        entries = await embeddings.entries_each([passage for _, passage in readable])
        return [
            Update(
                kind.collection,
                doc["tenant_id"],
                doc[kind.collection.id_field],
                set=kind.fields(embeddings.info(entry)),
                expect={"version": doc["version"]},
                entry=entry,
                keep=True,
            )
            for (doc, _), entry in zip(readable, entries, strict=True)
            if entry.vector is not None
        ]

    async def _write(self, updates: Sequence[Update], seen: ReportProgress) -> int:
        """Commits some updates at a time, or these one by one after a conflict.

        Returns how many were committed; the next round does the rest.
        """
        done = 0
        for at in range(0, len(updates), COMMITTED_AT_ONCE):
            together = updates[at : at + COMMITTED_AT_ONCE]
            if await self._committed(together):
                committed = len(together)
            else:
                committed = sum([await self._committed([update]) for update in together])
            seen(committed)
            done += committed
        return done

    async def _committed(self, updates: Sequence[Update]) -> bool:
        """Commits the updates and returns False after a conflict.

        If the store is unavailable, or a killed process still locks records, it retries for `patience` seconds, because
        the embedding was expensive.
        """
        ends = time.monotonic() + self._patience
        while True:
            try:
                await self._store.commit(updates)
            except CommitConflict:
                return False
            except StoreUnavailable:
                if time.monotonic() > ends:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return True


def whole(counts: Mapping[str, VectorCounts]) -> bool:
    """Returns whether all records have a vector of the model."""
    return all(count.of_model == count.records for count in counts.values())


async def warn_of_other_models(store: Store, embedder: Embedder, kinds: Sequence[Embeddable]) -> None:
    """Logs a warning if the store has vectors of another embedding model."""
    model = model_id(embedder.name, embedder.dim)
    for kind in kinds:
        if await store.reembedding.partitions(kind.collection, model, 0, 1, "other"):
            log.warning(
                "the store has vectors of another embedding model: what has none of this one is found by its words "
                "alone until `recalld reembed` has been run",
                extra={"model": embedder.name, "collection": kind.collection.name},
            )


CAUGHT_UP_AT_ONCE = 256
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=1)
"""Pause after a run without progress: the model refuses the remaining records, or does not answer."""


class EmbeddingJob:
    """The handler of the job `embed_pending`."""

    def __init__(self, store: Store, embedder: Embedder, kinds: Sequence[Embeddable], clock: Clock) -> None:
        self._store, self._embedder, self._clock = store, embedder, clock
        self._pending = PendingEmbeddings(store, embedder, kinds, clock)
        self._reembed = Reembed(store, embedder, kinds)
        self._pause = FIRST_PAUSE
        self._paused_until: datetime | None = None

    async def has_work(self) -> bool:
        """Returns whether a run could do anything now. It only reads.

        If texts are pending, the model is asked for a vector first, so that an unavailable model starts no useless
        runs.
        """
        if await self._pending.due() and await self._model_answers():
            return True
        now = self._clock.now()
        # a clock that is set back cannot extend the pause beyond the longest one
        if self._paused_until is not None and now < self._paused_until <= now + LONGEST_PAUSE:
            return False
        return await self._reembed.behind()

    async def handle(self, run: Run) -> Done:
        """Runs the backfill, then the move, each within its limit."""
        if run.payload.get("dry_run"):
            return Done({"pending": await self._store.count(PENDING, SYSTEM)})
        embedded = await self._pending.embed_all()
        moved = await self._reembed.catch_up(CAUGHT_UP_AT_ONCE)
        if not moved and await self._reembed.behind():  # another run right now would make no progress either
            self._paused_until = self._clock.now() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._pause, self._paused_until = FIRST_PAUSE, None
        return Done({"embedded": embedded + moved})

    async def _model_answers(self) -> bool:
        try:
            await self._embedder.embed_texts([HARMLESS])
        except EmbeddingUnavailable:
            return False
        return True
