"""What a run looks at in one partition, and the functions that find something there.

A finder takes a `PartitionView` and returns what it proposes. It only reads. `FINDERS` lists those that need no
language model: they compare what has structure. What texts say is for a judge (`judge.py`).
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.core.clock import rfc3339
from app.core.language import STOP_WORDS, words
from app.core.work import in_turn
from app.facts.outdated import holds
from app.facts.profile import field_of
from app.facts.repository import of_partitions
from app.facts.schemas import FACTS, USER, key_of, predicate_key
from app.findings.schemas import FindingKind, FindingRecord, Proposal, ProposalDetails, evidence_names
from app.findings.service import (
    EvidenceRecord,
    FactEvidence,
    FindingRepository,
    MemoryEvidence,
    Name,
    TextEvidence,
    finding_id,
    new_finding,
    of_fact,
    of_memory,
)
from app.jobs.queue import handled, skipping
from app.learning.dependencies import Tools
from app.learning.extraction import is_user
from app.memories.repository import of_partition, word_for_word_original
from app.memories.schemas import KEPT_AS_IS, MEMORIES, SMALL_TALK, EvidenceName, MemoryRecord
from app.memories.search import true_at
from app.profiles.users import ProfileReader
from app.retrieval.model_weights import weights_for
from app.storage.protocol import Store
from app.storage.repository import Repository, expired, unexpired
from app.storage.schema import EVERYTHING, Absent, Collection, Eq, Filter, In, Not, Range, both
from app.storage.scope import Partition, PartitionOwner, Scope
from app.storage.search import SearchQuery
from app.storage.text import terms

UNCONFIRMED_DAYS = 180
"""A learned memory of little trust that nobody confirmed, used or said again for so long is stale."""
MOST_MEMORIES = 2_000
"""The limit of memories, and of facts, that a run compares in one partition, the latest ones."""
OF_FACTS, JUDGED, UNCONFIRMED = 0.9, 0.75, 0.5
"""Confidence of a finding about two facts, of one that a language model has judged, and of one about a memory that
nothing confirmed."""
MOST_PAIRS = 2_000
"""The limit of pairs by similarity in one partition, the nearest ones."""
NOT_READ = ("instruction", "summary", "issue", "solution", "learned", *KEPT_AS_IS)
"""Types of memories that reflection does not read; `learned` is that of its own insights."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What a run sees of one partition."""

    tools: Tools
    scope: Scope
    owner: PartitionOwner
    records: Sequence[EvidenceRecord]
    names: Sequence[str]
    """Of the user: the id, and the name in the profile."""
    now: datetime

    def proposed(
        self,
        kind: FindingKind,
        reason: str,
        evidence: Sequence[EvidenceRecord],
        proposal: Proposal,
        sure: float,
        clauses: Mapping[Name, EvidenceName] | None = None,
    ) -> FindingRecord:
        owner, at = self.owner, rfc3339(self.now)
        return new_finding(owner.agent, owner.user, kind, reason, evidence, proposal, sure, at, clauses)

    def owns(self, *records: EvidenceRecord) -> bool:
        """Returns whether a finding about these records belongs to this partition: one of them does."""
        return any((record.agent_id, record.user_id) == (self.owner.agent, self.owner.user) for record in records)


Finder: TypeAlias = Callable[[PartitionView], Awaitable[list[FindingRecord]]]


async def look_at(tools: Tools, scope: Scope, owner: PartitionOwner) -> PartitionView:
    """Reads the records that one prompt for this agent and user may show, and the names of the user."""
    store, now = tools.store, tools.clock.now()
    at = rfc3339(now)
    (of,) = of_partitions(owner.partitions)  # they are of one user: an index finds their records
    memories = await Repository(store, scope, MEMORIES).find(both(of, *readable(at)), limit=MOST_MEMORIES)
    facts = await Repository(store, scope, FACTS).find(
        both(of, Eq("standing", "held"), Absent("known_until"), *true_at(at)), limit=MOST_MEMORIES
    )
    looked_at = handled(MEMORIES, memories, lambda memory: is_usable(memory, at))
    usable = {memory["memory_id"]: memory for memory, may_be_used in looked_at if may_be_used}
    # a statement that was learned word for word is compared once, as the message that it is
    first_said = handled(
        MEMORIES,
        usable.values(),
        lambda memory: of_memory(memory) if word_for_word_original(memory, usable) is None else None,
    )
    records: list[EvidenceRecord] = [record for _, record in first_said if record is not None]
    records += [record for _, record in handled(FACTS, facts, of_fact)]
    user = None if owner.user is None else await ProfileReader(store, scope, tools.clock).find(owner.user)
    named = None if user is None else user.profile.get("name")
    names = [str(name) for name in (owner.user, named) if name]
    return PartitionView(tools, scope, owner, records, names, now)


