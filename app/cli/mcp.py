"""`recalld mcp`: the MCP tools over standard input and output."""

import asyncio
import importlib
from typing import Annotated, Any

import typer

from app.cli._logs import configure
from app.embedding.factory import begin_loading
from app.embedding.model import ExtraOptions
from app.settings import Settings

AGENT, USER = "assistant", "me"
"""The owners of a local store's memories if none are given."""


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
    configure(settings)
    if url is None:
        chosen = settings.embedding
        begin_loading(chosen.model, threads=chosen.threads, options=ExtraOptions.of(chosen))
    stdio: Any = importlib.import_module("app.cli.stdio")  # imports the SDK, which takes a second
    given = (agent, user)
    asyncio.run(stdio.local(settings, key, given, (AGENT, USER)) if url is None else stdio.remote(url, key, given))
