"""What a run looks at in one partition, and the functions that find something there.

A finder takes a `PartitionView` and returns what it proposes. It only reads. `FINDERS` lists those that need no
language model: they compare what has structure. What texts say is for a judge (`judge.py`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from app.core.clock import rfc3339
from app.core.language import words
from app.core.work import in_turn
from app.facts.outdated import holds
from app.facts.schemas import FACTS
from app.findings.schemas import (
    FindingKind,
    FindingRecord,
    Proposal,
    ProposalDetails,
    evidence_names,
)
from app.findings.service import (
    EvidenceRecord,
    FindingRepository,
    Name,
    finding_id,
    new_finding,
    of_fact,
    of_memory,
)
from app.jobs.skipping import handled, skipping
from app.learning.dependencies import Tools
from app.memories.filters import true_at
from app.memories.records import repeated_source
from app.memories.repository import of_pair
from app.memories.schemas import MEMORIES, SMALL_TALK, MemoryRecord
from app.profiles.users import ProfileReader
from app.reflection.candidates import CandidatePair, candidates
from app.reflection.conflicts import REASON, Contradiction, facts_in_conflict
from app.reflection.unconfirmed import unconfirmed
from app.storage.repository import Repository, expired, unexpired
from app.storage.schema import Absent, Eq, Filter, In, Not, Or, both
from app.storage.scope import Partition, Scope

UNCONFIRMED_DAYS = 180
"""A learned memory of little trust that nobody confirmed, used or said again for so long is stale."""
MOST_MEMORIES = 2_000
"""The limit of memories, and of facts, that a run compares in one partition, the latest ones."""
OF_FACTS, JUDGED, UNCONFIRMED = 0.9, 0.75, 0.5
"""Confidence of a finding about two facts, of one that a language model has judged, and of one about a memory that
nothing confirmed."""
MOST_PAIRS = 2_000
"""The limit of pairs by similarity in one partition, the nearest ones."""
NOT_READ = ("instruction", "summary", "issue", "solution", "learned")
"""Types of memories that reflection does not read; `learned` is that of its own insights."""


class Owner(NamedTuple):
    """The owners of a partition, with their tenant."""

    tenant: str
    agent: str | None
    user: str | None

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions whose records one prompt for this agent and user may show, rules of the agent left out."""
        own = Partition(self.agent, self.user)
        both_named = self.agent is not None and self.user is not None
        return (own, Partition(None, self.user)) if both_named else (own,)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What a run sees of one partition."""

    tools: Tools
    scope: Scope
    owner: Owner
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
        spans: Mapping[Name, tuple[int, int]] | None = None,
    ) -> FindingRecord:
        """Returns a finding of this partition."""
        owner, at = self.owner, rfc3339(self.now)
        return new_finding(owner.agent, owner.user, kind, reason, evidence, proposal, sure, at, spans)

    def owns(self, *records: EvidenceRecord) -> bool:
        """Returns whether a finding about these records belongs to this partition: one of them does."""
        return any((record.agent_id, record.user_id) == (self.owner.agent, self.owner.user) for record in records)


Finder: TypeAlias = Callable[[PartitionView], Awaitable[list[FindingRecord]]]


async def look_at(tools: Tools, scope: Scope, owner: Owner) -> PartitionView:
    """Reads the records that one prompt for this agent and user may show, and the names of the user."""
    store, now = tools.store, tools.clock.now()
    at = rfc3339(now)
    of = of_pair(owner.agent, owner.user)
    if owner.agent is not None and owner.user is not None:
        of = Or((of, of_pair(None, owner.user)))
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
        lambda memory: of_memory(memory) if repeated_source(memory, usable) is None else None,
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


# --- Finders ----------------------------------------------------------------------------------------------------------


async def of_facts(look: PartitionView) -> list[FindingRecord]:
    """Finds facts that cannot both hold."""
    compared = await in_turn(lambda: list(facts_in_conflict(look.records, look.names)))
    findings = []
    for conflict, of in compared:
        if look.owns(conflict.earlier, conflict.later):
            evidence, proposal = [conflict.earlier, conflict.later], _replacing(conflict, {"aspect": of})
            findings.append(look.proposed("contradiction", REASON.format(of), evidence, proposal, OF_FACTS))
    return findings


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
    """What a model said of a pair: `stale` or `contradiction`, why, and where the sentences stand in each text that
    cannot both hold; no entry for a text that is meant as a whole."""

    kind: Literal["stale", "contradiction"]
    reason: str
    spans: Mapping[Name, tuple[int, int]]
    by: ProposalDetails
    """The model and the version of its prompt."""


def of_judged_pair(look: PartitionView, pair: CandidatePair, judged: Judged) -> FindingRecord:
    """Returns the finding about a pair that a model has judged."""
    proposal = _replacing(Contradiction(pair.earlier, pair.later), {"aspect": "statement", **judged.by})
    evidence = [pair.earlier, pair.later]
    return look.proposed(judged.kind, judged.reason, evidence, proposal, JUDGED, judged.spans)


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
    where = both(of_pair(look.owner.agent, look.owner.user), In("status", ("open", "accepted")))
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
