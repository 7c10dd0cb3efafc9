"""The implementation of `recalld mcp`. A separate module, since the MCP SDK takes a second and 25 MB to import."""

from typing import TypeAlias

from mcp.server.stdio import stdio_server

from app.auth.keys import Keys, unauthenticated
from app.errors import RecalldError
from app.main import create_app
from app.mcp.server import Toolbox, Whom, connected, server
from app.mcp.transport import InProcess, ToolError, checked, get_caller
from app.resources import Resources
from app.settings import Settings

DefaultOwnerIds: TypeAlias = tuple[str | None, str | None]
"""An agent and a user."""
FORBIDDEN = 403


class NoService(RecalldError):
    """There is no Recalld service at that address, or it refuses access."""


async def local(settings: Settings, key: str | None, given: DefaultOwnerIds, default: DefaultOwnerIds) -> None:
    """Serves the tools on the local store. Needs no key, since whoever starts this can read the store's files. With a
    key it has that key's rights."""
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
    """Serves the tools of a remote service. Raises NoService at once, rather than at the first call, if it cannot be
    used."""
    async with get_caller(url, key) as api:
        _, whom = connected(unauthenticated("remote"), Whom(*given), "/{}")
        try:
            answer = await api("GET", "/v1/memories?limit=1")
            if answer.status != FORBIDDEN:  # a key with only the verb write
                checked(answer)
        except ToolError as error:
            raise NoService(str(error)) from error
        await _serve(Toolbox(api, whom))


async def _serve(tools: Toolbox) -> None:
    sdk_server = server(tools)
    async with stdio_server() as (incoming, outgoing):
        await sdk_server.run(incoming, outgoing, sdk_server.create_initialization_options())
