"""The roll-up of old actions: one memory for each day, and the figures of the day.

What a day's summary says is a pure function of its actions and of what an earlier roll-up of the day has counted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from app.actions.roll_ups import DescribeDay, cells, counts_of, roll_ups
from app.actions.schemas import ACTION_DAYS, ACTIONS, ActionDayRecord, ActionRecord, DayCell
from app.actions.service import DAY_KEY
from app.core.clock import Clock, new_id, rfc3339
from app.core.schemas import JsonObject
from app.embedding.embedder import Embedder
from app.jobs.runner import Run
from app.jobs.skipping import skipping
from app.memories.embedding import Embeddings
from app.memories.records import new_memory, revision
from app.memories.repository import MemoryRepository, of_pair
from app.memories.schemas import MEMORIES, MemoryRecord, Source
from app.storage.changes import Change, Delete, Insert, Update
from app.storage.protocol import Store
from app.storage.schema import Eq, both
from app.storage.scope import Scope


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


class DaySummaries:
    """Writes the summaries of days."""

    def __init__(self, store: Store, embedder: Embedder, clock: Clock) -> None:
        self._store, self._embedder, self._clock = store, embedder, clock

    async def add(self, run: Run, day: Day, actions: list[ActionRecord], tell: DescribeDay | None) -> int:
        """Summarizes the actions of a day and deletes them in the same commit. Late actions are added to the day's
        summary. Returns how many: none if an earlier summary of the day cannot be handled, which is then skipped with
        its day."""
        tenant, agent, user, date = day
        memories = MemoryRepository(self._store, Scope(tenant))
        holders = await memories.with_key(agent, user, f"{DAY_KEY}{date}")
        holder = holders[0] if holders else None
        with skipping(MEMORIES, holder["memory_id"]) if holder else skipping(ACTIONS, actions[0]["action_id"]):
            await self._add_to_day(run, memories, day, actions, holder, tell)
            return len(actions)
        return 0

    async def _add_to_day(
        self,
        run: Run,
        memories: MemoryRepository,
        day: Day,
        actions: list[ActionRecord],
        holder: MemoryRecord | None,
        tell: DescribeDay | None,
    ) -> None:
        """Adds actions to the summary of their day. `holder`: the memory that has the key of the day's summary."""
        tenant, agent, user, date = day
        earlier = counts_of(holder) if holder is not None else None
        counts = count(actions, earlier)
        ids = [action["action_id"] for action in actions]
        origin: Source = {}
        if tell is not None and (description := await tell(actions, text_of(counts))):
            counts |= {TEXT: description["text"]}
            origin = {"model": description["model"], "prompt_version": description["prompt_version"]}
        embeddings, now = Embeddings(self._embedder), rfc3339(self._clock.now())
        content = sentence(date, counts)
        if holder is not None and earlier is not None:
            action_ids = [*holder["source"]["action_ids"], *ids][:MAX_IDS]
            source: Source = {**holder["source"], **origin, "action_ids": action_ids}
            changed = revision(holder, {"content": content, "metadata": counts}, now) | {"source": source}
            _, changes = await memories.rewritten(holder, changed, now, embeddings)
            summary = holder
        else:
            source = {"origin": "consolidation", "action_ids": ids[:MAX_IDS], **origin}
            fields: MemoryRecord = {
                "agent_id": agent,
                "user_id": user,
                # a caller's own memory may have the key; it is not changed
                "key": None if holder is not None else f"{DAY_KEY}{date}",
                "memory_type": "summary",
                "content": content,
                "importance": IMPORTANCE,
                "metadata": counts,
                "event_at": f"{date}T00:00:00.000Z",
            }
            summary, changes = await memories.added(new_memory(fields, source, now, unique=False), embeddings)
            summary = summary | {"tenant_id": tenant}
        figures = await self._figures(day, actions)
        deletes: list[Change] = [Delete(ACTIONS, tenant, action_id) for action_id in ids]
        await run.commit([*changes, *roll_ups(summary, ids, now), figures, *deletes])

    async def _figures(self, day: Day, actions: list[ActionRecord]) -> Change:
        """Returns the change that adds actions to the figures of their day."""
        tenant, agent, user, date = day
        now, begun = rfc3339(self._clock.now()), f"{date}T00:00:00.000Z"
        days = await self._store.find(ACTION_DAYS, tenant, both(of_pair(agent, user), Eq("day", begun)), limit=1)
        if days:
            (old,) = days
            fields: ActionDayRecord = {"cells": cells(actions, old["cells"]), "updated_at": now}
            return Update(ACTION_DAYS, tenant, old["day_id"], fields, {"version": 1}, {"version": old["version"]})
        figures: ActionDayRecord = {
            "tenant_id": tenant,
            "day_id": new_id("day"),
            "agent_id": agent,
            "user_id": user,
            "day": begun,
            "cells": cells(actions, []),
            "version": 1,
            "created_at": now,
            "updated_at": now,
        }
        return Insert(ACTION_DAYS, figures)
