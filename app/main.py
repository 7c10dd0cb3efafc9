"""The application: all routers, and the factory `create_app(settings)`. Importing this module has no side effects."""

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute, Route

from app import VERSION
from app.actions import endpoints as actions
from app.admin import endpoints as administration
from app.api import errors, openapi
from app.api.middleware import Cors, ProblemLayer, RequestLayer
from app.console import endpoints as console
from app.context import endpoints as context
from app.core import prompt_text, tracing
from app.core.clock import SystemClock
from app.documents import endpoints as documents
from app.embedding.factory import read_tokenizer
from app.entities import endpoints as entities
from app.facts import endpoints as facts
from app.feed import endpoints as feed
from app.findings import endpoints as findings
from app.learning import endpoints as consolidation
from app.lifespan import RealParts, lifespan
from app.mcp import endpoints as mcp
from app.memories import endpoints as memories
from app.operations import endpoints as operations
from app.procedures import endpoints as procedures
from app.profiles import endpoints as profiles
from app.reflection import endpoints as reflection
from app.resources import State
from app.retention import endpoints as forgetting
from app.retention.user_export import fault_behind
from app.retrieval import time_expressions
from app.retrieval.query import analyse
from app.sessions import endpoints as sessions
from app.settings import Settings, unknown_variables
from app.tasks import endpoints as tasks

log = logging.getLogger(__name__)

ROUTERS: tuple[APIRouter, ...] = (
    memories.router,
    context.router,
    documents.router,
    sessions.router,
    facts.router,
    facts.graph_router,
    entities.upcoming_router,
    entities.graph_router,
    entities.memories_router,
    forgetting.router,
    consolidation.memories_router,
    consolidation.sessions_router,
    tasks.router,
    actions.router,
    procedures.router,
    profiles.users_router,
    forgetting.users_router,
    profiles.agents_router,
    context.agents_router,
    findings.router,
    reflection.router,
    reflection.findings_router,
    reflection.facts_router,
    reflection.memories_router,
    feed.router,
    operations.jobs_router,
    operations.operations_router,
    operations.stats_router,
    administration.keys_router,
    administration.caller_router,
    administration.settings_router,
    administration.audit_router,
    operations.health_router,
)


def routes() -> list[BaseRoute]:
    """Returns all routes.

    A route with parameters does not match the literal path of another route: GET of `/v1/memories/search` is a 405, not
    a lookup of the memory `search`.
    """
    listed = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    literal = {route.path for route in listed if not route.param_convertors}
    for route in (route for route in listed if route.param_convertors):
        taken = [path for path in literal if route.path_regex.match(path)]
        if taken:
            others = "|".join(re.escape(path) for path in sorted(taken))
            route.path_regex = re.compile(f"(?!(?:{others})$){route.path_regex.pattern}")
    return [*listed]


def create_app(settings: Settings | None = None, parts: RealParts | None = None) -> FastAPI:
    """Returns the application. Resources are opened by its lifespan.

    `settings` default to the environment. `parts` are replaced by tests.
    """
    if settings is None:
        settings = Settings()
        for sentence in unknown_variables():
            log.warning(sentence)
    parts = parts or RealParts()

    @asynccontextmanager
    async def resources(_: FastAPI) -> AsyncIterator[State]:
        async with tracing.running(VERSION), lifespan(settings, parts) as state:
            yield state

    app = FastAPI(
        title="Recalld",
        version=VERSION,
        lifespan=resources,
        redirect_slashes=False,
        openapi_url=None,  # built while others wait: `/openapi.json` is our own
        docs_url=None,  # the framework's pages fetch their scripts from elsewhere: `/docs` is our own
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # /metrics is our own; nothing is sent elsewhere
    )
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    app.add_middleware(ProblemLayer, max_body=settings.limits.body_bytes, files=documents.FILES, blame=fault_behind)
    if settings.origins:
        app.add_middleware(Cors, origins=settings.origins)
    app.add_middleware(RequestLayer)
    errors.install(app)
    # `include_router` would compile each route a second time and match it twice at each request.
    app.router.routes += routes()
    app.router.routes.append(mcp.route())
    app.router.routes += console.routes(settings)
    if settings.docs == "open":
        app.router.routes.append(openapi.route(app))
    if settings.oidc.issuer:
        app.router.routes += administration.metadata_routes()
    return app


def prepare(model: str) -> None:
    """Loads what the first requests would: vocabularies, that of the embedding model too, tables of languages and
    times, and modules that numpy and dateparser import late. Workers that are forked afterwards share them."""
    prompt_text.warm()
    read_tokenizer(model)
    time_expressions.prepare()
    for query in ("Who came last week?", "Who came on 3 May?"):
        analyse(query, ())
        time_expressions.read_interval(query, SystemClock().now())
