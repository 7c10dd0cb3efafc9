"""Rules that mark texts which state another value of a single-valued fact than the one that holds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.marking import SingleValue, marked, single_values

HOME = SingleValue("@user", "lives in", "Oslo", "2026-10-01T00:00:00.000Z", ("Rome",), place=True)
JOB = SingleValue("@user", "works as", "nurse", None, ("analyst",))
BEN = SingleValue("Ben", "lives in", "Paris", "2025-01-01T00:00:00.000Z", ("Lyon",))
EARLY, LATE = "2026-05-01T00:00:00.000Z", "2026-11-01T00:00:00.000Z"
NAMES = ("Ada Lovelace", "ada")


@pytest.mark.parametrize(
    "text",
    [
        "I live in Rome.",
        "The user lives in Rome",
        "Ada lives in Rome with two cats",
        "Lives in Rome.",
        "It rains. I live in Rome now, near the river.",
        "You live in Rome, so the shop is near.",
        "Ich wohne in Rome.",
    ],
)
def test_an_earlier_home_is_marked(text: str) -> None:
    assert marked(text, EARLY, [HOME], NAMES) == f"{text} (earlier; since 2026-10-01: Oslo)"


@pytest.mark.parametrize(
    "text",
    [
        "I live in Oslo.",
        "I lived in Rome and moved to Oslo.",
        "I love Rome.",
        "We fly to Rome in May.",
        "My brother lives in Rome.",
        "Ada's brother lives in Rome.",
        "Ben lives in Rome.",
        "Do you live in Rome?",
        "I do not live in Rome.",
        "I might move to Rome.",
        "I live for music.",
        "I live in a big house.",
        "I moved in May.",
        "",
    ],
)
def test_what_states_no_other_home_is_not_marked(text: str) -> None:
    assert marked(text, EARLY, [HOME], NAMES) == text


def test_a_home_that_is_no_fact_is_marked_by_its_time() -> None:
    assert marked("I live in Bergen.", EARLY, [HOME], NAMES).endswith("(earlier; since 2026-10-01: Oslo)")
    assert marked("I live in Bergen.", LATE, [HOME], NAMES).endswith("(differs; since 2026-10-01: Oslo)")


def test_other_subjects_and_predicates() -> None:
    assert marked("I work as an analyst.", EARLY, [JOB], NAMES).endswith("(earlier; now: nurse)")
    assert (
        marked("Ben lives in Lyon.", EARLY, [BEN, HOME], NAMES)
        == "Ben lives in Lyon. (earlier; since 2025-01-01: Paris)"
    )
    assert marked("I live in Lyon.", EARLY, [BEN], NAMES) == "I live in Lyon."


@given(st.text(max_size=80), st.sampled_from([HOME, JOB, BEN]), st.sampled_from(["", EARLY, LATE]))
def test_a_text_is_kept_whole_and_names_what_holds(text: str, one: SingleValue, at: str) -> None:
    found = marked(text, at, [one], NAMES)
    assert found.startswith(text)
    assert found == text or found.endswith(f"; {one.mark})")


@given(st.sampled_from(["Rome", "Oslo", "Bergen"]), st.sampled_from(["Rome", "Oslo", "Bergen"]), st.text(max_size=20))
def test_of_two_homes_one_is_always_marked(said: str, holds: str, rest: str) -> None:
    home = SingleValue("@user", "lives in", holds, EARLY, (), place=True)
    text = f"I live in {said}."
    assert (marked(text, LATE, [home], NAMES) != text) == (said != holds)
    assert marked(f"I live in {holds}. {rest}", LATE, [home], NAMES) == f"I live in {holds}. {rest}"


def row(value: str, start: str | None, end: str | None = None, **more: Any) -> dict[str, Any]:
    plain = {"standing": "held", "status": "active", "cardinality": "one", "group_id": "g", "known_until": None}
    said = {"subject": "@user", "predicate": "lives_in", "user_id": "u", "object": value, "object_key": value.lower()}
    return {**plain, **said, "valid_from": start, "valid_until": end, "known_from": start or "", **more}


def test_the_values_of_a_group_at_a_time() -> None:
    rows = [row("Rome", None, "2020"), row("Oslo", "2020"), row("Mars", "2021", status="retracted", known_until="2022")]
    (now,) = single_values(rows, "2026")
    assert (now.value, now.since, now.earlier, now.place) == ("Oslo", "2020", ("Rome",), True)
    (then,) = single_values(rows, "2019")
    assert (then.value, then.since, then.earlier) == ("Rome", None, ())


def test_what_has_many_values_or_none_now_is_left_out() -> None:
    assert single_values([row("Rome", None, "2020")], "2026") == []
    assert single_values([row("Rome", None), row("Oslo", None, cardinality="many")], "2026") == []
    assert single_values([row("Rome", None, standing="disputed")], "2026") == []


_YEARS = st.integers(2000, 2030).map(str)


@given(st.lists(_YEARS, min_size=1, max_size=6, unique=True), _YEARS)
def test_the_value_that_holds_is_the_last_that_began(starts: list[str], as_of: str) -> None:
    begins = sorted(starts)
    rows = [row(f"Town {at}", at, end) for at, end in zip(begins, [*begins[1:], None], strict=True)]
    found = single_values(rows, as_of)
    begun = [at for at in begins if at <= as_of]
    assert [one.value for one in found] == [f"Town {at}" for at in begun[-1:]]
    assert [set(one.earlier) for one in found] == [{f"Town {at}" for at in begun[:-1]}] * len(found)