def readable(now: str) -> tuple[Filter, ...]:
    """Returns the filters of memories that reflection reads: active, unexpired, and of no type of `NOT_READ`."""
    types = (Not(Eq("memory_type", kind)) for kind in NOT_READ)
    return Eq("status", "active"), *types, unexpired(now)


def is_usable(memory: MemoryRecord, now: str) -> bool:
    """Returns whether a memory is something that a user or a caller said, and true now."""
    if memory["status"] != "active" or memory["memory_type"] in NOT_READ or memory["standing"] == SMALL_TALK:
        return False
    by_user = memory["memory_type"] != "message" or memory["source"]["role"] in (None, "user")
    return holds(memory, now) and by_user and not expired(memory, now)


# --- Two facts that cannot both hold ----------------------------------------------------------------------------------

MOST_OF_ONE = 50
"""The limit of records that are compared for one subject and predicate, the latest ones."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two records that cannot both hold. `earlier` was said first."""

    earlier: EvidenceRecord
    later: EvidenceRecord

    @property
    def keep(self) -> EvidenceRecord:
        """The record that should stand: the later one, unless it is trusted less."""
        return self.later if self.later.trust >= self.earlier.trust else self.earlier

    @property
    def retire(self) -> EvidenceRecord:
        """The record that gives way."""
        return self.earlier if self.keep is self.later else self.later


def facts_in_conflict(records: Sequence[EvidenceRecord], names: Sequence[str]) -> Iterator[tuple[Contradiction, str]]:
    """Yields the single-valued facts that cannot both hold, each pair with its predicate or its field of the profile.
    `names`: those of the user."""
    stated: dict[tuple[str, str], list[FactEvidence]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.said_at, record.id)):
        if isinstance(record, FactEvidence) and (key := _key(record, names)) is not None:
            stated[key].append(record)
    for (_, of), same in stated.items():
        for earlier, later in combinations(same[-MOST_OF_ONE:], 2):
            if not same_value(earlier.fact["object"], later.fact["object"]) and not facts_of_one_group(earlier, later):
                yield Contradiction(earlier, later), of


def same_value(value: str, other: str) -> bool:
    """Returns whether two values are wordings of one: one of them has all the words of the other, as "Oslo" and "Oslo,
    Norway"."""
    stems, others = {*terms(value)}, {*terms(other)}
    return key_of(value) == key_of(other) or (bool(stems and others) and (stems <= others or others <= stems))


def facts_of_one_group(record: EvidenceRecord, other: EvidenceRecord) -> bool:
    """Returns True for two facts of one group: the rules of facts have settled them."""
    return (
        isinstance(record, FactEvidence)
        and isinstance(other, FactEvidence)
        and record.fact["group_id"] == other.fact["group_id"]
    )


def _key(record: FactEvidence, names: Sequence[str]) -> tuple[str, str] | None:
    """Returns subject and predicate of a fact that states a single value, or None."""
    fact = record.fact
    if fact["cardinality"] != "one":
        return None
    if not is_user(fact["subject"], names):
        return fact["subject_key"], predicate_key(fact["predicate"])
    return USER, field_of({**fact, "subject": USER}) or predicate_key(fact["predicate"])


