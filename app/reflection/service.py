"""Starts reflection, accepts findings and applies their proposals. Methods return a `WriteResult` and commit nothing.

Nothing is deleted: records are superseded, closed, or end being valid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.core import schemas as core
from app.core.clock import rfc3339
from app.errors import Conflict, invalid
from app.facts.ledger import OPEN_START
from app.facts.profile import field_of
from app.facts.schemas import FactRecord
from app.findings.replacing import Links, facts_of, linked, links_of, unlinking
from app.findings.schemas import FindingRecord, Proposal, ProposalDetails, RecordName, ReflectionFinding, evidence_names
from app.findings.service import (
    EvidenceReader,
    EvidenceRecord,
    FactEvidence,
    FindingRepository,
    FindingService,
    MemoryEvidence,
    Name,
    fingerprint_of,
    of_memory,
    shortened,
    whole,
)
from app.jobs import queue
from app.learning.dependencies import NO_PRECONDITION, Tools
from app.learning.derivations import DerivationRecord, derivation, id_of
from app.memories.create import MemoryPlanner
from app.memories.repository import Embeddings, MemoryRepository, revision, same_partition
from app.memories.schemas import EvidenceName, MemoryCreate, MemoryRecord, Source
from app.procedures.schemas import PROCEDURES, ProcedurePatch
from app.procedures.service import ProcedureRepository, ProcedureService
from app.profiles.users import ProfilePatch
from app.retrieval.retriever import Retriever
from app.storage.changes import Change
from app.storage.scope import Scope
from app.writes.executor import Precondition, WriteResult, etag

CHANGED = "A record that this finding is about has changed meanwhile."


class Applier:
    """Plans the changes of proposals within a scope."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools, self._scope = tools, scope
        self._memories = MemoryRepository(tools.store, scope)

    async def changes(self, finding: FindingRecord) -> list[Change]:
        """Returns the changes that a finding proposes. Raises Conflict if a record that it needs no longer stands, and
        Forbidden if the caller may not write one."""
        proposal, now = finding["proposal"], rfc3339(self._tools.clock.now())
        records = await EvidenceReader(self._tools.store, self._scope, now).read(evidence_names(finding))
        keep = None if proposal["keep"] is None else self._needed(records, proposal["keep"])
        retired = [self._needed(records, name) for name in proposal["retire"]]
        texts, edits, links, facts = shorter_texts(finding, records), list[Change](), Links(), list[FactRecord]()
        named = {(evidence["kind"], evidence["id"]): evidence for evidence in finding["evidence"]}
        for record in [record for record in retired if isinstance(record, MemoryEvidence)]:
            judged, later = (named.get(one.name, one.named()) for one in (record, keep or record))
            found = await links_of(self._memories, judged, later, finding["finding_id"], now)
            facts += [
                fact for fact in await facts_of(self._memories, found, now) if ("fact", fact["fact_id"]) not in records
            ]
            for memory, link in found:
                # what says it in other words, or says more, is marked; what was learned word for word goes along
                is_same = memory["content_hash"] == record.memory["content_hash"] and memory["status"] == "active"
                if is_same and record.name in texts:
                    edits += await self._shorten(memory, texts[record.name], now)
                elif ("memory", memory["memory_id"]) in records:
                    continue
                elif is_same:
                    retired.append(of_memory(memory))
                elif keep is not None:
                    links.append((memory, link))
        retired = [record for record in retired if record.name not in texts]
        match proposal["action"]:
            case "supersede":
                assert keep is not None  # the proposal names what replaces the others
                # of two that contradict each other one never held; what is outdated held until the other was told
                until = min(keep.said_at, now) if finding["kind"] == "stale" else OPEN_START
                edits += linked(self._memories, links, now)
                edits += await self._tools.facts(self._scope).ending(facts, until)
                return [*edits, *await self._supersede(keep, retired, until, now)]
            case "end":
                until = proposal["details"].get("valid_until", now)
                return [change for record in retired for change in self._end_validity(record, until, now)]
            case "store":
                return await self._remember(finding, records)
            case "revise":
                return await self._revise(retired, proposal["details"])
        return []

    async def _shorten(self, memory: MemoryRecord, text: str, now: str) -> list[Change]:
        """Returns the changes by which a memory keeps only what still holds of its text."""
        changed = revision(memory, {"content": text}, now)
        return (await self._memories.rewritten(memory, changed, now, Embeddings(self._tools.embedder)))[1]

    def _needed(self, records: Mapping[Name, EvidenceRecord], name: RecordName) -> EvidenceRecord:
        """Returns a record that a proposal names. Raises Conflict if it no longer stands."""
        record = records.get((name["kind"], name["id"]))
        if record is None:
            raise Conflict(CHANGED)
        return record

    async def _supersede(
        self, keep: EvidenceRecord, retired: Sequence[EvidenceRecord], until: str, now: str
    ) -> list[Change]:
        changes, superseded = list[Change](), list[str]()
        value = keep.fact["object"] if isinstance(keep, FactEvidence) else None
        for record in retired:
            match record:
                case MemoryEvidence(memory=memory):
                    if isinstance(keep, MemoryEvidence) and same_partition(memory, keep.memory):
                        changes += self._memories.supersede(memory, keep.id, now)
                        superseded.append(record.id)
                    else:
                        changes += self._end_validity(record, keep.said_at, now)
                case FactEvidence(fact=fact):
                    name = field_of(fact)
                    if value and name is not None and fact["user_id"] is not None:
                        users, patch = self._tools.users(self._scope), ProfilePatch.model_validate({name: value})
                        changes += (await users.patch_profile(fact["user_id"], patch, NO_PRECONDITION)).changes
                    else:
                        changes += await self._tools.facts(self._scope).ending([fact], until)
                case _:
                    raise Conflict(f"A record of the kind {record.kind} cannot be replaced by this finding.")
        if superseded and isinstance(keep, MemoryEvidence):
            supersedes = [*keep.memory["supersedes"], *superseded]
            changes += self._memories.revise(keep.memory, {"supersedes": supersedes}, now)
        return changes

    async def _remember(self, finding: FindingRecord, records: Mapping[Name, EvidenceRecord]) -> list[Change]:
        """Returns the changes that store an insight as a memory, as far trusted as the least of its sources."""
        if not whole(finding, records):
            raise Conflict(CHANGED)
        details, tools = finding["proposal"]["details"], self._tools
        body = MemoryCreate(
            agent_id=finding["agent_id"],
            user_id=finding["user_id"],
            content=details["content"],
            memory_type=details["memory_type"],
            trust=min(record.trust for record in records.values()),
        )
        source: Source = {
            "origin": "consolidation",
            "memory_ids": [evidence["id"] for evidence in finding["evidence"]],
            "quote": " … ".join(cited["quote"] for cited in details["quotes"]),
            "model": details["model"],
            "prompt_version": details["prompt_version"],
        }
        planner = MemoryPlanner(self._memories, Embeddings(tools.embedder), tools.clock.now(), NO_PRECONDITION)
        return (await planner.plan([body], "", [source])).changes

    def _end_validity(self, record: EvidenceRecord, until: str, now: str) -> list[Change]:
        """Returns the changes by which a memory stops being valid: at `until`, or now if it became valid later."""
        if not isinstance(record, MemoryEvidence):
            raise Conflict(f"A record of the kind {record.kind} cannot be ended by this finding.")
        memory = record.memory
        ends = until if until > (memory["valid_from"] or record.said_at) else now
        return self._memories.revise(memory, revision(memory, {"valid_until": min(ends, now)}, now), now)

    async def _revise(self, procedures: Sequence[EvidenceRecord], details: ProposalDetails) -> list[Change]:
        tools = self._tools
        repository = ProcedureRepository(tools.store, self._scope)
        retriever = Retriever(tools.store, self._scope, tools.embedder, PROCEDURES)
        service = ProcedureService(repository, Embeddings(tools.embedder), retriever, tools.clock)
        patch = ProcedurePatch.model_validate(details)
        return [
            change
            for procedure in procedures
            for change in (await service.patch(procedure.id, patch, NO_PRECONDITION)).changes
        ]


