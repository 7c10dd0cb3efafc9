"""Is it alive, is it ready, what does it measure."""

import orjson
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.auth.dependencies import InResources
from app.errors import Draining, EmbeddingUnavailable

router = APIRouter(tags=["operating"])


@router.get("/livez", response_model=dict[str, str])
async def livez() -> Response:
    """The process answers."""
    return Response(orjson.dumps({"status": "alive"}), media_type="application/json")


@router.get("/readyz", response_model=dict[str, str])
async def readyz(held: InResources) -> Response:
    """The store can be read and the model is loaded; 503 with the reason otherwise, and while the service drains."""
    if held.lifecycle.draining:
        raise Draining()
    await held.store.check()
    if not held.embedder.ready:
        raise EmbeddingUnavailable()
    body = {"status": "ready", "store": held.store.name, "model": held.embedder.name}
    return Response(orjson.dumps(body), media_type="application/json")


@router.get("/metrics", response_class=Response)
async def metrics() -> Response:
    """Prometheus text."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
