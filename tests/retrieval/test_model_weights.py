"""The ranking's weights belong to the model whose vectors they were fitted with."""

import tomllib
from typing import Any
from uuid import uuid4

import pytest

from app.embedding.embedder import BatchingEmbedder, BatchQueue, Embedder
from app.retrieval.model_weights import DEFAULT, MULTILINGUAL, weights_for
from app.retrieval.query import FOLDER
from app.settings import Settings
from tests.conftest import Starter, TestParts
from tests.support.fake_model import FakeModel
from tests.support.memories import OWNER

pytestmark = pytest.mark.anyio

ALIGNED = "multilingual-e5-small-aligned:onnx-12345678"


def test_each_model_has_its_own_weights_and_others_have_the_defaults() -> None:
    assert weights_for("all-MiniLM-L6-v2:onnx-int8-bfc6ff25") is DEFAULT
    assert weights_for("my-model:openai-1536") is DEFAULT
    assert weights_for(ALIGNED) is MULTILINGUAL
    assert MULTILINGUAL.weights != DEFAULT.weights
    assert MULTILINGUAL.calibration != DEFAULT.calibration


def test_each_number_of_the_file_is_one_that_the_ranking_reads() -> None:
    def read(table: dict[str, Any], value: object) -> None:
        for name, number in table.items():
            fitted = getattr(value, name)  # fails if the name is misspelled
            if isinstance(number, dict):
                read(number, fitted)
            else:
                assert fitted == number

    for model, table in tomllib.loads((FOLDER / "weights.toml").read_text()).items():
        read(table, weights_for(model))


async def scores(start: Starter, parts: TestParts, settings: Settings, name: str, query: str) -> list[float]:
    """Of one and the same search by a model of this name."""
    model = FakeModel()
    model.name = name

    def named(_: Embedder) -> Embedder:
        return BatchingEmbedder(BatchQueue(model))

    parts.wrap = named
    user = {**OWNER, "user_id": uuid4().hex}
    async with start(settings) as service:
        for content in ("tea in the morning", "coffee at noon, and a cake"):
            made = await service.client.post("/v1/memories", json={**user, "content": content})
            assert made.status_code == 201, made.text
        found = await service.client.post("/v1/memories/search", json={**user, "query": query})
        assert found.status_code == 200, found.text
    return [item["score"] for item in found.json()["items"]]


async def test_a_search_goes_by_the_weights_of_its_model(start: Starter, parts: TestParts, settings: Settings) -> None:
    by_default = await scores(start, parts, settings, "another:onnx-1", "tea or coffee")
    aligned = await scores(start, parts, settings, ALIGNED, "tea or coffee")
    assert len(by_default) == len(aligned) == 2
    assert by_default != aligned


@pytest.mark.parametrize(("name", "foreign"), [("all-MiniLM-L6-v2:onnx-1", True), ("another:onnx-1", False)])
async def test_a_query_is_foreign_to_models_of_one_script_alone(
    start: Starter, parts: TestParts, settings: Settings, name: str, foreign: bool
) -> None:
    chinese = await scores(start, parts, settings, name, "茶")
    latin = await scores(start, parts, settings, name, "q")  # neither shares a word; both have the same vector
    assert (chinese != latin) is foreign
