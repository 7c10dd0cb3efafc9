"""The space kept back for deletions, on a disk whose free bytes the test says."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from app.errors import StorageFull, StoreUnavailable
from app.storage.changes import Delete, using_reserve
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from app.storage.sqlite.writer import DiskSpace, reserve_of
from tests.storage.sqlite.conftest import Open
from tests.support.declared import THINGS, T, thing

pytestmark = pytest.mark.anyio
RESERVE = 1 << 20


class Usage(NamedTuple):
    free: int


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def say(number: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(number))

    return say


def test_what_is_missing_counts_the_reserve_and_as_much_again(tmp_path: Path, free: Callable[[int], None]) -> None:
    space = DiskSpace(tmp_path / FILE_NAME, RESERVE)
    free(2 * RESERVE)
    assert space.missing() == 0
    free(2 * RESERVE - 1)
    assert space.missing() == 1
    free(10 * RESERVE)
    space.keep()
    assert reserve_of(tmp_path / FILE_NAME).stat().st_size == RESERVE
    assert reserve_of(tmp_path / FILE_NAME).stat().st_blocks * 512 >= RESERVE, "the bytes are on the disk"
    free(RESERVE)
    assert space.missing() == 0
    assert space.missing(wal_bytes=7) == 7
    free(RESERVE // 4)
    assert space.missing() == RESERVE * 3 // 4
    assert space.missing(reusable=1_000) == RESERVE * 3 // 4 - 1_000
    assert space.missing(reusable=100 * RESERVE) == RESERVE // 4, "half of it must be free on the disk itself"
    space.release()
    assert reserve_of(tmp_path / FILE_NAME).stat().st_size == 0
    free(5)
    space.keep()
    assert reserve_of(tmp_path / FILE_NAME).stat().st_size == 5
    space.spare()
    assert reserve_of(tmp_path / FILE_NAME).stat().st_size == 0
    assert DiskSpace(tmp_path / FILE_NAME, 0).missing() == 0


def test_work_that_needs_more_than_there_is_is_refused_before_it_begins(
    tmp_path: Path, free: Callable[[int], None]
) -> None:
    space = DiskSpace(tmp_path / FILE_NAME, RESERVE)
    free(10)
    with pytest.raises(StorageFull, match="90 more bytes must be free to dance"), space.room_for(100, "dance"):
        pytest.fail("it was begun")


async def test_on_a_full_disk_only_deletions_are_committed(open_store: Open, free: Callable[[int], None]) -> None:
    store = await open_store(reserve_bytes=RESERVE)
    await store.commit([thing("one"), thing("two")])
    assert all(finding.ok for finding in await store.check())
    free(RESERVE - 1_000)
    for refused in (store.commit([thing("three")]), store.check()):
        with pytest.raises(StorageFull, match=r"1,000 more bytes must be free"):
            await refused
    await store.commit([Delete(THINGS, T, "one")])
    with using_reserve():
        await store.commit([thing("four")])
    together = [store.commit([thing("five")]), store.commit([Delete(THINGS, T, "two")])]
    kept, deleted = await asyncio.gather(*together, return_exceptions=True)
    assert isinstance(kept, StorageFull)
    assert not isinstance(deleted, Exception)
    free(10 * RESERVE)
    assert all(finding.ok for finding in await store.check())
    await store.commit([thing("six")])
    assert {doc["thing_id"] for doc in await store.find(THINGS, T)} == {"four", "six"}


async def test_after_a_write_that_failed_it_is_not_ready_until_one_succeeds(
    store: EmbeddedStore, raw: Callable[..., list[Any]], tmp_path: Path
) -> None:
    other = apsw.Connection(str(tmp_path / FILE_NAME))
    other.execute("BEGIN IMMEDIATE")
    assert all(finding.ok for finding in await store.check()), "nothing has failed yet"
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.commit([thing()])
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.check()
    other.execute("ROLLBACK")
    other.close()
    (before,) = raw("SELECT seq FROM sqlite_sequence WHERE name = 'recalld commits'")
    for _ in range(3):
        assert all(finding.ok for finding in await store.check())
    (after,) = raw("SELECT seq FROM sqlite_sequence WHERE name = 'recalld commits'")
    assert after[0] - before[0] <= 2, "it is tried once, and not at every look"


async def test_a_store_that_may_not_be_written_is_not_ready(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: place.name != FILE_NAME)
    with pytest.raises(StoreUnavailable, match=r"recalld\.db cannot be written: it is read-only"):
        await store.check()
