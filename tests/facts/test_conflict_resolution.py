"""The rules alone, without a store."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.facts.ledger import (
    OPEN_END,
    Assertion,
    Confirm,
    Cut,
    Dispute,
    NewSpan,
    Statement,
    ValidSpan,
    decide,
    minus,
    settle,
)
from app.facts.schemas import Cardinality
from tests.support.facts_machine import STEPS, Step, Story
from tests.support.facts_telling import Bookkeeper


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_every_story_leaves_what_the_oracle_saw(steps: list[Step]) -> None:
    asyncio.run(Story(Bookkeeper()).run(steps))


# --- Each rule by itself ----------------------------------------------------------------------------------------------

Row = tuple[str, ...]
NOW, EVER = "2026", ""


def known(
    name: str,
    start: str,
    end: str = OPEN_END,
    trust: float = 1.0,
    cardinality: Cardinality = "one",
    *,
    assumed: bool = False,
) -> Statement:
    return Statement(f"{name}{start}", (name, "entity"), ValidSpan(start, end), trust, cardinality, assumed=assumed)


def say(name: str, start: str | None = None, end: str = OPEN_END, trust: float = 1.0, **fields: Any) -> Assertion:
    return Assertion((name, "entity"), start, end, trust, **fields)


def after(live: list[Statement], said: Assertion) -> list[Row]:
    """What is known then, by valid time: object, from, until."""
    rows = {one.id: [one] for one in live}
    for change in decide(live, said, NOW):
        match change:
            case Cut(id, left):
                rows[id] = [replace(one, span=span) for one in rows[id] for span in left]
            case NewSpan(span, trust, cardinality):
                rows[f"new {span.start}"] = [Statement("new", said.object, span, trust, cardinality)]
            case Dispute():
                return [("disputed", *change.against)]
    found = [one for these in rows.values() for one in these]
    return [(one.object[0], one.span.start, one.span.end) for one in sorted(found, key=lambda one: one.span)]


HOME = known("NY", "2019")
TOLD = known("NY", "2025", assumed=True)
OPEN = OPEN_END


@pytest.mark.parametrize(
    ("live", "said", "rows"),
    [
        # what begins later stands from its beginning on
        ([HOME], say("Boston", "2024"), [("NY", "2019", "2024"), ("Boston", "2024", OPEN)]),
        ([HOME], say("Boston"), [("NY", "2019", NOW), ("Boston", NOW, OPEN)]),
        ([HOME], say("Boston", "2019"), [("Boston", "2019", OPEN)]),
        ([HOME], say("Boston", EVER), [("Boston", EVER, "2019"), ("NY", "2019", OPEN)]),
        # out of order: what came late leaves later ones their time
        ([known("Boston", "2024")], say("NY", "2019"), [("NY", "2019", "2024"), ("Boston", "2024", OPEN)]),
        (
            [known("Rome", "2021", "2022")],
            say("NY", "2019"),
            [("NY", "2019", "2021"), ("Rome", "2021", "2022"), ("NY", "2022", OPEN)],
        ),
        # a start that nobody gave is the latest that it can be: what is told later with a start goes before it
        ([TOLD], say("Boston", "2024"), [("Boston", "2024", OPEN)]),
        (
            [known("Rome", "2019", "2025"), TOLD],
            say("Boston", "2024"),
            [("Rome", "2019", "2024"), ("Boston", "2024", OPEN)],
        ),
        ([TOLD], say("Boston", EVER), [("Boston", EVER, "2025"), ("NY", "2025", OPEN)]),
        ([TOLD], say("Boston"), [("NY", "2025", NOW), ("Boston", NOW, OPEN)]),
        ([TOLD], say("Boston", "2025-06"), [("NY", "2025", "2025-06"), ("Boston", "2025-06", OPEN)]),
        ([TOLD], say("Boston", "2019", "2021"), [("Boston", "2019", "2021"), ("NY", "2025", OPEN)]),
        ([TOLD], say("Boston", "2024", trust=0.9), [("Boston", "2024", "2025"), ("NY", "2025", OPEN)]),
        (
            [known("Rome", "2024", "2025"), known("Boston", "2025-06")],
            say("NY", "2023"),
            [("NY", "2023", "2024"), ("Rome", "2024", "2025"), ("NY", "2025", "2025-06"), ("Boston", "2025-06", OPEN)],
        ),
        # a span with an end stands as it is said: it bounds, splits or replaces
        ([HOME], say("Rome", "2021", "2022"), [("NY", "2019", "2021"), ("Rome", "2021", "2022"), ("NY", "2022", OPEN)]),
        ([HOME], say("Rome", "2018", "2020"), [("Rome", "2018", "2020"), ("NY", "2020", OPEN)]),
        ([known("NY", "2019", "2020")], say("Rome", "2018", "2021"), [("Rome", "2018", "2021")]),
        ([known("NY", "2019", "2020")], say("Rome", "2020"), [("NY", "2019", "2020"), ("Rome", "2020", OPEN)]),
        # the same again
        ([HOME], say("NY"), [("NY", "2019", OPEN)]),
        ([HOME], say("NY", "2020", "2021"), [("NY", "2019", OPEN)]),
        ([known("NY", "2019", "2020")], say("NY", "2020"), [("NY", "2019", OPEN)]),
        ([known("NY", "2019", "2020")], say("NY", "2018", "2021"), [("NY", "2018", "2021")]),
        ([known("NY", "2019", "2020")], say("NY", "2021"), [("NY", "2019", "2020"), ("NY", "2021", OPEN)]),
        # an end is added to what had none
        ([HOME], say("NY", None, "2025"), [("NY", "2019", "2025")]),
        ([HOME], say("NY", "2019", "2025"), [("NY", "2019", "2025")]),
        ([], say("NY", None, "2025"), [("NY", EVER, "2025")]),
        ([], say("NY", None, "2027"), [("NY", NOW, "2027")]),
        # trust
        ([HOME], say("Boston", "2024", trust=0.9), [("disputed", "NY2019")]),
        ([HOME], say("NY", "2018", "2025", trust=0.9), [("disputed", "NY2019")]),
        ([HOME], say("Rome", "2018", trust=0.9), [("Rome", "2018", "2019"), ("NY", "2019", OPEN)]),
        ([HOME], say("NY", "2018", trust=0.9), [("NY", "2018", "2019"), ("NY", "2019", OPEN)]),
        ([known("NY", "2019", trust=0.5)], say("NY", "2024"), [("NY", "2019", "2024"), ("NY", "2024", OPEN)]),
        ([known("Boston", "2024", trust=0.5)], say("NY", "2019"), [("NY", "2019", OPEN)]),
        # the other policies
        ([HOME], say("Boston", "2024", policy="last_write_wins"), [("Boston", "2024", OPEN)]),
        ([HOME], say("Boston", "2024", trust=0.9, policy="last_write_wins"), [("disputed", "NY2019")]),
        (
            [known("NY", "2010", "2019"), known("Boston", "2019")],
            say("Rome", "2024", policy="last_write_wins"),
            [("NY", "2010", "2019"), ("Rome", "2024", OPEN)],
        ),
        ([HOME], say("Boston", "2024", policy="keep_both"), [("NY", "2019", OPEN), ("Boston", "2024", OPEN)]),
        # one of many takes nothing and gives way to nothing
        ([HOME], say("Boston", "2024", cardinality="many"), [("NY", "2019", OPEN), ("Boston", "2024", OPEN)]),
        (
            [known("tea", "2019", cardinality="many")],
            say("jazz", "2024", cardinality="one"),
            [("tea", "2019", OPEN), ("jazz", "2024", OPEN)],
        ),
        ([known("tea", "2019", cardinality="many")], say("tea"), [("tea", "2019", OPEN)]),
    ],
)
def test_what_is_known_after_an_assertion(live: list[Statement], said: Assertion, rows: list[Row]) -> None:
    assert after(live, said) == rows


def test_a_dispute_is_settled_for_either_side_or_for_both() -> None:
    weak = replace(known("Boston", "2024", trust=0.3), disputed=True)
    assert settle([HOME, weak], weak, NOW) == [
        Cut("Boston2024"),
        Cut("NY2019", (ValidSpan("2019", "2024"),)),
        NewSpan(ValidSpan("2024", OPEN), 1.0, "one", ("Boston2024",)),
    ]
    assert settle([HOME, weak], weak, NOW, beside=True) == [
        Cut("Boston2024"),
        NewSpan(ValidSpan("2024", OPEN), 0.3, "many", ("Boston2024",)),
    ]
    assert decide([HOME, weak], say("Boston", "2024", trust=0.3), NOW) == [Confirm("Boston2024")]
    assert Cut("Boston2024") in decide([HOME, weak], say("Boston", "2020"), NOW), "said by who may say so"


spans = st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda two: ValidSpan(f"{two[0]:02}", f"{sum(two):02}"))


@given(spans, st.lists(spans, max_size=5))
def test_what_is_left_of_a_span_is_the_rest_of_it(span: ValidSpan, cuts: list[ValidSpan]) -> None:
    left = minus(span, cuts)
    for point in (f"{number:02}" for number in range(19)):
        inside = [one for one in left if one.start <= point < one.end]
        gone = any(cut.start <= point < cut.end for cut in cuts)
        assert len(inside) == (span.start <= point < span.end and not gone)
    assert left == sorted(left)
