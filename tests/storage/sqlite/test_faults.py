"""Disk full, locked, damaged, unusable: 503 with the reason, nothing that was acknowledged is lost, and it recovers."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.errors import StoreUnavailable
from app.storage.changes import Allocate, Committed, Update
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from tests.storage.sqlite.conftest import Open
from tests.support.declared import ENTRIES, THINGS, T, ask, entry, thing

pytestmark = pytest.mark.anyio
Raw = Callable[..., list[Any]]


def limit_pages(store: EmbeddedStore, pages: int) -> None:
    store.writer._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()


async def test_a_full_disk_refuses_writes_keeps_what_was_acknowledged_and_recovers(store: EmbeddedStore) -> None:
    limit_pages(store, 60)
    acked: list[int] = []
    refusal: StoreUnavailable | None = None
    for i in range(1_000):
        try:
            await store.commit([Allocate("c", T), thing(f"t{i}", name="x" * 3_000), entry("tea", f"e{i}")])
        except StoreUnavailable as fault:
            refusal = fault
            break
        acked.append(i)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (503, "storage_full")
    assert refusal.detail.startswith("The disk is full: ")
    assert 10 < len(acked) < 1_000
    assert await store.count(THINGS, T) == len(acked)
    assert (await store.overview(ENTRIES, T, ask().partitions)).count == len(acked)
    limit_pages(store, 100_000)
    committed = await store.commit([Allocate("c", T), thing("after")])
    assert committed.allocated == {"c": len(acked) + 1}
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_a_full_disk_under_concurrent_writes_tells_each_the_truth(store: EmbeddedStore) -> None:
    limit_pages(store, 80)
    wanted = [store.commit([thing(f"t{i}", name="x" * 3_000)]) for i in range(300)]
    outcomes = await asyncio.gather(*wanted, return_exceptions=True)
    kept = {f"t{i}" for i, outcome in enumerate(outcomes) if isinstance(outcome, Committed)}
    assert all(isinstance(outcome, Committed | StoreUnavailable) for outcome in outcomes)
    assert {doc["thing_id"] for doc in await store.find(THINGS, T, limit=999)} == kept
    assert len(kept) < 300


async def test_a_locked_store_is_said_to_be_locked_and_recovers(store: EmbeddedStore, tmp_path: Path) -> None:
    await store.commit([thing("kept")])
    other = apsw.Connection(str(tmp_path / FILE_NAME))
    other.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*(store.commit([thing()]) for _ in range(5)), return_exceptions=True)
    assert {str(outcome) for outcome in outcomes} == {"The store is locked by another process."}
    assert await store.get(THINGS, T, "kept") is not None, "readers go on"
    other.execute("ROLLBACK")
    other.close()
    await store.commit([thing("after")])
    assert await store.count(THINGS, T) == 2


async def test_a_lock_that_is_short_is_waited_for(open_store: Open, tmp_path: Path) -> None:
    store = await open_store(busy_timeout_ms=5_000)
    other = apsw.Connection(str(tmp_path / FILE_NAME))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.commit([thing("waited")]))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()
    await waiting
    assert await store.count(THINGS, T) == 1


async def test_a_store_that_is_locked_at_the_start_does_not_open(
    store: EmbeddedStore, open_store: Open, raw: Raw
) -> None:
    store.writer._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await open_store()
    store.writer._connection.execute("ROLLBACK")
    await open_store()


async def test_a_file_of_something_else_is_refused(open_store: Open, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is no database, but a letter to my aunt\n" * 400)
    with pytest.raises(StoreUnavailable, match="damaged"):
        await open_store()
    assert (tmp_path / FILE_NAME).read_bytes().startswith(b"this is no database")


async def test_a_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"cannot be used.*Not a directory"):
        await EmbeddedStore.open(tmp_path / "file" / "data", [THINGS], dim=8)
    (tmp_path / "data" / FILE_NAME).mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        await EmbeddedStore.open(tmp_path / "data", [THINGS], dim=8)


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    return tmp_path


async def test_a_directory_that_may_not_be_written_is_refused(unwritable: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        await EmbeddedStore.open(unwritable / "data", [THINGS], dim=8)


async def test_damage_met_while_reading_is_named(store: EmbeddedStore, open_store: Open, tmp_path: Path) -> None:
    await store.commit([thing(f"t{i}", name="x" * 3_000) for i in range(200)])
    await store.close()
    path = tmp_path / FILE_NAME
    whole = bytearray(path.read_bytes())
    whole[4 * 8192 :] = b"\xff" * (len(whole) - 4 * 8192)
    path.write_bytes(whole)
    with pytest.raises(StoreUnavailable, match="damaged"):  # noqa: PT012 (whichever meets it first)
        damaged = await open_store()
        await damaged.find(THINGS, T, limit=500)


async def test_a_closed_store_says_so(store: EmbeddedStore) -> None:
    await store.close()
    for attempt in (store.get(THINGS, T, "x"), store.commit([thing()]), store.check(), store.count(THINGS, T)):
        with pytest.raises(StoreUnavailable):
            await attempt


async def test_a_reader_elsewhere_holds_up_no_writer(store: EmbeddedStore, tmp_path: Path) -> None:
    await store.commit([thing("one", score=0)])
    reading = apsw.Connection(str(tmp_path / FILE_NAME))
    reading.execute("BEGIN")
    before = reading.execute("SELECT count(*) FROM things").fetchall()
    await store.commit([Update(THINGS, T, "one", inc={"score": 1}), thing("two")])
    assert reading.execute("SELECT count(*) FROM things").fetchall() == before, "a reader keeps its moment"
    reading.close()
    assert await store.count(THINGS, T) == 2
