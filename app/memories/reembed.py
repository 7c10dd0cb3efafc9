"""Moving everything that is found by meaning to another embedding model, while others use the store.

A record's new vector takes the place of the old one, which stays beside it until it is dropped: who searches by the old
model finds what it found before. What is done is told by the rows themselves, so that a move that was broken off goes
on where it was, and whoever writes with the old model meanwhile leaves a row that is seen to lack the new one.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from app.core.clock import SystemClock
from app.embedding.embedder import Embedder
from app.errors import EmbeddingUnavailable, StoreUnavailable
from app.memories.embedding_backfill import Embeddable, PendingEmbeddings
from app.memories.indexing import Embeddings
from app.memories.models import MOVES
from app.storage.changes import CommitConflict, Insert, Update
from app.storage.index.record_codec import model_id
from app.storage.protocol import MissingVector, PartitionSelector, Store, VectorCounts
from app.storage.scope import SYSTEM

AT_ONCE = 256
"""Documents read and embedded together."""
COMMITTED_AT_ONCE = 32
"""Few, because whoever writes to the same scopes waits for so many."""
PAIRS_AT_ONCE = 200
ROUNDS, SMALL_ROUNDS = 5, 20
"""How often it is counted, and before each count, how often what others have just written is looked for."""
PAUSE_SECONDS = 0.25
LATEST = "latest"

ReportProgress = Callable[[int], None]


class Reembed:
    def __init__(self, store: Store, embedder: Embedder, kinds: Sequence[Embeddable], *, patience: float = 0) -> None:
        """`patience`: how many seconds a write may be tried for while the store is away."""
        self._store, self._embedder, self._kinds, self._patience = store, embedder, kinds, patience
        self._vectors = store.reembedding
        self._model = model_id(embedder.name, embedder.dim)

    async def begin(self, now: str) -> None:
        """Notes that this is the model to be in: services that run it embed what is left."""
        fields = {"model": self._embedder.name, "dim": self._embedder.dim, "updated_at": now}
        with suppress(CommitConflict):
            await self._store.commit(
                [Insert(MOVES, {"tenant_id": SYSTEM, "move_id": LATEST, "created_at": now, **fields})]
            )
            return
        await self._store.commit([Update(MOVES, SYSTEM, LATEST, set=fields)])

    async def run(self, seen: ReportProgress) -> dict[str, VectorCounts]:
        """Until all have a vector of the model, or no more can be had. What was counted at the end, by collection.

        Raises EmbeddingUnavailable where the model is away; what is done stays done.
        """
        seen(await PendingEmbeddings(self._store, self._embedder, self._kinds, SystemClock()).embed_all())
        await self._rounds(seen)
        counts = await self.counts()
        for _ in range(ROUNDS):
            # now not going by what the pairs know: that does not agree
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
        """One round over such pairs, or over `limit` documents of them; how many were embedded."""
        done = 0
        for kind in self._kinds:
            after = 0
            while pairs := await self._vectors.pairs(kind.collection, self._model, after, PAIRS_AT_ONCE, which):
                after = pairs[-1]
                done += await self._move_pairs(kind, pairs, seen, None if limit is None else limit - done)
                if limit is not None and done >= limit:
                    return done
        return done

    async def _move_pairs(self, kind: Embeddable, pairs: Sequence[int], seen: ReportProgress, limit: int | None) -> int:
        """While one page is written, the next is read and embedded."""
        place = begun = done = 0
        writing: asyncio.Task[int] | None = None
        try:
            while (limit is None or begun < limit) and (page := await self._page(kind, pairs, place)):
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

    async def _page(self, kind: Embeddable, pairs: Sequence[int], after: int) -> list[MissingVector]:
        return await self._vectors.missing_vectors(kind.collection, pairs, self._model, after, AT_ONCE)

    async def behind(self) -> bool:
        """Whether `catch_up` would look at any pair. Reads only."""
        if not await self._moved_to_ours():
            return False
        for kind in self._kinds:
            if await self._vectors.pairs(kind.collection, self._model, 0, 1, "unlike"):
                return True
        return False

    async def catch_up(self, limit: int) -> int:
        """What others wrote with another model, if this store was moved to ours; how many were embedded."""
        if not await self._moved_to_ours():
            return 0
        with suppress(EmbeddingUnavailable):  # it is back another time
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
        """Forgets the vectors of other models; how many."""
        return sum([await self._vectors.drop_previous_vectors(kind.collection) for kind in self._kinds])

    async def _updates(self, kind: Embeddable, page: Sequence[MissingVector]) -> list[Update]:
        """Of those that the model takes. Nothing that a caller asked for, so the version stays."""
        embeddings = Embeddings(self._embedder)
        entries = await embeddings.entries_each([kind.passage(one.doc) for one in page])
        return [
            Update(
                kind.collection,
                one.doc["tenant_id"],
                one.doc[kind.collection.id_field],
                set=kind.fields(embeddings.info(entry)),
                expect={"version": one.doc["version"]},
                entry=entry,
                keep=True,
            )
            for one, entry in zip(page, entries, strict=True)
            if entry.vector is not None
        ]

    async def _write(self, updates: Sequence[Update], seen: ReportProgress) -> int:
        done = 0
        for at in range(0, len(updates), COMMITTED_AT_ONCE):
            committed = await self._commit(updates[at : at + COMMITTED_AT_ONCE])
            seen(committed)
            done += committed
        return done

    async def _commit(self, updates: Sequence[Update]) -> int:
        """What has changed meanwhile is left for the next round."""
        if await self._committed(updates):
            return len(updates)
        return sum([await self._committed([update]) for update in updates])

    async def _committed(self, updates: Sequence[Update]) -> bool:
        """A store that is away for a while, or that holds records for a process that was killed, is waited for: what
        was embedded cost something."""
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
    return all(count.of_model == count.records for count in counts.values())
