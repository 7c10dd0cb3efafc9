"""The real multilingual model, where `scripts/extra multilingual` has made it."""

from pathlib import Path

import numpy as np
import pytest

from app.embedding.factory import MODELS, MULTILINGUAL_FOLDER, load_model
from app.embedding.model import encode_checked
from app.embedding.onnx import MAX_TOKENS, OnnxModel
from app.memories.create import SIMILAR
from benchmarks.evaluation import sets
from benchmarks.evaluation.ranking_cases import Embedder, build_cases
from tests.retrieval.test_asking import ASKING, SMALL_TALK, probability

pytestmark = pytest.mark.skipif(
    not (MODELS / MULTILINGUAL_FOLDER).is_dir(), reason="needs the model: run scripts/extra multilingual"
)
PARALLEL = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "parallel_dev.json"


@pytest.fixture(scope="module")
def multilingual() -> OnnxModel:
    return load_model("multilingual")


def test_questions_find_memories_in_other_languages() -> None:
    cases = list(build_cases("parallel", sets.load(PARALLEL), Embedder(None, "multilingual"), 1))
    places = [np.flatnonzero(case.evidence[np.argsort(-case.columns.cosine)])[0] for case in cases]
    assert len(cases) == 30
    assert np.mean(np.array(places) < 5) >= 0.8


def test_a_translation_is_nearer_than_another_subject_in_the_same_language(multilingual: OnnxModel) -> None:
    texts = ("我每天早上喝乌龙茶。", "I drink oolong tea every morning.", "我的自行车坏了。")
    chinese, english, other = multilingual.encode([f"passage: {text}" for text in texts])
    assert chinese @ english > 0.6 > 0.3 > chinese @ other


def test_what_means_something_else_is_no_near_duplicate(multilingual: OnnxModel) -> None:
    texts = ("The user is allergic to peanuts.", "The user is allergic to cats.", "Der Nutzer mag Katzen.")
    rows = multilingual.encode([f"passage: {text}" for text in texts])
    assert np.triu(rows @ rows.T, 1).max() < SIMILAR


def test_small_talk_asks_less_than_everything_else(multilingual: OnnxModel) -> None:
    assert max(probability(multilingual, text, 0.1) for text in (*SMALL_TALK, "谢谢你，晚安", "いってきます")) < 0.2
    assert min(probability(multilingual, text, 0.5) for text in (*ASKING, "我的牙医叫什么名字？")) > 0.9


def test_a_vector_is_the_same_to_the_last_bit_in_any_company(multilingual: OnnxModel) -> None:
    texts = ["passage: yes", "query: 你好", "passage: " + "مرحبا بكم " * 40]
    np.testing.assert_array_equal(multilingual.encode(texts), np.concatenate([multilingual.encode([t]) for t in texts]))


@pytest.mark.parametrize("sentence", ["We walked along the river. ", "私たちは川沿いを歩いた。", "हम नदी के किनारे चले। "])
def test_long_texts_are_split_into_windows_that_fit_with_their_prompt(multilingual: OnnxModel, sentence: str) -> None:
    windows = multilingual.split(sentence * 100)
    prompted = [multilingual.prompts.passage + window for window in windows]
    lengths = [len(encoding.ids) for encoding in multilingual.tokenize(prompted)]
    assert len(windows) > 1
    assert max(lengths) <= MAX_TOKENS
    assert min(lengths[:-1]) > MAX_TOKENS / 2


def test_any_str_is_embedded(multilingual: OnnxModel) -> None:
    assert encode_checked(multilingual, ["a\ud800b", "\x00", " " * 10_000, "", "<s>", "\ufdfa" * 300])[1].all()
