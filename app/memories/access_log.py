"""Recalled memories are noted, off the request's path, within a second: counted, and their fading starts anew."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime

from app.core.clock import Clock, rfc3339, to_ms
from app.errors import StoreUnavailable
from app.memories.decay_settings import Decays
from app.memories.models import MEMORIES
from app.resources import AgentSettingsReader
from app.retrieval.decay import DecayCurve, importance
from app.storage.changes import CommitConflict, Update
from app.storage.filters import In
from app.storage.protocol import Store
from app.storage.schema import Doc

FLUSH_SECONDS = 0.4
MAX_WAITING = 100_000
TRIES = 5
TOGETHER = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """`count` times, the last time `at`."""

    tenant: str
    memory_id: str
    count: int
    at: datetime


class AccessRecorder:
    """Runs as a task of the service; `note` costs a dictionary entry. A crash loses what was not yet written."""

    def __init__(self, store: Store, agents: AgentSettingsReader, clock: Clock) -> None:
        self._store, self._agents, self._clock = store, agents, clock
        self._waiting: dict[tuple[str, str], tuple[int, datetime]] = {}
        self._flushing = asyncio.Lock()
        self._noted = asyncio.Event()

    def note(self, tenant: str, memory_ids: list[str]) -> None:
        now = self._clock.now()
        for memory_id in memory_ids:
            count, _ = self._waiting.get((tenant, memory_id), (0, now))
            if count or len(self._waiting) < MAX_WAITING:
                self._waiting[(tenant, memory_id)] = (count + 1, now)
        self._noted.set()

    async def run(self) -> None:
        """Until cancelled. Sleeps while nothing is recalled."""
        while True:
            await self._noted.wait()
            await asyncio.sleep(FLUSH_SECONDS)
            self._noted.clear()
            await asyncio.shield(self.flush())
            if self._waiting:
                self._noted.set()

    async def flush(self) -> None:
        """Writes what was noted, after what is being written. A store that cannot be written keeps it waiting."""
        async with self._flushing:
            await self._flush()

    async def _flush(self) -> None:
        taken, self._waiting = self._waiting, {}
        by_tenant: dict[str, list[Access]] = {}
        for (tenant, memory_id), (count, at) in taken.items():
            by_tenant.setdefault(tenant, []).append(Access(tenant, memory_id, count, at))
        pieces = [all_of[at : at + TOGETHER] for all_of in by_tenant.values() for at in range(0, len(all_of), TOGETHER)]
        while pieces:  # one after another: searches, which share the thread, come between
            if not await self._write(pieces.pop()):
                break
        for piece in pieces:
            self._keep(piece)

    async def _write(self, accesses: list[Access]) -> bool:
        """In one commit, which is one version of each scope, or one by one where others changed some of the memories
        meanwhile. What could not be written waits again. False: the store cannot be written at all."""
        try:
            if await self._record(accesses):
                return True
        except StoreUnavailable:
            self._keep(accesses)
            return False
        except Exception:
            log.exception("accesses not recorded together")
        for at, access in enumerate(accesses):
            try:
                if not await self._record_alone(access):
                    self._keep([access])
            except StoreUnavailable:
                self._keep(accesses[at:])
                return False
            except Exception:
                log.exception("access not recorded")
        return True

    def _keep(self, accesses: list[Access]) -> None:
        for access in accesses:
            more, later = self._waiting.get((access.tenant, access.memory_id), (0, access.at))
            self._waiting[access.tenant, access.memory_id] = (access.count + more, max(access.at, later))

    async def _record_alone(self, access: Access) -> bool:
        """False: others changed the memory again and again."""
        for _ in range(TRIES):
            if await self._record([access]):
                return True
        return False

    async def _record(self, accesses: list[Access]) -> bool:
        """A conditional write: it starts from the anchors that it read, so that it never races decay or a PATCH."""
        tenant = accesses[0].tenant
        noted = {access.memory_id: access for access in accesses}
        docs = await self._store.find(MEMORIES, tenant, In("memory_id", tuple(noted)), limit=len(noted))
        decays = Decays(self._agents, tenant)
        changes = [_change(doc, noted[doc["memory_id"]], await decays.of(doc["agent_id"])) for doc in docs]
        try:
            if changes:
                await self._store.commit(changes)
        except CommitConflict:
            return False
        return True


def _change(doc: Doc, access: Access, decay: DecayCurve) -> Update:
    return Update(
        MEMORIES,
        access.tenant,
        access.memory_id,
        set=_touched(doc, access.at, decay),
        inc={"access_count": access.count},
        expect={name: doc[name] for name in ("anchored_at", "base_importance", "last_accessed", "version")},
    )


def _touched(doc: Doc, at: datetime, decay: DecayCurve) -> Doc:
    """Base becomes the value at that moment; an access that comes late moves nothing back."""
    moment = rfc3339(at)
    last = max(moment, str(doc["last_accessed"] or ""))
    if str(doc["anchored_at"]) >= moment:
        return {"last_accessed": last}
    value = importance(doc["base_importance"], to_ms(doc["anchored_at"]), to_ms(at), doc["pinned"], decay)
    return {"last_accessed": last, "anchored_at": moment, "base_importance": value, "importance": value}
