"""The default model against what sentence-transformers says of the same sentences (make_reference.py)."""

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


def test_the_default_model_agrees_on_every_sentence(
    minilm: OnnxModel, sentences: list[str], reference: Vectors
) -> None:
    """int8 weights and activations: 0.9768 at the worst (a lone "Yes."), 0.9943 in the mean."""
    cosine = (minilm.encode(sentences) * reference).sum(axis=1) / np.linalg.norm(reference, axis=1)
    apart = {text: round(float(near), 4) for text, near in zip(sentences, cosine, strict=True) if near < 0.975}
    assert not apart
    assert cosine.mean() > 0.994
