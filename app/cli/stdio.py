"""The implementation of `recalld mcp`. A separate module, since the MCP SDK takes a second and 25 MB to import."""

from typing import TypeAlias

from mcp.server.stdio import stdio_server

from app.auth.keys import Keys, unauthenticated
from app.cli._common import CommandFailed
from app.main import create_app
from app.mcp.server import server
from app.mcp.tools import Toolbox, Whom, connected, wants_all
from app.mcp.transport import INSTRUCTIONS_META, OWNERS_META, Api, InProcess, ToolError, checked, connect, query
from app.resources import Resources
from app.settings import Settings

DefaultOwnerIds: TypeAlias = tuple[str | None, str | None]
"""An agent and a user."""


async def local(
    settings: Settings, key: str | None, given: DefaultOwnerIds, default: DefaultOwnerIds, tools: str | None
) -> None:
    """Serves the tools on the local store. Needs no key, since whoever starts this can read the store's files. With a
    key it has that key's rights."""
    every = wants_all(tools, "/tools")
    app = create_app(settings)
    async with app.router.lifespan_context(app) as state:
        assert state is not None
        resources: Resources = state["resources"]
        if key is None:
            principal = unauthenticated("stdio")
            given = (given[0] or default[0], given[1] or default[1])
        else:
            principal = await Keys(resources.store, resources.clock).principal(key)
        instructions = settings.mcp_instructions == "on"
        principal, whom = connected(principal, Whom(*given), "/{}", rules=instructions)
        await _serve(Toolbox(InProcess(app, resources, principal), whom, instructions, every))


async def remote(url: str, key: str | None, given: DefaultOwnerIds, tools: str | None) -> None:
    """Serves the tools of a remote service. Raises CommandFailed at once, and not at the first call, if it cannot be
    used."""
    every = wants_all(tools, "/tools")
    async with connect(url, key) as api:
        _, whom = connected(unauthenticated("remote"), Whom(*given), "/{}")
        try:
            bound, instructions = await _bound(api, whom)
        except ToolError as error:
            raise CommandFailed(error.once) from error
        await _serve(Toolbox(api, bound, instructions, every))


_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
_ACCEPT = {"accept": "application/json, text/event-stream"}


async def _bound(api: Api, whom: Whom) -> tuple[Whom, bool]:
    """Returns the owners that the service fixes for this key and these owners, and whether it lets models store
    instructions. Raises ToolError."""
    answer = checked(await api("POST", "/mcp" + query(**whom.values()), _LIST, _ACCEPT))
    result = answer.body.get("result") if isinstance(answer.body, dict) else None
    if not isinstance(result, dict) or "tools" not in result:
        raise ToolError("The service does not answer as Recalld does.", code="unavailable")
    meta = result.get("_meta") or {}
    return Whom(**{**whom.values(), **meta.get(OWNERS_META, {})}), meta.get(INSTRUCTIONS_META) is True


async def _serve(tools: Toolbox) -> None:
    sdk_server = server(tools)
    async with stdio_server() as (incoming, outgoing):
        await sdk_server.run(incoming, outgoing, sdk_server.create_initialization_options())
