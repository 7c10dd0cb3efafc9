"""Looks through a whole collection, which go part by part."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.memories.schemas import MEMORIES
from app.retrieval.decay import DecayCurve
from app.storage.mongo import store as engine
from app.storage.mongo.store import MongoStore
from tests.contract.test_fade import memory, rule
from tests.support.declared import OTHER, T

pytestmark = pytest.mark.anyio


async def filled(store: MongoStore, many: int) -> list[str]:
    """Ids of memories, the odd ones of which have no time that they could fade from."""
    made = [memory(random.Random(at), pinned=False, importance=0.9) for at in range(many)]
    await store.commit([*made, memory(random.Random(1), OTHER, pinned=False)])
    ids = [change.doc["memory_id"] for change in made]
    documents = store._database[MEMORIES.name]
    await documents.update_many({"memory_id": {"$in": ids[1::2]}}, {"$set": {"anchored_at": "once"}})
    await documents.update_many({"tenant_id": OTHER}, {"$set": {"anchored_at": "once"}})
    return ids


async def test_every_part_is_looked_at_and_no_other_tenant(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOKED_AT", 3)
    ids = await filled(store, 9)
    assert set(await store.undecayable(MEMORIES, T)) == {*ids[1::2]}
    assert len(await store.undecayable(MEMORIES, None)) == 5
    assert len(await store.undecayable(MEMORIES, T, limit=3)) == 3
    assert await store.undecayable(MEMORIES, "no-one") == []
    steep = rule(DecayCurve(0.5, 0.0, 0.05))
    assert await store.would_change(MEMORIES, None, steep)
    assert not await store.would_change(MEMORIES, OTHER, steep)


async def test_one_that_is_cancelled_ends_with_the_part_that_it_reads(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LOOKED_AT", 1)
    await filled(store, 9)
    slow, parts = store._slow, 0

    async def noted(work: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal parts
        parts += 1
        task.cancel()
        return await slow(work)

    monkeypatch.setattr(store, "_slow", noted)
    task = asyncio.create_task(store.undecayable(MEMORIES, T))
    await asyncio.wait((task,))
    assert task.cancelled()
    assert parts == 1
