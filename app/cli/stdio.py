"""What `recalld mcp` runs; it imports the SDK."""

from typing import TypeAlias

from mcp.server.stdio import stdio_server

from app.auth.keys import Keys
from app.auth.principal import unauthenticated
from app.errors import RecalldError
from app.main import create_app
from app.mcp.api import InProcess, Refused, checked
from app.mcp.remote import calling
from app.mcp.server import server
from app.mcp.toolbox import Toolbox, Whom, connected
from app.settings import Settings
from app.state import Resources

Pair: TypeAlias = tuple[str | None, str | None]
"""Agent and user."""
FORBIDDEN = 403


class NoService(RecalldError):
    """There is no Recalld at that address, or it does not let us in."""


async def local(settings: Settings, key: str | None, asked: Pair, default: Pair) -> None:
    """Whoever can start this can read the store's files: it asks for no key. With one, it does what that key may."""
    app = create_app(settings)
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        held: Resources = state["resources"]
        if key is None:
            caller = unauthenticated("stdio")
            asked = (asked[0] or default[0], asked[1] or default[1])
        else:
            caller = await Keys(held.store, held.clock).principal(key)
        caller, whom = connected(caller, Whom(*asked), "/{}")
        await _serve(Toolbox(InProcess(app, held, caller), whom))


async def remote(url: str, key: str | None, asked: Pair) -> None:
    """Says at once where there is no service or the key is none, rather than at the first call."""
    async with calling(url, key) as api:
        _, whom = connected(unauthenticated("remote"), Whom(*asked), "/{}")
        try:
            answer = await api("GET", "/v1/memories?limit=1")
            if answer.status != FORBIDDEN:  # a key that may only write
                checked(answer)
        except Refused as fault:
            raise NoService(str(fault)) from fault
        await _serve(Toolbox(api, whom))


async def _serve(tools: Toolbox) -> None:
    made = server(tools)
    async with stdio_server() as (incoming, outgoing):
        await made.run(incoming, outgoing, made.create_initialization_options())
