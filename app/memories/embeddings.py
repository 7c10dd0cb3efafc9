"""Vectors for memories about to be written. A model that fails keeps no write back: the memory waits for its vector."""

import logging
from collections.abc import Sequence

from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.errors import EmbeddingUnavailable
from app.storage.collection import Doc

log = logging.getLogger(__name__)


class Embeddings:
    """Of one request: a text is embedded once, however often the write is planned."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._made: dict[str, Vectors] = {}

    @property
    def model(self) -> str:
        return self._embedder.name

    async def of(self, docs: Sequence[Doc]) -> list[Vectors | None]:
        """One unit vector for each memory's content, or None for each that the embedder failed."""
        missing = list(dict.fromkeys(doc["content"] for doc in docs if doc["content"] not in self._made))
        try:
            vectors = await self._embedder.embed_texts(missing)
        except EmbeddingUnavailable as fault:
            log.warning("embedding failed", extra={"error": fault.detail, "texts": len(missing)})
        else:
            self._made.update(zip(missing, vectors, strict=True))
        return [self._made.get(doc["content"]) for doc in docs]

    def info(self, vector: Vectors | None) -> Doc:
        """`embedding` of a memory."""
        status = "pending" if vector is None else "ready"
        return {"model": self._embedder.name, "dim": self._embedder.dim, "status": status}
