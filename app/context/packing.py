"""Packing: chooses the items of a prompt by their scores, their tokens and a budget. It reads nothing else, so that
equal items give equal prompts. A `Packer` packs once.

1. Sections that are always there take at most `FIXED_SHARE` of the budget. Each may take up to its own `max_tokens`; if
   together they want more than there is, their parts shrink alike. Within its part a section takes its items in order.
2. All other items compete for the rest of the budget, whatever their section: by worth, which is the score for each
   token. The packer takes them in that order and stops at the first that does not fit. A larger budget therefore
   contains every item that a smaller one contains, if the sections that are always there contain the same in both.
   Unused tokens of their parts are not given away. Their number depends on where a budget happens to cut, so a larger
   budget could leave less for the rest.

3. A stop rule may end packing earlier. It reads the items in the order of packing, and not the budget, so a prompt that
   is packed by one is the beginning of the one that is filled. A section's bound that is a share of the budget may move
   the end.

The budget is never exceeded. Of items that say the same only one is packed: of those that share a key;
and no competing item is packed of which every sentence stands in the prompt already, said on its day or later. Parts
are exact fractions, because rounding could make the rest of a larger budget smaller by a token.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import NamedTuple

from app.context.candidates import Candidate, Comparison
from app.context.repetition import compared_sentences, same_text, sentences_said
from app.context.schemas import DropReason
from app.context.stop_rule import StopRule

FIXED_SHARE = Fraction(3, 5)
"""Share of the budget for all sections that are always there."""

NO_DAY = "9999-12-31"
"""Stands for the day of an item that has none: it holds whenever it is read, so it is later than any day."""

TokenCount = Callable[[Candidate], int]
"""Returns the exact tokens of an item's line, or of its heading."""
TokenEstimate = Callable[[Candidate], int]
"""Returns about the tokens of an item's line, by which items are ordered. The exact count follows when their turn
comes."""
TokenBound = int | Fraction
"""A number of tokens; a part of the budget is a fraction."""


@dataclass(frozen=True, slots=True)
class Section:
    """Items of one section, best first, and their tokens."""

    name: str
    items: Sequence[Candidate]
    item_tokens: TokenCount
    heading_tokens: TokenCount
    title_tokens: int
    limit: int
    """Maximum items."""
    max_tokens: TokenBound | None = None
    always: bool = False
    """Whether it is always there: its items do not compete, because its place does not depend on the query."""
    framed: bool = True
    """Whether it stands inside the frame, whose tokens count once."""
    compared: bool = False
    """Whether its texts are compared by sentence with those of other sections that are."""
    boost: float = 1.0
    """Factor of the intent for the worth of the section's items."""


class Misfit(NamedTuple):
    """Why an item did not fit."""

    needed: int
    """Tokens that it would have added, with its title, heading and frame where they were new."""
    room: TokenBound
    """Tokens of its section's part or, where that was not full, of the rest of the budget."""
    used: int
    """Those of them that other items had taken."""

    @property
    def left(self) -> int:
        """Tokens that were left for it."""
        return floor(self.room - self.used)


@dataclass(frozen=True, slots=True)
class PackedPrompt:
    """The result of packing.

    `chosen`: the items of each section that has some, in the order of the sections. `tokens`: tokens of each of these
    sections, title and headings included. `total`: tokens of all, with the frame. `dropped`: (item, reason). `misfits`:
    those of the dropped that did not fit when their turn came, by id. `said`: ids of the dropped whose words went in
    later, in another section.
    """

    chosen: Mapping[str, Sequence[Candidate]]
    tokens: Mapping[str, int]
    total: int
    dropped: Sequence[tuple[Candidate, DropReason]]
    misfits: Mapping[str, Misfit] = field(default_factory=dict)
    said: frozenset[str] = frozenset()


