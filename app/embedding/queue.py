"""Texts that wait for the model: requests, fair turns for queries and tenants, the next batch."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from app.embedding.model import Vectors
from app.errors import EmbeddingUnavailable

log = logging.getLogger(__name__)


@dataclass(eq=False)
class EmbeddingRequest:
    """One caller's texts. The model's thread fills the rows; the future belongs to the caller's loop."""

    texts: Sequence[str]
    rows: Vectors
    future: asyncio.Future[Vectors]
    urgent: bool = False
    tenant: str = ""
    measured: int = 0  # texts whose length is known
    waiting: list[tuple[int, int]] = field(default_factory=list)  # (length, index) of those known and not yet run
    finished: int = 0
    failed: bool = False

    @property
    def dropped(self) -> bool:
        return self.failed or self.future.done()  # done before its time: the caller cancelled it

    @property
    def exhausted(self) -> bool:
        return self.measured == len(self.texts) and not self.waiting

    def measured_as(self, lengths: Sequence[int]) -> None:
        """The lengths of the next texts."""
        end = self.measured + len(lengths)
        self.waiting += zip(lengths, range(self.measured, end), strict=True)
        self.measured = end

    def put(self, index: int, vector: Vectors) -> None:
        self.rows[index] = vector
        self.finished += 1
        if self.finished == len(self.texts) and not self.failed:
            self._tell(None)

    def fail(self, error: Exception) -> None:
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
"""After so many runs of queries one piece of bulk work has its turn, so that a flood of queries stops no write."""

_TENANT: ContextVar[str] = ContextVar("embedding_tenant", default="")


def work_for(tenant: str) -> None:
    """What is embedded from now on, in this context and in tasks begun in it, is this tenant's."""
    _TENANT.set(tenant)


def tenant_at_work() -> str:
    return _TENANT.get()


class FairQueue:
    """The requests that wait, in lanes: one of queries, and one of bulk work for each tenant."""

    def __init__(self) -> None:
        self._urgent: deque[EmbeddingRequest] = deque()
        self._tenants: dict[str, deque[EmbeddingRequest]] = {}  # the first one is next
        self._served = ""
        self._urgent_runs = 0

    def __bool__(self) -> bool:
        return any(self._lanes())

    def add(self, request: EmbeddingRequest) -> None:
        lane = self._urgent if request.urgent else self._tenants.setdefault(request.tenant, deque())
        lane.append(request)

    def drain(self) -> list[EmbeddingRequest]:
        """All that waits, which is then forgotten."""
        requests = [request for lane in self._lanes() for request in lane]
        self._urgent.clear()
        self._tenants.clear()
        return requests

    def next_lane(self, prune: Callable[[deque[EmbeddingRequest]], None]) -> deque[EmbeddingRequest] | None:
        """The lane that goes next. `prune` takes out of a lane what nobody waits for."""
        for lane in self._lanes():
            prune(lane)
        self._tenants = {tenant: lane for tenant, lane in self._tenants.items() if lane}
        if self._urgent and self._tenants and self._urgent_runs < URGENT_IN_A_ROW:
            self._urgent_runs += 1
            return self._urgent
        self._urgent_runs = 0
        if not self._tenants:
            return self._urgent or None
        if self._served in self._tenants:  # only now, so that a tenant that came meanwhile goes before it
            self._tenants[self._served] = self._tenants.pop(self._served)
        self._served = next(iter(self._tenants))
        return self._tenants[self._served]

    def _lanes(self) -> Iterator[deque[EmbeddingRequest]]:
        yield self._urgent
        yield from self._tenants.values()


log = logging.getLogger(__name__)

MEASURED_AT_ONCE = 16
MEASURED_CHARS = 8_000
"""Texts, and about how many characters of them, that are tokenized between two batches: a query waits for this, too.
For large batches there are more of them: as many as fill one with texts of `SHORT_TOKENS`."""
SHORT_TOKENS = 32
LOOKED_AHEAD = 256
"""Measured texts of a lane among which those of like length are looked for."""


QueuedText = tuple[EmbeddingRequest, int]  # a request and the index of one of its texts


class Backlog:
    """Queries before bulk work, whose tenants take turns (`turns.py`). A tenant's requests lead a batch in turn, so
    that none waits for all of another. A batch holds texts of one lane."""

    def __init__(self, lengths: Callable[[Sequence[str]], list[int]], batch_tokens: int) -> None:
        self._lengths = lengths
        self._cap = batch_tokens
        self._at_once = max(MEASURED_AT_ONCE, batch_tokens // SHORT_TOKENS)
        self._turns = FairQueue()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add(self, request: EmbeddingRequest) -> None:
        self._turns.add(request)

    def drain(self) -> list[EmbeddingRequest]:
        """All that waits, which is then forgotten."""
        return self._turns.drain()

    def next_batch(self) -> list[QueuedText]:
        """At most `batch_tokens` with padding (or one text); empty when what waited was cancelled or failed."""
        lane = self._turns.next_lane(_prune)
        if lane is None:
            return []
        self._measure(lane)
        _prune(lane)
        batch = self._choose(lane) if lane else []
        _prune(lane)
        return batch

    def _measure(self, lane: deque[EmbeddingRequest]) -> None:
        """Some more of the lane's texts; in any case one, where none is known."""
        texts, chars = min(self._at_once, LOOKED_AHEAD - sum(len(one.waiting) for one in lane)), MEASURED_CHARS
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
        """The longest text of the request whose turn it is, and what is nearest to it in length: padding is waste."""
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
    """Of the texts whose length is not known: at most so many texts and about so many characters, but `least`."""
    start = end = request.measured
    while end < len(request.texts) and (end - start < least or (end - start < texts and chars > 0)):
        chars -= len(request.texts[end])
        end += 1
    return request.texts[start:end]


def _prune(lane: deque[EmbeddingRequest]) -> None:
    kept = [request for request in lane if not request.dropped and not request.exhausted]
    lane.clear()
    lane.extend(kept)
