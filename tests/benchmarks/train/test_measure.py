"""An encoder is measured with its prompts, on as much of each set as is asked for."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.train.measure import Vectors, first, kept, measure
from benchmarks.train.worlds import Question, World


def world(name: str) -> World:
    questions = (Question("asked", (1,), (0,), 2, "current"), Question("else", (), (), 2, "never"))
    return World(name, "en", frozenset(), ("wrong", "right"), questions)


def test_only_the_first_conversations_of_each_set_are_taken() -> None:
    found = [(name, world(f"{name}{number}")) for name in ("a", "b") for number in range(3)]
    assert [each.name for _, each in first(found, 2)] == ["a0", "a1", "b0", "b1"]
    assert first(found, None) == found


def test_queries_and_texts_are_encoded_apart() -> None:
    def of_queries(texts: Sequence[str]) -> Vectors:
        return np.array([[1, 0] for _ in texts], np.float32)

    def of_texts(texts: Sequence[str]) -> Vectors:
        return np.array([[0.2, 0] if text == "wrong" else [0.7, 0] for text in texts], np.float32)

    (figures,) = measure(of_queries, of_texts, [("set", world("one"))]).values()
    assert (figures.recall, figures.reciprocal, figures.first, figures.order) == ([1.0], [1.0], [True], [True])
    assert figures.never == pytest.approx([0.7])


def test_vectors_that_are_kept_are_not_made_again(tmp_path: Path) -> None:
    made: list[str] = []

    def encode(texts: Sequence[str]) -> Vectors:
        made.extend(texts)
        return np.array([[len(text), 0] for text in texts], np.float32)

    file = tmp_path / "vectors.npz"
    assert kept(encode, file)(["a", "bb", "a"]).tolist() == [[1, 0], [2, 0], [1, 0]]
    assert kept(encode, file)(["ccc", "bb"]).tolist() == [[3, 0], [2, 0]]
    assert made == ["a", "bb", "ccc"]
