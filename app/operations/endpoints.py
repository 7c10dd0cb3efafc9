"""HTTP endpoints for scheduled jobs, operations, figures of the service, liveness, readiness and metrics."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field
from typing_extensions import TypedDict

from app import metrics as measured
from app.api.errors import BODY, only, problems
from app.api.strict import Answer, InListing, StrictRoute, answer
from app.audit.tombstones import Tombstones
from app.auth.dependencies import InResources, authenticate, get_caller, has_key
from app.core import workers
from app.core.schemas import Identifier, Page, shown
from app.errors import Draining, EmbeddingUnavailable, Forbidden, NoRoute, StoreUnavailable
from app.jobs.queue import OPERATIONS, Operation
from app.jobs.runner import Schedules, periods
from app.operations import service
from app.operations.stats import StatsService, StoreStats
from app.storage.repository import Repository
from app.writes.executor import Writer


async def operation_service(request: Request) -> service.OperationService:
    resources, principal = get_caller(request)
    return service.OperationService(
        Repository(resources.store, principal.scope, OPERATIONS),
        Schedules(resources.store, resources.clock, periods(resources.tuning)),
        resources.clock,
        Tombstones.of(resources.store, resources.settings, principal.scope.tenant),
    )


Operations = Annotated[service.OperationService, Depends(operation_service)]


jobs_router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute)
stats_router = APIRouter(prefix="/v1/stats", tags=["jobs"], route_class=StrictRoute)
operations_router = APIRouter(prefix="/v1/operations", tags=["jobs"], route_class=StrictRoute)

ADMIN = {"x-verb": "admin"}
_ALL = service.JobRun()
OperationId = Annotated[Identifier, Path(examples=["op_01a2003d395076f9a13acea58faaf745"])]


@jobs_router.get("", responses=problems(), openapi_extra=ADMIN)
async def list_jobs(operations: Operations) -> Answer[service.Jobs]:
    """List what runs by the clock, when it last ran and what came of it."""
    return answer(await operations.jobs())


@jobs_router.post(
    "/{name}/run",
    status_code=202,
    responses=problems(404, 409, 412, *BODY),
    openapi_extra=ADMIN,
)
async def run_job(
    name: Annotated[Identifier, Path(examples=["decay"])],
    operations: Operations,
    write: Writer,
    body: service.JobRun = _ALL,
) -> Answer[Operation]:
    """Run a job now, on this tenant's data, or one user's. With `dry_run` it only says what it would do: each time
    anew, whatever the Idempotency-Key."""
    return await write(lambda: operations.run(name, body), keyed=not body.dry_run)


@operations_router.get("", responses=problems())
async def list_operations(
    operations: Operations,
    listing: InListing,
    session_id: Annotated[Identifier | None, Query(description="Those that learned from this session.")] = None,
    user_id: Annotated[Identifier | None, Query(description="Those for this user.")] = None,
    kind: Annotated[str | None, Query(min_length=1, max_length=64, description="Such as `post_conversation`.")] = None,
) -> Answer[Page[Operation]]:
    """List the operations, newest first."""
    return answer(await operations.page({"session_id": session_id, "user_id": user_id, "kind": kind}, listing))


@operations_router.get("/{operation_id}", responses=problems(404))
async def get_operation(operation_id: OperationId, operations: Operations) -> Answer[Operation]:
    """Get how far an operation is, and what came of it."""
    return answer(await operations.get(operation_id))


@operations_router.post("/{operation_id}/undo", status_code=202, responses=problems(404, 409, 412))
async def undo_operation(operation_id: OperationId, operations: Operations, write: Writer) -> Answer[Operation]:
    """Undo what an operation did; the answer is the operation that does so."""
    return await write(lambda: operations.undo(operation_id))


@stats_router.get("", responses=problems())
async def get_stats(request: Request, resources: InResources) -> Answer[StoreStats]:
    """Get the number of records of each kind, their growth, what was recalled lately, and latency. Counts are at most
    ten seconds old."""
    principal = get_caller(request)[1]
    figures = StatsService(resources.store, principal.scope, resources.clock, resources.accesses, resources.stats)
    # whether the caller may read what `/metrics` tells
    who = resources.settings.metrics
    reads_metrics = who == "open" or (who == "admin" and "admin" in principal.verbs and not principal.scope.is_bound)
    return answer(await figures.stats(with_latency=reads_metrics))


health_router = APIRouter(tags=["operating"])


@shown
class Alive(TypedDict):
    status: Literal["alive"]


@shown
class Ready(TypedDict):
    status: Literal["ready"]
    store: str
    model: str
    checks: Annotated[dict[str, str], Field(description="What was looked at, and what was found.")]


@health_router.get("/livez")
async def livez() -> Alive:
    """Tell whether the process answers."""
    return {"status": "alive"}


# The names that load balancers and platforms ask by default. They are not in the document: clients need one name.
@health_router.get("/health", include_in_schema=False)
@health_router.get("/healthz", include_in_schema=False)
@health_router.get("/readyz", responses=only(503))
async def readyz(resources: InResources) -> Ready:
    """Tell whether requests can be served: the store can be read and written and the model is loaded. 503 with the
    reason otherwise, and while the service drains. `/health` and `/healthz` answer the same."""
    if resources.lifecycle.draining:
        raise Draining()
    findings = await resources.store.check()
    for finding in findings:
        if not finding.ok:
            raise StoreUnavailable(f"{finding.name}: {finding.detail}")
    if not resources.embedder.ready:
        raise EmbeddingUnavailable()
    checks = {finding.name: finding.detail for finding in findings}
    # A missing second stage never makes the service unready: the first stage works without it.
    if resources.second_stage is not None:
        checks["reranker"] = resources.second_stage.state
    if (service := workers.current()) is not None:
        checks["workers"] = f"{service.ready()} of {service.wanted} are ready"
    return {"status": "ready", "store": resources.store.name, "model": resources.embedder.name, "checks": checks}


@health_router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **only(401, 403, 404, 429)},
)
async def metrics(request: Request, resources: InResources) -> Response:
    """Get the metrics as Prometheus text, of all workers. `RECALLD_METRICS` says who reads it. An admin key without
    bindings reads what is counted by tenant; without a key it is the sum of all."""
    if resources.settings.metrics == "off":
        raise NoRoute("There is no such route.")
    by_tenant = False
    if has_key(request) or resources.settings.metrics == "admin":
        principal = await authenticate(request)
        by_tenant = has_key(request) and "admin" in principal.verbs and not principal.scope.is_bound
        if resources.settings.metrics == "admin":
            principal.require("admin")
            if principal.scope.is_bound:
                raise Forbidden("A key that is bound to agents or users does not read the metrics of the service.")
    if resources.gauges is not None:
        await resources.gauges.refresh()
    text = await asyncio.to_thread(measured.exposition, tenants=by_tenant)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
