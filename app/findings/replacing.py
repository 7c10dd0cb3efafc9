"""Statements that a judge found to be replaced by a later one, and what follows from it when they are read.

"I live in Rome" stays active, and gets a link to "I now live in Oslo": kind and id of the later statement, where the
quotes stand in both texts, the finding, and when the link was made. It stores no text, so nothing outlives its record.
A link counts as long as both texts are as they were judged and the later statement stands, holds and is among what is
asked about. The words that no longer hold are then marked, and a memory that says nothing else ranks behind the later
one. It is a memory that is linked; what replaces it is a memory or a fact.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from app.core.language import place_of
from app.facts.outdated import holds, present_first, raised_over
from app.facts.repository import FactRepository, of_partitions
from app.facts.schemas import FactRecord
from app.findings import service
from app.findings.schemas import FindingRecord
from app.memories.repository import MemoryRepository, is_word_for_word, same_partition
from app.memories.schemas import STATEMENTS, EvidenceName, MemoryRecord, ReplacementLink
from app.retrieval.retriever import Hit, Replacement
from app.storage.changes import Change
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Absent, Eq, In, Or, both, matches
from app.storage.scope import Scope, Viewpoint


class ReplacedStatement(NamedTuple):
    """What a memory says and no longer holds, and the later statement that replaces it."""

    memory_id: str
    words: str
    """The words of the memory that no longer hold."""
    alone: bool
    """Whether it says nothing else. A memory that does keeps its rank."""
    later: service.TextEvidence
    """What replaces them."""
    later_words: str

    def shown(self) -> Replacement:
        """Returns the later statement as responses show it."""
        return {
            "kind": self.later.kind,
            "id": self.later.id,
            "quote": self.later_words,
            "replaced": self.words,
            "said_at": self.later.said_at,
        }


# --- Making links -----------------------------------------------------------------------------------------------------

Places: TypeAlias = list[tuple[MemoryRecord, EvidenceName]]
"""Memories, each with where it says something: `[(mem_1, {"span": [0, 14], …})]`."""
Links: TypeAlias = list[tuple[MemoryRecord, ReplacementLink]]


async def places_of(memories: MemoryRepository, judged: EvidenceName) -> Places:
    """Returns every memory that says a statement, with where, the one that was judged first: of "My sister is
    vegetarian" the memory that was learned, the message with these words, and the summary of that session. Nothing if
    the judged one is gone or its text has changed.

    Of a message only what was learned from the judged words counts: not the allergy in "I have an allergy and my sister
    is vegetarian".
    """
    memory = await memories.find_one(judged["id"])
    if memory is None or service.fingerprint_of(memory["content"]) != judged["mark"]:
        return []
    said, is_part = service.quoted(judged, memory["content"]), "span" in judged
    is_message, learned = memory["memory_type"] == "message", [memory["memory_id"]]
    statements = Repository(memories.store, memories.scope, STATEMENTS)
    if is_message:
        from_it = await statements.find(Eq("learned_from", memory["memory_id"]))
        learned = [one["memory_id"] for one in from_it if not is_part or place_of(one["quote"], said) is not None]
    of_them = await statements.find(In("memory_id", tuple(learned))) if learned else []
    sessions = tuple({session for one in of_them if (session := one["session_id"]) is not None})
    of_sessions = both(Eq("memory_type", "summary"), In("source.session_id", sessions))
    summaries = {one["source"]["session_id"]: one for one in await memories.find(of_sessions)} if sessions else {}
    ids = [named for one in of_them for name in ("memory_id", "learned_from") if (named := one[name]) is not None]
    others = await memories.get_many(ids)
    places = {memory["memory_id"]: (memory, judged)}
    for one in of_them:
        for other, words in (
            (others.get(one["memory_id"]), one["text"]),
            (others.get(one["learned_from"] or ""), one["quote"]),
            (summaries.get(one["session_id"]), one["text"]),
        ):
            if other is None or other["memory_id"] in places or other["trust"] > memory["trust"]:
                continue
            place = service.meant(said if is_part and not is_message else words, "", other["content"])
            if other["content"] == memory["content"]:
                place = {"span": judged["span"], "cut": judged["cut"]} if is_part else {}
            if place is not None:
                places[other["memory_id"]] = other, {**service.of_memory(other).named(), **place}
    return [*places.values()]


async def facts_of(memories: MemoryRepository, links: Links, now: str) -> list[FactRecord]:
    """Returns the facts that hold and were made of the statements that these links are about: their words stand in the
    linked words of a message."""
    said = {memory["memory_id"]: service.quoted(link["said"], memory["content"]) for memory, link in links}
    sessions = tuple({session for memory, _ in links if (session := memory["source"].get("session_id")) is not None})
    # `standing` of a fact says whether it is held or disputed; that of a memory marks rules, small talk and files
    held = both(In("source.session_id", sessions), Eq("standing", "held"), Absent("known_until"))
    facts = await FactRepository(memories.store, memories.scope).find(held) if sessions else []
    return [fact for fact in facts if holds(fact, now) and any(is_learned_from(fact, *one) for one in said.items())]


def is_learned_from(fact: FactRecord, memory_id: str, words: str) -> bool:
    """Returns whether a fact was learned from these words of a memory."""
    source = fact["source"]
    return memory_id in source["memory_ids"] and place_of(source.get("quote") or "", words) is not None


async def links_of(
    memories: MemoryRepository, judged: EvidenceName, later: EvidenceName, finding_id: str, now: str
) -> Links:
    """Returns each memory that says a judged statement, with its link to the later one."""
    return [
        (memory, {**later, "finding_id": finding_id, "at": now, "said": place})
        for memory, place in await places_of(memories, judged)
        if memory["memory_id"] != later["id"]
    ]


def linked(memories: MemoryRepository, links: Links, now: str) -> list[Change]:
    by_memory: dict[str, tuple[MemoryRecord, list[ReplacementLink]]] = {}
    for memory, link in links:
        _, replaced_by = by_memory.setdefault(memory["memory_id"], (memory, list(memory.get("replaced_by") or ())))
        if not any({**one, "at": now} == {**link, "at": now} for one in replaced_by):
            replaced_by.append(link)
    return [
        change
        for memory, replaced_by in by_memory.values()
        for change in memories.revise(memory, {"replaced_by": replaced_by}, now)
        if replaced_by != memory.get("replaced_by")
    ]


async def linking(memories: MemoryRepository, finding: FindingRecord, now: str) -> Links:
    """Returns the links of the earlier memory of a judge's finding, and of all that says the same statement, with the
    one that replaces it. None if the later statement is trusted less, so that the finding keeps the earlier one, or if
    the memory is shared with other agents than the finding's."""
    old, new = finding["evidence"]
    keep = finding["proposal"]["keep"]
    if finding["kind"] != "stale" or old["kind"] != "memory" or keep is None:
        return []
    if (keep["kind"], keep["id"]) != (new["kind"], new["id"]):
        return []
    links = await links_of(memories, old, new, finding["finding_id"], now)
    return [(memory, link) for memory, link in links if same_partition(memory, finding)]


