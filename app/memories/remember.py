"""What a POST of memories does: update under a name, answer an equal one, or add; retire what is replaced.

One plan serves one memory and a batch. Later items of a batch see what earlier ones will have done.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from app.clock import rfc3339, to_ms
from app.errors import Conflict, FieldError, Invalid, invalid
from app.idempotency.precondition import Precondition
from app.memories.decays import Decays
from app.memories.documents import needs_new_entry, new_memory, passage, revision
from app.memories.embeddings import Embeddings
from app.memories.models import MEMORIES
from app.memories.repository import MemoryRepository
from app.memories.schemas import MemoryCreate
from app.storage.collection import Change, Doc, SearchEntry
from app.storage.filters import Eq, both
from app.storage.repository import expired, unexpired
from app.storage.scope import Pair
from app.storage.search import SearchQuery
from app.storage.text import TermIds, content_hash

SIMILAR = 0.95
MAX_SIMILAR = 10
_NO_TERMS: TermIds = np.empty(0, np.uint32)


class Remember:
    def __init__(
        self,
        memories: MemoryRepository,
        embeddings: Embeddings,
        decays: Decays,
        now: datetime,
        precondition: Precondition,
    ) -> None:
        self._memories, self._embeddings, self._decays = memories, embeddings, decays
        self._precondition = precondition
        self._now, self._now_ms = rfc3339(now), to_ms(now)
        self._changes: list[Change] = []
        self._retired: set[str] = set()
        self._removed: set[str] = set()
        self._equal: dict[tuple[Any, ...], Doc] = {}
        self._latest: dict[str, Doc] = {}  # memories as earlier items leave them

    async def plan(
        self, bodies: Sequence[MemoryCreate], at: str, sources: Sequence[Doc] | None = None
    ) -> tuple[list[Doc], list[Change], list[bool]]:
        """Answers, changes, and which were created. `at` is where the bodies stand, for pointers; `sources` what the
        sources of new ones say beside the key, for memories that the service derives."""
        for body in bodies:
            self._memories.scope.require_write(body.agent_id, body.user_id)
        _check_names(bodies, at)
        known = [await self._known(body) for body in bodies]
        if self._precondition.header is not None:
            self._precondition.check(known[0] if len(known) == 1 else None)
        derived = sources or [{}] * len(bodies)
        fresh = [self._draft(body, old, source) for body, old, source in zip(bodies, known, derived, strict=True)]
        entries = iter(await self._embeddings.entries([passage(doc) for doc in fresh if doc is not None]))
        answers, created = [], []
        for index, (body, old, draft) in enumerate(zip(bodies, known, fresh, strict=True)):
            pointer = f"{at}/{index}" if at else ""
            entry = None if draft is None else next(entries)
            answer, new = await self._one(body, old, draft, entry, pointer)
            answers.append(answer)
            created.append(new)
        return answers, self._changes, created

    async def _known(self, body: MemoryCreate) -> Doc | None:
        """What this body updates or repeats: the memory of its name, else one equal to it. Expired ones make room."""
        if body.key is not None:
            found = await self._memories.named(body.agent_id, body.user_id, body.key)
        elif body.deduplicate:
            found = await self._memories.equal(body.model_dump(), content_hash(body.content))
        else:
            return None
        gone = [doc for doc in found if expired(doc, self._now) and doc["memory_id"] not in self._removed]
        if gone:
            self._removed.update(doc["memory_id"] for doc in gone)
            self._changes += self._memories.remove(gone)
        return next((doc for doc in found if not expired(doc, self._now)), None)

    def _draft(self, body: MemoryCreate, old: Doc | None, source: Doc) -> Doc | None:
        """A new document, or None where an old one is answered or updated without a new text."""
        if old is None:
            source = {**source, "api_key_id": self._memories.scope.key_id}
            return new_memory(body.model_dump(), source, self._now, unique=body.deduplicate and body.key is None)
        changed = self._revision(body, old)
        return old | changed if needs_new_entry(changed) else None

    def _revision(self, body: MemoryCreate, old: Doc) -> Doc:
        if body.key is None:
            return {}
        fields = body.model_dump(exclude_unset=True, exclude={"supersedes", "deduplicate", "on_similar", "key"})
        return revision(old, fields, self._now)

    async def _one(
        self, body: MemoryCreate, old: Doc | None, draft: Doc | None, entry: SearchEntry | None, pointer: str
    ) -> tuple[Doc, bool]:
        similar: list[Doc] = []
        replaced: list[Doc] = []
        known = old if old is not None else self._twin(body)
        if known is not None:
            known = self._latest.get(known["memory_id"], known)
            if known["memory_id"] in self._retired:
                raise Conflict(f"{pointer}: {known['memory_id']} is superseded by an earlier item.")
            doc = self._update(body, known, None if old is None else entry)
        else:
            assert draft is not None
            assert entry is not None
            similar = await self._similar(draft, entry)
            replaced = [s for s in similar if body.on_similar == "supersede" and _replaceable(s, draft)]
            doc = self._add(body, draft, entry, [other["memory_id"] for other in replaced])
        for other in [*replaced, *await self._named_by_caller(body, doc, pointer)]:
            self._retire(other, doc)
        shown = [_similar(other, other in replaced) for other in similar]
        return {**await self._decays.shown(doc, self._now_ms), "similar": shown}, known is None

    def _twin(self, body: MemoryCreate) -> Doc | None:
        """An equal memory that an earlier item of this batch adds."""
        return self._equal.get(_equality(body)) if body.deduplicate and body.key is None else None

    def _add(self, body: MemoryCreate, draft: Doc, entry: SearchEntry, replaced: list[str]) -> Doc:
        supersedes = list(dict.fromkeys([*body.supersedes, *replaced]))
        doc = draft | {"embedding": self._embeddings.info(entry), "supersedes": supersedes}
        self._changes += self._memories.add(doc, entry)
        self._latest[doc["memory_id"]] = doc
        if body.key is None:
            self._equal.setdefault(_equality(body), doc)
        return doc

    def _update(self, body: MemoryCreate, old: Doc, entry: SearchEntry | None) -> Doc:
        changed = self._revision(body, old)
        added = [i for i in dict.fromkeys(body.supersedes) if i not in old["supersedes"] and i != old["memory_id"]]
        if added:
            changed["supersedes"] = old["supersedes"] + added
        if not changed:
            return old
        if entry is not None:
            changed["embedding"] = self._embeddings.info(entry)
        doc = old | changed | {"version": old["version"] + 1, "updated_at": self._now}
        self._changes += self._memories.revise(old, changed, self._now, entry)
        self._latest[doc["memory_id"]] = doc
        if entry is not None:
            self._changes += self._memories.note_pending(doc)
        return doc

    async def _named_by_caller(self, body: MemoryCreate, doc: Doc, pointer: str) -> list[Doc]:
        """What the caller says that this memory replaces, and is not replaced yet."""
        wanted = [i for i in dict.fromkeys(body.supersedes) if i != doc["memory_id"]]
        named: list[Doc] = []
        for memory_id in wanted:
            other = await self._memories.find_one(memory_id)
            if other is None or expired(other, self._now):
                raise invalid(f"{pointer}/supersedes/{body.supersedes.index(memory_id)}", "there is no such memory")
            if other["superseded_by"] == doc["memory_id"] or memory_id in self._retired:
                continue
            if other["status"] != "active":
                raise Conflict(f"{memory_id} is {other['status']} already.")
            named.append(other)
        return named

    def _retire(self, other: Doc, doc: Doc) -> None:
        if other["memory_id"] not in self._retired:
            self._retired.add(other["memory_id"])
            latest = self._latest.get(other["memory_id"], other)
            self._changes += self._memories.retire(latest, doc["memory_id"], self._now)

    async def _similar(self, draft: Doc, entry: SearchEntry) -> list[Doc]:
        """Near-duplicates that the caller may see, nearest first, as `{…, "cosine"}`."""
        if entry.vector is None:
            return []
        scope = self._memories.scope
        pairs = scope.pairs(draft["agent_id"], draft["user_id"], include_shared=True)
        where = both(Eq("status", "active"), unexpired(self._now))
        query = SearchQuery(scope.tenant, pairs, where, entry.vector, entry.model, _NO_TERMS)
        columns = await self._memories.store.search(MEMORIES, query)
        near = np.flatnonzero(columns.matched & columns.has_vector & (columns.cosine >= SIMILAR))
        near = near[np.argsort(-columns.cosine[near], kind="stable")][:MAX_SIMILAR]
        found = await self._memories.store.fetch(MEMORIES, scope.tenant, columns.rows[near]) if len(near) else []
        scored = zip(found, columns.cosine[near].tolist(), strict=True)
        return [one.doc | {"cosine": cosine} for one, cosine in scored if one is not None and scope.sees(one.doc)]


def _replaceable(other: Doc, doc: Doc) -> bool:
    same_pair = Pair(other["agent_id"], other["user_id"]) == Pair(doc["agent_id"], doc["user_id"])
    return same_pair and other["memory_type"] != "message"


def _similar(other: Doc, superseded: bool) -> Doc:
    return {
        "memory_id": other["memory_id"],
        "content": other["content"],
        "score": round(other["cosine"], 6),
        "superseded": superseded,
    }


def _equality(body: MemoryCreate) -> tuple[Any, ...]:
    return body.agent_id, body.user_id, body.memory_type, content_hash(body.content)


def _check_names(bodies: Sequence[MemoryCreate], at: str) -> None:
    seen: set[tuple[Any, ...]] = set()
    for index, body in enumerate(bodies):
        name = (body.agent_id, body.user_id, body.key)
        if body.key is not None and name in seen:
            error = FieldError(f"{at}/{index}/key", "stands twice in this batch for the same scope")
            raise Invalid(error.detail, errors=(error,))
        seen.add(name)
