"""The log file is emptied once nothing is written any more, and keeps nobody from writing."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.storage.sqlite.connections import OTHERS_SECONDS, LogTruncation, checkpoint, connect, truncate
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from tests.storage.sqlite.conftest import Open
from tests.support.declared import THINGS, T, thing

pytestmark = pytest.mark.anyio


def log_bytes(folder: Path) -> int:
    return (folder / f"{FILE_NAME}-wal").stat().st_size


def database_bytes(folder: Path) -> int:
    return (folder / FILE_NAME).stat().st_size


async def until(check: Callable[[], bool]) -> None:
    for _ in range(6_000):
        if check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within a minute")


async def fill(store: EmbeddedStore, number: int = 50) -> None:
    for _ in range(number):
        await store.commit([thing() for _ in range(20)])


async def test_the_log_is_emptied_after_a_quiet_time_and_again_after_later_writes(
    open_store: Open, tmp_path: Path
) -> None:
    store = await open_store(idle_seconds=0.01)
    for rounds in (1, 2):
        await fill(store)
        await until(lambda: log_bytes(tmp_path) == 0)
        assert await store.count(THINGS, T) == rounds * 1_000


async def test_the_log_stays_while_writes_follow_each_other(open_store: Open, tmp_path: Path) -> None:
    store = await open_store(idle_seconds=3_600)
    await fill(store)
    assert log_bytes(tmp_path) > 0


async def test_a_log_that_has_grown_is_copied_into_the_database_and_begun_anew(
    open_store: Open, tmp_path: Path
) -> None:
    store = await open_store(idle_seconds=3_600)
    for number in range(24):
        await store.commit([thing(f"t{number}-{i}", name="x" * 2_000) for i in range(500)])
    assert log_bytes(tmp_path) < 64 << 20
    assert database_bytes(tmp_path) > 40 << 20
    assert await store.count(THINGS, T) == 12_000


async def test_a_reader_of_old_pages_puts_the_truncation_off_and_no_write(open_store: Open, tmp_path: Path) -> None:
    store = await open_store(idle_seconds=0.01)
    reader = apsw.Connection(str(tmp_path / FILE_NAME))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM things").fetchall()
    await fill(store)
    connection = connect(tmp_path / FILE_NAME, 5_000)
    assert not truncate(connection)
    assert connection.pragma("busy_timeout") == 5_000
    await fill(store)
    assert log_bytes(tmp_path) > 0
    reader.execute("COMMIT")
    reader.close()
    await until(lambda: log_bytes(tmp_path) == 0)
    connection.close()
    assert await store.count(THINGS, T) == 2_000


async def test_what_another_process_is_writing_is_not_waited_for(open_store: Open, tmp_path: Path) -> None:
    """A wait for the writer would last as long as the busy timeout, 5 s, and keep all later writers out."""
    store = await open_store(idle_seconds=3_600)
    await fill(store, 2)
    writer, connection = (connect(tmp_path / FILE_NAME, 5_000) for _ in range(2))
    writer.execute("BEGIN IMMEDIATE")
    waits: list[int] = []

    def count(calls: int) -> bool:
        waits.append(calls)
        return False

    connection.set_busy_handler(count)  # replaced by the timeout of 0: never called
    assert not truncate(connection)
    assert waits == []
    writer.execute("ROLLBACK")
    assert truncate(connection)
    assert log_bytes(tmp_path) == 0
    for one in (writer, connection):
        one.close()


async def test_whoever_must_empty_the_log_waits_for_the_checkpoint_of_another(open_store: Open, tmp_path: Path) -> None:
    """SQLite refuses a second checkpoint at once, whatever the busy timeout."""
    store = await open_store(idle_seconds=3_600)
    await fill(store, 2)
    writer, other, connection = (connect(tmp_path / FILE_NAME, 5_000) for _ in range(3))
    writer.execute("BEGIN IMMEDIATE")
    begun, refused = threading.Event(), threading.Event()

    def wait(_: int) -> bool:
        begun.set()
        return not refused.wait(60)  # has begun, and waits for the writer

    other.set_busy_handler(wait)
    running = threading.Thread(target=checkpoint, args=(other, "TRUNCATE"))
    running.start()
    assert begun.wait(60)
    writer.execute("ROLLBACK")
    assert not checkpoint(connection, "TRUNCATE")
    threading.Timer(0.2, refused.set).start()
    assert await asyncio.to_thread(checkpoint, connection, "TRUNCATE", OTHERS_SECONDS)
    running.join()
    assert log_bytes(tmp_path) == 0
    for one in (writer, other, connection):
        one.close()


async def test_an_attempt_that_fails_is_made_again(anyio_backend: str) -> None:
    outcomes: list[Any] = [OSError("disk"), False, True]
    attempts = asyncio.Event()

    async def apart(_: Callable[[apsw.Connection], bool]) -> bool:
        outcome = outcomes.pop(0)
        if not outcomes:
            attempts.set()
        if isinstance(outcome, Exception):
            raise outcome
        return bool(outcome)

    truncation = LogTruncation(apart, 0.001)
    truncation.written()
    await asyncio.wait_for(attempts.wait(), 60)
    await truncation.close()
    assert outcomes == []


async def test_a_write_during_the_attempt_leads_to_another_one(anyio_backend: str) -> None:
    calls = 0
    again = asyncio.Event()

    async def apart(_: Callable[[apsw.Connection], bool]) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.sleep(0.002)  # the loop's clock moves on
            truncation.written()
        else:
            again.set()
        return True

    truncation = LogTruncation(apart, 0.001)
    truncation.written()
    await asyncio.wait_for(again.wait(), 60)
    await truncation.close()
    assert calls == 2
