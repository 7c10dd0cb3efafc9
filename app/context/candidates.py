"""What sources offer to a prompt: candidates, and the passages of long ones that answer the query."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.context.schemas import ContextRequest, SectionName
from app.core import prompt_text
from app.errors import RecalldError
from app.resources import Resources
from app.retrieval.time_expressions import TimeInterval
from app.storage.schema import Absent, Doc, Eq, Filter, Or, both, matches
from app.storage.search import Scope
from app.storage.text import text_ids

LONGEST = 120
"""Maximum tokens of a text that is shown whole, and of a passage."""
CUT = "…"
MARKS = 2
"""Tokens of a mark at each end."""
PIECE_TOKENS = 60
"""Maximum tokens of a piece. A longer sentence is cut, at white space if it has some."""
_ENDS = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[。！？])")

CharRange = tuple[int, int]


def passage(text: str, weights: Mapping[int, float], limit: int = LONGEST) -> str:
    """Returns `text`, or the run of its sentences that contains most of the query within `limit` tokens, marked as cut.

    `weights`: weight of each query term, by term id. If the text contains no term of the query, its beginning is
    returned.
    """
    if len(text.encode()) <= limit or prompt_text.count(text) <= limit:  # no token is shorter than a byte
        return text
    spans = list(_spans(text, min(PIECE_TOKENS, max(1, (limit - MARKS) // 2)))) or [(0, len(text))]
    found = [_found(text[start:end], weights) for start, end in spans]
    sizes = [prompt_text.count(text[start:end]) + 1 for start, end in spans]
    first, last = _best_run(found, sizes, limit - MARKS, weights)
    return _marked(text, (spans[first][0], spans[last - 1][1]), limit)


def _marked(text: str, span: CharRange, limit: int) -> str:
    """Returns the text of the span within `limit` tokens, with a mark at each end where the text continues."""
    start, end = span
    before = f"{CUT} " if text[:start].strip() else ""
    for room in range(limit, 0, -1):  # the first nearly always fits: a seam changes the sum by one token at most
        shown = prompt_text.truncate(text[start:end].strip(), room)
        after = f" {CUT}" if text[end:].strip() or len(shown) < len(text[start:end].strip()) else ""
        if prompt_text.count(marked := f"{before}{shown.strip()}{after}") <= limit:
            return marked
    return ""


def _spans(text: str, limit: int) -> Iterator[CharRange]:
    """Yields (start, end) of sentences and lines that are not empty; longer ones are split into halves."""
    start = 0
    for match in (*_ENDS.finditer(text), None):
        end = len(text) if match is None else match.start()
        if text[start:end].strip():
            yield from _halves(text, (start, end), limit)
        start = end if match is None else match.end()


def _halves(text: str, span: CharRange, limit: int) -> Iterator[CharRange]:
    start, end = span
    if end - start < 2 or prompt_text.count(text[start:end]) <= limit:
        yield span
        return
    middle = (start + end) // 2
    space = text.rfind(" ", start + 1, middle)
    at = space if space > start + (end - start) // 4 else middle
    yield from _halves(text, (start, at), limit)
    yield from _halves(text, (at, end), limit)


def _found(piece: str, weights: Mapping[int, float]) -> frozenset[int]:
    return frozenset(text_ids(piece).tolist()) & weights.keys()


def _best_run(
    found: Sequence[frozenset[int]], sizes: Sequence[int], limit: int, weights: Mapping[int, float]
) -> tuple[int, int]:
    """Returns (start, end) of the run within `limit` tokens whose distinct terms weigh most.

    Of equal runs the shortest is taken, then the first. The run is extended while there is room: first to what follows,
    then to what comes before.
    """
    best, least, run = -1.0, 0, (0, 1)
    for start in range(len(sizes)):
        size, covered, end = 0, set[int](), start
        while end < len(sizes) and size + sizes[end] <= limit:
            size += sizes[end]
            covered |= found[end]
            end += 1
            weight = sum(weights[term] for term in covered)
            if weight > best + 1e-9 or (weight > best - 1e-9 and size < least):
                best, least, run = weight, size, (start, end)
    start, end = run
    size = sum(sizes[start:end])
    while end < len(sizes) and size + sizes[end] <= limit:
        size += sizes[end]
        end += 1
    while start > 0 and size + sizes[start - 1] <= limit:
        start -= 1
        size += sizes[start]
    return start, end


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of entries. Entries with the same `key` share one heading; no prompt shows the key."""

    key: str
    date: str
    """A date such as `2026-05-08`."""
    conversation: bool = False
    """Whether it is a conversation. Conversations are numbered within the prompt."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that may go into the prompt.

    `text` is content as it was given; it is escaped when it is rendered. Candidates that share an element of `same` say
    the same, and only one of them is packed.
    """

    id: str
    type: str
    text: str
    score: float | None = None
    """Probability, 0 to 1, that it helps to answer the query. None: it was not searched for."""
    prefix: str = ""
    """Text of the service before the content, such as time and speaker."""
    same: frozenset[str] = frozenset()
    role: str | None = None
    """Role of a conversation turn."""
    turns: tuple[dict[str, Any], ...] = ()
    """OpenAI messages that the candidate stands for as a whole, as they were given: a tool call and all its results."""
    memory_id: str | None = None
    """Memory that counts as accessed when the candidate is packed."""
    heading: Heading | None = None
    place: tuple[str, int] = ("", 0)
    """Position under the heading: by time, then by number."""
    partner: "Candidate | None" = None
    """The turn that belongs to this one: a question's answer, or the question before an answer."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A statement that a finding doubts, and what was said otherwise. Texts that repeat it are marked."""

    id: str
    text: str
    other: str
    """What was said otherwise; empty for a plan whose time is past."""
    other_at: str
    later: bool
    """Whether the other was said later."""
    settled: bool = False
    """Whether the finding was accepted: the other stands in the place of the text."""
    session: str | None = None
    seq: int | None = None
    """The message that said it."""


