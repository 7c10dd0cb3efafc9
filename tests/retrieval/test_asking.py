"""Whether a query asks for anything: told by its vector, in languages and words that nothing was fitted on."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from app.embedding.model import Model
from app.retrieval.calibration import asks_of, likely_asks
from app.retrieval.model_weights import AsksWeights, weights_for
from app.retrieval.query import FOLDER, asking_place, direction
from tests.support.columns import NOBODY, NOW, columns_of, rank

SMALL_TALK = (
    "hey there, good to see you!",
    "okay great, thank you so much",
    "haha that made my day",
    "¡muchas gracias, hasta luego!",
    "super, merci beaucoup et bonne soirée",
    "alles klar, schönen Abend noch",
    "ok grazie mille, a presto",
)
ASKING = (
    "Which dentist did I see last spring?",
    "my sister's new address",
    "remind Omar what we agreed on",
    "I moved to Tromsø in August.",
    "¿cuándo vence el contrato del piso?",
    "quel vin avait choisi Camille",
    "wie hieß nochmal der Klempner",
    "dove ho lasciato le chiavi della cantina",
)


def probability(model: Model, text: str, covered: float) -> float:
    weights = weights_for(model.name).asks
    vector = model.encode([model.prompts.query + text])[0]
    place = asking_place(vector, model.name)
    assert weights is not None
    assert place is not None
    return likely_asks(place, covered, weights)


def test_small_talk_asks_less_than_everything_else(model: Model) -> None:
    """Where memory has as much of both; and what asks mostly has a word that memory has."""
    small, asking = ([probability(model, text, 0.1) for text in texts] for texts in (SMALL_TALK, ASKING))
    assert np.median(small) < 0.2 < 0.9 < np.median(asking)
    assert max(small) < min(probability(model, text, 0.5) for text in ASKING)


def test_a_bare_word_asks_where_memory_has_it(model: Model) -> None:
    assert probability(model, "Rex", 0.0) < probability(model, "Rex", 0.9)
    assert probability(model, "Rex", 1.2) > 0.9


def test_each_model_with_weights_of_its_own_has_a_direction_in_which_queries_ask() -> None:
    for name in tomllib.loads((FOLDER / "weights.toml").read_text()):
        asks = direction("asks", f"{name}:onnx-12345678", 384)
        assert weights_for(name).asks is not None
        assert asks is not None
        assert np.isfinite(asks).all()


def test_whether_a_query_asks_is_no_part_of_the_scores() -> None:
    columns = columns_of(4)
    small, unknown = (replace(NOBODY, asking_place=place) for place in (-30.0, None))
    ranked = rank(columns, small, "hybrid", NOW)
    assert ranked.score.tolist() == rank(columns, unknown, "hybrid", NOW).score.tolist()
    weights = AsksWeights(covered=2.0, base=0.0)
    assert asks_of(columns, small, ranked.query_features, weights) == pytest.approx(0.0, abs=1e-6)
    assert asks_of(columns, unknown, ranked.query_features, weights) is None
    assert asks_of(columns, small, ranked.query_features, None) is None


@pytest.mark.parametrize("name", ["somebody/else", "../asks_recalld-minilm-1", "openai"])
def test_a_model_without_a_direction_says_nothing(name: str) -> None:
    assert asking_place(np.zeros(384, np.float32), name) is None


def test_vectors_of_another_size_say_nothing() -> None:
    assert asking_place(np.zeros(8, np.float32), "recalld-minilm-1") is None


def test_the_probability_stays_one_however_far_a_vector_lies() -> None:
    weights = AsksWeights(covered=2.0, base=0.0)
    assert 0.0 < likely_asks(-1e6, 0.0, weights) < likely_asks(1e6, 1.0, weights) <= 1.0
