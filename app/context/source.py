"""What a section of a prompt is made from: the request as its source reads it, how it reads, what the source returns,
and how the section stands in the prompt."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.context.schemas import ContextRequest, DropReason, Intent, PromptMessage, SectionName
from app.core.clock import day_of, rfc3339, to_ms, zone_named
from app.errors import RecalldError
from app.facts.outdated import Utterance
from app.facts.repository import View
from app.facts.schemas import FactRecord
from app.findings.replacing import ReplacedStatement
from app.memories.agents import Decays
from app.memories.schemas import FINDABLE, MEMORIES, MemoryRecord
from app.memories.search import MEMORY_FIELDS, by_tags, told_by, true_at
from app.resources import Resources
from app.retrieval.calibration import QueryEvidence
from app.retrieval.retriever import RetrievalRequest, RetrievalResult, SearchWarning
from app.retrieval.time_expressions import TimeInterval
from app.storage.record_filters import SplitFilter, split_filter
from app.storage.repository import unexpired
from app.storage.schema import Absent, Collection, Eq, Filter, Or, R, Range, both
from app.storage.scope import Partition, Scope, Viewpoint
from app.storage.search import Columns, SearchQuery
from app.storage.text import content_hash

# --- Candidates: texts that may go into the prompt -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of entries. Entries with the same `key` share one heading; no prompt shows the key."""

    key: str
    date: str
    """A date such as `2026-05-08`."""
    conversation: bool = False
    """Whether it is a conversation. Conversations are numbered within the prompt."""


