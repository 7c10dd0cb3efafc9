"""Findings and their evidence. Findings are built, listed and settled. Evidence names records by kind and id, and shows
them as they stand now.

Methods that write return a `WriteResult` and commit nothing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Literal, TypeAlias, cast

import orjson
from pydantic import BaseModel

from app.actions.schemas import ACTIONS, ActionRecord
from app.core.clock import Clock, rfc3339
from app.core.language import STOP_WORDS, place_of, tokens, words
from app.core.schemas import Identifier, Page
from app.errors import Conflict
from app.facts.repository import FactRepository
from app.facts.schemas import FactRecord, sentence
from app.findings import schemas
from app.memories.repository import told_at
from app.memories.schemas import MEMORIES, EvidenceName, MemoryRecord, Source
from app.procedures.schemas import PROCEDURES, ProcedureRecord
from app.storage.changes import Update
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository, expired, having, pages
from app.storage.schema import Eq, Filter, both
from app.storage.scope import Scope
from app.writes.executor import Precondition

Name = tuple[str, str]
"""Kind and id of a record."""


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    """A record as evidence shows it. Of a procedure the fingerprint covers the steps, so that a revised one is another
    one."""

    kind: schemas.EvidenceKind
    id: str
    text: str
    said_at: str
    trust: float
    agent_id: str | None
    user_id: str | None
    fingerprint: str
    """A digest of its text, which findings store as `mark`. It changes when somebody rewrites the record."""

    @property
    def name(self) -> Name:
        """Kind and id."""
        return self.kind, self.id

    @property
    def source(self) -> Source | None:
        """Where it comes from; None for what is neither a memory nor a fact."""
        return None

    def named(self) -> EvidenceName:
        """Returns the record as a finding stores it: without its text."""
        return {"kind": self.kind, "id": self.id, "mark": self.fingerprint}


@dataclass(frozen=True, slots=True)
class MemoryEvidence(EvidenceRecord):
    """A memory as evidence."""

    kind: Literal["memory"]
    memory: MemoryRecord = field(compare=False, repr=False)

    @property
    def source(self) -> Source:
        """Where the memory comes from."""
        return self.memory["source"]


@dataclass(frozen=True, slots=True)
class FactEvidence(EvidenceRecord):
    """A fact as evidence. It was said when it became true, or else when it became known."""

    kind: Literal["fact"]
    fact: FactRecord = field(compare=False, repr=False)

    @property
    def source(self) -> Source:
        """Where the fact comes from."""
        return self.fact["source"]


TextEvidence: TypeAlias = MemoryEvidence | FactEvidence
"""A record whose text is searched by its vector."""


def fingerprint_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def of_memory(memory: MemoryRecord) -> MemoryEvidence:
    text, said_at = memory["content"], told_at(memory)
    owner = memory.get("agent_id"), memory.get("user_id")
    return MemoryEvidence(
        "memory", memory["memory_id"], text, said_at, memory["trust"], *owner, fingerprint_of(text), memory
    )


def of_fact(fact: FactRecord) -> FactEvidence:
    text, said_at = sentence(fact), fact["valid_from"] or fact["known_from"]
    owner = fact.get("agent_id"), fact.get("user_id")
    return FactEvidence("fact", fact["fact_id"], text, said_at, fact["trust"], *owner, fingerprint_of(text), fact)


def of_procedure(procedure: ProcedureRecord) -> EvidenceRecord:
    fingerprint = fingerprint_of(orjson.dumps([procedure["name"], *procedure["steps"]]).decode())
    return EvidenceRecord(
        "procedure",
        procedure["procedure_id"],
        procedure["name"],
        procedure["updated_at"],
        procedure["trust"],
        procedure.get("agent_id"),
        procedure.get("user_id"),
        fingerprint,
    )


def of_action(action: ActionRecord) -> EvidenceRecord:
    text, owner = action["content"], (action.get("agent_id"), action.get("user_id"))
    return EvidenceRecord("action", action["action_id"], text, action["timestamp"], 1.0, *owner, fingerprint_of(text))


class EvidenceReader:
    """Reads evidence within a caller's scope. Records that no longer stand are left out, unless `retired`: then those
    that were superseded, ended or archived are read, too."""

    def __init__(self, store: Store, scope: Scope, now: str, *, retired: bool = False) -> None:
        self._store, self._scope, self._now, self._retired = store, scope, now, retired

    async def read(self, names: Iterable[Name]) -> dict[Name, EvidenceRecord]:
        """Returns the records that stand: active memories, facts that are not closed, active procedures, and
        actions."""
        ids: dict[str, list[str]] = {}
        for kind, record_id in dict.fromkeys(names):
            ids.setdefault(kind, []).append(record_id)
        records = [record for kind, of_kind in ids.items() for record in await self._of_kind(kind, of_kind)]
        return {record.name: record for record in records}

    async def _of_kind(self, kind: str, ids: list[str]) -> Sequence[EvidenceRecord]:
        if kind == "memory":
            memories = (await Repository(self._store, self._scope, MEMORIES).get_many(ids)).values()
            standing = [memory for memory in memories if self._retired or memory["status"] == "active"]
            return [of_memory(memory) for memory in standing if not expired(memory, self._now)]
        if kind == "fact":
            facts = (await FactRepository(self._store, self._scope).get_many(ids)).values()
            return [of_fact(fact) for fact in facts if self._retired or fact["known_until"] is None]
        if kind == "procedure":
            procedures = (await Repository(self._store, self._scope, PROCEDURES).get_many(ids)).values()
            return [of_procedure(one) for one in procedures if self._retired or one["status"] == "active"]
        actions = (await Repository(self._store, self._scope, ACTIONS).get_many(ids)).values()
        return [of_action(action) for action in actions]


def whole(finding: schemas.FindingRecord, records: Mapping[Name, EvidenceRecord]) -> bool:
    """Returns True if all evidence of a finding still stands as it was found."""
    return all(as_found(evidence, records) is not None for evidence in finding["evidence"])


def as_found(evidence: EvidenceName, records: Mapping[Name, EvidenceRecord]) -> EvidenceRecord | None:
    """Returns the record that a piece of evidence names, or None if it does not stand as it was found, or as accepting
    the finding made it."""
    record = records.get((evidence["kind"], evidence["id"]))
    marks = (evidence["mark"], evidence.get("judged", evidence)["mark"])
    return record if record is not None and record.fingerprint in marks else None


# --- The words of a text that are meant -------------------------------------------------------------------------------

MOST_JOINING = 2
"""The most words on each side of a clause that go with it, such as "and my" or "but". Beside a text of which nothing is
to be left it is one: the "I" of "I live in Rome", of which "live in Rome" was quoted."""
_NO_JOINT = re.compile(r"[^\w\s'\u2019-]")
_JOINING = r"[\s,;:\u3001\uff0c\uff1b\uff1a\u2013\u2014-]"
_SEAM = re.compile(f"(?<!{_JOINING}){_JOINING}+$")
_ENDED = re.compile(r"[.!?\u2026\u3002\uff01\uff1f\n][\"'\u201d\u2019)\u300d]*$")


def meant(words_meant: str, left: str, text: str) -> EvidenceName | None:
    """Returns where a model's words stand in a text, as a finding stores it: nothing if the text says nothing else, and
    None if it does not have them.

    `left`: what the text says besides, as the model copied it. It is believed as far as it leaves out no more than the
    words that join the clause to the rest (`MOST_JOINING`). If it is not believed, the clause alone is taken out:
    `meant("my sister is vegetarian", "", "I have an allergy and my sister is vegetarian.")` leaves "I have an allergy
    and.".
    """
    span = place_of(words_meant, text)
    if span is None:
        return None
    before = [token for token in tokens(text) if token.end <= span[0]]
    after = [token for token in tokens(text) if token.start >= span[1]]
    most, wanted, cut = MOST_JOINING if left.strip() else 1, words(left), span
    for first, last in ((first, last) for first in range(most + 1) for last in range(most + 1)):
        kept_before, kept_after = before[: len(before) - first], after[last:]
        begin = before[len(before) - first].start if 0 < first <= len(before) else span[0]
        end = after[last - 1].end if 0 < last <= len(after) else span[1]
        joined = _NO_JOINT.search(text[begin : span[0]] + text[span[1] : end]) is None
        if joined and [token.word for token in (*kept_before, *kept_after)] == wanted:
            cut = begin, end
            break
    if STOP_WORDS.issuperset(words(text[: cut[0]] + " " + text[cut[1] :])):
        return {}
    return {"span": [*span], "cut": [*cut]}


def quoted(named: EvidenceName, text: str) -> str:
    """Returns the words of a text that a finding is about. `named`: its record, as the finding stores it."""
    start, end = named.get("span") or (0, len(text))
    return text[start:end]


def shortened(named: EvidenceName, text: str) -> str | None:
    """Returns a record's text without the words that a finding is about; None if it says nothing else: of "I have a
    dog and I live in Rome." it is "I have a dog."."""
    if "cut" not in named:
        return None
    start, end = named["cut"]
    before, after = text[:start], text[end:]
    kept_before = _SEAM.sub("", before)
    if kept_before and not _ENDED.search(kept_before):  # within a sentence: its end, or its next clause, follows
        follows = after.lstrip()
        space = " " if follows[:1].isalnum() and after != follows else ""
        return f"{kept_before}{space}{follows}"
    kept = "".join(re.split(r"(\w)", after, maxsplit=1)[1:])  # without what ended or joined the clause
    return (before + kept).strip() if kept else before.strip()


