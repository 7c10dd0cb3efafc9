"""`create_app(settings)`: nothing happens at import."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from app import VERSION, error_handlers, openapi, wiring
from app.api import ROUTERS
from app.http.middleware import RequestLayer
from app.settings import Settings
from app.state import State


class Service(FastAPI):
    """The framework with `RequestLayer` as its outermost layer."""

    def build_middleware_stack(self) -> ASGIApp:
        """Without what the framework puts around ours (its page for a 500, its telemetry, its limit on bodies): these
        have nothing left to do, and each of them takes its time at each request."""
        layer: Any = super().build_middleware_stack()
        while not isinstance(layer, RequestLayer):
            layer = layer.app
        return layer

    def include_routes_of(self, routers: Sequence[APIRouter]) -> None:
        """As `include_router`, which would match each request twice: in this app, and in the router it keeps apart.
        They come before the framework's own pages."""
        routes = [route for router in routers for route in router.routes]
        for route in routes:
            assert isinstance(route, APIRoute)
            route.unique_id = openapi.operation_id(route)
        self.router.routes[:0] = routes


def create_app(settings: Settings | None = None, openers: wiring.Openers | None = None) -> FastAPI:
    settings = settings or Settings()
    openers = openers or wiring.RealParts()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        async with wiring.lifespan(settings, openers) as state:
            yield state

    app = Service(
        title="Recalld",
        version=VERSION,
        lifespan=lifespan,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # /metrics is ours, and sends nothing anywhere
    )
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    app.add_middleware(RequestLayer, max_body=settings.limits.body_bytes)
    error_handlers.install(app)
    app.include_routes_of(ROUTERS)
    return app