@dataclass(slots=True)  # not frozen: a context makes a hundred, and each would take three times as long
class Candidate:
    """A text that may go into the prompt, such as `Candidate("mem_1", "message", "I moved to Boston", 0.4, "Ann: ")`.

    `text` is content as it was given; it is escaped when it is rendered.
    """

    id: str
    type: str
    text: str
    score: float | None = None
    """From 0 to 1: how well it answers the query. None: it was not searched for.

    It is a probability; that of a procedure is multiplied by how well it works, and that of a lesson or an interaction
    follows from the share of the query's words that it has. While the embedding model
    does not answer, what is searched has BM25."""
    prefix: str = ""
    """Text of the service before the content, such as time and speaker."""

    # what it says, by whom and when
    keys: frozenset[str] = frozenset()
    """Keys of what it says (`same_text` and others). Of candidates that share a key only one is packed."""
    says: frozenset[str] = frozenset()
    """Keys of what it says beside that, of each fact of a chain: what has one of them is not packed after it."""
    factor: float = 1.0
    """By what kind of text it is: an answer is seldom found in a line of the assistant, a question or a scrap."""
    derived: bool = False
    """Whether a model made it from other texts, so that it adds nothing where the prompt has its words."""
    role: str | None = None
    """Role of a conversation turn."""
    turns: tuple[PromptMessage, ...] = ()
    """Messages that the candidate stands for as a whole, as they were given: a tool call and all its results."""
    utterance: Utterance | None = None
    """When and by whom it was said. None: not known, or of no importance."""

    # where it stands
    heading: Heading | None = None
    place: tuple[str, int] = ("", 0)
    """By time, then by number: `("2026-05-08T09:00:00.000Z", 3)`. The order under a heading, or of the whole section
    (`latest_first`)."""

    # what goes with it
    memory_id: str | None = None
    """Memory that counts as accessed when the candidate is packed."""
    fact_ids: tuple[str, ...] = ()
    """Ids of the facts that the text states, in its order, which responses show as `links`; empty if it is no fact."""


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """The request as a source reads it. What the source finds is its `SourceResult`.

    Of its times, `now` decides what has expired, has faded or is due. `as_of` decides what was true: facts, the
    validity of memories, actions, interactions and findings. Where the request gives them, no turn or memory was said
    after `body.now`, no procedure was stored after `body.as_of`, and no memory, fact or lesson after `body.known_at`.
    """

    body: ContextRequest
    scope: Scope
    resources: Resources
    now: datetime
    """The time of the context: that of the request, or else the present."""
    budget: int
    """Tokens of the whole context."""
    limit: int = 0
    """Maximum number of items of the section, set for each source when it is called (`_gather_section`). A source may
    return more, since some repeat others; packing keeps to the limit."""
    interval: TimeInterval | None = None
    """The time interval that the query names."""

    @property
    def as_of(self) -> str:
        """The time (RFC 3339) of which the context tells what was true."""
        return self.body.as_of or rfc3339(self.now)

    @property
    def zone(self) -> tzinfo:
        """The zone whose days the prompt shows, and that "yesterday" is read in."""
        return UTC if self.body.timezone is None else zone_named(self.body.timezone)

    def day(self, at: str | None) -> str:
        """Returns the day of a time (RFC 3339) as the prompt shows it; empty without a time."""
        return day_of(at or "", self.zone)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that the agent may see of the user, those shared by all agents included."""
        return self.scope.partitions(self.body.agent_id, self.body.user_id, include_shared=True)

    @property
    def viewpoint(self) -> Viewpoint:
        """Whose records the context is about, and of which time."""
        return Viewpoint(self.partitions, self.body.user_id, self.as_of, rfc3339(self.now), self.body.known_at)

    @property
    def facts_view(self) -> View:
        """Which facts the context is about, in both times."""
        return View(self.as_of, self.body.known_at)

    @property
    def is_own(self) -> Filter:
        """The filter for sessions and tasks of the context's agent and user: an id alone does not include another's."""
        owners = (("agent_id", self.body.agent_id), ("user_id", self.body.user_id))
        return both(*(Or((Absent(name), *([] if owner is None else [Eq(name, owner)]))) for name, owner in owners))


@dataclass(frozen=True, slots=True)
class JudgedStatement:
    """Words that a finding of a judge names, "I live in Oslo", and those that contradict them, "I now live in
    Bergen". Texts that repeat the first are marked."""

    id: str
    """The record that says it."""
    words: str
    other_words: str
    other_at: str
    """When the other was said."""
    other_is_later: bool
    """Whether the other was said after these words."""
    replaced: bool = False
    """Whether the other words stand in the place of these: the finding was accepted, or the memory has a link to them
    that counts (`app/findings/replacing.py`). If not, these are uncertain."""

    @classmethod
    def of_replaced(cls, statement: ReplacedStatement) -> "JudgedStatement":
        """Returns a statement that a judge found to be replaced."""
        return cls(
            statement.memory_id,
            statement.words,
            statement.later_words,
            statement.later.said_at,
            other_is_later=True,
            replaced=True,
        )


