"""What a POST of memories does: update under a name, answer an equal one, or add; retire what is replaced.

One plan serves one memory and a batch. Later items of a batch see what earlier ones will have done.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.clock import rfc3339, to_ms
from app.errors import Conflict, FieldError, Invalid, invalid
from app.idempotency.precondition import Precondition
from app.memories.decays import Decays
from app.memories.documents import needs_new_entry, new_memory, passage, revision
from app.memories.embeddings import Embeddings
from app.memories.repository import MemoryRepository
from app.memories.schemas import MemoryCreate
from app.memories.similar import NearDuplicates, shown
from app.storage.collection import Change, Doc, SearchEntry
from app.storage.repository import expired
from app.storage.text import content_hash


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
        self._near = NearDuplicates(memories, self._now)
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
        texts = [None if draft is None else (draft, next(entries)) for draft in fresh]
        answers, created = [], []
        for index, (body, old, text) in enumerate(zip(bodies, known, texts, strict=True)):
            answer, new = await self._one(body, old, text, f"{at}/{index}" if at else "")
            answers.append(answer)
            created.append(new)
        return answers, self._changes, created

    async def _known(self, body: MemoryCreate) -> Doc | None:
        """What this body updates or repeats: the memory of its name, else one equal to it. Expired ones make room."""
        if body.key is not None:
            found = await self._memories.named(body.agent_id, body.user_id, body.key)
        elif body.deduplicate:
            found = await self._memories.equal(body.model_dump(), content_hash(body.content), self._now)
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
        self, body: MemoryCreate, old: Doc | None, text: tuple[Doc, SearchEntry] | None, pointer: str
    ) -> tuple[Doc, bool]:
        """`text`: the document with its new text, and that text's entry."""
        known = old if old is not None else self._twin(body)
        if known is not None:
            known = self._latest.get(known["memory_id"], known)
            if known["memory_id"] in self._retired:
                raise Conflict(f"{pointer}: {known['memory_id']} is superseded by an earlier item.")
            text = None if old is None else text  # an equal one has it already
        similar, replaced = ([], []) if text is None else await self._similar(body, *text)
        replaced_ids = [other["memory_id"] for other in replaced]
        if known is not None:
            doc = self._update(body, known, None if text is None else text[1], replaced_ids)
        else:
            assert text is not None
            doc = self._add(body, *text, replaced_ids)
        for other in [*replaced, *await self._named_by_caller(body, doc, pointer)]:
            self._retire(other, doc)
        listed = [shown(other, other["memory_id"] in replaced_ids) for other in similar]
        return {**await self._decays.shown(doc, self._now_ms), "similar": listed}, known is None

    async def _similar(self, body: MemoryCreate, draft: Doc, entry: SearchEntry) -> tuple[list[Doc], list[Doc]]:
        """Near-duplicates that the answer lists, and those of them that are to be retired."""
        seen = await self._near.seen(draft, entry, self._retired)
        if body.on_similar == "keep" or not seen:
            return seen, []
        replaced = await self._near.replaceable(draft, entry, self._retired)
        every = {other["memory_id"]: other for other in [*seen, *replaced]}
        return sorted(every.values(), key=lambda other: -other["cosine"]), replaced

    def _twin(self, body: MemoryCreate) -> Doc | None:
        """An equal memory that an earlier item of this batch adds."""
        return self._equal.get(_equality(body)) if body.deduplicate and body.key is None else None

    def _add(self, body: MemoryCreate, draft: Doc, entry: SearchEntry, replaced: list[str]) -> Doc:
        supersedes = list(dict.fromkeys([*body.supersedes, *replaced]))
        doc = draft | {"embedding": self._embeddings.info(entry), "supersedes": supersedes}
        self._changes += self._memories.add(doc, entry)
        self._latest[doc["memory_id"]] = doc
        self._near.note(doc, entry)
        if body.key is None:
            self._equal.setdefault(_equality(body), doc)
        return doc

    def _update(self, body: MemoryCreate, old: Doc, entry: SearchEntry | None, replaced: list[str]) -> Doc:
        changed = self._revision(body, old)
        named = dict.fromkeys([*body.supersedes, *replaced])
        added = [i for i in named if i not in old["supersedes"] and i != old["memory_id"]]
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
            self._near.note(doc, entry)
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