def shorter_texts(finding: FindingRecord, records: Mapping[Name, EvidenceRecord]) -> dict[Name, str]:
    """Returns the texts of the memories that say other things, too, than what a finding replaces, without that."""
    retired = {(name["kind"], name["id"]) for name in finding["proposal"]["retire"]}
    named = {(evidence["kind"], evidence["id"]): evidence for evidence in finding["evidence"]}
    texts = ((name, shortened(named[name], records[name].text)) for name in retired & named.keys() & records.keys())
    return {name: text for name, text in texts if text is not None}


def carried_out(finding: FindingRecord, texts: Mapping[Name, str]) -> FindingRecord:
    """Returns an accepted finding whose evidence names the shortened texts, and keeps what was judged of them."""
    evidence: list[EvidenceName] = []
    for named in finding["evidence"]:
        text = texts.get((named["kind"], named["id"]))
        shorter: EvidenceName = {"kind": named["kind"], "id": named["id"], "judged": named}
        evidence.append(named if text is None else {**shorter, "mark": fingerprint_of(text)})
    return {**finding, "evidence": evidence}


class ReflectRequest(core.Schema):
    model_config = core.example({"agent_id": "support", "user_id": "ada", "dry_run": True})

    agent_id: core.Identifier | None = Field(None, description="Only what is of this agent.")
    user_id: core.Identifier | None = Field(None, description="Only what is of this user.")
    focus: Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")] | None = Field(
        None, description="Only findings that have one of these words."
    )
    dry_run: core.Flag = Field(False, description="Only say how much would be found.")


