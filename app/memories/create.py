"""The plan of a POST of memories: updates the memory of a key, answers with an equal one, or adds a new one.

One plan serves one memory and a batch. Later items of a batch see the memories as earlier items leave them. A write of
less trust than the memories that it would overwrite or retire changes none of them: it is stored as disputed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.core.clock import rfc3339, to_ms
from app.core.work import with_a_turn_for_others
from app.errors import Conflict, FieldError, Invalid, invalid
from app.memories.access_log import Decays
from app.memories.models import MAX_TAGS, Embeddings
from app.memories.records import (
    identity_hash,
    needs_new_entry,
    new_memory,
    passage,
    repeated_source,
    revision,
    said_again,
)
from app.memories.repository import MemoryRepository, same_pair
from app.memories.schemas import MemoryCreate
from app.memories.succession import NearDuplicates, shown
from app.storage.changes import Change, IndexEntry
from app.storage.repository import expired
from app.storage.schema import Doc
from app.writes.executor import IfMatch


@dataclass(slots=True)
class _Item:
    """One body of the request, and the stored memory that it concerns."""

    body: MemoryCreate
    source: Doc
    pointer: str
    fresh: Doc
    """The memory that the body creates if it is new."""
    old: Doc | None = None
    """The stored memory with its key, or an equal one."""
    guard: Doc | None = None
    """The stored memory with its key, if the body may not overwrite it."""

    @property
    def draft(self) -> Doc | None:
        """The document whose text has to be embedded; None if the body adds no text."""
        return self.fresh if self.old is None else None


class MemoryWriter:
    """Plans the writes of one request. It commits nothing."""

    def __init__(
        self,
        memories: MemoryRepository,
        embeddings: Embeddings,
        decays: Decays,
        now: datetime,
        precondition: IfMatch,
    ) -> None:
        self._memories, self._embeddings, self._decays = memories, embeddings, decays
        self._precondition = precondition
        self._now, self._now_ms = rfc3339(now), to_ms(now)
        self._near = NearDuplicates(memories, self._now)
        self._changes: list[Change] = []
        self._retired: set[str] = set()
        self._removed: set[str] = set()
        self._equal: dict[tuple[Any, ...], Doc] = {}
        self._latest: dict[str, Doc] = {}  # memories by id, as earlier items leave them
        self._sources: dict[str, Doc] = {}  # memories by id, of which items were learned

    async def plan(
        self, bodies: Sequence[MemoryCreate], at: str, sources: Sequence[Doc] | None = None
    ) -> tuple[list[Doc], list[Change], list[bool]]:
        """Returns the answers, the changes, and for each answer whether it was created.

        `at` is the JSON pointer to the bodies. `sources`: for memories that the service derives, the fields of each
        source beside the API key. Raises Forbidden, Invalid or Conflict if an item cannot be stored.
        """
        for body in bodies:
            self._memories.scope.require_write(body.agent_id, body.user_id)
        _check_names(bodies, at)
        pointers = [f"{at}/{index}" if at else "" for index in range(len(bodies))]
        derived = sources or [{}] * len(bodies)
        self._sources = await self._memories.get_many([each for one in derived for each in one.get("memory_ids", ())])
        items = [
            await with_a_turn_for_others(self._item(*each)) for each in zip(bodies, derived, pointers, strict=True)
        ]
        if self._precondition.header is not None:
            self._precondition.check(items[0].old or items[0].guard if len(items) == 1 else None)
        drafts = [self._draft(item) for item in items]
        entries = iter(await self._embeddings.entries([passage(doc) for doc in drafts if doc is not None]))
        texts = [None if draft is None else (draft, next(entries)) for draft in drafts]
        answers, created = [], []
        for item, text in zip(items, texts, strict=True):
            answer, new = await with_a_turn_for_others(self._one(item, text))
            answers.append(answer)
            created.append(new)
        return answers, self._changes, created

    async def _item(self, body: MemoryCreate, source: Doc, pointer: str) -> _Item:
        unique = body.deduplicate and body.key is None
        said = {} if body.source is None else body.source.stated()
        origin = {} if body.origin is None else {"origin": body.origin}
        source = {**said, **origin, **source, "api_key_id": self._memories.scope.key_id}
        item = _Item(body, source, pointer, new_memory(body.model_dump(), source, self._now, unique=unique))
        old = await self._known(item)
        if old is not None and body.key is not None and _guarded(old, body):
            revised = old | _revision(body, old, self._now)
            same = identity_hash(revised) == identity_hash(old) and revised["memory_type"] == old["memory_type"]
            item.old, item.guard = (old, None) if same else (None, old)
        else:
            item.old = old
        return item

    async def _known(self, item: _Item) -> Doc | None:
        """Returns the memory with the body's key, or else one that is equal. Expired ones are removed."""
        body = item.body
        if body.key is not None:
            found = await self._memories.named(body.agent_id, body.user_id, body.key)
        elif body.deduplicate:
            found = await self._memories.equal(item.fresh, self._now)
        else:
            return None
        gone = [doc for doc in found if expired(doc, self._now) and doc["memory_id"] not in self._removed]
        if gone:
            self._removed.update(doc["memory_id"] for doc in gone)
            self._changes += self._memories.remove(gone)
        return next((doc for doc in found if not expired(doc, self._now)), None)

    def _draft(self, item: _Item) -> Doc | None:
        """Returns the document whose text has to be embedded; None if an old document keeps its text."""
        if item.old is None:
            return item.fresh
        if item.body.key is None or _guarded(item.old, item.body):
            return None
        changed = _revision(item.body, item.old, self._now)
        return item.old | changed if needs_new_entry(changed) else None

    async def _one(self, item: _Item, text: tuple[Doc, IndexEntry] | None) -> tuple[Doc, bool]:
        """Plans one item. `text`: the document with its new text, and the index entry of that text."""
        body = item.body
        known = item.old if item.old is not None else self._twin(item)
        if known is not None:
            known = self._latest.get(known["memory_id"], known)
            if known["memory_id"] in self._retired:
                raise Conflict(f"{item.pointer}: {known['memory_id']} is superseded by an earlier item.")
            text = None if item.old is None else text  # an equal memory has this text already
        similar, near = ([], []) if text is None else await self._similar(body, *text)
        own_id = item.fresh["memory_id"] if known is None else known["memory_id"]
        replaced = [*near, *await self._named_by_caller(item, own_id)]
        against = [*([item.guard] if item.guard else []), *replaced]
        if item.guard is not None or any(_guarded(one, body) for one in replaced):
            return await self._dispute(item, against, similar)
        ids = [other["memory_id"] for other in replaced]
        if known is None:
            assert text is not None
            doc = self._add(item, text[1], ids)
        else:
            doc = await self._update(item, known, None if text is None else text[1], ids)
        for other in replaced:
            self._retire(other, doc)
        return await self._answer(doc, similar, ids), known is None

    async def _answer(self, doc: Doc, similar: Sequence[Doc], superseded: Sequence[str]) -> Doc:
        listed = [shown(other, other["memory_id"] in superseded) for other in similar]
        return {**await self._decays.shown(doc, self._now_ms), "similar": listed}

    async def _similar(self, body: MemoryCreate, draft: Doc, entry: IndexEntry) -> tuple[list[Doc], list[Doc]]:
        """Returns the near-duplicates that the answer lists, and those of them that are to be retired."""
        seen = await self._near.seen(draft, entry, self._retired)
        if body.on_similar == "keep" or not seen:
            return seen, []
        replaced = await self._near.replaceable(draft, entry, self._retired)
        every = {other["memory_id"]: other for other in [*seen, *replaced]}
        return sorted(every.values(), key=lambda other: -other["cosine"]), replaced

    def _twin(self, item: _Item) -> Doc | None:
        """Returns an equal memory that an earlier item of this batch adds."""
        return self._equal.get(_equality(item.fresh)) if item.body.deduplicate and item.body.key is None else None

    def _add(self, item: _Item, entry: IndexEntry, replaced: list[str]) -> Doc:
        doc = item.fresh | {"supersedes": list(dict.fromkeys(replaced))}
        if item.body.key is None:
            self._equal.setdefault(_equality(doc), doc)
        if (source := repeated_source(doc, self._sources)) is not None:  # a search returns one of the two
            doc["identity_hash"] = source["identity_hash"]
        return self._insert(doc, entry)

    def _insert(self, doc: Doc, entry: IndexEntry) -> Doc:
        doc = doc | {"embedding": self._embeddings.info(entry)}
        self._changes += self._memories.add(doc, entry)
        self._latest[doc["memory_id"]] = doc
        if doc["status"] == "active":
            self._near.note(doc, entry)
        return doc

    async def _update(self, item: _Item, old: Doc, entry: IndexEntry | None, replaced: list[str]) -> Doc:
        changed = await self._gains(item, old)
        if added := [each for each in dict.fromkeys(replaced) if each not in old["supersedes"]]:
            changed["supersedes"] = old["supersedes"] + added
        if not changed:
            return old
        if entry is not None:
            changed["embedding"] = self._embeddings.info(entry)
        doc = old | changed | {"version": old["version"] + 1, "updated_at": self._now}
        self._changes += self._memories.revise(old, changed, self._now, entry)
        self._latest[doc["memory_id"]] = doc
        if entry is not None:
            self._near.note(doc, entry)
            self._changes += self._memories.note_pending(doc)
        return doc

    async def _gains(self, item: _Item, old: Doc) -> Doc:
        """Returns the fields that the body changes in the memory with its key, or in an equal one."""
        body = item.body
        if body.key is not None and not _guarded(old, body):
            return _revision(body, old, self._now)
        changed = said_again(old, body.model_dump(), await self._decays.importance(old, self._now_ms), self._now)
        if len(changed.get("tags", ())) > MAX_TAGS:
            raise invalid(f"{item.pointer}/tags", f"the equal memory would have more than {MAX_TAGS} tags with these")
        return changed

    async def _dispute(self, item: _Item, against: Sequence[Doc], similar: Sequence[Doc]) -> tuple[Doc, bool]:
        """Stores the item as disputed, out of search, until a caller settles it.

        An equal dispute is answered instead.
        """
        fields = item.body.model_dump() | {"key": None}
        doc = new_memory(fields, item.source, self._now, unique=False)
        ids = list(dict.fromkeys(one["memory_id"] for one in against))
        doc |= {"status": "disputed", "contradicts": ids, "claimed_key": item.body.key}
        for one in await self._memories.equal(doc, self._now, "disputed") if item.body.deduplicate else ():
            if set(one["contradicts"]) >= set(ids) and one["claimed_key"] == item.body.key:
                return await self._answer(one, similar, ()), False
        (entry,) = await self._embeddings.entries([passage(doc)])
        return await self._answer(self._insert(doc, entry), similar, ()), True

    async def _named_by_caller(self, item: _Item, own_id: str) -> list[Doc]:
        """Returns the active memories that the body supersedes. They must belong to the same partition."""
        named: list[Doc] = []
        for memory_id in dict.fromkeys(item.body.supersedes):
            if memory_id == own_id:
                continue
            other = await self._memories.find_one(memory_id)
            pointer = f"{item.pointer}/supersedes/{item.body.supersedes.index(memory_id)}"
            if other is None or expired(other, self._now):
                raise invalid(pointer, "there is no such memory")
            if not same_pair(other, item.fresh):
                raise invalid(pointer, "it is a memory of another agent_id or user_id")
            if other["superseded_by"] == own_id or memory_id in self._retired:
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


