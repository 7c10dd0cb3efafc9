"""What a section of a prompt is made from: the request as its source reads it, what the source returns, and how the
section stands in the prompt."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from enum import Enum, auto
from fractions import Fraction

from app.context.candidates import Candidate
from app.context.schemas import ContextRequest, Intent, SectionName
from app.core.clock import day_of, rfc3339, zone_named
from app.errors import RecalldError
from app.facts.repository import View
from app.facts.schemas import FactRecord
from app.findings.replacing import ReplacedStatement
from app.memories.schemas import MemoryRecord
from app.resources import Resources
from app.retrieval.query_evidence import QueryEvidence
from app.retrieval.retriever import SearchWarning
from app.retrieval.time_expressions import TimeInterval
from app.sessions.schemas import SessionRecord
from app.storage.schema import Absent, Eq, Filter, Or, both, matches
from app.storage.scope import Partition, Scope, Viewpoint
from app.tasks.schemas import TaskRecord


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """The request as a source reads it. What the source finds is its `SourceResult`."""

    body: ContextRequest
    scope: Scope
    resources: Resources
    now: datetime
    """The time of the context: that of the request, or else the present."""
    budget: int
    """Tokens of the whole context."""
    limit: int = 0
    """Maximum number of items of the section. `gather_section` sets it for each source."""
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
    def pairs(self) -> tuple[Partition, ...]:
        """The partitions that the agent may see of the user, those shared by all agents included."""
        return self.scope.partitions(self.body.agent_id, self.body.user_id, include_shared=True)

    @property
    def viewpoint(self) -> Viewpoint:
        """Whose records the context is about, and of which time."""
        return Viewpoint(self.pairs, self.body.user_id, self.as_of, rfc3339(self.now), self.body.known_at)

    @property
    def view(self) -> View:
        """Which facts the context is about, in both times."""
        return View(self.as_of, self.body.known_at)

    def owns(self, record: SessionRecord | TaskRecord) -> bool:
        """Returns whether a session or task belongs to the context's agent and user.

        An id alone does not include another's.
        """
        return matches(record, self.owned())

    def owned(self) -> Filter:
        """Returns the condition of `owns` as a filter."""
        owners = (("agent_id", self.body.agent_id), ("user_id", self.body.user_id))
        return both(*(Or((Absent(name), *([] if owner is None else [Eq(name, owner)]))) for name, owner in owners))


@dataclass(frozen=True, slots=True)
class JudgedStatement:
    """A sentence that a finding of a judge names, "I live in Oslo.", and the one that contradicts it, "I now live in
    Bergen.". Texts that repeat the first are marked."""

    id: str
    """The record that says it."""
    text: str
    other: str
    other_at: str
    """When the other was said."""
    found_at: str
    """When the finding was made."""
    later: bool
    """Whether the other was said later."""
    settled: bool = False
    """Whether the other stands in the place of the text: the finding was accepted, or a link counts at once. If not,
    the text is uncertain."""

    @classmethod
    def of_replaced(cls, statement: ReplacedStatement) -> "JudgedStatement":
        """Returns a statement that a judge found to be replaced."""
        return cls(
            statement.memory_id,
            statement.words,
            statement.later_words,
            statement.later.said_at,
            statement.linked_at,
            later=True,
            settled=True,
        )


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
    evidence: Sequence[QueryEvidence] = ()
    """What the searched collections have of the query: each collection once in a context."""
    hidden: Sequence[MemoryRecord] = ()
    """Memories that were found and that `min_importance` leaves out."""
    faults: Sequence[RecalldError] = ()
    """Errors of parts that could not be read."""


def part_of(budget: int, share: float) -> Fraction:
    """Returns a share of a budget in tokens, exactly: .12 of 1,000 are 120. The float .12 is a little less, and would
    leave out an entry that just fits."""
    return Fraction(str(share)) * budget


Gather = Callable[[SourceRequest], Awaitable[SourceResult]]


class ReadingOrder(Enum):
    """The order in which the text shows the packed items of a section."""

    GROUPED = auto()
    """Under their headings, by time; items without a heading as they were found, before the others."""
    REVERSED = auto()
    """The other way round than they were found: turns are found newest first."""
    LATEST_FIRST = auto()
    """By place, the latest first; those under headings behind the others."""


@dataclass(frozen=True, slots=True)
class ContextSource:
    """One section of a prompt and the source of its candidates."""

    section: SectionName
    title: str
    gather: Gather
    default_limit: int
    """Maximum items, unless the request says."""
    share: float | None = None
    """Maximum part of the budget of a section that is always there; None: its items compete."""
    most_tokens: int | None = None
    """Maximum tokens, beside the share."""
    order: ReadingOrder = ReadingOrder.GROUPED
    holds_turns: bool = False
    """Whether the items are conversation turns, which become messages of their own if the format has messages."""
    marked: bool = False
    """Whether texts that state replaced values get marks. Facts have their time, and turns stay as they were said."""
    boosts: Mapping[Intent, float] = field(default_factory=dict)
    """Factors for the place of its items, by intent; 1 for an intent without one."""

    @property
    def competes(self) -> bool:
        """Whether its items compete with those of other sections."""
        return self.share is None

    def limit_in(self, body: ContextRequest) -> int:
        """Returns the maximum items for a request."""
        bounds = body.sections.get(self.section)
        return self.default_limit if bounds is None or bounds.limit is None else bounds.limit

    def is_wanted(self, body: ContextRequest) -> bool:
        """Returns whether the request leaves room for the section."""
        return self.section not in body.exclude and self.limit_in(body) > 0