class Acceptance(core.Schema):
    model_config = core.example({"keep": "mem_01a2003d395076f9a13acea58faaf745"})

    keep: core.Text | None = Field(
        None,
        description="Of a finding that replaces one record by another (`supersede`): the id of the one that holds, "
        "which is then kept, whichever of the two the finding proposed. Default: as proposed.",
    )


def keeping(proposal: Proposal, record_id: str) -> Proposal:
    """Returns a proposal to replace one record by another so that the record with this id is the one that is kept.
    Raises Invalid if it is none of the two."""
    keep, retire = proposal["keep"], proposal["retire"]
    if proposal["action"] != "supersede" or keep is None or len(retire) != 1:
        raise invalid("/keep", "must be left out: this finding does not choose between two records")
    for kept, retired in ((keep, retire[0]), (retire[0], keep)):
        if kept["id"] == record_id:
            return {**proposal, "keep": kept, "retire": [retired]}
    raise invalid("/keep", f"must be one of its two records: {keep['id']} or {retire[0]['id']}")


class Decisions:
    """Makes operations of the changes that a caller's request decides on. Commits nothing."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools, self._scope = tools, scope

    def begin(self, kind: str, agent_id: str | None, user_id: str | None) -> queue.OperationRecord:
        """Returns the operation of a decision on a record of an agent and a user. The changes may name its id."""
        now = self._tools.clock.now()
        return queue.new_operation(self._scope, kind, now, agent_id=agent_id, user_id=user_id)[0]

    async def carried_out(
        self, operation: queue.OperationRecord, changes: Sequence[Change], result: core.Json
    ) -> list[Change]:
        """Returns the changes with those that store the operation and how to undo them."""
        now, by = self._tools.clock.now(), operation["operation_id"]
        until = rfc3339(now + timedelta(days=self._tools.settings.retention.archive_days))
        owner: DerivationRecord = {"agent_id": operation["agent_id"], "user_id": operation["user_id"]}
        note = await derivation(self._tools.store, self._scope.tenant, changes, id_of([by]), owner, by, now)
        return [*changes, queue.carried_out(operation, result, {"by": by, "until": until}), note]

    async def resolved(self, settled: WriteResult, kept: str) -> WriteResult:
        """Returns what settles a dispute, with an operation that the answer names. `kept`: the id of what is kept."""
        operation = self.begin(queue.RESOLVE, settled.body["agent_id"], settled.body["user_id"])
        changes = await self.carried_out(operation, settled.changes, {"kept": kept})
        return replace(settled, body={**settled.body, "operation_id": operation["operation_id"]}, changes=changes)


class ReflectionService:
    """What callers ask of reflection, within their scope."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools, self._scope = tools, scope
        self._findings = FindingRepository(tools.store, scope)

    def reflect(self, body: ReflectRequest) -> WriteResult[queue.Operation]:
        """Returns 202 with the operation that looks for findings. Raises Forbidden."""
        self._scope.require_write(body.agent_id, body.user_id)
        owner = {"agent_id": body.agent_id, "user_id": body.user_id}
        payload = {"dry_run": body.dry_run, "focus": body.focus, **owner, **self._scope.bindings()}
        answer, changes = queue.start(self._scope, queue.REFLECTION, payload, self._tools.clock.now(), **owner)
        return WriteResult(answer, changes, 202)

    async def accept(
        self, finding_id: str, body: Acceptance, precondition: Precondition
    ) -> WriteResult[ReflectionFinding]:
        """Applies what a finding proposes and settles it, as an operation that can be undone. Raises NotFound,
        Forbidden, Invalid if the record that is to be kept is none of its two, and Conflict if it is settled already
        or its evidence has changed."""
        finding = await self._open(finding_id, precondition)
        if body.keep is not None:
            finding = {**finding, "proposal": keeping(finding["proposal"], body.keep)}
        changes = await Applier(self._tools, self._scope).changes(finding)
        now = rfc3339(self._tools.clock.now())
        records = await EvidenceReader(self._tools.store, self._scope, now).read(evidence_names(finding))
        return await self._settled(carried_out(finding, shorter_texts(finding, records)), "accepted", changes)

    async def dismiss(self, finding_id: str, precondition: Precondition) -> WriteResult[ReflectionFinding]:
        """Settles a finding and removes the link that it made between its statements, as an operation that can be
        undone. Nothing else changes. It is not found again as long as its evidence stays as it is. Raises NotFound,
        Forbidden and Conflict as `accept` does."""
        finding, now = await self._open(finding_id, precondition), rfc3339(self._tools.clock.now())
        unlinked = await unlinking(MemoryRepository(self._tools.store, self._scope), finding, now)
        return await self._settled(finding, "dismissed", unlinked)

    async def _open(self, finding_id: str, precondition: Precondition) -> FindingRecord:
        return await FindingService(self._findings, self._tools.clock).open_one(finding_id, precondition)

    async def _settled(
        self, finding: FindingRecord, status: Literal["accepted", "dismissed"], changes: Sequence[Change]
    ) -> WriteResult[ReflectionFinding]:
        """Returns a finding with its new status, and the changes that settle it besides those that are given."""
        decisions, now = Decisions(self._tools, self._scope), rfc3339(self._tools.clock.now())
        operation = decisions.begin(queue.REFLECTION, finding["agent_id"], finding["user_id"])
        settled = self._findings.settle(finding, status, self._scope.key_id, now, operation["operation_id"])
        done = await decisions.carried_out(operation, [*changes, settled], {status: finding["finding_id"]})
        after = self._findings.as_updated(finding, settled.set, now=now)
        (shown,) = await self._findings.render([after], now)
        return WriteResult(shown, done, headers={"ETag": etag(after)})
