"""Exports all records of a user as lines of JSON. The last line has the counts: an export without it is incomplete."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import orjson

from app.actions.models import ACTIONS
from app.audit import trail
from app.audit.tombstones import Tombstones
from app.audit.trail import Actor, owned
from app.core.clock import Clock, rfc3339
from app.memories.models import MEMORIES
from app.profiles.models import USERS
from app.sessions.models import SESSIONS
from app.storage.filters import Eq, both
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import Collection, Doc
from app.storage.scope import Scope
from app.tasks.models import TASKS

BATCH = 100
FORMAT = 2
"""The version of the format. Since version 2, a record's line has `kept` with the fields of `KEPT`."""
KEPT: Mapping[str, frozenset[str]] = {
    MEMORIES.name: frozenset(
        {"anchored_at", "archived_by", "archived_at", "dedupe_key", "kept_apart", "merged", "claimed_key"}
    ),
    SESSIONS.name: frozenset({"learned_seq", "summary_id", "summary_seq"}),
    TASKS.name: frozenset({"kept_after_end"}),
    ACTIONS.name: frozenset({"consolidated_at"}),
    USERS.name: frozenset({"interacted"}),
}
"""Internal fields that an import cannot derive from the record, such as the start of its decay."""


class UserExport:
    """Exports users within a caller's scope."""

    def __init__(
        self, store: Store, scope: Scope, collections: Sequence[Collection], clock: Clock, tombstones: Tombstones
    ) -> None:
        self._store, self._scope, self._clock, self._tombstones = store, scope, clock, tombstones
        self._collections = owned(collections)

    async def note(self, user_id: str, actor: Actor) -> None:
        """Records the export in the audit trail, under the hash if the user was erased."""
        now, tombstone = rfc3339(self._clock.now()), await self._tombstones.find(user_id)
        named, hashed = (user_id, None) if tombstone is None else (None, tombstone["erased_id"])
        await self._store.commit([trail.entry(actor, now, named, [], {"users": {"export": 1}}, hashed)])

    async def lines(self, user_id: str) -> AsyncIterator[bytes]:
        """Yields the records of this user that the key may see, without shared ones. Records written meanwhile may be
        missing."""
        now = rfc3339(self._clock.now())
        yield _line({"type": "export", "format": FORMAT, "user_id": user_id, "exported_at": now})
        counts: Counter[str] = Counter()
        where = both(Eq("user_id", user_id), self._scope.visible())
        for collection in self._collections:
            find = partial(self._store.find, collection, self._scope.tenant, where)
            async for docs in pages(find, collection, BATCH):
                counts[collection.name] += len(docs)
                yield b"".join(_line(_record(collection, doc)) for doc in docs)
        yield _line({"type": "end", "counts": dict(counts), "total": counts.total()})


def _record(collection: Collection, doc: Doc) -> Doc:
    line = {"type": "record", "collection": collection.name, "record": _shown(collection, doc)}
    kept = {name: doc[name] for name in KEPT.get(collection.name, ()) if doc.get(name) is not None}
    return line | {"kept": kept} if kept else line


def _shown(collection: Collection, doc: Doc) -> Doc:
    """Returns a document without internal fields, also in the versions of a history."""
    shown = {name: value for name, value in doc.items() if name != "tenant_id" and name not in collection.internal}
    if isinstance(past := shown.get("record"), dict):
        shown["record"] = _shown(collection, past)
    return shown


def _line(value: Doc) -> bytes:
    return orjson.dumps(value) + b"\n"
