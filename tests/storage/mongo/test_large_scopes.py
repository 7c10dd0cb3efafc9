"""What a caller gets of scopes that are answered by search indexes, at the service."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from app.lifespan import COLLECTIONS
from app.settings import MongodbSettings
from app.storage.mongo import store as store_module
from tests.conftest import PATIENT_SECONDS, Service, Starter, TestParts, settings_of
from tests.support.atlas import Atlas
from tests.support.memories import OWNER, batch

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
OLD = 210


@pytest.fixture
async def service(
    atlas: Atlas, mongodb_database: str, start: Starter, parts: TestParts, tmp_path: Any, anyio_backend: str
) -> AsyncIterator[Service]:
    own = MongodbSettings(database=mongodb_database, deadline_seconds=PATIENT_SECONDS)
    parts.tuning = replace(parts.tuning, exact_up_to=0)
    async with start(settings_of(tmp_path, store=SecretStr(atlas.uri), mongodb=own)) as made:
        while "exact where" in str(await ready(made)):  # noqa: ASYNC110 (until its search indexes are there)
            await asyncio.sleep(0.05)
        yield made


async def ready(service: Service) -> Json:
    answer: Json = (await service.client.get("/readyz")).json()
    return answer


async def settled(service: Service, atlas: Atlas, database: str) -> None:
    """As if everything had been written an hour ago, and the indexes had read it."""
    atlas.settle()
    long_ago = int((time.time() - 3_600) * 1_000)
    with atlas.client() as client:
        for partition in client[database]["recalld_partitions"].find({}):
            marks = {"marks": [[long_ago, partition["version"]]]}
            client[database]["recalld_partitions"].update_one({"_id": partition["_id"]}, {"$set": marks})
    atlas.watch()


async def search(service: Service, **body: Any) -> Any:
    return await service.client.post("/v1/memories/search", json={**OWNER, "query": "green tea", **body})


@pytest.mark.release
async def test_as_many_are_found_as_match_though_all_the_nearest_have_faded(
    service: Service, atlas: Atlas, mongodb_database: str
) -> None:
    for first in range(0, OLD, 70):
        await batch(
            service.client,
            *({"content": f"green tea number {i}", "importance": 0.9} for i in range(first, first + 70)),
        )
    service.clock.move(days=2_000)
    await batch(service.client, *({"content": f"the garden gate, {i}", "importance": 0.9} for i in range(5)))
    await settled(service, atlas, mongodb_database)
    first = await search(service, top_k=5, record_access=False)
    assert len(first.json()["items"]) == 5
    assert len(atlas.pipelines) == 1
    strong = (await search(service, top_k=5, min_importance=0.8, record_access=False)).json()
    assert {hit["memory"]["content"][:15] for hit in strong["items"]} == {"the garden gate"}
    assert (len(strong["items"]), strong["warnings"]) == (5, [])


async def test_as_many_are_found_as_match_though_no_index_decides_the_filter(
    service: Service, atlas: Atlas, mongodb_database: str
) -> None:
    for first in range(0, OLD, 70):
        await batch(
            service.client,
            *({"content": f"green tea number {i}", "metadata": {"shelf": i % 5}} for i in range(first, first + 70)),
        )
    gates: list[Json] = [{"content": f"the garden gate, {i}", "metadata": {"shelf": 5 + i}} for i in range(5)]
    await batch(service.client, *gates)
    await settled(service, atlas, mongodb_database)
    answer = (await search(service, top_k=5, metadata={"shelf": {"gte": 5}})).json()
    assert {hit["memory"]["content"][:15] for hit in answer["items"]} == {"the garden gate"}
    assert (len(answer["items"]), answer["warnings"]) == (5, [])
    assert len(atlas.pipelines) > 1, "the nearest 200 do not match"


async def test_a_search_without_its_index_says_so_and_readyz_names_index_and_reason(
    service: Service, atlas: Atlas, mongodb_database: str
) -> None:
    await batch(service.client, {"content": "green tea"})
    await settled(service, atlas, mongodb_database)
    atlas.down = True
    answer = (await search(service)).json()
    assert [hit["memory"]["content"] for hit in answer["items"]] == ["green tea"]
    assert [warning["code"] for warning in answer["warnings"]] == ["search_index_unavailable"]
    assert "agent_memories: " in (await ready(service))["checks"]["search"]
    metrics = (await service.client.get("/metrics")).text
    assert 'recalld_search_index_fallbacks_total{collection="agent_memories",outcome="exact"}' in metrics


async def test_a_scope_too_large_to_do_without_is_a_503_with_a_time(
    service: Service, atlas: Atlas, mongodb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await batch(service.client, {"content": "green tea"})
    await settled(service, atlas, mongodb_database)
    atlas.down = True
    monkeypatch.setattr(store_module, "EXACT_AT_MOST", 0)
    answer = await search(service)
    assert (answer.status_code, answer.json()["code"]) == (503, "search_index_unavailable")
    assert int(answer.headers["Retry-After"]) >= 1


async def test_instructions_of_a_large_scope_come_into_the_prompt(
    service: Service, atlas: Atlas, mongodb_database: str
) -> None:
    await batch(service.client, {"content": "Always answer in French.", "memory_type": "instruction"})
    await settled(service, atlas, mongodb_database)
    body = {**OWNER, "query": "what is the capital of Peru?", "intent": "execute"}
    answer = await service.client.post("/v1/context", json=body)
    assert "Always answer in French." in answer.text


def test_the_most_important_collection_has_its_indexes_first() -> None:
    assert next(collection.name for collection in COLLECTIONS if collection.searched) == "agent_memories"
