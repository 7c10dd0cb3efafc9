"""The `sentence-transformers:` runtime, where torch is: `scripts/test_sentence_transformers` makes such a place."""

import hashlib
import json
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.embedding.factory import load_any, open_embedder
from app.embedding.model import ExtraOptions, Prompts, encode_checked
from app.embedding.onnx import OnnxModel
from app.errors import EmbeddingUnavailable
from tests.embedding.test_onnx import TEXTS

FOLDER = os.environ.get("RECALLD_TEST_SENTENCE_TRANSFORMERS", "")
DATA = Path(__file__).parent / "data"

pytestmark = [
    pytest.mark.skipif(not FOLDER, reason="needs torch: run scripts/test_sentence_transformers"),
    pytest.mark.filterwarnings("default"),  # torch and transformers warn of themselves
]


def named(folder: Path | str) -> str:
    return f"sentence-transformers:{folder}"


@pytest.fixture(scope="module")
def model() -> Any:
    return load_any(named(FOLDER))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "my-model"))


def test_it_is_named_after_its_folder_and_its_weights(model: Any, copy: Path) -> None:
    label, runtime = model.name.split(":")
    assert (label, runtime[:22], len(runtime)) == (Path(FOLDER).name, "sentence-transformers-", 30)
    assert model.dim == 384
    assert load_any(named(copy)).name == f"my-model:{runtime}"
    weights = copy / "model.safetensors"
    planted = bytearray(weights.read_bytes())
    planted[-1] ^= 1
    weights.write_bytes(planted)
    assert load_any(named(copy)).name != f"my-model:{runtime}"


def test_vectors_are_those_of_the_reference(model: Any) -> None:
    sentences = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))
    with np.load(DATA / "reference.npz") as kept:
        reference = kept["vectors"].astype(np.float32)
    rows = np.concatenate([model.encode(sentences[start : start + 16]) for start in range(0, 200, 16)])
    cosine = (rows * reference).sum(axis=1) / np.linalg.norm(reference, axis=1)
    assert cosine.min() > 0.9999


def test_rows_are_unit_float32_and_the_same_alone_as_in_a_batch(model: Any) -> None:
    rows = model.encode(TEXTS)
    assert rows.shape == (6, 384)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(6), abs=1e-5)
    np.testing.assert_allclose(rows, np.concatenate([model.encode([text]) for text in TEXTS]), atol=1e-4)
    assert encode_checked(model, TEXTS)[1].all()


def test_any_str_is_embedded(model: Any) -> None:
    odd = ["a\ud800b", "\x00", " " * 10_000, "a" * 1_000_000, ""]
    assert np.isfinite(model.encode(odd)).all()


def test_it_lies_near_the_default_and_is_another_model(model: Any, minilm: OnnxModel) -> None:
    ours, theirs = minilm.encode(TEXTS), model.encode(TEXTS)
    assert (ours * theirs).sum(axis=1).min() > 0.99
    assert model.name != minilm.name


def test_prompts_of_the_folder_are_left_to_the_caller(model: Any, copy: Path) -> None:
    config = copy / "config_sentence_transformers.json"
    stored = json.loads(config.read_text(encoding="utf-8"))
    stored |= {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": "query"}
    config.write_text(json.dumps(stored), encoding="utf-8")
    prompted = load_any(named(copy))
    assert model.prompts == Prompts()
    assert prompted.prompts == Prompts("query: ", "passage: ")
    np.testing.assert_allclose(prompted.encode(["hello"]), model.encode(["hello"]), atol=1e-6)


def test_a_folder_is_loaded_without_looking_anywhere_else(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def refuse(*args: Any, **_: Any) -> Any:
        asked.append(args[:2])
        raise OSError("no network here")

    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    load_any(named(copy)).encode(["hello"])
    assert asked == []


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_of_the_setting_in_the_thread_that_computes(threads: int) -> None:
    import torch  # noqa: PLC0415 (only where it is)

    model = load_any(named(FOLDER), threads=threads)
    seen: list[int] = []

    def compute() -> None:
        model.encode(["one"])
        seen.append(torch.get_num_threads())

    worker = threading.Thread(target=compute)
    worker.start()
    worker.join()
    assert seen == [threads]


def test_a_model_that_gives_no_finite_vector_is_refused(copy: Path) -> None:
    import safetensors.torch  # noqa: PLC0415 (only where it is)

    weights = safetensors.torch.load_file(copy / "model.safetensors")
    broken = {name: tensor * float("nan") if "LayerNorm" in name else tensor for name, tensor in weights.items()}
    safetensors.torch.save_file(broken, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EmbeddingUnavailable, match="no usable vector"):
        load_any(named(copy))


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingUnavailable, match="there is no folder"):
        load_any(named(tmp_path / "nothing"))
    with pytest.raises(EmbeddingUnavailable, match="cannot load"):
        load_any(named(tmp_path))


def test_a_name_in_the_cache_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the hub's own client lays it down."""
    commit = "c" * 40
    kept = tmp_path / "models--sentence-transformers--tiny"
    shutil.copytree(FOLDER, kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked the network"))
    assert load_any(named("tiny")).name.startswith("tiny:sentence-transformers-")


@pytest.mark.anyio
async def test_behind_the_embedder(model: Any) -> None:
    embedder = await open_embedder(named(FOLDER), options=ExtraOptions(text_chars=100))
    try:
        query = await embedder.embed_query("where do I live?")
        np.testing.assert_allclose(query, model.encode(["where do I live?"])[0], atol=1e-5)
        rows = await embedder.embed_texts([f"text number {n} about something" for n in range(64)])
        assert rows.shape == (64, 384)
    finally:
        await embedder.close()


def test_the_weights_are_the_official_ones() -> None:
    digest = hashlib.sha256((Path(FOLDER) / "model.safetensors").read_bytes()).hexdigest()
    with np.load(DATA / "reference.npz") as kept:
        assert str(kept["weights_sha256"]) == digest
