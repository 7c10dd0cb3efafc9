"""Actions that were rolled up and purged: the notes that lead from an action's id to the memory of its day. And the
figures of actions, single ones and rolled-up ones.

The summary memory of a day names its actions in `source.action_ids`. Its figures are pure functions: intervals are
Wilson's (1927), which are valid for small counts, too. A day keeps a *cell* for each type of action and tool: counts by
outcome, ratings, the sum of the durations, and the number of durations in each bucket. Buckets grow by `GROWTH`, so a
percentile of rolled-up durations is within 2 % of the exact one.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from math import ceil, log, sqrt
from typing import NamedTuple, TypeAlias, TypedDict, cast

from app.actions.schemas import Action, ActionRecord, DayCell, Figures, Rate
from app.core.clock import new_id
from app.errors import no_such
from app.memories.schemas import MEMORIES, MemoryRecord
from app.storage.changes import Change, Insert
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Collection, Eq, Has, OwnedRecord, both, value_at
from app.storage.scope import Scope


class RollUpRecord(OwnedRecord, total=False):
    """A document of the collection `action_roll_ups`: the memory that stands for these purged actions."""

    roll_up_id: str
    memory_id: str
    bucket: str
    action_ids: list[str]


ROLL_UPS: Collection[RollUpRecord] = Collection(
    name="action_roll_ups",
    id_field="roll_up_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "memory_id": "text",
        "bucket": "text",
        "action_ids": "list",
        "created_at": "time",
    },
    indexes=(("bucket",), ("user_id",)),
    audited=False,
)
"""One note for each commit of the roll-up and each `bucket`, the beginning of the ids. Ids begin with their time, so a
bucket has the actions that a tenant logged in 4.7 hours, and resolving one id reads no others."""

BUCKET = len("act_") + 6
ROLLED_UP = "rolled_up"
"""The `event_type` and `action_type` of the answer for a purged action."""


class DayDescription(TypedDict):
    """A language model's text about a day's actions."""

    text: str
    model: str
    prompt_version: str


DescribeDay: TypeAlias = Callable[[Sequence[ActionRecord], str | None], Awaitable[DayDescription | None]]
"""Returns a text about a day's actions that continues an earlier one, or None if there is none. Must not raise: the
counts are stored without it."""


def roll_ups(memory: MemoryRecord, action_ids: Sequence[str], now: str) -> list[Change]:
    """Returns the changes which note that the memory stands for these actions."""
    buckets: dict[str, list[str]] = defaultdict(list)
    for action_id in action_ids:
        buckets[action_id[:BUCKET]].append(action_id)
    return [
        Insert(
            ROLL_UPS,
            {
                "tenant_id": memory["tenant_id"],
                "agent_id": memory["agent_id"],
                "user_id": memory["user_id"],
                "memory_id": memory["memory_id"],
                "roll_up_id": new_id("roll"),
                "bucket": bucket,
                "action_ids": ids,
                "created_at": now,
            },
        )
        for bucket, ids in buckets.items()
    ]


async def summary_of(store: Store, scope: Scope, action_id: str, now: str) -> MemoryRecord:
    """Returns the memory that stands for a purged action. Raises NotFound, also if that memory is gone."""
    named = both(Eq("bucket", action_id[:BUCKET]), Has("action_ids", action_id))
    notes = await Repository(store, scope, ROLL_UPS).find(named, limit=1)
    if not notes:
        raise no_such("action")
    return await Repository(store, scope, MEMORIES).get_unexpired(notes[0]["memory_id"], now)


def render(action_id: str, memory: MemoryRecord) -> Action:
    """Renders a purged action by the memory that stands for it."""
    names = ("agent_id", "user_id", "content", "metadata", "source", "version", "created_at", "updated_at")
    return {
        "action_id": action_id,
        **cast(Action, {name: value_at(memory, name) for name in names}),
        "session_id": None,
        "task_id": None,
        "outcome": None,
        "action": {},
        "context": {},
        "entities": [],
        "tags": [],
        "feedback": {},
        "event_type": ROLLED_UP,
        "action_type": ROLLED_UP,
        "actor": "system",
        "timestamp": memory["event_at"] or memory["created_at"],
        "rolled_up_into": memory["memory_id"],
    }


Z_95 = 1.959963984540054


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Returns the 95 % interval of a proportion; `total` ≥ 1."""
    share, square = hits / total, Z_95**2
    middle = share + square / (2 * total)
    spread = Z_95 * sqrt(share * (1 - share) / total + square / (4 * total**2))
    whole = 1 + square / total
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


GROWTH = 1.04
MAX_BUCKET = 18_000
"""The last bucket, close to the greatest number. Zero has a bucket of its own."""
NO_TOOL = "none"


CALL_FIELDS = ("action_type", "tool", "outcome", "duration_ms", "feedback.user_rating")
"""The declared fields of an action that its figures are made of, in the order of `CountedCall`."""
MINUTE = len("2026-05-30T21:59")


class CountedCall(NamedTuple):
    """What figures are made of. `at`: its time, to the minute at least."""

    action_type: str
    tool: str | None
    outcome: str | None
    duration_ms: float | None
    rating: int | None
    at: str | None = None

    @classmethod
    def of(cls, action: ActionRecord) -> "CountedCall":
        call, rating = action["action"], action["feedback"].get("user_rating")
        return cls(
            action["action_type"],
            call.get("tool"),
            action["outcome"],
            call.get("duration_ms"),
            rating,
            action["timestamp"],
        )


