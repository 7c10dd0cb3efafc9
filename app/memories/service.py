"""The rules of long-term memory. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from app.audit.trail import Actor, audit_entries
from app.core.clock import Clock, rfc3339, to_ms
from app.errors import Conflict, StorageFull, invalid
from app.memories.create import MemoryPlanner
from app.memories.decays import Decays
from app.memories.embedding import Embeddings
from app.memories.models import HISTORY, MEMORIES
from app.memories.records import revision
from app.memories.repository import MemoryRepository, listed
from app.memories.schemas import HistoryEntry, Memory, MemoryCreate, MemoryPatch, Predecessors
from app.memories.succession import Disputes, Succession
from app.storage.changes import Change, CommitConflict
from app.storage.protocol import fewer_at_once
from app.storage.repository import Listing, expired, render_items, unexpired
from app.storage.schema import Doc, both
from app.writes.executor import IfMatch, WriteResult, etag

DELETED_AT_ONCE = 500


class MemoryService:
    """Reads and changes the memories that one caller may see."""

    def __init__(self, memories: MemoryRepository, embeddings: Embeddings, clock: Clock) -> None:
        self._memories, self._embeddings, self._clock = memories, embeddings, clock
        self._decays = Decays(memories.store, memories.scope.tenant)

    async def create(self, body: MemoryCreate, precondition: IfMatch) -> WriteResult:
        """Plans one new memory. Answers 201 if it is new, and 200 with the memory that is equal or has its key."""
        plan = await self._planner(precondition).plan([body], "")
        (answer,), (created,) = plan.answers, plan.created
        return WriteResult(answer, plan.changes, 201 if created else 200, {"ETag": etag(answer)})

    async def create_batch(self, bodies: Sequence[MemoryCreate], precondition: IfMatch) -> WriteResult:
        """Plans several memories: all of them are stored, or none."""
        plan = await self._planner(precondition).plan(bodies, "/items")
        return WriteResult({"items": plan.answers}, plan.changes, 201)

    def _planner(self, precondition: IfMatch) -> MemoryPlanner:
        return MemoryPlanner(self._memories, self._embeddings, self._decays, self._clock.now(), precondition)

    async def get(self, memory_id: str) -> Doc:
        """Returns a memory with its current importance. Raises NotFound if it is not visible or has expired."""
        now = self._clock.now()
        return await self._decays.render_now(await self._memories.get_unexpired(memory_id, rfc3339(now)), to_ms(now))

    async def page(self, filters: Mapping[str, Any], listing: Listing) -> Doc:
        """Returns one page of the memories that match the filters of the list."""
        now = self._clock.now()
        where, keep = listed(filters)
        where = both(where, unexpired(rfc3339(now)))
        docs, cursor = await self._memories.page(where, listing, mark=repr(sorted(filters.items())), keep=keep)
        return {
            "items": await render_items(MEMORIES, docs, partial(self._decays.render_now, now_ms=to_ms(now)), Memory),
            "next_cursor": cursor,
        }

    async def patch(self, memory_id: str, body: MemoryPatch, precondition: IfMatch) -> WriteResult:
        """Changes the fields that are set in `body`."""
        return await self.change(memory_id, lambda _: body, precondition)

    async def change(self, memory_id: str, patch: Callable[[Doc], MemoryPatch], precondition: IfMatch) -> WriteResult:
        """Changes a memory by a patch that is computed from the very version that it replaces."""
        now = self._clock.now()
        doc = await self._memories.get_unexpired(memory_id, rfc3339(now))
        fields = patch(doc).model_dump(exclude_unset=True)
        self._memories.require_write(doc)
        precondition.check(doc)
        _check_status(doc, fields.get("status"))
        changed = revision(doc, fields, rfc3339(now))
        _check_times(doc | changed)
        if not changed:
            return WriteResult(await self._decays.render_now(doc, to_ms(now)), headers={"ETag": etag(doc)})
        room = await self._room_for_name(doc, changed, rfc3339(now))
        if doc["status"] == "superseded" and "status" in changed:
            room += await Succession(self._memories, rfc3339(now)).release(doc)
        new, changes = await self._memories.rewritten(doc, changed, rfc3339(now), self._embeddings)
        answer = await self._decays.render_now(new, to_ms(now))
        return WriteResult(answer, [*room, *changes], headers={"ETag": etag(new)})

    async def _room_for_name(self, doc: Doc, changed: Doc, now: str) -> list[Change]:
        """Returns the changes that free the memory's key.

        An expired memory with the same key is removed. Raises Conflict if another active memory of the scope has the
        key.
        """
        new = doc | changed
        if new["key"] is None or new["status"] != "active" or changed.keys().isdisjoint(("key", "status")):
            return []
        others = await self._memories.with_key(new["agent_id"], new["user_id"], new["key"])
        others = [other for other in others if other["memory_id"] != doc["memory_id"]]
        if not all(expired(other, now) for other in others):
            raise Conflict("Another active memory of this scope has that key.")
        return self._memories.remove(others) if others else []

    async def delete(self, memory_id: str, predecessors: Predecessors, precondition: IfMatch) -> WriteResult:
        """Deletes a memory.

        The memories that it superseded become active again (`restore`) or are deleted too (`delete`).
        """
        now = rfc3339(self._clock.now())
        doc = await self._memories.get_unexpired(memory_id, now)
        precondition.check(doc)
        succession = Succession(self._memories, now)
        if predecessors == "delete":
            return WriteResult(None, self._memories.remove([doc, *await succession.chain(doc)]), 204)
        return WriteResult(None, [*self._memories.remove([doc]), *await succession.restore(doc)], 204)

    async def resolve(self, memory_id: str, keep: str, precondition: IfMatch) -> WriteResult:
        """Settles a dispute. The answer is the memory that is kept."""
        now = self._clock.now()
        doc = await self._memories.get_unexpired(memory_id, rfc3339(now))
        self._memories.require_write(doc)
        precondition.check(doc)
        kept, changes = await Disputes(self._memories, rfc3339(now)).resolve(doc, keep)
        return WriteResult(await self._decays.render_now(kept, to_ms(now)), changes, headers={"ETag": etag(kept)})

    async def delete_some(self, filters: Mapping[str, Any]) -> int:
        """Deletes all memories that match, in steps, and returns how many.

        Each step is one commit. After an error, the same call continues with what is left. Raises Invalid if the
        filters name neither agent nor user.
        """
        if filters.get("agent_id") is None and filters.get("user_id") is None:
            raise invalid("/query/user_id", "agent_id, user_id or both are required")
        where, keep = listed(filters)
        where = both(where, self._memories.scope.writable())
        scope = self._memories.scope
        actor = Actor(scope.tenant, scope.key_id or "anonymous", "delete_memories")
        deleted, at_once, after = 0, DELETED_AT_ONCE, None
        while read := await self._memories.find(where, after=after, limit=at_once):
            docs = read if keep is None else list(filter(keep, read))
            gone = self._memories.remove(docs) if docs else []
            try:
                if gone:
                    await self._memories.store.commit([*gone, *audit_entries(actor, gone, rfc3339(self._clock.now()))])
                deleted += len(docs)
                after = MEMORIES.after(read[-1])
            except CommitConflict:  # one of them has just changed, so all are read again
                continue
            except StorageFull as error:
                at_once = fewer_at_once(error, len(docs))
        return deleted

    async def history(self, memory_id: str, listing: Listing) -> Doc:
        """Returns one page of the earlier versions of a memory."""
        await self._memories.get_unexpired(memory_id, rfc3339(self._clock.now()))
        docs, cursor = await self._memories.history_page(memory_id, listing)
        return {
            "items": await render_items(HISTORY, docs, partial(_past, decays=self._decays), HistoryEntry),
            "next_cursor": cursor,
        }


async def _past(doc: Doc, decays: Decays) -> Doc:
    record: Doc = doc["record"]
    past = {name: doc[name] for name in ("version", "changed_at", "changed_by")}
    return {**past, "record": await decays.render_now(record, to_ms(doc["changed_at"]))}


def _check_status(doc: Doc, wanted: str | None) -> None:
    """Raises Conflict if a caller may not give the memory this status."""
    if wanted is not None and doc["status"] == "disputed":
        raise Conflict("This memory is disputed: settle that with POST /v1/memories/{memory_id}/resolve, or delete it.")
    if wanted == "archived" and doc["status"] == "superseded":
        raise Conflict("A superseded memory cannot be archived: set it active first, or delete it.")


def _check_times(doc: Doc) -> None:
    if doc["valid_from"] and doc["valid_until"] and doc["valid_from"] >= doc["valid_until"]:
        raise invalid("/valid_until", "must lie after valid_from")
