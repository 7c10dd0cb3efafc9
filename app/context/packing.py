"""Which items a prompt holds: pure functions of items, prices and a budget.

1. Sections that are always there share at most `ALWAYS` of the budget. Each may take up to its own `max_tokens`; the
   parts shrink alike where together they want more than there is. Within its part a section takes its items in order.
2. All other items compete for what the parts leave, whatever their section: by worth, which is the score for each
   token. The packer takes them in that order and ends at the first that does not fit, so that an item that a smaller
   budget holds is in every larger one, if the sections that are always there hold the same in both. What these leave
   of their parts is not given away: it depends on where a budget happens to cut, and the rest would shrink with it.

The budget is a wall. Items that say the same go in once. Parts are exact fractions: rounding would make the rest of a
larger budget smaller by a token.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from app.context.candidates import Candidate

ALWAYS = Fraction(3, 5)
"""Of the budget, for all sections that are always there."""

Price = Callable[[Candidate], int]
"""Tokens of an item's line, or of its heading, exactly."""
TokenBound = int | Fraction
"""Tokens, of which a part is a fraction."""


@dataclass(frozen=True, slots=True)
class Section:
    """Items of one section, best first, and what each costs.

    `max_tokens`: tokens that it never exceeds, None: no bound. `limit`: items at most. `always`: its place in the
    prompt does not depend on the query. `framed`: it stands inside the frame, which costs its tokens once.
    """

    name: str
    items: Sequence[Candidate]
    price: Price
    heading_price: Price
    title_tokens: int
    limit: int
    max_tokens: TokenBound | None = None
    always: bool = False
    framed: bool = True
    boost: float = 1.0
    """The intent multiplies the worth of a section's items by this."""


@dataclass(frozen=True, slots=True)
class PackedPrompt:
    """`chosen`: the items of each section that has some, in the order of the sections. `tokens`: of each of these, its
    title and headings included. `total`: of all, with the frame. `dropped`: (item, reason)."""

    chosen: Mapping[str, Sequence[Candidate]]
    tokens: Mapping[str, int]
    total: int
    dropped: Sequence[tuple[Candidate, str]]


@dataclass(slots=True)
class _State:
    section: Section
    taken: list[Candidate] = field(default_factory=list)
    headings: set[str] = field(default_factory=set)
    tokens: int = 0
    reasons: dict[str, str] = field(default_factory=dict)

    def cost(self, item: Candidate) -> int:
        title = 0 if self.taken else self.section.title_tokens
        new = item.heading is not None and item.heading.key not in self.headings
        return title + (self.section.heading_price(item) if new else 0) + self.section.price(item)

    def add(self, item: Candidate) -> None:
        self.tokens += self.cost(item)
        self.taken.append(item)
        if item.heading is not None:
            self.headings.add(item.heading.key)


