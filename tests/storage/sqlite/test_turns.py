"""Tenants take turns at the writer."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.work import work_for
from app.storage.sqlite.store import EmbeddedStore
from app.storage.sqlite.writer import MAX_GROUP, MAX_GROUP_CHANGES, WriteTurns
from tests.support.declared import DIM, THINGS, thing

pytestmark = pytest.mark.anyio


def groups(*works: tuple[str, str, int]) -> list[list[str]]:
    """The groups of works, each given as its name, its tenant and its changes."""
    turns: WriteTurns[str] = WriteTurns()
    for name, tenant, changes in works:
        turns.put(name, tenant, changes)
    turns.close()
    found = []
    while group := turns.next_group():
        found.append(group)
    return found


def test_one_write_does_not_wait_for_all_of_another_tenant() -> None:
    large = [(f"a{n}", "a", MAX_GROUP_CHANGES // 2) for n in range(6)]
    assert groups(*large, ("b0", "b", 1), ("c0", "c", 1)) == [["a0", "b0", "c0", "a1"], ["a2", "a3"], ["a4", "a5"]]


def test_the_order_of_a_tenant_stays_and_small_writes_share_a_group() -> None:
    works = [(f"{tenant}{n}", tenant, 1) for n in range(MAX_GROUP) for tenant in "ab"]
    first, second = groups(*works)
    assert len(first) == len(second) == MAX_GROUP
    assert first[:4] == ["a0", "b0", "a1", "b1"]
    for tenant in "ab":
        assert [name for name in first + second if name[0] == tenant] == [f"{tenant}{n}" for n in range(MAX_GROUP)]


async def test_a_small_write_is_acknowledged_before_the_bulk_that_waited_longer(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path, [THINGS], dim=DIM)
    done: list[str] = []

    async def write(tenant: str, name: str, count: int) -> None:
        work_for(tenant)
        await store.commit([thing(tenant=tenant) for _ in range(count)])
        done.append(name)

    held, go = threading.Event(), threading.Event()

    def hold(connection: Any) -> None:
        held.set()
        assert go.wait(60)

    holding = asyncio.create_task(store.writer.submit(hold))
    await asyncio.to_thread(held.wait, 60)
    bulk = [asyncio.create_task(write("greedy", f"bulk {n}", MAX_GROUP_CHANGES)) for n in range(4)]
    await asyncio.sleep(0)
    small = asyncio.create_task(write("small", "small", 1))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(holding, small, *bulk)
    assert before("small", done) == ["bulk 0"]
    await store.close()


def before(name: str, done: Sequence[str]) -> list[str]:
    return list(done[: done.index(name)])
