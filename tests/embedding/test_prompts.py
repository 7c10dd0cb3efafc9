"""Models that want other words before a query than before a passage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.embedding.embedder import BatchingEmbedder, BatchQueue, Embedder
from app.embedding.factory import open_embedder
from app.embedding.model import Prompts
from app.embedding.onnx import DATA, MAX_TOKENS, TAUGHT, OnnxModel, load_folder
from app.settings import Settings
from tests.conftest import Starter, TestParts
from tests.support.fake_model import FakeModel
from tests.support.memories import OWNER

pytestmark = pytest.mark.anyio

E5 = {"query": "query: ", "passage": "passage: "}
TEXT = "The cat sleeps on the sofa."


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder of a model that says what is given in sentence-transformers' own file."""

    def make(**config: object) -> Path:
        made = tmp_path / "asking"
        made.mkdir()
        (made / "model.onnx").symlink_to(TAUGHT.file)
        shutil.copy(DATA / "tokenizer.json", made)
        (made / "config_sentence_transformers.json").write_text(json.dumps(config))
        return made

    return make


@pytest.mark.parametrize(
    ("stored", "default", "read"),
    [
        (E5, None, Prompts("query: ", "passage: ")),
        ({"query": "Q: ", "document": "D: "}, None, Prompts("Q: ", "D: ")),
        ({"document": "", "corpus": "C: "}, None, Prompts("", "C: ")),
        ({"query": "", "document": ""}, None, Prompts()),
        ({"query": "Q: "}, None, Prompts("Q: ", "")),
        ({"all": "A: "}, "all", Prompts("A: ", "A: ")),
        ({"all": "A: ", "query": "Q: "}, "all", Prompts("Q: ", "A: ")),
        ({}, "gone", Prompts()),
    ],
)
def test_prompts_are_read_as_sentence_transformers_names_them(
    stored: dict[str, str], default: str | None, read: Prompts
) -> None:
    assert Prompts.of(stored, default) == read


async def test_a_query_and_a_passage_of_one_text_have_vectors_of_their_own(
    folder: Callable[..., Path], minilm: OnnxModel
) -> None:
    embedder = await open_embedder(str(folder(prompts=E5)))
    try:
        asked = await embedder.embed_query(TEXT)
        stored = await embedder.embed_texts([TEXT])
        again = await embedder.embed_query(TEXT)
    finally:
        await embedder.close()
    by_hand = minilm.encode([f"query: {TEXT}", f"passage: {TEXT}"])
    np.testing.assert_array_equal(np.stack([asked, stored[0], again]), by_hand[[0, 1, 0]])
    assert not np.array_equal(by_hand[0], by_hand[1])


def test_a_folder_that_says_nothing_of_prompts_has_none(folder: Callable[..., Path]) -> None:
    assert load_folder(folder(similarity_fn_name="cosine")).prompts == Prompts()


def test_another_prompt_makes_another_model(folder: Callable[..., Path]) -> None:
    place = folder(prompts=E5)
    names = {load_folder(place).name}
    for prompts in ({"query": "query: "}, {}):
        (place / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
        names.add(load_folder(place).name)
    assert len(names) == 3
    assert f"asking:onnx-{TAUGHT.sha256[:8]}" in names  # without prompts, the weights alone make the name


def test_the_prompt_counts_in_a_window(folder: Callable[..., Path], minilm: OnnxModel) -> None:
    text = "word " * (MAX_TOKENS - 2)
    model = load_folder(folder(prompts=E5))
    windows = model.split(text)
    assert minilm.split(text) == [text]
    assert len(windows) == 2
    prompted = [model.prompts.passage + window for window in windows]
    assert max(len(encoding.ids) for encoding in minilm.tokenize(prompted)) <= MAX_TOKENS
    assert not np.array_equal(model.encode(prompted), minilm.encode(windows))


async def test_the_service_asks_with_one_prompt_and_remembers_with_the_other(
    start: Starter, parts: TestParts, settings: Settings
) -> None:
    model = FakeModel()
    model.prompts = Prompts("query: ", "passage: ")

    def prompted(_: Embedder) -> Embedder:
        return BatchingEmbedder(BatchQueue(model))

    parts.wrap = prompted
    async with start(settings) as service:
        made = await service.client.post("/v1/memories", json={**OWNER, "content": TEXT})
        assert made.status_code == 201, made.text
        found = await service.client.post("/v1/memories/search", json={**OWNER, "query": "Where is the cat?"})
        assert found.status_code == 200, found.text
    assert model.batches == [[f"passage: {TEXT}"], ["query: Where is the cat?"]]
