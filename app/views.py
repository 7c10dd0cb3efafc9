"""What a caller is shown of a record: one view for each kind, whichever way the record is read.

    reader = RecordReader(store, scope, clock)
    await reader.read("memory", ["mem_1", "mem_2"])  # {"mem_1": {...}}: nobody may read the other one, or it is gone

The route of a kind answers with the function that stands here. The change feed and the export of a user read through
this table, and the tools of MCP call the routes. A kind that is not in the table cannot be told of.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from app.actions import schemas as actions
from app.actions.roll_ups import ROLL_UPS
from app.core.clock import Clock, rfc3339, to_ms
from app.documents.schemas import DOCUMENTS
from app.documents.service import render as render_document
from app.facts import schemas as facts
from app.facts.aliases import ENTITY_ALIASES, render_alias
from app.facts.profile import USERS, UserRecord
from app.findings.schemas import FINDINGS, FindingRecord
from app.findings.service import FindingRepository
from app.memories.agents import AGENTS, AgentRecord, Decays
from app.memories.schemas import FEEDBACK, HISTORY, MEMORIES, STATEMENTS, MemoryRecord
from app.procedures import schemas as procedures
from app.profiles.agents import render_agent
from app.profiles.users import ProfileReader, render_profile
from app.sessions import schemas as sessions
from app.storage.protocol import Store
from app.storage.records import DAMAGED, left_out
from app.storage.repository import Repository, expired
from app.storage.schema import Collection, Doc, R
from app.storage.scope import Scope
from app.tasks import schemas as tasks


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at what. `scope` is that of the caller's key."""

    store: Store
    scope: Scope
    clock: Clock


ShownRecord: TypeAlias = Mapping[str, Any]
"""What a caller is shown of a record, of any kind."""
Show: TypeAlias = Callable[[Viewer, Sequence[R]], Awaitable[Sequence[ShownRecord]]]


@dataclass(frozen=True, slots=True)
class RecordView(Generic[R]):
    """How records of a collection are shown. `show` answers in the order of the records, which are of the scope."""

    collection: Collection[R]
    show: Show[R]


def unchanging(render: Callable[[R], ShownRecord]) -> Show[R]:
    """Returns the view of a kind that looks the same to everybody who may read it, at any time."""

    async def show(_: Viewer, records: Sequence[R]) -> Sequence[ShownRecord]:
        return [render(record) for record in records]

    return show


async def _memories(viewer: Viewer, memories: Sequence[MemoryRecord]) -> Sequence[ShownRecord]:
    decays, now_ms = Decays(viewer.store, viewer.scope.tenant), to_ms(viewer.clock.now())
    return [await decays.render_at(memory, now_ms) for memory in memories]


async def _profiles(viewer: Viewer, records: Sequence[UserRecord]) -> Sequence[ShownRecord]:
    users = await ProfileReader(viewer.store, viewer.scope, viewer.clock).of_records(records)
    return [render_profile(user.record) for user in users]


async def _agents(viewer: Viewer, agents: Sequence[AgentRecord]) -> Sequence[ShownRecord]:
    return [render_agent(agent, viewer.scope) for agent in agents]


async def _findings(viewer: Viewer, findings: Sequence[FindingRecord]) -> Sequence[ShownRecord]:
    return await FindingRepository(viewer.store, viewer.scope).render(findings, rfc3339(viewer.clock.now()))


VIEWS: Mapping[str, RecordView] = {
    "memory": RecordView(MEMORIES, _memories),
    "document": RecordView(DOCUMENTS, unchanging(render_document)),
    "session": RecordView(sessions.SESSIONS, unchanging(sessions.render)),
    "message": RecordView(sessions.MESSAGES, unchanging(sessions.render_message)),
    "task": RecordView(tasks.TASKS, unchanging(tasks.render)),
    "checkpoint": RecordView(tasks.CHECKPOINTS, unchanging(tasks.render_checkpoint)),
    "action": RecordView(actions.ACTIONS, unchanging(actions.render)),
    "fact": RecordView(facts.FACTS, unchanging(facts.render)),
    "alias": RecordView(ENTITY_ALIASES, unchanging(render_alias)),
    "procedure": RecordView(procedures.PROCEDURES, unchanging(procedures.render)),
    "profile": RecordView(USERS, _profiles),
    "agent": RecordView(AGENTS, _agents),
    "finding": RecordView(FINDINGS, _findings),
}
"""The views by kind, as `Collection.kind` names it."""

PARENTS: Mapping[str, tuple[Collection, str]] = {
    sessions.MESSAGES.name: (sessions.SESSIONS, "session_id"),
    tasks.CHECKPOINTS.name: (tasks.TASKS, "task_id"),
    HISTORY.name: (MEMORIES, "record_id"),
    FEEDBACK.name: (MEMORIES, "memory_id"),
    STATEMENTS.name: (MEMORIES, "memory_id"),
    procedures.PROCEDURE_HISTORY.name: (procedures.PROCEDURES, "record_id"),
    ROLL_UPS.name: (MEMORIES, "memory_id"),
}
"""Collections whose records belong to another record, and the field that names it: who cannot read a session reads none
of its messages."""


class RecordReader:
    """Reads records as one caller is shown them."""

    def __init__(self, store: Store, scope: Scope, clock: Clock) -> None:
        self._viewer = Viewer(store, scope, clock)

    async def read(self, kind: str, ids: Sequence[str]) -> dict[str, ShownRecord]:
        """Returns the records of `ids` as they are now, by id. One that the caller's route would not find is absent."""
        view = VIEWS[kind]
        docs = await Repository(self._viewer.store, self._viewer.scope, view.collection).get_many(ids)
        return {doc[view.collection.id_field]: shown for doc, shown in await self.of(kind, list(docs.values()))}

    async def of(self, kind: str, docs: Sequence[Doc]) -> list[tuple[Doc, ShownRecord]]:
        """Returns those of the stored documents that the caller may read, in order, each with what is shown of it. A
        damaged document, which lacks a field, is left out and logged: the others are shown nevertheless."""
        view = VIEWS[kind]
        readable = await self.readable(view.collection, docs)
        try:
            return list(zip(readable, await view.show(self._viewer, readable), strict=True))
        except DAMAGED as error:
            if len(readable) > 1:
                return [shown for doc in readable for shown in await self.of(kind, [doc])]
            left_out(view.collection, readable[0][view.collection.id_field], type(error).__name__)
            return []

    async def readable(self, collection: Collection, docs: Sequence[Doc]) -> list[Doc]:
        """Returns those of the stored documents that the caller may read: in the scope, not expired, and not of a
        record that is so. Also for collections without a view, such as the history of memories."""
        readable = self._living(docs)
        if collection.name not in PARENTS or not readable:
            return readable
        parent, field = PARENTS[collection.name]
        named = await Repository(self._viewer.store, self._viewer.scope, parent).get_many(
            [doc[field] for doc in readable]
        )
        living = {doc[parent.id_field] for doc in self._living(list(named.values()))}
        return [doc for doc in readable if doc[field] in living]

    def _living(self, docs: Sequence[Doc]) -> list[Doc]:
        """Returns the documents that are in the scope and have not expired: what has may not be purged yet."""
        now = rfc3339(self._viewer.clock.now())
        return [
            doc
            for doc in docs
            if self._viewer.scope.sees(doc) and not (isinstance(doc.get("expires_at"), str) and expired(doc, now))
        ]
