"""What a write waits for: a turn among the tenants, and room on the disk.

**Turns.** What waits for the writer's thread is kept by tenant. Tenants take turns, so that none waits for all writes
of another.

**Room.** The file `recalld.db-reserve` takes `RECALLD_DISK_RESERVE_BYTES` of the disk, so that other programs cannot
use them up. As many bytes again must be free for a write that adds something. A deletion is made in any case: it is
given the bytes of the file, which are taken back as soon as they are free again. Example: with a reserve of 16 MiB a
store stops taking new records while 16 MiB are free, and it can delete even if another program has filled the disk to
its last byte.
"""

import os
import shutil
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from app.errors import StorageFull, StoreUnavailable

OWNER_ONLY = 0o600
PIECE_BYTES = 1 << 20
SPARE_BYTES = 64 << 10
RETRY_SECONDS = 30


def reserve_of(path: Path) -> Path:
    """Returns the file that keeps space back beside a database file."""
    return path.with_name(f"{path.name}-reserve")


def storage_full(missing: int) -> StorageFull:
    """Returns the error of a write for which `missing` more bytes must be free."""
    return StorageFull(
        f"The disk is full: {missing:,} more bytes must be free for new data. Deletions and erasures work.",
        retry_after=RETRY_SECONDS,
    )


class DiskSpace:
    """Measures the free space beside a database file and keeps `reserve_bytes` of it back. 0 keeps nothing back and
    refuses nothing."""

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._path, self._file, self._reserve = path, reserve_of(path), reserve_bytes

    def free(self) -> int:
        """Returns the free bytes of the disk, without those kept back. Raises StoreUnavailable."""
        try:
            return shutil.disk_usage(self._path.parent).free
        except OSError as error:
            raise StoreUnavailable(f"The disk of the store cannot be used: {error.strerror}.") from error

    def missing(self, reusable: int = 0, log_bytes: int = 0) -> int:
        """Returns how many bytes must become free before new data are written; 0 if there are enough.

        `reusable` are unused bytes inside the database, which new data take first. They stand for up to half of the
        free bytes: the other half is for the log. `log_bytes` may be needed to copy the log into the database.
        """
        if not self._reserve:
            return 0
        wanted = self._reserve + self._not_kept() + log_bytes
        return max(0, wanted - self.free() - min(reusable, self._reserve // 2))

    def refuse_read_only(self) -> None:
        """Raises StoreUnavailable if the database or its directory may not be written."""
        for place in (self._path, self._path.parent):
            if not os.access(place, os.W_OK):
                raise StoreUnavailable(f"{place.name} cannot be written: it is read-only.", retry_after=RETRY_SECONDS)

    def keep(self) -> None:
        """Takes what is free of the bytes to be kept back. Does nothing if it has them already."""
        lacking = self._not_kept()
        if lacking:
            with suppress(OSError, StoreUnavailable):
                self._extend(min(lacking, self.free()))

    def release(self) -> None:
        """Gives the bytes kept back to the deletion that follows."""
        if self._reserve:
            with suppress(OSError):
                os.truncate(self._file, 0)

    def spare(self) -> None:
        """Frees some of the bytes kept back, until the next deletion."""
        with suppress(OSError):
            os.truncate(self._file, max(0, self._file.stat().st_size - SPARE_BYTES))

    @contextmanager
    def room_for(self, number: int, purpose: str) -> Iterator[None]:
        """Gives work that needs `number` bytes those kept back, if there are too few others, and takes them back after
        it. Raises StorageFull, before the work, if these are not enough either. `purpose` ends its sentence."""
        if self._reserve and self.free() < number:
            self.release()
        try:
            lacking = number - self.free() if self._reserve else 0
            if lacking > 0:
                raise StorageFull(
                    f"The disk is full: {lacking:,} more bytes must be free to {purpose}.", retry_after=RETRY_SECONDS
                )
            yield
        finally:
            self.keep()

    def _not_kept(self) -> int:
        try:
            return max(0, self._reserve - self._file.stat().st_size)
        except OSError:
            return self._reserve

    def _extend(self, number: int) -> None:
        """Adds bytes that are on the disk, not only in the file's length. Raises OSError; then it is as before."""
        opened = os.open(self._file, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        try:
            size = os.fstat(opened).st_size
            try:
                _allocate(opened, size, number)
            except OSError:
                os.ftruncate(opened, size)
                raise
        finally:
            os.close(opened)


def _allocate(opened: int, at: int, number: int) -> None:
    if number <= 0:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(opened, at, number)
        return
    os.lseek(opened, at, os.SEEK_SET)
    for start in range(0, number, PIECE_BYTES):
        os.write(opened, bytes(min(PIECE_BYTES, number - start)))


T = TypeVar("T")

MAX_GROUP = 256
MAX_GROUP_CHANGES = 1_000
"""A group is full when it has so many changes. One list may have more, and is then a group of its own or its end."""


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    work: T
    changes: int


class WriteTurns(Generic[T]):
    """A queue of any number of producers and one consumer."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._lanes: dict[str, deque[_Item[T]]] = {}  # the first tenant has the next turn
        self._closed = False

    def put(self, work: T, tenant: str, changes: int) -> None:
        """Adds the work of a tenant, which makes about so many changes."""
        with self._wake:
            self._lanes.setdefault(tenant, deque()).append(_Item(work, changes))
            self._wake.notify()

    def close(self) -> None:
        """Ends the queue: what waits is still given out."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def next_group(self) -> list[T]:
        """Returns the next works, of one tenant after the other, and each tenant's in their order. Waits for one;
        returns none if the queue is closed and empty."""
        with self._wake:
            self._wake.wait_for(lambda: self._lanes or self._closed)
            group: list[T] = []
            changes = 0
            while self._lanes and len(group) < MAX_GROUP and changes < MAX_GROUP_CHANGES:
                tenant = next(iter(self._lanes))
                lane = self._lanes.pop(tenant)
                item = lane.popleft()
                if lane:
                    self._lanes[tenant] = lane  # at the end
                group.append(item.work)
                changes += item.changes
            return group
