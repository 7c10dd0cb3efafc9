"""Opens the service that a command uses. A separate module, since importing the service takes a second."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import httpx2

from app.auth.keys import Keys, Principal, unauthenticated
from app.cli._calls import Ask, Target
from app.core.identifiers import TENANT, TENANT_RULE
from app.core.schemas import Json
from app.errors import RecalldError, invalid
from app.main import create_app
from app.mcp.transport import Api, InProcess, ToolError, checked, get_caller
from app.resources import Resources
from app.settings import Settings

T = TypeVar("T")


class CallFailed(RecalldError):
    """The service refused a request, or it cannot be reached."""


async def run(target: Target, work: Callable[[Ask], Awaitable[T]]) -> T:
    """Runs `work` on the service. Raises CallFailed, or the error of a local store that cannot be opened."""
    async with opened(target) as (api, _):
        return await work(asking(api))


def asking(api: Api) -> Ask:
    """Returns a function that sends requests and raises CallFailed for errors."""

    async def ask(method: str, path: str, body: Json | None = None) -> Any:
        try:
            return checked(await api(method, path, body)).body
        except ToolError as error:
            raise CallFailed(str(error)) from error

    return ask


@asynccontextmanager
async def opened(target: Target) -> AsyncIterator[tuple[Api, Resources | None]]:
    """Yields the service at the target's URL, or the local store with its resources.

    The local store needs no key, since whoever starts this can read its files. With a key, the command has that key's
    rights. Other processes may have the store open, a running service too.
    """
    if target.url is not None:
        try:
            service = get_caller(target.url, target.key)
            async with service as api:
                yield api, None
        except httpx2.InvalidURL:
            raise invalid("/--url", "must be an address such as http://127.0.0.1:8000") from None
        except UnicodeEncodeError:
            raise invalid("/--key", "must be an API key: letters, digits and _ alone") from None
        return
    settings = Settings()
    if not target.jobs:
        settings = settings.model_copy(update={"jobs": settings.jobs.model_copy(update={"enabled": False})})
    app = create_app(settings)
    with _quiet(logging.getLogger("app.lifespan")):
        async with app.router.lifespan_context(app) as state:
            assert state is not None
            resources: Resources = state["resources"]
            yield InProcess(app, resources, await _principal(target, resources)), resources


@contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    """Keeps a log silent: what stops a start is printed by the command, and hints for operators are for services."""
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


async def _principal(target: Target, resources: Resources) -> Principal:
    if target.key is not None:
        return await Keys(resources.store, resources.clock).principal(target.key)
    if not TENANT.fullmatch(target.tenant):
        raise invalid("/--tenant", TENANT_RULE)
    principal = unauthenticated("command_line")
    return replace(principal, scope=replace(principal.scope, tenant=target.tenant))
