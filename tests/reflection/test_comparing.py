"""What can hold beside each other is no finding, and what cannot is one, in English, German and Spanish."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.findings.service import EvidenceRecord, of_memory
from app.memories.records import new_memory
from app.reflection.comparing import conflicts, shared_names

PAIRS = [
    json.loads(line) for line in Path("tests/data/reflection_pairs.jsonl").read_text(encoding="utf-8").splitlines()
]


def record(text: str, day: int = 1, trust: float = 1.0) -> EvidenceRecord:
    fields = {
        "agent_id": "a",
        "user_id": "u",
        "content": text,
        "memory_type": "fact",
        "importance": 0.5,
        "trust": trust,
    }
    doc = new_memory(fields, {}, f"2026-01-{day:02d}T00:00:00.000Z", unique=False)
    return of_memory(doc)


@pytest.mark.parametrize("pair", PAIRS, ids=[f"{one['earlier']} / {one['later']}" for one in PAIRS])
def test_pairs(pair: dict[str, str | bool]) -> None:
    found = conflicts([record(str(pair["earlier"])), record(str(pair["later"]), 2)], frozenset())
    assert bool(found) == pair["conflict"], found


def test_names_that_two_people_have() -> None:
    assert "anna" in shared_names(["My sister Anna lives in Rome.", "My colleague Anna lives in Oslo."])
    assert "anna" not in shared_names(["My sister Anna lives in Rome.", "Anna likes tea."])
    three = ["My sister Anna is here.", "My colleague Anna is there.", "Anna lives in Rome.", "Anna lives in Oslo."]
    assert conflicts([record(text, at) for at, text in enumerate(three, 1)], frozenset()) == []


def test_the_more_trusted_one_is_kept() -> None:
    (found,) = conflicts([record("I live in Rome."), record("I live in Oslo.", 2, trust=0.4)], frozenset())
    assert found.keep.text == "I live in Rome."
    assert not found.decided


def test_only_the_value_before_is_replaced() -> None:
    lived = [record(f"I live in {town}.", at) for at, town in enumerate(["Rome", "Oslo", "Graz"], 1)]
    found = conflicts(lived, frozenset())
    assert [(one.earlier.text, one.later.text) for one in found] == [
        ("I live in Rome.", "I live in Oslo."),
        ("I live in Oslo.", "I live in Graz."),
    ]


WORDS = st.lists(
    st.sampled_from(
        "I live in Rome Oslo not drink coffee my sister Anna is 3 Monday , . ? ich wohne nicht vivo no".split()
    )
).map(" ".join)


@given(st.lists(WORDS, max_size=6), st.text(max_size=80))
def test_any_text_can_be_compared_and_never_with_itself(texts: list[str], other: str) -> None:
    records = [record(text, at) for at, text in enumerate([*texts, other], 1)]
    found = conflicts(records, frozenset())
    assert all(one.earlier.id != one.later.id and one.earlier.said_at <= one.later.said_at for one in found)
    assert conflicts(records[:1], frozenset()) == []
