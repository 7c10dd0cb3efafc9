"""What an arm brings, and what an arm is. A new kind of memory is one more `Arm` in `registry.py`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from app.context.schemas import ContextRequest, Intent, SectionName
from app.errors import RecalldError
from app.state import Resources
from app.storage.collection import Doc
from app.storage.filters import Absent, Eq, Filter, Or, both, matches
from app.storage.scope import Scope


@dataclass(frozen=True, slots=True)
class Item:
    """`text` is content, as it was given: it is escaped where it is rendered. Items that share one of `same` say the
    same: one of them is enough."""

    id: str
    type: str
    text: str
    score: float | None = None
    prefix: str = ""
    """What we say of it: when, by whom."""
    same: frozenset[str] = frozenset()
    role: str | None = None
    """Of a turn of the conversation."""
    memory_id: str | None = None
    """Counts as accessed when it is packed."""


@dataclass(slots=True)
class Asked:
    """What an arm has to go by. `now` is the request's time; `limit` how many items have room at most."""

    body: ContextRequest
    scope: Scope
    held: Resources
    now: datetime
    limit: int
    faults: list[RecalldError] = field(default_factory=list)
    """What an arm could not read."""
    warnings: list[Doc] = field(default_factory=list)
    """What an arm read otherwise than it was to: {code, detail}."""

    def owns(self, doc: Doc) -> bool:
        """A session or task of the agent and user that the context is for: an id alone does not bring another's in."""
        return matches(doc, self.owned())

    def owned(self) -> Filter:
        """The same, as a filter."""
        named = ((name, getattr(self.body, name)) for name in ("agent_id", "user_id"))
        return both(*(Or((Absent(name), *([] if one is None else [Eq(name, one)]))) for name, one in named))


@dataclass(frozen=True, slots=True)
class Arm:
    """One section. `limits`: items by intent; an intent that is not named does without it. `share` of the budget is its
    own while others want the rest. The best item comes first; with `newest_first` the newest, and the text turns
    them. With `turns` they are turns of the conversation: messages of their own where the format has some."""

    section: SectionName
    title: str
    share: float
    limits: Mapping[Intent, int]
    gather: Callable[[Asked], Awaitable[list[Item]]]
    newest_first: bool = False
    turns: bool = False
