"""Packing: chooses the items of a prompt by their scores, their tokens and a budget. It reads nothing else, so that
equal items give equal prompts. A `Packer` packs once.

1. Fixed sections, such as rules, take at most `FIXED_SHARE` of the budget. Each may take up to its own `max_tokens`; if
   together they want more than there is, their parts shrink alike. Within its part a section takes its items in order.
2. All other items compete for the rest of the budget, whatever their section, in the order of `ranked`. The packer
   stops at the first that does not fit. A larger budget therefore contains every item that a smaller one contains, if
   the fixed sections contain the same in both. Unused tokens of their parts are not given away. Their number depends on
   where a budget happens to cut, so a larger budget could leave less for the rest.
3. `most_competing_tokens` may end packing earlier: it counts what competes, not the budget, so a prompt that it ends is
   the beginning of the one without it. The first item goes in whatever it takes.

The budget is never exceeded. Parts are exact fractions, because rounding could make the rest of a larger budget smaller
by a token. What the prompt says already is not packed:

- Of items that share a key only one is packed: a turn, or the memory of the same message.
- A competing text that was made from others (`Candidate.derived`) is left out if the prompt has more than half of its
  words, each weighed by its rarity: "The user moved to Boston." behind "I moved to Boston last week."
- A competing text that was not is left out if texts that were have more than three quarters of its words, weighed
  alike: "Moved to Boston." behind "The user moved to Boston in May."
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from app.context.schemas import DropReason
from app.context.source import Candidate, TokenBound
from app.storage.text import text_ids

FIXED_SHARE = Fraction(3, 5)
"""Share of the budget for all fixed sections."""

LONG_ITEM = 600
"""Characters of a long item: a memory is cut at 120 tokens."""
BEST_KEPT = 5
"""So many of the items with the best scores are not taken below the minimum score by their factor."""

TokenCount = Callable[[Candidate], int]
"""Returns the exact tokens of an item's line, or of its heading."""


@dataclass(frozen=True, slots=True)
class BoundedSection:
    """What packing reads of a `GatheredSection`: its items, best first, their tokens and its bounds."""

    name: str
    items: Sequence[Candidate]
    item_tokens: TokenCount
    heading_tokens: TokenCount
    title_tokens: int
    limit: int
    """Maximum items."""
    max_tokens: TokenBound | None = None
    fixed: bool = False
    """Whether its items do not compete, because what it has does not depend on the query."""
    framed: bool = True
    """Whether it stands inside the frame, whose tokens count once."""
    boost: float = 1.0
    """Factor of the intent for the rank of the section's items."""


class Misfit(NamedTuple):
    """Why an item did not fit."""

    needed: int
    """Tokens that it would have added, with its title, heading and frame where they were new."""
    left: int
    """Tokens that were left for it, of its section's part or, where that was not full, of the budget."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The result of packing.

    `chosen`: the items of each section that has some, in the order of the sections. `tokens`: tokens of each of these
    sections, title and headings included. `total`: tokens of all, with the frame. `dropped`: (item, reason). `misfits`:
    those of the dropped that did not fit when their turn came, by id.
    """

    chosen: Mapping[str, Sequence[Candidate]]
    tokens: Mapping[str, int]
    total: int
    dropped: Sequence[tuple[Candidate, DropReason]]
    misfits: Mapping[str, Misfit] = field(default_factory=dict)


@dataclass(slots=True)
class _State:
    """What one section contains so far."""

    section: BoundedSection
    taken: list[Candidate] = field(default_factory=list)
    headings: set[str] = field(default_factory=set)
    tokens: int = 0
    reasons: dict[str, DropReason] = field(default_factory=dict)
    _last_cost: tuple[Candidate, int] | None = None
    """The item whose cost was counted last, and that cost. The bounds and the sum need it."""

    def cost(self, item: Candidate) -> int:
        """Returns the tokens that the item adds, with title and heading if they are new."""
        if self._last_cost is None or self._last_cost[0] is not item:
            title = 0 if self.taken else self.section.title_tokens
            is_headed = item.heading is not None and item.heading.key not in self.headings
            heading = self.section.heading_tokens(item) if is_headed else 0
            self._last_cost = item, title + heading + self.section.item_tokens(item)
        return self._last_cost[1]

    def add(self, item: Candidate) -> None:
        self.tokens += self.cost(item)
        self._last_cost = None
        self.taken.append(item)
        if item.heading is not None:
            self.headings.add(item.heading.key)


