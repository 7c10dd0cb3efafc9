"""Vectors for memories about to be written. A model that fails keeps no write back: the memory waits for its vector."""

import logging
from collections.abc import Sequence

from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.errors import EmbeddingUnavailable
from app.memories.documents import entry_of
from app.offload import off_loop
from app.storage.collection import Doc, SearchEntry

log = logging.getLogger(__name__)


class Embeddings:
    """Of one request: a text is embedded once, however often the write is planned."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vectors] = {}

    async def entries(self, docs: Sequence[Doc]) -> list[SearchEntry]:
        """What search keeps of each memory; without a vector where the embedder failed."""
        vectors = await self._vectors(docs)
        return await off_loop(sum(len(doc["content"]) for doc in docs), self._entries, docs, vectors)

    def _entries(self, docs: Sequence[Doc], vectors: Sequence[Vectors | None]) -> list[SearchEntry]:
        return [entry_of(doc, vector, self._embedder.name) for doc, vector in zip(docs, vectors, strict=True)]

    async def _vectors(self, docs: Sequence[Doc]) -> list[Vectors | None]:
        missing = list(dict.fromkeys(doc["content"] for doc in docs if doc["content"] not in self._made))
        try:
            vectors = await self._embedder.embed_texts(missing)
        except EmbeddingUnavailable as fault:
            log.warning("embedding failed", extra={"error": fault.detail, "texts": len(missing)})
        else:
            self._made.update(zip(missing, vectors, strict=True))
        return [self._made.get(doc["content"]) for doc in docs]

    def info(self, entry: SearchEntry) -> Doc:
        """`embedding` of a memory."""
        status = "pending" if entry.vector is None else "ready"
        return {"model": self._embedder.name, "dim": self._embedder.dim, "status": status}
