"""What a judge adds to the ranking is measured on questions that nothing was fitted on."""

import random
from pathlib import Path
from typing import Any

from app.retrieval.first_hits import PROPERTIES
from benchmarks.train.asked import read, used, write
from benchmarks.train.hits import measure, split


def asked(life: str, kind: str, right: int | None, judged: list[float], score: float) -> dict[str, Any]:
    """A question with hits whose order is the ranking's; `right`: the place of the one that answers it."""
    hits = [
        {"text": f"{at}", "right": at == right, "odds": -0.1 * at, "known": [0.0] * len(PROPERTIES), "judged": number}
        for at, number in enumerate(judged)
    ]
    answers = [] if right is None else [f"{right}"]
    said = {"set": "made", "life": life, "kind": kind, "query": "?", "language": "en"}
    return {**said, "score": score, "scope": {"nearest": score}, "answers": answers, "hits": hits}


def many(life: str, chance: random.Random) -> list[dict[str, Any]]:
    """A score that tells nothing, and a judge that gives 3 to what answers, and −1 to 1 to all others."""
    made = []
    for at in range(24):
        right = None if at % 4 == 3 else at % 3
        numbers = [3.0 if place == right else chance.uniform(-1, 1) for place in range(3)]
        made.append(asked(life, "never" if right is None else "current", right, numbers, chance.uniform(0.4, 0.6)))
    return made


def test_a_judge_that_knows_orders_the_hits_and_tells_what_was_never_said() -> None:
    chance = random.Random(1)
    fit, new = many("fit", chance), many("new", chance)
    rows = {row[""]: row for row in measure(new, fit)}
    assert {name: row["first"] for name, row in rows.items()} == {
        "service": "0.333",
        "properties of the query": "0.333",
        "judge alone": "1.000",
        "both": "1.000",
        "all": "1.000",
    }
    assert rows["judge alone"]["never"] == rows["both"]["never"] == "1.000"
    assert float(str(rows["service"]["never"])) < 0.8
    assert {row["questions"] for row in rows.values()} == {18}, "of those that are measured, which have an answer"


def test_a_judge_of_noise_gains_nothing_where_nothing_was_fitted() -> None:
    chance = random.Random(2)
    fit, new = many("fit", chance), many("new", chance)
    for one in new:
        for hit in one["hits"]:
            hit["judged"] = chance.uniform(-1, 1)
    rows = {row[""]: row for row in measure(new, fit)}
    assert float(str(rows["both"]["first"])) < 0.7
    assert float(str(rows["both"]["never"])) < 0.8


def test_without_other_files_each_life_is_measured_by_weights_of_the_others() -> None:
    chance = random.Random(3)
    lives = [one for life in "abcde" for one in many(life, chance)]
    for one in lives:
        if one["life"] == "e":  # there the judge says the opposite
            for hit in one["hits"]:
                hit["judged"] = -hit["judged"]
    rows = {row[""]: row for row in measure(lives)}
    assert rows["both"]["first"] == "0.800", "the weights of four lives fail on the fifth"


def test_any_unanswered_question_but_small_talk_counts_as_never_said() -> None:
    new = [
        asked("a", "current", 0, [1.0], 0.9),
        asked("a", "adversarial", None, [0.0], 0.1),
        asked("a", "small", None, [2.0], 0.95),
    ]
    alone = next(row for row in measure(new, many("fit", random.Random(4))) if row[""] == "judge alone")
    assert (alone["never"], alone["small"]) == ("1.000", "0.000")


def test_a_judge_of_the_wording_alone_tells_never_said_questions_but_no_answer_that_was_taken_away() -> None:
    chance = random.Random(6)
    fit, new = many("fit", chance), many("new", chance)
    for one in [*fit, *new]:
        for hit in one["hits"]:
            hit["judged"] = -1.0 if one["kind"] == "never" else 1.0
    alone = next(row for row in measure(new, fit) if row[""] == "judge alone")
    assert (alone["never"], alone["taken"]) == ("1.000", "0.500")
    knowing = next(row for row in measure(many("new", chance), fit) if row[""] == "judge alone")
    assert knowing["taken"] == "1.000"


def test_each_fifth_life_is_set_apart_to_fit_on() -> None:
    every = [one for life in "abcdefghij" for one in many(life, random.Random(5))[:2]]
    taught, fit = split(every)
    assert [one["life"] for one in fit] == ["e", "e", "j", "j"]
    assert [one["life"] for one in taught] == [one["life"] for one in every if one["life"] not in "ej"]


def test_files_keep_questions_and_are_read_in_one_language(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"query": "où ?", "language": "fr", "hits": [1]},
        {"query": "where?", "language": "en", "hits": [1]},
        {"query": "when?", "language": None, "hits": [1]},
        {"query": "what?", "language": "en", "hits": []},
    ]
    write(tmp_path / "a.jsonl", lines)
    assert read(tmp_path / "a.jsonl") == lines
    assert used([tmp_path / "a.jsonl"], "en") == lines[1:3]
    assert used([tmp_path / "a.jsonl"], None) == lines[:3]
