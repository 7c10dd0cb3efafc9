"""The packer against its rules, as somebody else would check its work."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.context.packing import LONG_ITEM, BoundedSection, Packing, ranked, shares
from tests.context.packing_rules import (
    FRAME,
    HEADING,
    MIN_SCORE,
    TITLE,
    Case,
    a_case,
    broken,
    chosen_ids,
    fixed,
    item,
    section,
    sized,
    total,
)

QUICK = settings(deadline=None, max_examples=60)
RANDOMS = st.randoms(use_true_random=False)
"""Hypothesis makes each choice, and makes a failing case small."""
WANTED = st.lists(st.integers(0, 200), max_size=6)


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
        seen["packed"] += sum(map(len, packed.chosen.values()))
    reasons = ("packed", "budget", "section_budget", "limit", "duplicate", "score")
    assert min(seen[name] for name in reasons) > 250, seen


def test_it_is_pure() -> None:
    random = Random(8)
    for _ in range(200):
        case = a_case(random)
        before = repr(case)
        assert case.packed() == case.packed()
        assert repr(case) == before


# --- More budget never holds less -------------------------------------------------------------------------------------


def _competing(case: Case, packed: Packing) -> set[str]:
    named = case.named()
    return {one for name, ids in chosen_ids(packed).items() if not named[name].fixed for one in ids}


def _standing(case: Case, packed: Packing) -> dict[str, list[str]]:
    return {name: ids for name, ids in chosen_ids(packed).items() if case.named()[name].fixed}


def _frames(case: Case, packed: Packing) -> bool:
    """Returns whether something that is always there stands in the frame, so that the rest need not pay for it."""
    return any(case.named()[name].framed for name in _standing(case, packed))


def _in_proportion(case: Case, budget: int) -> Case:
    """The case with another budget. Bounds of fixed sections are a share of it; those of others are
    tokens."""
    sections = [
        one
        if one.max_tokens is None or not one.fixed
        else replace(one, max_tokens=Fraction(one.max_tokens) / case.budget * budget)
        for one in case.sections
    ]
    return Case(sections, budget, case.frame, case.min_score)


@QUICK
@given(RANDOMS)
def test_what_competes_and_is_packed_is_packed_at_every_larger_budget(random: Random) -> None:
    """If the fixed sections hold nothing that the others say too, and need the frame in both."""
    small = a_case(random, shared=False)
    large = _in_proportion(small, small.budget + random.randint(1, 60))
    less, more = small.packed(), large.packed()
    assume(_frames(small, less) == _frames(large, more))
    assert _competing(small, less) <= _competing(large, more)


def test_a_token_more_takes_nothing_away() -> None:
    random = Random(10)
    compared = 0
    for _ in range(150):
        case = replace(a_case(random, shared=False), budget=40)
        before: set[str] = set()
        for budget in range(40, 140, 3):
            larger = _in_proportion(case, budget)
            now = _competing(larger, larger.packed())
            assert before <= now, larger
            compared += len(before)
            before = now
    assert compared > 4_000


def test_so_it_is_where_sections_say_the_same_if_what_is_always_there_stays_the_same() -> None:
    random = Random(11)
    compared = 0
    for _ in range(1500):
        small = a_case(random)
        large = _in_proportion(small, small.budget + random.randint(1, 40))
        one, other = small.packed(), large.packed()
        if _standing(small, one) == _standing(large, other):
            assert _competing(small, one) <= _competing(large, other), (small, large)
            compared += len(_competing(small, one))
    assert compared > 500


@QUICK
@given(RANDOMS, st.integers(0, 150))
def test_a_prompt_of_fewer_tokens_is_within_the_budget_and_the_beginning_of_the_filled_one(
    random: Random, most_tokens: int
) -> None:
    case = a_case(random)
    filled, ended = case.packed(), case.packed(most_tokens)
    assert total(case, ended) == ended.total <= case.budget
    assert _standing(case, ended) == _standing(case, filled)
    assert _competing(case, ended) <= _competing(case, filled)
    assert bool(_competing(case, ended)) == bool(_competing(case, filled)), "it never empties"
    for name, ids in chosen_ids(ended).items():
        assert ids == chosen_ids(filled)[name][: len(ids)]
    left = _competing(case, filled) - _competing(case, ended)
    assert {reasons(ended)[one] for one in left} <= {"enough", "duplicate", "score"}  # by its score as a hit


@QUICK
@given(RANDOMS, st.integers(0, 150))
def test_what_a_prompt_of_fewer_tokens_has_is_in_that_of_a_larger_budget(random: Random, most_tokens: int) -> None:
    small = a_case(random, shared=False)
    large = _in_proportion(small, small.budget + random.randint(1, 60))
    assume(_frames(small, small.packed()) == _frames(large, large.packed()))
    assert _competing(small, small.packed(most_tokens)) <= _competing(large, large.packed(most_tokens))


def test_what_stands_in_the_turns_counts_as_packed() -> None:
    turns = fixed("turns", 5)
    turns = replace(turns, items=[item("turn", 5, "said")])
    found = [item("said again", 5, "said", score=0.9), *sized("f", 5, 5, 5, score=0.5)]
    packed = Case([turns, section("facts", *found)], 100).packed(15)
    assert chosen_ids(packed)["facts"] == ["f0"]


def test_what_comes_after_enough_says_so() -> None:
    case = Case([section("facts", *sized("f", 5, 5, 5, score=0.5))], 100)
    packed = case.packed(12)
    assert chosen_ids(packed) == {"facts": ["f0", "f1"]}
    assert reasons(packed) == {"f2": "enough"}
    assert chosen_ids(case.packed(1)) == {"facts": ["f0"]}, "the first goes in whatever it takes"


def test_what_a_chain_says_does_not_stand_behind_it() -> None:
    chain = replace(item("chain", 10, "a and b", score=0.5), says=frozenset("ab"))
    alone = [item("a", 10, "a", score=0.4), item("b", 10, "b", score=0.3)]
    case = Case([section("facts", chain, *alone)], 100)
    assert chosen_ids(case.packed()) == {"facts": ["chain"]}
    assert reasons(case.packed()) == {"a": "duplicate", "b": "duplicate"}
    better = Case([section("facts", replace(alone[0], score=0.9), chain)], 100)
    assert chosen_ids(better.packed()) == {"facts": ["a", "chain"]}, "it says more"


def test_what_was_made_from_others_stands_where_half_of_its_words_are_new() -> None:
    said = replace(item("said", 10, score=0.9), text="Ines keeps bees behind the old brewery in Ghent")
    learned = replace(item("learned", 10, score=0.5), text="Ines keeps bees in Ghent", derived=True)
    more = replace(item("more", 10, score=0.4), text="Ines sells honey to restaurants", derived=True)
    case = Case([section("memories", said, learned, more)], 500)
    assert chosen_ids(case.packed()) == {"memories": ["said", "more"]}
    assert reasons(case.packed()) == {"learned": "duplicate"}
    alone = Case([section("memories", replace(said, score=0.01), learned, more)], 500)
    assert chosen_ids(alone.packed()) == {"memories": ["learned", "more"]}
    told = replace(item("told", 10, score=0.3), text="In Ghent, Ines keeps her bees")
    longer = replace(item("longer", 10, score=0.2), text="Ines keeps bees in Ghent, and goats behind the brewery")
    behind = Case([section("memories", learned, told, longer)], 500)
    assert chosen_ids(behind.packed()) == {"memories": ["learned", "longer"]}, "it says more than was learned of it"
    assert reasons(behind.packed()) == {"told": "duplicate"}
    as_it_was_said = Case([section("memories", said, replace(learned, derived=False))], 500)
    assert chosen_ids(as_it_was_said.packed()) == {"memories": ["said", "learned"]}


@QUICK
@given(RANDOMS)
def test_of_what_is_always_there_more_budget_never_costs_a_better_item(random: Random) -> None:
    """The number of items may fall: a long one that now fits is better placed than two short ones."""
    small = a_case(random, keys="")
    large = _in_proportion(small, small.budget + random.randint(1, 60))
    one, other = chosen_ids(small.packed()), chosen_ids(large.packed())
    for each in small.sections:
        if each.fixed and each.limit >= len(each.items) and not any(it.heading for it in each.items):
            marks = [[it.id in packed.get(each.name, []) for it in each.items] for packed in (one, other)]
            assert marks[0] <= marks[1]


# --- Parts ------------------------------------------------------------------------------------------------------------


@QUICK
@given(WANTED, st.integers(0, 600))
def test_parts_are_fair(wanted: list[int], pool: int) -> None:
    parts = shares(wanted, pool)
    assert sum(parts) == min(sum(wanted), pool)
    assert all(0 <= part <= want for part, want in zip(parts, wanted, strict=True))
    unmet = [part for part, want in zip(parts, wanted, strict=True) if part < want]
    assert all(part >= max(parts) for part in unmet)  # who gets less than it wants gets no less than any other


@QUICK
@given(WANTED, st.integers(0, 600), st.integers(1, 100))
def test_a_larger_pool_makes_no_part_smaller(wanted: list[int], pool: int, more: int) -> None:
    assert all(one <= other for one, other in zip(shares(wanted, pool), shares(wanted, pool + more), strict=True))


@QUICK
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 60)), max_size=6), st.integers(1, 900))
def test_a_larger_budget_makes_no_part_smaller(given_sections: list[tuple[int, int]], budget: int) -> None:
    """Sections want what they have, or a percentage of the budget at most."""

    def parts(budget: int) -> list[Fraction]:
        wanted = [min(Fraction(have), Fraction(percent, 100) * budget) for have, percent in given_sections]
        return shares(wanted, Fraction(6, 10) * budget)

    small, large = parts(budget), parts(budget + 1)
    assert all(one <= other for one, other in zip(small, large, strict=True))
    assert sum(large) - sum(small) <= 1  # so that what competes has no less


def test_parts_by_example() -> None:
    assert shares([10, 100, 100], 70) == [10, 30, 30]
    assert shares([10, 20], 70) == [10, 20]
    assert shares([], 70) == []
    assert shares([5, 5], 0) == [0, 0]


# --- The order --------------------------------------------------------------------------------------------------------


def order(*sections: BoundedSection, fill: bool = False) -> list[str]:
    return [one.id for _, one in ranked(sections, MIN_SCORE, fill=fill)]


def test_the_best_score_comes_first_however_long() -> None:
    assert order(section("facts", item("short", 10, score=0.5), item("long", 40, score=0.8))) == ["long", "short"]


def test_what_is_longer_than_any_memory_comes_later_by_as_much() -> None:
    assert order(section("ways", item("way", 2 * LONG_ITEM, score=0.8), item("memory", 10, score=0.5))) == [
        "memory",
        "way",
    ]
    assert order(section("ways", item("way", 2 * LONG_ITEM, score=0.8), item("memory", 10, score=0.3))) == [
        "way",
        "memory",
    ]


def test_what_an_item_is_counts_unless_scores_alone_do() -> None:
    assistant = replace(item("assistant", 10, score=0.5), factor=0.5)
    found = section("memories", assistant, item("user", 10, score=0.3))
    assert order(found) == ["user", "assistant"]
    assert order(found, fill=True) == ["assistant", "user"]


def test_none_of_the_first_five_falls_below_the_minimum_score_for_what_it_is() -> None:
    found = [replace(item(f"q{at}", 10, score=0.2 - at / 100), factor=0.1) for at in range(7)]
    assert order(section("memories", *found)) == ["q0", "q1", "q2", "q3", "q4"]


def test_an_intent_moves_a_section_and_does_not_change_the_min_score() -> None:
    facts = section("facts", item("fact", 10, score=0.5))
    ways = section("ways", item("way", 10, score=0.4), item("low", 1, score=MIN_SCORE * 0.9), boost=1.5)
    assert order(facts, ways) == ["way", "fact"]


def test_a_partner_competes_with_a_score_of_its_own() -> None:
    answer = item("answer", 10, score=0.2)
    asked, other = item("question", 10, score=0.4), item("other", 10, score=0.3)
    assert order(section("memories", asked, answer, other)) == ["question", "other", "answer"]


def test_what_nobody_searched_for_does_not_compete() -> None:
    case = Case([section("facts", item("one", 5))], 100, min_score=0.0)
    assert (case.packed().chosen, reasons(case.packed())) == ({}, {"one": "score"})


# --- The rules by example ---------------------------------------------------------------------------------------------


def reasons(packed: Packing) -> dict[str, str]:
    return {item.id: reason for item, reason in packed.dropped}


def test_title_heading_and_frame_are_paid_once() -> None:
    notes = [item(f"m{at}", 5, score=0.9, heading="a day" if at < 3 else "another") for at in range(4)]
    needed = FRAME + TITLE + 2 * HEADING + 4 * 5
    whole = Case([section("memories", *notes)], needed)
    assert chosen_ids(whole.packed()) == {"memories": ["m0", "m1", "m2", "m3"]}
    assert total(whole, whole.packed()) == needed
    less = Case([section("memories", *notes)], needed - 1)
    assert chosen_ids(less.packed()) == {"memories": ["m0", "m1", "m2"]}
    assert reasons(less.packed()) == {"m3": "budget"}


def test_sections_that_are_always_there_leave_the_rest_to_others() -> None:
    case = Case([fixed("messages", *[5] * 30), section("facts", *sized("f", *[5] * 30, score=0.5))], 105)
    found = chosen_ids(case.packed())
    assert len(found["messages"]) == (60 - TITLE) // 5
    assert len(found["facts"]) == (40 - TITLE) // 5


def test_sections_that_are_always_there_share_their_part_fairly() -> None:
    case = Case([fixed("profile", *[5] * 30), fixed("working", 5), fixed("messages", *[5] * 30)], 105)
    found = {name: len(ids) for name, ids in chosen_ids(case.packed()).items()}
    assert found == {"profile": 4, "working": 1, "messages": 4}  # (60 - 7) / 2 = 26.5 for each of two: 2 + 4 * 5


def test_what_is_not_wanted_of_their_part_is_given_to_what_competes() -> None:
    case = Case([fixed("profile", 5), section("facts", *sized("f", *[5] * 30, score=0.5))], 105)
    assert len(chosen_ids(case.packed())["facts"]) == (100 - 7 - TITLE) // 5


def test_of_what_is_always_there_a_long_item_makes_room_for_shorter_ones() -> None:
    case = Case([fixed("profile", 40, 3)], 50)
    assert chosen_ids(case.packed()) == {"profile": ["profile1"]}
    assert reasons(case.packed()) == {"profile0": "section_budget"}


def test_what_competes_ends_at_the_first_that_does_not_fit() -> None:
    case = Case([section("facts", item("f0", 10, score=0.9), item("f1", 80, score=0.9), item("f2", 60, score=0.2))], 90)
    assert chosen_ids(case.packed()) == {"facts": ["f0"]}
    assert reasons(case.packed()) == {"f1": "budget", "f2": "budget"}


def test_an_empty_section_costs_no_title_and_no_frame() -> None:
    turns = fixed("messages", 4, framed=False, title_tokens=0)
    case = Case([section("facts", *sized("f", 50, score=0.9)), turns], 7, frame=0)
    assert chosen_ids(case.packed()) == {"messages": ["messages0"]}
    assert total(case, case.packed()) == 4


def test_the_reasons() -> None:
    first = [item("a0", 5, "x", score=0.9), item("a1", 5, "x", score=0.8), item("a2", 5, score=0.7)]
    second = [item("b0", 5, "x", score=0.6), item("b1", 5, score=0.6), item("b2", 6, score=0.6)]
    last = [item("c0", 500, score=0.5), item("c1", 500, "x", score=0.4), item("c2", 1, score=0.01)]
    case = Case(
        [
            section("a", *first, item("a3", 5, score=0.7), limit=2),
            section("b", *second, max_tokens=8),
            section("c", *last),
        ],
        100,
    )
    packed = case.packed()
    assert chosen_ids(packed) == {"a": ["a0", "a2"], "b": ["b1"]}
    assert reasons(packed) == {
        "a1": "duplicate",
        "a3": "limit",
        "b0": "duplicate",
        "b2": "section_budget",
        "c0": "budget",
        "c1": "duplicate",
        "c2": "score",
    }


def test_what_is_always_there_and_does_not_fit_competes_where_it_is_found_too() -> None:
    rule = item("rule", 30)
    found = section("memories", item("rule", 30, score=0.9))
    case = Case([section("instructions", rule, fixed=True, max_tokens=20), found], 60)
    assert chosen_ids(case.packed()) == {"memories": ["rule"]}
    assert reasons(case.packed()) == {}


def test_nothing_found_is_nothing_packed() -> None:
    assert Case([], 10).packed() == Packing({}, {}, 0, [])
    none = Case([section("facts", *sized("f", 1, score=0.5), limit=0)], 90)
    assert reasons(none.packed()) == {"f0": "limit"}
