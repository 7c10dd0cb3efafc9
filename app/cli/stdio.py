"""What `recalld mcp` runs. It imports the MCP SDK, which takes a second and 25 MB."""

from typing import TypeAlias

from mcp.server.stdio import stdio_server

from app.auth.keys import Keys
from app.auth.principal import unauthenticated
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
