"""POST /v1/memories and /batch: what is sent comes back, and is there."""

import asyncio
from typing import Any, cast

import httpx
import pytest

from app.embedding.embedder import Embedder
from app.settings import JobSettings, Settings
from app.storage.protocol import Store
from tests.conftest import Service, Starter, TestParts
from tests.support.memories import OWNER, Faulty, batch, found, listed, problem, recall, remember
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio

FULL: dict[str, Any] = {
    "agent_id": "support:eu",
    "user_id": "ada@example.org",
    "key": "drink / morning",
    "memory_type": "preference",
    "content": "  Ada prefers tea\n— Größe M, 茶 🍵",
    "context": "at breakfast",
    "importance": 0.75,
    "trust": 0.5,
    "tags": ["drink", "Früh"],
    "metadata": {"a.b": {"$set": [1, 2.5, None, True]}, "": "empty"},
    "pinned": True,
    "event_at": "2026-05-01T08:00:00.000Z",
    "valid_from": "2026-05-01T00:00:00.000Z",
    "valid_until": "2027-05-01T00:00:00.000Z",
    "expires_at": "2030-01-01T00:00:00.000Z",
}


async def test_every_field_comes_back_unchanged(api: httpx.AsyncClient) -> None:
    made = await api.post("/v1/memories", json=FULL)
    assert made.status_code == 201
    body = made.json()
    assert {name: body[name] for name in FULL} == FULL
    assert body["memory_id"].startswith("mem_")
    assert (body["version"], body["status"], body["access_count"]) == (1, "active", 0)
    assert (body["supersedes"], body["superseded_by"], body["last_accessed"], body["similar"]) == ([], None, None, [])
    assert body["base_importance"] == 0.75
    assert body["created_at"] == body["updated_at"]
    assert body["embedding"]["status"] == "ready"
    assert body["embedding"]["dim"] == 384

    got = await api.get(f"/v1/memories/{body['memory_id']}")
    assert got.json() == {name: value for name, value in body.items() if name != "similar"}
    assert made.headers["etag"] == got.headers["etag"] == '"1"'


async def test_defaults(api: httpx.AsyncClient) -> None:
    made = await api.post("/v1/memories", json={"user_id": "u", "content": "x"})
    body = made.json()
    assert (body["memory_type"], body["importance"], body["trust"], body["pinned"]) == ("fact", 0.5, 1.0, False)
    assert (body["tags"], body["metadata"], body["agent_id"], body["key"]) == ([], {}, None, None)


async def test_nothing_internal_is_served(api: httpx.AsyncClient) -> None:
    body = await remember(api, "x")
    assert body.keys().isdisjoint({"tenant_id", "content_hash", "dedupe_key", "metadata_terms", "anchored_at"})


async def test_provenance_is_set_by_the_service(service: Service) -> None:
    anonymous = await remember(service.client, "before there was a key")
    assert anonymous["source"]["origin"] == "api"
    assert anonymous["source"]["api_key_id"] is None
    headers = await service.key()
    made = await service.client.post("/v1/memories", json={**OWNER, "content": "with a key"}, headers=headers)
    assert made.json()["source"]["api_key_id"] == headers["Authorization"].split("_")[1]


@pytest.mark.parametrize("field", ["memory_id", "status", "version", "created_at", "embedding", "tenant_id"])
async def test_what_the_service_sets_cannot_be_sent(api: httpx.AsyncClient, field: str) -> None:
    problem(await api.post("/v1/memories", json={**OWNER, "content": "x", field: {}}), 422, pointer=f"/{field}")
    mine = await remember(api, "mine")
    if field != "status":
        path = f"/v1/memories/{mine['memory_id']}"
        problem(await api.patch(path, json={field: {}}), 422, pointer=f"/{field}")
        assert (await api.get(path)).json()["source"] == mine["source"]
    assert await listed(api) == ["mine"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"agent_id": None, "user_id": None}, ""),
        ({"content": " \n\t"}, "/content"),
        ({"content": None}, "/content"),
        ({"importance": 1.01}, "/importance"),
        ({"importance": "0.5"}, "/importance"),
        ({"importance": True}, "/importance"),
        ({"trust": -0.1}, "/trust"),
        ({"memory_type": "secret"}, "/memory_type"),
        ({"user_id": "a/b"}, "/user_id"),
        ({"user_id": "u" * 256}, "/user_id"),
        ({"user_id": "u\n"}, "/user_id"),
        ({"tags": [""]}, "/tags/0"),
        ({"pinned": "yes"}, "/pinned"),
        ({"event_at": "2026-05-01T08:00:00"}, "/event_at"),
        ({"event_at": "2026-05-01"}, "/event_at"),
        ({"expires_at": "0001-01-01T00:00:00+14:00"}, "/expires_at"),
        ({"valid_from": "2026-05-02T00:00:00Z", "valid_until": "2026-05-02T00:00:00Z"}, "/valid_until"),
        ({"unknown": 1}, "/unknown"),
    ],
)
async def test_bad_fields_are_named_and_nothing_is_stored(
    api: httpx.AsyncClient, fields: dict[str, Any], pointer: str
) -> None:
    problem(await api.post("/v1/memories", json={**OWNER, "content": "x", **fields}), 422, "invalid", pointer)
    items = {"items": [{**OWNER, "content": "fine"}, {**OWNER, "content": "x", **fields}]}
    problem(await api.post("/v1/memories/batch", json=items), 422, "invalid", f"/items/1{pointer}")
    assert await listed(api) == []


