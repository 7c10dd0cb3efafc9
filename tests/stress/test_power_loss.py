"""The power fails under concurrent writes: what was not yet synced is missing, torn, or written in another order.

A file layer under the real store notes each write and each sync. A cut takes what was synced, and of the rest some
sectors in any order.
"""

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.errors import StoreUnavailable
from app.storage.changes import Allocate, Update
from app.storage.sqlite.connections import connect, truncate, use_checksums
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from tests.stress.size import size
from tests.support.declared import DIM, ENTRIES, NUMBERED, THINGS, T, entry, thing

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

COLLECTIONS = (THINGS, NUMBERED, ENTRIES)
CUTS = size(20, 500)
CUTS_OF_A_STORE = 25
SECTOR = 512
WRITERS = 6


@dataclass
class Kept:
    """What the disk has of a file, and what was written since its last sync: a place and bytes, or a new size."""

    synced: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        self.synced = self.after(self.waiting)
        self.waiting = []

    def after(self, operations: list[tuple[int, bytes | None]]) -> bytearray:
        content = bytearray(self.synced)
        for at, data in operations:
            if data is None:
                del content[at:]
                continue
            content.extend(bytes(max(0, at + len(data) - len(content))))
            content[at : at + len(data)] = data
        return content

    def cut(self, dice: random.Random) -> bytearray:
        """What is found after the power is back."""
        pieces: list[tuple[int, bytes | None]] = []
        for at, data in self.waiting:
            if data is None:
                pieces.append((at, None))
            else:  # a sector is written whole or not at all
                first = SECTOR - at % SECTOR
                edges = [0, *range(first, len(data), SECTOR), len(data)]
                pieces += [(at + low, data[low:high]) for low, high in pairwise(edges)]
        if dice.random() < 0.5:
            dice.shuffle(pieces)
        share = dice.choice((0.0, 0.5, 0.9, 1.0))
        return self.after([one for one in pieces if dice.random() < share])


