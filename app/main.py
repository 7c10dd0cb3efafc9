"""The application factory: `create_app(settings)`. Importing this module has no side effects."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp

from app import VERSION
from app.api import errors, openapi
from app.api.fast_path import Shortcut
from app.api.middleware import RequestLayer
from app.lifespan import Openers, RealParts, lifespan
from app.mcp import endpoints as mcp
from app.resources import State
from app.router import routes
from app.settings import Settings


class Service(FastAPI):
    """FastAPI with `RequestLayer` as its outermost layer."""

    def build_middleware_stack(self) -> ASGIApp:
        """Builds the stack without the layers that the framework puts around ours: its page for a 500, its telemetry
        and its body limit have nothing to do here, and each would take time at each request."""
        layer: Any = super().build_middleware_stack()
        while not isinstance(layer, RequestLayer):
            layer = layer.app
        catching: Any = layer.inner
        assert isinstance(catching, ExceptionMiddleware)
        catching.app = Shortcut(catching.app, self.routes)
        return layer


def create_app(settings: Settings | None = None, openers: Openers | None = None) -> FastAPI:
    """Returns the application. Resources are opened by its lifespan.

    `settings` default to the environment. `openers` are replaced by tests.
    """
    settings = settings or Settings()
    openers = openers or RealParts()

    @asynccontextmanager
    async def resources(_: FastAPI) -> AsyncIterator[State]:
        async with lifespan(settings, openers) as state:
            yield state

    app = Service(
        title="Recalld",
        version=VERSION,
        lifespan=resources,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # /metrics is our own; nothing is sent elsewhere
    )
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    app.add_middleware(RequestLayer, max_body=settings.limits.body_bytes)
    errors.install(app)
    # `include_router` would compile each route a second time and match it twice at each request. Our routes come before
    # the framework's own pages.
    app.router.routes[:0] = routes()
    app.router.routes.append(mcp.route())
    return app
