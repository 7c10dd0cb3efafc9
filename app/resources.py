"""What lifespan builds and endpoints' dependencies read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

from app.core.clock import Clock
from app.embedding.embedder import Embedder
from app.llm.base import LLM
from app.retrieval.reranking import SecondStage
from app.settings import Settings
from app.storage.protocol import Store
from app.storage.schema import Collection


class AccessLog(Protocol):
    """Takes note that memories were recalled; written off the request's path."""

    def note(self, tenant: str, memory_ids: list[str]) -> None: ...


class AgentSettingsReader(Protocol):
    """What lower layers need of an agent's settings."""

    async def of(self, tenant: str, agent_id: str) -> Mapping[str, Any] | None:
        """`decay` (`factor`, `grace_days`, `floor`) and `min_importance`; None where the agent is not registered."""
        ...


class Limiter(Protocol):
    def check(self, key_id: str, per_second: float | None) -> None:
        """`per_second`: the key's own limit, in place of the setting's. Raises RateLimited."""
        ...


class JobRunner(Protocol):
    async def carry_out(self, job_id: str, seconds: float) -> None:
        """Runs a queued job now, whatever else runs, also where `RECALLD_JOBS_ENABLED` is false. Returns when the run
        has ended, well or not, or after `seconds`: the run then goes on. Raises StoreUnavailable."""
        ...


class KeylessCheck(Protocol):
    """Whether requests without an API key are served."""

    @property
    def ended(self) -> bool:
        """True once a key was seen; it stays so."""
        ...

    async def allowed(self) -> bool: ...

    async def end(self) -> None:
        """A key was seen or made."""
        ...


@dataclass(slots=True)
class Lifecycle:
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    settings: Settings
    store: Store
    embedder: Embedder
    clock: Clock
    accesses: AccessLog
    limiter: Limiter
    agents: AgentSettingsReader
    jobs: JobRunner
    keyless: KeylessCheck
    llm: LLM | None = None
    second_stage: SecondStage | None = None
    """Reranks the first hits of callers' hybrid searches. Background work goes without."""
    collections: Sequence[Collection] = ()
    """All that is stored, for what concerns every feature: erasing and exporting a user."""
    lifecycle: Lifecycle = field(default_factory=Lifecycle)


class State(TypedDict):
    resources: Resources
