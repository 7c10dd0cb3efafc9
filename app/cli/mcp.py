"""`recalld mcp`: the MCP tools over standard input and output."""

import asyncio
import importlib
from typing import Annotated, Any, TypeAlias

import typer
from mcp.server.stdio import stdio_server

from app.auth.keys import Keys
from app.auth.principal import unauthenticated
from app.cli._common import configure
from app.embedding.factory import begin_loading
from app.embedding.model import ExtraOptions
from app.errors import RecalldError
from app.main import create_app
from app.mcp.server import server
from app.mcp.toolbox import Toolbox, Whom, connected
from app.mcp.transport import InProcess, ToolError, checked, get_caller
from app.resources import Resources
from app.settings import Settings

DefaultOwnerIds: TypeAlias = tuple[str | None, str | None]
"""Agent and user."""
FORBIDDEN = 403


class NoService(RecalldError):
    """There is no Recalld at that address, or it does not let us in."""


async def local(settings: Settings, key: str | None, given: DefaultOwnerIds, default: DefaultOwnerIds) -> None:
    """Whoever can start this can read the store's files: it asks for no key. With one, it does what that key may."""
    app = create_app(settings)
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        resources: Resources = state["resources"]
        if key is None:
            principal = unauthenticated("stdio")
            given = (given[0] or default[0], given[1] or default[1])
        else:
            principal = await Keys(resources.store, resources.clock).principal(key)
        principal, whom = connected(principal, Whom(*given), "/{}")
        await _serve(Toolbox(InProcess(app, resources, principal), whom))


async def remote(url: str, key: str | None, given: DefaultOwnerIds) -> None:
    """Says at once where there is no service or the key is none, rather than at the first call."""
    async with get_caller(url, key) as api:
        _, whom = connected(unauthenticated("remote"), Whom(*given), "/{}")
        try:
            answer = await api("GET", "/v1/memories?limit=1")
            if answer.status != FORBIDDEN:  # a key that may only write
                checked(answer)
        except ToolError as error:
            raise NoService(str(error)) from error
        await _serve(Toolbox(api, whom))


async def _serve(tools: Toolbox) -> None:
    result = server(tools)
    async with stdio_server() as (incoming, outgoing):
        await result.run(incoming, outgoing, result.create_initialization_options())


AGENT, USER = "assistant", "me"
"""Whom a local store is for where nothing was said."""


def mcp(
    url: Annotated[
        str | None, typer.Option(envvar="RECALLD_URL", help="Use this running service; default: the local store.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(envvar="RECALLD_KEY", help="API key; the local store needs none.", show_envvar=True)
    ] = None,
    agent: Annotated[
        str | None, typer.Option(envvar="RECALLD_AGENT", help=f"Whose memory; of the local store: {AGENT}.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(envvar="RECALLD_USER", help=f"About whom; of the local store: {USER}.")
    ] = None,
) -> None:
    """Serve the tools to an MCP client over standard input and output, until it closes them."""
    settings = Settings()
    configure(settings.log_level)
    if url is None:
        chosen = settings.embedding
        begin_loading(chosen.model, threads=chosen.threads, options=ExtraOptions.of(chosen))
    stdio: Any = importlib.import_module("app.cli.mcp")  # the SDK: a second that no other command waits for
    given = (agent, user)
    asyncio.run(stdio.local(settings, key, given, (AGENT, USER)) if url is None else stdio.remote(url, key, given))
