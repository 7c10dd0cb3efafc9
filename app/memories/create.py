"""The plan of `POST /v1/memories` and of a batch: what becomes of each body.

`MemoryPlanner._decide` decides which of four cases a body is, from what is stored before the request:

| Outcome   | What is stored                               | What is written                                  | Status |
|-----------|----------------------------------------------|--------------------------------------------------|--------|
| `New`     | nothing with its key; without a key, nothing | the memory                                       | 201    |
|           | equal, or it says `deduplicate: false`       |                                                  |        |
| `Revise`  | the memory with its key, of no more trust    | the body's trust and the fields that it names    | 200    |
| `Repeat`  | an equal memory, or the one with its key, of | what the stored one gains: trust, importance,    | 200    |
|           | more trust, which the body would leave equal | tags, a pin                                      |        |
| `Contend` | the memory with its key, of more trust,      | the body as a disputed memory, without its key;  | 201    |
|           | which says something else                    | the stored one stays (an equal dispute: nothing) | (200)  |

Two things are known only when a body's turn comes, and correct this. A `New` one is a `Repeat` if an earlier item of
the batch has added an equal memory. And a body that would supersede a memory of more trust (`supersedes`, `on_similar`)
is stored as disputed, whichever case it is: less trust never overwrites or supersedes more.

Later items of a batch see the memories as earlier items leave them.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

import numpy as np

from app.core.clock import rfc3339, to_ms
from app.core.work import characters, off_loop
from app.errors import Conflict, invalid
from app.memories.agents import Decays
from app.memories.repository import (
    Embeddings,
    MemoryRepository,
    TextToIndex,
    identity_hash,
    is_rule,
    needs_new_entry,
    new_memory,
    revision,
    same_partition,
    text_to_index,
    word_for_word_original,
)
from app.memories.schemas import (
    FILE,
    KEPT_AS_IS,
    MAX_TAGS,
    MEMORIES,
    MemoryChange,
    MemoryCreate,
    MemoryCreated,
    MemoryRecord,
    MemoryType,
    Similar,
    Source,
)
from app.storage.changes import Change, IndexEntry, Update
from app.storage.repository import expired, unexpired
from app.storage.schema import Eq, Filter, In, Not, both, matches
from app.storage.scope import ANY_AGENT, Partition
from app.storage.search import Floats, SearchQuery
from app.storage.text import TermIds
from app.writes.executor import Precondition


@dataclass(frozen=True, slots=True)
class New:
    """Nothing stored has the body's key; without a key, nothing is equal to it, or it wants no deduplication."""


@dataclass(frozen=True, slots=True)
class Revise:
    """The body changes these fields of the memory with its key (none, where it says the same again)."""

    stored: MemoryRecord
    changed: MemoryChange


@dataclass(frozen=True, slots=True)
class Repeat:
    """The body says what this memory says."""

    stored: MemoryRecord


@dataclass(frozen=True, slots=True)
class Contend:
    """The body contradicts the memory with its key, and has less trust."""

    stored: MemoryRecord


