"""Candidates and their sources. To add a kind of memory, add a `ContextSource` to `registry.py`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.context.schemas import ContextRequest, SectionName
from app.errors import RecalldError
from app.resources import Resources
from app.retrieval.time_expressions import TimeInterval
from app.storage.filters import Absent, Eq, Filter, Or, both, matches
from app.storage.schema import Doc
from app.storage.scope import Scope


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
