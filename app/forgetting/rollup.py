"""Rolling up action logs, pure: what a day of an agent with a user comes to."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from app.storage.collection import Doc

Day = tuple[str, str, str | None, str]
"""Tenant, agent, user, date (UTC)."""
MAX_IDS = 10_000
MOST = 1_000
"""Actions rolled up in one commit."""
IMPORTANCE = 0.4
TEXT = "text"

Tell: TypeAlias = Callable[[Sequence[Doc], str | None], Awaitable[Doc | None]]
"""A text of a day's actions that goes on from an earlier one, with its `model` and `prompt_version`; None: there is
none. It raises nothing: counts go on without it."""


def by_day(actions: Iterable[Doc]) -> dict[Day, list[Doc]]:
    days: dict[Day, list[Doc]] = {}
    for action in actions:
        key = (action["tenant_id"], action["agent_id"], action["user_id"], action["timestamp"][:10])
        days.setdefault(key, []).append(action)
    return days


def counts_of(memory: Doc) -> Doc | None:
    """The counts that a summary carries; None where a caller made the memory, or took the counts away."""
    counts = memory["metadata"]
    parts = [counts.get(name) for name in ("outcomes", "types")]
    ours = memory["source"]["origin"] == "consolidation" and all(isinstance(part, dict) for part in parts)
    numbers = [number for part in parts if isinstance(part, dict) for number in part.values()]
    return counts if ours and all(type(number) is int for number in numbers) else None


def count(actions: Iterable[Doc], earlier: Doc | None = None) -> Doc:
    """Counts by outcome and by type, added to those of an earlier roll-up of the same day."""
    old = earlier or {"outcomes": {}, "types": {}}
    outcomes: Counter[str] = Counter(old["outcomes"])
    types: Counter[str] = Counter(old["types"])
    for action in actions:
        outcomes[action["outcome"] or "unknown"] += 1
        types[action["action_type"]] += 1
    return {**old, "outcomes": dict(sorted(outcomes.items())), "types": dict(sorted(types.items()))}


def text_of(counts: Doc) -> str | None:
    """What a language model told of the day, where one did."""
    text = counts.get(TEXT)
    return text if isinstance(text, str) else None


def sentence(day: str, counts: Doc) -> str:
    """The roll-up as a text that can be found: its counts, and what was told of it."""
    total = sum(counts["outcomes"].values())
    counted = f"On {day}: {total} actions ({_listed(counts['outcomes'])}); {_listed(counts['types'])}."
    text = text_of(counts)
    return counted if text is None else f"{counted} {text}"


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items(), key=lambda one: (-one[1], one[0])))