class Disk:
    """All files of the stores that run on it. `skips_syncs` is the planted bug."""

    def __init__(self) -> None:
        self.files: dict[str, Kept] = {}
        self.handles: dict[str, int] = {}
        self.lock = threading.Lock()
        self.skips_syncs = False
        self.operations = 0
        self.cut_at: set[int] = set()
        self.cuts: list[tuple[dict[str, bytes], frozenset[str]]] = []
        self.acknowledged: set[str] = set()
        self.dice = random.Random(21)

    def note(self, name: str, at: int, data: bytes | None, length: int = 0) -> None:
        with self.lock:
            if data is None and length:
                data = os.pread(self._handle(name), length, at)  # as it was written, with its checksum
            self.files.setdefault(name, Kept()).waiting.append((at, data))
            self._count()

    def sync(self, name: str) -> None:
        with self.lock:
            if not self.skips_syncs:
                self.files.setdefault(name, Kept()).sync()
            self._count()

    def delete(self, name: str) -> None:
        with self.lock:
            self.files.pop(name, None)
            if name in self.handles:
                os.close(self.handles.pop(name))

    def _handle(self, name: str) -> int:
        """A handle of our own, kept open: closing it would drop SQLite's locks."""
        if name not in self.handles:
            self.handles[name] = os.open(name, os.O_RDONLY)
        return self.handles[name]

    def _count(self) -> None:
        self.operations += 1
        if self.operations not in self.cut_at:
            return
        image = {Path(name).name: bytes(kept.cut(self.dice)) for name, kept in self.files.items()}
        note = Path(next(iter(self.files))).with_name(f"{FILE_NAME}-commits")
        if self.dice.random() < 0.7 and note.exists():
            image[note.name] = note.read_bytes()
        self.cuts.append((image, frozenset(self.acknowledged)))

    def close(self) -> None:
        for handle in self.handles.values():
            os.close(handle)
        self.handles.clear()
        self.files.clear()


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("cksmvfs", name, flags)
        self._disk, self._name = disk, name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
        super().xWrite(data, offset)
        self._disk.note(self._name, offset, None, len(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 (SQLite's name)
        super().xTruncate(newsize)
        self._disk.note(self._name, newsize, None)

    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        super().xSync(flags)
        self._disk.sync(self._name)


class Layer(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__("power", "cksmvfs", makedefault=True)
        self._disk = disk

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 (SQLite's name and shape)
        super().xDelete(filename, syncdir)
        self._disk.delete(filename)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return DiskFile(self._disk, name, flags) if name is not None else apsw.VFSFile("cksmvfs", name, flags)


@pytest.fixture
def disk() -> Iterator[Disk]:
    use_checksums()
    disk = Disk()
    layer = Layer(disk)
    yield disk
    layer.unregister()
    disk.close()


async def opened(folder: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(folder, COLLECTIONS, dim=DIM)


async def write_until_cut(disk: Disk, folder: Path, number: int) -> None:
    """Writers at once, and a second connection that empties the log now and then, until `number` cuts were taken."""
    store = await opened(folder)
    other = await asyncio.to_thread(connect, folder / FILE_NAME, 5_000)
    wanted = len(disk.cuts) + number
    disk.acknowledged = set()
    disk.cut_at = {disk.operations + one for one in disk.dice.sample(range(20, 20 + 60 * number), number)}

    async def keep_writing(writer: int) -> None:
        count = 0
        while len(disk.cuts) < wanted:
            count += 1
            name = f"t{writer}-{count}"
            await store.commit([Allocate("c", T), thing(name, name="x" * 700, score=0), entry("tea", f"e{name}")])
            disk.acknowledged.add(name)
            if count % 3 == 0:
                await store.commit([Update(THINGS, T, name, inc={"score": 1})])
                disk.acknowledged.add(f"{name} changed")

    async def keep_emptying() -> None:
        while len(disk.cuts) < wanted:
            await asyncio.to_thread(truncate, other)
            await asyncio.sleep(disk.dice.random() / 20)

    try:
        await asyncio.gather(*map(keep_writing, range(WRITERS)), keep_emptying())
    finally:
        other.close()
        await store.close()
        disk.close()


def write(folder: Path, image: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in image.items():
        (folder / name).write_bytes(content)


async def faults_of(folder: Path, image: dict[str, bytes], acknowledged: frozenset[str]) -> list[str]:
    """What is lost or wrong after the power is back."""
    write(folder, image)
    try:
        store = await opened(folder)
    except StoreUnavailable as error:
        return [error.detail]
    try:
        found = {doc["thing_id"]: doc for doc in await store.find(THINGS, T, limit=100_000)}
        entries = {doc["entry_id"] for doc in await store.find(ENTRIES, T, limit=100_000)}
        changed = {f"{name} changed" for name, doc in found.items() if doc.get("score") == 1}
        lost = sorted(acknowledged - set(found) - changed)
        torn = sorted({f"e{name}" for name in found} ^ entries)
        return lost + torn + [str(one) for one in await store.check(deep=True) if not one.ok]
    except StoreUnavailable as error:
        return [error.detail]
    finally:
        await store.close()


async def test_a_power_failure_loses_nothing_that_was_acknowledged(disk: Disk, tmp_path: Path) -> None:
    for start in range(0, CUTS, CUTS_OF_A_STORE):
        await write_until_cut(disk, tmp_path / f"store{start}", min(CUTS_OF_A_STORE, CUTS - start))
    assert len(disk.cuts) >= CUTS
    writes = 0
    for number, (image, acknowledged) in enumerate(disk.cuts):
        assert await faults_of(tmp_path / "cut" / str(number), image, acknowledged) == []
        disk.close()
        writes += len(acknowledged)
    print(f"{len(disk.cuts)} cuts, {writes} acknowledged writes looked for")


async def test_a_sync_that_is_skipped_is_found_out(disk: Disk, tmp_path: Path) -> None:
    """The planted bug: the disk says that it has synced, and has not."""
    store = await opened(tmp_path / "store")
    await store.close()
    disk.skips_syncs = True
    await write_until_cut(disk, tmp_path / "store", 10)
    disk.skips_syncs = False
    found = [await faults_of(tmp_path / "cut" / str(at), *cut) for at, cut in enumerate(disk.cuts)]
    assert any(found)
