"""Accesses of memories. `AccessRecorder` counts them and writes them off the request's path, within a second, or within
some ten seconds if many memories are accessed: the decay of a memory starts anew with its accesses."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from app.core.clock import Clock, rfc3339, to_ms
from app.errors import StoreUnavailable
from app.memories.agents import Decays
from app.memories.schemas import MEMORIES, MemoryRecord
from app.retrieval.decay import DecayCurve, importance
from app.storage.changes import CommitConflict, Update
from app.storage.protocol import Store
from app.storage.schema import In

FLUSH_SECONDS = 0.4
AT_ONCE = 100
"""Memories that a flush writes, those that have waited longest. A memory that is accessed while it waits is written
once, and each write costs some 0.2 ms: searches read and check the memory anew."""
FLUSHES = 25
"""Where more wait, a flush writes this fraction of them, so that each is written within ten seconds."""
SAME_ANCHOR = timedelta(hours=1)
"""The decay of a memory does not start anew so soon: in an hour it loses less than a ten-thousandth. Then its row in
the search index stays as it is, and so do the columns that searches keep."""
MAX_WAITING = 100_000
MAX_RECENT = 1_000
"""Memories of which it is remembered that they were recalled, of all tenants."""
TRIES = 5
TOGETHER = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """`count` accesses of one memory, the last one at `at`."""

    tenant: str
    memory_id: str
    count: int
    at: datetime


class AccessRecorder:
    """Writes accesses in a background task; `note` costs a dictionary entry. A crash loses what is not yet written."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._waiting: dict[tuple[str, str], tuple[int, datetime]] = {}
        self._recent: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._flushing = asyncio.Lock()
        self._noted = asyncio.Event()

    def note(self, tenant: str, memory_ids: list[str]) -> None:
        """Counts one access of each memory, to be written later. It drops new memories while `MAX_WAITING` others
        wait."""
        now = self._clock.now()
        for memory_id in memory_ids:
            key = tenant, memory_id
            self._recent[key] = now
            self._recent.move_to_end(key)
            count, _ = self._waiting.get(key, (0, now))
            if count or len(self._waiting) < MAX_WAITING:
                self._waiting[key] = (count + 1, now)
        while len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        self._noted.set()

    def recent(self, tenant: str) -> list[tuple[str, datetime]]:
        """Returns the memories that this process recalled last, the latest first, each with the time."""
        return [(memory_id, at) for (owner, memory_id), at in reversed(self._recent.items()) if owner == tenant]

    async def run(self) -> None:
        """Writes accesses until it is cancelled. It sleeps while there are none."""
        while True:
            await self._noted.wait()
            await asyncio.sleep(FLUSH_SECONDS)
            self._noted.clear()
            await asyncio.shield(self.flush(max(AT_ONCE, len(self._waiting) // FLUSHES)))
            if self._waiting:
                self._noted.set()

    async def flush(self, most: int | None = None) -> None:
        """Writes what was noted, of `most` memories, after any flush that is under way. Accesses that cannot be written
        stay queued."""
        async with self._flushing:
            taken = {key: self._waiting.pop(key) for key in list(islice(self._waiting, most))}
            by_tenant: dict[str, list[Access]] = {}
            for (tenant, memory_id), (count, at) in taken.items():
                by_tenant.setdefault(tenant, []).append(Access(tenant, memory_id, count, at))
            pieces = [
                accesses[start : start + TOGETHER]
                for accesses in by_tenant.values()
                for start in range(0, len(accesses), TOGETHER)
            ]
            while pieces:  # one after another, so that searches, which share the thread, run in between
                if not await self._write(pieces.pop()):
                    break
            for piece in pieces:
                self._keep(piece)

    async def _write(self, accesses: list[Access]) -> bool:
        """Writes accesses in one commit, or one by one if other writers changed some of the memories meanwhile.

        Accesses that could not be written are queued again. Returns False if the store cannot be written at all.
        """
        try:
            if await self._record(accesses):
                return True
        except StoreUnavailable:
            self._keep(accesses)
            return False
        except Exception:
            log.exception("accesses not recorded together")
        for index, access in enumerate(accesses):
            try:
                if not await self._record_alone(access):
                    self._keep([access])
            except StoreUnavailable:
                self._keep(accesses[index:])
                return False
            except Exception:
                log.exception("access not recorded")
        return True

    def _keep(self, accesses: list[Access]) -> None:
        for access in accesses:
            more, later = self._waiting.get((access.tenant, access.memory_id), (0, access.at))
            self._waiting[access.tenant, access.memory_id] = (access.count + more, max(access.at, later))

    async def _record_alone(self, access: Access) -> bool:
        """Returns False if other writers changed the memory in each of `TRIES` attempts."""
        for _ in range(TRIES):
            if await self._record([access]):
                return True
        return False

    async def _record(self, accesses: list[Access]) -> bool:
        """Commits accesses if the anchors are unchanged since they were read, so that it never races decay or a PATCH.

        Returns False after a conflict.
        """
        tenant = accesses[0].tenant
        noted = {access.memory_id: access for access in accesses}
        memories = await self._store.find(MEMORIES, tenant, In("memory_id", tuple(noted)), limit=len(noted))
        decays = Decays(self._store, tenant)
        changes = list[Update[MemoryRecord]]()
        for memory in memories:
            access, last = noted[memory["memory_id"]], memory["last_accessed"]
            changes.append(
                Update(
                    MEMORIES,
                    tenant,
                    access.memory_id,
                    set=_touched(memory, access.at, await decays.of(memory["agent_id"])),
                    inc={"access_count": access.count},
                    expect={
                        "anchored_at": memory["anchored_at"],
                        "base_importance": memory["base_importance"],
                        "last_accessed": last,
                        "version": memory["version"],
                    },
                )
            )
        try:
            if changes:
                await self._store.commit(changes)
        except CommitConflict:
            return False
        return True


def _touched(memory: MemoryRecord, at: datetime, decay: DecayCurve) -> MemoryRecord:
    """Returns the fields of an accessed memory: the base becomes the importance at that time.

    An access that arrives late does not move the anchor back, and one soon after the last leaves it where it is.
    """
    moment = rfc3339(at)
    last = max(moment, memory["last_accessed"] or "")
    if memory["anchored_at"] > rfc3339(at - SAME_ANCHOR):  # also a passage, `TIMELESS`: it never fades
        return {"last_accessed": last}
    value = importance(memory["base_importance"], to_ms(memory["anchored_at"]), to_ms(at), memory["pinned"], decay)
    return {"last_accessed": last, "anchored_at": moment, "base_importance": value, "importance": value}
