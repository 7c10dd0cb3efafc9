"""An embedder that fails keeps no write back; the vector comes later."""

from collections.abc import AsyncIterator

import pytest

from app.embedding.embedder import Embedder
from app.memories.reembed import PendingEmbeddings
from app.memories.repository import MEMORY, PENDING
from app.settings import JobSettings, Settings
from app.storage.schema import EVERYTHING
from app.storage.scope import SYSTEM
from tests.conftest import Service, Starter, TestParts
from tests.support.memories import OWNER, Faulty, batch, eventually, found, recall, remember

pytestmark = pytest.mark.anyio


@pytest.fixture
def faulty(parts: TestParts) -> list[Faulty]:
    """The embedder of each service started, the latest last."""
    made: list[Faulty] = []

    def wrap(embedder: Embedder) -> Embedder:
        made.append(Faulty(embedder))
        return made[-1]

    parts.wrap = wrap
    return made


@pytest.fixture
async def service(faulty: list[Faulty], start: Starter, settings: Settings) -> AsyncIterator[Service]:
    patient = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    async with start(patient) as made:
        yield made


def worker(service: Service) -> PendingEmbeddings:
    return PendingEmbeddings(service.resources.store, service.resources.embedder, [MEMORY], service.clock)


async def test_a_write_is_kept_found_by_text_and_embedded_later(service: Service, faulty: list[Faulty]) -> None:
    api = service.client
    faulty[0].failing = True
    made = await remember(api, "plays the violin")
    path = f"/v1/memories/{made['memory_id']}"
    assert made["embedding"]["status"] == "pending"
    assert await found(api, "violin", mode="text") == ["plays the violin"]
    assert await worker(service).embed_all() == 0

    faulty[0].failing = False
    assert await found(api, "a string instrument", mode="vector") == []
    assert await found(api, "violin") == ["plays the violin"]
    assert await worker(service).embed_all() == 1
    got = await api.get(path)
    assert got.json() | {"embedding": None, "access_count": 0, "last_accessed": None} == {
        name: value for name, value in made.items() if name != "similar"
    } | {"embedding": None}
    assert got.json()["embedding"]["status"] == "ready"
    assert got.headers["etag"] == '"1"'
    assert await found(api, "a string instrument", mode="vector") == ["plays the violin"]
    assert (await recall(api, "plays the violin", mode="vector"))["items"][0]["score"] > 0.99
    assert await worker(service).embed_all() == 0  # nothing is left


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize(
    ("fields", "query"),
    [({"context": "on the train"}, "train"), ({"event_at": "2026-03-02T08:00:00Z"}, "March")],
)
async def test_a_new_context_or_time_needs_no_model(
    service: Service, faulty: list[Faulty], fields: dict[str, str], query: str, *, by_key: bool
) -> None:
    api = service.client
    made = await remember(api, "plays the violin", key="hobby")
    assert await found(api, query, mode="text") == []
    faulty[0].failing = True
    if by_key:
        changed = await remember(api, "plays the violin", 200, key="hobby", **fields)
    else:
        changed = (await api.patch(f"/v1/memories/{made['memory_id']}", json=fields)).json()
    assert (changed["version"], changed["embedding"]) == (2, made["embedding"])
    assert await service.resources.store.find(PENDING, SYSTEM, EVERYTHING) == []
    assert await found(api, query, mode="text") == ["plays the violin"]
    faulty[0].failing = False
    assert (await recall(api, "plays the violin", mode="vector"))["items"][0]["score"] > 0.99


async def test_a_changed_text_is_embedded_later_too(service: Service, faulty: list[Faulty]) -> None:
    api = service.client
    made = await remember(api, "plays the violin")
    faulty[0].failing = True
    patched = await api.patch(f"/v1/memories/{made['memory_id']}", json={"content": "collects stamps"})
    assert patched.json()["embedding"]["status"] == "pending"
    named = await remember(api, "one", key="k")
    await remember(api, "two", 200, key="k")
    faulty[0].failing = False
    assert await found(api, "plays the violin", mode="vector", min_similarity=0.9) == []
    assert await worker(service).embed_all() > 0
    assert await found(api, "collects stamps", mode="vector", min_similarity=0.99) == ["collects stamps"]
    assert (await api.get(f"/v1/memories/{named['memory_id']}")).json()["embedding"]["status"] == "ready"


async def test_what_is_deleted_meanwhile_is_forgotten(service: Service, faulty: list[Faulty]) -> None:
    faulty[0].failing = True
    made = await remember(service.client, "plays the violin")
    await service.client.delete(f"/v1/memories/{made['memory_id']}")
    assert await worker(service).embed_all() == 0
    assert await service.resources.store.count(PENDING, SYSTEM) == 0


async def test_a_text_that_the_model_refuses_holds_up_no_other(service: Service, faulty: list[Faulty]) -> None:
    api, embedder = service.client, faulty[0]
    embedder.failing = True
    texts = [f"plays the violin, take {at}" for at in range(12)]
    await batch(api, *({"content": text} for text in texts))
    embedder.failing, embedder.refused = False, texts[7]
    assert await worker(service).embed_all() == 11
    left = [one for one in (await api.get("/v1/memories")).json()["items"] if one["embedding"]["status"] == "pending"]
    assert [one["content"] for one in left] == [texts[7]]

    tried = len(embedder.calls)
    service.clock.move(seconds=50)
    assert await worker(service).embed_all() == 0
    assert len(embedder.calls) == tried  # not again so soon
    for wait in (15, 125, 245):
        service.clock.move(seconds=wait)
        assert await worker(service).embed_all() == 0
        assert len(embedder.calls) > tried
        tried = len(embedder.calls)
        assert await worker(service).embed_all() == 0
        assert len(embedder.calls) == tried
    embedder.refused = None
    service.clock.move(seconds=485)
    assert await worker(service).embed_all() == 1
    assert await service.resources.store.count(PENDING, SYSTEM) == 0


async def test_while_the_model_is_away_nothing_is_put_off(service: Service, faulty: list[Faulty]) -> None:
    faulty[0].failing = True
    await batch(service.client, *({"content": f"plays the violin, take {at}"} for at in range(5)))
    for _ in range(3):
        assert await worker(service).embed_all() == 0
    faulty[0].failing = False
    assert await worker(service).embed_all() == 5


async def test_batches_and_messages_are_kept_too(service: Service, faulty: list[Faulty]) -> None:
    api = service.client
    faulty[0].failing = True
    await batch(api, {"content": "one"}, {"content": "two"})
    said = {**OWNER, "messages": [{"role": "user", "content": "three"}]}
    assert (await api.post("/v1/sessions/s/messages", json=said)).status_code == 201
    faulty[0].failing = False
    assert await worker(service).embed_all() > 0
    items = (await api.get("/v1/memories")).json()["items"]
    assert [item["embedding"]["status"] for item in items] == ["ready"] * 3


async def test_the_service_tries_again_by_itself_after_a_restart_too(
    faulty: list[Faulty], start: Starter, settings: Settings
) -> None:
    idle = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    async with start(idle) as service:
        faulty[-1].failing = True
        await remember(service.client, "plays the violin")
    async with start(settings) as service:
        await eventually(lambda: found(service.client, "a string instrument", mode="vector"))
