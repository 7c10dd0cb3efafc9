"""What the workers of one service know of each other: a line of numbers for each.

The supervisor makes the lines in memory that its children inherit, and a worker writes its own only. A process that is
no worker has none: `current()` returns None.
"""

import ctypes
import mmap
import os

MOST_WORKERS = 64
NUMBERS = 2 * MOST_WORKERS + 1
"""Numbers of workers. A restart starts the new one beside the old one."""


class Line(ctypes.Structure):
    """What a worker says of itself; all 0 where there is none."""

    pid: int
    accepts: bool
    """Whether it accepts connections."""
    connections: int
    """How many it has open."""
    beats: int
    """Rises while its event loop turns."""
    needs_key: bool
    """Whether a request needs a key."""
    _fields_ = (
        ("pid", ctypes.c_int),
        ("accepts", ctypes.c_bool),
        ("connections", ctypes.c_int),
        ("beats", ctypes.c_uint),
        ("needs_key", ctypes.c_bool),
    )


class Workers:
    """The workers of one service. Numbers begin with 1."""

    def __init__(self, wanted: int) -> None:
        """`wanted`: how many the service has. Made by the supervisor."""
        self.wanted, self.supervisor, self.number = wanted, os.getpid(), 0
        self._lines = (Line * NUMBERS).from_buffer(mmap.mmap(-1, NUMBERS * ctypes.sizeof(Line)))

    def line(self, number: int) -> Line:
        return self._lines[number - 1]

    def clear(self, number: int) -> None:
        """Empties the line of a worker that has ended."""
        self._lines[number - 1] = Line()

    @property
    def own(self) -> Line:
        return self.line(self.number)

    def living(self) -> list[tuple[int, int, bool]]:
        """Returns number and process id of each worker, and whether it accepts connections."""
        return [(number, line.pid, line.accepts) for number, line in enumerate(self._lines, 1) if line.pid]

    def ready(self) -> int:
        """Returns how many workers accept connections."""
        return sum(line.accepts for line in self._lines)

    def fewest_connections(self) -> float:
        """Returns how many connections the worker has that accepts more and has the fewest."""
        return min((line.connections for line in self._lines if line.accepts), default=float("inf"))


_current: Workers | None = None


def become(service: Workers, number: int) -> None:
    """Makes this process the worker of that number."""
    global _current  # noqa: PLW0603 (a process is a worker for its whole life)
    _current = service
    service.number = number
    service.own.pid = os.getpid()


def current() -> Workers | None:
    """Returns the workers of the service that this process is one of; None if it is none."""
    return _current


def part_of(total: int) -> int:
    """Returns what this process has of a total that holds for all workers of the service."""
    return total if _current is None else total // _current.wanted
