"""Action logs: recording, listing, feedback, and statistics over a window of time.

Statistics are pure functions. Intervals are Wilson's (1927), which are valid for small counts, too.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import partial
from math import ceil, sqrt
from typing import Any

import orjson

from app.actions.schemas import ACTIONS, ActionCreate, ActionSearch, Feedback, render
from app.core.clock import Clock, new_id, parse_rfc3339, rfc3339, to_ms
from app.core.schemas import same
from app.jobs import queue
from app.jobs.models import CONSOLIDATION
from app.memories.embedding_backfill import Embeddable, note
from app.memories.indexing import Embeddings, IndexText
from app.memories.repository import of_pair
from app.retrieval.retriever import RetrievalQuery, Retriever
from app.storage.changes import Change
from app.storage.filters import Absent, Eq, Filter, Has, Range, both
from app.storage.repository import Listing, Repository, pages
from app.storage.schema import Doc
from app.storage.text import content_hash
from app.writes.executor import IfMatch, WriteResult, changed, etag

Z_95 = 1.959963984540054
OUTCOMES = ("success", "failure", "partial")


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Returns the 95 % interval of a proportion; `total` ≥ 1."""
    share, square = hits / total, Z_95**2
    middle = share + square / (2 * total)
    spread = Z_95 * sqrt(share * (1 - share) / total + square / (4 * total**2))
    whole = 1 + square / total
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


@dataclass(slots=True)
class Tally:
    """Counts of outcomes, durations in milliseconds and ratings of a group of actions."""

    outcomes: Counter[str] = field(default_factory=Counter)
    durations: list[float] = field(default_factory=list)
    ratings: list[int] = field(default_factory=list)

    def add(self, action: Doc) -> None:
        """Adds an action."""
        self.outcomes[action["outcome"] or "unknown"] += 1
        duration, rating = action["action"].get("duration_ms"), action["feedback"].get("user_rating")
        if duration is not None:
            self.durations.append(duration)
        if rating is not None:
            self.ratings.append(rating)

    def figures(self) -> Doc:
        """Returns the statistics as the API shows them."""
        return {
            "total_actions": self.outcomes.total(),
            "counts": dict(sorted(self.outcomes.items())),
            **{f"{outcome}_rate": self._rate(outcome) for outcome in OUTCOMES},
            "mean_duration_ms": _mean(self.durations),
            "p95_duration_ms": percentile(self.durations, 0.95),
            "mean_rating": _mean(self.ratings),
        }

    def _rate(self, outcome: str) -> Doc | None:
        known = self.outcomes.total() - self.outcomes["unknown"]
        if not known:
            return None
        low, high = wilson(self.outcomes[outcome], known)
        return {"value": self.outcomes[outcome] / known, "low": low, "high": high}


def percentile(values: list[float], share: float) -> float | None:
    """Returns the nearest-rank percentile: the smallest value that at least `share` of all values do not exceed. None
    without values."""
    return sorted(values)[ceil(share * len(values)) - 1] if values else None


def grouping(by: str, zone: tzinfo) -> Callable[[Doc], str]:
    """Returns a function that maps an action to its group."""
    if by == "day":
        return lambda action: _day(parse_rfc3339(action["timestamp"]), zone)
    if by == "tool":
        return lambda action: action["action"].get("tool") or "none"
    return lambda action: str(action["action_type"])


def _day(moment: datetime, zone: tzinfo) -> str:
    try:
        return moment.astimezone(zone).date().isoformat()
    except OverflowError:  # the next day may not exist in the year 9999
        return moment.date().isoformat()


def _mean(values: list[float] | list[int]) -> float | None:
    return sum(values) / len(values) if values else None


BATCH = 500
ONE_LINE = 200
"""The length of a content made from the call, in characters."""
LEARN_EVERY = 20
"""Learning is queued after this many new actions of an agent and user."""