@dataclass(slots=True)
class Tally:
    """Counts of outcomes, durations in milliseconds and ratings of a group of actions. A duration that was rolled up
    counts as the middle of its bucket; their sum is exact."""

    outcomes: Counter[str] = field(default_factory=Counter)
    durations: Counter[float] = field(default_factory=Counter)
    duration_sum: float = 0.0
    ratings: Counter[int] = field(default_factory=Counter)

    def add(self, call: "CountedCall", number: int = 1) -> None:
        """Adds a number of calls with the same figures."""
        self.outcomes[call.outcome or "unknown"] += number
        if call.duration_ms is not None:
            self.durations[call.duration_ms] += number
            self.duration_sum += call.duration_ms * number
        if call.rating is not None:
            self.ratings[call.rating] += number

    def add_cell(self, cell: DayCell) -> None:
        self.outcomes.update(cell["outcomes"])
        self.duration_sum += cell["duration_sum"]
        self.durations.update({_middle(name): number for name, number in cell["durations"].items()})
        self.ratings.update({int(name): number for name, number in cell["ratings"].items()})

    def figures(self) -> Figures:
        """Returns the statistics as the API shows them."""
        timed, rated = self.durations.total(), self.ratings.total()
        return {
            "total_actions": self.outcomes.total(),
            "counts": dict(sorted(self.outcomes.items())),
            "success_rate": self._rate("success"),
            "failure_rate": self._rate("failure"),
            "partial_rate": self._rate("partial"),
            "mean_duration_ms": self.duration_sum / timed if timed else None,
            "p95_duration_ms": percentile(self.durations, 0.95),
            "mean_rating": sum(rating * number for rating, number in self.ratings.items()) / rated if rated else None,
        }

    def _rate(self, outcome: str) -> Rate | None:
        known = self.outcomes.total() - self.outcomes["unknown"]
        if not known:
            return None
        low, high = wilson(self.outcomes[outcome], known)
        return {"value": self.outcomes[outcome] / known, "low": low, "high": high}


def percentile(values: Mapping[float, int], share: float) -> float | None:
    """Returns the nearest-rank percentile of values with their numbers: the smallest value that at least `share` of all
    do not exceed. None without values."""
    least, seen = ceil(share * sum(values.values())), 0
    for value, number in sorted(values.items()):
        seen += number
        if seen >= least:
            return value
    return None


# --- Days that were rolled up -----------------------------------------------------------------------------------------


def cells(actions: Iterable[ActionRecord], earlier: Iterable[DayCell] = ()) -> list[DayCell]:
    """Returns the cells of a day: those of its actions, added to the earlier ones of the same day."""
    tallies = {(cell["action_type"], cell["tool"]): Tally() for cell in earlier}
    buckets: dict[tuple[str, str | None], Counter[str]] = {key: Counter() for key in tallies}
    for cell in earlier:
        key = cell["action_type"], cell["tool"]
        tallies[key].add_cell(cell)
        buckets[key].update(cell["durations"])
    for action in actions:
        call = CountedCall.of(action)
        key = call.action_type, call.tool
        tallies.setdefault(key, Tally()).add(call)
        if call.duration_ms is not None:
            buckets.setdefault(key, Counter())[_bucket(call.duration_ms)] += 1
    return [_cell(*key, tally, buckets.get(key, Counter())) for key, tally in tallies.items()]


def _cell(action_type: str, tool: str | None, tally: Tally, durations: Counter[str]) -> DayCell:
    return {
        "action_type": action_type,
        "tool": tool,
        "outcomes": dict(sorted(tally.outcomes.items())),
        "duration_sum": min(tally.duration_sum, sys.float_info.max),
        "durations": dict(durations),
        "ratings": {str(rating): number for rating, number in sorted(tally.ratings.items())},
    }


def _bucket(duration: float) -> str:
    return "zero" if not duration else str(min(ceil(log(duration) / log(GROWTH)), MAX_BUCKET))


def _middle(bucket: str) -> float:
    """Returns the value that is at most 2 % away from every value of a bucket."""
    return 0.0 if bucket == "zero" else 2 * GROWTH ** int(bucket) / (GROWTH + 1)


# --- Groups -----------------------------------------------------------------------------------------------------------


def group_of(by: str, call: CountedCall, zone: tzinfo) -> str:
    if by == "day":
        return _day(datetime.fromisoformat(f"{(call.at or '')[:MINUTE]}+00:00"), zone)
    return str(call.tool or NO_TOOL if by == "tool" else call.action_type)


def _day(moment: datetime, zone: tzinfo) -> str:
    try:
        return moment.astimezone(zone).date().isoformat()
    except OverflowError:  # the next day may not exist in the year 9999
        return moment.date().isoformat()


def cell_group(by: str, cell: DayCell, day: str) -> str:
    """Returns the group of a cell. A day that was rolled up is one of UTC, whatever zone is asked for."""
    if by == "day":
        return day
    return str(cell["tool"] or NO_TOOL if by == "tool" else cell["action_type"])