class Packer:
    """Packs one prompt.

    `frame_tokens`: tokens of the frame around all framed sections. `min_score`: of competing items.
    `most_competing_tokens`: of all competing items; None: when the budget is full. `fill`: whether to fill the budget:
    no factors (`Candidate.factor`), and by score for each character.
    """

    def __init__(
        self,
        sections: Sequence[BoundedSection],
        budget: int,
        frame_tokens: int,
        min_score: float,
        most_competing_tokens: int | None = None,
        *,
        fill: bool = False,
    ) -> None:
        self._min_score, self._most_competing_tokens, self._fill = min_score, most_competing_tokens, fill
        self._has_enough = False
        self._states = {section.name: _State(section) for section in sections}
        self._budget, self._frame_tokens = budget, frame_tokens
        self._left: TokenBound = budget
        self._framed = False
        self._keys: set[str] = set()
        """Keys of what the prompt says (`Candidate.keys`)."""
        self._ids: set[str] = set()
        self._misfits: dict[str, Misfit] = {}
        competing = [item for section in sections if not section.fixed for item in section.items]
        self._texts_with = Counter[int]()
        """How many competing texts have each word; empty if no text is derived from others."""
        if any(item.derived for item in competing):
            self._texts_with.update(word for item in competing for word in _words(item))
        self._words, self._derived_words = set[int](), set[int]()
        """The words of the prompt, and of its texts that were derived from others."""

    def pack(self) -> Packing:
        """Returns the packed prompt."""
        fixed = [state for state in self._states.values() if state.section.fixed]
        parts = shares(
            [self._wanted(state) for state in fixed], max(0, self._budget - self._frame_tokens) * FIXED_SHARE
        )
        for state, part in zip(fixed, parts, strict=True):
            for item in state.section.items:
                self._take(state, item, part)
        # of 1,000 tokens, without a frame: fixed parts of 420, of which 390 are used, leave 580 to compete for
        left = self._budget - sum(parts) - (self._frame_tokens if self._framed else 0)
        self._left = math.floor(left)  # items cost whole tokens: what fits into 580.4 fits into 580
        ordered = ranked([state.section for state in self._states.values()], self._min_score, fill=self._fill)
        self._compete(ordered)
        competed = {item.id for _, item in ordered}
        chosen = {name: state.taken for name, state in self._states.items() if state.taken}
        tokens = {name: self._states[name].tokens for name in chosen}
        total = sum(tokens.values()) + (self._frame_tokens if self._framed else 0)
        return Packing(chosen, tokens, total, list(self._dropped(competed)), self._misfits)

    def _compete(self, ordered: Sequence[tuple[str, Candidate]]) -> None:
        """Takes competing items in their order, until one does not fit or there are `most_competing_tokens`."""
        tokens, has_some = 0, False
        for name, item in ordered:
            state = self._states[name]
            cost = state.cost(item)
            # a duplicate takes no tokens and counts still, because the prompt has what it says: two memories of turns
            # that are shown may be 50 of 150 tokens. Until one item is packed (`has_some`), they end nothing
            if has_some and self._most_competing_tokens is not None and tokens + cost > self._most_competing_tokens:
                self._has_enough = True
                return
            reason = self._take(state, item, state.section.max_tokens)
            if reason == "budget":
                return
            has_some |= reason is None
            if reason in {None, "duplicate"}:
                tokens += cost

    def _wanted(self, state: _State) -> TokenBound:
        """Returns the tokens that a section would take on its own."""
        section, alone = state.section, _State(state.section)
        for item in section.items[: section.limit]:
            if section.max_tokens is not None and alone.tokens >= section.max_tokens:
                break
            alone.add(item)
        return alone.tokens if section.max_tokens is None else min(alone.tokens, section.max_tokens)

    def _take(self, state: _State, item: Candidate, most: TokenBound | None) -> DropReason | None:
        """Takes the item and returns None, or returns the reason against it. `most`: the tokens of its section: its
        own maximum, or the part that a fixed section gets."""
        reason = self._reason(state, item, most)
        if reason is not None:
            state.reasons.setdefault(item.id, reason)
            return reason
        self._left -= state.cost(item) + self._frame_cost(state)
        self._framed |= state.section.framed
        state.add(item)
        self._keys |= item.keys | item.says
        if self._texts_with:
            self._words |= _words(item)
            if item.derived:
                self._derived_words |= _words(item)
        self._ids.add(item.id)
        return None

    def _frame_cost(self, state: _State) -> int:
        return self._frame_tokens if state.section.framed and not self._framed else 0

    def _reason(self, state: _State, item: Candidate, most: TokenBound | None) -> DropReason | None:
        if item.id in self._ids or self._keys & item.keys or (not state.section.fixed and self._is_known(item)):
            return "duplicate"
        if len(state.taken) >= state.section.limit:
            return "limit"
        cost = state.cost(item)
        if (needed := cost + self._frame_cost(state)) > self._left:
            self._misfits.setdefault(item.id, Misfit(needed, math.floor(self._left)))
            return "budget"
        if most is not None and state.tokens + cost > most:
            self._misfits.setdefault(item.id, Misfit(cost, math.floor(most - state.tokens)))
            return "section_budget"
        return None

    def _is_known(self, item: Candidate) -> bool:
        """Returns whether an item was made from other texts, and the prompt has more than half of its words, or what
        was made from others has more than three quarters of it: it may say more than they do."""
        known, most = (self._words, 1 / 2) if item.derived else (self._derived_words, 3 / 4)
        if not known or not self._texts_with:
            return False
        weights = {word: 1 / max(1, self._texts_with[word]) for word in _words(item)}
        return sum(weights[word] for word in weights.keys() & known) > most * sum(weights.values())

    def _dropped(self, competed: Set[str]) -> Iterator[tuple[Candidate, DropReason]]:
        """Yields each item that no section has packed, once: a reminder that is due may be found by the search, too."""
        seen = set(self._ids)
        for state in self._states.values():
            for item in state.section.items:
                if item.id not in seen:
                    seen.add(item.id)
                    yield item, state.reasons.get(item.id) or self._untried(item, competed)

    def _untried(self, item: Candidate, competed: Set[str]) -> DropReason:
        """Returns why an item was not tried: it is below the minimum score, or behind the first one that did not fit,
        or there was enough before it."""
        if item.id not in competed:
            return "score"
        if self._keys & item.keys:
            return "duplicate"
        return "enough" if self._has_enough else "budget"


