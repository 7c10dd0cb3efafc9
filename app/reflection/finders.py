"""What a run looks at in one partition, and the functions that find something there.

A finder takes a `PartitionView` and returns what it proposes. It only reads. `FINDERS` lists those that need no
language model.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from app.core.clock import rfc3339
from app.core.work import in_turn
from app.facts.schemas import FACTS
from app.findings.schemas import evidence_names
from app.findings.service import (
    EvidenceRecord,
    FindingRepository,
    finding_id,
    new_finding,
    of_fact,
    of_memory,
    of_profile,
)
from app.learning.dependencies import Tools
from app.learning.words import fold
from app.memories.models import MEMORIES, SMALL_TALK
from app.memories.records import repeated_source
from app.memories.repository import of_pair
from app.memories.search import true_at
from app.profiles.merge import ProfileReader
from app.reflection.candidates import CandidatePair, candidates
from app.reflection.comparing import Contradiction, conflicts
from app.reflection.sentences import sentences
from app.reflection.stale import PastPlan, plans, unconfirmed
from app.storage.repository import Repository, expired, unexpired
from app.storage.schema import Absent, Doc, Eq, Filter, In, Not, Or, both
from app.storage.search import Partition, Scope

MOST_MEMORIES = 2_000
"""The limit of memories, and of facts, that a run compares in one partition, the latest ones."""
WEAKEST, WEAK_MOST = 0.3, 0.7
"""Confidence of a finding by similarity alone: never so sure that it is applied by itself."""
JUDGED = 0.75
"""Confidence of a finding that a language model has judged. It waits for somebody, too."""
SINGLE_VALUES = ("home", "occupation")
MOST_PAIRS = 2_000
"""The limit of pairs by similarity in one partition, the likeliest ones."""
NOT_READ = ("instruction", "summary", "issue", "solution", "learned")
"""Types of memories that reflection does not read; `learned` is that of its own insights."""
UNSURE = "They are alike, and may not both hold."


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
    """A finding that is not stored yet, and the contradiction that it is made of, if a rule found one."""

    finding: Doc
    conflict: Contradiction | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What a run sees of one partition."""

    tools: Tools
    scope: Scope
    owner: Owner
    records: Sequence[EvidenceRecord]
    names: frozenset[str]
    """Folded names of the user."""
    now: datetime

    def proposed(self, kind: str, reason: str, evidence: Sequence[EvidenceRecord], proposal: Doc, sure: float) -> Doc:
        """Returns a finding of this partition."""
        owner = self.owner
        return new_finding(owner.agent, owner.user, kind, reason, evidence, proposal, sure, rfc3339(self.now))

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
    usable = {doc["memory_id"]: doc for doc in memories if is_usable(doc, at)}
    # a statement that was learned word for word is compared once, as the message that it is
    records = [of_memory(doc) for doc in usable.values() if repeated_source(doc, usable) is None]
    records += [of_fact(doc) for doc in facts]
    user = None if owner.user is None else await ProfileReader(store, scope, tools.clock).find(owner.user)
    if user is not None:  # what facts state is among the facts
        fields = [name for name in SINGLE_VALUES if user.profile.get(name) and name not in user.facts]
        records += [of_profile(user.record, name) for name in fields]
    named = None if user is None else user.profile.get("name")
    names = {fold(str(name)) for name in (owner.user, named) if name}
    names |= {name.split()[0] for name in names if name.split()}
    return PartitionView(tools, scope, owner, records, frozenset(names), now)


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


async def by_rule(look: PartitionView) -> list[NewFinding]:
    """Finds what the rules decide: two values of one thing, a denial, a plan that is over or was called off."""
    compared = await in_turn(lambda: [*conflicts(look.records, look.names), *plans(look.records, look.now)])
    found = []
    for one in compared:
        if isinstance(one, PastPlan):
            if look.owns(one.record):
                found.append(NewFinding(_past(look, one)))
        elif look.owns(one.earlier, one.later):
            kind = "stale" if one.changed and one.keep is one.later else "contradiction"
            found.append(NewFinding(_pair_finding(look, one, kind), one))
    return found


