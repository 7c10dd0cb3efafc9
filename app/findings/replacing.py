"""Statements that a judge found to be replaced by a later one, and what follows from it when they are read.

"I live in Rome" stays active, and gets a link to "I now live in Oslo": kind and id of the later statement, where the
quotes stand in both texts, the finding, and when the link was made. It stores no text, so nothing outlives its record.
A link counts as long as both texts are as they were judged and the later statement stands, holds and is among what is
asked about. The words that no longer hold are then marked, and a memory that says nothing else ranks behind the later
one. It is a memory that is linked; what replaces it is a memory or a fact.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.facts.outdated import holds, present_first, raised_over
from app.facts.repository import of_partitions
from app.findings.schemas import FindingRecord
from app.findings.service import (
    EvidenceReader,
    EvidenceRecord,
    FactEvidence,
    MemoryEvidence,
    TextEvidence,
    as_found,
    fingerprint_of,
    quoted,
)
from app.memories.repository import MemoryRepository, repeats, same_partition
from app.memories.schemas import MemoryRecord, ReplacementLink
from app.retrieval.retriever import Hit, Replacement
from app.storage.changes import Change
from app.storage.protocol import Store
from app.storage.schema import Or, matches
from app.storage.scope import Scope, Viewpoint


class ReplacedStatement(NamedTuple):
    """What a memory says and no longer holds, and the later statement that replaces it."""

    memory_id: str
    words: str
    """The words of the memory that no longer hold."""
    alone: bool
    """Whether it says nothing else. A memory that does keeps its rank."""
    later: TextEvidence
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


async def linking(memories: MemoryRepository, finding: FindingRecord, now: str) -> list[Change]:
    """Returns the changes that link the earlier memory of a judge's finding, and what was learned from it word for
    word, with the statement that replaces it. None if the later statement is trusted less, so that the finding keeps
    the earlier one, or if the memory is shared with other agents than the finding's."""
    old, new = finding["evidence"]
    keep = finding["proposal"]["keep"]
    if finding["kind"] != "stale" or old["kind"] != "memory" or keep is None:
        return []
    if (keep["kind"], keep["id"]) != (new["kind"], new["id"]):
        return []
    link: ReplacementLink = {**new, "finding_id": finding["finding_id"], "at": now, "said": old}
    changes: list[Change] = []
    for memory in await memories.saying(old["id"]):
        if fingerprint_of(memory["content"]) == old["mark"] and same_partition(memory, finding):
            changes += memories.revise(memory, {"replaced_by": [*(memory.get("replaced_by") or ()), link]}, now)
    return changes


async def unlinking(memories: MemoryRepository, finding: FindingRecord, now: str) -> list[Change]:
    """Returns the changes that remove the links of a finding."""
    changes: list[Change] = []
    for evidence in finding["evidence"]:
        for memory in await memories.saying(evidence["id"]) if evidence["kind"] == "memory" else ():
            links = memory.get("replaced_by") or []
            others = [link for link in links if link["finding_id"] != finding["finding_id"]]
            if len(others) < len(links):
                changes += memories.revise(memory, {"replaced_by": others}, now)
    return changes


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
        and fingerprint_of(memory["content"]) == link["said"]["mark"]
    ]
    if not linked:
        return []
    is_visible = Or(tuple(of_partitions(viewpoint.partitions)))
    records = await EvidenceReader(store, scope, viewpoint.now).read((link["kind"], link["id"]) for _, link in linked)
    statements = []
    for memory, link in linked:
        later = as_found(link, records)
        if not isinstance(later, MemoryEvidence | FactEvidence):
            continue
        record = later.memory if isinstance(later, MemoryEvidence) else later.fact
        if matches(record, is_visible) and later.said_at <= viewpoint.as_of and holds(record, viewpoint.as_of):
            said, words = link["said"], quoted(link["said"], memory["content"])
            statements.append(
                ReplacedStatement(memory["memory_id"], words, "span" not in said, later, quoted(link, later.text))
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
    replaced_by = {  # place of a hit → places of the hits that replaced it
        place: {
            later
            for statement in by_memory.get(hit.doc["memory_id"], ())
            if statement.alone
            for later, other in enumerate(hits)
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
    return raised_over(shown, [(place, later) for place in replaced_by for later in _reached(place, replaced_by)])


def _is_same(memory: MemoryRecord, record: EvidenceRecord) -> bool:
    """Returns whether a memory is the record, or was learned from it word for word."""
    if not isinstance(record, MemoryEvidence):
        return False
    return memory["memory_id"] == record.id or repeats(memory, record.memory)


def _reached(start: int, replaced_by: Mapping[int, set[int]]) -> set[int]:
    """Returns the places of all that replaced a hit, one after the other."""
    reached, waiting = set[int](), [start]
    while waiting:
        new = replaced_by[waiting.pop()] - reached
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
