"""Which items go in: pure. Sections come by priority, items best first, and the budget is a wall.

1. Each section takes, of its best items (as many as its limit), those that fit into its own share.
2. What is left goes to the items still waiting, by priority, whatever their section's share.
3. Then to those that yield to an item of another section, which says the same and is better placed there.

So an item that is left out for the budget does not fit into what remains of it: what was taken after it was smaller.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from app.context.items import Item


@dataclass(frozen=True, slots=True)
class Priced:
    """An item as it will stand there, and what that costs. `yields`: another section has it, too, and is the better
    place."""

    item: Item
    citation: str
    line: str
    tokens: int
    yields: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """One section. `share`: tokens that are its own in the first round. `most`: tokens that it never exceeds."""

    name: str
    items: Sequence[Priced]
    title_tokens: int
    limit: int
    share: int
    most: int | None = None
    framed: bool = True
    """Stands inside the frame, which costs its tokens once."""


@dataclass(frozen=True, slots=True)
class Chosen:
    name: str
    items: list[Priced]
    tokens: int


@dataclass(frozen=True, slots=True)
class Packed:
    sections: list[Chosen]
    dropped: list[tuple[Item, str]]
    tokens: int


@dataclass(slots=True)
class _Section:
    wanted: Wanted
    taken: list[int] = field(default_factory=list)
    tokens: int = 0

    def cost(self, at: int) -> int:
        return self.wanted.items[at].tokens + (0 if self.taken else self.wanted.title_tokens)

    @property
    def full(self) -> bool:
        return len(self.taken) >= self.wanted.limit

    def waiting(self, *, yielding: bool) -> Iterator[int]:
        for at, priced in enumerate(self.wanted.items):
            if priced.yields == yielding and at not in self.taken:
                yield at


class _Packing:
    def __init__(self, wanted: Iterable[Wanted], budget: int, frame_tokens: int) -> None:
        self._sections = [_Section(one) for one in wanted]
        self._left, self._frame_tokens = budget, frame_tokens
        self._framed = False
        self._said: set[str] = set()
        self._budget = budget

    def run(self) -> Packed:
        for section in self._sections:
            own = (
                section.wanted.share if section.wanted.most is None else min(section.wanted.share, section.wanted.most)
            )
            self._fill(section, own, yielding=False, first=section.wanted.limit)
        for yielding in (False, True):
            for section in self._sections:
                self._fill(section, section.wanted.most, yielding=yielding)
        chosen = [
            Chosen(one.wanted.name, [one.wanted.items[at] for at in sorted(one.taken)], one.tokens)
            for one in self._sections
            if one.taken
        ]
        return Packed(chosen, list(self._dropped()), self._budget - self._left)

    def _fill(self, section: _Section, most: int | None, *, yielding: bool, first: int | None = None) -> None:
        """Of the `first` that wait, in order, those that fit."""
        waiting = (at for at in section.waiting(yielding=yielding) if not self._repeats(section, at))
        for at in islice(waiting, first):
            if section.full:
                return
            item, cost = section.wanted.items[at].item, section.cost(at)
            frame = self._frame_tokens if section.wanted.framed and not self._framed else 0
            if self._repeats(section, at) or cost + frame > self._left:
                continue
            if most is not None and section.tokens + cost > most:
                continue
            section.taken.append(at)
            section.tokens += cost
            self._left -= cost + frame
            self._framed |= section.wanted.framed
            self._said |= item.same

    def _repeats(self, section: _Section, at: int) -> bool:
        return bool(self._said & section.wanted.items[at].item.same)

    def _dropped(self) -> Iterator[tuple[Item, str]]:
        for section in self._sections:
            for at, priced in enumerate(section.wanted.items):
                if at not in section.taken:
                    yield priced.item, self._reason(section, at)

    def _reason(self, section: _Section, at: int) -> str:
        if self._repeats(section, at):
            return "duplicate"
        if section.full:
            return "limit"
        most = section.wanted.most
        return "section_budget" if most is not None and section.tokens + section.cost(at) > most else "budget"


def pack(wanted: Iterable[Wanted], budget: int, frame_tokens: int) -> Packed:
    """`wanted` by priority, the most important first. The tokens are those of all lines, titles and the frame."""
    return _Packing(wanted, budget, frame_tokens).run()
