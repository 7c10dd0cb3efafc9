"""Texts that wait for the model: requests, fair turns for queries and tenants, and the choice of the next batch."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from app.embedding.model import Vectors
from app.errors import EmbeddingUnavailable

log = logging.getLogger(__name__)


@dataclass(eq=False)
class EmbeddingRequest:
    """The texts of one caller. The model's thread fills the rows; the future belongs to the caller's event loop."""

    texts: Sequence[str]
    rows: Vectors
    future: asyncio.Future[Vectors]
    urgent: bool = False
    tenant: str = ""
    measured: int = 0  # number of texts whose length is known
    waiting: list[tuple[int, int]] = field(default_factory=list)  # (length, index) of measured texts that have not run
    finished: int = 0
    failed: bool = False

    @property
    def dropped(self) -> bool:
        """Whether the request has failed or was cancelled."""
        return self.failed or self.future.done()  # a future that is done early was cancelled by the caller

    @property
    def exhausted(self) -> bool:
        """Whether all texts have been put into batches."""
        return self.measured == len(self.texts) and not self.waiting

    def measured_as(self, lengths: Sequence[int]) -> None:
        """Adds the lengths of the next texts."""
        end = self.measured + len(lengths)
        self.waiting += zip(lengths, range(self.measured, end), strict=True)
        self.measured = end

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


class FairQueue:
    """Waiting requests in lanes: two for each tenant, one for its queries and one for its bulk work."""

    def __init__(self) -> None:
        self._queries, self._bulk = TenantTurns(), TenantTurns()
        self._urgent_runs = 0

    def __bool__(self) -> bool:
        return any(self._lanes())

    def add(self, request: EmbeddingRequest) -> None:
        """Adds a request to its lane."""
        (self._queries if request.urgent else self._bulk).add(request)

    def drain(self) -> list[EmbeddingRequest]:
        """Removes and returns all waiting requests."""
        requests = [request for lane in self._lanes() for request in lane]
        self._queries, self._bulk = TenantTurns(), TenantTurns()
        return requests

    def next_lane(self, prune: Callable[[deque[EmbeddingRequest]], None]) -> deque[EmbeddingRequest] | None:
        """Returns the lane whose turn it is, or None. `prune` removes requests from a lane that nobody waits for."""
        for lane in self._lanes():
            prune(lane)
        self._queries.drop_empty()
        self._bulk.drop_empty()
        if self._queries.lanes and self._bulk.lanes and self._urgent_runs < URGENT_IN_A_ROW:
            self._urgent_runs += 1
            return self._queries.next()
        self._urgent_runs = 0
        return self._bulk.next() or self._queries.next()

    def _lanes(self) -> Iterator[deque[EmbeddingRequest]]:
        yield from self._queries.lanes.values()
        yield from self._bulk.lanes.values()


MEASURED_AT_ONCE = 16
"""Maximum texts that are tokenized between two batches."""
MEASURED_CHARS = 8_000
"""Approximate maximum characters that are tokenized between two batches, because a query waits for this as well.

Large batches measure more texts: as many as fill one with texts of `SHORT_TOKENS`.
"""
SHORT_TOKENS = 32
LOOKED_AHEAD = 256
"""Number of measured texts of a lane among which texts of similar length are chosen."""


QueuedText = tuple[EmbeddingRequest, int]  # a request and the index of one of its texts


class Backlog:
    """Chooses batches: queries before bulk work, whose tenants take turns.

    Each batch contains texts of one lane. The requests of a tenant lead a batch in turn, so that none waits for all
    texts of another.
    """

    def __init__(self, lengths: Callable[[Sequence[str]], list[int]], batch_tokens: int) -> None:
        self._lengths = lengths
        self._cap = batch_tokens
        self._at_once = max(MEASURED_AT_ONCE, batch_tokens // SHORT_TOKENS)
        self._turns = FairQueue()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add(self, request: EmbeddingRequest) -> None:
        """Adds a request."""
        self._turns.add(request)

    def drain(self) -> list[EmbeddingRequest]:
        """Removes and returns all waiting requests."""
        return self._turns.drain()

    def next_batch(self) -> list[QueuedText]:
        """Returns the next batch, of at most `batch_tokens` with padding, or one text.

        It is empty if all waiting requests were cancelled or have failed.
        """
        lane = self._turns.next_lane(_prune)
        if lane is None:
            return []
        self._measure(lane)
        _prune(lane)
        batch = self._choose(lane) if lane else []
        _prune(lane)
        return batch

    def _measure(self, lane: deque[EmbeddingRequest]) -> None:
        """Measures some more texts of the lane, and at least one if none is measured."""
        texts, chars = min(self._at_once, LOOKED_AHEAD - sum(len(request.waiting) for request in lane)), MEASURED_CHARS
        known = False
        for request in lane:
            least = 0 if known or request.waiting else 1
            some = _beginning(request, least, texts, chars)
            texts, chars = texts - len(some), chars - sum(map(len, some))
            try:
                request.measured_as(self._lengths(some) if some else [])
            except Exception as error:
                log.exception("a text could not be tokenized")
                request.fail(EmbeddingUnavailable(f"the text could not be tokenized: {error}"))
                continue
            known = known or bool(request.waiting)

    def _choose(self, lane: deque[EmbeddingRequest]) -> list[QueuedText]:
        """Returns the longest text of the leading request and those nearest to it in length, to reduce padding."""
        lead = lane[0]
        seed = max(lead.waiting)
        lane.rotate(-1)
        near = sorted(
            ((length, index, request) for request in lane for length, index in request.waiting),
            key=lambda item: (abs(item[0] - seed[0]), item[2] is not lead),
        )
        chosen, longest = near[:1], near[0][0]
        for item in near[1:]:
            longest = max(longest, item[0])
            if longest * (len(chosen) + 1) > self._cap:
                break
            chosen.append(item)
        for length, index, request in chosen:
            request.waiting.remove((length, index))
        return [(request, index) for _, index, request in chosen]


def _beginning(request: EmbeddingRequest, least: int, texts: int, chars: int) -> Sequence[str]:
    """Returns the next texts to measure: at most `texts` and about `chars` characters, but at least `least`."""
    start = end = request.measured
    while end < len(request.texts) and (end - start < least or (end - start < texts and chars > 0)):
        chars -= len(request.texts[end])
        end += 1
    return request.texts[start:end]


def _prune(lane: deque[EmbeddingRequest]) -> None:
    lasting = [request for request in lane if not request.dropped and not request.exhausted]
    lane.clear()
    lane.extend(lasting)