def _guarded(old: Doc, body: MemoryCreate) -> bool:
    """Returns whether the body has too little trust to overwrite or retire the memory."""
    return bool(old["trust"] > body.trust)


_NO_FIELDS = {"supersedes", "deduplicate", "on_similar", "key", "origin", "source"}
"""What a body says beside the fields that it revises. A source never changes."""


def _revision(body: MemoryCreate, old: Doc, now: str) -> Doc:
    """Returns the fields that a body changes in the memory with its key. Fields that are absent in the body stay."""
    fields = body.model_dump(exclude_unset=True, exclude=_NO_FIELDS)
    return revision(old, fields, now)


def _equality(doc: Doc) -> tuple[Any, ...]:
    """Returns the values that are equal in equal memories of this request, whose hashes are computed by this
    version."""
    return doc["agent_id"], doc["user_id"], doc["memory_type"], doc["identity_hash"]


def _check_names(bodies: Sequence[MemoryCreate], at: str) -> None:
    seen: set[tuple[Any, ...]] = set()
    for index, body in enumerate(bodies):
        name = (body.agent_id, body.user_id, body.key)
        if body.key is not None and name in seen:
            error = FieldError(f"{at}/{index}/key", "stands twice in this batch for the same scope")
            raise Invalid(error.detail, errors=(error,))
        seen.add(name)
