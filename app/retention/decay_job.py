"""Scheduled maintenance: decay of importance, and counts for the roll-up of old actions."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypedDict

from app.actions.roll_ups import cells
from app.actions.schemas import ActionRecord, DayCell
from app.core.clock import Clock, rfc3339, to_ms
from app.core.schemas import JsonObject
from app.jobs import skipping
from app.jobs.runner import Done, Run
from app.jobs.skipping import handled
from app.memories.agents import AGENTS, AgentRecord
from app.memories.models import MEMORIES, MemoryRecord
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
        for share in await self._shares(None):
            if await self._store.would_change(MEMORIES, None, self._rule(share, now), share.where):
                return True
        return False

    async def apply(self, tenant: str | None, within: Filter = EVERYTHING) -> int:
        """Stores decayed importance of memories that match `within`. Returns the number of changed memories. Tenant
        None means every tenant."""
        now, changed = rfc3339(self._clock.now()), 0
        for share in await self._shares(tenant):
            rule = self._rule(share, now)
            changed += await self._store.apply(MEMORIES, tenant, rule, both(share.where, within))
        return changed

    def _rule(self, share: DecayGroup, now: str) -> DecayRule:
        decay = share.decay
        return DecayRule(now, float(decay.factor), float(decay.grace_days), float(decay.floor), self._least)

    async def dry_run(
        self, tenant: str | None, step: Callable[[int], object] = lambda seen: None, within: Filter = EVERYTHING
    ) -> Histograms:
        """Returns histograms of the stored and of the current importance of memories that match `within`. Calls `step`
        with the number of memories read so far."""
        now_ms = to_ms(self._clock.now())
        before, after, seen = [0] * BARS, [0] * BARS, 0
        for share in await self._shares(tenant):
            where = both(share.where, within)
            async for memories in pages(partial(self._store.find, MEMORIES, tenant, where), MEMORIES, BATCH):
                for _, (stored, faded) in handled(MEMORIES, memories, partial(_bars, share.decay, now_ms)):
                    before[stored] += 1
                    after[faded] += 1
                seen += len(memories)
                step(seen)
        return {"memories": seen, "before": before, "after": after}

    async def _shares(self, tenant: str | None) -> list[DecayGroup]:
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


class Day(NamedTuple):
    """What the actions of a group have in common. `date`: in UTC, such as `2026-05-01`."""

    tenant: str
    agent: str | None
    user: str | None
    date: str


MAX_IDS = 10_000
MOST = 1_000
"""The limit of actions that one commit rolls up."""
IMPORTANCE = 0.4
TEXT = "text"
RATINGS = frozenset("12345")
CORRECTION_CHARS = 500
MAX_CORRECTIONS, SHOWN_CORRECTIONS = 50, 10
"""The limits of corrections that a day's summary keeps and that its content tells: the last ones."""


def by_day(actions: Iterable[ActionRecord]) -> dict[Day, list[ActionRecord]]:
    """Groups actions by owner and day."""
    days: dict[Day, list[ActionRecord]] = {}
    for action in actions:
        day = Day(action["tenant_id"], action["agent_id"], action["user_id"], action["timestamp"][:10])
        days.setdefault(day, []).append(action)
    return days


def count(actions: Sequence[ActionRecord], earlier: JsonObject | None = None) -> JsonObject:
    """Returns counts by outcome and by type, with tools, ratings and corrections if there are any, added to those of an
    earlier roll-up of the same day. They are the metadata of the day's summary: what else a caller has added stays."""
    old = earlier or {}
    outcomes, types = Counter[str](_numbers(old, "outcomes")), Counter[str](_numbers(old, "types"))
    tools, ratings, corrections = Counter[str](_numbers(old, "tools")), Counter[str](_ratings(old)), _corrections(old)
    for action in actions:
        outcomes[action["outcome"] or "unknown"] += 1
        types[action["action_type"]] += 1
        if tool := (action.get("action") or {}).get("tool"):
            tools[tool] += 1
        feedback = action.get("feedback") or {}
        rating, correction = feedback.get("user_rating"), feedback.get("correction")
        if rating is not None:
            ratings[str(rating)] += 1
        if correction:
            corrections.append(
                {
                    "action_id": action["action_id"],
                    "action_type": action["action_type"],
                    "correction": correction[:CORRECTION_CHARS],
                }
            )
    counts: JsonObject = {**old, "outcomes": {**_sorted(outcomes)}, "types": {**_sorted(types)}}
    if tools:
        counts["tools"] = {**_sorted(tools)}
    if ratings:
        counts["ratings"] = {**_sorted(ratings)}
    if corrections:
        counts["corrections"] = [*corrections[-MAX_CORRECTIONS:]]
    return counts


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def counted(action: ActionRecord) -> tuple[Day, JsonObject, list[DayCell]]:
    """Returns the day and the counts of one action, as `by_day`, `count` and the figures of its day make them."""
    ((day, _),) = by_day([action]).items()
    return day, count([action]), cells([action], [])


def _numbers(counts: JsonObject, of: str) -> dict[str, int]:
    """Returns the numbers by name of an earlier roll-up's `tools` or `ratings`. A caller may have changed them."""
    stored = counts.get(of)
    given = stored.items() if isinstance(stored, dict) else ()
    return {name: number for name, number in given if type(number) is int}


def _ratings(counts: JsonObject) -> dict[str, int]:
    return {name: number for name, number in _numbers(counts, "ratings").items() if name in RATINGS}


def _corrections(counts: JsonObject) -> list[JsonObject]:
    corrections = counts.get("corrections")
    given = corrections if isinstance(corrections, list) else []
    names = ("action_id", "action_type", "correction")
    return [
        entry for entry in given if isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in names)
    ]


def text_of(counts: JsonObject) -> str | None:
    """Returns the language model's text about the day, or None."""
    text = counts.get(TEXT)
    return text if isinstance(text, str) else None


def sentence(day: str, counts: JsonObject) -> str:
    """Returns the content of a day's summary: its counts, tools, ratings and last corrections, and the model's text if
    there is one."""
    outcomes = _numbers(counts, "outcomes")
    total = sum(outcomes.values())
    parts = [
        f"On {day}: {total} actions ({_counts_in_words(outcomes)}); {_counts_in_words(_numbers(counts, 'types'))}."
    ]
    if tools := _numbers(counts, "tools"):
        parts.append(f"Tools: {_counts_in_words(tools)}.")
    if ratings := _ratings(counts):
        rated = sum(ratings.values())
        mean = sum(int(rating) * number for rating, number in ratings.items()) / max(rated, 1)
        parts.append(f"Rated {mean:.1f} of 5 ({rated} ratings).")
    if corrections := _corrections(counts)[-SHOWN_CORRECTIONS:]:
        listed = "; ".join(f"{entry['action_type']}: {entry['correction']}" for entry in corrections)
        parts.append(f"Corrected: {listed}.")
    return " ".join([*parts, *([text] if (text := text_of(counts)) else [])])


def _counts_in_words(counts: dict[str, int]) -> str:
    largest_first = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return ", ".join(f"{number} {name}" for name, number in largest_first)