def _words(item: Candidate) -> frozenset[int]:
    return frozenset(text_ids(item.text).tolist())


def shares(wanted: Sequence[TokenBound], pool: TokenBound) -> list[Fraction]:
    """Divides the pool: each gets what it wants, or an equal part of what is left by those that want less.

    The sum never exceeds the pool. With a larger pool no part is smaller ("water-filling", max-min fairness).
    """
    parts = [Fraction(0)] * len(wanted)
    left = Fraction(pool)
    for rank, index in enumerate(sorted(range(len(wanted)), key=lambda at: wanted[at])):
        parts[index] = min(Fraction(wanted[index]), left / (len(wanted) - rank))
        left -= parts[index]
    return parts


def ranked(sections: Iterable[BoundedSection], min_score: float, *, fill: bool) -> list[tuple[str, Candidate]]:
    """Returns (section, item) of all competing items that reach the minimum score, best first.

    An item counts by its score times its factor, such as half for a line of the assistant. The factor takes none of
    the `BEST_KEPT` items with the best scores below the minimum. The order alone depends on the boost of the section,
    and on the length of an item longer than any memory: a procedure of 1,200 characters comes as if it had half its
    score, since packing ends at the first item that does not fit. Where the budget is filled (`fill`), there are no
    factors, and all come by score for each character, so that as much of what helps has room as can be.
    """
    competing = [
        (item.score, section, order, item)
        for section in sections
        if not section.fixed
        for order, item in enumerate(section.items)
        if item.score is not None and item.score >= min_score
    ]
    # of the scores .9 .8 .7 .6 .5 .4 the fifth best is .5; of fewer than five items none falls below the minimum
    fifth_best = sorted((score for score, *_ in competing), reverse=True)[BEST_KEPT - 1 : BEST_KEPT]
    counted = []
    for score, section, order, item in competing:
        value = score if fill else score * item.factor
        if not fifth_best or score >= fifth_best[0]:
            value = max(value, min_score)
        if value >= min_score:
            length = max(1, len(item.text))
            rank_value = value * section.boost * (1 / length if fill else min(1.0, LONG_ITEM / length))
            counted.append((-rank_value, -score, order, section.name, item))
    return [(name, item) for *_, name, item in sorted(counted, key=lambda entry: entry[:3])]