DECIDED = ("accepted", "dismissed")
"""States of a finding that a caller gave it."""
GONE = "Its evidence was changed or is gone."
"""The reason that a finding shows once its evidence no longer stands."""
PAGE = 100


def new_finding(
    agent_id: str | None,
    user_id: str | None,
    kind: schemas.FindingKind,
    reason: str,
    evidence: Sequence[EvidenceRecord],
    proposal: schemas.Proposal,
    confidence: float,
    now: str,
    clauses: Mapping[Name, EvidenceName] | None = None,
) -> schemas.FindingRecord:
    """Returns an open finding, its evidence oldest first. `clauses`: where the words stand in a record's text that the
    finding is about (`meant`), if it is not about all of it.

    Its id is derived from the owners, the kind and the evidence with its fingerprints. So the same finding always has
    the same id.
    """
    ordered = sorted(evidence, key=lambda record: (record.said_at, record.id))
    named: list[EvidenceName] = [{**record.named(), **(clauses or {}).get(record.name, {})} for record in ordered]
    return {
        "finding_id": finding_id(agent_id, user_id, kind, named),
        "agent_id": agent_id,
        "user_id": user_id,
        "kind": kind,
        "status": "open",
        "reason": reason,
        "evidence": named,
        "proposal": proposal,
        "confidence": confidence,
        "trust": min((record.trust for record in evidence), default=1.0),
        "operation_id": None,
        "settled_by": None,
        "settled_at": None,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def finding_id(agent_id: str | None, user_id: str | None, kind: str, evidence: Sequence[EvidenceName]) -> str:
    """Returns the id of a finding of these owners, this kind and this evidence, as a finding stores it. What sentences
    it is about makes no difference."""
    names = [{"kind": named["kind"], "id": named["id"], "mark": named["mark"]} for named in evidence]
    names.sort(key=lambda name: (name["kind"], name["id"]))
    key = orjson.dumps([agent_id, user_id, kind, names], option=orjson.OPT_SORT_KEYS)
    return f"find_{blake2b(key, digest_size=16).hexdigest()}"


class FindingFilters(BaseModel):
    """What a list of findings is asked for in the query string. None filters nothing."""

    agent_id: Identifier | None = None
    user_id: Identifier | None = None
    kind: schemas.FindingKind | None = None
    status: schemas.FindingListStatus = "open"


class FindingRepository(Repository[schemas.FindingRecord]):
    """The findings that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, schemas.FINDINGS)

    async def open_of(self, where: Filter) -> list[schemas.FindingRecord]:
        """Returns all open findings that match, oldest first."""
        wanted = both(Eq("status", "open"), where)
        return [finding async for page in pages(partial(self.find, wanted), schemas.FINDINGS, PAGE) for finding in page]

    def settle(
        self,
        finding: schemas.FindingRecord,
        status: schemas.FindingStatus,
        by: str | None,
        now: str,
        operation_id: str | None = None,
    ) -> Update[schemas.FindingRecord]:
        """Returns the change that settles an open finding. It expects that nobody has settled it meanwhile. Its
        proposal and evidence are stored as the finding has them: as it was carried out."""
        settled: schemas.FindingRecord = {
            "status": status,
            "settled_by": by,
            "settled_at": now,
            "proposal": finding["proposal"],
            "evidence": finding["evidence"],
        }
        if operation_id is not None:
            settled["operation_id"] = operation_id
        if status == "settled":  # what a model wrote of evidence that is gone goes with it
            settled["reason"] = GONE
            settled["proposal"] = {**finding["proposal"], "details": {}}
        return self.update(finding, settled, now=now)

    async def render(self, findings: Sequence[schemas.FindingRecord], now: str) -> list[schemas.ReflectionFinding]:
        """Returns findings with the texts of their evidence. An open finding whose evidence no
        longer stands is shown as settled; one that was decided shows what it retired, too."""
        decided = [finding for finding in findings if finding["status"] in DECIDED]
        others = [finding for finding in findings if finding["status"] not in DECIDED]
        shown: dict[str, schemas.ReflectionFinding] = {}
        for group, retired in ((decided, True), (others, False)):
            reader = EvidenceReader(self.store, self.scope, now, retired=retired)
            records = await reader.read(name for finding in group for name in schemas.evidence_names(finding))
            shown |= {finding["finding_id"]: rendered(finding, records) for finding in group}
        return [shown[finding["finding_id"]] for finding in findings]


def rendered(finding: schemas.FindingRecord, records: Mapping[Name, EvidenceRecord]) -> schemas.ReflectionFinding:
    """Returns a finding with the texts of its evidence, as far as it stands."""
    evidence: list[schemas.FindingEvidence] = []
    for named in finding["evidence"]:
        record = as_found(named, records)
        evidence.append(
            {
                "kind": cast(schemas.EvidenceKind, named["kind"]),
                "id": named["id"],
                "text": record.text if record else None,
                "said_at": record.said_at if record else None,
                "trust": record.trust if record else None,
                "source": record.source if record else None,
                "quote": quoted(named, record.text) if record and "span" in named else None,
                "shortened": shortened(named, record.text) if record else None,
            }
        )
    shown = cast(schemas.ReflectionFinding, {**schemas.FINDINGS.public(finding), "evidence": evidence})
    if not whole(finding, records):
        # A reason of a model and the details of a proposal may repeat what was deleted.
        shown["reason"], shown["proposal"] = GONE, {**finding["proposal"], "details": {}}
        shown["status"] = "settled" if finding["status"] == "open" else finding["status"]
    return shown


class FindingService:
    """The operations on findings within a caller's scope."""

    def __init__(self, findings: FindingRepository, clock: Clock) -> None:
        self._findings, self._clock = findings, clock

    async def get(self, finding_id: str) -> schemas.ReflectionFinding:
        """Returns a finding with its evidence. Raises NotFound."""
        return await self._render(await self._findings.get(finding_id))

    async def page(self, filters: FindingFilters, listing: Listing) -> Page[schemas.ReflectionFinding]:
        """Returns a page of findings that match the filters. A page of open findings may have fewer items than its
        limit: those whose evidence no longer stands are left out."""
        asked = filters.model_dump()
        where = both(
            having(asked, "agent_id", "user_id", "kind"),
            None if filters.status == "any" else Eq("status", filters.status),
        )
        page = await self._findings.listed(where, listing, self._render, schemas.ReflectionFinding, request=asked)
        if filters.status == "open":
            page["items"] = [item for item in page["items"] if item["status"] == "open"]
        return page

    async def open_one(self, finding_id: str, precondition: Precondition) -> schemas.FindingRecord:
        """Returns an open finding as it is stored, for a caller that settles it. Raises NotFound, Forbidden, and
        Conflict if it is settled or its evidence no longer stands."""
        finding = await self._findings.get(finding_id)
        self._findings.require_write(finding)
        precondition.check(finding)
        status = (await self._render(finding))["status"]
        if status != "open":
            raise Conflict(f"This finding is not open: it is {status}.")
        return finding

    async def _render(self, finding: schemas.FindingRecord) -> schemas.ReflectionFinding:
        (shown,) = await self._findings.render([finding], rfc3339(self._clock.now()))
        return shown
