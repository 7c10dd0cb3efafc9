"""A disk that is full or fails, and a store that is locked: what was acknowledged is there, and nothing else is."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import apsw
import pytest

from app.settings import Settings
from app.storage.sqlite.connections import use_checksums
from app.storage.sqlite.store import FILE_NAME
from tests.conftest import Service, Starter
from tests.stress.size import size

pytestmark = [pytest.mark.anyio, pytest.mark.stress, pytest.mark.parametrize("engine", ["embedded"])]

AT_ONCE = 16
KINDS = ("full", "write fails", "sync fails", "locked")


class FaultyFile(apsw.VFSFile):
    fault: ClassVar[type[Exception] | None] = None
    on_sync: ClassVar[bool] = False
    swallow: ClassVar[bool] = False
    """The planted bug: a write that is said to be done and is not."""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
        if FaultyFile.fault is not None and not FaultyFile.on_sync and random.random() < 0.3:
            raise FaultyFile.fault("planted by a test")
        if not FaultyFile.swallow:
            super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        if FaultyFile.fault is not None and FaultyFile.on_sync:
            raise FaultyFile.fault("planted by a test")
        super().xSync(flags)


class FaultyDisk(apsw.VFS):
    def __init__(self) -> None:
        use_checksums()
        super().__init__("faulty", "cksmvfs", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return FaultyFile("cksmvfs", name, flags)


@pytest.fixture
def disk() -> Iterator[None]:
    made = FaultyDisk()
    yield
    FaultyFile.fault, FaultyFile.swallow = None, False
    made.unregister()


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_disk_that_fails_loses_and_invents_nothing(settings: Settings, start: Starter, kind: str) -> None:
    for number in range(size(1, 10)):
        own = settings.model_copy(update={"data_dir": settings.data_dir / str(number)})
        sent: dict[str, int] = {}
        async with start(own) as running:
            await write(running, sent, "before")
            locker = begin(KINDS.index(kind), own.data_dir)
            for burst in range(3):
                await write(running, sent, f"during{burst}")
            end(locker)
            again: dict[str, int] = {}
            await write(running, again, "after")
        assert set(again.values()) == {201}, "it recovers"
        assert set(sent.values()) <= {201, 503}
        assert await lost_or_invented(start, own, {**sent, **again}) == []


@pytest.mark.usefixtures("disk")
async def test_a_disk_that_says_it_has_written_is_found_out(settings: Settings, start: Starter) -> None:
    sent: dict[str, int] = {}
    try:
        async with start(settings) as running:
            await write(running, sent, "before")
            FaultyFile.swallow = True
            await write(running, sent, "during")
            FaultyFile.swallow = False
        assert await lost_or_invented(start, settings, sent) != []
    except AssertionError:
        raise
    except Exception:  # noqa: BLE001 (a store that cannot even be opened is seen as well)
        pass


def begin(kind: int, directory: Path) -> apsw.Connection | None:
    FaultyFile.fault = (apsw.FullError, apsw.IOError, apsw.IOError, None)[kind]
    FaultyFile.on_sync = kind == 2
    if kind < 3:
        return None
    locker = apsw.Connection(str(directory / FILE_NAME))
    locker.execute("BEGIN IMMEDIATE")
    return locker


def end(locker: apsw.Connection | None) -> None:
    FaultyFile.fault = None
    if locker is not None:
        locker.execute("ROLLBACK")
        locker.close()


async def write(running: Service, sent: dict[str, int], name: str) -> None:
    """Texts, and the status that each was answered with."""

    async def one(text: str) -> None:
        body = {"agent_id": "a", "user_id": "u", "content": text}
        sent[text] = (await running.client.post("/v1/memories", json=body)).status_code

    await asyncio.gather(*(one(f"{name} {number}") for number in range(AT_ONCE)))


async def lost_or_invented(start: Starter, settings: Settings, sent: dict[str, int]) -> list[str]:
    async with start(settings) as running:
        page = (await running.client.get("/v1/memories", params={"limit": 100})).json()["items"]
        findings = await running.resources.store.check(deep=True)
    there = {item["content"] for item in page}
    acknowledged = {text for text, status in sent.items() if status == 201}
    return sorted(acknowledged - there) + sorted(there - set(sent)) + [str(one) for one in findings if not one.ok]