async def of_facts(look: PartitionView) -> list[FindingRecord]:
    """Finds facts that cannot both hold."""
    compared = await in_turn(lambda: list(facts_in_conflict(look.records, look.names)))
    findings = []
    for conflict, of in compared:
        if look.owns(conflict.earlier, conflict.later):
            fact = conflict.earlier.fact if isinstance(conflict.earlier, FactEvidence) else {}
            subject = "user" if is_user(fact.get("subject", USER), look.names) else fact["subject"]
            proposal = _replacing(conflict, {"aspect": of, "subject": subject})
            evidence, reason = [conflict.earlier, conflict.later], f"They give different values ({subject}: {of})."
            findings.append(look.proposed("contradiction", reason, evidence, proposal, OF_FACTS))
    return findings


# --- Learned memories of little trust that nothing ever confirmed -----------------------------------------------------

LITTLE_TRUST = 0.8
"""The service's own conclusions with less trust need a confirmation: what an assistant said has 0.7."""
DERIVED = ("extraction", "consolidation")
AGEING = ("fact", "preference")
"""Types that stop being true with time. What happened, and rules that somebody gave, stay as they are."""


def unconfirmed(records: Sequence[EvidenceRecord], now: datetime, days: float) -> Iterator[MemoryEvidence]:
    """Yields learned memories of little trust that for `days` days nobody said again, served, changed or called
    helpful. What is pinned or has a key was wanted by somebody."""
    since = rfc3339(now - timedelta(days=days))
    recent = [record for record in records if record.said_at > since]
    for record in records:
        if not isinstance(record, MemoryEvidence) or not _unconfirmed(record.memory, since):
            continue
        record_words = {*words(record.text)} - STOP_WORDS
        # "Likes tea": a record of these days says it again that has all its words
        if not any(later.id != record.id and record_words <= {*words(later.text)} for later in recent):
            yield record


def crossed(earlier: datetime | None, now: datetime, days: float) -> Filter:
    """Returns the filter of memories that may have become unconfirmed between two runs."""
    span = timedelta(days=days)
    begin = None if earlier is None else rfc3339(earlier - span)
    unused = Range("anchored_at", ge=begin, le=rfc3339(now - span))
    learned = In("source.origin", DERIVED), In("memory_type", AGEING), Range("trust", lt=LITTLE_TRUST)
    return both(Eq("status", "active"), unused, *learned)


def _unconfirmed(memory: MemoryRecord, since: str) -> bool:
    learned = memory["source"]["origin"] in DERIVED and memory["memory_type"] in AGEING
    if not learned or memory["trust"] >= LITTLE_TRUST or memory["pinned"] or memory["key"] is not None:
        return False
    changed = memory["updated_at"] if memory["version"] > 1 else ""
    is_recent = max(memory["created_at"], memory["last_accessed"] or "", changed) > since
    return not is_recent and not memory.get("helpful_count")


async def never_confirmed(look: PartitionView) -> list[FindingRecord]:
    """Finds learned memories of little trust that nothing ever confirmed."""
    aged = await in_turn(lambda: list(unconfirmed(look.records, look.now, UNCONFIRMED_DAYS)))
    reason = f"It was learned with little trust, and nothing has confirmed it for {UNCONFIRMED_DAYS} days."
    findings = []
    for record in aged:
        if look.owns(record):
            proposal: Proposal = {
                "action": "end",
                "keep": None,
                "retire": [{"kind": record.kind, "id": record.id}],
                "details": {"valid_until": rfc3339(look.now)},
            }
            findings.append(look.proposed("stale", reason, [record], proposal, UNCONFIRMED))
    return findings


FINDERS: tuple[Finder, ...] = (of_facts, never_confirmed)


async def without_unread(look: PartitionView) -> PartitionView:
    """Returns the view without the records that the finders cannot read even alone. The job skips these."""
    records: list[EvidenceRecord] = []
    for record in look.records:
        with skipping(FACTS if record.kind == "fact" else MEMORIES, record.id):
            single = replace(look, records=[record])
            await near_pairs(single, [finding for finder in FINDERS for finding in await finder(single)])
            records.append(record)
    return replace(look, records=records)


# --- Pairs of near records that a judge is asked about ----------------------------------------------------------------

T = TypeVar("T", bound=TextEvidence)