@dataclass(slots=True)
class SourceRequest:
    """The request as sources read it. `now` is the time of the request; `limit` the maximum number of items."""

    body: ContextRequest
    scope: Scope
    resources: Resources
    now: datetime
    limit: int
    interval: TimeInterval | None = None
    """The time interval that the query names."""
    faults: list[RecalldError] = field(default_factory=list)
    """Errors of parts that the source could not read."""
    warnings: list[Doc] = field(default_factory=list)
    """Degradations of the source, as {code, detail}."""
    facts: list[Doc] = field(default_factory=list)
    """Facts that the source found. Texts that state other values of them are marked."""
    names: list[str] = field(default_factory=list)
    """Names of the user that the source found."""
    doubts: list[Doubt] = field(default_factory=list)
    """Statements of findings that the source found, whether the query touches them or not."""
    hidden: list[str] = field(default_factory=list)
    """Ids of documents that were found and that `min_importance` leaves out."""

    def owns(self, doc: Doc) -> bool:
        """Returns whether a session or task belongs to the context's agent and user.

        An id alone does not include another's.
        """
        return matches(doc, self.owned())

    def owned(self) -> Filter:
        """Returns the condition of `owns` as a filter."""
        named = ((name, getattr(self.body, name)) for name in ("agent_id", "user_id"))
        return both(*(Or((Absent(name), *([] if one is None else [Eq(name, one)]))) for name, one in named))


@dataclass(frozen=True, slots=True)
class ContextSource:
    """One section of a prompt and the source of its candidates, which come best first.

    `share`: maximum part of the budget, for a section that is always there; None: its items compete by worth.
    `default_limit`: maximum items. `newest_first`: `gather` returns the newest item first, and the text reverses them.
    `turns`: the items are conversation turns, which become messages of their own if the format has messages.
    """

    section: SectionName
    title: str
    gather: Callable[[SourceRequest], Awaitable[list[Candidate]]]
    default_limit: int
    share: float | None = None
    newest_first: bool = False
    turns: bool = False
