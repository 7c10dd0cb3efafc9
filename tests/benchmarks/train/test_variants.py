"""Ways of teaching the encoder are compared question by question."""

import random
from pathlib import Path

import pytest

from benchmarks.train.variants import CHOOSE, SHIPPED, VARIANTS, command, difference, mean_of_sets, slug, table

SETS = ("locomo", "beam")


def figures(gain: float, noise: float = 0.0) -> dict[str, dict[str, list[float]]]:
    """The same questions for each gain; what noise adds differs from question to question."""
    chance = random.Random(1)
    made = {}
    for name, count in ((CHOOSE, 200), ("locomo", 400), ("beam", 40)):
        numbers = [chance.uniform(0, 0.5) for _ in range(count)]
        moved = [number + gain + chance.uniform(-noise, noise) for number in numbers]
        made[name] = {"reciprocal": moved, "recall": moved, "first": moved}
    return made


def test_a_gain_on_every_question_has_a_narrow_interval_above_zero() -> None:
    mean, low, high = difference(figures(0.05, 0.1), figures(0), SETS, "reciprocal")
    assert mean == pytest.approx(0.05, abs=0.01)
    assert 0.03 < low < mean < high < 0.07


def test_what_differs_by_chance_alone_has_an_interval_around_zero() -> None:
    _, low, high = difference(figures(0, 0.3), figures(0), SETS, "reciprocal")
    assert low < 0 < high


def test_each_set_counts_the_same_however_many_questions_it_has() -> None:
    told = figures(0)
    told["locomo"]["first"], told["beam"]["first"] = [1.0] * 400, [0.0] * 40
    assert mean_of_sets(told, SETS, "first") == 0.5


def test_a_row_that_needs_another_stands_after_it() -> None:
    out, seen = Path("/out"), set[str]()
    places = dict.fromkeys(("base", "teacher", "near", "minilm", "shipped"), "/given")
    for name in VARIANTS:
        _, *arguments = command(name, out, places)
        taken = {Path(part).name for part in arguments if part.startswith("/out/")} - {slug(name)}
        assert taken <= seen, name
        seen.add(slug(name))
    assert {slug("reference"), slug(SHIPPED)} <= seen


def test_rows_have_folders_of_their_own() -> None:
    assert slug("reference, seed 2") == "reference-seed-2"
    assert len({slug(name) for name in VARIANTS}) == len(VARIANTS)


def test_the_table_compares_each_row_with_the_first() -> None:
    rows = [{"name": "reference", "seconds": 60, "figures": figures(0)}]
    rows.append({"name": "better", "seconds": 90, "figures": figures(0.1)})
    _, _, first, second = table(rows).splitlines()
    assert first.startswith("| reference | 60 |")
    assert "(" not in first
    assert second.count("+0.100 (+0.100 to +0.100)") == 2
