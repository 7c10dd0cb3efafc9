"""Broken packers: the checks of the packer find each of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from app.context.packing import Misfit, Packer, Packing, _State
from app.context.schemas import DropReason
from app.context.source import Candidate, TokenBound
from tests.context.packing_rules import Case, a_case, broken


class OneTooMany(Packer):
    """Over the budget by a token."""

    def _reason(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> DropReason | None:
        self._left += 1
        reason = super()._reason(state, item, max_tokens)
        self._left -= 1
        return reason


class ForgetsTitles(Packer):
    def pack(self) -> Packing:
        for state in self._states.values():
            state.section = replace(state.section, title_tokens=0)
        return super().pack()


class ForgetsHeadings(Packer):
    def pack(self) -> Packing:
        for state in self._states.values():
            state.section = replace(state.section, heading_tokens=lambda item: 0)
        return super().pack()


class ForgetsTheFrame(Packer):
    def _frame_cost(self, state: _State) -> int:
        return 0

    def pack(self) -> Packing:
        self._frame_tokens = 0
        return super().pack()


class Endless(Packer):
    def pack(self) -> Packing:
        for state in self._states.values():
            state.section = replace(state.section, limit=state.section.limit + 1)
        return super().pack()


class NoWalls(Packer):
    """A section's own bound is not minded."""

    def pack(self) -> Packing:
        for state in self._states.values():
            state.section = replace(state.section, max_tokens=None)
        return super().pack()


class Greedy(Packer):
    """What is always there may take all."""

    def _take(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> DropReason | None:
        return super()._take(state, item, Fraction(self._budget) if max_tokens is not None else None)


class SaysAllTwice(Packer):
    def _take(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> DropReason | None:
        self._keys.clear()
        return super()._take(state, item, max_tokens)


class NoMinScore(Packer):
    def pack(self) -> Packing:
        self._min_score = 0.0
        return super().pack()


class GoesOn(Packer):
    """Skips what does not fit, and takes what is worse."""

    def _take(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> DropReason | None:
        reason = super()._take(state, item, max_tokens)
        return "limit" if reason == "budget" else reason  # any other reason goes on


class StopsEarly(Packer):
    """Ends at any item that is left out."""

    def _take(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> DropReason | None:
        return super()._take(state, item, max_tokens) and "budget"


class ByScore(Packer):
    """What an item is does not count."""

    def pack(self) -> Packing:
        self._fill = True
        return super().pack()


def by(kind: type[Packer]) -> Callable[[Case], Packing]:
    return lambda case: kind(case.sections, case.budget, case.frame, case.min_score).pack()


def tampered(change: Callable[[Packing], Packing]) -> Callable[[Case], Packing]:
    return lambda case: change(case.packed())


def _reversed(items: Sequence[Candidate]) -> Sequence[Candidate]:
    return items[::-1]


PLANTED: dict[str, tuple[Callable[[Case], Packing], str]] = {
    "one token more": (by(OneTooMany), "the budget is a wall"),
    "titles for nothing": (by(ForgetsTitles), "the budget is a wall"),
    "headings for nothing": (by(ForgetsHeadings), "the budget is a wall"),
    "the frame for nothing": (by(ForgetsTheFrame), "the budget is a wall"),
    "one item more": (by(Endless), "a section's limit is a wall"),
    "no section's most": (by(NoWalls), "a section's most is a wall"),
    "what is always there takes all": (by(Greedy), "fixed sections keep to their part"),
    "said twice": (by(SaysAllTwice), "nothing is said twice"),
    "no minimum score": (by(NoMinScore), "the minimum score is minded"),
    "goes on after a miss": (by(GoesOn), "the best goes in first"),
    "ends too early": (by(StopsEarly), "left out for budget, which is not so"),
    "by score alone": (by(ByScore), "the best goes in first"),
    "the dropped are hidden": (
        tampered(lambda packed: replace(packed, dropped=packed.dropped[1:])),
        "each is packed or dropped, once",
    ),
    "one is packed and dropped": (
        tampered(lambda p: replace(p, dropped=[*p.dropped, *((one[0], "budget") for one in p.chosen.values())])),
        "each is packed or dropped, once",
    ),
    "the worst first": (
        tampered(lambda p: replace(p, chosen={name: _reversed(items) for name, items in p.chosen.items()})),
        "fixed sections keep the order of their items",
    ),
    "any order of sections": (
        tampered(lambda packed: replace(packed, chosen=dict(list(packed.chosen.items())[::-1]))),
        "sections come in their order",
    ),
    "room for what did not fit": (
        tampered(lambda p: replace(p, misfits={name: Misfit(it.needed, 10**6) for name, it in p.misfits.items()})),
        "what did not fit needed more than was left",
    ),
    "a line for nothing": (
        tampered(lambda p: replace(p, misfits={name: Misfit(0, -1) for name in p.misfits})),
        "what did not fit needed its line",
    ),
    "any reason": (
        tampered(lambda packed: replace(packed, dropped=[(item, "limit") for item, _ in packed.dropped])),
        "left out for limit, which is not so",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_checks_find_a_planted_fault(fault: str) -> None:
    run, rule = PLANTED[fault]
    random = Random(9)
    assert any(rule in broken(case, run(case)) for case in (a_case(random) for _ in range(2000)))


class Uneven(Packer):
    """Keeps less room for what is always there where the budget is even."""

    def _wanted(self, state: _State) -> TokenBound:
        wanted = super()._wanted(state)
        return wanted if self._budget % 2 else int(wanted) // 2


def test_the_check_of_larger_budgets_finds_a_planted_fault() -> None:
    random = Random(9)
    found = 0
    for _ in range(500):
        case = a_case(random, shared=False)
        small, large = (
            Uneven(case.sections, budget, case.frame, case.min_score).pack()
            for budget in (case.budget, case.budget + 1)
        )
        one, other = (
            {it.id for name, items in packed.chosen.items() if not case.named()[name].fixed for it in items}
            for packed in (small, large)
        )
        found += not one <= other
    assert found
