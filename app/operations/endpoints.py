"""HTTP endpoints for scheduled jobs, operations and figures of the service."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.errors import BODY, problems
from app.api.fast_path import StrictRoute
from app.api.strict import InListing, answer
from app.audit.tombstones import Tombstones
from app.auth.dependencies import InResources, get_caller
from app.auth.keys import Principal
from app.core.schemas import Identifier, Page
from app.jobs.models import OPERATIONS, Operation
from app.jobs.schedule import Schedules, periods
from app.operations import service
from app.operations.service import OperationService
from app.operations.stats import StatsService, StoreStats
from app.settings import Settings
from app.storage.repository import Repository
from app.writes.dependencies import Writer


async def operation_service(request: Request) -> OperationService:
    """Returns the operation service of the caller."""
    resources, principal = get_caller(request)
    return OperationService(
        Repository(resources.store, principal.scope, OPERATIONS),
        Schedules(resources.store, resources.clock, periods(resources.settings.jobs)),
        resources.clock,
        Tombstones.of(resources.store, resources.settings, principal.scope.tenant),
    )


Operations = Annotated[OperationService, Depends(operation_service)]


jobs_router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute)
stats_router = APIRouter(prefix="/v1/stats", tags=["jobs"], route_class=StrictRoute)
operations_router = APIRouter(prefix="/v1/operations", tags=["jobs"], route_class=StrictRoute)

ADMIN = {"x-verb": "admin"}
_ALL = service.JobRun()
OperationId = Annotated[Identifier, Path(examples=["op_01a2003d395076f9a13acea58faaf745"])]


@jobs_router.get("", response_model=service.Jobs, responses=problems(), openapi_extra=ADMIN)
async def list_jobs(operations: Operations) -> Response:
    """List what runs by the clock, when it last ran and what came of it."""
    return answer(await operations.jobs())


@jobs_router.post(
    "/{name}/run",
    status_code=202,
    response_model=Operation,
    responses=problems(404, 409, 412, *BODY),
    openapi_extra=ADMIN,
)
async def run_job(
    name: Annotated[Identifier, Path(examples=["decay"])],
    operations: Operations,
    write: Writer,
    body: service.JobRun = _ALL,
) -> Response:
    """Run a job now, on this tenant's data, or one user's. With `dry_run` it only says what it would do: each time
    anew, whatever the Idempotency-Key."""
    return await write(lambda: operations.run(name, body), keyed=not body.dry_run)


@operations_router.get("", response_model=Page[Operation], responses=problems())
async def list_operations(
    operations: Operations,
    listing: InListing,
    session_id: Annotated[Identifier | None, Query(description="Those that learned from this session.")] = None,
    kind: Annotated[str | None, Query(min_length=1, max_length=64, description="Such as `post_conversation`.")] = None,
) -> Response:
    """List the operations, newest first."""
    return answer(await operations.page({"session_id": session_id, "kind": kind}, listing))


@operations_router.get("/{operation_id}", response_model=Operation, responses=problems(404))
async def get_operation(operation_id: OperationId, operations: Operations) -> Response:
    """Get how far an operation is, and what came of it."""
    return answer(await operations.get(operation_id))


@operations_router.post(
    "/{operation_id}/undo", status_code=202, response_model=Operation, responses=problems(404, 409, 412)
)
async def undo_operation(operation_id: OperationId, operations: Operations, write: Writer) -> Response:
    """Undo what an operation did; the answer is the operation that does so."""
    return await write(lambda: operations.undo(operation_id))


@stats_router.get("", response_model=StoreStats, responses=problems())
async def get_stats(request: Request, resources: InResources) -> Response:
    """Get the number of records of each kind, their growth, what was recalled lately, and latency. Counts are at most
    ten seconds old."""
    principal = get_caller(request)[1]
    figures = StatsService(resources.store, principal.scope, resources.clock, resources.accesses, resources.stats)
    return answer(await figures.stats(with_latency=_reads_metrics(resources.settings, principal)))


def _reads_metrics(settings: Settings, principal: Principal) -> bool:
    """Returns whether the caller may read what `/metrics` tells."""
    bound = principal.scope.agents is not None or principal.scope.users is not None
    return settings.metrics == "open" or (settings.metrics == "admin" and "admin" in principal.verbs and not bound)
