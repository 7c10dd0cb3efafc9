"""A disk that is full, a disk that fails, a store that is locked: what was acknowledged is there, nothing else is."""

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import apsw

from app.storage.sqlite.store import FILE_NAME
from scripts.battery_parts.row import Row
from scripts.battery_parts.service import service
from tests.conftest import Service

AT_ONCE = 16


class FaultyFile(apsw.VFSFile):
    fault: ClassVar[type[Exception] | None] = None
    on_sync: ClassVar[bool] = False
    swallow: ClassVar[bool] = False
    """The planted bug: a write that is said to be done and is not."""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
        if FaultyFile.fault is not None and not FaultyFile.on_sync and random.random() < 0.3:
            raise FaultyFile.fault("planted by the battery")
        if not FaultyFile.swallow:
            super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        if FaultyFile.fault is not None and FaultyFile.on_sync:
            raise FaultyFile.fault("planted by the battery")
        super().xSync(flags)


class FaultyDisk(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("battery", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return FaultyFile("unix", name, flags)


async def faults(rounds: int) -> Row:
    disk, counts = (
        FaultyDisk(),
        {"acknowledged": 0, "refused": 0, "lost": 0, "invented": 0, "other": 0, "no recovery": 0},
    )
    try:
        for number in range(rounds):
            await _round(number % 4, counts)
        caught = await _planted()
    finally:
        disk.unregister()
    bad = sum(counts[name] for name in ("lost", "invented", "other", "no recovery"))
    return Row(f"disk full, I/O errors, locks × {rounds}", dict(counts), bad, caught)


async def _round(kind: int, counts: dict[str, int]) -> None:
    with tempfile.TemporaryDirectory(prefix="recalld-battery-") as made:
        directory = Path(made)
        sent: dict[str, int] = {}
        async with service(directory) as running:
            await _write(running, sent, "before")
            locker = _arm(kind, directory)
            for burst in range(3):
                await _write(running, sent, f"during{burst}")
            _disarm(locker)
            again: dict[str, int] = {}
            await _write(running, again, "after")
            counts["no recovery"] += sum(status != 201 for status in again.values())
            sent |= again
        await _compare(directory, sent, counts)


def _arm(kind: int, directory: Path) -> apsw.Connection | None:
    FaultyFile.fault = (apsw.FullError, apsw.IOError, apsw.IOError, None)[kind]
    FaultyFile.on_sync = kind == 2
    if kind < 3:
        return None
    locker = apsw.Connection(str(directory / "data" / FILE_NAME))
    locker.execute("BEGIN IMMEDIATE")
    return locker


def _disarm(locker: apsw.Connection | None) -> None:
    FaultyFile.fault = None
    if locker is not None:
        locker.execute("ROLLBACK")
        locker.close()


async def _write(running: Service, sent: dict[str, int], name: str) -> None:
    """Texts, and the status that each was answered with."""

    async def one(text: str) -> None:
        body = {"agent_id": "a", "user_id": "u", "content": text}
        sent[text] = (await running.client.post("/v1/memories", json=body)).status_code

    await asyncio.gather(*(one(f"{name} {number}") for number in range(AT_ONCE)))


async def _compare(directory: Path, sent: dict[str, int], counts: dict[str, int]) -> None:
    async with service(directory) as running:
        page = (await running.client.get("/v1/memories", params={"limit": 100})).json()["items"]
        there = {item["content"] for item in page}
        sound = all(finding.ok for finding in await running.resources.store.check(deep=True))
    acknowledged = {text for text, status in sent.items() if status == 201}
    counts["acknowledged"] += len(acknowledged)
    counts["refused"] += sum(status == 503 for status in sent.values())
    counts["lost"] += len(acknowledged - there)
    counts["invented"] += len(there - set(sent))
    counts["other"] += sum(status not in (201, 503) for status in sent.values()) + (not sound)


async def _planted() -> bool:
    """A disk that says it has written."""
    counts = dict.fromkeys(("acknowledged", "refused", "lost", "invented", "other", "no recovery"), 0)
    try:
        with tempfile.TemporaryDirectory(prefix="recalld-battery-") as made:
            directory = Path(made)
            sent: dict[str, int] = {}
            async with service(directory) as running:
                await _write(running, sent, "before")
                FaultyFile.swallow = True
                await _write(running, sent, "during")
                FaultyFile.swallow = False
            await _compare(directory, sent, counts)
    except Exception:  # noqa: BLE001 (a store that cannot even be opened is seen as well)
        return True
    finally:
        FaultyFile.swallow = False
    return bool(counts["lost"] or counts["other"])