class Packer:
    """One packing. `frame_tokens`: of the frame around all framed sections. `floor`: least score of what competes."""

    def __init__(self, sections: Sequence[Section], budget: int, frame_tokens: int, floor: float) -> None:
        self._floor = floor
        self._states = {one.name: _State(one) for one in sections}
        self._budget, self._frame_tokens = budget, frame_tokens
        self._left: TokenBound = budget
        self._framed = False
        self._said: set[str] = set()
        self._ids: set[str] = set()

    def pack(self, tokens: Price) -> PackedPrompt:
        """`tokens`: what an item takes, about; a text is counted when its turn comes."""
        always = [state for state in self._states.values() if state.section.always]
        parts = shares([self._wanted(state) for state in always], max(0, self._budget - self._frame_tokens) * ALWAYS)
        for state, part in zip(always, parts, strict=True):
            for item in state.section.items:
                self._take(state, item, part)
        self._left = self._budget - sum(parts) - (self._frame_tokens if self._framed else 0)
        for name, item in by_worth([one.section for one in self._states.values()], tokens, self._floor):
            state = self._states[name]
            if self._take(state, item, None) == "budget":
                break
        chosen = {name: state for name, state in self._states.items() if state.taken}
        sizes = {name: state.tokens for name, state in chosen.items()}
        total = sum(sizes.values()) + (self._frame_tokens if self._framed else 0)
        return PackedPrompt({name: state.taken for name, state in chosen.items()}, sizes, total, list(self._dropped()))

    def _wanted(self, state: _State) -> TokenBound:
        """Tokens that a section would take if there were no other."""
        section, alone = state.section, _State(state.section)
        for item in section.items[: section.limit]:
            if section.max_tokens is not None and alone.tokens >= section.max_tokens:
                break
            alone.add(item)
        return alone.tokens if section.max_tokens is None else min(alone.tokens, section.max_tokens)

    def _take(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> str | None:
        """The reason why not, or None. `max_tokens`: of the section with this item; None: its own bound."""
        reason = self._reason(state, item, max_tokens)
        if reason is not None:
            state.reasons.setdefault(item.id, reason)
            return reason
        self._left -= state.cost(item) + self._frame(state)
        self._framed |= state.section.framed
        state.add(item)
        self._said |= item.same
        self._ids.add(item.id)
        return None

    def _frame(self, state: _State) -> int:
        return self._frame_tokens if state.section.framed and not self._framed else 0

    def _reason(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> str | None:
        if item.id in self._ids or self._said & item.same:
            return "duplicate"
        if len(state.taken) >= state.section.limit:
            return "limit"
        cost = state.cost(item)
        if cost + self._frame(state) > self._left:
            return "budget"
        bound = state.section.max_tokens if max_tokens is None else max_tokens
        return "section_budget" if bound is not None and state.tokens + cost > bound else None

    def _dropped(self) -> Iterator[tuple[Candidate, str]]:
        """Each once: an item of its own before the same turn as another's partner."""
        seen = set(self._ids)
        for state in self._states.values():
            partners = (item.partner for item in state.section.items if item.partner is not None)
            for item in (*state.section.items, *partners):
                if item.id not in seen:
                    seen.add(item.id)
                    yield item, state.reasons.get(item.id) or self._untried(item)

    def _untried(self, item: Candidate) -> str:
        """An item that was not tried does not reach the floor, or came after the first one that did not fit."""
        if item.score is None or item.score < self._floor:
            return "score"
        return "duplicate" if self._said & item.same else "budget"


def shares(wanted: Sequence[TokenBound], pool: TokenBound) -> list[Fraction]:
    """A part of the pool for each: as much as it wants, or an equal part of what is left by those that want less.

    The sum never exceeds the pool. With a larger pool no part is smaller ("water-filling", max-min fairness).
    """
    parts = [Fraction(0)] * len(wanted)
    left = Fraction(pool)
    for rank, index in enumerate(sorted(range(len(wanted)), key=lambda at: wanted[at])):
        parts[index] = min(Fraction(wanted[index]), left / (len(wanted) - rank))
        left -= parts[index]
    return parts


def by_worth(sections: Iterable[Section], tokens: Price, floor: float) -> list[tuple[str, Candidate]]:
    """(section, item) of all items that compete and whose score reaches the floor, the one of most worth first.

    A turn that makes sense of another competes with its own part of the other's score. `tokens`: what an item takes,
    about. Worth is score × boost ÷ tokens; of equal worth the higher score comes first.
    """
    found = [
        (-item.score * section.boost / max(1, tokens(item)), -item.score, order, section.name, item)
        for section in sections
        if not section.always
        for order, item in enumerate(with_partners(section.items))
        if item.score is not None and item.score >= floor
    ]
    return [(name, item) for *_, name, item in sorted(found, key=lambda one: one[:3])]


def with_partners(items: Iterable[Candidate]) -> Iterator[Candidate]:
    """Each item, and after it its partner, if it has one."""
    for item in items:
        yield item
        if item.partner is not None:
            yield item.partner
