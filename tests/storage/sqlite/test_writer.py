import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.errors import StoreUnavailable
from app.storage.changes import Change, CommitConflict, Committed, Update
from app.storage.sqlite import writer
from app.storage.sqlite.connections import Faults, ReadCache, ReadKey, connect, count_commit
from app.storage.sqlite.sql import migrate
from app.storage.sqlite.writer import MAX_GROUP, WAIT_SECONDS, DiskSpace, WriterThread
from tests.support.declared import THINGS, T, thing

pytestmark = pytest.mark.anyio


class Gated:
    """`changes.execute` that waits at a gate, so that a group can gather behind it."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.open.set()

    def __call__(
        self, connection: apsw.Connection, wanted: Sequence[Change], at: str | None, keys: set[ReadKey]
    ) -> Committed:
        self.reached.set()
        assert self.open.wait(60)
        return writer.execute(connection, wanted, at, keys)


class Setup:
    def __init__(self, path: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        self.connection = connect(path, 50)
        migrate(self.connection, [THINGS])
        self.reader = connect(path, 50)
        self.gate = Gated()
        self.groups: list[int] = []
        self.writer = WriterThread(
            self.connection,
            self.gate,
            lambda writes, _: self.groups.append(writes),
            written=lambda: None,
            faults=Faults(),
            space=DiskSpace(path, reserve_bytes=0),
            wait_seconds=wait_seconds,
        )

    def stored(self) -> int:
        ((number,),) = self.reader.execute("SELECT count(*) FROM things").fetchall()
        assert isinstance(number, int)
        return number

    async def gathered(self, *lists: Sequence[Change]) -> list[Committed | BaseException]:
        """Commits `lists` in one group: the one before them is held at the gate until all of them wait."""
        self.gate.open.clear()
        self.gate.reached.clear()
        first = asyncio.create_task(self.writer.commit([thing("first")]))
        assert await asyncio.to_thread(self.gate.reached.wait, 10)
        waiting = [asyncio.create_task(self.writer.commit(wanted)) for wanted in lists]
        await asyncio.sleep(0.02)
        self.gate.open.set()
        await first
        return await asyncio.gather(*waiting, return_exceptions=True)


@pytest.fixture
async def setup(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Setup]:
    made = Setup(tmp_path / "writer.db")
    yield made
    await made.writer.close()
    made.reader.close()


async def test_what_waits_is_one_group(setup: Setup) -> None:
    outcomes = await setup.gathered(*([thing()] for _ in range(50)))
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    await setup.writer.commit([])
    assert setup.groups[:2] == [1, 50]


async def test_a_group_has_a_largest_size(setup: Setup) -> None:
    await setup.gathered(*([thing()] for _ in range(MAX_GROUP + 3)))
    await setup.writer.commit([])
    assert setup.groups[:3] == [1, MAX_GROUP, 3]


async def test_a_list_that_fails_harms_no_neighbour(setup: Setup) -> None:
    bad = thing()
    bad.doc["name"] = object()
    outcomes = await setup.gathered([thing("a")], [thing("b"), thing("first")], [thing("c"), bad], [thing("d")])
    assert [type(outcome) for outcome in outcomes] == [Committed, CommitConflict, TypeError, Committed]
    assert setup.stored() == 3


async def test_nothing_is_acknowledged_before_the_commit(setup: Setup) -> None:
    committing = threading.Event()
    setup.connection.set_commit_hook(lambda: not committing.wait(60))
    going = asyncio.create_task(setup.writer.commit([thing()]))
    await asyncio.sleep(0.05)
    assert not going.done()
    assert setup.stored() == 0
    committing.set()
    await going
    assert setup.stored() == 1


async def test_a_commit_that_fails_fails_its_whole_group_and_stores_nothing(setup: Setup) -> None:
    await setup.writer.commit([thing("kept")])
    commits = iter([False, True])  # the first of two groups goes through
    setup.connection.set_commit_hook(lambda: next(commits, False))
    outcomes = await setup.gathered(*([thing()] for _ in range(5)))
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 5
    assert setup.stored() == 2
    await setup.writer.commit([thing("again")])
    assert setup.stored() == 3


async def test_a_fault_of_the_disk_fails_the_whole_group(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = setup.gate

    def failing(connection: apsw.Connection, wanted: Sequence[Change], at: str | None, keys: set[ReadKey]) -> Committed:
        done = gate(connection, wanted, at, keys)
        if any(getattr(change, "doc", {}).get("name") == "disk fault" for change in wanted):
            raise apsw.IOError("disk I/O error")
        return done

    monkeypatch.setattr(setup.writer, "_execute", failing)
    outcomes = await setup.gathered([thing()], [thing(name="disk fault")], [thing()])
    assert [str(outcome) for outcome in outcomes] == ["The store's file cannot be used: disk I/O error."] * 3
    assert setup.stored() == 1


async def test_reads_are_kept_until_their_record_changes_or_another_process_commits(setup: Setup) -> None:
    cache, ids = ReadCache(setup.reader, Faults(), setup.writer.own_commits), ("one", "two")

    async def found() -> dict[str, tuple[int, bool]]:
        """Returns the version of each record that the cache gives, and whether it was read anew."""
        await asyncio.sleep(0)  # the next round of the event loop
        anew: set[str] = set()

        def read(thing_id: str) -> tuple[int, int]:
            anew.add(thing_id)
            statement = "SELECT json_extract(doc, '$.version') FROM things WHERE id = ?"
            return int(setup.reader.execute(statement, (thing_id,)).get), 1

        return {name: (cache.get((THINGS.name, T, name), partial(read, name)), name in anew) for name in ids}

    def raised(thing_id: str) -> Update[Any]:
        return Update(THINGS, T, thing_id, inc={"version": 1})

    await setup.writer.commit([thing(name) for name in ids])
    assert await found() == {"one": (1, True), "two": (1, True)}
    await setup.writer.commit([raised("one")])
    assert await found() == {"one": (2, True), "two": (1, False)}
    await setup.writer.submit(lambda connection: writer.execute(connection, [raised("two")]))
    assert await found() == {"one": (2, True), "two": (2, True)}, "a task that does not say what it writes"

    setup.connection.set_commit_hook(lambda: True)
    with pytest.raises(StoreUnavailable):
        await setup.writer.commit([raised("one")])
    setup.connection.set_commit_hook(None)
    other = connect(Path(setup.connection.filename), 50)
    with other:
        writer.execute(other, [raised("two")])
        count_commit(other)  # takes the number of the commit that failed
    other.close()
    assert await found() == {"one": (2, True), "two": (3, True)}


async def test_a_caller_who_left_does_not_stop_the_others(setup: Setup) -> None:
    setup.gate.open.clear()
    left, stays = [asyncio.create_task(setup.writer.commit([thing()])) for _ in range(2)]
    await asyncio.sleep(0.02)
    left.cancel()
    setup.gate.open.set()
    await stays
    await setup.writer.commit([thing()])
    assert setup.stored() == 3


async def test_closing_commits_what_waits_and_takes_no_more(setup: Setup) -> None:
    waiting = [asyncio.create_task(setup.writer.commit([thing()])) for _ in range(20)]
    await asyncio.sleep(0)
    await setup.writer.close()
    await asyncio.gather(*waiting)
    assert setup.stored() == 20
    with pytest.raises(StoreUnavailable, match="closed"):
        await setup.writer.commit([thing()])


async def test_a_write_that_the_disk_does_not_answer_is_given_up(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "stuck.db", wait_seconds=0.05)
    setup.gate.open.clear()  # what runs stands for a write to a disk that hangs
    begun = asyncio.create_task(setup.writer.commit([thing("begun")]))
    assert await asyncio.to_thread(setup.gate.reached.wait, 10)
    queued = asyncio.create_task(setup.writer.commit([thing("queued")]))
    for write in (begun, queued):
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.05 s") as raised:
            await write
        assert raised.value.retry_after == 10
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await setup.writer.refuse_failing()
    setup.gate.open.set()
    await setup.writer.close()
    assert setup.stored() == 1, "what had begun was made in the end, and what had not was not"
    setup.reader.close()
