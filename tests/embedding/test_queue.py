"""Who goes next at the model. It is scripted: a run ends when the test says so, and no time is measured."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from app.core.work import work_for
from app.embedding.embedder import URGENT_IN_A_ROW, BatchingEmbedder, BatchQueue
from app.embedding.model import Vectors, estimated_tokens
from tests.support.fake_model import FakeModel

pytestmark = pytest.mark.anyio

PIECE = 40


class Stepped(FakeModel):
    """Each run waits inside the model for a step."""

    piece_tokens = PIECE

    def __init__(self) -> None:
        super().__init__()
        self._steps, self._inside = threading.Semaphore(0), threading.Semaphore(0)

    def encode(self, texts: Sequence[str]) -> Vectors:
        self._inside.release()
        assert self._steps.acquire(timeout=60)
        return super().encode(texts)

    async def begun(self) -> None:
        """The next run is inside the model."""
        assert await asyncio.to_thread(self._inside.acquire, timeout=60)

    def step(self) -> None:
        self._steps.release()

    def let_all_go(self) -> None:
        self._steps.release(10_000)


@pytest.fixture
def model() -> Stepped:
    return Stepped()


@pytest.fixture
async def embedder(model: Stepped) -> AsyncIterator[BatchingEmbedder]:
    made = BatchingEmbedder(BatchQueue(model, batch_tokens=2_048), query_cache=0)
    yield made
    model.let_all_go()
    await made.close()


def texts(tenant: str, number: int, tokens: int = 30) -> list[str]:
    made = [f"{tenant} {at}".ljust(4 * tokens - 4, ".") for at in range(number)]
    assert all(estimated_tokens(text) == tokens for text in made)
    return made


async def bulk(embedder: BatchingEmbedder, tenant: str, wanted: list[str]) -> "asyncio.Future[Vectors]":
    """Handed in on behalf of the tenant, as a request or a job does it."""

    async def embed() -> Vectors:
        work_for(tenant)
        return await embedder.embed_texts(wanted)

    task = asyncio.create_task(embed())
    await asyncio.sleep(0)
    return task


def tenants(model: FakeModel) -> list[str]:
    """Of each run; texts of two are never in one."""
    runs = [{text.split()[0] for text in batch} for batch in model.batches]
    assert all(len(run) == 1 for run in runs)
    return [run.pop() for run in runs]


async def test_each_query_is_the_next_run_after_the_piece_under_way(model: Stepped, embedder: BatchingEmbedder) -> None:
    load = await bulk(embedder, "a", texts("a", 500))
    for number in range(5):
        await model.begun()
        query = asyncio.create_task(embedder.embed_query(f"query {number}"))
        await asyncio.sleep(0)
        model.step()
        await model.begun()
        model.step()
        await query
    assert tenants(model)[:10] == ["a", "query"] * 5
    model.let_all_go()
    await load
    assert tenants(model).count("a") == 500


async def test_a_piece_holds_no_more_than_a_query_can_wait_for(model: Stepped, embedder: BatchingEmbedder) -> None:
    model.let_all_go()
    await embedder.embed_texts([*texts("a", 20, 10), *texts("a", 20, 30), *texts("a", 3, 200)])
    assert all(len(batch) == 1 or max(map(estimated_tokens, batch)) * len(batch) <= PIECE for batch in model.batches)
    assert max(map(len, model.batches)) == PIECE // 10


async def test_a_model_without_a_piece_size_takes_batches_as_large_as_the_setting() -> None:
    model = FakeModel()
    embedder = BatchingEmbedder(BatchQueue(model, batch_tokens=300))
    await embedder.embed_texts(texts("a", 30))
    await embedder.close()
    assert [len(batch) for batch in model.batches] == [10, 10, 10]


async def test_the_pieces_of_tenants_alternate_however_much_each_has(
    model: Stepped, embedder: BatchingEmbedder
) -> None:
    first = await bulk(embedder, "a", texts("a", 1))
    await model.begun()
    loads = [first, *[await bulk(embedder, tenant, texts(tenant, number)) for tenant, number in MANY]]
    model.let_all_go()
    await asyncio.gather(*loads)
    assert tenants(model) == ["a", *["b", "c", "a"] * 3, *["b", "a"] * 7, *["a"] * 40]


MANY = (("a", 30), ("b", 10), ("c", 3), ("a", 20))
"""Tenants and how many texts each brings."""


async def test_a_write_of_another_tenant_is_the_next_piece(model: Stepped, embedder: BatchingEmbedder) -> None:
    load = await bulk(embedder, "a", texts("a", 500))
    for number in range(3):
        await model.begun()
        write = await bulk(embedder, "b", texts("b", 1))
        model.step()
        await model.begun()
        model.step()
        await write
        assert tenants(model) == ["a", "b"] * (number + 1)
    model.let_all_go()
    await load


async def test_a_flood_of_queries_stops_no_write(model: Stepped, embedder: BatchingEmbedder) -> None:
    first = await bulk(embedder, "a", texts("a", 1))
    await model.begun()
    load = await bulk(embedder, "a", texts("a", 3))
    flood = [asyncio.create_task(embedder.embed_query(f"query {at:03}".ljust(4 * PIECE, "."))) for at in range(100)]
    await asyncio.sleep(0)
    model.let_all_go()
    await asyncio.gather(first, load, *flood)
    some = ["query"] * URGENT_IN_A_ROW
    assert tenants(model)[: 1 + 3 * (URGENT_IN_A_ROW + 1)] == ["a", *[*some, "a"] * 3]


async def test_queries_of_tenants_take_turns(model: Stepped, embedder: BatchingEmbedder) -> None:
    """One tenant's queries, however many, come between those of another one and not before them."""

    async def query(tenant: str, number: int) -> None:
        work_for(tenant)
        await embedder.embed_query(f"{tenant} " + "long " * PIECE + str(number))

    first = asyncio.create_task(query("greedy", 0))
    await model.begun()
    greedy = [asyncio.create_task(query("greedy", number)) for number in range(1, 6)]
    await asyncio.sleep(0)
    modest = asyncio.create_task(query("modest", 0))
    await asyncio.sleep(0)
    for _ in range(7):
        model.step()
    await asyncio.gather(first, modest, *greedy)
    assert tenants(model).index("modest") <= 2


async def test_a_query_with_a_queue_of_its_own_waits_for_no_text_under_way(model: Stepped) -> None:
    quick = FakeModel()
    made = BatchingEmbedder(BatchQueue(model, gives_way=True), queries=BatchQueue(quick), query_cache=0)
    load = await bulk(made, "a", texts("a", 3, 200))
    await model.begun()
    await made.embed_query("query")
    assert (quick.batches, load.done()) == ([["query"]], False)
    model.let_all_go()
    await load
    assert tenants(model) == ["a"] * 3
    await made.close()
    assert not made.ready
