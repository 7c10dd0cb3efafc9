"""The default model against what sentence-transformers says of the same sentences (scripts/reference_vectors.py)."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from app.embedding.model import Vectors
from app.embedding.onnx import OnnxModel

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    texts: list[str] = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))
    return texts


@pytest.fixture(scope="module")
def reference() -> Vectors:
    with np.load(DATA / "reference.npz") as kept:
        assert str(kept["sentences_sha256"]) == hashlib.sha256((DATA / "sentences.json").read_bytes()).hexdigest()
        vectors: Vectors = kept["vectors"].astype(np.float32)
    return vectors


def test_the_reference_is_two_hundred_unit_vectors(sentences: list[str], reference: Vectors) -> None:
    assert len(set(sentences)) == 200
    assert reference.shape == (200, 384)
    assert np.linalg.norm(reference, axis=1) == pytest.approx(np.ones(200), abs=1e-3)


@pytest.mark.parametrize("at_once", [1, 16])
def test_the_default_model_agrees_on_every_sentence(
    minilm: OnnxModel, sentences: list[str], reference: Vectors, at_once: int
) -> None:
    """int8 weights cost a little: 0.9964 at the worst (a lone "Yes."), 0.9994 in the mean."""
    parts = [minilm.encode(sentences[start : start + at_once]) for start in range(0, 200, at_once)]
    cosine = (np.concatenate(parts) * reference).sum(axis=1) / np.linalg.norm(reference, axis=1)
    apart = {text: round(float(near), 4) for text, near in zip(sentences, cosine, strict=True) if near < 0.99}
    assert not apart
    assert cosine.mean() > 0.999