class ActionService:
    """The operations on actions within a caller's scope."""

    def __init__(
        self, actions: Repository, embeddings: Embeddings, lookup: Retriever, clock: Clock, *, learns: bool = False
    ) -> None:
        """`learns` is true if a language model is configured that learns from actions."""
        self._actions, self._embeddings, self._lookup, self._clock = actions, embeddings, lookup, clock
        self._learns = learns

    async def log_one(self, body: ActionCreate, precondition: IfMatch) -> WriteResult:
        """Logs one action."""
        outcome = await self.log([body], precondition)
        (action,) = outcome.body["items"]
        return WriteResult(action, outcome.changes, 201, {"ETag": etag(action)})

    async def log(self, bodies: Sequence[ActionCreate], precondition: IfMatch) -> WriteResult:
        """Logs all actions, or none."""
        precondition.check(None)
        now = rfc3339(self._clock.now())
        docs = [_document(body, now) for body in bodies]
        for doc in docs:
            self._actions.scope.require_write(doc["agent_id"], doc["user_id"])
        entries = await self._embeddings.entries([_passage(doc) for doc in docs])
        changes: list[Change] = []
        for doc, entry in zip(docs, entries, strict=True):
            changes.append(self._actions.insert(doc, entry))
            if entry.vector is None:
                changes.append(note(ACTIONS, self._actions.scope.tenant, doc["action_id"], now))
        changes += await self._consolidate(docs)
        return WriteResult({"items": [render(doc) for doc in docs]}, changes, 201)

    async def _consolidate(self, docs: Sequence[Doc]) -> list[Change]:
        """Returns the changes that queue learning each time an agent and user have `LEARN_EVERY` more actions. Two
        concurrent callers may both miss that moment; then the next multiple or the schedule queues it."""
        changes: list[Change] = []
        pairs = Counter((doc["agent_id"], doc["user_id"]) for doc in docs) if self._learns else {}
        for (agent, user), new in pairs.items():
            waiting = await self._actions.count(both(of_pair(agent, user), Absent("consolidated_at")))
            if waiting // LEARN_EVERY != (waiting + new) // LEARN_EVERY:
                owner, scope = {"agent_id": agent, "user_id": user}, self._actions.scope
                payload = {"pair": owner, **scope.bindings()}
                _, queued = queue.start(scope, CONSOLIDATION, payload, self._clock.now(), **owner)
                changes += queued
        return changes

    async def page(self, filters: Mapping[str, Any], listing: Listing) -> Doc:
        """Returns a page of actions that match the filters."""
        docs, cursor = await self._actions.page(_listed(filters), listing, mark=repr(sorted(filters.items())))
        return {"items": [render(doc) for doc in docs], "next_cursor": cursor}

    async def get(self, action_id: str) -> Doc:
        """Returns an action. Raises NotFound."""
        return render(await self._actions.get(action_id))

    async def feedback(self, action_id: str, body: Feedback, precondition: IfMatch) -> WriteResult:
        """Merges feedback: absent fields stay, null clears a field."""
        doc = await self._actions.get(action_id)
        precondition.check(doc)
        feedback = doc["feedback"] | body.model_dump(exclude_unset=True)
        fields = {} if same(feedback, doc["feedback"]) else {"feedback": feedback}
        return changed(self._actions, doc, fields, render, rfc3339(self._clock.now()))

    async def search(self, body: ActionSearch) -> Doc:
        """Returns similar past actions by meaning and words. Of actions with the same text, outcome and entities, only
        the best is shown."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        pairs = self._actions.scope.pairs(body.agent_id, body.user_id, body.include_shared)
        retrieved = await self._lookup.find(RetrievalQuery(body.query, pairs, _searched(body), to_ms(now), body.top_k))
        items = [{"action": render(hit.doc), "score": hit.score} for hit in retrieved.hits]
        return {"items": items, **retrieved.how()}

    async def stats(self, filters: Mapping[str, Any], window_days: int, group_by: str | None, zone: tzinfo) -> Doc:
        """Returns statistics of the actions of the last `window_days` days, read in batches."""
        since = rfc3339(self._clock.now() - timedelta(days=window_days))
        where = both(_listed(filters), Range("timestamp", ge=since))
        group = grouping(group_by, zone) if group_by else None
        total, groups = Tally(), defaultdict[str, Tally](Tally)
        async for docs in pages(partial(self._actions.find, where), ACTIONS, BATCH):
            for doc in docs:
                total.add(doc)
                if group:
                    groups[group(doc)].add(doc)
            await asyncio.sleep(0)  # other requests run between batches
        return {"window_days": window_days, **total.figures(), "groups": _groups(groups, group_by)}


def _passage(action: Doc) -> IndexText:
    return IndexText(action["content"], time=parse_rfc3339(action["timestamp"]))


ACTION = Embeddable(ACTIONS, _passage, lambda _: {})


def _document(body: ActionCreate, now: str) -> Doc:
    fields = body.model_dump(exclude={"content", "timestamp"})
    content = body.content or _one_line(body)
    return {
        "action_id": new_id("act"),
        **fields,
        "content": content,
        "content_hash": shown_once(content, body.outcome, body.entities),
        "timestamp": body.timestamp or now,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def shown_once(content: str, outcome: str | None, entities: Sequence[str]) -> int:
    """Returns a hash. A search shows one of the actions with the same hash."""
    return content_hash(repr((content, outcome, sorted(entities))))


def _one_line(body: ActionCreate) -> str:
    """Returns a one-line description made from the call itself."""
    parts = [body.action_type, body.action.tool or ""]
    parts += [orjson.dumps(value).decode() for value in (body.action.input, body.action.output) if value is not None]
    line = " ".join(part for part in parts if part)
    return line if len(line) <= ONE_LINE else line[: ONE_LINE - 1] + "…"


def _listed(filters: Mapping[str, Any]) -> Filter:
    """Returns the filter of a list. Owners must match exactly."""
    plain = ("agent_id", "user_id", "session_id", "task_id", "event_type", "action_type", "outcome")
    since, until = filters.get("since"), filters.get("until")
    return both(
        *(Eq(field, filters[field]) for field in plain if filters.get(field) is not None),
        None if filters.get("entity") is None else Has("entities", filters["entity"]),
        None if filters.get("tag") is None else Has("tags", filters["tag"]),
        None if since is None and until is None else Range("timestamp", ge=since, lt=until),
    )


def _searched(body: ActionSearch) -> Filter:
    filters = body.model_dump(
        include={"session_id", "task_id", "event_type", "action_type", "outcome", "entity", "tag"}
    )
    return both(
        _listed({**filters, "since": body.since, "until": body.until}),
        Eq("outcome", "success") if body.only_successful else None,
    )


def _groups(groups: Mapping[str, Tally], group_by: str | None) -> list[Doc] | None:
    if group_by is None:
        return None
    figures = [{"key": key, **tally.figures()} for key, tally in sorted(groups.items())]
    return figures if group_by == "day" else sorted(figures, key=lambda one: -one["total_actions"])
