"""What waits to be embedded, and which of it makes the next batch. Owned by one thread."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.embedding.model import Vectors
from app.errors import EmbeddingUnavailable

log = logging.getLogger(__name__)

MEASURED_AT_ONCE = 64  # texts tokenized between two batches: a query waits for this too


@dataclass(eq=False)
class Request:
    """One caller's texts. The model's thread fills the rows; the future belongs to the caller's loop."""

    texts: Sequence[str]
    rows: Vectors
    future: asyncio.Future[Vectors]
    urgent: bool = False
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


Item = tuple[Request, int]  # a request and the index of one of its texts


class Backlog:
    """Urgent requests before bulk ones; bulk requests lead a batch in turn, so that none waits for all of another."""

    def __init__(self, lengths: Callable[[Sequence[str]], list[int]], batch_tokens: int) -> None:
        self._lengths = lengths
        self._cap = batch_tokens
        self._urgent: deque[Request] = deque()
        self._bulk: deque[Request] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._bulk)

    def add(self, request: Request) -> None:
        (self._urgent if request.urgent else self._bulk).append(request)

    def drain(self) -> list[Request]:
        """All that waits, which is then forgotten."""
        requests = [*self._urgent, *self._bulk]
        self._urgent.clear()
        self._bulk.clear()
        return requests

    def next_batch(self) -> list[Item]:
        """At most `batch_tokens` with padding (or one text); empty when what waited was cancelled or failed."""
        lane = self._urgent or self._bulk
        self._prune(lane)
        self._measure(lane)
        self._prune(lane)
        batch = self._choose(lane) if lane else []
        self._prune(lane)
        return batch

    def _prune(self, lane: deque[Request]) -> None:
        kept = [request for request in lane if not request.dropped and not request.exhausted]
        lane.clear()
        lane.extend(kept)

    def _measure(self, lane: deque[Request]) -> None:
        budget = MEASURED_AT_ONCE
        for request in lane:
            start, end = request.measured, min(request.measured + budget, len(request.texts))
            if start == end:
                continue
            try:
                lengths = self._lengths(request.texts[start:end])
            except Exception as error:
                log.exception("a text could not be tokenized")
                request.fail(EmbeddingUnavailable(f"the text could not be tokenized: {error}"))
                continue
            request.waiting += zip(lengths, range(start, end), strict=True)
            request.measured = end
            budget -= end - start

    def _choose(self, lane: deque[Request]) -> list[Item]:
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
