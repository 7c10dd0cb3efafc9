"""What is coming for an agent and a user: plans, what is due, and what ceases to hold, in order of time."""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.clock import Clock, rfc3339, to_ms
from app.core.schemas import OWNED, Page, shown
from app.core.work import SEARCH_UNITS, SEARCHED_PER_UNIT, charge
from app.errors import invalid
from app.facts.repository import View
from app.facts.schemas import FACTS, Fact
from app.facts.schemas import render as render_fact
from app.memories.agents import Decays
from app.memories.schemas import MEMORIES, Memory, MemoryRecord
from app.storage.protocol import Store
from app.storage.repository import open_cursor, page_of, seal_cursor, unexpired
from app.storage.schema import After, Collection, Eq, Filter, In, Not, Or, R, Range, both
from app.storage.scope import Partition, Scope
from app.storage.search import SearchQuery
from app.tasks.schemas import Task
from app.tasks.schemas import render as render_task
from app.tasks.service import TaskRepository

UpcomingKind = TypeAliasType("UpcomingKind", Literal["plan", "due", "ends"])


@shown
class UpcomingItem(TypedDict):
    at: Annotated[str, Field(description="When it is to happen, is due, or ends.")]
    kind: Annotated[
        UpcomingKind,
        Field(
            description="`plan`: a memory whose own time (`event_at`) has not passed. `due`: a memory or task that is "
            "to be done, one that is overdue, too. `ends`: a memory or fact that holds, or is kept, until then."
        ),
    ]
    memory: Annotated[Memory | None, Field(description="One of memory, task and fact is there.")]
    task: Task | None
    fact: Fact | None


class UpcomingService:
    """Lists what is coming, of what one caller may see."""

    def __init__(self, store: Store, scope: Scope, clock: Clock, model: str) -> None:
        self._store, self._scope, self._clock, self._model = store, scope, clock, model

    async def page(
        self, agent_id: str | None, user_id: str | None, until: str | None, limit: int, cursor: str | None
    ) -> Page[UpcomingItem]:
        """Returns a page of what comes before `until`, the soonest first, of the agent and user and of what they share
        with others. Raises Invalid without both ids, InvalidCursor."""
        if agent_id is None and user_id is None:
            raise invalid("/query/user_id", OWNED.rstrip("."))
        request = repr((self._scope.tenant, "upcoming", agent_id, user_id, until))
        after = None if cursor is None else open_cursor(cursor, request, str)
        now = self._clock.now()
        moment, partitions = rfc3339(now), self._scope.partitions(agent_id, user_id, include_shared=True)
        coming: list[UpcomingItem] = []
        decays = Decays(self._store, self._scope.tenant)
        for memory in await self._matching(MEMORIES, partitions, both(Eq("status", "active"), to_come(moment))):
            record = await decays.render_at(memory, to_ms(now))
            coming += [{**NOTHING, "at": at, "kind": kind, "memory": record} for at, kind in times_of(memory, moment)]
        for fact in await self._matching(
            FACTS, partitions, both(View(None).believed(), Range("valid_until", gt=moment))
        ):
            coming.append({**NOTHING, "at": str(fact["valid_until"]), "kind": "ends", "fact": render_fact(fact)})
        for task in await TaskRepository(self._store, self._scope).due(partitions, moment):
            coming.append({**NOTHING, "at": str(task["due_at"]), "kind": "due", "task": render_task(task)})

        places = [After(item["at"], f"{item['kind']}:{_id_of(item)}") for item in coming]
        within = [place for place in range(len(coming)) if until is None or coming[place]["at"] < until]
        within.sort(key=lambda place: (places[place].value, places[place].id))
        if after is not None:
            within = [at for at in within if (places[at].value, places[at].id) > (after.value, after.id)]
        following = seal_cursor(places[within[limit - 1]], request) if len(within) > limit else None
        return page_of([coming[place] for place in within[:limit]], following)

    async def _matching(self, collection: Collection[R], partitions: tuple[Partition, ...], where: Filter) -> list[R]:
        query = SearchQuery(self._scope.tenant, partitions, where, None, self._model, np.empty(0, np.uint32))
        columns = await self._store.search(collection, query)
        charge(SEARCH_UNITS + columns.count / SEARCHED_PER_UNIT)
        rows = columns.rows[columns.matched]
        fetched = await self._store.fetch(collection, self._scope.tenant, rows) if len(rows) else []
        return [row.doc for row in fetched if row is not None and self._scope.sees(row.doc)]


NOTHING: UpcomingItem = {"at": "", "kind": "plan", "memory": None, "task": None, "fact": None}
OWN_TIME = Not(In("memory_type", ("message", "summary")))
"""A message has the time when it was said, and so has what sums some up."""


def to_come(now: str) -> Filter:
    """Filters memories that have a plan, are due, or end."""
    ends = (Range(name, gt=now) for name in ("valid_until", "expires_at"))
    return both(unexpired(now), OWN_TIME, Or((Range("event_until", ge=now), Range("due_from"), *ends)))


def times_of(memory: MemoryRecord, now: str) -> Iterator[tuple[str, UpcomingKind]]:
    """Yields what of a memory is to come, with its time: `("2026-12-04T09:30:00.000Z", "plan")`."""
    event_at, until, due_at = memory["event_at"], memory.get("event_until"), memory.get("due_at")
    if event_at and until and until >= now and not memory.get("done_at"):
        yield event_at, "plan"
    if due_at and not memory.get("done_at"):
        yield due_at, "due"
    ends = [at for at in (memory["valid_until"], memory["expires_at"]) if at and at > now]
    if ends:
        yield min(ends), "ends"


def _id_of(item: UpcomingItem) -> str:
    memory, task, fact = item["memory"], item["task"], item["fact"]
    return memory["memory_id"] if memory else task["task_id"] if task else fact["fact_id"] if fact else ""
