"""The decay job: writes down for the indexes what reads compute anyway, and shows what it would change."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.clock import Clock, rfc3339, to_ms
from app.jobs.runner import Done, Run
from app.memories.models import MEMORIES
from app.memories.strength import DEFAULT_DECAY, Decay, importance
from app.profiles.models import AGENTS
from app.storage.collection import Doc, Store
from app.storage.filters import EVERYTHING, And, Eq, Filter, In, Not, Or
from app.storage.repository import pages
from app.storage.rules import Fade
from app.storage.scope import SYSTEM

BATCH = 500
BARS = 10
WORTH_WRITING = 0.01
"""Reads compute importance anyway: what is written down may lag by less than this, and is written after some 20 days
instead of each hour."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the memories that fades alike: an agent's with settings of its own, or all the others."""

    decay: Decay
    where: Filter


class DecayJob:
    """`least`: what has moved by less is not written down."""

    def __init__(self, store: Store, clock: Clock, least: float = 0.0) -> None:
        self._store, self._clock, self._least = store, clock, least

    async def handle(self, run: Run) -> Done:
        tenant = None if run.tenant == SYSTEM else run.tenant
        if run.payload.get("dry_run"):
            return Done(await self.dry_run(tenant))
        return Done({"changed": await self.apply(tenant)})

    async def has_work(self) -> bool:
        """Whether anything has faded so far that it is to be written down. Reads only."""
        now = rfc3339(self._clock.now())
        for share in await self._shares(None):
            if await self._store.would_change(MEMORIES, None, self._rule(share, now), share.where):
                return True
        return False

    async def apply(self, tenant: str | None) -> int:
        """How many memories were given another importance. Tenant None is every tenant."""
        now, shares = rfc3339(self._clock.now()), await self._shares(tenant)
        return sum([await self._store.apply(MEMORIES, tenant, self._rule(one, now), one.where) for one in shares])

    def _rule(self, share: Share, now: str) -> Fade:
        decay = share.decay
        return Fade(now, float(decay.factor), float(decay.grace_days), float(decay.floor), self._least)

    async def dry_run(self, tenant: str | None, step: Any = lambda seen: None) -> Doc:
        """Histograms of importance as it was written down and as it is now; `step` is told how many were seen."""
        now_ms = to_ms(self._clock.now())
        before, after, seen = [0] * BARS, [0] * BARS, 0
        for share in await self._shares(tenant):
            async for docs in pages(partial(self._store.find, MEMORIES, tenant, share.where), MEMORIES, BATCH):
                for doc in docs:
                    faded = importance(
                        doc["base_importance"], to_ms(doc["anchored_at"]), now_ms, doc["pinned"], share.decay
                    )
                    before[bar_of(doc["importance"])] += 1
                    after[bar_of(faded)] += 1
                seen += len(docs)
                step(seen)
        return {"memories": seen, "before": before, "after": after}

    async def _shares(self, tenant: str | None) -> list[Share]:
        """Every memory is in one of them, and in one only."""
        own: dict[Decay, dict[str, list[str]]] = {}
        async for docs in pages(partial(self._store.find, AGENTS, tenant), AGENTS, BATCH):
            for doc in docs:
                if (decay := decay_of(doc)) != DEFAULT_DECAY:
                    own.setdefault(decay, {}).setdefault(doc["tenant_id"], []).append(doc["agent_id"])
        named = {decay: _any_of([_agents_of(*one) for one in tenants.items()]) for decay, tenants in own.items()}
        rest = Share(DEFAULT_DECAY, Not(_any_of(list(named.values()))) if named else EVERYTHING)
        return [rest, *(Share(decay, where) for decay, where in named.items())]


def _agents_of(tenant: str, agents: list[str]) -> Filter:
    return And((Eq("tenant_id", tenant), In("agent_id", tuple(agents))))


def _any_of(parts: list[Filter]) -> Filter:
    """A balanced tree: engines bound the depth of an expression."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Or((_any_of(parts[:half]), _any_of(parts[half:])))


def decay_of(agent: Doc) -> Decay:
    return Decay(**agent["settings"]["decay"])


def histogram(counts: Iterable[int]) -> list[str]:
    """Names of the bars: `0.0–0.1` and so on."""
    return [f"{at / BARS:.1f}–{(at + 1) / BARS:.1f}" for at, _ in enumerate(counts)]


def bar_of(value: float) -> int:
    return min(int(value * BARS), BARS - 1)
