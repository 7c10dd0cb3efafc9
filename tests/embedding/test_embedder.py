import asyncio
import json
import logging
from collections.abc import AsyncIterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.embedding.embedder import BatchingEmbedder, BatchQueue, Embedder
from app.embedding.factory import open_embedder
from app.embedding.model import estimated_tokens
from app.embedding.onnx import TAUGHT, OnnxModel
from app.errors import EmbeddingUnavailable
from tests.support.fake_model import FakeModel
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
async def fake(model: FakeModel) -> AsyncIterator[BatchingEmbedder]:
    embedder = BatchingEmbedder(BatchQueue(model, batch_tokens=100), query_cache=2)
    yield embedder
    model.open.set()
    await embedder.close()


async def occupied(model: FakeModel, embedder: Embedder) -> asyncio.Task[object]:
    """A batch that sits in the model until `model.open` is set."""
    model.open.clear()
    model.entered.clear()
    task: asyncio.Task[object] = asyncio.ensure_future(embedder.embed_texts(["first"]))
    await asyncio.to_thread(model.entered.wait, 60)
    return task


async def test_a_query_and_a_text_get_the_same_vector(embedder: BatchingEmbedder) -> None:
    query = await embedder.embed_query("where do I live?")
    assert embedder.name == TAUGHT.name
    assert query.shape == (embedder.dim,) == (384,)
    np.testing.assert_allclose((await embedder.embed_texts(["where do I live?"]))[0], query, atol=1e-6)
    assert (await embedder.embed_texts([])).shape == (0, 384)


@given(st.lists(st.text("ab ", max_size=120), max_size=150), st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_rows_come_back_in_the_callers_order_in_batches_within_the_cap(texts: list[str], cap: int) -> None:
    async def run() -> None:
        model = FakeModel()
        embedder = BatchingEmbedder(BatchQueue(model, batch_tokens=cap))
        third = len(texts) // 3
        parts = await asyncio.gather(embedder.embed_texts(texts[:third]), embedder.embed_texts(texts[third:]))
        await embedder.close()
        expected = [FakeModel.vector(text) for text in texts]
        np.testing.assert_array_equal(np.concatenate(parts), np.array(expected).reshape(-1, 2))
        for batch in model.batches:
            assert len(batch) == 1 or max(map(estimated_tokens, batch)) * len(batch) <= cap

    asyncio.run(run())


async def test_what_arrives_during_a_batch_shares_the_next(model: FakeModel, fake: BatchingEmbedder) -> None:
    first = await occupied(model, fake)
    rest = [asyncio.ensure_future(fake.embed_texts([text])) for text in ("aa", "bb", "cc")]
    await asyncio.sleep(0)
    model.open.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in model.batches] == [1, 3]


async def test_a_query_goes_before_the_rest_of_a_bulk(model: FakeModel, fake: BatchingEmbedder) -> None:
    first = await occupied(model, fake)
    bulk = asyncio.ensure_future(fake.embed_texts(["t" * 160] * 500))
    await asyncio.sleep(0)
    query = asyncio.ensure_future(fake.embed_query("what?"))
    await asyncio.sleep(0)
    model.open.set()
    await query
    assert model.batches[1] == ["what?"]
    await asyncio.gather(first, bulk)


async def test_a_small_write_does_not_wait_for_all_of_a_bulk(model: FakeModel, fake: BatchingEmbedder) -> None:
    first = await occupied(model, fake)
    bulk = asyncio.ensure_future(fake.embed_texts(["t" * 160] * 500))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(fake.embed_texts(["n" * 360]))
    await asyncio.sleep(0)
    model.open.set()
    await asyncio.gather(first, small, bulk)
    assert ["n" * 360] in model.batches[:4]


async def test_a_lone_caller_does_not_wait_for_company(model: FakeModel, fake: BatchingEmbedder) -> None:
    async with asyncio.timeout(60):  # where it waited, nobody else ever came
        for number in range(50):
            await fake.embed_query(f"query {number}")
    assert model.batches == [[f"query {number}"] for number in range(50)]


async def test_a_failure_reaches_only_its_caller(model: FakeModel, fake: BatchingEmbedder) -> None:
    first = await occupied(model, fake)
    callers = [asyncio.ensure_future(fake.embed_texts([text])) for text in ("good", "poison", "nan", "fine", "zero")]
    await asyncio.sleep(0)
    model.open.set()
    await first
    good, poison, nan, fine, zero = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(good, np.ndarray)
    assert isinstance(fine, np.ndarray)
    for failed in (poison, nan, zero):
        assert isinstance(failed, EmbeddingUnavailable)
    assert isinstance(poison, EmbeddingUnavailable)
    assert "poison" in poison.detail


async def test_vectors_of_another_dimension_are_refused(fake: BatchingEmbedder) -> None:
    with pytest.raises(EmbeddingUnavailable, match="shape"):
        await fake.embed_texts(["short"])
    assert fake.ready


