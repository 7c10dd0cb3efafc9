"""What sources offer to a prompt: candidates, and the passages of long ones that answer the query."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from app.context.schemas import ContextRequest, SectionName
from app.core import prompt_text
from app.core.caches import kept_by_digest
from app.core.clock import rfc3339
from app.core.language import sentence_spans, sentences
from app.errors import RecalldError
from app.facts.keys import USER
from app.facts.outdated import Utterance
from app.facts.repository import View
from app.findings.replacing import Replaced
from app.resources import Resources
from app.retrieval.query_evidence import QueryEvidence
from app.retrieval.time_expressions import TimeInterval
from app.storage.schema import Absent, Doc, Eq, Filter, Or, both, matches
from app.storage.scope import Scope, Viewpoint
from app.storage.text import normalise_content, text_ids

LONGEST = 120
"""Maximum tokens of a text that is shown whole, and of a passage."""
CUT = "…"
MARKS = 2
"""Tokens of a mark at each end."""
PIECE_TOKENS = 60
"""Maximum tokens of a piece. A longer sentence is cut, at white space if it has some."""

CHUNK = 1_000
"""Characters of a long text that are looked at together. A passage has some 500."""
LONG_TEXT = 4 * CHUNK
"""Characters up to which every sentence of a text is looked at. Of a longer one it is those around the best chunk: to
cut 32,000 characters into sentences, count their tokens and read their terms takes 20 ms, and to read the terms of
chunks 3 ms."""

CharRange = tuple[int, int]


def passage(text: str, weights: Mapping[int, float], limit: int = LONGEST) -> str:
    """Returns `text`, or the run of its sentences that contains most of the query within `limit` tokens, marked as cut.

    `weights`: weight of each query term, by term id. If the text contains no term of the query, its beginning is
    returned.
    """
    if len(text.encode()) <= limit or prompt_text.count(text) <= limit:  # no token is shorter than a byte
        return text
    start, end = _best_part(text, weights)
    spans = list(_spans(text, start, end, min(PIECE_TOKENS, max(1, (limit - MARKS) // 2))))
    whole = spans[start > 0 : len(spans) - (end < len(text))]  # without the sentences that the part cuts
    spans = whole or spans or [(start, end)]
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


def _best_part(text: str, weights: Mapping[int, float]) -> CharRange:
    """Returns (start, end) of the chunk that contains most of the query, the first of equal ones, with the chunk before
    it and the one behind; the whole of a text that is not long. Without weights a long text is not read."""
    if len(text) <= LONG_TEXT:
        return 0, len(text)
    if not weights:
        return 0, 2 * CHUNK
    best, heaviest, start = 0, 0.0, 0
    while start < len(text):
        end = start + CHUNK
        if end < len(text):  # between words, if there are spaces: half a word is another one
            space = text.rfind(" ", start + CHUNK // 2, end)
            end = end if space < 0 else space
        weight = sum(weights[term] for term in _found(text[start:end], weights))
        if weight > heaviest + 1e-9:
            best, heaviest = start, weight
        start = end
    return max(0, best - CHUNK), min(len(text), best + 2 * CHUNK)


def _spans(text: str, start: int, end: int, limit: int) -> Iterator[CharRange]:
    """Yields (start, end) of sentences and lines of a part that are not empty; longer ones are split into halves."""
    for first, last in sentence_spans(text[start:end]):
        yield from _halves(text, (start + first, start + last), limit)


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
    said: Utterance | None = None
    """When and by whom it was said. None: not known, or of no importance."""
    partner: "Candidate | None" = None
    """The turn that belongs to this one: a question's answer, or the question before an answer."""
    content: tuple[int, str | None] | None = None
    """Hash of a memory's content, and its condition: equal for texts that say the same. None: it is no memory."""
    dated: bool = False
    """Whether it tells what happened on its day, so that the same words of another day tell something else."""
    links: tuple[str, ...] = ()
    """Ids of the facts that the text states, in its order; empty if it is no fact."""
    states: tuple[str, ...] = ()
    """The sentences that it is compared by; empty: those of its text. A chain has those of its facts."""
    part: "Callable[[int, int], Candidate] | None" = field(default=None, compare=False)
    """Makes the part of a chain from one of its facts up to another one, which stands where the prompt has the rest."""
    compared: bool = False
    """Whether it is compared by sentence with others, in a section that is not."""
    recalls: bool = False
    """Whether it stands for what was last talked about, which a query does not need that is answered."""
    plain: str | None = None
    """The text without what was added to it, such as marks; None: the text itself."""

    @property
    def day(self) -> str:
        """The day when it was said; empty if it holds whenever it is read, as a fact does."""
        return "" if self.said is None else self.said.at[:10]

    @property
    def unmarked(self) -> str:
        """The text as it is compared with others."""
        return self.text if self.plain is None else self.plain

    def marked(self, text: str, partner: "Candidate | None") -> "Candidate":
        """Returns the candidate with a text that has marks, and with this partner."""
        if text == self.text and partner is self.partner:
            return self
        return replace(self, text=text, plain=self.unmarked, partner=partner)


