"""Starts reflection, accepts findings and applies their proposals. Methods return a `WriteResult` and commit nothing.

Nothing is deleted: records are superseded, closed, or end being valid.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import Field, StringConstraints

from app.core.clock import rfc3339
from app.core.schemas import Flag, Identifier, Schema, example
from app.errors import Conflict
from app.facts.keys import field_of
from app.findings.schemas import evidence_names
from app.findings.service import (
    EvidenceReader,
    EvidenceRecord,
    FindingRepository,
    FindingService,
    Name,
    of_memory,
    says_more,
    whole,
)
from app.jobs import queue
from app.jobs.models import REFLECTION
from app.learning.dependencies import ALWAYS, Tools
from app.learning.derivations import derivation, id_of
from app.memories.create import MemoryPlanner
from app.memories.decays import Decays
from app.memories.embedding import Embeddings
from app.memories.records import revision
from app.memories.repository import MemoryRepository, same_pair
from app.memories.schemas import MemoryCreate
from app.procedures.schemas import PROCEDURES, ProcedurePatch
from app.procedures.service import ProcedureRepository, ProcedureService
from app.profiles.schemas import ProfilePatch
from app.reflection.conflicts import value_of
from app.retrieval.retriever import Retriever
from app.storage.changes import Change
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteResult, etag


class Applier:
    """Plans the changes of proposals within a scope."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools, self._scope = tools, scope
        self._memories = MemoryRepository(tools.store, scope)

    async def changes(self, finding: Doc) -> list[Change]:
        """Returns the changes that a finding proposes. Raises Conflict if a record that it needs no longer stands, and
        Forbidden if the caller may not write one."""
        proposal, now = finding["proposal"], rfc3339(self._tools.clock.now())
        records = await EvidenceReader(self._tools.store, self._scope, now).read(evidence_names(finding))
        wanted = [*proposal["retire"], *([proposal["keep"]] if proposal["keep"] else [])]
        if any((one["kind"], one["id"]) not in records for one in wanted):
            raise Conflict("A record that this finding is about has changed meanwhile.")
        retired = [records[one["kind"], one["id"]] for one in proposal["retire"]]
        retired = [one for one in retired if not _stays(one, finding)]
        learned = [doc for one in retired if one.kind == "memory" for doc in await self._memories.repeating(one.doc)]
        retired += [of_memory(doc) for doc in learned if ("memory", doc["memory_id"]) not in records]
        match proposal["action"]:
            case "supersede":
                keep = proposal["keep"]
                kept = records[keep["kind"], keep["id"]]
                return await self._supersede(kept, retired, now)
            case "end":
                until = proposal["details"].get("valid_until", now)
                return [change for one in retired for change in self._end(one, until, now)]
            case "store":
                return await self._remember(finding, records)
            case "revise":
                return await self._revise(retired, proposal["details"])
        return []

    async def _supersede(self, keep: EvidenceRecord, retired: Sequence[EvidenceRecord], now: str) -> list[Change]:
        changes, superseded = list[Change](), list[str]()
        value = None if keep.kind == "memory" else value_of(keep)
        for one in retired:
            if one.kind == "memory" and keep.kind == "memory" and same_pair(one.doc, keep.doc):
                changes += self._memories.retire(one.doc, keep.id, now)
                superseded.append(one.id)
            elif one.kind == "memory":
                changes += self._end(one, keep.said_at, now)
            elif one.kind == "fact" and value and (name := field_of(one.doc)):
                changes += await self._set_profile(one.doc["user_id"], name, value)
            elif one.kind == "fact":
                changes += (await self._tools.facts(self._scope).retract(one.id, ALWAYS)).changes
            elif one.kind == "profile":
                user, _, name = one.id.rpartition("/")
                changes += await self._set_profile(user, name, value)
            else:
                raise Conflict(f"A record of the kind {one.kind} cannot be replaced by this finding.")
        if superseded:
            changes += self._memories.revise(keep.doc, {"supersedes": [*keep.doc["supersedes"], *superseded]}, now)
        return changes

    async def _remember(self, finding: Doc, records: Mapping[Name, EvidenceRecord]) -> list[Change]:
        """Returns the changes that store an insight as a memory, as far trusted as the least of its sources."""
        if not whole(finding, dict(records)):
            raise Conflict("A record that this finding is about has changed meanwhile.")
        details, tools = finding["proposal"]["details"], self._tools
        body = MemoryCreate(
            agent_id=finding["agent_id"],
            user_id=finding["user_id"],
            content=details["content"],
            memory_type=details["memory_type"],
            trust=min(one.trust for one in records.values()),
        )
        source = {
            "origin": "consolidation",
            "memory_ids": [one["id"] for one in finding["evidence"]],
            "quote": " … ".join(one["quote"] for one in details["quotes"]),
            "model": details["model"],
            "prompt_version": details["prompt_version"],
        }
        decays = Decays(tools.store, self._scope.tenant)
        planner = MemoryPlanner(self._memories, Embeddings(tools.embedder), decays, tools.clock.now(), ALWAYS)
        return (await planner.plan([body], "", [source])).changes

    def _end(self, record: EvidenceRecord, until: str, now: str) -> list[Change]:
        """Returns the changes by which a memory stops being valid: at `until`, or now if it became valid later."""
        doc = record.doc
        ends = until if until > (doc["valid_from"] or record.said_at) else now
        return self._memories.revise(doc, revision(doc, {"valid_until": min(ends, now)}, now), now)

    async def _set_profile(self, user: str, name: str, value: str | None) -> Sequence[Change]:
        """Returns the changes that give a field of a profile the value of the record that is kept."""
        if value is None:
            raise Conflict("The record that is to be kept states no value for the profile.")
        patch = ProfilePatch.model_validate({name: value})
        return (await self._tools.users(self._scope).patch_profile(user, patch, ALWAYS)).changes

    async def _revise(self, procedures: Sequence[EvidenceRecord], fields: Doc) -> list[Change]:
        tools = self._tools
        repository = ProcedureRepository(tools.store, self._scope)
        lookup = Retriever(tools.store, self._scope, tools.embedder, PROCEDURES)
        service = ProcedureService(repository, Embeddings(tools.embedder), lookup, tools.clock)
        patch = ProcedurePatch.model_validate(fields)
        return [change for one in procedures for change in (await service.patch(one.id, patch, ALWAYS)).changes]