NEIGHBOURS = 6
"""The number of nearest records that each record is paired with."""
FETCHED = 200
"""Documents that are read from the store at once."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two near records. `earlier` was said first."""

    earlier: TextEvidence
    later: TextEvidence
    cosine: float


async def candidates(
    store: Store, tenant: str, partitions: Sequence[Partition], model: str, records: Sequence[EvidenceRecord]
) -> list[CandidatePair]:
    """Returns the pairs of near records, the nearest first. Only reads.

    Args:
        store: The store, whose vectors are compared.
        tenant: The tenant.
        partitions: The partitions of the records.
        model: The embedding model.
        records: The records that may be paired: memories and facts. Of a record without a vector no pair is made.
    """
    memories = {record.id: record for record in records if isinstance(record, MemoryEvidence)}
    facts = {record.id: record for record in records if isinstance(record, FactEvidence)}
    rows: list[tuple[TextEvidence, NDArray[np.float32]]] = [
        *await _vectors(store, tenant, partitions, model, MEMORIES, memories),
        *await _vectors(store, tenant, partitions, model, FACTS, facts),
    ]
    if len(rows) < 2:
        return []
    vectors = np.array([vector for _, vector in rows], np.float32)
    return await in_turn(lambda: _near([record for record, _ in rows], vectors, weights_for(model).unrelated))


async def _vectors(
    store: Store,
    tenant: str,
    partitions: Sequence[Partition],
    model: str,
    collection: Collection,
    wanted: Mapping[str, T],
) -> list[tuple[T, NDArray[np.float32]]]:
    """Returns the wanted records, by id, that have a vector of the model, each with it, of unit length."""
    if not wanted:
        return []
    terms = np.empty(0, np.uint32)
    query = SearchQuery(tenant, tuple(partitions), EVERYTHING, None, model, terms, vectors=True)
    columns = await store.search(collection, query)
    if columns.vectors is None:
        return []
    there = np.flatnonzero(columns.vectors.any(axis=1))
    there = there[np.argsort(-columns.time[there], kind="stable")]
    rows: list[tuple[T, NDArray[np.float32]]] = []
    for start in range(0, len(there), FETCHED):
        part = there[start : start + FETCHED]
        for at, fetched in zip(part, await store.fetch(collection, tenant, columns.rows[part]), strict=True):
            record = None if fetched is None else wanted.get(fetched.doc[collection.id_field])
            if record is not None:
                vector = columns.vectors[at].astype(np.float32)
                rows.append((record, vector / np.linalg.norm(vector)))
        if len(rows) == len(wanted):
            break
    return rows


def _near(records: Sequence[TextEvidence], vectors: NDArray[np.float32], least: float) -> list[CandidatePair]:
    """Returns each record with those of the nearest ones whose cosine is `least` or more."""
    by_places: dict[tuple[int, int], float] = {}
    for start in range(0, len(records), FETCHED):
        cosines = vectors[start : start + FETCHED] @ vectors.T
        for row, line in enumerate(cosines, start=start):
            line[row] = -1
            nearest = np.argpartition(-line, min(NEIGHBOURS, len(line) - 1))[:NEIGHBOURS]
            for other in nearest.tolist():
                if line[other] >= least:
                    by_places[min(row, other), max(row, other)] = float(line[other])
    pairs = []
    for (place, other), cosine in by_places.items():
        earlier, later = sorted((records[place], records[other]), key=lambda record: (record.said_at, record.id))
        speakers = {_speaker(earlier), _speaker(later)} - {None}
        # what holds of one speaker need not hold of another
        if not facts_of_one_group(earlier, later) and len(speakers) < 2:
            pairs.append(CandidatePair(earlier, later, cosine))
    return sorted(pairs, key=lambda pair: (-pair.cosine, pair.earlier.name, pair.later.name))


def _speaker(record: TextEvidence) -> str | None:
    source = record.memory.get("source") if isinstance(record, MemoryEvidence) else record.fact.get("source")
    return source.get("speaker") if source else None


