"""Which values of single-valued facts were replaced, by which, and what they were learned from."""

from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.facts.outdated import replaced_values
from app.facts.schemas import FACTS, FactRecord


def row(value: str, start: str | None, end: str | None = None, **more: Any) -> FactRecord:
    plain = {"standing": "held", "status": "active", "cardinality": "one", "group_id": "g", "known_until": None}
    said = {"subject": "@user", "subject_key": "@user", "predicate": "lives_in", "user_id": "u", "object": value}
    times = {"object_key": value.lower(), "valid_from": start, "valid_until": end, "known_from": start or ""}
    return FACTS.as_record({**plain, **said, **times, "source": {"memory_ids": [f"mem {value}"]}, **more})


def test_an_earlier_value_is_replaced_by_the_one_that_holds() -> None:
    rows = [row("Rome", None, "2020"), row("Oslo", "2020"), row("Mars", "2021", status="retracted", known_until="2022")]
    (value,) = replaced_values(rows, "2026")
    assert (value.earlier["object"], value.present["object"], value.since) == ("Rome", "Oslo", "2020")
    assert value.learned_from == {"mem Rome"}
    assert replaced_values(rows, "2019") == []


def test_it_is_known_only_since_it_was_learned() -> None:
    rows = [row("Rome", None, known_from="2019", known_until="2024"), row("Rome", None, "2020", known_from="2024")]
    rows += [row("Oslo", "2020", known_from="2024")]
    assert [value.earlier["object"] for value in replaced_values(rows, "2026")] == ["Rome"]
    assert replaced_values(rows[:1], "2026", "2023") == []


def test_a_value_that_holds_again_is_not_replaced() -> None:
    rows = [row("Rome", None, "2020"), row("Oslo", "2020", "2022"), row("Rome", "2022")]
    assert [value.earlier["object"] for value in replaced_values(rows, "2026")] == ["Oslo"]


def test_what_has_many_values_or_none_now_has_no_replaced_ones() -> None:
    assert replaced_values([row("Rome", None, "2020")], "2026") == []
    assert replaced_values([row("Rome", None), row("Oslo", None, cardinality="many")], "2026") == []
    assert replaced_values([row("Rome", None, "2020"), row("Oslo", "2020", standing="disputed")], "2026") == []


@pytest.mark.parametrize(
    ("fact", "said"),
    [
        ({}, "home since 2026-11-01: Bergen"),
        ({"valid_from": None}, "home now: Bergen"),
        ({"subject": "Ben", "subject_key": "ben", "predicate": "worksAt"}, "since 2026-11-01: Ben works at Bergen"),
    ],
)
def test_the_present_fact_is_stated_so_that_it_is_true_beside_any_text(fact: FactRecord, said: str) -> None:
    rows = [row("Oslo", None, "2026-11-01T00:00:00Z"), row("Bergen", "2026-11-01T00:00:00Z") | fact]
    (value,) = (
        replaced_values(rows, "2026-12-01T00:00:00Z")
        if fact.get("valid_from", 1)
        else [replaced_values([row("Oslo", "1999", "2000"), row("Bergen", None)], "2026")[0]]
    )
    assert value.stated("Bergen", UTC) == said


_YEARS = st.integers(2000, 2030).map(str)


@given(st.lists(_YEARS, min_size=1, max_size=6, unique=True), _YEARS)
def test_all_that_began_before_the_last_one_is_replaced(starts: list[str], as_of: str) -> None:
    begins = sorted(starts)
    rows = [row(f"Town {at}", at, end) for at, end in zip(begins, [*begins[1:], None], strict=True)]
    found = replaced_values(rows, as_of)
    begun = [at for at in begins if at <= as_of]
    assert [value.earlier["object"] for value in found] == [f"Town {at}" for at in begun[:-1]]
    assert all(value.present["object"] == f"Town {begun[-1]}" for value in found)
