"""What the worker processes of one service share: a board with a line for each worker, and pairs of numbers by name.

The supervisor makes both before it starts workers, in memory that its children inherit. A worker writes its own line
only, and a pair under a lock of the file system, which the system frees when its holder dies. A process that is no
worker has neither: `board()` returns None, and `pairs(…)` returns pairs of its own.
"""

import fcntl
import mmap
import os
import struct
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from threading import Lock
from typing import BinaryIO, Literal, Protocol, TypeAlias

from app.core.caches import kept
from app.setting_groups import MOST_WORKERS

Pair: TypeAlias = tuple[float, float]
PairChange: TypeAlias = Callable[[Pair | None], Pair]
"""Takes the pair of a name, None if there is none, and returns the new one."""

NUMBERS = 2 * MOST_WORKERS + 1
"""Numbers of workers. A restart starts the new one beside the old one."""
TABLES = ("requests", "costs", "wrong_keys", "addresses")
SETS, WAYS = 2048, 8
"""Of a shared table: a name belongs to one set, and the least recently changed name of a full set is dropped."""
TRIES = 200
"""How often a lock is asked for before a pair is changed without: a worker that was stopped in the middle of a change
must not stop the others. Without the lock a change of another worker may be lost."""
STATE, PID, BEAT, CONNECTIONS, BODY_BYTES, GENERATION = range(6)
COLUMNS = 8
ABSENT, STARTING, READY, LEAVING = range(4)


class Pairs(Protocol):
    """Pairs of numbers by name."""

    def change(self, name: str, step: PairChange) -> Pair:
        """Replaces the pair of a name by what `step` makes of it, and returns the new one."""
        ...

    def get(self, name: str) -> Pair | None:
        """Returns the pair of a name, or None."""
        ...


class OwnPairs:
    """Pairs of this process, at most `most`; the least recently changed one is dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pairs: OrderedDict[str, Pair] = OrderedDict()

    def change(self, name: str, step: PairChange) -> Pair:
        new = self._pairs[name] = step(self._pairs.get(name))
        self._pairs.move_to_end(name)
        if len(self._pairs) > self._most:
            self._pairs.popitem(last=False)
        return new

    def get(self, name: str) -> Pair | None:
        return self._pairs.get(name)

    def __len__(self) -> int:
        return len(self._pairs)


_ENTRY = struct.Struct("Qddd")  # hash of the name, time of the last change, the pair
_SET = struct.Struct("Qddd" * WAYS)
TABLE_BYTES = SETS * _SET.size


@kept(8 << 20, longest=128)
def _place(name: str) -> tuple[int, int]:
    """Returns the set of a name and its hash, which is never 0."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big") % SETS, int.from_bytes(digest[8:], "big") | 1


class SharedPairs:
    """Pairs of all workers. A name is kept as a hash of 64 bits."""

    def __init__(self, memory: mmap.mmap, start: int, locks: BinaryIO) -> None:
        """`start`: where the table begins, in bytes. `locks`: a file whose bytes stand for the sets of all tables."""
        self._memory, self._start, self._locks = memory, start, locks
        self._threads = Lock()

    def change(self, name: str, step: PairChange) -> Pair:
        number, tag = _place(name)
        with self._locked(number):
            at, found = self._find(number, tag)
            new = step(found)
            _ENTRY.pack_into(self._memory, at, tag, time.monotonic(), *new)
        return new

    def get(self, name: str) -> Pair | None:
        number, tag = _place(name)
        with self._locked(number):
            return self._find(number, tag)[1]

    def _find(self, number: int, tag: int) -> tuple[int, Pair | None]:
        """Returns where the entry of a hash is, and its pair. If there is none: where it may go, and None."""
        base = self._start + number * _SET.size
        fields = _SET.unpack_from(self._memory, base)
        for way in range(WAYS):
            if fields[4 * way] == tag:
                return base + way * _ENTRY.size, (fields[4 * way + 2], fields[4 * way + 3])
        oldest = min(range(WAYS), key=lambda way: fields[4 * way + 1])  # an empty entry has the time 0
        return base + oldest * _ENTRY.size, None

    @contextmanager
    def _locked(self, number: int) -> Iterator[None]:
        """Holds the lock of a set against other threads and processes, or gives up after `TRIES`."""
        byte, held = self._start + number, False
        with self._threads:
            for _ in range(TRIES):
                try:
                    fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                except OSError:
                    os.sched_yield()
                else:
                    held = True
                    break
            try:
                yield
            finally:
                if held:
                    fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, byte)