async def near_pairs(look: PartitionView, findings: Sequence[FindingRecord]) -> list[CandidatePair]:
    """Returns the pairs by similarity that no finder has found, the nearest first."""
    tools, owner = look.tools, look.owner
    pairs = await candidates(tools.store, owner.tenant, owner.partitions, tools.embedder.name, look.records)
    known = {frozenset(evidence_names(finding)) for finding in findings}
    unknown_pairs = [
        pair
        for pair in pairs
        if frozenset((pair.earlier.name, pair.later.name)) not in known and look.owns(pair.earlier, pair.later)
    ]
    return unknown_pairs[:MOST_PAIRS]


class Judged(NamedTuple):
    """What a model said of a pair: `stale` or `contradiction`, why, and where the words stand in each text that
    cannot both hold."""

    kind: Literal["stale", "contradiction"]
    reason: str
    clauses: Mapping[Name, EvidenceName]
    by: ProposalDetails
    """The model and the version of its prompt."""
    subject: str = ""
    """Who or what both texts are about, as the model says."""


def of_judged_pair(look: PartitionView, pair: CandidatePair, judged: Judged) -> FindingRecord:
    """Returns the finding about a pair that a model has judged."""
    details: ProposalDetails = {"aspect": "statement", **judged.by}
    if judged.subject:
        details["subject"] = judged.subject
    proposal = _replacing(Contradiction(pair.earlier, pair.later), details)
    evidence = [pair.earlier, pair.later]
    return look.proposed(judged.kind, judged.reason, evidence, proposal, JUDGED, judged.clauses)


def _replacing(conflict: Contradiction, details: ProposalDetails) -> Proposal:
    """Returns the proposal that one record of a contradiction takes the place of the other."""
    return {
        "action": "supersede",
        "keep": {"kind": conflict.keep.kind, "id": conflict.keep.id},
        "retire": [{"kind": conflict.retire.kind, "id": conflict.retire.id}],
        "details": details,
    }


async def unknown(look: PartitionView, findings: Sequence[FindingRecord]) -> list[FindingRecord]:
    """Returns the findings that are not stored, the surest first. What is stored of the same evidence in another kind
    counts as the same."""
    by_id: dict[str, FindingRecord] = {}
    for finding in findings:
        by_id.setdefault(finding["finding_id"], finding)
    ids_of = {key: _ids_of(finding) for key, finding in by_id.items()}
    repository = FindingRepository(look.tools.store, look.scope)
    stored = await repository.get_many([same for ids in ids_of.values() for same in ids])
    unstored = [finding for key, finding in by_id.items() if stored.keys().isdisjoint(ids_of[key])]
    return sorted(unstored, key=lambda finding: -finding["confidence"])


def _ids_of(finding: FindingRecord) -> list[str]:
    """Returns the ids under which a finding of the same evidence may be stored: of two records those of both kinds."""
    evidence = finding["evidence"]
    if len(evidence) < 2:
        return [finding["finding_id"]]
    agent, user = finding["agent_id"], finding["user_id"]
    return [finding_id(agent, user, kind, evidence) for kind in ("contradiction", "stale")]


async def alone(look: PartitionView, findings: Sequence[FindingRecord]) -> list[FindingRecord]:
    """Returns the findings about one record alone that no finding about a pair explains already."""
    if not findings:
        return []
    where = both(of_partition(look.owner.agent, look.owner.user), In("status", ("open", "accepted")))
    stored = await FindingRepository(look.tools.store, look.scope).find(where, limit=MOST_MEMORIES)
    paired = {name for finding in stored if len(finding["evidence"]) > 1 for name in evidence_names(finding)}
    return [finding for finding in findings if paired.isdisjoint(evidence_names(finding))]


def touches(finding: FindingRecord, look: PartitionView, focus: str | None) -> bool:
    """Returns whether the evidence of a finding has a word of the focus."""
    wanted = set(evidence_names(finding))
    return any(speaks_of(record, focus) for record in look.records if record.name in wanted)


def speaks_of(record: EvidenceRecord, focus: str | None) -> bool:
    """Returns whether a record has a word of the focus, if there is one."""
    return focus is None or not {*words(record.text)}.isdisjoint(words(focus))