def _past(look: PartitionView, one: PastPlan) -> Doc:
    named, details = {"kind": "memory", "id": one.record.id}, {"valid_until": one.until}
    proposal: Doc = {"action": "end", "keep": None, "retire": [named], "details": details}
    if not one.alone:  # the memory says more than the plan
        proposal = {"action": "none", "keep": None, "retire": [], "details": details}
    return look.proposed("stale", "Its time is past, and nothing was heard of it.", [one.record], proposal, 0.6)


def _pair_finding(look: PartitionView, one: Contradiction, kind: str) -> Doc:
    keep, retire = ({"kind": each.kind, "id": each.id} for each in (one.keep, one.retire))
    proposal = {"action": "supersede", "keep": keep, "retire": [retire], "details": {"aspect": one.aspect}}
    return look.proposed(kind, one.reason, [one.earlier, one.later], proposal, one.confidence)


async def never_confirmed(look: PartitionView) -> list[NewFinding]:
    """Finds learned memories of little trust that nothing ever confirmed."""
    days = look.tools.settings.reflection.unconfirmed_days
    aged = await in_turn(lambda: list(unconfirmed(look.records, look.now, days)))
    reason = f"It was learned with little trust, and nothing has confirmed it for {days:g} days."
    return [NewFinding(_ended(look, one, reason)) for one in aged if look.owns(one)]


def _ended(look: PartitionView, one: EvidenceRecord, reason: str) -> Doc:
    named, details = {"kind": one.kind, "id": one.id}, {"valid_until": rfc3339(look.now)}
    proposal = {"action": "end", "keep": None, "retire": [named], "details": details}
    return look.proposed("stale", reason, [one], proposal, 0.5)


FINDERS: tuple[Finder, ...] = (by_rule, never_confirmed)


async def near_pairs(look: PartitionView, found: Sequence[NewFinding]) -> list[CandidatePair]:
    """Returns the pairs by similarity that no finder has found, the likeliest first."""
    tools, owner = look.tools, look.owner
    pairs = await candidates(tools.store, owner.tenant, owner.pairs, tools.embedder.name, look.records)
    known = {frozenset(evidence_names(one.finding)) for one in found}
    new = [
        pair
        for pair in pairs
        if frozenset((pair.earlier.name, pair.later.name)) not in known and look.owns(pair.earlier, pair.later)
    ]
    return new[:MOST_PAIRS]


def of_near_pair(look: PartitionView, pair: CandidatePair, kind: str, reason: str, sure: float) -> NewFinding:
    """Returns a finding about a pair that no rule decides."""
    conflict = Contradiction(pair.earlier, pair.later, "statement", reason, sure, kind == "stale")
    return NewFinding(_pair_finding(look, conflict, kind), conflict)


def weak(look: PartitionView, pair: CandidatePair) -> NewFinding:
    """Returns a finding about a pair that is likely by its score alone."""
    sure = min(WEAK_MOST, max(WEAKEST, pair.score))
    return of_near_pair(look, pair, "stale" if pair.changed else "contradiction", UNSURE, sure)


async def unknown(look: PartitionView, found: Sequence[NewFinding]) -> list[NewFinding]:
    """Returns the findings that are not stored, the surest first. What is stored of the same evidence in another kind
    counts as the same."""
    ids: dict[str, NewFinding] = {}
    kinds = ("contradiction", "stale")
    for one in found:
        ids.setdefault(one.finding["finding_id"], one)
    others = {key: [_as(one.finding, kind) for kind in kinds] if one.conflict else [key] for key, one in ids.items()}
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
    if focus is None:
        return True
    wanted = set(evidence_names(one.finding))
    said = {
        token.word
        for record in look.records
        if record.name in wanted
        for sentence in sentences(record.text)
        for token in sentence.tokens
    }
    return bool(said & {token.word for sentence in sentences(focus) for token in sentence.tokens})
