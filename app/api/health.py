"""The routes for liveness, readiness and metrics."""

import asyncio
from typing import Literal

import orjson
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field

from app import metrics as measured
from app.api.errors import only
from app.auth.dependencies import InResources, authenticate
from app.core import workers
from app.core.schemas import Schema
from app.errors import Draining, EmbeddingUnavailable, Forbidden, NotFound, StoreUnavailable

router = APIRouter(tags=["operating"])


class Alive(Schema):
    status: Literal["alive"]


class Ready(Schema):
    status: Literal["ready"]
    store: str
    model: str
    checks: dict[str, str] = Field(description="What was looked at, and what was found.")


@router.get("/livez", response_model=Alive)
async def livez() -> Response:
    """Tell whether the process answers."""
    return Response(orjson.dumps({"status": "alive"}), media_type="application/json")


# The names that load balancers and platforms ask by default. They are not in the document: clients need one name.
@router.get("/health", include_in_schema=False, response_model=Ready)
@router.get("/healthz", include_in_schema=False, response_model=Ready)
@router.get("/readyz", response_model=Ready, responses=only(503))
async def readyz(resources: InResources) -> Response:
    """Tell whether requests can be served: the store can be read and written and the model is loaded. 503 with the
    reason otherwise, and while the service drains. `/health` and `/healthz` answer the same."""
    board = workers.board()
    if resources.lifecycle.draining if board is None else board.ends_at:  # a worker may end, and others go on
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
    if board is not None:
        checks["workers"] = f"{board.ready()} of {board.wanted} are ready"
    body = {"status": "ready", "store": resources.store.name, "model": resources.embedder.name, "checks": checks}
    return Response(orjson.dumps(body), media_type="application/json")


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **only(401, 403, 404, 429)},
)
async def metrics(request: Request, resources: InResources) -> Response:
    """Get the metrics as Prometheus text, of all workers. `RECALLD_METRICS` says who reads it."""
    if resources.settings.metrics == "off":
        raise NotFound("There is no such route.")
    if resources.settings.metrics == "admin":
        principal = await authenticate(request)
        principal.require("admin")
        if principal.scope.agents is not None or principal.scope.users is not None:
            raise Forbidden("A key that is bound to agents or users does not read the metrics of the service.")
    if resources.gauges is not None:
        await resources.gauges.refresh()
    return Response(await asyncio.to_thread(measured.exposition), media_type=CONTENT_TYPE_LATEST)
