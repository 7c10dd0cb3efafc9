"""Whose turn it is at the model: queries come between pieces of bulk work, and tenants take turns with their pieces."""

from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from app.embedding.request import Request

URGENT_IN_A_ROW = 8
"""After so many runs of queries one piece of bulk work has its turn, so that a flood of queries stops no write."""

_TENANT: ContextVar[str] = ContextVar("embedding_tenant", default="")


def work_for(tenant: str) -> None:
    """What is embedded from now on, in this context and in tasks begun in it, is this tenant's."""
    _TENANT.set(tenant)


def tenant_at_work() -> str:
    return _TENANT.get()


class Turns:
    """The requests that wait, in lanes: one of queries, and one of bulk work for each tenant."""

    def __init__(self) -> None:
        self._urgent: deque[Request] = deque()
        self._tenants: dict[str, deque[Request]] = {}  # the first one is next
        self._served = ""
        self._urgent_runs = 0

    def __bool__(self) -> bool:
        return any(self._lanes())

    def add(self, request: Request) -> None:
        lane = self._urgent if request.urgent else self._tenants.setdefault(request.tenant, deque())
        lane.append(request)

    def drain(self) -> list[Request]:
        """All that waits, which is then forgotten."""
        requests = [request for lane in self._lanes() for request in lane]
        self._urgent.clear()
        self._tenants.clear()
        return requests

    def next_lane(self, prune: Callable[[deque[Request]], None]) -> deque[Request] | None:
        """The lane that goes next. `prune` takes out of a lane what nobody waits for."""
        for lane in self._lanes():
            prune(lane)
        self._tenants = {tenant: lane for tenant, lane in self._tenants.items() if lane}
        if self._urgent and self._tenants and self._urgent_runs < URGENT_IN_A_ROW:
            self._urgent_runs += 1
            return self._urgent
        self._urgent_runs = 0
        if not self._tenants:
            return self._urgent or None
        if self._served in self._tenants:  # only now, so that a tenant that came meanwhile goes before it
            self._tenants[self._served] = self._tenants.pop(self._served)
        self._served = next(iter(self._tenants))
        return self._tenants[self._served]

    def _lanes(self) -> Iterator[deque[Request]]:
        yield self._urgent
        yield from self._tenants.values()
