"""What waits to be embedded, and which of it makes the next batch. Owned by one thread."""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from app.embedding.request import Request
from app.embedding.turns import Turns
from app.errors import EmbeddingUnavailable

log = logging.getLogger(__name__)

MEASURED_AT_ONCE = 16
MEASURED_CHARS = 8_000
"""Texts, and about how many characters of them, that are tokenized between two batches: a query waits for this, too.
For large batches there are more of them: as many as fill one with texts of `SHORT_TOKENS`."""
SHORT_TOKENS = 32
LOOKED_AHEAD = 256
"""Measured texts of a lane among which those of like length are looked for."""


Item = tuple[Request, int]  # a request and the index of one of its texts


class Backlog:
    """Queries before bulk work, whose tenants take turns (`turns.py`). A tenant's requests lead a batch in turn, so
    that none waits for all of another. A batch holds texts of one lane."""

    def __init__(self, lengths: Callable[[Sequence[str]], list[int]], batch_tokens: int) -> None:
        self._lengths = lengths
        self._cap = batch_tokens
        self._at_once = max(MEASURED_AT_ONCE, batch_tokens // SHORT_TOKENS)
        self._turns = Turns()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add(self, request: Request) -> None:
        self._turns.add(request)

    def drain(self) -> list[Request]:
        """All that waits, which is then forgotten."""
        return self._turns.drain()

    def next_batch(self) -> list[Item]:
        """At most `batch_tokens` with padding (or one text); empty when what waited was cancelled or failed."""
        lane = self._turns.next_lane(_prune)
        if lane is None:
            return []
        self._measure(lane)
        _prune(lane)
        batch = self._choose(lane) if lane else []
        _prune(lane)
        return batch

    def _measure(self, lane: deque[Request]) -> None:
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


def _beginning(request: Request, least: int, texts: int, chars: int) -> Sequence[str]:
    """Of the texts whose length is not known: at most so many texts and about so many characters, but `least`."""
    start = end = request.measured
    while end < len(request.texts) and (end - start < least or (end - start < texts and chars > 0)):
        chars -= len(request.texts[end])
        end += 1
    return request.texts[start:end]


def _prune(lane: deque[Request]) -> None:
    kept = [request for request in lane if not request.dropped and not request.exhausted]
    lane.clear()
    lane.extend(kept)
