"""The job that writes down how importance has decayed, and histograms of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

from app.core.clock import Clock, rfc3339, to_ms
from app.jobs import skipping
from app.jobs.runner import Done, Run
from app.jobs.skipping import handled
from app.memories.agents import AGENTS, AgentRecord
from app.memories.schemas import MEMORIES, MemoryRecord
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve, importance
from app.storage.protocol import DecayRule, Store
from app.storage.repository import having, pages
from app.storage.schema import EVERYTHING, And, Eq, Filter, In, Not, Or, both
from app.storage.scope import SYSTEM, Scope

BATCH = 500
BARS = 10
"""The number of bars of a histogram."""
WORTH_WRITING = 0.01
"""The least change that is stored. Reads compute importance anyway, so stored values may lag by less than this; they
are written about every 20 days instead of each hour."""


@dataclass(frozen=True, slots=True)
class DecayGroup:
    """Memories with the same decay: those of agents with the same settings of their own, or all others."""

    decay: DecayCurve
    where: Filter


class Histograms(TypedDict):
    """The number of memories, and of those in each bar of their stored and of their current importance."""

    memories: int
    before: list[int]
    after: list[int]


class DecayJob:
    """Stores decayed importance. Changes of less than `least` are not stored."""

    def __init__(self, store: Store, clock: Clock, least: float = 0.0) -> None:
        self._store, self._clock, self._least = store, clock, least

    async def handle(self, run: Run) -> Done:
        """Runs the job for one tenant or, under `SYSTEM`, for all."""
        tenant = None if run.tenant == SYSTEM else run.tenant
        bound = Scope.of_bindings(run.tenant, run.payload).writable()
        within = both(having(run.payload, "agent_id", "user_id"), bound)
        if run.payload.get("dry_run"):
            return Done({**await self.dry_run(tenant, within=within)})
        for memory_id in await self._store.undecayable(MEMORIES, tenant, within):
            skipping.note(MEMORIES, memory_id, ValueError.__name__)
        return Done({"changed": await self.apply(tenant, within)})

    async def has_work(self) -> bool:
        """Returns True if any importance has decayed far enough to be stored. Only reads."""
        now = rfc3339(self._clock.now())
        for group in await self._groups(None):
            if await self._store.would_change(MEMORIES, None, self._rule(group, now), group.where):
                return True
        return False

    async def apply(self, tenant: str | None, within: Filter = EVERYTHING) -> int:
        """Stores decayed importance of memories that match `within`. Returns the number of changed memories. Tenant
        None means every tenant."""
        now, changed = rfc3339(self._clock.now()), 0
        for group in await self._groups(tenant):
            rule = self._rule(group, now)
            changed += await self._store.apply(MEMORIES, tenant, rule, both(group.where, within))
        return changed

    def _rule(self, group: DecayGroup, now: str) -> DecayRule:
        decay = group.decay
        return DecayRule(now, float(decay.factor), float(decay.grace_days), float(decay.floor), self._least)

    async def dry_run(
        self, tenant: str | None, step: Callable[[int], object] = lambda seen: None, within: Filter = EVERYTHING
    ) -> Histograms:
        """Returns histograms of the stored and of the current importance of memories that match `within`. Calls `step`
        with the number of memories read so far."""
        now_ms = to_ms(self._clock.now())
        before, after, seen = [0] * BARS, [0] * BARS, 0
        for group in await self._groups(tenant):
            where = both(group.where, within)
            async for memories in pages(partial(self._store.find, MEMORIES, tenant, where), MEMORIES, BATCH):
                for _, (stored, faded) in handled(MEMORIES, memories, partial(_bars, group.decay, now_ms)):
                    before[stored] += 1
                    after[faded] += 1
                seen += len(memories)
                step(seen)
        return {"memories": seen, "before": before, "after": after}

    async def _groups(self, tenant: str | None) -> list[DecayGroup]:
        """Returns groups of memories with their decay. Every memory is in exactly one group."""
        own: dict[DecayCurve, dict[str, list[str]]] = {}
        async for agents in pages(partial(self._store.find, AGENTS, tenant), AGENTS, BATCH):
            for agent, decay in handled(AGENTS, agents, decay_of):
                if decay != DEFAULT_DECAY:
                    own.setdefault(decay, {}).setdefault(agent["tenant_id"], []).append(agent["agent_id"])
        named = {
            decay: _any_of(
                [And((Eq("tenant_id", owner), In("agent_id", tuple(agents)))) for owner, agents in tenants.items()]
            )
            for decay, tenants in own.items()
        }
        rest = DecayGroup(DEFAULT_DECAY, Not(_any_of(list(named.values()))) if named else EVERYTHING)
        return [rest, *(DecayGroup(decay, where) for decay, where in named.items())]


def _bars(decay: DecayCurve, now_ms: int, memory: MemoryRecord) -> tuple[int, int]:
    """Returns the bars of a memory's stored and current importance."""
    faded = importance(memory["base_importance"], to_ms(memory["anchored_at"]), now_ms, memory["pinned"], decay)
    return bar_of(memory["importance"]), bar_of(faded)


def _any_of(parts: list[Filter]) -> Filter:
    """Combines filters as a balanced tree, since engines limit the depth of an expression."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Or((_any_of(parts[:half]), _any_of(parts[half:])))


def decay_of(agent: AgentRecord) -> DecayCurve:
    """Returns the decay of an agent's settings."""
    return DecayCurve(**agent["settings"]["decay"])


def histogram(counts: Iterable[int]) -> list[str]:
    """Returns the names of the bars: `0.0–0.1` and so on."""
    return [f"{at / BARS:.1f}–{(at + 1) / BARS:.1f}" for at, _ in enumerate(counts)]


def bar_of(value: float) -> int:
    """Returns the index of the bar that contains the value."""
    return min(int(value * BARS), BARS - 1)