async def test_times_are_served_in_utc_with_milliseconds(api: httpx.AsyncClient) -> None:
    body = await remember(api, "x", event_at="2026-05-01T10:00:00.123987+02:00", valid_from="2026-05-01T00:00:00Z")
    assert body["event_at"] == "2026-05-01T08:00:00.123Z"
    assert body["valid_from"] == "2026-05-01T00:00:00.000Z"


async def test_times_may_be_written_in_lower_case(api: httpx.AsyncClient) -> None:
    body = await remember(api, "x", event_at="2026-05-01t08:00:00z")  # RFC 3339 §5.6
    assert body["event_at"] == "2026-05-01T08:00:00.000Z"


async def test_equal_tags_are_kept_once(api: httpx.AsyncClient) -> None:
    made = await remember(api, "x", tags=["b", "a", "b"])
    assert made["tags"] == ["b", "a"]
    changed = await api.patch(f"/v1/memories/{made['memory_id']}", json={"tags": ["c", "c"]})
    assert changed.json()["tags"] == ["c"]


# --- Batches ----------------------------------------------------------------------------------------------------------


async def test_a_batch_answers_in_order(api: httpx.AsyncClient) -> None:
    contents = ["third comes first", "one", "two"]
    made = await batch(api, *({"content": content} for content in contents))
    assert [item["content"] for item in made["items"]] == contents
    assert sorted(await listed(api, user_id="u")) == sorted(contents)


async def test_a_batch_with_one_bad_reference_stores_nothing(api: httpx.AsyncClient) -> None:
    response = await api.post(
        "/v1/memories/batch",
        json={"items": [{**OWNER, "content": "a"}, {**OWNER, "content": "b", "supersedes": ["mem_none"]}]},
    )
    problem(response, 422, pointer="/items/1/supersedes/0")
    assert await listed(api) == []
    assert await found(api, "a") == []


async def test_a_batch_of_500_is_embedded_together_and_one_of_501_is_refused(
    start: Starter, parts: TestParts, settings: Settings
) -> None:
    made: list[Faulty] = []

    def wrap(embedder: Embedder) -> Embedder:
        made.append(Faulty(embedder))
        return made[-1]

    parts.wrap = wrap
    async with start(settings) as service:
        items = [{"content": f"n {i}"} for i in range(500)]
        body = await batch(service.client, *items)
        assert len({item["memory_id"] for item in body["items"]}) == 500
        assert [len(call) for call in made[0].calls] == [500]
        refused = await service.client.post("/v1/memories/batch", json={"items": [{**OWNER, **i} for i in items] * 2})
        problem(refused, 422, pointer="/items")


async def test_an_empty_batch_is_refused(api: httpx.AsyncClient) -> None:
    problem(await api.post("/v1/memories/batch", json={"items": []}), 422, pointer="/items")


async def test_a_name_twice_in_one_batch_is_refused(api: httpx.AsyncClient) -> None:
    items = [{**OWNER, "content": "a", "key": "k"}, {**OWNER, "content": "b", "key": "k"}]
    problem(await api.post("/v1/memories/batch", json={"items": items}), 422, pointer="/items/1/key")
    assert await listed(api) == []


# --- Read your writes -------------------------------------------------------------------------------------------------


async def test_each_of_fifty_concurrent_writers_finds_what_it_wrote(api: httpx.AsyncClient) -> None:
    async def write_and_read(number: int) -> bool:
        await remember(api, f"locker {number} holds parcel {number}")
        first = await found(api, f"parcel {number}", mode="text", top_k=1, record_access=False)
        return first == [f"locker {number} holds parcel {number}"]

    assert all(await asyncio.gather(*(write_and_read(n) for n in range(50))))


async def test_search_follows_patch_and_delete_at_once(api: httpx.AsyncClient) -> None:
    made = await remember(api, "the dog is called Rex")
    path = f"/v1/memories/{made['memory_id']}"
    await api.patch(path, json={"content": "the cat is called Mia"})
    assert await found(api, "cat", mode="text") == ["the cat is called Mia"]
    assert await found(api, "dog", mode="text") == []
    similarity = (await recall(api, "the cat is called Mia", mode="vector"))["items"][0]["score"]
    assert similarity > 0.99
    assert (await api.delete(path)).status_code == 204
    assert await found(api, "cat") == []


ITEMS = 60


async def test_a_batch_lets_others_have_the_event_loop_between_its_items(
    start: Starter, parts: TestParts, settings: Settings
) -> None:
    """On the embedded engine the reads of a batch are done at once: it would keep the loop to itself for a second."""
    turns, embedded, committed = 0, 0, 0

    class Noting(Wrapped):
        async def commit(self, changes: Any) -> Any:
            nonlocal committed
            committed = max(committed, turns) if len(changes) > ITEMS else committed
            return await self._store.commit(changes)

    class Embedding(Faulty):
        async def embed_texts(self, texts: Any) -> Any:
            nonlocal embedded
            vectors = await super().embed_texts(texts)
            embedded = turns
            return vectors

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    parts.wrap, parts.wrap_store = Embedding, lambda store: cast(Store, Noting(store))
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        await batch(service.client, {"content": "there already"})
        task = asyncio.create_task(others())
        await batch(service.client, *({"content": f"likes tea {at}"} for at in range(ITEMS)))
        task.cancel()
    assert committed - embedded >= ITEMS - 1
