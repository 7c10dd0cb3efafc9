"""The embedder: caches query vectors and sends all other texts to one batch queue."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from app.core.process import off_loop
from app.embedding.batching import BatchQueue
from app.embedding.model import Vectors
from app.embedding.queue import EmbeddingRequest
from app.errors import EmbeddingUnavailable

log = logging.getLogger(__name__)


class Embedder(Protocol):
    """Turns texts into unit vectors. Every failure is an EmbeddingUnavailable; every returned vector is valid."""

    @property
    def name(self) -> str:
        """Model and variant. It is stored with each vector; vectors of different names are never compared."""
        ...

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        ...

    @property
    def ready(self) -> bool:
        """False after `close`, or if the thread has died."""
        ...

    async def embed_query(self, text: str) -> Vectors:
        """Returns the vector of a query, shape (dim,), float32, of unit length, read-only.

        The model's prompt for queries is put before the text. Queries go before all bulk work. The result is cached by
        text.
        """
        ...

    async def embed_texts(self, texts: Sequence[str]) -> Vectors:
        """Returns the vectors, shape (n, dim), float32, of unit length, in the order of `texts`.

        The model's prompt for passages is put before each text. If the caller is cancelled, the rest is not computed.
        """
        ...

    async def windows(self, texts: Sequence[str]) -> list[list[str]]:
        """Returns, for each text, the parts that the model reads in full: one for most texts, at most
        `batching.MAX_WINDOWS`.

        The parts are input for `embed_texts`.
        """
        ...

    async def close(self) -> None:
        """Waits for the batch under way, fails all waiting requests, and ends the thread."""
        ...


class BatchingEmbedder:
    """An `Embedder` over one `BatchQueue`. Use it from one event loop at a time."""

    def __init__(self, queue: BatchQueue, *, query_cache: int = 1024) -> None:
        """Creates the embedder.

        `query_cache`: number of cached query vectors (1.5 kB each at 384 dimensions); 0 caches none.
        """
        self._queue = queue
        self._cache: OrderedDict[str, Vectors] = OrderedDict()
        self._cache_size = query_cache
        self._flying: dict[
            str, tuple[EmbeddingRequest, int]
        ] = {}  # text → its request and the number of callers that await it

    @property
    def name(self) -> str:
        return self._queue.model.name

    @property
    def dim(self) -> int:
        return self._queue.model.dim

    @property
    def ready(self) -> bool:
        return self._queue.alive

    async def embed_query(self, text: str) -> Vectors:
        if text in self._cache:
            self._cache.move_to_end(text)
            return self._cache[text]
        request = self._join(text)
        try:
            # Shielded, so that the cancellation of one caller does not cancel the request of the others.
            vector: Vectors = (await asyncio.shield(request.future))[0]
        finally:
            self._leave(text, request)
        self._keep(text, vector)
        return vector

    async def embed_texts(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.empty((0, self.dim), np.float32)
        prompt = self._queue.model.prompts.passage
        return await self._queue.submit([prompt + text for text in texts]).future

    async def windows(self, texts: Sequence[str]) -> list[list[str]]:
        model = self._queue.model
        try:
            return await off_loop(sum(map(len, texts)), lambda: [model.split(text) for text in texts])
        except Exception as error:
            log.exception("a text could not be split into windows")
            raise EmbeddingUnavailable(f"the text could not be tokenized: {error}") from error

    async def close(self) -> None:
        await asyncio.to_thread(self._queue.close)

    def _join(self, text: str) -> EmbeddingRequest:
        request, callers = self._flying.get(text) or (
            self._queue.submit([self._queue.model.prompts.query + text], urgent=True),
            0,
        )
        self._flying[text] = (request, callers + 1)
        return request

    def _leave(self, text: str, request: EmbeddingRequest) -> None:
        _, callers = self._flying[text]
        if callers > 1:
            self._flying[text] = (request, callers - 1)
        else:
            del self._flying[text]
            request.future.cancel()  # no effect if it is done

    def _keep(self, text: str, vector: Vectors) -> None:
        vector.setflags(write=False)
        self._cache[text] = vector
        if len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
