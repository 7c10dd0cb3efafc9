"""The packer against its rules, as somebody else would check its work."""

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from app.context.packing import Packed, Wanted, pack
from tests.context.packing_rules import FRAME, a_case, a_section, broken, item, section

QUICK = settings(deadline=None, max_examples=60)
RANDOMS = st.randoms(use_true_random=False)
"""Hypothesis makes each choice, and makes a failing case small."""


# --- The packer -------------------------------------------------------------------------------------------------------


@QUICK
@given(RANDOMS)
def test_every_rule_holds(random: Random) -> None:
    case = a_case(random)
    assert broken(case, case.packed()) == []


def test_every_rule_holds_in_many_more_cases() -> None:
    random = Random(7)
    seen: Counter[str] = Counter()
    for _ in range(2000):
        case = a_case(random)
        packed = case.packed()
        assert broken(case, packed) == [], case
        seen.update(reason for _, reason in packed.dropped)
        seen["packed"] += sum(len(chosen.items) for chosen in packed.sections)
    assert min(seen[name] for name in ("packed", "budget", "section_budget", "limit", "duplicate")) > 250, seen


@QUICK
@given(RANDOMS)
def test_where_nothing_repeats_nothing_is_a_duplicate(random: Random) -> None:
    case = a_case(random, keys="")
    packed = case.packed()
    assert broken(case, packed) == []
    assert "duplicate" not in {reason for _, reason in packed.dropped}


def test_it_is_pure() -> None:
    random = Random(8)
    for _ in range(200):
        case = a_case(random)
        before = repr(case)
        assert case.packed() == case.packed()
        assert repr(case) == before


@QUICK
@given(RANDOMS)
def test_more_room_never_costs_a_better_item(random: Random) -> None:
    """Alone in a context, without a share to mind. The count may fall all the same: one large item that now fits is
    better placed than two small ones."""
    alone, budget = a_section(random, "a", yielding=False), random.randint(1, 150)
    small, large = (
        pack([replace(alone, share=size, most=None)], size, FRAME) for size in (budget, budget + random.randint(1, 60))
    )
    assert _marks(alone, small) <= _marks(alone, large)


@QUICK
@given(RANDOMS)
def test_more_room_beyond_the_shares_goes_to_the_first_section_first(random: Random) -> None:
    case, more = a_case(random, yielding=False), random.randint(1, 60)
    needed = case.frame + sum(wanted.share for wanted in case.wanted)
    small, large = (pack(case.wanted, needed + size, case.frame) for size in (0, more))
    for first in case.wanted[:1]:
        assert _marks(first, small) <= _marks(first, large)


def _marks(wanted: Wanted, packed: Packed) -> list[bool]:
    """Which items are in, the best first: compares as ranks do."""
    taken = {one.item.id for chosen in packed.sections for one in chosen.items if chosen.name == wanted.name}
    return [one.item.id in taken for one in wanted.items]


# --- The rules by example ---------------------------------------------------------------------------------------------


def ids(packed: Packed) -> dict[str, list[str]]:
    return {chosen.name: [one.item.id for one in chosen.items] for chosen in packed.sections}


def reasons(packed: Packed) -> dict[str, str]:
    return {item.id: reason for item, reason in packed.dropped}


def test_each_gets_its_share_and_the_first_gets_the_rest() -> None:
    packed = pack([section("a", *[5] * 9, share=12), section("b", *[5] * 9, share=12)], 5 + 24 + 5, FRAME)
    assert ids(packed) == {"a": ["a0", "a1", "a2"], "b": ["b0", "b1"]}
    assert packed.tokens == 5 + 17 + 12
    assert set(reasons(packed).values()) == {"budget"}


def test_a_share_that_is_not_wanted_is_given_away() -> None:
    packed = pack([section("a", *[5] * 3, share=7), section("b", *[5] * 9, share=7), section("c", share=90)], 60, FRAME)
    assert len(ids(packed)["a"]) == 3
    assert len(ids(packed)["b"]) == 7
    assert "c" not in ids(packed)


def test_not_one_token_more() -> None:
    for budget in range(1, 40):
        packed = pack([section("a", 7, 9, share=40)], budget, FRAME)
        expected = {"a": ["a0", "a1"]} if budget >= 23 else {"a": ["a0"]} if budget >= 14 else {}
        if 16 <= budget < 23:
            expected = {"a": ["a0"]}
        assert ids(packed) == expected, budget
        assert packed.tokens <= budget


def test_what_does_not_fit_makes_room_for_what_does() -> None:
    packed = pack([section("a", 50, 3, share=20)], 20, FRAME)
    assert ids(packed) == {"a": ["a1"]}
    assert reasons(packed) == {"a0": "budget"}


def test_a_section_without_items_costs_no_title_and_no_frame() -> None:
    packed = pack([section("a", 50, share=20), replace(section("b", 4, share=9), framed=False, title_tokens=0)], 4, 99)
    assert ids(packed) == {"b": ["b0"]}
    assert packed.tokens == 4


def test_the_reasons() -> None:
    first = Wanted("a", [item("a0", 5, "x"), item("a1", 5, "x"), item("a2", 5), item("a3", 5)], 2, 2, 100)
    second = Wanted("b", [item("b0", 5, "x"), item("b1", 5), item("b2", 6)], 2, 9, 100, most=8)
    third = Wanted("c", [item("c0", 500)], 2, 9, 100)
    packed = pack([first, second, third], 100, FRAME)
    assert ids(packed) == {"a": ["a0", "a2"], "b": ["b1"]}
    assert reasons(packed) == {
        "a1": "duplicate",
        "a3": "limit",
        "b0": "duplicate",
        "b2": "section_budget",
        "c0": "budget",
    }


def test_an_item_yields_to_the_section_where_it_stands_better() -> None:
    memories = Wanted("memories", [item("mem", 5, "m1", yields=True)], 2, 5, 20)
    assert ids(pack([memories, Wanted("messages", [item("msg", 5, "m1")], 2, 5, 20)], 60, FRAME)) == {
        "messages": ["msg"]
    }
    too_long = Wanted("messages", [item("msg", 500, "m1")], 2, 5, 20)
    assert ids(pack([memories, too_long], 60, FRAME)) == {"memories": ["mem"]}


def test_nothing_asked_is_nothing_packed() -> None:
    assert pack([], 10, FRAME) == Packed([], [], 0)
    assert reasons(pack([section("a", 1, share=9, limit=0)], 90, FRAME)) == {"a0": "limit"}


def test_the_best_item_is_not_lost_to_the_limit_while_there_is_room() -> None:
    packed = pack([section("a", 50, *[5] * 5, share=40, limit=5)], 1000, FRAME)
    assert "a0" in ids(packed)["a"], reasons(packed)
