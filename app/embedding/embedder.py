"""Vectors of texts: requests are batched for the model, and vectors of queries are cached."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np

from app.core.caches import ENTRY_BYTES, ByteCache, digest
from app.core.language import words_and_english
from app.core.work import CHARACTERS_PER_UNIT, charge, give_way, in_parts, tenant_at_work
from app.embedding.model import Model, Vectors, encode_checked, estimated_tokens, knows_all_scripts, span_of
from app.errors import EmbeddingUnavailable
from app.metrics import EMBEDDING_QUEUE

# --- The queue --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class EmbeddingRequest:
    """The texts of one caller. The model's thread fills the rows; the future belongs to the caller's event loop."""

    texts: Sequence[str]
    rows: Vectors
    future: asyncio.Future[Vectors]
    urgent: bool = False
    tenant: str = ""
    begun: int = 0  # number of texts that were put into batches
    finished: int = 0
    failed: bool = False

    @property
    def dropped(self) -> bool:
        """Whether the request has failed or was cancelled."""
        return self.failed or self.future.done()  # a future that is done early was cancelled by the caller

    @property
    def exhausted(self) -> bool:
        """Whether all texts have been put into batches."""
        return self.begun == len(self.texts)

    def put(self, index: int, vector: Vectors) -> None:
        """Stores the vector of a text. The last vector completes the request."""
        self.rows[index] = vector
        self.finished += 1
        if self.finished == len(self.texts) and not self.failed:
            self._tell(None)

    def fail(self, error: Exception) -> None:
        """Completes the request with an error, unless it has failed already."""
        if not self.failed:
            self.failed = True
            self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        try:
            self.future.get_loop().call_soon_threadsafe(self._settle, error)
        except RuntimeError:
            log.debug("the caller's event loop is closed: nobody waits")

    def _settle(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.rows)
        else:
            self.future.set_exception(error)


URGENT_IN_A_ROW = 8
"""Maximum query batches in a row while bulk work waits. Without it, many queries could stop all writes."""


class TenantTurns:
    """One lane for each tenant. The tenants take turns."""

    def __init__(self) -> None:
        self.lanes: dict[str, deque[EmbeddingRequest]] = {}  # the first tenant has the next turn
        self._served = ""

    def add(self, request: EmbeddingRequest) -> None:
        """Adds a request to the lane of its tenant."""
        self.lanes.setdefault(request.tenant, deque()).append(request)

    def drop_empty(self) -> None:
        """Removes lanes without requests."""
        self.lanes = {tenant: lane for tenant, lane in self.lanes.items() if lane}

    def next(self) -> deque[EmbeddingRequest] | None:
        """Returns the lane of the tenant whose turn it is, or None."""
        if self._served in self.lanes:  # moved to the end only now, so that a tenant that came meanwhile goes first
            self.lanes[self._served] = self.lanes.pop(self._served)
        self._served = next(iter(self.lanes), "")
        return self.lanes.get(self._served)


QueuedText = tuple[EmbeddingRequest, int]  # a request and the index of one of its texts


class Backlog:
    """Waiting requests in lanes, two for each tenant: one for its queries and one for its bulk work. Chooses batches:
    queries before bulk work, whose tenants take turns.

    Each batch contains texts of one lane. The requests of a tenant lead a batch in turn, so that none waits for all
    texts of another.
    """

    def __init__(self, batch_tokens: int) -> None:
        self._cap = batch_tokens
        self._queries, self._bulk = TenantTurns(), TenantTurns()
        self._urgent_runs = 0

    def __bool__(self) -> bool:
        return any(self._lanes())

    def add(self, request: EmbeddingRequest) -> None:
        (self._queries if request.urgent else self._bulk).add(request)

    def drain(self) -> list[EmbeddingRequest]:
        """Removes and returns all waiting requests."""
        requests = [request for lane in self._lanes() for request in lane]
        self._queries, self._bulk = TenantTurns(), TenantTurns()
        return requests

    def next_batch(self) -> list[QueuedText]:
        """Returns the next batch, of at most `batch_tokens` with padding, or one text. Tokens are estimated.

        It is empty if all waiting requests were cancelled or have failed.
        """
        lane, batch, longest = self._next_lane(), list[QueuedText](), 0
        if lane is None:
            return batch
        for request, index in ((one, index) for one in lane for index in range(one.begun, len(one.texts))):
            longest = max(longest, estimated_tokens(request.texts[index]))
            if batch and longest * (len(batch) + 1) > self._cap:
                break
            batch.append((request, index))
            request.begun += 1
        lane.rotate(-1)  # another request leads the next batch
        _prune(lane)
        return batch

    def _lanes(self) -> Iterator[deque[EmbeddingRequest]]:
        yield from self._queries.lanes.values()
        yield from self._bulk.lanes.values()

    def _next_lane(self) -> deque[EmbeddingRequest] | None:
        """Returns the lane whose turn it is, without requests that nobody waits for, or None."""
        for lane in self._lanes():
            _prune(lane)
        self._queries.drop_empty()
        self._bulk.drop_empty()
        if self._queries.lanes and self._bulk.lanes and self._urgent_runs < URGENT_IN_A_ROW:
            self._urgent_runs += 1
            return self._queries.next()
        self._urgent_runs = 0
        return self._bulk.next() or self._queries.next()


def _prune(lane: deque[EmbeddingRequest]) -> None:
    lasting = [request for request in lane if not request.dropped and not request.exhausted]
    lane.clear()
    lane.extend(lasting)


# --- Batches ----------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

VECTOR_ITEM_BYTES = 4
JUDGED_WORDS, LEAST_ENGLISH = 500, 0.15
"""After so many words it is clear whether what is stored is English, and by which share of small words."""

ObserveBatch = Callable[[int, float], None]  # takes the number of texts and the seconds; called in the model's thread


class BatchQueue:
    """A queue of texts for one model. Call `submit` from an event loop, and `close` from any thread but the model's."""

    def __init__(
        self,
        model: Model,
        *,
        batch_tokens: int = 256,
        observe: ObserveBatch | None = None,
        gives_way: bool = False,
    ) -> None:
        """Starts the model's thread.

        `batch_tokens`: maximum tokens of a batch, padding included. It limits how long a query waits. A model on this
        machine's CPU takes fewer at once (`Model.piece_tokens`). `gives_way`: the thread has a low priority.
        """
        self.model = model
        self._observe = observe
        self._gives_way = gives_way
        self._words = self._english = 0  # of what is stored, until it is known that the model suits it or not
        self._language_judged = knows_all_scripts(model.name)
        self._inbox: list[EmbeddingRequest] = []
        self._closing = False
        self._wake = threading.Condition()
        self._backlog = Backlog(min(batch_tokens, model.piece_tokens or batch_tokens))
        self._thread = threading.Thread(target=self._work, name="embedding", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """False once the queue closes, or if the thread has died."""
        return self._thread.is_alive() and not self._closing

    def submit(self, texts: Sequence[str], *, urgent: bool = False) -> EmbeddingRequest:
        """Queues texts and returns the request. Await its future, or cancel it to drop what has not run yet.

        Raises EmbeddingUnavailable if the queue is closed.
        """
        future = asyncio.get_running_loop().create_future()
        rows = np.empty((len(texts), self.model.dim), np.float32)
        request = EmbeddingRequest(list(texts), rows, future, urgent, tenant_at_work())
        with self._wake:
            if not self.alive:
                raise EmbeddingUnavailable("the embedder is closed")
            self._inbox.append(request)
            self._wake.notify()
        charge(sum(map(len, texts)) / CHARACTERS_PER_UNIT)
        EMBEDDING_QUEUE.inc(len(texts))
        future.add_done_callback(lambda _: EMBEDDING_QUEUE.dec(len(texts)))
        return request

    def close(self) -> None:
        """Waits for the batch under way; all waiting requests fail with EmbeddingUnavailable."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        if self._gives_way:
            give_way()
        try:
            while self._admit():
                if batch := self._backlog.next_batch():
                    self._run(batch)
        except Exception:
            log.exception("the embedding thread died")
        finally:
            with self._wake:
                self._closing = True
                for request in (*self._backlog.drain(), *self._inbox):
                    request.fail(EmbeddingUnavailable("the embedder is closed"))

    def _admit(self) -> bool:
        """Takes in new requests, and waits if there is nothing to do. Returns False once the queue closes."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing or self._inbox or self._backlog)
            for request in self._inbox:
                self._backlog.add(request)
            self._inbox.clear()
            return not self._closing

    def _run(self, batch: list[QueuedText]) -> None:
        start = time.perf_counter()
        try:
            vectors, fit = encode_checked(self.model, [request.texts[index] for request, index in batch])
        except EmbeddingUnavailable as error:
            log.warning("a batch of %d texts was not embedded: %s", len(batch), error.detail)
            self._run_apart(batch, error)
            return
        except Exception as error:
            log.exception("a batch of %d texts could not be embedded", len(batch))
            self._run_apart(batch, error)
            return
        if self._observe:
            self._observe(len(batch), time.perf_counter() - start)
        if not self._language_judged:
            self._read_language([request.texts[index] for request, index in batch if not request.urgent])
        for (request, index), vector, good in zip(batch, vectors, fit, strict=True):
            if good:
                request.put(index, vector)
            else:
                request.fail(EmbeddingUnavailable(f"{self.model.name} gave a vector that is not of unit length"))

    def _read_language(self, stored: Sequence[str]) -> None:
        """Warns once if most of what is stored is in a language that the model has not learned."""
        for words, english in map(words_and_english, stored):
            self._words, self._english = self._words + words, self._english + english
        if self._words >= JUDGED_WORDS and self._english < LEAST_ENGLISH * self._words:
            self._language_judged = True
            log.warning(
                "most of the texts are not in English, which alone the embedding model has learned: they are found by "
                "their words. RECALLD_EMBEDDING_MODEL=multilingual finds them by their meaning",
                extra={"model": self.model.name, "how": "docs/guides/embedding.md#other-languages"},
            )

    def _run_apart(self, batch: list[QueuedText], error: Exception) -> None:
        """Runs each caller's texts separately after a failure, so that only the failing caller gets the error."""
        parts = [list(part) for _, part in groupby(sorted(batch, key=_caller), key=_caller)]
        if len(parts) > 1:
            for part in parts:
                self._run(part)
        else:
            after = error.retry_after if isinstance(error, EmbeddingUnavailable) else 1
            unavailable = EmbeddingUnavailable(f"{self.model.name} failed: {error}", retry_after=after)
            unavailable.__cause__ = error
            batch[0][0].fail(unavailable)


def _caller(item: QueuedText) -> int:
    return id(item[0])


class Embedder(Protocol):
    """Turns texts into unit vectors. Every failure is an EmbeddingUnavailable; every returned vector is valid."""

    @property
    def name(self) -> str:
        """Model and variant. It is stored with each vector; vectors of different names are never compared."""

    @property
    def dim(self) -> int:
        """Number of dimensions."""

    @property
    def ready(self) -> bool:
        """False after `close`, or if the thread has died."""

    async def embed_query(self, text: str) -> Vectors:
        """Returns the vector of a query, shape (dim,), float32, of unit length, read-only.

        The model's prompt for queries is put before the text. Queries go before all bulk work. The result is cached by
        text.
        """

    async def embed_texts(self, texts: Sequence[str]) -> Vectors:
        """Returns the vectors, shape (n, dim), float32, of unit length, in the order of `texts`.

        The model's prompt for passages is put before each text. If the caller is cancelled, the rest is not computed.
        """

    async def windows(self, texts: Sequence[str]) -> list[list[str]]:
        """Returns, for each text, the parts that the model reads in full: one for most texts, at most
        `MAX_WINDOWS` (`model.py`).

        The parts are input for `embed_texts`.
        """

    async def close(self) -> None:
        """Waits for the batch under way, fails all waiting requests, and ends the thread."""


class BatchingEmbedder:
    """An `Embedder` over one `BatchQueue`, or two. Use it from one event loop at a time."""

    def __init__(self, queue: BatchQueue, *, queries: BatchQueue | None = None, query_cache: int = 1024) -> None:
        """Creates the embedder.

        `queries`: a queue of the same model, of its own for queries, so that none waits for the text under way.
        `query_cache`: number of cached query vectors (1.5 kB each at 384 dimensions); 0 caches none.
        """
        self._queue = queue
        self._queries = queries or queue
        entry = VECTOR_ITEM_BYTES * queue.model.dim
        self._kept = ByteCache[bytes, Vectors](query_cache * (ENTRY_BYTES + entry), lambda *_: entry)
        """Vectors by a digest of the query, which may be long."""
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
        return self._queue.alive and self._queries.alive

    async def embed_query(self, text: str) -> Vectors:
        if (vector := self._kept.get(digest(text))) is not None:
            return vector
        with span_of(self._queue.model, 1):
            request, callers = self._flying.get(text) or (
                self._queries.submit([self._queries.model.prompts.query + text], urgent=True),
                0,
            )
            self._flying[text] = (request, callers + 1)
            try:
                # Shielded, so that the cancellation of one caller does not cancel the request of the others.
                embedded: Vectors = (await asyncio.shield(request.future))[0]
            finally:
                _, callers = self._flying[text]
                if callers > 1:
                    self._flying[text] = (request, callers - 1)
                else:
                    del self._flying[text]
                    request.future.cancel()  # no effect if it is done
            embedded.setflags(write=False)
            return self._kept.keep(digest(text), embedded)

    async def embed_texts(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.empty((0, self.dim), np.float32)
        prompt = self._queue.model.prompts.passage
        with span_of(self._queue.model, len(texts)):
            return await self._queue.submit([prompt + text for text in texts]).future

    async def windows(self, texts: Sequence[str]) -> list[list[str]]:
        model = self._queue.model
        try:
            return await in_parts(texts, model.split, len)
        except Exception as error:
            log.exception("a text could not be split into windows")
            raise EmbeddingUnavailable(f"the text could not be tokenized: {error}") from error

    async def close(self) -> None:
        for queue in (self._queries, self._queue):
            await asyncio.to_thread(queue.close)