class Board:
    """A line of numbers for each worker, and one for the service: when it has to have ended, once it ends."""

    BYTES = (NUMBERS + 1) * COLUMNS * 8

    def __init__(self, memory: mmap.mmap, wanted: int) -> None:
        """`wanted`: how many workers the service has."""
        self._cells = memoryview(memory)[: self.BYTES].cast("d")
        self.wanted = wanted

    @property
    def ends_at(self) -> float:
        """When the service has to have ended, by `time.monotonic()`; 0 while it does not end."""
        return self._cells[0]

    @ends_at.setter
    def ends_at(self, moment: float) -> None:
        self._cells[0] = moment

    def write(self, number: int, column: int, value: float) -> None:
        """Writes a cell of the line of a worker."""
        self._cells[number * COLUMNS + column] = value

    def read(self, number: int, column: int) -> float:
        """Reads a cell of the line of a worker."""
        return self._cells[number * COLUMNS + column]

    def begin(self, number: int, generation: int) -> None:
        """Begins the line of a worker. `generation`: a number that no worker of this service had before."""
        self.write(number, GENERATION, generation)
        self.write(number, STATE, STARTING)

    def clear(self, number: int) -> None:
        """Empties the line of a worker that has ended."""
        for column in range(COLUMNS):
            self.write(number, column, 0)

    def numbers(self, *states: int) -> list[int]:
        """Returns the numbers of the workers in these states."""
        return [number for number in range(1, NUMBERS + 1) if self.read(number, STATE) in states]

    def processes(self) -> list[tuple[int, int, bool]]:
        """Returns number and process id of each worker, and whether it accepts connections."""
        living = self.numbers(STARTING, READY, LEAVING)
        return [(one, int(self.read(one, PID)), self.read(one, STATE) == READY) for one in living]

    def ready(self) -> int:
        """Returns how many workers accept connections."""
        return len(self.numbers(READY))

    def total(self, column: int) -> float:
        """Returns the sum of a column over all workers."""
        return sum(self.read(number, column) for number in range(1, NUMBERS + 1))


class SharedMemory:
    """The shared memory of one service. The supervisor makes it and hands it to its children by forking."""

    def __init__(self, wanted: int) -> None:
        memory = mmap.mmap(-1, Board.BYTES + len(TABLES) * TABLE_BYTES)
        self.board = Board(memory, wanted)
        self._locks = locks = _unnamed_file()
        starts = range(Board.BYTES, len(memory), TABLE_BYTES)
        self.tables = {name: SharedPairs(memory, at, locks) for name, at in zip(TABLES, starts, strict=True)}
        self.number = 0
        """Of this worker; 0 in the supervisor."""

    def close(self) -> None:
        """Releases what is not memory."""
        self._locks.close()


def _unnamed_file() -> BinaryIO:
    """Returns a file for locks alone, which nothing is written to."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("recalld-locks"), "w+b")
    return tempfile.TemporaryFile()


_shared: SharedMemory | None = None


def become(shared: SharedMemory, number: int) -> None:
    """Makes this process the worker of that number, from 1 on."""
    global _shared
    shared.number, _shared = number, shared
    shared.board.write(number, PID, os.getpid())


def number() -> int:
    """Returns the number of this worker; 0 if this process is none."""
    return _shared.number if _shared else 0


def board() -> Board | None:
    """Returns the board of the service; None if this process is no worker."""
    return _shared.board if _shared else None


def pairs(table: Literal["requests", "costs", "wrong_keys", "addresses"], most: int) -> Pairs:
    """Returns the pairs that the workers share in a table; if this process is no worker, new ones, at most `most`."""
    return _shared.tables[table] if _shared else OwnPairs(most)