@dataclass(slots=True)
class _State:
    """What one section contains so far."""

    section: Section
    taken: list[Candidate] = field(default_factory=list)
    headings: set[str] = field(default_factory=set)
    tokens: int = 0
    reasons: dict[str, DropReason] = field(default_factory=dict)
    parts: dict[str, list[Candidate]] = field(default_factory=dict)
    """Of a chain that was tried without some of its facts, by its id: what was tried, and each of these facts."""
    _last_cost: tuple[Candidate, int] | None = None
    """The item whose cost was counted last, and that cost. The stop rule, the bounds and the sum need it."""

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

    `frame_tokens`: tokens of the frame around all framed sections. `floor`: minimum score of competing items. `stop`:
    says when enough of them is packed; None: when the budget is full. `fixed_share`: share of the budget for all
    sections that are always there. `already_in_prompt`: items that stand in the prompt outside of what is packed.
    """

    def __init__(
        self,
        sections: Sequence[Section],
        budget: int,
        frame_tokens: int,
        floor: float,
        stop: StopRule | None = None,
        *,
        fixed_share: Fraction = FIXED_SHARE,
        already_in_prompt: Iterable[Candidate] = (),
    ) -> None:
        self._floor, self._stop = floor, stop
        self._has_enough = False
        self._states = {section.name: _State(section) for section in sections}
        self._budget, self._frame_tokens, self._fixed_share = budget, frame_tokens, fixed_share
        self._left: TokenBound = budget
        self._framed = False
        self._keys: set[str] = set()
        """Keys of what the prompt says (`Comparison.keys`)."""
        self._last_days: dict[int, str] = {}
        """The latest day of each sentence in the prompt. What holds whenever it is read is later than any day."""
        self._ids: set[str] = set()
        self._misfits: dict[str, Misfit] = {}
        self._without_room: list[Candidate] = []
        """Items of sections that are always there for which there was no room."""
        self._last_read: tuple[Candidate, frozenset[int]] | None = None
        """The item that was compared last, and its sentences."""
        for item in already_in_prompt:
            self._keys |= item.comparison.keys
            self._note_sentences(item)

    def pack(self, estimate: TokenEstimate) -> PackedPrompt:
        """Returns the packed prompt."""
        fixed = [state for state in self._states.values() if state.section.always]
        parts = shares(
            [self._wanted(state) for state in fixed], max(0, self._budget - self._frame_tokens) * self._fixed_share
        )
        for state, part in zip(fixed, parts, strict=True):
            for item in state.section.items:
                self._take(state, item, part)
        left = self._budget - sum(parts) - (self._frame_tokens if self._framed else 0)
        self._left = floor(left)  # of what costs whole tokens as much fits, and integers are faster
        self._compete(by_worth([state.section for state in self._states.values()], estimate, self._floor))
        chosen = {name: state for name, state in self._states.items() if state.taken}
        tokens = {name: state.tokens for name, state in chosen.items()}
        total = sum(tokens.values()) + (self._frame_tokens if self._framed else 0)
        taken = {name: state.taken for name, state in chosen.items()}
        return PackedPrompt(taken, tokens, total, list(self._dropped()), self._misfits, self._said_later())

    def _compete(self, ordered: Sequence[tuple[str, Candidate]]) -> None:
        """Takes competing items in the order of their worth, until one does not fit or the stop rule says that there is
        enough."""
        if self._stop is not None:
            self._stop.begin([item for _, item in ordered])
        tokens, has_some = 0, False
        for index, (name, whole) in enumerate(ordered):
            state, item = self._states[name], self._unsaid(whole)
            cost = state.cost(item)
            # Items that the prompt says already count as packed, so the rule could be content with repetitions alone.
            # It is asked before the first item, to learn whether anything is needed, and then only once one went in.
            if self._stop is not None and (index == 0 or has_some) and self._stop.is_enough(index, tokens, cost):
                self._has_enough = True
                return
            if item is not whole:
                repeated = list(_facts_without(whole, item))
                state.parts[whole.id] = [item, *repeated]
                state.reasons |= {fact.id: "duplicate" for fact in repeated}
            reason = self._take(state, item, None)
            if reason == "budget":
                return
            has_some |= reason is None
            if reason in {None, "duplicate"}:  # what the prompt says already counts as packed
                tokens += cost

    def _wanted(self, state: _State) -> TokenBound:
        """Returns the tokens that a section would take on its own."""
        section, alone = state.section, _State(state.section)
        for item in section.items[: section.limit]:
            if section.max_tokens is not None and alone.tokens >= section.max_tokens:
                break
            alone.add(item)
        return alone.tokens if section.max_tokens is None else min(alone.tokens, section.max_tokens)

    def _take(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> DropReason | None:
        """Takes the item and returns None, or returns the reason against it.

        `max_tokens`: limit of the section with this item. None: the section's own limit.
        """
        reason = self._reason(state, item, max_tokens)
        if reason is not None:
            state.reasons.setdefault(item.id, reason)
            if reason != "duplicate":
                self._note_misfit(state, item, reason, max_tokens)
            return reason
        self._left -= state.cost(item) + self._frame(state)
        self._framed |= state.section.framed
        state.add(item)
        self._keys |= item.comparison.keys
        if state.section.compared or item.comparison.by_sentence:
            self._note_sentences(item)
        self._ids.add(item.id)
        return None

    def _note_misfit(self, state: _State, item: Candidate, reason: DropReason, max_tokens: TokenBound | None) -> None:
        if state.section.always:
            self._without_room.append(item)
        bound = state.section.max_tokens if max_tokens is None else max_tokens
        if reason == "budget":
            self._misfits.setdefault(item.id, Misfit(state.cost(item) + self._frame(state), self._left, 0))
        elif reason == "section_budget" and bound is not None:
            self._misfits.setdefault(item.id, Misfit(state.cost(item), bound, state.tokens))

    def _note_sentences(self, item: Candidate) -> None:
        for sentence in self._sentences(item):
            self._last_days[sentence] = max(self._last_days.get(sentence, ""), item.day or NO_DAY)

    def _sentences(self, item: Candidate) -> frozenset[int]:
        if self._last_read is None or self._last_read[0] is not item:
            self._last_read = item, compared_sentences(item)
        return self._last_read[1]

    def _frame(self, state: _State) -> int:
        return self._frame_tokens if state.section.framed and not self._framed else 0

    def _reason(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> DropReason | None:
        if item.id in self._ids or self._keys & item.comparison.keys or self._repeats(state, item):
            return "duplicate"
        if len(state.taken) >= state.section.limit:
            return "limit"
        cost = state.cost(item)
        if cost + self._frame(state) > self._left:
            return "budget"
        bound = state.section.max_tokens if max_tokens is None else max_tokens
        return "section_budget" if bound is not None and state.tokens + cost > bound else None

    def _repeats(self, state: _State, item: Candidate) -> bool:
        """Returns whether the prompt has each sentence of an item, said on its day or later. What was said again later
        is no repetition: beside "I live in Bergen" of June, "I live in Oslo" of July is not that of May.

        Of items that are always there, only lines of earlier sessions and interactions are left out for it."""
        if state.section.always and not (item.recalls or item.comparison.by_sentence):
            return False
        if not (state.section.compared or item.comparison.by_sentence):
            return False
        return self._stands(self._sentences(item), item.day)

    def _stands(self, sentences: frozenset[int], day: str) -> bool:
        """Returns whether the prompt has each of these sentences, said on this day or later."""
        last_days = self._last_days
        return bool(sentences) and all(sentence in last_days and last_days[sentence] >= day for sentence in sentences)

    def _unsaid(self, item: Candidate) -> Candidate:
        """Returns the item; of a chain, of which the prompt has the first or the last facts, what is left of it: beside
        "Emil attends Fernhill Primary" of a memory, "Fernhill Primary opens at 08:20"."""
        if item.part is None:
            return item
        statements = item.comparison.statements
        new = [
            at
            for at, statement in enumerate(statements)
            # an entry may say the same in another form, such as "name: Ada" of the profile
            if same_text(statement) not in self._keys and not self._stands(sentences_said(statement), item.day)
        ]
        if not new or (new[0] == 0 and new[-1] == len(statements) - 1):
            return item
        return item.part(new[0], new[-1] + 1)

    def _said_later(self) -> frozenset[str]:
        """Returns the ids of items of sections that are always there whose words are in the prompt, though there was no
        room for them: these sections are packed first, so an item that competes may say the same. Items that compete
        are compared when their turn comes."""
        return frozenset(
            item.id
            for item in self._without_room
            if item.id not in self._ids
            and (self._keys & item.comparison.keys or self._stands(self._sentences(item), item.day))
        )

    def _dropped(self) -> Iterator[tuple[Candidate, DropReason]]:
        """Yields each dropped item once. An item of its own comes before the same turn as another item's partner, and
        of a chain the facts that the prompt had stand for themselves."""
        seen = set(self._ids)
        for state in self._states.values():
            partners = (item.partner for item in state.section.items if item.partner is not None)
            items = (*state.section.items, *partners)
            if state.parts:
                items = tuple(part for item in items for part in state.parts.get(item.id, (item,)))
            for item in items:
                if item.id not in seen:
                    seen.add(item.id)
                    yield item, state.reasons.get(item.id) or self._untried(item)

    def _untried(self, item: Candidate) -> DropReason:
        """Returns why an item was not tried: it is below the floor, or behind the first one that did not fit, or
        there was enough before it."""
        if item.score is None or item.score < self._floor:
            return "score"
        if self._keys & item.comparison.keys:
            return "duplicate"
        return "enough" if self._has_enough else "budget"


def _facts_without(chain: Candidate, part: Candidate) -> Iterator[Candidate]:
    """Yields each fact of a chain that a part of it does not state."""
    for fact_id, statement in zip(chain.links, chain.comparison.statements, strict=True):
        if fact_id not in part.links:
            comparison = Comparison(frozenset({same_text(statement)}), statements=(statement,))
            yield Candidate(fact_id, chain.type, statement, chain.score, comparison=comparison, links=(fact_id,))


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


def by_worth(sections: Iterable[Section], estimate: TokenEstimate, floor: float) -> list[tuple[str, Candidate]]:
    """Returns (section, item) of all competing items whose score reaches the floor, by falling worth.

    Worth is score × boost ÷ tokens; of equal worth the higher score comes first. A partner competes with its own part
    of the score.
    """
    competing = [
        (-item.score * section.boost / max(1, estimate(item)), -item.score, order, section.name, item)
        for section in sections
        if not section.always
        for order, item in enumerate(with_partners(section.items))
        if item.score is not None and item.score >= floor
    ]
    return [(name, item) for *_, name, item in sorted(competing, key=lambda entry: entry[:3])]


def with_partners(items: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yields each item, followed by its partner if it has one."""
    for item in items:
        yield item
        if item.partner is not None:
            yield item.partner
