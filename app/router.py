"""All routers. The framework tries routes in this order, so the most requested come first."""

import re

from fastapi import APIRouter
from starlette.routing import BaseRoute, Route

from app.actions import endpoints as actions
from app.admin import endpoints as administration
from app.api import health
from app.context import endpoints as context
from app.facts import endpoints as facts
from app.facts import graph_endpoints as graph
from app.learning import endpoints as consolidation
from app.memories import endpoints as memories
from app.operations import endpoints as operations
from app.procedures import endpoints as procedures
from app.profiles import endpoints as profiles
from app.retention import endpoints as forgetting
from app.sessions import endpoints as sessions
from app.tasks import endpoints as tasks

ROUTERS: tuple[APIRouter, ...] = (
    memories.router,
    context.router,
    sessions.router,
    facts.router,
    graph.router,
    forgetting.router,
    consolidation.memories_router,
    consolidation.sessions_router,
    tasks.router,
    actions.router,
    procedures.router,
    profiles.users_router,
    forgetting.users_router,
    profiles.agents_router,
    operations.jobs_router,
    operations.operations_router,
    administration.keys_router,
    administration.audit_router,
    health.router,
)


def routes() -> list[BaseRoute]:
    """Returns all routes.

    A route with parameters does not match the literal path of another route: GET of `/v1/memories/search` is a 405, not
    a lookup of the memory `search`.
    """
    found = [route for router in ROUTERS for route in router.routes if isinstance(route, Route)]
    literal = {route.path for route in found if not route.param_convertors}
    for route in (one for one in found if one.param_convertors):
        taken = [path for path in literal if route.path_regex.match(path)]
        if taken:
            others = "|".join(re.escape(path) for path in sorted(taken))
            route.path_regex = re.compile(f"(?!(?:{others})$){route.path_regex.pattern}")
    return [*found]
