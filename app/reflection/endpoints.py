"""HTTP endpoints of reflection: look for findings, and decide on findings and disputes."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from app.api.errors import BODY, problems
from app.api.strict import Answer, StrictRoute
from app.auth.dependencies import get_caller
from app.core.schemas import shown
from app.facts.endpoints import FactId, FactServiceDep
from app.facts.schemas import Fact, Resolution
from app.findings.endpoints import FindingId
from app.findings.schemas import ReflectionFinding
from app.jobs.queue import Operation
from app.learning.dependencies import Tools
from app.memories.endpoints import MemoryId, MemoryServiceDep
from app.memories.schemas import DisputeResolution, Memory
from app.reflection.service import Acceptance, Decisions, ReflectionService, ReflectRequest
from app.storage.scope import Scope
from app.writes.executor import InPrecondition, Writer, WriteResult


def tools_of(request: Request) -> tuple[Tools, Scope]:
    resources, principal = get_caller(request)
    tools = Tools(resources.store, resources.embedder, resources.clock, resources.settings, resources.tuning)
    return tools, principal.scope


async def reflection_service(request: Request) -> ReflectionService:
    return ReflectionService(*tools_of(request))


async def decisions_of(request: Request) -> Decisions:
    """Returns what makes the caller's decisions operations."""
    return Decisions(*tools_of(request))


Reflection = Annotated[ReflectionService, Depends(reflection_service)]
DecisionsDep = Annotated[Decisions, Depends(decisions_of)]

_AS_PROPOSED = Acceptance()

router = APIRouter(prefix="/v1/reflect", tags=["findings"], route_class=StrictRoute)
findings_router = APIRouter(prefix="/v1/findings", tags=["findings"], route_class=StrictRoute)
facts_router = APIRouter(prefix="/v1/facts", tags=["facts"], route_class=StrictRoute)
memories_router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)


@router.post("", status_code=202, responses=problems(409, 412, *BODY))
async def reflect(body: ReflectRequest, reflection: Reflection, write: Writer) -> Answer[Operation]:
    """Look for contradictions between memories, facts and the profile, and for what is past. The operation's result
    counts the findings; with `dry_run` nothing is stored."""

    async def plan() -> WriteResult[Operation]:
        return reflection.reflect(body)

    return await write(plan, keyed=not body.dry_run)


@findings_router.post("/{finding_id}/accept", responses=problems(404, 409, 412, *BODY))
async def accept_finding(
    finding_id: FindingId,
    reflection: Reflection,
    write: Writer,
    precondition: InPrecondition,
    body: Acceptance = _AS_PROPOSED,
) -> Answer[ReflectionFinding]:
    """Do what a finding proposes, or keep the other one of its two records. `operation_id` names the operation, which
    can be undone; the finding is then open again. 409 where it is settled already."""
    return await write(lambda: reflection.accept(finding_id, body, precondition))


@findings_router.post("/{finding_id}/dismiss", responses=problems(404, 409, 412))
async def dismiss_finding(
    finding_id: FindingId, reflection: Reflection, write: Writer, precondition: InPrecondition
) -> Answer[ReflectionFinding]:
    """Settle a finding. Its `replaced_by` no longer counts; nothing else changes. `operation_id` names the operation,
    which can be undone. 409 where it is settled already."""
    return await write(lambda: reflection.dismiss(finding_id, precondition))


@shown
class ResolvedFact(Fact, total=False):
    operation_id: Annotated[str, Field(description="To undo it: the facts are in dispute again.")]


@shown
class ResolvedMemory(Memory, total=False):
    operation_id: Annotated[str, Field(description="To undo it: the memories are in dispute again.")]


@facts_router.post("/{fact_id}/resolve", responses=problems(404, 409, 412, *BODY))
async def resolve_fact(
    fact_id: FactId,
    body: Resolution,
    facts: FactServiceDep,
    decisions: DecisionsDep,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[ResolvedFact]:
    """Settle a dispute between facts. Answers the fact that was kept, and the operation, which can be undone."""

    async def plan() -> WriteResult:
        settled = await facts.resolve(fact_id, body.keep, precondition)
        return await decisions.resolved(settled, settled.body["fact_id"])

    return await write(plan)


@memories_router.post("/{memory_id}/resolve", responses=problems(404, 409, 412, *BODY))
async def resolve_memory(
    memory_id: MemoryId,
    body: DisputeResolution,
    memories: MemoryServiceDep,
    decisions: DecisionsDep,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[ResolvedMemory]:
    """Settle a dispute between memories. Answers the memory that is kept, and the operation, which can be undone. A
    disputed one that is kept is believed as much as the ones that it replaces."""

    async def plan() -> WriteResult:
        settled = await memories.resolve(memory_id, body.keep, precondition)
        return await decisions.resolved(settled, settled.body["memory_id"])

    return await write(plan)