class LeftOut(NamedTuple):
    """A memory that was found and can have no place in the prompt. Of the 124 hits of a search, 100 and 24 to spare,
    these are some 100, and to make candidates of them would take a fifth of the time of a context."""

    memory: MemoryRecord
    score: float
    reason: DropReason


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What a source returns: the candidates of its section, best first, and what other sections need of it."""

    items: Sequence[Candidate] = ()
    warnings: Sequence[SearchWarning] = ()
    """What the source went without, as {code, detail}."""
    facts: Sequence[FactRecord] = ()
    """Facts that were found. Texts with earlier values of them are marked."""
    names: Sequence[str] = ()
    """Names of the user."""
    judged: Sequence[JudgedStatement] = ()
    """Statements of findings, whether the query touches them or not."""
    query_evidence: QueryEvidence | None = None
    """What the searched collection has of the query, if it has documents."""
    left_out: Sequence[LeftOut] = ()
    """Memories that were found and are no candidates."""
    faults: Sequence[RecalldError] = ()
    """Errors of parts that could not be read."""


MIN_SCORE, FILLED_MIN_SCORE = 0.005, 0.001
"""Least score of what competes for a place in a context, unless a request says, and of what fills one (decision 13)."""
DOCUMENT_PART = "document"
"""Type of a candidate that is a part of a document, such as a page of a manual."""
SMALL_RECORDS = 60
"""A scope of so many memories, facts, procedures and actions, not counting parts of documents, may be given whole."""


def min_score_of(body: ContextRequest) -> float:
    """Returns the least score of what competes."""
    if body.min_score is not None:
        return body.min_score
    return FILLED_MIN_SCORE if body.fill else MIN_SCORE


def part_of(budget: int, share: float) -> Fraction:
    """Returns a share of a budget in tokens, exactly: .12 of 1,000 are 120. The float .12 is a little less, and would
    leave out an entry that just fits."""
    return Fraction(str(share)) * budget


T = TypeVar("T")
TokenBound = int | Fraction
"""A number of tokens; a part of the budget is a fraction."""
Gather = Callable[[SourceRequest], Awaitable[SourceResult]]


# --- The order in which the text shows the packed items of a section --------------------------------------------------

ReadingOrder = Callable[[Sequence[Candidate]], list[Candidate]]


def grouped(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns the items grouped by heading and by time, behind those without a heading, which keep their order."""
    begun: dict[str, tuple[str, int]] = {}
    alone, headed = list[Candidate](), list[tuple[Heading, Candidate]]()
    for item in items:
        if item.heading is None:
            alone.append(item)
        else:
            headed.append((item.heading, item))
            begun[item.heading.key] = min(begun.get(item.heading.key, item.place), item.place)
    headed.sort(key=lambda entry: (begun[entry[0].key], entry[0].key, entry[1].place))
    return [*alone, *(item for _, item in headed)]


