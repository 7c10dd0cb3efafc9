"""What a run looks at in one partition, and the functions that find something there.

A finder takes a `PartitionView` and returns what it proposes. It only reads. `FINDERS` lists those that need no
language model: they compare what has structure. What texts say is for a judge (`judge.py`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from app.core.clock import rfc3339
from app.core.language import words
from app.core.work import in_turn
from app.facts.keys import USERS
from app.facts.schemas import FACTS
from app.findings.schemas import JUDGED, UNCONFIRMED, evidence_names
from app.findings.service import (
    EvidenceRecord,
    FindingRepository,
    Name,
    finding_id,
    new_finding,
    of_fact,
    of_memory,
    of_profile,
)
from app.jobs.skipping import handled, skipping
from app.learning.dependencies import Tools
from app.memories.models import MEMORIES, SMALL_TALK
from app.memories.records import repeated_source
from app.memories.repository import of_pair
from app.memories.search_filters import true_at
from app.profiles.merge import ProfileReader
from app.reflection.candidates import CandidatePair, candidates
from app.reflection.conflicts import REASON, Contradiction, facts_in_conflict
from app.reflection.unconfirmed import unconfirmed
from app.storage.repository import Repository, expired, unexpired
from app.storage.schema import Absent, Doc, Eq, Filter, In, Not, Or, both
from app.storage.scope import Partition, Scope

UNCONFIRMED_DAYS = 180
"""A learned memory of little trust that nobody confirmed, used or said again for so long is stale."""
MOST_MEMORIES = 2_000
"""The limit of memories, and of facts, that a run compares in one partition, the latest ones."""
OF_FACTS = 0.9
"""Confidence of a finding about two facts."""
SINGLE_VALUES = ("home", "occupation")
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
    def pairs(self) -> tuple[Partition, ...]:
        """The partitions whose records one prompt for this agent and user may show, rules of the agent left out."""
        own = Partition(self.agent, self.user)
        both_named = self.agent is not None and self.user is not None
        return (own, Partition(None, self.user)) if both_named else (own,)


class NewFinding(NamedTuple):
    """A finding that is not stored yet."""

    finding: Doc


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
        kind: str,
        reason: str,
        evidence: Sequence[EvidenceRecord],
        proposal: Doc,
        sure: float,
        spans: Mapping[Name, tuple[int, int]] | None = None,
    ) -> Doc:
        """Returns a finding of this partition."""
        owner, at = self.owner, rfc3339(self.now)
        return new_finding(owner.agent, owner.user, kind, reason, evidence, proposal, sure, at, spans)

    def owns(self, *records: EvidenceRecord) -> bool:
        """Returns whether a finding about these records belongs to this partition: one of them does."""
        return any((one.agent_id, one.user_id) == (self.owner.agent, self.owner.user) for one in records)


Finder: TypeAlias = Callable[[PartitionView], Awaitable[list[NewFinding]]]


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
    usable = {doc["memory_id"]: doc for doc, ok in handled(MEMORIES, memories, lambda doc: is_usable(doc, at)) if ok}
    # a statement that was learned word for word is compared once, as the message that it is
    said_first = handled(
        MEMORIES, usable.values(), lambda doc: of_memory(doc) if repeated_source(doc, usable) is None else None
    )
    records = [record for _, record in said_first if record is not None]
    records += [record for _, record in handled(FACTS, facts, of_fact)]
    user = None if owner.user is None else await ProfileReader(store, scope, tools.clock).find(owner.user)
    if user is not None:  # what facts state is among the facts
        fields = [name for name in SINGLE_VALUES if user.profile.get(name) and name not in user.facts]
        records += [of_profile(user.record, name) for name in fields]
    named = None if user is None else user.profile.get("name")
    names = [str(name) for name in (owner.user, named) if name]
    return PartitionView(tools, scope, owner, records, names, now)


def readable(now: str) -> tuple[Filter, ...]:
    """Returns the filters of memories that reflection reads: active, unexpired, and of no type of `NOT_READ`."""
    types = (Not(Eq("memory_type", kind)) for kind in NOT_READ)
    return Eq("status", "active"), *types, unexpired(now)


def is_usable(doc: Doc, now: str) -> bool:
    """Returns whether a memory is something that a user or a caller said, and true now."""
    if doc["status"] != "active" or doc["memory_type"] in NOT_READ or doc["standing"] == SMALL_TALK:
        return False
    holds = (doc["valid_until"] is None or doc["valid_until"] > now) and (doc["valid_from"] or "") <= now
    by_user = doc["memory_type"] != "message" or doc["source"]["role"] in (None, "user")
    return holds and by_user and not expired(doc, now)


# --- Finders ----------------------------------------------------------------------------------------------------------


async def of_facts(look: PartitionView) -> list[NewFinding]:
    """Finds facts and values of the profile that cannot both hold."""
    compared = await in_turn(lambda: list(facts_in_conflict(look.records, look.names)))
    found = []
    for conflict, of in compared:
        if look.owns(conflict.earlier, conflict.later):
            said, proposal = [conflict.earlier, conflict.later], _replacing(conflict, {"aspect": of})
            found.append(NewFinding(look.proposed("contradiction", REASON.format(of), said, proposal, OF_FACTS)))
    return found


async def never_confirmed(look: PartitionView) -> list[NewFinding]:
    """Finds learned memories of little trust that nothing ever confirmed."""
    aged = await in_turn(lambda: list(unconfirmed(look.records, look.now, UNCONFIRMED_DAYS)))
    reason = f"It was learned with little trust, and nothing has confirmed it for {UNCONFIRMED_DAYS} days."
    return [NewFinding(_ended(look, one, reason)) for one in aged if look.owns(one)]


def _ended(look: PartitionView, one: EvidenceRecord, reason: str) -> Doc:
    named, details = {"kind": one.kind, "id": one.id}, {"valid_until": rfc3339(look.now)}
    proposal = {"action": "end", "keep": None, "retire": [named], "details": details}
    return look.proposed("stale", reason, [one], proposal, UNCONFIRMED)


FINDERS: tuple[Finder, ...] = (of_facts, never_confirmed)


async def without_unread(look: PartitionView) -> PartitionView:
    """Returns the view without the records that the finders cannot read even alone. The job skips these."""
    kept: list[EvidenceRecord] = []
    for record in look.records:
        collection = {"memory": MEMORIES, "fact": FACTS}.get(record.kind, USERS)
        with skipping(collection, record.id):
            one = replace(look, records=[record])
            await near_pairs(one, [new for finder in FINDERS for new in await finder(one)])
            kept.append(record)
    return replace(look, records=kept)


async def near_pairs(look: PartitionView, found: Sequence[NewFinding]) -> list[CandidatePair]:
    """Returns the pairs by similarity that no finder has found, the nearest first."""
    tools, owner = look.tools, look.owner
    pairs = await candidates(tools.store, owner.tenant, owner.pairs, tools.embedder.name, look.records)
    known = {frozenset(evidence_names(one.finding)) for one in found}
    new = [
        pair
        for pair in pairs
        if frozenset((pair.earlier.name, pair.later.name)) not in known and look.owns(pair.earlier, pair.later)
    ]
    return new[:MOST_PAIRS]


class Judged(NamedTuple):
    """What a model said of a pair: `stale` or `contradiction`, why, and where the sentences stand in each text that
    cannot both hold; no entry for a text that is meant as a whole."""

    kind: str
    reason: str
    spans: Mapping[Name, tuple[int, int]]
    by: Doc
    """The model and the version of its prompt."""


def of_judged_pair(look: PartitionView, pair: CandidatePair, judged: Judged) -> NewFinding:
    """Returns the finding about a pair that a model has judged."""
    proposal = _replacing(Contradiction(pair.earlier, pair.later), {"aspect": "statement", **judged.by})
    said = [pair.earlier, pair.later]
    return NewFinding(look.proposed(judged.kind, judged.reason, said, proposal, JUDGED, judged.spans))


def _replacing(conflict: Contradiction, details: Doc) -> Doc:
    """Returns the proposal that one record of a contradiction takes the place of the other."""
    keep, retire = ({"kind": each.kind, "id": each.id} for each in (conflict.keep, conflict.retire))
    return {"action": "supersede", "keep": keep, "retire": [retire], "details": details}


async def unknown(look: PartitionView, found: Sequence[NewFinding]) -> list[NewFinding]:
    """Returns the findings that are not stored, the surest first. What is stored of the same evidence in another kind
    counts as the same."""
    ids: dict[str, NewFinding] = {}
    kinds = ("contradiction", "stale")
    for one in found:
        ids.setdefault(one.finding["finding_id"], one)
    others = {
        key: [_as(one.finding, kind) for kind in kinds] if len(one.finding["evidence"]) > 1 else [key]
        for key, one in ids.items()
    }
    findings = FindingRepository(look.tools.store, look.scope)
    stored = await findings.get_many(list({each: None for ids_of in others.values() for each in ids_of}))
    new = [one for key, one in ids.items() if not any(each in stored for each in others[key])]
    return sorted(new, key=lambda one: -one.finding["confidence"])


async def alone(look: PartitionView, found: Sequence[NewFinding]) -> list[NewFinding]:
    """Returns the findings about one record alone that no finding about a pair explains already."""
    if not found:
        return []
    where = both(of_pair(look.owner.agent, look.owner.user), In("status", ("open", "accepted")))
    stored = await FindingRepository(look.tools.store, look.scope).find(where, limit=MOST_MEMORIES)
    paired = {name for doc in stored if len(doc["evidence"]) > 1 for name in evidence_names(doc)}
    return [one for one in found if paired.isdisjoint(evidence_names(one.finding))]


def _as(finding: Doc, kind: str) -> str:
    """Returns the id that a finding would have if it were of a kind."""
    return finding_id(finding["agent_id"], finding["user_id"], kind, finding["evidence"])


def touches(one: NewFinding, look: PartitionView, focus: str | None) -> bool:
    """Returns whether the evidence of a finding has a word of the focus."""
    wanted = set(evidence_names(one.finding))
    return any(speaks_of(record, focus) for record in look.records if record.name in wanted)


def speaks_of(record: EvidenceRecord, focus: str | None) -> bool:
    """Returns whether a record has a word of the focus, if there is one."""
    return focus is None or not {*words(record.text)}.isdisjoint(words(focus))
