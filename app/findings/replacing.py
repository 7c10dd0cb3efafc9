"""Statements that a judge found to be replaced by a later one, and what follows from it when they are read.

"I live in Rome" stays active, and gets a link to "I now live in Oslo": kind and id of the later statement, where the
quotes stand in both texts, the finding, and when the link was made. It stores no text, so nothing outlives its record.
A link counts as long as both texts are as they were judged and the later statement stands, holds and is among what is
asked about. A replaced memory then ranks behind the later one and is marked. It is a memory that is linked; what
replaces it is a memory or a fact.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.facts.outdated import present_first, raised_over
from app.facts.replaced import holds
from app.facts.repository import of_pairs
from app.findings.service import EvidenceReader, EvidenceRecord, mark_of, quoted
from app.memories.models import LINKS
from app.memories.records import repeats
from app.memories.repository import MemoryRepository, same_pair
from app.retrieval.retriever import Hit
from app.storage.changes import Change
from app.storage.protocol import Store
from app.storage.schema import Doc, Or, matches
from app.storage.scope import Scope, Viewpoint


class ReplacedStatement(NamedTuple):
    """What a memory says and no longer holds, and the later statement that replaces it."""

    memory_id: str
    words: str
    """The sentences of the memory that no longer hold."""
    later: EvidenceRecord
    """What replaces them."""
    later_words: str
    linked_at: str

    def shown(self) -> Doc:
        """Returns the later statement as responses show it."""
        stated = {"kind": self.later.kind, "id": self.later.id, "quote": self.later_words}
        return {**stated, "replaced": self.words, "said_at": self.later.said_at}


# --- Making links -----------------------------------------------------------------------------------------------------


async def linking(memories: MemoryRepository, finding: Doc, now: str) -> list[Change]:
    """Returns the changes that link the earlier memory of a judge's finding, and what was learned from it word for
    word, with the statement that replaces it. None if the later statement is trusted less, so that the finding keeps
    the earlier one, or if the memory is shared with other agents than the finding's."""
    old, new = finding["evidence"]
    keep = finding["proposal"]["keep"]
    if finding["kind"] != "stale" or old["kind"] != "memory" or (keep["kind"], keep["id"]) != (new["kind"], new["id"]):
        return []
    link = {**new, "finding_id": finding["finding_id"], "at": now, "said": old}
    changes: list[Change] = []
    for memory in await memories.saying(old["id"]):
        if mark_of(memory["content"]) == old["mark"] and same_pair(memory, finding):
            changes += memories.revise(memory, {LINKS: [*(memory.get(LINKS) or ()), link]}, now)
    return changes


# --- Reading links ----------------------------------------------------------------------------------------------------


async def replaced(
    store: Store, scope: Scope, viewpoint: Viewpoint, memories: Iterable[Doc]
) -> list[ReplacedStatement]:
    """Returns what of the memories was replaced, as far as their links count from this viewpoint."""
    linked = [
        (memory, link)
        for memory in memories
        for link in memory.get(LINKS) or ()
        if (viewpoint.known_at is None or link["at"] <= viewpoint.known_at)
        and mark_of(memory["content"]) == link["said"]["mark"]
    ]
    if not linked:
        return []
    is_visible = Or(tuple(of_pairs(viewpoint.pairs)))
    records = await EvidenceReader(store, scope, viewpoint.now).read((link["kind"], link["id"]) for _, link in linked)
    statements = []
    for memory, link in linked:
        later = records.get((link["kind"], link["id"]))
        if later is None or later.mark != link["mark"] or not matches(later.doc, is_visible):
            continue
        if later.said_at <= viewpoint.as_of and holds(later.doc, viewpoint.as_of):
            words = quoted(link["said"], memory["content"])
            statements.append(
                ReplacedStatement(memory["memory_id"], words, later, quoted(link, later.text), link["at"])
            )
    return statements


def later_first(hits: Sequence[Hit], statements: Sequence[ReplacedStatement]) -> list[Hit]:
    """Returns the hits, those that replace others before these, and each with what replaced it.

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
            for later, other in enumerate(hits)
            if _is(other.doc, statement.later)
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


def _is(memory: Doc, record: EvidenceRecord) -> bool:
    """Returns whether a memory is the record, or was learned from it word for word."""
    return record.kind == "memory" and (memory["memory_id"] == record.id or repeats(memory, record.doc))


def _reached(start: int, replaced_by: Mapping[int, set[int]]) -> set[int]:
    """Returns the places of all that replaced a hit, one after the other."""
    reached, waiting = set[int](), [start]
    while waiting:
        new = replaced_by[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


async def what_holds_first(store: Store, scope: Scope, viewpoint: Viewpoint, hits: Sequence[Hit]) -> list[Hit]:
    """Returns the hits of a search of memories, those that state what holds before those that state what it replaced:
    by the values of facts, and by the links of a judge."""
    ordered = await present_first(store, scope, viewpoint.user_id, hits, viewpoint.as_of)
    statements = await replaced(store, scope, viewpoint, (hit.doc for hit in ordered))
    return later_first(ordered, statements) if statements else ordered
