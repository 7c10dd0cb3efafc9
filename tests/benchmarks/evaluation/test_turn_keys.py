"""Keys of a turn: what the rules make of a text, and that a turn is found by them in the words and in the vectors."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import turn_keys
from benchmarks.evaluation.ranking_cases import Embedder, ItemKeys, build_scope
from benchmarks.evaluation.sets import Item
from benchmarks.evaluation.turn_keys import MOST_KEYS, RULES, keys_of
from benchmarks.turn_keys import NONE, Outcome, chosen, difference, spoken, variants

TEXT = "I'm using Flask 2.3.1, but I prefer Django. My deadline is April 15. Can you help?\n```\nI = 1\n```"


@pytest.fixture(scope="module")
def embed() -> Embedder:
    return Embedder(None)


def test_statements_are_what_the_user_says_of_themself_without_code_and_requests() -> None:
    assert keys_of(TEXT, "statements") == [
        "user is using Flask 2.3.1",
        "user prefer Django",
        "user's deadline is April 15",
    ]
    assert keys_of("I'm trying to understand how my score rose", "statements") == ["user's score rose"]
    assert keys_of(TEXT, "preferences") == ["user prefer Django"]


def test_a_fact_of_the_user_makes_questions_in_the_first_person() -> None:
    assert keys_of("【Travel Plan】 User's budget is 300 dollars per night.", "questions") == [
        "What is my budget?",
        "How many dollars per?",
    ]
    assert "When my deadline is?" in keys_of(TEXT, "questions")
    assert "Am I using Flask 2.3.1?" in keys_of(TEXT, "questions")


def test_numbers_and_names_come_with_the_words_beside_them() -> None:
    (key,) = keys_of("We meet my mentor Robert at 9 o'clock", "names and numbers")
    assert key == "mentor Robert at 9 o'clock; meet my mentor Robert at 9"


@pytest.mark.parametrize("rule", RULES)
def test_keys_are_few_and_each_once(rule: str) -> None:
    text = " ".join(f"I want {number} apples. I want pears." for number in range(40))
    keys = keys_of(text, rule)
    assert 0 < len(keys) <= MOST_KEYS
    assert len(set(keys)) == len(keys)
    assert keys_of("", rule) == []
    assert keys_of("```\n【", rule) == []


def test_an_assistant_without_a_name_has_no_keys_and_a_named_speaker_is_named() -> None:
    assert spoken(Item("I prefer green tea", None, "s", "assistant"), "statements") == []
    assert spoken(Item("I prefer tea. I do.", None, "s", "user", "Ada"), "statements") == ["Ada prefer tea"]


def test_a_key_is_found_as_its_turn_by_words_or_by_vector(embed: Embedder) -> None:
    items, key = [Item("Noted, as before."), Item("The weather is fine.")], ["user has a cat named Tom"]
    plain = build_scope(items, embed)
    words = build_scope(items, embed, ItemKeys([key, []], [[], []]))
    vectors = build_scope(items, embed, ItemKeys([[], []], [key, []]))
    assert {at for found in words.postings.values() for at, _ in found} == {0, 1}
    assert len(words.postings) > len(plain.postings) == len(vectors.postings)
    assert words.blank.length.tolist() > plain.blank.length.tolist()
    assert words.vectors.tolist() == plain.vectors.tolist()
    assert vectors.first.tolist() == [0, 2]
    assert vectors.blank.content.tolist() == plain.blank.content.tolist(), "the turn is shown as itself"
    query = embed.queries(["What is my cat called?"])[0]
    nearest = np.maximum.reduceat(vectors.vectors @ query, vectors.first)
    assert nearest[0] > nearest[1]


def test_the_first_half_alone_chooses() -> None:
    def outcome(first: float, second: float) -> Outcome:
        return Outcome(np.full((4, 6), first), np.full((4, 6), second))

    outcomes = {(NONE, ""): outcome(0.5, 0.5), ("a", "words"): outcome(0.6, 0.1), ("b", "words"): outcome(0.4, 0.9)}
    assert chosen({variant: [found] for variant, found in outcomes.items()}) == "a as words"
    rows = list(turn_keys.rows_of(outcomes))
    assert [row["keys"] for row in rows] == [NONE, "a", "b"]
    assert rows[1]["± recall@10, second"] == difference(np.full(4, 0.1), np.full(4, 0.5))
    assert difference(np.ones(4), np.zeros(4)) == "+1.000 [+1.000, +1.000]"


def test_a_set_is_measured_by_halves_with_all_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_keys, "RULES", {"statements": RULES["statements"]})
    monkeypatch.setattr(turn_keys, "COST_TURNS", 3)
    path = tmp_path / "little.json"
    path.write_text(json.dumps({"name": "little", "conversations": [_conversation(name) for name in ("Tom", "Kim")]}))
    parser = argparse.ArgumentParser()
    turn_keys.add_options(parser)
    recalls, cost, refitted = turn_keys.run(parser.parse_args(["--data", str(path), "--refit"]))
    assert recalls.title.startswith("little: 1 and 1 questions, the first half chooses ")
    assert [(row["keys"], row["as"]) for row in recalls.rows] == list(variants())
    assert recalls.rows[0]["recall@10, second"] == "1.000"
    assert [row["keys"] for row in cost.rows] == [NONE, "statements"]
    assert [row["little"] for row in refitted.rows] == ["1.000"] * 4


def _conversation(cat: str) -> dict[str, Any]:
    texts = [f"I have a cat that is named {cat}. Can you help?", "It rains.", "Good morning."]
    items = [{"id": at, "content": text, "timestamp": "2026-01-05T09:00:00Z"} for at, text in enumerate(texts)]
    asked = [{"query": "What is the name of my cat?", "evidence": [0], "after": 3, "kind": "k"}]
    unanswered = [{"query": "Who is my boss?", "evidence": [], "after": 3, "kind": "k"}]
    return {"id": cat, "kind": "facts", "items": items, "questions": asked + unanswered}