LEAST_SAID = 12
"""Bytes of the shortest sentence that may be a repetition. "Yes." and "I do." mean something else each time."""


@kept_by_digest(8 << 20, lambda found: 100 * (1 + len(found)))
def sentences_said(text: str) -> frozenset[int]:
    """Returns hashes of the sentences of a text as they are compared: without regard to case, width, white space and
    closing marks. Empty if all are too short to be compared. The rest of a long text is not read."""
    found = {normalise_content(one).rstrip(".!\u2026\u3002") for one in sentences(text[:LONG_TEXT])}
    compared = any(len(one.encode("utf-8", "surrogatepass")) >= LEAST_SAID for one in found)
    return frozenset(map(hash, found)) if compared else frozenset()


def compared_sentences(item: Candidate) -> frozenset[int]:
    """Returns what is compared of a candidate: the sentences of its text or of each of its facts, which are those of
    the day for an event, and those of the speaker if another one than the user said them."""
    by = None if item.said is None or item.said.by == USER else item.said.by
    found = frozenset[int]().union(*map(sentences_said, item.states or (item.unmarked,)))
    if item.dated or by is not None:
        return frozenset(hash((one, item.day if item.dated else "", by)) for one in found)
    return found


@dataclass(frozen=True, slots=True)
class Doubt:
    """A sentence that a finding of a judge names, and the other one. Texts that repeat it are marked."""

    id: str
    """The record that says it."""
    text: str
    other: str
    other_at: str
    later: bool
    """Whether the other was said later."""
    settled: bool = False
    """Whether the other stands in the place of the text: the finding was accepted, or a link counts at once."""


def of_replaced(statement: Replaced) -> Doubt:
    """Returns a statement that a judge found to be replaced."""
    by = statement.by.said_at
    return Doubt(statement.memory_id, statement.words, statement.quote, by, later=True, settled=True)


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
    """Facts that the source found. Texts with earlier values of them are marked."""
    names: list[str] = field(default_factory=list)
    """Names of the user that the source found."""
    doubts: list[Doubt] = field(default_factory=list)
    """Statements of findings that the source found, whether the query touches them or not."""
    budget: int = 4000
    """Tokens of the whole context."""
    evidence: list[QueryEvidence] = field(default_factory=list)
    """What the searched collections have of the query."""
    hidden: list[str] = field(default_factory=list)
    """Ids of documents that were found and that `min_importance` leaves out."""

    @property
    def viewpoint(self) -> Viewpoint:
        """Whose records the context is about, and of which time."""
        body, now = self.body, rfc3339(self.now)
        pairs = self.scope.pairs(body.agent_id, body.user_id, include_shared=True)
        return Viewpoint(pairs, body.user_id, body.as_of or now, now, body.known_at)

    @property
    def view(self) -> View:
        """Which facts the context is about, in both times."""
        return View(self.body.as_of or rfc3339(self.now), self.body.known_at)

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
    `latest_first`: the text shows the items by `place`, the latest first; `oldest_first`: the other way round; those
    under headings stand behind the others. Others stand as `packing.ordered` has them.
    `turns`: the items are conversation turns, which become messages of their own if the format has messages.
    """

    section: SectionName
    title: str
    gather: Callable[[SourceRequest], Awaitable[list[Candidate]]]
    default_limit: int
    share: float | None = None
    newest_first: bool = False
    latest_first: bool = False
    oldest_first: bool = False
    turns: bool = False
