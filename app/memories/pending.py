"""Embeds what was kept while the embedder failed. The list lies in the store, so that no crash forgets it."""

import logging

from app.embedding.embedder import Embedder
from app.memories.documents import passage
from app.memories.embeddings import Embeddings
from app.memories.models import MEMORIES, PENDING
from app.memories.repository import MemoryRepository
from app.metrics.parts import PENDING as WAITING
from app.storage.collection import CommitConflict, Delete, Doc, Store
from app.storage.scope import SYSTEM, Scope

AT_ONCE = 64

log = logging.getLogger(__name__)


class PendingEmbeddings:
    def __init__(self, store: Store, embedder: Embedder) -> None:
        self._store, self._embedder = store, embedder

    async def embed_all(self) -> int:
        """Until none is left or the embedder fails still; how many were embedded."""
        done = 0
        while embedded := await self.step():
            done += embedded
        return done

    async def step(self) -> int:
        """Embeds some; how many. 0 when none is left or the embedder fails still."""
        notes = await self._store.find(PENDING, SYSTEM, order="asc", limit=AT_ONCE)
        WAITING.set(len(notes))
        done = [await self._embed(note) for note in notes]
        return len(done) if all(done) else 0

    async def _embed(self, note: Doc) -> bool:
        memories = MemoryRepository(self._store, Scope(note["tenant"]))
        doc = await memories.find_one(note["memory_id"])
        if doc is None or doc["embedding"]["status"] == "ready":
            await self._forget(note)
            return True
        embeddings = Embeddings(self._embedder)
        (entry,) = await embeddings.entries([passage(doc)])
        if entry.vector is None:
            return False
        changes = memories.embedded(doc, embeddings.info(entry), entry, note)
        try:
            await self._store.commit(changes)
        except CommitConflict:
            log.info("pending memory changed meanwhile", extra={"collection": MEMORIES.name})
        return True

    async def _forget(self, note: Doc) -> None:
        try:
            await self._store.commit([Delete(PENDING, SYSTEM, note["note_id"])])
        except CommitConflict:
            return
