"""Embedding backfill: embeds records that were stored while the embedder failed.

The list of pending records lies in the store, so it survives a crash.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from app.core.clock import Clock, SystemClock, rfc3339
from app.core.work import off_loop
from app.embedding.embedder import Embedder
from app.errors import EmbeddingUnavailable, RecordDamaged
from app.jobs.skipping import skipping
from app.memories.embedding import Embeddings, Passage
from app.memories.pending import MEMORY, PENDING, Embeddable, PendingNote
from app.metrics import PENDING as WAITING
from app.storage.changes import Change, CommitConflict, Delete, Update
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import Doc, Not, R, Range
from app.storage.scope import SYSTEM

AT_ONCE = 64
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(days=1)
"""Wait before a text that the model refused is tried again. It doubles with each refusal."""


async def passage_of(kind: Embeddable[R], record: R) -> Passage | None:
    """Returns the text of a record that is to be indexed, or None if a job skips it because its terms cannot be made.
    Outside a job the error is raised."""
    with skipping(kind.collection, record.get(kind.collection.id_field)):
        passage = kind.passage(record)
        await off_loop(len(passage.content), passage.indexed)
        return passage
    return None


class _Waiting(NamedTuple):
    """A note of the list, with the record that it names, of any collection, and the record's text."""

    note: PendingNote
    kind: Embeddable
    record: Doc
    passage: Passage


class PendingEmbeddings:
    """Embeds the records on the list of pending embeddings."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        kinds: Sequence[Embeddable] = (MEMORY,),
        clock: Clock | None = None,
    ) -> None:
        self._store, self._embedder, self._clock = store, embedder, clock or SystemClock()
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
            async for notes in pages(partial(self._store.find, PENDING, SYSTEM), PENDING, AT_ONCE):
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
            passage = await passage_of(kind, record)
            if passage is None:
                await self._try([self._put_off(note)])
            else:
                waiting.append(_Waiting(note, kind, record, passage))
        embeddings = Embeddings(self._embedder)
        entries = await embeddings.entries_each([item.passage for item in waiting])
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
