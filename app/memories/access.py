"""Recalled memories are noted, off the request's path, within a second: counted, and their fading starts anew."""

import asyncio
import logging
from datetime import datetime

from app.clock import Clock, rfc3339, to_ms
from app.errors import StoreUnavailable
from app.memories.decays import Decays
from app.memories.models import MEMORIES
from app.memories.strength import Decay, importance
from app.state import AgentSettings
from app.storage.collection import CommitConflict, Doc, Store, Update

FLUSH_SECONDS = 0.4
MAX_WAITING = 100_000
TRIES = 5

log = logging.getLogger(__name__)


class AccessRecorder:
    """Runs as a task of the service; `note` costs a dictionary entry. A crash loses what was not yet written."""

    def __init__(self, store: Store, agents: AgentSettings, clock: Clock) -> None:
        self._store, self._agents, self._clock = store, agents, clock
        self._waiting: dict[tuple[str, str], tuple[int, datetime]] = {}
        self._flushing = asyncio.Lock()

    def note(self, tenant: str, memory_ids: list[str]) -> None:
        now = self._clock.now()
        for memory_id in memory_ids:
            count, _ = self._waiting.get((tenant, memory_id), (0, now))
            if count or len(self._waiting) < MAX_WAITING:
                self._waiting[(tenant, memory_id)] = (count + 1, now)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await asyncio.shield(self.flush())

    async def flush(self) -> None:
        """Writes what was noted, after what is being written. A store that cannot be written keeps it waiting."""
        async with self._flushing:
            await self._flush()

    async def _flush(self) -> None:
        taken, self._waiting = self._waiting, {}
        writes = [self._record(*which, *what) for which, what in taken.items()]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        for (which, (count, at)), outcome in zip(taken.items(), outcomes, strict=True):
            if outcome is False or isinstance(outcome, StoreUnavailable):
                more, later = self._waiting.get(which, (0, at))
                self._waiting[which] = (count + more, max(at, later))
            elif isinstance(outcome, BaseException):
                log.error("access not recorded", exc_info=outcome)

    async def _record(self, tenant: str, memory_id: str, count: int, at: datetime) -> bool:
        """One conditional write: it starts from the anchors that it read, so that it never races decay or a PATCH.

        False: others changed the memory again and again."""
        for _ in range(TRIES):
            doc = await self._store.get(MEMORIES, tenant, memory_id)
            if doc is None:
                return True
            change = Update(
                MEMORIES,
                tenant,
                memory_id,
                set=_touched(doc, at, await Decays(self._agents, tenant).of(doc["agent_id"])),
                inc={"access_count": count},
                expect={name: doc[name] for name in ("anchored_at", "base_importance", "last_accessed", "version")},
            )
            try:
                await self._store.commit([change])
            except CommitConflict:
                continue
            return True
        return False


def _touched(doc: Doc, at: datetime, decay: Decay) -> Doc:
    """Base becomes the value at that moment; an access that comes late moves nothing back."""
    moment = rfc3339(at)
    last = max(moment, str(doc["last_accessed"] or ""))
    if str(doc["anchored_at"]) >= moment:
        return {"last_accessed": last}
    value = importance(doc["base_importance"], to_ms(doc["anchored_at"]), to_ms(at), doc["pinned"], decay)
    return {"last_accessed": last, "anchored_at": moment, "base_importance": value, "importance": value}
