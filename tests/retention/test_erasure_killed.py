"""kill -9 in the middle of an erasure: the next process ends it, and nobody has to ask again."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from pydantic import SecretStr

from app.audit.trail import AUDIT, ERASED
from app.jobs.queue import JOBS, OPERATIONS, JobRecord
from app.lifespan import open_store
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryCreate
from app.settings import Settings
from app.storage.changes import Change, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.schema import Eq
from app.storage.scope import SYSTEM
from app.storage.text import index_text
from tests.jobs.conftest import until
from tests.support.mongodb import SecantusDB, start_mongodb
from tests.support.server import Server, serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
MEMORIES_EACH, AT_ONCE = 2_400, 400
NOW = "2026-06-01T12:00:00.000Z"


@pytest.fixture
def database(engine: str, tmp_path: Path) -> Iterator[SecantusDB | None]:
    """A SecantusDB of the test's own: it keeps the transaction of a killed process, and its locks, until it is started
    anew."""
    if engine == "embedded" or os.environ.get("RECALLD_TEST_MONGODB_URI"):
        yield None
        return
    with start_mongodb(tmp_path / "mongodb") as started:
        yield started


@pytest.fixture
def settings(settings: Settings, database: SecantusDB | None) -> Settings:
    return settings if database is None else settings.model_copy(update={"store": SecretStr(database.uri)})


@pytest.fixture
async def store(settings: Settings, anyio_backend: str) -> AsyncIterator[Store]:
    """The test's own eyes on the store that the server works on."""
    opened = await open_store(settings, dim=384)
    yield opened
    await opened.close()


def environment(settings: Settings) -> dict[str, str]:
    return {
        "RECALLD_STORE": settings.store.get_secret_value(),
        "RECALLD_MONGODB_DATABASE": settings.mongodb.database,
        "RECALLD_MONGODB_DEADLINE_SECONDS": "30",
    }


async def filled(store: Store, user: str) -> None:
    """Memories with vectors of chance: what they mean is nothing to an erasure."""
    chance = np.random.default_rng(7)
    for at in range(0, MEMORIES_EACH, AT_ONCE):
        changes: list[Change] = []
        for number in range(at, at + AT_ONCE):
            vector = chance.standard_normal(384).astype(np.float32)
            entry = IndexEntry(index_text(f"number {number}"), vector / np.linalg.norm(vector), "minilm-int8")
            body = MemoryCreate(agent_id="a", user_id=user, content=f"number {number}")
            doc = new_memory(MEMORIES.as_record(body.model_dump()), {"origin": "api"}, NOW, unique=False)
            changes.append(Insert(MEMORIES, {"tenant_id": "default", **doc}, entry))
        await store.commit(changes)


async def count(store: Store, user: str) -> int:
    return await store.count(MEMORIES, "default", Eq("user_id", user))


async def killed_in_the_middle(store: Store, server: Server, database: SecantusDB | None, user: str) -> bool:
    """False where the erasure was quicker than we."""
    await filled(store, user)
    async with httpx.AsyncClient(base_url=server.client.base_url, timeout=60) as client:
        asked = asyncio.create_task(client.delete(f"/v1/users/{user}"))

        async def begun() -> bool:
            return asked.done() or await count(store, user) < MEMORIES_EACH

        await until(begun, seconds=120)
        server.process.kill()
        await asyncio.wait([asked])
        server.process.wait()
        asked.exception()  # the kill's, as a rule
    if database is not None:
        database.kill()
        await asyncio.to_thread(database.start)
    return await count(store, user) > 0


async def test_a_killed_erasure_ends_by_itself(settings: Settings, store: Store, database: SecantusDB | None) -> None:
    given = environment(settings)
    for attempt in range(10):
        user = f"ada{attempt}"
        with serving(settings.data_dir, **given) as server:
            if await killed_in_the_middle(store, server, database, user):
                break
    else:
        raise AssertionError("every erasure was over before it could be killed")
    (operation,) = await store.find(OPERATIONS, "default", Eq("kind", "erase_user"), limit=1)
    assert operation["user_id"] is not None
    tombstone = await store.get(ERASED, "default", operation["user_id"])
    assert tombstone is not None
    assert (tombstone["status"], tombstone["erased_at"]) == ("begun", None)
    (job,) = [doc for doc in await store.find(JOBS, SYSTEM) if doc["kind"] == "erase_user"]
    lapsed: JobRecord = {"leased_until": NOW}  # what half a minute would do
    await store.commit([Update(JOBS, SYSTEM, job["job_id"], set=lapsed)])

    async def ended() -> bool:
        doc = await store.get(OPERATIONS, "default", operation["operation_id"])
        return doc is not None and doc["status"] not in ("queued", "running")

    with serving(settings.data_dir, **given):
        await until(ended, seconds=120)
    done = await store.get(OPERATIONS, "default", operation["operation_id"])
    tombstone = await store.get(ERASED, "default", operation["user_id"])
    assert done is not None
    assert done["result"] is not None
    assert tombstone is not None
    assert (done["status"], done["result"]["erased"]["agent_memories"]) == ("succeeded", MEMORIES_EACH)
    assert (tombstone["status"], tombstone["erased_at"]) == ("erased", done["result"]["erased_at"])
    assert await count(store, user) == 0
    entries = await store.find(AUDIT, "default", Eq("user_hash", operation["user_id"]))
    assert [entry["changes"]["users"] for entry in entries] == [{"erase": 1}, {"erase_begun": 1}]
