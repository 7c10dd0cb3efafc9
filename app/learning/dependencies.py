"""What learning jobs use: resources, services for a scope, and the tokens that a tenant may spend on a day."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from app.core.clock import Clock
from app.core.tuning import USUAL, Tuning
from app.embedding.embedder import Embedder
from app.errors import LLMBudgetSpent, StoreUnavailable
from app.facts.profile import USERS
from app.facts.repository import FactRepository
from app.facts.schemas import FACTS
from app.facts.service import FactService
from app.memories.repository import Embeddings, MemoryRepository
from app.memories.service import MemoryService
from app.metrics import LLM_USAGE
from app.profiles.users import ProfileReader, UserService
from app.retrieval.retriever import Retriever
from app.settings import Settings
from app.storage.changes import Change, CommitConflict, Insert, Update
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import BaseRecord, Collection
from app.storage.scope import Scope
from app.writes.executor import Precondition


class LLMDayRecord(BaseRecord, total=False):
    """A document of the collection `llm_days`: the UTC day of the last call and its calls and tokens."""

    usage_id: str
    day: str
    calls: int
    tokens: int


LLM_DAYS: Collection[LLMDayRecord] = Collection(name="llm_days", id_field="usage_id", fields={}, audited=False)
"""One record for each tenant: the UTC day of the last call, and its calls and tokens."""
USAGE_ID = "usage"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TenantAllowance:
    """The tokens that a tenant may spend on one UTC day, over all processes. `limit` 0: any number, and none is
    counted in the store."""

    store: Store
    clock: Clock
    tenant: str
    limit: int

    async def reserve(self, tokens: int) -> None:
        """Counts a call whose prompt has `tokens` tokens, before it is made.

        Raises LLMBudgetSpent with the figures and the end of the day if the day's tokens do not allow it.
        """
        if not self.limit:
            return
        while True:
            now = self.clock.now()
            day, usage = _day(now), await self.store.get(LLM_DAYS, self.tenant, USAGE_ID)
            calls, spent = (usage["calls"], usage["tokens"]) if usage is not None and usage["day"] == day else (0, 0)
            if spent + tokens > self.limit:
                raise self._spent(spent, now)
            fields: LLMDayRecord = {"day": day, "calls": calls + 1, "tokens": spent + tokens}
            counted: Change
            if usage is None:
                counted = Insert(LLM_DAYS, {"tenant_id": self.tenant, "usage_id": USAGE_ID, **fields})
            else:
                same: LLMDayRecord = {"day": usage["day"], "calls": usage["calls"], "tokens": usage["tokens"]}
                counted = Update(LLM_DAYS, self.tenant, USAGE_ID, set=fields, expect=same)
            try:
                await self.store.commit([counted])
            except CommitConflict:
                continue  # another call was counted meanwhile
            return

    async def settle(self, reserved: int, spent: Mapping[str, int]) -> None:
        """Counts what a call has spent beyond the tokens that were reserved. `spent` has calls, tokens and
        cached_tokens."""
        for kind, number in spent.items():
            LLM_USAGE.labels(self.tenant, kind).inc(number)
        if not self.limit:
            return
        more, today = {"tokens": spent["tokens"] - reserved}, {"day": _day(self.clock.now())}
        try:
            await self.store.commit([Update(LLM_DAYS, self.tenant, USAGE_ID, inc=more, expect=today)])
        except CommitConflict:
            return  # the day is over: what it spent no longer matters
        except StoreUnavailable as error:
            log.warning("tokens were not counted", extra={"error": error.detail})

    def _spent(self, spent: int, now: datetime) -> LLMBudgetSpent:
        tomorrow = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
        error = LLMBudgetSpent(
            f"This tenant may spend {self.limit} tokens of the language model a day (RECALLD_LLM_TOKENS_PER_DAY), and "
            f"has spent {spent} today. It goes on at {tomorrow:%Y-%m-%dT%H:%M:%SZ}.",
            retry_after=max(1, round((tomorrow - now).total_seconds())),
        )
        error.until = tomorrow
        return error


def _day(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()


NO_PRECONDITION = Precondition(None)
"""A job has read no header: its precondition is always met."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Resources that learning jobs use."""

    store: Store
    embedder: Embedder
    clock: Clock
    settings: Settings
    tuning: Tuning = USUAL

    def allowance(self, tenant: str) -> TenantAllowance:
        """Returns the tokens that the tenant may spend on a day."""
        return TenantAllowance(self.store, self.clock, tenant, self.settings.llm.tokens_per_day)

    def users(self, scope: Scope) -> UserService:
        memories = MemoryService(MemoryRepository(self.store, scope), Embeddings(self.embedder), self.clock)
        users = Repository(self.store, scope, USERS)
        return UserService(users, self.facts(scope), memories, self.clock)

    def facts(self, scope: Scope) -> FactService:
        retriever = Retriever(self.store, scope, self.embedder, FACTS)
        return FactService(FactRepository(self.store, scope), Embeddings(self.embedder), retriever, self.clock)

    def profiles(self, scope: Scope) -> ProfileReader:
        return ProfileReader(self.store, scope, self.clock)
