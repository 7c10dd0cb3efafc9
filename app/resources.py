"""The resources that the lifespan builds and the dependencies of endpoints read."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypedDict

from app.core.clock import Clock
from app.core.limits import CostLimiter, RateLimiter, WrongKeyLimiter
from app.core.tuning import USUAL, Tuning
from app.embedding.embedder import Embedder
from app.embedding.reranking import SecondStage
from app.jobs.runner import Runner
from app.llm.base import LLM
from app.retrieval.retriever import Hit, Retriever
from app.settings import Settings
from app.storage.protocol import Store
from app.storage.schema import Collection, R
from app.storage.scope import Scope, Viewpoint
from app.storage.search import NameSource


class AccessLog(Protocol):
    """Records that memories were recalled. It writes outside the request."""

    def note(self, tenant: str, memory_ids: list[str]) -> None:
        """Records a recall of the memories, to be written later."""

    def recent(self, tenant: str) -> list[tuple[str, datetime]]:
        """Returns the memories that this process recalled last, the latest first, each with the time."""


class TokenReader(Protocol):
    """Reads bearer tokens of an OpenID Connect issuer."""

    async def principal(self, token: str) -> Any:
        """Returns the principal (`app.auth.keys.Principal`) of a token. Raises Unauthorized, Forbidden or
        IssuerUnavailable."""

    async def close(self) -> None:
        """Closes the connections to the issuer."""


class Gauges(Protocol):
    """Counts what is stored and what waits, for the metrics."""

    async def refresh(self) -> None:
        """Counts anew, unless that was done just now. Raises nothing."""


class KeylessCheck(Protocol):
    """Decides whether requests without an API key are served."""

    @property
    def ended(self) -> bool:
        """True once a key was seen. It never becomes false again."""

    async def allowed(self) -> bool:
        """Returns whether a request without a key may be served now."""

    async def end(self) -> None:
        """Records that a key was seen or made."""


@dataclass(slots=True)
class Lifecycle:
    """The state of the process. `draining`: the service ends. `replaced`: this worker ends, and another goes on."""

    draining: bool = False
    replaced: bool = False

    @property
    def ends(self) -> bool:
        return self.draining or self.replaced


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that endpoints share, built once by the lifespan."""

    settings: Settings
    store: Store
    embedder: Embedder
    clock: Clock
    accesses: AccessLog
    limiter: RateLimiter
    costs: CostLimiter
    wrong_keys: WrongKeyLimiter
    jobs: Runner
    keyless: KeylessCheck
    what_holds_first: Callable[[Store, Scope, Viewpoint, Sequence[Hit[Any]]], Awaitable[list[Hit[Any]]]]
    """Puts hits that state what holds now before those that they replaced: the function in
    `app/findings/replacing.py`. It reads facts and findings, which lie above memories, so the lifespan names it."""
    llm: LLM | None = None
    second_stage: SecondStage | None = None
    """Reranks the first hits of callers' hybrid searches."""
    tokens: TokenReader | None = None
    """Set if an issuer is configured."""
    collections: Sequence[Collection] = ()
    """All collections, for features that concern every kind of record: erasing and exporting a user."""
    gauges: Gauges | None = None
    names: NameSource | None = None
    """The names that callers' searches take for one."""
    stats: dict[Scope, asyncio.Task[Any]] = field(default_factory=dict)
    """The counts of each scope, for the seconds that they are shown without counting anew."""
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    tuning: Tuning = USUAL

    def retriever(self, scope: Scope, collection: Collection[R]) -> Retriever[R]:
        """Returns the retriever of a caller's searches: with the second stage, if there is one, and with the names that
        aliases join for one. Background work does without both and makes its own."""
        return Retriever(self.store, scope, self.embedder, collection, self.second_stage, self.names)


class State(TypedDict):
    """The lifespan state of the application."""

    resources: Resources
