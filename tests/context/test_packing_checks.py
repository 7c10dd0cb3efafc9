"""Broken packers: the checks of the packer find each of them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import pytest

from app.context import packing
from app.context.packing import Packed, Wanted
from tests.context.packing_rules import Case, a_case, broken


class OneTooMany(packing._Packing):
    """Over the budget by a token."""

    def run(self) -> Packed:
        self._left += 1
        return super().run()


class ForgetsTitles(packing._Section):
    def cost(self, at: int) -> int:
        return self.wanted.items[at].tokens


class Endless(packing._Section):
    @property
    def full(self) -> bool:
        return len(self.taken) > self.wanted.limit


class FirstMiss(packing._Packing):
    """Ends a section at the first item that does not fit."""

    def _fill(self, section: packing._Section, most: int | None, *, yielding: bool, first: int | None = None) -> None:
        for at in list(section.waiting(yielding=yielding)):
            before = len(section.taken)
            only = replace(section.wanted, items=section.wanted.items[: at + 1])
            section.wanted, whole = only, section.wanted
            super()._fill(section, most, yielding=yielding, first=first)
            section.wanted = whole
            if len(section.taken) == before:
                return


class NoShares(packing._Packing):
    """The first takes all."""

    def __init__(self, wanted: Iterable[Wanted], budget: int, frame_tokens: int) -> None:
        greedy = [replace(one, share=budget) for one in wanted]
        super().__init__(greedy, budget, frame_tokens)


class OneRound(packing._Packing):
    """What is left stays unused."""

    def _fill(self, section: packing._Section, most: int | None, *, yielding: bool, first: int | None = None) -> None:
        super()._fill(section, min(section.wanted.share, 99 if most is None else most), yielding=yielding, first=first)


class NoWalls(packing._Packing):
    """A section's own most is not minded."""

    def _fill(self, section: packing._Section, most: int | None, *, yielding: bool, first: int | None = None) -> None:
        super()._fill(section, None, yielding=yielding, first=first)


class SaysAllTwice(packing._Packing):
    def _fill(self, section: packing._Section, most: int | None, *, yielding: bool, first: int | None = None) -> None:
        self._said.clear()
        super()._fill(section, most, yielding=yielding, first=first)


def by(kind: type[packing._Packing]) -> Callable[[Case], Packed]:
    return lambda case: kind(case.wanted, case.budget, case.frame).run()


def with_sections(kind: type[packing._Section]) -> Callable[[Case], Packed]:
    def run(case: Case) -> Packed:
        work = packing._Packing(case.wanted, case.budget, case.frame)
        work._sections = [kind(one) for one in case.wanted]
        return work.run()

    return run


def tampered(change: Callable[[Packed], Packed]) -> Callable[[Case], Packed]:
    return lambda case: change(case.packed())


PLANTED: dict[str, tuple[Callable[[Case], Packed], str]] = {
    "one token more": (by(OneTooMany), "the budget is a wall"),
    "titles for nothing": (with_sections(ForgetsTitles), "a section's tokens add up"),
    "one item more": (with_sections(Endless), "a section's limit is a wall"),
    "ends at the first miss": (by(FirstMiss), "left out for budget, which is not so"),
    "the first takes all": (by(NoShares), "a section's own share is its own"),
    "what is left is wasted": (by(OneRound), "left out for budget, which is not so"),
    "no section's most": (by(NoWalls), "a section's most is a wall"),
    "said twice": (by(SaysAllTwice), "nothing is said twice"),
    "the dropped are hidden": (
        tampered(lambda packed: replace(packed, dropped=packed.dropped[1:])),
        "each is packed or dropped, once",
    ),
    "one is packed and dropped": (
        tampered(lambda p: replace(p, dropped=[*p.dropped, *((c.items[0].item, "budget") for c in p.sections)])),
        "each is packed or dropped, once",
    ),
    "tokens are told wrong": (
        tampered(lambda packed: replace(packed, tokens=packed.tokens and packed.tokens - 1)),
        "all tokens add up",
    ),
    "the worst first": (
        tampered(lambda p: replace(p, sections=[replace(c, items=c.items[::-1]) for c in p.sections])),
        "items come as they were ranked, in their own section",
    ),
    "any priority": (
        tampered(lambda packed: replace(packed, sections=packed.sections[::-1])),
        "sections come by priority",
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
