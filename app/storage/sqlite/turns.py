"""What waits for the writer's thread, by tenant: tenants take turns, so that none waits for all writes of another."""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

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