def _stays(record: EvidenceRecord, finding: Doc) -> bool:
    """Returns whether a memory says other things, too, than the sentence that a finding replaces. Then it stays, and
    prompts name the sentence as replaced."""
    named = [one for one in finding["evidence"] if (one["kind"], one["id"]) == record.name]
    return record.kind == "memory" and any(says_more(one, record.text) for one in named)


class ReflectRequest(Schema):
    model_config = example({"agent_id": "support", "user_id": "ada", "dry_run": True})

    agent_id: Identifier | None = Field(None, description="Only what is of this agent.")
    user_id: Identifier | None = Field(None, description="Only what is of this user.")
    focus: Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")] | None = Field(
        None, description="Only findings that have one of these words."
    )
    dry_run: Flag = Field(False, description="Only say how much would be found.")


class ReflectionService:
    """What callers ask of reflection, within their scope."""

    def __init__(self, tools: Tools, scope: Scope) -> None:
        self._tools, self._scope = tools, scope
        self._findings = FindingRepository(tools.store, scope)

    def reflect(self, body: ReflectRequest) -> WriteResult:
        """Returns 202 with the operation that looks for findings. Raises Forbidden."""
        self._scope.require_write(body.agent_id, body.user_id)
        owner = {"agent_id": body.agent_id, "user_id": body.user_id}
        payload = {"dry_run": body.dry_run, "focus": body.focus, **owner, **self._scope.bindings()}
        answer, changes = queue.start(self._scope, REFLECTION, payload, self._tools.clock.now(), **owner)
        return WriteResult(answer, changes, 202)

    async def accept(self, finding_id: str, precondition: IfMatch) -> WriteResult:
        """Applies what a finding proposes and settles it, as an operation that can be undone. Raises NotFound,
        Forbidden, and Conflict if it is settled already or its evidence has changed."""
        clock = self._tools.clock
        doc = await FindingService(self._findings, clock).open_one(finding_id, precondition)
        owner = {"agent_id": doc["agent_id"], "user_id": doc["user_id"]}
        changes, now = await Applier(self._tools, self._scope).changes(doc), clock.now()
        operation, noted = queue.begin(self._scope, REFLECTION, now, **owner)
        by = operation["operation_id"]
        settled = self._findings.settle(doc, "accepted", self._scope.key_id, rfc3339(now), by)
        until = rfc3339(now + timedelta(days=self._tools.settings.retention.archive_days))
        operation |= {
            "status": "succeeded",
            "progress": {"done": 1, "total": 1},
            "result": {"accepted": finding_id},
            "undo": {"by": by, "until": until},
        }
        changes.append(settled)
        key = id_of([finding_id, doc["version"]], "accept")
        note = await derivation(self._tools.store, self._scope.tenant, changes, key, owner, by, now)
        after = doc | settled.set | {"version": doc["version"] + 1}
        (shown,) = await self._findings.render([after], rfc3339(now))
        return WriteResult(shown, [*changes, noted, note], headers={"ETag": etag(after)})