def as_said(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns turns, which are found newest first, in the order in which they were said."""
    return list(items)[::-1]


def latest_first(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns the items by place, the latest first; those under headings behind the others."""
    return sorted(items, key=lambda item: (item.heading is None, item.place), reverse=True)


# --- Sections ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContextSource:
    """One section of a prompt and the source of its candidates."""

    section: SectionName
    title: str
    gather: Gather
    default_limit: int
    """Maximum items, unless the request says."""
    share: float | None = None
    """Maximum part of the budget of a fixed section, such as the rules; None: its items compete."""
    max_tokens: int | None = None
    """Maximum tokens, beside the share."""
    order: ReadingOrder = grouped
    holds_turns: bool = False
    """Whether the items are conversation turns, which become messages of their own if the format has messages."""
    gets_marks: bool = False
    """Whether texts that state replaced values get marks. Facts have their time and get only
    the marks of replaced words that they were learned from. Turns stay as they were said."""
    boosts: Mapping[Intent, float] = field(default_factory=dict)
    """Factors for the rank of its items, by intent; 1 for an intent without one."""

    @property
    def fixed(self) -> bool:
        """Whether its items do not compete with those of other sections."""
        return self.share is not None

    def limit_in(self, body: ContextRequest) -> int:
        """Returns the maximum items for a request."""
        bounds = body.sections.get(self.section)
        return self.default_limit if bounds is None or bounds.limit is None else bounds.limit

    def max_tokens_in(self, body: ContextRequest, budget: int, usual: T) -> TokenBound | T:
        """Returns the maximum tokens for a request: `usual`, unless it bounds the section."""
        bounds = body.sections.get(self.section)
        if bounds is not None and bounds.share is not None:
            return part_of(budget, bounds.share)
        return usual if bounds is None or bounds.tokens is None else bounds.tokens

    def is_wanted(self, body: ContextRequest) -> bool:
        """Returns whether the request leaves room for the section."""
        return self.section not in body.exclude and self.limit_in(body) > 0


# --- Reading ----------------------------------------------------------------------------------------------------------


async def search(
    request: SourceRequest,
    collection: Collection[R],
    where: Filter,
    k: int,
    decays: Decays | None = None,
    *,
    keep: Callable[[R], bool] | None = None,
    partners: bool = False,
) -> RetrievalResult[R]:
    """Searches a collection for the request's query, within what the agent may see of the user.

    The query's vector may take half of the source's time, and the second stage a quarter, so that a slow model reduces
    the quality and does not make the source fail.
    """
    body, resources = request.body, request.resources
    wanted = RetrievalRequest(
        body.query,
        request.partitions,
        where,
        to_ms(request.now),
        k,
        keep=keep,
        decays=decays,
        vector_seconds=resources.tuning.section_seconds / 2,
        rerank_seconds=resources.tuning.section_seconds / 4,
        interval=request.interval,
        known_at=request.body.known_at,
        partners=partners,
        evidence=True,
        merge_repetitions="within a day",
    )
    return await resources.retriever(request.scope, collection).find(wanted)


def visible(request: SourceRequest) -> SplitFilter:
    """Returns the filter for memories that are active, valid, known and trusted enough at the request's time, and that
    have the tags and metadata that it asks for: for the store, and what is then decided from a record (`keep`)."""
    body = request.body
    asked, keep = split_filter(
        {"metadata": body.metadata, "filters": body.filters}, MEMORY_FIELDS, MEMORIES, searched=True
    )
    tags = by_tags(body.tags, body.tags_match, body.exclude_tags)
    now, trust = rfc3339(request.now), body.min_trust
    trusted = None if trust is None else Range("trust", ge=trust)
    told = None if body.now is None else told_by(body.now)
    where = both(Eq("status", "active"), unexpired(now), *true_at(request.as_of), tags, asked, trusted, told)
    # what was learned in June from a turn of May bears the turn's time, but in May nobody knew it: `created_at` counts
    known = None if body.known_at is None else Range("created_at", le=body.known_at)
    return SplitFilter(both(where, FINDABLE, known), keep)


async def visible_memories(request: SourceRequest, which: Filter) -> list[MemoryRecord]:
    """Returns the visible memories that match, whatever was asked."""
    where, keep = visible(request)
    found = await matching_records(request, MEMORIES, both(which, where))
    return [memory for memory in found if keep is None or keep(memory)]


async def matching_records(
    request: SourceRequest,
    collection: Collection[R],
    where: Filter,
    partitions: tuple[Partition, ...] | None = None,
    choose: Callable[[Columns], NDArray[Any]] = lambda columns: columns.matched,
) -> list[R]:
    """Returns all records of a collection that match, or those of them that `choose` takes, whatever was asked.
    `partitions`: by default, what the agent may see of the user."""
    scope, resources = request.scope, request.resources
    searched = request.partitions if partitions is None else partitions
    model, no_terms = resources.embedder.name, np.empty(0, np.uint32)
    query = SearchQuery(scope.tenant, searched, where, vector=None, model=model, terms=no_terms)
    columns = await resources.store.search(collection, query)
    rows = columns.rows[choose(columns)]
    fetched = await resources.store.fetch(collection, scope.tenant, rows) if len(rows) else []
    return [row.doc for row in fetched if row is not None and scope.sees(row.doc)]


# --- Keys: what says the same ----------------------------------------------------------------------------------------
# An entry has several: a memory of a message shares one with the turn of the session that it was made of, and a fact
# one with a memory of the same words.


def same_text(text: str) -> str:
    """Returns the key of what has this text."""
    return same_content(content_hash(text))


def same_content(text_hash: int, of: str = "") -> str:
    """Returns the key of what has a text with this hash: on a day if it is an event, which may happen again, and of a
    speaker if it is not the user."""
    return f"text:{text_hash}:{of}" if of else f"text:{text_hash}"


def same_memory(memory_id: str) -> str:
    """Returns the key of what stands for this memory."""
    return f"memory:{memory_id}"


def same_message(session_id: str, seq: int) -> str:
    """Returns the key of a message, which a turn and a memory share."""
    return f"message:{session_id}:{seq}"


def same_rule(text: str) -> str:
    """Returns the key of a rule: another entry with its words, such as a memory, does not stand for it."""
    return f"rule:{content_hash(text)}"


def same_words_as(memory_id: str) -> str:
    """Returns the key of a hit and of the memories with its text, of which one at most is packed."""
    return f"said:{memory_id}"
