"""The job `embed_pending`, and the move of all searchable records to another embedding model.

`PendingEmbeddings` embeds the records that were stored while the model did not answer. Their list lies in the store, so
it survives a crash.

`Reembed` moves all records to another model while the store is in use. The new vector of a record replaces the old one,
which is kept as an alternate vector until it is dropped. Searches by the old model therefore find the same as before.
Progress is read from the rows themselves: an interrupted move continues, and a row that is written with the old model
meanwhile counts as missing the new vector.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from app.core.clock import Clock, SystemClock, rfc3339
from app.core.work import off_loop
from app.embedding.embedder import Embedder
from app.errors import EmbeddingUnavailable, RecordDamaged, StoreUnavailable
from app.jobs.queue import skipping
from app.jobs.runner import Done, Run
from app.memories.repository import HARMLESS, PENDING, Embeddable, Embeddings, PendingNote, TextToIndex
from app.metrics import PENDING as WAITING
from app.storage.changes import Change, CommitConflict, Delete, Insert, Update
from app.storage.index.record_codec import model_id
from app.storage.protocol import PartitionSelector, Store, VectorCounts
from app.storage.repository import pages
from app.storage.schema import BaseRecord, Collection, Doc, Not, R, Range
from app.storage.scope import SYSTEM

log = logging.getLogger(__name__)
BACKFILLED_AT_ONCE = 64
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(days=1)
"""Wait before a text that the model refused is tried again. It doubles with each refusal."""


async def checked_text(kind: Embeddable[R], record: R) -> TextToIndex | None:
    """Returns the text of a record that is to be indexed, or None if a job skips it because its terms cannot be made.
    Outside a job the error is raised."""
    with skipping(kind.collection, record.get(kind.collection.id_field)):
        text = kind.text_to_index(record)
        await off_loop(len(text.content), text.indexed)
        return text
    return None


class _Waiting(NamedTuple):
    """A note of the list, with the record that it names, of any collection, and the record's text."""

    note: PendingNote
    kind: Embeddable
    record: Doc
    text: TextToIndex


class PendingEmbeddings:
    """Embeds the records on the list of pending embeddings."""

    def __init__(self, store: Store, embedder: Embedder, kinds: Sequence[Embeddable], clock: Clock) -> None:
        self._store, self._embedder, self._clock = store, embedder, clock
        self._kinds: Mapping[str, Embeddable] = {kind.collection.name: kind for kind in kinds}

    async def due(self) -> bool:
        """Returns whether the list has a text that may be tried now. It only reads."""
        WAITING.set(await self._store.count(PENDING, SYSTEM))
        now = rfc3339(self._clock.now())
        put_off = Range("not_before", gt=now)
        return bool(await self._store.find(PENDING, SYSTEM, Not(put_off), limit=1))

    async def embed_all(self) -> int:
        """Processes the whole list once, in batches, until the model fails. Returns how many records were embedded."""
        done = 0
        with suppress(EmbeddingUnavailable):
            async for notes in pages(partial(self._store.find, PENDING, SYSTEM), PENDING, BACKFILLED_AT_ONCE):
                now = rfc3339(self._clock.now())
                done += await self._embed([note for note in notes if note.get("not_before", now) <= now])
        WAITING.set(await self._store.count(PENDING, SYSTEM))
        return done

    async def _embed(self, notes: Sequence[PendingNote]) -> int:
        """Embeds the records of these notes together. Returns how many. Internal change: does not bump versions."""
        waiting, done = list[_Waiting](), 0
        for note in notes:
            kind = self._kinds.get(note["collection"])
            if kind is None:
                continue
            record: Doc | None = None
            with suppress(RecordDamaged):  # it has no text to embed
                record = await self._store.get(kind.collection, note["tenant"], note["document_id"])
            if record is None or (record.get("embedding") or {}).get("status") == "ready":
                await self._try([Delete(PENDING, SYSTEM, note["note_id"])])
                continue
            text = await checked_text(kind, record)
            if text is None:
                await self._try([self._put_off(note)])
            else:
                waiting.append(_Waiting(note, kind, record, text))
        embeddings = Embeddings(self._embedder)
        entries = await embeddings.entries_each([item.text for item in waiting])
        for (note, kind, record, _), entry in zip(waiting, entries, strict=True):
            if entry.vector is None:
                await self._try([self._put_off(note)])
                continue
            embedded = Update(
                kind.collection,
                note["tenant"],
                note["document_id"],
                set=kind.fields(embeddings.info(entry)),
                expect={"version": record["version"]},
                entry=entry,
            )
            done += await self._try([embedded, Delete(PENDING, SYSTEM, note["note_id"])])
        return done

    def _put_off(self, note: PendingNote) -> Update[PendingNote]:
        """Returns the change that delays a refused text, twice as long after each refusal."""
        refused = note.get("refused", 0)
        wait = min(FIRST_WAIT * 2 ** min(refused, 20), LONGEST_WAIT)
        fields: PendingNote = {"refused": refused + 1, "not_before": rfc3339(self._clock.now() + wait)}
        return Update(PENDING, SYSTEM, note["note_id"], set=fields)

    async def _try(self, changes: Sequence[Change]) -> bool:
        """Commits the changes. After a conflict it returns False, and the record is tried again next time."""
        with suppress(CommitConflict):
            await self._store.commit(changes)
            return True
        return False


# --- The move to another model ----------------------------------------------------------------------------------------


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
PARTITIONS_AT_ONCE = 200


ROUNDS, SMALL_ROUNDS = 5, 20
"""`ROUNDS`: how often records are counted.

`SMALL_ROUNDS`: how often, before each count, records that others have just written are looked for.
"""
PAUSE_SECONDS = 0.25
LATEST = "latest"
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
            while partitions := await self._vectors.partitions(
                kind.collection, self._model, after, PARTITIONS_AT_ONCE, which
            ):
                after = partitions[-1]
                done += await self._move_partitions(kind, partitions, seen, None if limit is None else limit - done)
                if limit is not None and done >= limit:
                    return done
        return done

    async def _move_partitions(
        self, kind: Embeddable, partitions: Sequence[int], seen: ReportProgress, limit: int | None
    ) -> int:
        """Embeds the records of some partitions. While one page is written, the next is read and embedded."""
        place = begun = done = 0
        writing: asyncio.Task[int] | None = None
        try:
            while (limit is None or begun < limit) and (
                page := await self._vectors.missing_vectors(kind.collection, partitions, self._model, place, AT_ONCE)
            ):
                place, begun = page[-1].row, begun + len(page)
                # the records that the model accepts; their versions stay, since nothing changes for a caller
                embeddings = Embeddings(self._embedder)
                read = [(row.doc, await checked_text(kind, row.doc)) for row in page]
                readable = [(doc, text) for doc, text in read if text is not None]
                entries = await embeddings.entries_each([text for _, text in readable])
                updates = [
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
                if writing is not None:
                    done += await writing
                writing = asyncio.create_task(self._write(updates, seen))
        finally:
            if writing is not None:
                done += await writing
        await self._vectors.mark_migrated(kind.collection, partitions, self._model)
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
        dim = self._embedder.dim
        return {
            kind.collection.name: await self._vectors.counts(kind.collection, self._model, dim) for kind in self._kinds
        }

    async def drop_previous_vectors(self) -> int:
        """Deletes the alternate vectors of other models. Returns how many."""
        return sum([await self._vectors.drop_previous_vectors(kind.collection) for kind in self._kinds])

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


# --- The job ----------------------------------------------------------------------------------------------------------

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
