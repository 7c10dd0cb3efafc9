"""Dependencies of learning jobs, and their report."""

from dataclasses import dataclass
from typing import Any

from app.core.clock import Clock
from app.core.schemas import Json
from app.core.tuning import USUAL, Tuning
from app.embedding.embedder import Embedder
from app.errors import LLMBudgetSpent, LLMUnavailable, RecalldError
from app.facts.keys import USERS
from app.facts.repository import FactRepository
from app.facts.schemas import FACTS
from app.facts.service import FactService
from app.learning.allowance import TenantAllowance
from app.learning.derivations import DerivationResult
from app.memories.embedding import Embeddings
from app.memories.repository import MemoryRepository
from app.memories.service import MemoryService
from app.profiles.merge import ProfileReader
from app.profiles.users import UserService
from app.retrieval.retriever import Retriever
from app.settings import Settings
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.scope import Scope
from app.writes.executor import IfMatch

ALWAYS = IfMatch(None)
"""A precondition that is always met."""


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
        """Returns the user service for a scope."""
        memories = MemoryService(MemoryRepository(self.store, scope), Embeddings(self.embedder), self.clock)
        users = Repository(self.store, scope, USERS)
        return UserService(users, self.facts(scope), memories, self.clock)

    def facts(self, scope: Scope) -> FactService:
        """Returns the fact service for a scope."""
        lookup = Retriever(self.store, scope, self.embedder, FACTS)
        return FactService(FactRepository(self.store, scope), Embeddings(self.embedder), lookup, self.clock)

    def profiles(self, scope: Scope) -> ProfileReader:
        """Returns the reader of profiles for a scope."""
        return ProfileReader(self.store, scope, self.clock)


NO_LLM = "no language model is configured"
SMALL_TALK_ONLY = "the messages are small talk"


class Unfinished(RecalldError):
    """Some parts failed. The job is retried for these parts only."""


class Report:
    """The outcome of each part of a learning job, over all chunks of the conversation."""

    def __init__(self) -> None:
        self.parts: dict[str, Json] = {}
        self.failed: dict[str, str] = {}
        self.unreachable: LLMUnavailable | LLMBudgetSpent | None = None
        """Why no further part can be asked for in this run."""
        self.done = False

    def add(self, name: str, result: DerivationResult, *, by_earlier_try: bool = False) -> None:
        """Adds the result of a part: counts and lists accumulate. What an earlier try of the job had done is no
        progress of this one."""
        self.done = self.done or not by_earlier_try
        part = self.parts.setdefault(name, {})
        part["status"] = "done"
        part.pop("reason", None)
        for key, value in result.items():
            part[key] = _sum(part.get(key), value)

    @property
    def waits(self) -> bool:
        """True if the parts that failed can go on at a known time, on which they wait."""
        return self.unreachable is not None and self.unreachable.until is not None

    def unfinished(self) -> "Unfinished":
        """Returns the error with which a job ends that is to run again for the parts that failed."""
        error = Unfinished("; ".join(f"{name}: {why}" for name, why in self.failed.items()))
        error.until = None if self.unreachable is None else self.unreachable.until
        return error

    def skip(self, name: str, why: str) -> None:
        """Notes that a part was skipped, unless it has an outcome."""
        self.parts.setdefault(name, {"status": "skipped", "reason": why})

    def fail(self, name: str, why: str) -> None:
        """Notes that a part failed."""
        self.failed[name] = why
        self.parts[name] = {**self.parts.get(name, {}), "status": "failed", "reason": why}


def _sum(old: Any, new: Any) -> Any:
    """Adds up counts and lists; of texts the last one is kept."""
    if old is None or isinstance(new, str):
        return new
    if isinstance(new, dict):
        return {key: _sum(old.get(key), new.get(key, 0)) for key in {**old, **new}}
    return old + new
