"""Action logs: recording, listing, feedback, and statistics over a window of time."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta, tzinfo
from functools import partial
from itertools import islice
from typing import cast

import orjson

from app.actions import roll_ups, schemas
from app.core.clock import Clock, new_id, parse_rfc3339, rfc3339, to_ms
from app.core.schemas import Page, equal_json
from app.core.work import characters, off_loop
from app.errors import Conflict
from app.jobs import queue
from app.memories.repository import SOURCE, Embeddable, Embeddings, TextToIndex, of_partition, pending_note
from app.memories.schemas import MemoryRecord
from app.retrieval.retriever import RetrievalRequest, Retriever
from app.storage.changes import Change
from app.storage.record_filters import split_filter
from app.storage.repository import Listing, Repository, between, having, pages, partitions_of
from app.storage.schema import Absent, And, Eq, Filter, Has, Or, Range, both
from app.storage.text import content_hash, mentions, normalise_content
from app.writes.executor import Precondition, WriteResult, changed, etag

BATCH, TALLIED_AT_ONCE = 500, 5_000
ONE_LINE = 200
"""The length of a content made from the call, in characters."""
DAY_KEY = "actions:"
"""The key of a day's summary begins with this; the date follows."""
LEARN_EVERY = 20
"""Learning is queued after this many new actions of an agent and user."""


