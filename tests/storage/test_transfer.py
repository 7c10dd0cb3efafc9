"""Moving everything between engines, in every direction: nothing lost, nothing changed, twice the same as once."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.cli._common import CommandFailed
from app.cli.maintenance import migrate_store
from app.core.schemas import JsonObject
from app.lifespan import COLLECTIONS
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryRecord, Source
from app.sessions.schemas import MESSAGES, SESSIONS
from app.storage.changes import Allocate, Delete, IndexEntry, Insert, Update
from app.storage.mongo.store import MongoOptions, MongoStore
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING
from app.storage.scope import Partition
from app.storage.sqlite.store import EmbeddedStore
from app.storage.text import index_text
from app.storage.transfer import MovableStore, Record
from tests.support.declared import OTHER, T, ask, at, further_windows, random_vector
from tests.support.views import view

pytestmark = pytest.mark.anyio

HOSTILE: JsonObject = {"a.b": 1, "$where": "x", "": None, "ключ": [1, 1.0, 2**53], "deep": {"": {"$set": {}}}}


def memory(tenant: str, i: int, vector: bool = True) -> Insert:
    source: Source = {"session_id": f"s{i % 3}", "message_seq": i, "speaker": "Ann"}
    given: MemoryRecord = {
        "agent_id": "agent",
        "user_id": "user",
        "memory_type": "fact",
        "importance": 0.5,
        "metadata": HOSTILE,
    }
    doc = new_memory({**given, "content": f"tea number {i}"}, source, at(i), unique=True)
    further = further_windows(i, 384) if vector and i % 4 == 0 else None
    entry = IndexEntry(index_text(doc["content"]), random_vector(i, 384) if vector else None, "m", further)
    return Insert(MEMORIES, {"tenant_id": tenant, **doc, "embedding": None}, entry)


async def fill(store: Store) -> None:
    for tenant in (T, OTHER):
        for i in range(5):
            await store.commit([memory(tenant, 10 * i + j, vector=j != 3) for j in range(10)])
        session = {"session_id": "s", "version": 1, "created_at": at(0), "metadata": HOSTILE}
        message = {"message_id": "m", "session_id": "s", "seq": 1, "content": [{"type": "text", "$x": 1}]}
        await store.commit(
            [
                Allocate("messages:s", tenant, 7),
                Insert(SESSIONS, {"tenant_id": tenant, **session}),
                Insert(MESSAGES, {"tenant_id": tenant, **message}),
            ]
        )
        some = await store.find(MEMORIES, tenant, limit=2)
        await store.commit([Update(MEMORIES, tenant, some[0]["memory_id"], set={"pinned": True}, inc={"version": 1})])


async def everything(store: Store) -> Any:
    docs = {c.name: await store.find(c, None, EVERYTHING, order="asc", limit=1_000) for c in COLLECTIONS}
    query = ask("tea number 7", partitions=[Partition("agent", "user")], vector=random_vector(7, 384), model="m")
    return docs, await view(store, MEMORIES, query)


@pytest.fixture
async def embedded(tmp_path: Any, anyio_backend: str) -> Any:
    store = await EmbeddedStore.open(tmp_path / "one", COLLECTIONS, dim=384)
    yield store
    await store.close()


@pytest.fixture
async def mongo(mongodb: Any, emptied_database: str, anyio_backend: str) -> Any:
    options = MongoOptions(database=emptied_database, deadline_seconds=30)
    store = await MongoStore.open(mongodb.uri, COLLECTIONS, options, dim=384)
    yield store
    await store.close()


@pytest.mark.parametrize("direction", ["to mongodb", "to embedded"])
async def test_everything_arrives_as_it_was(embedded: Any, mongo: Any, direction: str) -> None:
    source, target = (embedded, mongo) if direction == "to mongodb" else (mongo, embedded)
    await fill(source)
    report = await migrate_store(source, target)
    assert all(row["same"] for row in report)
    (mine,) = [r for r in report if (r["collection"], r["tenant"]) == ("agent_memories", T)]
    assert (mine["records"], mine["vectors"]) == (50, 45)
    assert await everything(target) == await everything(source)
    assert sorted(await target.counters(), key=repr) == sorted(await source.counters(), key=repr)
    assert (await target.commit([Allocate("messages:s", T)])).allocated == {"messages:s": 8}
    assert all(finding.ok for finding in await target.check(deep=True))


async def test_again_changes_nothing_and_what_was_cut_short_goes_on(
    embedded: MovableStore, mongo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(embedded)
    load, calls = mongo.load, 0

    async def cut(collection: Any, records: Sequence[Record]) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        done: int = await load(collection, records)
        return done

    monkeypatch.setattr(mongo, "load", cut)
    with pytest.raises(KeyboardInterrupt):
        await migrate_store(embedded, mongo)
    assert sum([await mongo.count(c, None) for c in COLLECTIONS]) > 0
    monkeypatch.undo()
    assert all(row["same"] for row in await migrate_store(embedded, mongo))
    whole = await everything(mongo)
    assert all(row["same"] for row in await migrate_store(embedded, mongo))
    assert await everything(mongo) == whole == await everything(embedded)


async def test_a_second_time_brings_what_was_added_changed_and_deleted_since(
    embedded: MovableStore, mongo: Any
) -> None:
    await fill(embedded)
    await migrate_store(embedded, mongo)
    changed, gone = await embedded.find(MEMORIES, T, limit=2)
    await embedded.commit([Update(MEMORIES, T, changed["memory_id"], set={"importance": 0.9}, inc={"version": 1})])
    gone_too = [Delete(MEMORIES, T, gone["memory_id"]), Delete(SESSIONS, OTHER, "s")]
    await embedded.commit([Allocate("messages:s", T), memory(T, 60), *gone_too])
    assert await everything(mongo) != await everything(embedded)
    assert all(row["same"] for row in await migrate_store(embedded, mongo))
    assert await everything(mongo) == await everything(embedded)
    assert sorted(await mongo.counters(), key=repr) == sorted(await embedded.counters(), key=repr)
    assert all(finding.ok for finding in await mongo.check(deep=True))


async def test_a_target_that_holds_other_data_is_refused_and_left_alone(embedded: MovableStore, mongo: Any) -> None:
    await fill(embedded)
    await mongo.commit([memory("somebody", 1)])
    before = await everything(mongo)
    with pytest.raises(CommandFailed, match="other data"):
        await migrate_store(embedded, mongo)
    assert await everything(mongo) == before


async def test_a_record_that_came_changed_is_reported(
    embedded: MovableStore, mongo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksums see one vector's one component."""
    await fill(embedded)
    export = embedded.export

    async def damaged(collection: Any, after: str | None, limit: int) -> list[Record]:
        page = await export(collection, after, limit)
        for i, record in enumerate(page):
            if record.packed is not None and record.packed.vector is not None and not after:
                broken = bytes([record.packed.vector[0] ^ 1]) + record.packed.vector[1:]
                packed = type(record.packed)(record.packed.head, broken, record.packed.terms, record.packed.facets)
                page[i] = Record(record.doc, packed, record.place)
                break
        return page

    monkeypatch.setattr(embedded, "export", damaged)
    await mongo.load(MEMORIES, await embedded.export(MEMORIES, None, 500))
    monkeypatch.undo()
    with pytest.raises(CommandFailed):
        await migrate_store(embedded, mongo)
