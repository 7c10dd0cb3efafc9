"""Moving a store to another model beside a service that searches by the old one."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from zlib import crc32

import apsw
import httpx
import numpy as np
import pytest
from pymongo import MongoClient

from app.cli.maintenance import reembed_store
from app.core.schemas import Json
from app.core.tuning import Tuning
from app.embedding.embedder import BatchingEmbedder, BatchQueue, Embedder
from app.embedding.model import Prompts, Vectors, by_characters, split, unit
from app.errors import EmbeddingUnavailable, StoreUnavailable
from app.jobs.queue import EMBED_PENDING
from app.lifespan import COLLECTIONS, EMBEDDABLE, open_store
from app.memories.reembed import Reembed, whole
from app.settings import JobSettings, Settings
from app.storage.changes import Change
from app.storage.protocol import Store
from tests.conftest import Service, TestParts, TurnedClock, running
from tests.support.memories import OWNER, Faulty, batch, eventually, found, recall, remember

pytestmark = pytest.mark.anyio

THEN = "2026-07-01T00:00:00.000Z"
USERS = ("u", "v", "w")
EACH = 12


class Hashed:
    """Each text has a direction of its own. A batch waits inside while it is not `open`."""

    piece_tokens = None
    runs_beside_itself = False
    prompts = Prompts()

    def __init__(self, name: str, dim: int) -> None:
        self.name, self.dim = name, dim
        self.texts: list[str] = []
        self.window = 1_000
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()

    def split(self, text: str) -> list[str]:
        return split(text, by_characters(self.window))

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.entered.set()
        assert self.open.wait(60)
        self.texts += texts
        if any("poison" in text for text in texts):
            raise ValueError("poison")
        rows = [np.random.default_rng(crc32(text.encode())).standard_normal(self.dim) for text in texts]
        return unit(np.array(rows, np.float32))


class Parts(TestParts):
    """Each service has the model that is named by its setting."""

    tuning = Tuning(job_seconds={EMBED_PENDING: 1})

    def __init__(self, clock: TurnedClock, models: dict[str, Hashed]) -> None:
        self._models, self._clock = models, clock

    async def embedder(self, settings: Settings) -> Embedder:
        return Faulty(BatchingEmbedder(BatchQueue(self._models[settings.embedding.model])))


@pytest.fixture
def models() -> dict[str, Hashed]:
    return {"old": Hashed("old", 24), "new": Hashed("new", 40)}


@asynccontextmanager
async def serving(settings: Settings, models: dict[str, Hashed], model: str) -> AsyncIterator[Service]:
    jobs = JobSettings(enabled=model == "new")
    chosen = settings.embedding.model_copy(update={"model": model})
    async with running(
        settings.model_copy(update={"embedding": chosen, "jobs": jobs}), Parts(TurnedClock(), models)
    ) as made:
        yield made


@pytest.fixture
async def service(settings: Settings, models: dict[str, Hashed], anyio_backend: str) -> AsyncIterator[Service]:
    """One that searches by the old model, with something to find."""
    async with serving(settings, models, "old") as made:
        await batch(made.client, *({"user_id": u, "content": f"{u} likes tea {i}"} for u in USERS for i in range(EACH)))
        for i in range(3):
            await act(made.client, f"poured tea {i}")
        yield made


@pytest.fixture
async def beside(service: Service, settings: Settings) -> AsyncIterator[Store]:
    """The store as another process would open it."""
    store = await open_store(settings, dim=1)
    yield store
    await store.close()


@pytest.fixture
async def new(models: dict[str, Hashed]) -> AsyncIterator[Faulty]:
    embedder = Faulty(BatchingEmbedder(BatchQueue(models["new"], batch_tokens=2048)))
    yield embedder
    await embedder.close()


async def act(api: httpx.AsyncClient, content: str) -> None:
    body = {**OWNER, "event_type": "decision", "action_type": "pour", "content": content}
    made = await api.post("/v1/actions", json=body)
    assert made.status_code == 201, made.text


async def answers(api: httpx.AsyncClient) -> list[Any]:
    """What searches of every kind find, with their scores."""
    asked: list[dict[str, Any]] = [
        {"mode": "vector"},
        {"mode": "vector", "user_id": "w"},
        {"mode": "hybrid", "min_similarity": 0.1},
    ]
    searched = [
        await recall(api, "u likes tea 7", top_k=50, now=THEN, record_access=False, **fields) for fields in asked
    ]
    actions = await api.post("/v1/actions/search", json={**OWNER, "query": "poured tea 1", "now": THEN})
    assert actions.status_code == 200, actions.text
    memories = [{item["memory"]["memory_id"]: item["score"] for item in one["items"]} for one in searched]
    return [*memories, {item["action"]["action_id"]: item["score"] for item in actions.json()["items"]}]


def vectors(report: Json) -> dict[str, tuple[int, int]]:
    """Collection → records, if it has any, and how many of them are in the new model."""
    return {row["collection"]: (row["records"], row["vectors"]) for row in report["collections"] if row["records"]}


def test_all_that_is_searched_is_moved() -> None:
    assert {c.name for c in COLLECTIONS if c.searched} == {kind.collection.name for kind in EMBEDDABLE}


async def test_searches_find_what_they_found_while_everything_moves(
    service: Service, beside: Store, new: Faulty, settings: Settings, models: dict[str, Hashed]
) -> None:
    before = await answers(service.client)
    assert [len(one) for one in before][:2] == [EACH, EACH]
    assert all(before)
    moving, looked = asyncio.create_task(reembed_store(beside, new)), 0
    while not moving.done() or looked < 3:
        now = await answers(service.client)
        assert now == [pytest.approx(one, abs=1e-6) for one in before]
        looked += 1
        await asyncio.sleep(0)  # in one process, searches would leave the move no turn
    report = await moving
    assert (report["ok"], report["embedded"], report["dim"]) == (True, 3 * EACH + 3, 40)
    assert vectors(report) == {"agent_memories": (3 * EACH, 3 * EACH), "action_logs": (3, 3)}

    async with serving(settings, models, "new") as moved:
        assert (await found(moved.client, "u likes tea 7", mode="vector", min_similarity=0.99)) == ["u likes tea 7"]
        assert await answers(service.client) == [pytest.approx(one, abs=1e-6) for one in before], "side by side"
        item = (await recall(moved.client, "u likes tea 7"))["items"][0]["memory"]
        assert item["embedding"] == {"model": "new", "dim": 40, "status": "ready"}
        assert item["version"] == 1
        again = await reembed_store(beside, new, drop_old=True)
        assert (again["ok"], again["embedded"], again["dropped"]) == (True, 0, 3 * EACH + 3)
        assert len(await found(moved.client, "u likes tea 7", mode="vector", top_k=50)) == EACH
    async with serving(settings, models, "old") as late:  # what a process has in memory it may still compare
        assert await found(late.client, "u likes tea 7", mode="vector") == [], "its vectors are gone"
        assert "u likes tea 7" in await found(late.client, "u likes tea 7", mode="text")


async def test_what_is_written_meanwhile_is_moved_too(
    service: Service, beside: Store, new: Faulty, settings: Settings, models: dict[str, Hashed]
) -> None:
    api = service.client
    kept, changed, gone = [await remember(api, text) for text in ("to keep", "to change", "to delete")]
    models["new"].open.clear()
    moving = asyncio.create_task(reembed_store(beside, new))
    await asyncio.to_thread(models["new"].entered.wait, 20)  # what is there now has been read
    await remember(api, "written meanwhile")
    await remember(api, "of somebody new", user_id="x")
    await act(api, "acted meanwhile")
    for memory, fields in ((kept, {"tags": ["t"]}), (changed, {"content": "changed meanwhile"})):
        assert (await api.patch(f"/v1/memories/{memory['memory_id']}", json=fields)).status_code == 200
    assert (await api.delete(f"/v1/memories/{gone['memory_id']}")).status_code == 204
    models["new"].open.set()
    report = await moving
    assert report["ok"]
    assert vectors(report) == {"agent_memories": (3 * EACH + 4,) * 2, "action_logs": (4, 4)}
    assert await found(api, "changed meanwhile", mode="vector", min_similarity=0.99) == ["changed meanwhile"]

    await remember(api, "written after the move")
    async with serving(settings, models, "new") as moved:
        for text in ("written meanwhile", "changed meanwhile", "to keep"):
            assert await found(moved.client, text, mode="vector", min_similarity=0.99) == [text]
        assert await found(moved.client, "written after the move", mode="text")

        async def caught_up() -> list[str]:
            return await found(moved.client, "written after the move", mode="vector", min_similarity=0.99)

        assert await eventually(caught_up, seconds=20) == ["written after the move"]


async def test_a_move_that_was_broken_off_goes_on_where_it_was(
    service: Service, beside: Store, new: Faulty, models: dict[str, Hashed]
) -> None:
    before = await answers(service.client)

    class Dying(Faulty):
        async def embed_texts(self, texts: Any) -> Vectors:
            self.failing = len(self.calls) > 0
            return await super().embed_texts(texts)

    with pytest.raises(EmbeddingUnavailable):
        await reembed_store(beside, Dying(new))
    assert await answers(service.client) == [pytest.approx(one, abs=1e-6) for one in before]
    assert len(models["new"].texts) == 3 * EACH
    report = await reembed_store(beside, new)
    assert (report["ok"], report["embedded"]) == (True, 3)
    assert len(models["new"].texts) == 3 * EACH + 3, "nothing was embedded twice"


class Locked:
    """The store, which takes no commit for the first few times."""

    def __init__(self, store: Store, times: int) -> None:
        self._store, self._times = store, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> Any:
        self._times -= 1
        if self._times >= 0:
            raise StoreUnavailable("held by a test")
        return await self._store.commit(changes)


async def test_a_store_that_is_away_for_a_while_costs_nothing_that_was_embedded(
    service: Service, beside: Store, new: Faulty, models: dict[str, Hashed]
) -> None:
    hasty = Reembed(cast(Store, Locked(beside, 1)), new, EMBEDDABLE)
    with pytest.raises(StoreUnavailable):
        await hasty.move("unlike")
    asked = len(models["new"].texts)
    patient = Reembed(cast(Store, Locked(beside, 2)), new, EMBEDDABLE, patience=60)
    assert await patient.move("unlike") == 3 * EACH + 3
    assert len(models["new"].texts) == asked + 3 * EACH + 3


async def test_a_text_that_the_model_refuses_holds_up_no_other_and_is_told(
    service: Service, beside: Store, new: Faulty
) -> None:
    old = service.resources.embedder
    assert isinstance(old, Faulty)
    old.failing = True
    for text in ("poison", "later"):
        assert (await remember(service.client, text))["embedding"]["status"] == "pending"
    report = await reembed_store(beside, new)
    assert (report["ok"], report["embedded"]) == (False, 3 * EACH + 3 + 1)
    memories, actions = report["collections"][:2]
    assert (memories["records"] - memories["vectors"], memories["pending"], memories["left"]) == (1, 1, 0)
    assert actions["vectors"] == actions["records"]


async def test_a_vector_that_is_missing_is_counted_and_made_again(
    service: Service, beside: Store, new: Faulty, settings: Settings
) -> None:
    work = Reembed(beside, new, EMBEDDABLE)
    assert (await reembed_store(beside, new))["ok"]
    assert whole(await work.counts())
    lose_a_vector(settings)
    counts = await work.counts()
    assert not whole(counts)
    assert (counts["agent_memories"].without, counts["agent_memories"].others) == (1, 0)
    report = await reembed_store(beside, new)
    assert (report["ok"], report["embedded"]) == (True, 1)


def lose_a_vector(settings: Settings) -> None:
    """Behind the engine's back."""
    uri = settings.store.get_secret_value()
    if uri == "embedded":
        with apsw.Connection(str(settings.data_dir / "recalld.db")) as database:
            database.execute(
                "UPDATE agent_memories_search SET vector = NULL WHERE row = (SELECT max(row) FROM agent_memories)"
            )
        return
    with MongoClient[dict[str, Any]](uri) as client:
        memories = client[settings.mongodb.database]["agent_memories"]
        memories.update_one({"_r.vector": {"$exists": True}}, {"$unset": {"_r.vector": ""}})


async def test_a_service_embeds_nothing_anew_that_it_was_not_asked_to(
    service: Service, beside: Store, new: Faulty, settings: Settings, models: dict[str, Hashed], caplog: Any
) -> None:
    assert await Reembed(beside, new, EMBEDDABLE).catch_up(100) == 0
    with caplog.at_level(logging.WARNING, "app.lifespan"):
        async with serving(settings, models, "new"):
            pass
    assert "vectors of another embedding model" in caplog.text
    assert models["new"].texts == []
    work = Reembed(beside, new, EMBEDDABLE)
    await work.begin(THEN)
    assert await work.catch_up(3) >= 3, "now it was"
    await Reembed(beside, service.resources.embedder, EMBEDDABLE).begin(THEN)
    assert await work.catch_up(3) == 0, "it is to go back"