class ActionService:
    """The operations on actions within a caller's scope."""

    def __init__(
        self,
        actions: Repository[schemas.ActionRecord],
        embeddings: Embeddings,
        retriever: Retriever,
        clock: Clock,
        kept_for: timedelta,
        *,
        learns: bool = False,
    ) -> None:
        """`kept_for` is the time until actions are rolled up. `learns` is true if a language model is configured that
        learns from actions."""
        self._actions, self._embeddings, self._retriever, self._clock = actions, embeddings, retriever, clock
        self._kept_for, self._learns = kept_for, learns

    async def log_one(self, body: schemas.ActionCreate, precondition: Precondition) -> WriteResult[schemas.Action]:
        outcome = await self.log([body], precondition)
        (action,) = outcome.body["items"]
        return WriteResult(action, outcome.changes, 201, {"ETag": etag(action)})

    async def log(
        self, bodies: Sequence[schemas.ActionCreate], precondition: Precondition
    ) -> WriteResult[schemas.ActionBatchCreated]:
        """Logs all actions, or none."""
        precondition.check(None)
        now = rfc3339(self._clock.now())
        size = characters([[body.action, body.context, body.metadata, body.content] for body in bodies])
        key_id = self._actions.scope.key_id
        actions = await off_loop(size, lambda: [_new_action(body, key_id, now) for body in bodies])
        for action in actions:
            self._actions.scope.require_write(action["agent_id"], action["user_id"])
        entries = await self._embeddings.entries([_text_to_index(action) for action in actions])
        changes: list[Change] = []
        for action, entry in zip(actions, entries, strict=True):
            changes.append(self._actions.insert(action, entry))
            if entry.vector is None:
                changes.append(pending_note(schemas.ACTIONS, self._actions.scope.tenant, action["action_id"], now))
        changes += await self._consolidate(actions)
        return WriteResult({"items": [schemas.render(action) for action in actions]}, changes, 201)

    async def _consolidate(self, actions: Sequence[schemas.ActionRecord]) -> list[Change]:
        """Returns the changes that queue learning each time an agent and user have `LEARN_EVERY` more actions. Two
        concurrent callers may both miss that moment; then the next multiple or the schedule queues it."""
        changes: list[Change] = []
        pairs = Counter((action["agent_id"], action["user_id"]) for action in actions) if self._learns else {}
        for (agent, user), new in pairs.items():
            waiting = await self._actions.count(both(of_partition(agent, user), Absent("consolidated_at")))
            if waiting // LEARN_EVERY != (waiting + new) // LEARN_EVERY:
                owner, scope = {"agent_id": agent, "user_id": user}, self._actions.scope
                payload = {"partition": owner, **scope.bindings()}
                _, queued = queue.start(scope, queue.CONSOLIDATION, payload, self._clock.now(), **owner)
                changes += queued
        return changes

    async def page(self, filters: schemas.ActionFilters, listing: Listing) -> Page[schemas.Action]:
        asked, keep = split_filter(filters, schemas.ACTION_FIELDS, schemas.ACTIONS)
        where = both(_list_filter(filters), asked)
        return await self._actions.listed(where, listing, schemas.render, schemas.Action, request=filters, keep=keep)

    async def get(self, action_id: str) -> schemas.Action:
        """Returns an action, or what the memory says that stands for a purged one. Raises NotFound."""
        action = await self._actions.find_one(action_id)
        return roll_ups.render(action_id, await self._summary(action_id)) if action is None else schemas.render(action)

    async def _summary(self, action_id: str) -> MemoryRecord:
        actions, now = self._actions, rfc3339(self._clock.now())
        return await roll_ups.summary_of(actions.store, actions.scope, action_id, now)

    async def feedback(
        self, action_id: str, body: schemas.Feedback, precondition: Precondition
    ) -> WriteResult[schemas.Action]:
        """Merges feedback: absent fields stay, null clears a field."""
        action = await self._actions.find_one(action_id)
        if action is None:
            memory_id = (await self._summary(action_id))["memory_id"]
            raise Conflict(f"This action was rolled up into {memory_id} and takes no more feedback.")
        precondition.check(action)
        feedback: schemas.Feedback = {**action["feedback"], **body}
        fields: schemas.ActionRecord = {} if equal_json(feedback, action["feedback"]) else {"feedback": feedback}
        return changed(self._actions, action, fields, schemas.render, rfc3339(self._clock.now()))

    async def search(self, body: schemas.ActionSearch) -> schemas.ActionSearchResult:
        """Returns similar past actions by meaning and words. Of actions with the same text, outcome and entities, only
        the best is shown."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        shared, of_actions = body.include_shared, (self._actions.store, self._actions.scope, schemas.ACTIONS)
        partitions = await partitions_of(*of_actions, body.agent_id, body.user_id, include_shared=shared)
        asked, keep = split_filter(body.asked(), schemas.ACTION_FIELDS, schemas.ACTIONS, searched=True)
        where = both(_searched(body), asked)
        retrieved = await self._retriever.find(
            RetrievalRequest(body.query, partitions, where, to_ms(now), body.top_k, keep=keep)
        )
        items: list[schemas.FoundAction] = [
            {"action": schemas.render(hit.doc), "score": hit.score} for hit in retrieved.hits
        ]
        return {"items": items, **retrieved.how()}

    async def stats(
        self, filters: schemas.ActionFilters, window_days: int, group_by: str | None, zone: tzinfo
    ) -> schemas.Stats:
        """Returns statistics of the actions of the last `window_days` days, which the store counts. A day that was
        rolled up counts as a whole if a part of it lies in the window."""
        since = rfc3339(self._clock.now() - timedelta(days=window_days))
        where = both(_list_filter(filters), Range("timestamp", ge=since))
        total, groups = roll_ups.Tally(), defaultdict[str, roll_ups.Tally](roll_ups.Tally)
        async for calls in self._counted(where, group_by):
            for call, number in calls:
                total.add(call, number)
                if group_by:
                    groups[roll_ups.group_of(group_by, call, zone)].add(call, number)
            await asyncio.sleep(0)  # other requests run between batches
        async for day, cells in self._rolled_up(filters, since):
            for cell in cells:
                total.add_cell(cell)
                if group_by:
                    groups[roll_ups.cell_group(group_by, cell, day)].add_cell(cell)
        if group_by is None:
            return {"window_days": window_days, **total.figures(), "groups": None}
        figures: list[schemas.Group] = [{"key": key, **tally.figures()} for key, tally in sorted(groups.items())]
        if group_by != "day":
            figures.sort(key=lambda group: -group["total_actions"])
        return {"window_days": window_days, **total.figures(), "groups": figures}

    async def _counted(
        self, where: Filter, group_by: str | None
    ) -> AsyncIterator[list[tuple[roll_ups.CountedCall, int]]]:
        """Yields, in batches, the calls that match with their numbers: those with the same figures are one. Their times
        are read to the minute, and only for days: zones differ by whole minutes."""
        if group_by == "day":
            tallied = await self._actions.tally((*roll_ups.CALL_FIELDS, "timestamp"), where, first=roll_ups.MINUTE)
        else:
            tallied = await self._actions.tally(roll_ups.CALL_FIELDS, where)
        counted = iter(tallied.items())
        while batch := list(islice(counted, TALLIED_AT_ONCE)):
            yield [(roll_ups.CountedCall(*values), number) for values, number in batch]

    async def _rolled_up(
        self, filters: schemas.ActionFilters, since: str
    ) -> AsyncIterator[tuple[str, list[schemas.DayCell]]]:
        """Yields each rolled-up day with its cells."""
        owner, kind = having(filters, "agent_id", "user_id"), filters.get("action_type")

        def of_kind(cells: Sequence[schemas.DayCell]) -> list[schemas.DayCell]:
            return [cell for cell in cells if kind in (None, cell["action_type"])]

        days = Repository(self._actions.store, self._actions.scope, schemas.ACTION_DAYS)
        where = both(owner, Range("day", ge=f"{since[:10]}T00:00:00.000Z"))
        async for page in pages(partial(days.find, where), schemas.ACTION_DAYS, BATCH):
            for day in page:
                yield day["day"][:10], of_kind(day["cells"])


def _text_to_index(action: schemas.ActionRecord) -> TextToIndex:
    return TextToIndex(action["content"], time=parse_rfc3339(action["timestamp"]))


ACTION: Embeddable[schemas.ActionRecord] = Embeddable(
    schemas.ACTIONS,
    _text_to_index,
    lambda _: {},
)


def _new_action(body: schemas.ActionCreate, key_id: str | None, now: str) -> schemas.ActionRecord:
    stated = {} if body.source is None else body.source.stated()
    content = body.content or _call_as_text(body)
    fields = schemas.ACTIONS.as_record(body.model_dump(exclude={"content", "timestamp", "source"}))
    fields["feedback"] = {"user_rating": None, "was_helpful": None, "correction": None, **body.feedback}
    return {
        "action_id": new_id("act"),
        **fields,
        "content": content,
        "content_hash": shown_once(content, body.outcome, body.entities),
        **indexed({**fields, "content": content}),
        "timestamp": body.timestamp or now,
        "source": {**SOURCE, "session_id": body.session_id, **stated, "api_key_id": key_id},
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def indexed(action: schemas.ActionRecord) -> schemas.ActionRecord:
    """Returns the fields by which an action is found by entity and tag, and counted."""
    return {
        "entity_keys": list(dict.fromkeys(map(normalise_content, action["entities"]))),
        "tag_keys": list(dict.fromkeys(map(normalise_content, action["tags"]))),
        "mentions": mentions(action["content"]),
        "tool": action["action"].get("tool"),
        "duration_ms": action["action"].get("duration_ms"),
    }


def shown_once(content: str, outcome: schemas.Outcome | None, entities: Sequence[str]) -> int:
    """Returns a hash. A search shows one of the actions with the same hash."""
    return content_hash(repr((content, outcome, sorted(entities))))


def _call_as_text(body: schemas.ActionCreate) -> str:
    """Returns a one-line description made from the call itself."""
    call = body.action
    parts = [body.action_type, call["tool"] or ""]
    # {"input": {"order": 17}, "output": "ok", "retries": 2} reads `{"order":17} "ok" {"retries":2}`
    for name, value in call.items():
        if value is not None and name not in ("tool", "duration_ms"):
            parts.append(orjson.dumps(value if name in ("input", "output") else {name: value}).decode())
    line = " ".join(part for part in parts if part)
    return line if len(line) <= ONE_LINE else line[: ONE_LINE - 1] + "…"


def _list_filter(filters: schemas.ActionFilters) -> Filter:
    """Returns the filter of a list. Owners must match exactly."""
    entity, tag = filters.get("entity"), filters.get("tag")
    return both(
        having(filters, "agent_id", "user_id", "session_id", "task_id", "event_type", "action_type", "outcome"),
        None if entity is None else _having_name("entity_keys", entity),
        None if tag is None else _having_name("tag_keys", tag),
        between("timestamp", filters.get("since"), filters.get("until")),
    )


def _having_name(keys: str, value: str) -> Filter:
    """Filters by an entity or a tag, however it is written."""
    return Has(keys, normalise_content(value))


def _searched(body: schemas.ActionSearch) -> Filter:
    names = ("session_id", "task_id", "event_type", "action_type", "outcome", "tag", "since", "until")
    filters = cast(schemas.ActionFilters, {name: getattr(body, name) for name in names})
    concerning: Filter | None = None
    if (entity := body.entity) is not None:
        # an entity is named among the entities or the tags, or all of its words stand in the content
        named = (_having_name("entity_keys", entity), _having_name("tag_keys", entity))
        words = tuple(Has("mentions", word) for word in mentions(entity))
        concerning = Or((*named, And(words))) if words else Or(named)
    return both(
        _list_filter(filters),
        None if body.now is None else Range("timestamp", le=body.now),
        concerning,
        Eq("outcome", "success") if body.only_successful else None,
    )
