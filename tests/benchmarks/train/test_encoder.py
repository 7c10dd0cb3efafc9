"""What the encoder is taught. Needs torch and sentence-transformers, which the project's own environment lacks."""

import random
from collections import Counter
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from benchmarks.train.distil import TeacherVectors  # noqa: E402
from benchmarks.train.encoder import Example, Learner, blocked_of, plan, sampled, told_of, vectors_of  # noqa: E402
from benchmarks.train.layers import batches_of, texts_of  # noqa: E402
from benchmarks.train.worlds import Question, World  # noqa: E402


def example(number: int, world: int = 0, answers: frozenset[str] = frozenset()) -> Example:
    return Example(world, f"q{number}", f"a{number}", (f"n{number}",), answers | {f"a{number}"})


def world(language: str, *texts: str, query: str = "?") -> World:
    question = Question(query, (0,), (), len(texts), "current")
    return World(language, language, frozenset(), texts, (question,))


def vectors(numbers: dict[str, list[float]]) -> dict[str, Any]:
    return {
        text: torch.nn.functional.normalize(torch.tensor(vector, dtype=torch.float32), dim=0)
        for text, vector in numbers.items()
    }


class Given:
    """An encoder whose vectors are given by a number for each text: its angle."""

    def __init__(self, angles: dict[str, float]) -> None:
        self.angles = torch.nn.Parameter(torch.tensor(list(angles.values())))
        self.places = {text: place for place, text in enumerate(angles)}

    def preprocess(self, texts: list[str]) -> list[int]:
        return [self.places[text] for text in texts]

    def __call__(self, places: list[int]) -> dict[str, Any]:
        angles = self.angles[places]
        return {"sentence_embedding": torch.stack([angles.cos(), angles.sin()], 1)}


def test_a_sample_has_each_language_with_its_share() -> None:
    worlds = [world("en"), world("de"), world("fr")]
    found = [example(number, 0 if number < 62 else 1 if number < 87 else 2) for number in range(100)]
    taken = sampled(found, worlds, 10, random.Random(1))
    assert Counter(worlds[one.world].language for one in taken) == {"en": 6, "de": 3, "fr": 1}
    assert len(set(taken)) == 10
    assert sampled(found, worlds, 10, random.Random(1)) == taken
    assert sampled(found, worlds, 10, random.Random(2)) != taken
    assert len(sampled(found, worlds, 1000, random.Random(1))) == 100


def test_every_epoch_has_each_example_once() -> None:
    found = [example(number, number % 4) for number in range(64)]
    batches = plan(found, 16, 4, 2, random.Random(1))
    assert len(batches) == 8
    for begin in (0, 4):
        assert {one for batch in batches[begin : begin + 4] for one in batch} == set(found)


def test_a_memory_that_answers_too_is_no_negative() -> None:
    asked = [example(0, answers=frozenset({"n1"})), example(1)]
    assert told_of(asked) == ["a0", "a1", "n0", "n1"]
    assert blocked_of(asked, told_of(asked)).tolist() == [[False, False, False, True], [False] * 4]


def test_a_teacher_says_which_memory_it_takes_for_the_answer() -> None:
    teacher = TeacherVectors(vectors({"q0": [1, 0]}), vectors({"a0": [1, 0.1], "n0": [0.2, 1], "n1": [1, 0]}))
    blocked = torch.tensor([[False, False, True]])
    (row,) = teacher.targets(["q0"], ["a0", "n0", "n1"], blocked).tolist()
    assert sum(row) == pytest.approx(1)
    assert row[0] > 0.9
    assert row[2] == 0


def test_the_scale_of_a_teacher_fits_how_often_it_is_right() -> None:
    told = vectors({"a0": [1, 0.1], "n0": [1, 0.3]})
    queries, blocked = vectors({"sure": [1, 0], "wrong": [1, 0.4]}), torch.zeros(1, 2, dtype=torch.bool)
    teacher = TeacherVectors(queries, told)
    teacher.fit([(["sure"], ["a0", "n0"], blocked)])
    sure = teacher.scale
    teacher.fit([(["sure"], ["a0", "n0"], blocked), (["wrong"], ["a0", "n0"], blocked)])
    assert teacher.scale < sure


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_a_teacher_decides_whom_the_encoder_follows(share: float) -> None:
    """The teacher holds the wrong memory for the answer."""
    angles = {"q0": 0.0, "a0": 0.5, "n0": -0.5}
    model = Given(angles)
    teacher = TeacherVectors(vectors({"q0": [1, 0]}), vectors({"a0": [0, 1], "n0": [1, 0]}))
    Learner(cast("Any", model), teacher=teacher, distil=share).loss([example(0)]).backward()
    toward_the_answer = -model.angles.grad[model.places["q0"]].item()
    assert (toward_the_answer > 0) == (share == 0)


def test_a_batch_in_pieces_keeps_its_order() -> None:
    angles = {f"a{number}" + "x" * (number * 7 % 50): number / 100 for number in range(40)}
    model = Given(angles)
    made = vectors_of(cast("Any", model), list(angles))
    assert torch.atan2(made[:, 1], made[:, 0]).tolist() == pytest.approx(list(angles.values()), abs=1e-5)


def test_a_shorter_graph_is_taught_each_memory_and_question_once_a_pass() -> None:
    texts = texts_of([world("en", "b", "a", query="c"), world("de", "a", query="c")])
    assert texts == ["a", "b", "c"]
    many = [f"{number}" * (number % 30 + 1) for number in range(100)]
    batches = batches_of(many, 16, 2, random.Random(1))
    assert len(batches) == 14
    assert Counter(text for batch in batches for text in batch) == dict.fromkeys(many, 2)
    assert batches != batches_of(many, 16, 2, random.Random(2))
