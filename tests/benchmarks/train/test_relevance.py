"""What a judge of relevance is taught. Needs torch, which the project's own environment does not have."""

import argparse
import math
import random
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from benchmarks.train.relevance import by_length, loss_of, rows_of  # noqa: E402


def asked(answers: list[str], wrong: list[str]) -> dict[str, Any]:
    hits = [{"text": text, "right": True} for text in answers] + [{"text": text, "right": False} for text in wrong]
    return {"query": "where?", "answers": answers, "hits": hits}


class Known:
    """Gives each memory the number that it is."""

    def train(self) -> None:
        pass

    def __call__(self, of: list[tuple[str, str]]) -> Any:
        return torch.tensor([float(memory) for _, memory in of])


def losses(numbers: list[str], right: list[str]) -> tuple[float, float]:
    given, judge = argparse.Namespace(others=7, without=0.5), cast("Any", Known())
    choice, none = loss_of(judge, [asked(right, numbers)], given, random.Random(1))
    return choice.item(), none.item()


def test_one_answer_stands_before_other_hits() -> None:
    rows = rows_of(asked(["a", "b"], ["c", "d", "e"]), 2, random.Random(1))
    assert rows[0] in {("where?", "a"), ("where?", "b")}
    assert len(rows) == 3
    assert {text for _, text in rows[1:]} < {"c", "d", "e"}


def test_the_right_choice_is_the_answer_and_without_it_none_of_them() -> None:
    choice, none = losses(["-9", "-9"], ["9"])
    assert choice < 0.001
    assert none < 0.001
    worse, _ = losses(["9", "-9"], ["-9"])
    assert worse > 17
    _, sure_of_a_wrong_one = losses(["9", "-9"], ["10"])
    assert math.isclose(sure_of_a_wrong_one, 0.5 * 9, abs_tol=0.01), "half the loss of choosing a wrong one"


def test_what_was_never_said_is_answered_by_none_of_them() -> None:
    choice, none = losses(["-9", "-9"], [])
    assert choice == 0
    assert none < 0.001
    assert losses(["9", "-9"], [])[1] == pytest.approx(9, abs=0.001)


def test_an_epoch_has_each_question_once_in_batches_of_like_length() -> None:
    found = [{"hits": [{"text": "x" * length}], "at": length} for length in range(50)]
    batches = by_length(found, 4, 2, random.Random(1))
    assert sorted(one["at"] for batch in batches for one in batch) == sorted([*range(50), *range(50)])
    spread = [max(one["at"] for one in batch) - min(one["at"] for one in batch) for batch in batches]
    assert sum(spread) / len(spread) < 12