async def unlinking(memories: MemoryRepository, finding: FindingRecord, now: str) -> list[Change]:
    """Returns the changes that remove the links of a finding."""
    changes: list[Change] = []
    for memory, _ in await places_of(memories, finding["evidence"][0]):
        links = memory.get("replaced_by") or []
        others = [link for link in links if link["finding_id"] != finding["finding_id"]]
        if len(others) < len(links):
            changes += memories.revise(memory, {"replaced_by": others}, now)
    return changes


def carried_over(memory: MemoryRecord, text: str) -> list[ReplacementLink]:
    """Returns the links of a memory whose text the service rewrites, as far as the new text has their words: a summary
    that goes on."""
    mark, carried = service.fingerprint_of(text), list[ReplacementLink]()
    for link in memory.get("replaced_by") or ():
        if service.fingerprint_of(memory["content"]) == link["said"]["mark"]:
            place = service.meant(service.quoted(link["said"], memory["content"]), "", text)
            if place is not None:
                said: EvidenceName = {"kind": "memory", "id": memory["memory_id"], "mark": mark, **place}
                carried.append({**link, "said": said})
    return carried


# --- Reading links ----------------------------------------------------------------------------------------------------


async def replaced(
    store: Store, scope: Scope, viewpoint: Viewpoint, memories: Iterable[MemoryRecord]
) -> list[ReplacedStatement]:
    """Returns what of the memories was replaced, as far as their links count from this viewpoint."""
    linked = [
        (memory, link)
        for memory in memories
        for link in memory.get("replaced_by") or ()
        if (viewpoint.known_at is None or link["at"] <= viewpoint.known_at)
        and service.fingerprint_of(memory["content"]) == link["said"]["mark"]
    ]
    if not linked:
        return []
    is_visible = Or(tuple(of_partitions(viewpoint.partitions)))
    records = await service.EvidenceReader(store, scope, viewpoint.now).read(
        (link["kind"], link["id"]) for _, link in linked
    )
    statements = []
    for memory, link in linked:
        later = service.as_found(link, records)
        if not isinstance(later, service.MemoryEvidence | service.FactEvidence):
            continue
        record = later.memory if isinstance(later, service.MemoryEvidence) else later.fact
        if matches(record, is_visible) and later.said_at <= viewpoint.as_of and holds(record, viewpoint.as_of):
            said, words = link["said"], service.quoted(link["said"], memory["content"])
            statements.append(
                ReplacedStatement(
                    memory["memory_id"], words, "span" not in said, later, service.quoted(link, later.text)
                )
            )
    return statements


