"""Embeds what was kept while the embedder failed. The list lies in the store, so that no crash forgets it."""

import asyncio
import logging

from app.auth.models import SYSTEM
from app.embedding.embedder import Embedder
from app.errors import RecalldError
from app.memories.documents import passage
from app.memories.embeddings import Embeddings
from app.memories.models import MEMORIES, PENDING
from app.memories.repository import MemoryRepository
from app.metrics.parts import PENDING as WAITING
from app.storage.collection import CommitConflict, Delete, Doc, Store
from app.storage.scope import Scope

AT_ONCE = 64

log = logging.getLogger(__name__)


class PendingEmbeddings:
    def __init__(self, store: Store, embedder: Embedder, pause_seconds: float) -> None:
        self._store, self._embedder, self._pause = store, embedder, pause_seconds

    async def run(self) -> None:
        """Until cancelled. Two processes may do the same memory: the second finds it done."""
        while True:
            try:
                while await self.step():
                    pass
            except RecalldError as fault:
                log.warning("pending embeddings wait", extra={"error": fault.detail})
            await asyncio.sleep(self._pause)

    async def step(self) -> bool:
        """Embeds some. False when none is left or the embedder fails still."""
        notes = await self._store.find(PENDING, SYSTEM, order="asc", limit=AT_ONCE)
        WAITING.set(len(notes))
        done = [await self._embed(note) for note in notes]
        return bool(done) and all(done)

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
