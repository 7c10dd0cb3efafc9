"""The entries of a prompt, and their sources. A new kind of memory is one more `ContextSource` in `registry.py`."""

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
    """Entries under one heading stand together. `key` tells headings apart, and no prompt shows it."""

    key: str
    date: str
    """`2026-05-08`."""
    conversation: bool = False
    """A conversation is numbered among those that the prompt shows."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """`text` is content, as it was given: it is escaped where it is rendered. Items that share one of `same` say the
    same: one of them is enough."""

    id: str
    type: str
    text: str
    score: float | None = None
    """0 to 1: how likely it helps to answer the query. None: nobody searched for it."""
    prefix: str = ""
    """Written by us before the text: when, by whom."""
    same: frozenset[str] = frozenset()
    role: str | None = None
    """Of a turn of the conversation."""
    turns: tuple[dict[str, Any], ...] = ()
    """OpenAI messages that it stands for as a whole, as they were given: a call of tools and all its results."""
    memory_id: str | None = None
    """Counts as accessed when it is packed."""
    heading: Heading | None = None
    place: tuple[str, int] = ("", 0)
    """Where it stands under its heading: by time, then by number."""
    partner: "Candidate | None" = None
    """The turn that makes sense of this one: a question's answer, or the question before an answer."""


@dataclass(slots=True)
class SourceRequest:
    """A request as its sources read it. `now` is the request's time; `limit` how many items have room at most."""

    body: ContextRequest
    scope: Scope
    resources: Resources
    now: datetime
    limit: int
    interval: TimeInterval | None = None
    """The time that the query speaks of."""
    faults: list[RecalldError] = field(default_factory=list)
    """The parts that a source could not read."""
    warnings: list[Doc] = field(default_factory=list)
    """Deviations of a source from its normal way: {code, detail}."""
    hidden: list[str] = field(default_factory=list)
    """Ids of what a source found and `min_importance` leaves out."""

    def owns(self, doc: Doc) -> bool:
        """A session or task of the agent and user that the context is for: an id alone does not bring another's in."""
        return matches(doc, self.owned())

    def owned(self) -> Filter:
        """The same, as a filter."""
        named = ((name, getattr(self.body, name)) for name in ("agent_id", "user_id"))
        return both(*(Or((Absent(name), *([] if one is None else [Eq(name, one)]))) for name, one in named))


@dataclass(frozen=True, slots=True)
class ContextSource:
    """One section of a prompt, and the source of its items, the best item first.

    `share`: of a section that is always there, the part of the budget that it takes at most. None: its items compete
    by their worth. `default_limit`: items at most. With `newest_first` the newest item comes first, and the text turns
    them. With `turns` they are turns of the conversation: messages of their own where the format has some.
    """

    section: SectionName
    title: str
    gather: Callable[[SourceRequest], Awaitable[list[Candidate]]]
    default_limit: int
    share: float | None = None
    newest_first: bool = False
    turns: bool = False