async def test_a_failed_query_is_not_cached(model: FakeModel, fake: BatchingEmbedder) -> None:
    for _ in range(2):
        with pytest.raises(EmbeddingUnavailable):
            await fake.embed_query("poison")
    assert model.batches == [["poison"], ["poison"]]


async def test_a_cancelled_callers_rest_is_dropped(model: FakeModel, fake: BatchingEmbedder) -> None:
    first = await occupied(model, fake)
    bulk = asyncio.ensure_future(fake.embed_texts(["gone"] * 100))
    query = asyncio.ensure_future(fake.embed_query("gone too"))
    await asyncio.sleep(0)
    bulk.cancel()
    query.cancel()
    await asyncio.wait([bulk, query])
    model.open.set()
    await first
    await fake.embed_texts(["next"])
    assert model.batches == [["first"], ["next"]]


async def test_one_query_asked_by_many_at_once_is_computed_once(model: FakeModel, fake: BatchingEmbedder) -> None:
    first = await occupied(model, fake)
    callers = [asyncio.ensure_future(fake.embed_query("same")) for _ in range(5)]
    await asyncio.sleep(0)
    callers[0].cancel()
    await asyncio.sleep(0)
    model.open.set()
    await asyncio.gather(first, *callers[1:])
    assert model.batches == [["first"], ["same"]]


async def test_the_least_recently_used_query_is_forgotten(model: FakeModel, fake: BatchingEmbedder) -> None:
    for text in ("a", "b", "a", "c", "a", "b"):  # the cache holds two
        await fake.embed_query(text)
    assert model.batches == [["a"], ["b"], ["c"], ["b"]]


async def test_a_cached_vector_cannot_be_changed(fake: BatchingEmbedder) -> None:
    vector = await fake.embed_query("q")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 0


async def test_closing_fails_what_waits_and_what_comes_after(model: FakeModel, fake: BatchingEmbedder) -> None:
    first = await occupied(model, fake)
    waiting = asyncio.ensure_future(fake.embed_texts(["late"]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(fake.close())
    await asyncio.sleep(0.02)
    model.open.set()
    await asyncio.gather(first, closing)
    assert not fake.ready
    with pytest.raises(EmbeddingUnavailable, match="closed"):
        await waiting
    with pytest.raises(EmbeddingUnavailable, match="closed"):
        await fake.embed_query("later still")


async def test_the_event_loop_stays_free_while_the_model_works(minilm: OnnxModel) -> None:
    batches: list[tuple[int, float]] = []
    embedder: Embedder = await open_embedder(observe_batch=lambda size, seconds: batches.append((size, seconds)))
    work = asyncio.ensure_future(embedder.embed_texts([f"text number {n} about something" for n in range(64)]))
    turns = 0
    while not work.done():
        turns += 1
        await asyncio.sleep(0.001)
    await embedder.close()
    assert turns > 2 * len(batches), "the loop had turns within batches, not only between them"
    assert sum(size for size, _ in batches) == 64


async def test_windows_are_the_models_and_a_text_that_cannot_be_split_is_refused(
    fake: BatchingEmbedder,
) -> None:
    assert await fake.windows(["a|b", "c"]) == [["a", "b"], ["c"]]
    assert await fake.windows([]) == []
    with pytest.raises(EmbeddingUnavailable, match="tokenized"):
        await fake.windows(["fine", "poison"])


# --- A model that has learned English, and a store that holds other languages -----------------------------------------


def _told(life: str) -> list[str]:
    """What somebody says in a made-up life, such as `choose/gebhard_montafon`: German."""
    texts = list[str]()

    def walk(value: object) -> None:
        if isinstance(value, str) and len(value) > 8:
            texts.append(value)
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(part)

    walk(json.loads((ROOT / "benchmarks" / "data" / "lives" / f"{life}.json").read_text(encoding="utf-8")))
    return texts


@pytest.mark.parametrize(
    ("life", "name", "warnings"),
    [
        ("choose/gebhard_montafon", "recalld-minilm-1:onnx", 1),
        ("test/nanyin_quanzhou", "all-MiniLM-L6-v2:onnx", 1),
        ("test/omvati_gwalior", "recalld-minilm-1:onnx", 1),
        ("choose/corliss_lewistown", "recalld-minilm-1:onnx", 0),
        ("choose/gebhard_montafon", "multilingual-e5-small-aligned:onnx", 0),
    ],
)
async def test_a_store_of_another_language_than_the_model_knows_is_warned_of_once(
    life: str, name: str, warnings: int, model: FakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    model.name = name
    embedder = BatchingEmbedder(BatchQueue(model))
    with caplog.at_level(logging.WARNING, "app.embedding.embedder"):
        for text in _told(life):
            await embedder.embed_query("Wo wohnt sie jetzt?")
            await embedder.embed_texts([text])
    await embedder.close()
    said = [record.message for record in caplog.records if "RECALLD_EMBEDDING_MODEL=multilingual" in record.message]
    assert len(said) == warnings