def later_first(hits: Sequence[Hit[MemoryRecord]], statements: Sequence[ReplacedStatement]) -> list[Hit[MemoryRecord]]:
    """Returns the hits, those that replace others before these, and each with what replaced it. A hit that says other
    things, too, keeps its place: somebody may have asked for these.

    "We moved to Bergen" answers "Where do I live?" at least as well as "I live in Oslo", so it gets that one's score,
    and so does what replaced it in turn.
    """
    by_memory: dict[str, list[ReplacedStatement]] = {}
    for statement in statements:
        by_memory.setdefault(statement.memory_id, []).append(statement)
    places_over = {  # place of a hit → places of the hits that replaced it
        place: {
            at
            for statement in by_memory.get(hit.doc["memory_id"], ())
            if statement.alone
            for at, other in enumerate(hits)
            if _is_same(other.doc, statement.later)
        }
        for place, hit in enumerate(hits)
    }
    shown = [
        hit._replace(replaced_by=[statement.shown() for statement in by_memory[hit.doc["memory_id"]]])
        if hit.doc["memory_id"] in by_memory
        else hit
        for hit in hits
    ]
    return raised_over(shown, [(place, later) for place in places_over for later in _reached(place, places_over)])


def _is_same(memory: MemoryRecord, record: service.EvidenceRecord) -> bool:
    """Returns whether a memory is the record, or was learned from it word for word."""
    if not isinstance(record, service.MemoryEvidence):
        return False
    return memory["memory_id"] == record.id or is_word_for_word(memory, record.memory)


def _reached(start: int, places_over: Mapping[int, set[int]]) -> set[int]:
    """Returns the places of all that replaced a hit, one after the other."""
    reached, waiting = set[int](), [start]
    while waiting:
        new = places_over[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


async def what_holds_first(
    store: Store, scope: Scope, viewpoint: Viewpoint, hits: Sequence[Hit[MemoryRecord]]
) -> list[Hit[MemoryRecord]]:
    """Returns the hits of a search of memories, those that state what holds before those that state what it replaced:
    by the values of facts, and by the links of a judge."""
    ordered = await present_first(store, scope, viewpoint, hits)
    statements = await replaced(store, scope, viewpoint, (hit.doc for hit in ordered))
    return later_first(ordered, statements) if statements else ordered
