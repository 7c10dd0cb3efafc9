"""A negated query comes nearer to what is denied; any other keeps its vector."""

import numpy as np
import pytest

from app.embedding.factory import DEFAULT_MODEL, load_model
from app.retrieval.query import towards_what_is_denied
from app.storage.search import Floats


def vectors(*texts: str) -> Floats:
    model = load_model(DEFAULT_MODEL)
    return np.concatenate([model.encode([text]) for text in texts])


@pytest.mark.parametrize(
    ("query", "denied", "asserted"),
    [
        ("Which vegetables won't Ines eat?", "Ines detests aubergines", "Ines loves spinach"),
        ("Whom do I not invite?", "I never want to see Bernd again", "Sabine is coming to the party"),
    ],
)
def test_a_negated_query_comes_nearer_to_what_is_denied(query: str, denied: str, asserted: str) -> None:
    asked, no, yes = vectors(query, denied, asserted)
    moved = towards_what_is_denied(asked, load_model(DEFAULT_MODEL).name)
    assert (no - yes) @ moved > (no - yes) @ asked + 0.05
    assert np.linalg.norm(moved) == pytest.approx(1, abs=1e-5)


def test_any_other_query_keeps_its_vector() -> None:
    (asked,) = vectors("Which vegetables does Ines eat?")
    assert towards_what_is_denied(asked, load_model(DEFAULT_MODEL).name) is asked


def test_a_model_without_a_direction_keeps_its_vectors() -> None:
    (asked,) = vectors("Whom do I not invite?")
    assert towards_what_is_denied(asked, "another-model") is asked
    assert towards_what_is_denied(asked, "../folder/of-a-model") is asked