CreateOutcome: TypeAlias = New | Revise | Repeat | Contend


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What the bodies of a request become: an answer for each, in their order, and the changes of one commit."""

    answers: list[MemoryCreated]
    created: set[str]
    """Ids of the memories that are new."""
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class _Item:
    """One body of the request. `pointer` is the JSON pointer to it."""

    body: MemoryCreate
    pointer: str
    memory: MemoryRecord
    """The memory that the body creates if it is new."""
    expired: list[MemoryRecord]
    """Memories with its key, or equal to it, that have expired and make room."""
    outcome: CreateOutcome

    @property
    def stored(self) -> MemoryRecord | None:
        """The stored memory that the body concerns."""
        return None if isinstance(self.outcome, New) else self.outcome.stored

    @property
    def new_text(self) -> TextToIndex | None:
        """The text that has to be embedded. None if a stored memory keeps its text."""
        match self.outcome:
            case New() | Contend():
                return text_to_index(self.memory)
            case Revise(stored, changed) if needs_new_entry(changed):
                return text_to_index(stored | changed)
            case _:
                return None


class MemoryPlanner:
    """Plans the memories of one request. It commits nothing. Each run of the write handler makes its own."""

    def __init__(
        self, memories: MemoryRepository, embeddings: Embeddings, now: datetime, precondition: Precondition
    ) -> None:
        self._memories, self._embeddings, self._precondition = memories, embeddings, precondition
        self._decays = Decays(memories.store, memories.scope.tenant)
        self._now, self._now_ms = rfc3339(now), to_ms(now)
        self._near = NearDuplicates(memories, self._now)
        self._changes: list[Change] = []
        self._created: set[str] = set()  # ids of memories that items add
        self._removed: set[str] = set()  # ids of expired memories that make room
        self._superseded: set[str] = set()  # ids of memories that items supersede
        self._latest: dict[str, MemoryRecord] = {}  # memories by id, as earlier items leave them
        self._new_by_equality: dict[_Equality, MemoryRecord] = {}  # memories that items without a key add
        self._originals: dict[str, MemoryRecord] = {}  # by id, from what a job learned these; empty for a POST

    async def plan(
        self, bodies: Sequence[MemoryCreate], base_pointer: str, sources: Sequence[Source] | None = None
    ) -> MemoryPlan:
        """Plans the bodies, to which `base_pointer` leads (`/items`; empty for a body that is the whole request).

        `sources`: for memories that a job learns, the fields of `source` that say from what, one for each body:
        `{"memory_ids": ["mem_1"], "quote": "I live in Rome"}`. A POST has none. Raises Forbidden, Invalid or Conflict
        if a body cannot be stored.
        """
        for body in bodies:
            self._memories.scope.require_write(body.agent_id, body.user_id)  # rules: `MemoryRepository.require_write`
        seen: set[tuple[str | None, str | None, str | None]] = set()
        for index, body in enumerate(bodies):
            owner_and_key = (body.agent_id, body.user_id, body.key)
            if body.key is not None and owner_and_key in seen:
                raise invalid(
                    f"{base_pointer}/{index}/key", "stands twice in this batch for the same agent_id and user_id"
                )
            seen.add(owner_and_key)
        if sources is None:
            sources = [{}] * len(bodies)
        original_ids = [memory_id for source in sources for memory_id in source.get("memory_ids", ())]
        self._originals = await self._memories.get_many(original_ids)
        items: list[_Item] = []
        for index, (body, source) in enumerate(zip(bodies, sources, strict=True)):
            pointer = f"{base_pointer}/{index}" if base_pointer else ""
            items.append(await self._item(body, pointer, source))
            if index:
                await asyncio.sleep(0)  # a read never yields to other requests: of 500 items, one after each
        # an If-Match names the version of one memory, so none fits a batch of two: 412
        self._precondition.check(items[0].stored if len(items) == 1 else None)

        texts = [text for item in items if (text := item.new_text) is not None]
        # no key is None: it stands in the type because an item without a new text asks for the entry of None
        entries: dict[TextToIndex | None, IndexEntry] = dict(
            zip(texts, await self._embeddings.entries(texts), strict=True)
        )
        answers: list[MemoryCreated] = []
        for item in items:
            if answers:
                await asyncio.sleep(0)
            answers.append(await self._plan_item(item, entries.get(item.new_text)))
        return MemoryPlan(answers, self._created, self._changes)

    async def _item(self, body: MemoryCreate, pointer: str, source: Source) -> _Item:
        # what the caller says of it, what a job learned it from, and the id of the API key; `new_memory` adds defaults
        said: Source = {} if body.source is None else body.source.stated()
        if body.origin is not None:
            said["origin"] = body.origin
        source = {**said, **source, "api_key_id": self._memories.scope.key_id}
        unique = body.deduplicate and body.key is None

        def make() -> MemoryRecord:
            return new_memory(MEMORIES.as_record(body.model_dump()), source, self._now, unique=unique)

        memory = await off_loop(characters(body.content, body.context, body.metadata), make)
        if body.key is not None:
            found = await self._memories.with_key(body.agent_id, body.user_id, body.key)
        else:
            found = await self._memories.equal(memory, self._now) if body.deduplicate else []
        gone = [other for other in found if expired(other, self._now) and other["memory_id"] not in self._removed]
        self._removed.update(other["memory_id"] for other in gone)
        stored = next((other for other in found if not expired(other, self._now)), None)
        return _Item(body, pointer, memory, gone, self._decide(body, stored))

    def _decide(self, body: MemoryCreate, stored: MemoryRecord | None) -> CreateOutcome:
        """Decides which case a body is (the table above), from the memory that was stored before the request."""
        if stored is None:
            return New()
        if body.key is None:
            return Repeat(stored)
        fields = MEMORIES.as_record(body.model_dump(exclude_unset=True, exclude=_NOT_REVISED))
        fields["trust"] = body.trust  # also where the body names none: it says the content with that trust
        changed = revision(stored, fields, self._now)
        if not _is_guarded(stored, body):
            return Revise(stored, changed)
        revised = stored | changed
        # hashed anew: the field may hold the hash of a message (`word_for_word_original`)
        equal = identity_hash(revised) == identity_hash(stored) and revised["memory_type"] == stored["memory_type"]
        return Repeat(stored) if equal else Contend(stored)

    async def _plan_item(self, item: _Item, entry: IndexEntry | None) -> MemoryCreated:
        """Adds the changes of one item, with the index entry of its new text. Returns its answer."""
        outcome = self._after_earlier_items(item)
        # the memory whose near-duplicates are sought
        subject = outcome.stored if isinstance(outcome, Revise | Repeat) else item.memory
        if isinstance(outcome, Repeat):
            # one that was New has an entry: the second of "items": [{"content": "Likes tea"}, {"content": "Likes tea"}]
            entry = None
        similar, to_supersede = list[NearDuplicate](), list[MemoryRecord]()
        if entry is not None:  # a text that is stored already is not compared again
            supersede = item.body.on_similar == "supersede"
            similar, to_supersede = await self._near.find(subject, entry, self._superseded, supersede=supersede)
        near_ids = {other["memory_id"] for other in to_supersede}
        to_supersede += await self._named_by_body(item, subject["memory_id"], near_ids)

        guarded = any(_is_guarded(other, item.body) for other in to_supersede)
        if item.expired:  # a dispute with one of them is over, or goes on with the new memory if that takes the key
            self._changes += self._memories.remove(item.expired)
            heirs = [] if guarded else [item.memory]
            self._changes += await self._memories.disputes_over(item.expired, self._now, heirs)
        if isinstance(outcome, Contend):
            return await self._dispute(item, [outcome.stored, *to_supersede], similar, entry)
        if guarded:
            # the entry of a Revise is of the stored memory with the changes, and the dispute is of the body alone
            return await self._dispute(item, to_supersede, similar, None if isinstance(outcome, Revise) else entry)

        superseded_ids = [other["memory_id"] for other in to_supersede]
        if isinstance(outcome, New):
            new = subject | {"supersedes": superseded_ids}
            if item.body.key is None:
                self._new_by_equality.setdefault(_equality(new), new)
            # a job has learned "Lives in Rome" from the message "Lives in Rome": both get one hash, by which a search
            # shows one of the two. What a caller posts has no such original
            original = word_for_word_original(new, self._originals)
            if original is not None:
                new["identity_hash"] = original["identity_hash"]
            written, changes = await self._memories.add(new, self._embeddings, entry)
            self._created.add(written["memory_id"])
        else:
            changed = outcome.changed if isinstance(outcome, Revise) else await self._gains_of_repeat(item, subject)
            new_links = [memory_id for memory_id in superseded_ids if memory_id not in subject["supersedes"]]
            if new_links:
                changed = changed | {"supersedes": subject["supersedes"] + new_links}
            written, changes = await self._memories.rewritten(subject, changed, self._now, self._embeddings, entry)
        self._changes += changes
        self._latest[written["memory_id"]] = written
        if entry is not None:
            self._near.add_written(written, entry)
        for superseded in to_supersede:
            self._superseded.add(superseded["memory_id"])
            latest = self._latest.get(superseded["memory_id"], superseded)
            self._changes += self._memories.supersede(latest, written["memory_id"], self._now)
        return await self._answer(written, similar, superseded_ids)

    def _after_earlier_items(self, item: _Item) -> CreateOutcome:
        """Returns the outcome of an item where earlier items of the batch have added or changed memories.

        Raises Conflict if one of them has superseded the memory that the item revises or repeats. A dispute may name a
        superseded one.
        """
        outcome = item.outcome
        if isinstance(outcome, New) and item.body.deduplicate and item.body.key is None:
            equal = self._new_by_equality.get(_equality(item.memory))
            outcome = New() if equal is None else Repeat(equal)
        if isinstance(outcome, New | Contend):
            return outcome
        memory_id = outcome.stored["memory_id"]
        if memory_id in self._superseded:
            raise Conflict(f"{item.pointer}: {memory_id} is superseded by an earlier item.")
        return replace(outcome, stored=self._latest.get(memory_id, outcome.stored))

    async def _answer(
        self, memory: MemoryRecord, similar: list["NearDuplicate"], superseded_ids: Sequence[str]
    ) -> MemoryCreated:
        listed: list[Similar] = [
            {
                "memory_id": near.memory["memory_id"],
                "content": near.memory["content"],
                "score": round(min(near.cosine, 1.0), 6),
                "superseded": near.memory["memory_id"] in superseded_ids,
            }
            for near in similar
        ]
        return {**await self._decays.render_at(memory, self._now_ms), "similar": listed}

    async def _named_by_body(self, item: _Item, own_id: str, near_ids: set[str]) -> list[MemoryRecord]:
        """Returns the active memories that the body names in `supersedes`, without itself and those of `near_ids`,
        which it supersedes already. They must belong to the same partition. Left out, too, is one that its own memory
        has superseded before, or that an earlier item of the batch supersedes."""
        named: list[MemoryRecord] = []
        for memory_id in dict.fromkeys(item.body.supersedes):
            if memory_id == own_id or memory_id in near_ids:
                continue
            memory = await self._memories.find_one(memory_id)
            pointer = f"{item.pointer}/supersedes/{item.body.supersedes.index(memory_id)}"
            if memory is None or expired(memory, self._now):
                raise invalid(pointer, "there is no such memory")
            if not same_partition(memory, item.memory):
                raise invalid(pointer, "it is a memory of another agent_id or user_id")
            if memory["superseded_by"] == own_id or memory_id in self._superseded:
                continue
            if memory["status"] != "active":
                raise Conflict(f"{memory_id} is {memory['status']} already.")
            named.append(memory)
        return named

    async def _gains_of_repeat(self, item: _Item, stored: MemoryRecord) -> MemoryChange:
        """Returns the fields that a memory gains from a body that repeats it: higher trust or importance, more tags, a
        pin. If the importance rises, decay starts anew."""
        # a model says the fact "Allergic to nuts", which is stored pinned: it changes no rule, and nothing is refused,
        # because what it says is there
        if is_rule(stored) and not self._memories.scope.rules:
            return {}
        memory = item.memory
        gains: MemoryChange = {
            "tags": [*stored["tags"], *memory["tags"]],
            "pinned": stored["pinned"] or memory["pinned"],
            "always": stored.get("always") or memory.get("always"),
            "trust": max(stored["trust"], memory["trust"]),
        }
        if memory["importance"] > await self._decays.importance(stored, self._now_ms):
            gains["importance"] = memory["importance"]
        gains = revision(stored, gains, self._now)
        if len(gains.get("tags", ())) > MAX_TAGS:
            raise invalid(f"{item.pointer}/tags", f"the equal memory would have more than {MAX_TAGS} tags with these")
        return gains

    async def _dispute(
        self,
        item: _Item,
        contradicted: Sequence[MemoryRecord],
        similar: list["NearDuplicate"],
        entry: IndexEntry | None,
    ) -> MemoryCreated:
        """Stores the body as disputed, out of search, until a caller settles it. An equal dispute is answered instead.

        `entry`: that of the body's text. None: there is none of the body alone, because it repeats or revises a stored
        memory.
        """
        contradicted_ids = list(dict.fromkeys(memory["memory_id"] for memory in contradicted))
        disputed = item.memory | {
            "key": None,
            "dedupe_key": None,
            "status": "disputed",
            "contradicts": contradicted_ids,
            "claimed_key": item.body.key,
        }
        disputed["identity_hash"] = identity_hash(disputed)  # the hash includes the key
        if item.body.deduplicate:
            for equal in await self._memories.equal(disputed, self._now, "disputed"):
                if set(equal["contradicts"]) >= set(contradicted_ids) and equal["claimed_key"] == item.body.key:
                    return await self._answer(equal, similar, ())
        disputed, changes = await self._memories.add(disputed, self._embeddings, entry)
        # a deletion of one of them at this moment conflicts with this commit (`MemoryRepository.delete`), or this one
        # with it, and whoever is second reads anew
        tenant, owner = self._memories.scope.tenant, disputed["user_id"]
        against = (Update(MEMORIES, tenant, named, inc={"disputes": 1}, user=owner) for named in contradicted_ids)
        self._changes += [*changes, *against]
        self._created.add(disputed["memory_id"])
        return await self._answer(disputed, similar, ())


def _is_guarded(stored: MemoryRecord, body: MemoryCreate) -> bool:
    """Returns whether the body has too little trust to overwrite or supersede the memory."""
    return stored["trust"] > body.trust


_NOT_REVISED = {"supersedes", "deduplicate", "on_similar", "key", "origin", "source"}
"""What a body says beside the fields that it revises. A source never changes."""


_Equality: TypeAlias = tuple[str | None, str | None, MemoryType, int]


def _equality(memory: MemoryRecord) -> _Equality:
    """Returns the key by which a later item of the request finds an equal memory that an earlier item adds. Stored
    memories are found by `MemoryRepository.equal`."""
    return memory["agent_id"], memory["user_id"], memory["memory_type"], memory["identity_hash"]


# --- Near-duplicates --------------------------------------------------------------------------------------------------
# Of long texts only the first windows are compared, because a text that contains another one says more than that.


SIMILAR = 0.95
"""Minimum cosine of near-duplicates."""
MAX_SHOWN = 10
_NO_TERMS: TermIds = np.empty(0, np.uint32)


class NearDuplicate(NamedTuple):
    """A memory with nearly the same text."""

    memory: MemoryRecord
    cosine: float


class NearDuplicates:
    """Finds near-duplicates, nearest first, among what is stored and what this request writes."""

    def __init__(self, memories: MemoryRepository, now: str) -> None:
        self._memories, self._now = memories, now
        self._written: dict[str, tuple[MemoryRecord, Floats | None]] = {}

    def add_written(self, memory: MemoryRecord, entry: IndexEntry) -> None:
        """Registers a memory that an item of this request writes.

        Later items compare with this text, not with the stored one.
        """
        self._written[memory["memory_id"]] = memory, entry.vector

    async def find(
        self, memory: MemoryRecord, entry: IndexEntry, without: Collection[str], *, supersede: bool
    ) -> tuple[list[NearDuplicate], list[MemoryRecord]]:
        """Returns the near-duplicates of a memory with this text: those that its answer lists, and those of them that
        it supersedes if it shall. None is of `without`.

        Listed are the nearest `MAX_SHOWN` that the caller may see, without documents and files, and all that are
        superseded: those of the same partition that are neither messages nor kept as they are.
        """
        vector, scope, store = entry.vector, self._memories.scope, self._memories.store
        if vector is None or memory["memory_type"] == FILE:  # all files have the vector of one word (`HARMLESS`)
            return [], []
        without = {*without, memory["memory_id"]}

        async def nearest(partitions: tuple[Partition, ...], where: Filter, limit: int | None) -> list[NearDuplicate]:
            active = both(Eq("status", "active"), unexpired(self._now), where)
            query = SearchQuery(
                scope.tenant, partitions, active, vector, entry.model, _NO_TERMS, candidates=True, first_windows=True
            )
            columns = await store.search(MEMORIES, query)
            rows = np.flatnonzero(columns.matched & columns.has_vector & (columns.cosine >= SIMILAR))
            # those of `without` fall out again, and those that this request has written may have another text now
            most = None if limit is None else limit + len(without) + len(self._written)
            rows = rows[np.argsort(-columns.cosine[rows], kind="stable")][:most]
            fetched = await store.fetch(MEMORIES, scope.tenant, columns.rows[rows]) if len(rows) else []
            found = [
                NearDuplicate(hit.doc, cosine)
                for hit, cosine in zip(fetched, columns.cosine[rows].tolist(), strict=True)
                if hit is not None and scope.sees(hit.doc) and hit.doc["memory_id"] not in self._written
            ]
            written = [(other, its) for other, its in self._written.values() if its is not None]
            if written:
                # `stack` takes ten times as long
                vectors = np.concatenate([its for _, its in written]).reshape(len(written), -1)
                found += [
                    NearDuplicate(other, cosine)
                    for (other, _), cosine in zip(written, (vectors @ vector).tolist(), strict=True)
                    if cosine >= SIMILAR and _is_in(partitions, other) and matches(other, where)
                ]
            found = [near for near in found if near.memory["memory_id"] not in without]
            return sorted(found, key=lambda near: -near.cosine)[:limit]

        agent, user = memory["agent_id"], memory["user_id"]
        seen = scope.partitions(agent, user, include_shared=True)
        visible = await nearest(seen, Not(In("memory_type", KEPT_AS_IS)), MAX_SHOWN)
        if not supersede or not visible:  # what is supersedable is visible, too
            return visible, []
        supersedable = await nearest((Partition(agent, user),), Not(In("memory_type", ("message", *KEPT_AS_IS))), None)
        by_id = {near.memory["memory_id"]: near for near in [*visible, *supersedable]}
        return sorted(by_id.values(), key=lambda near: -near.cosine), [near.memory for near in supersedable]


def _is_in(partitions: tuple[Partition, ...], memory: MemoryRecord) -> bool:
    agent, user = memory["agent_id"], memory["user_id"]
    return any(partition.user == user and partition.agent in (ANY_AGENT, agent) for partition in partitions)
