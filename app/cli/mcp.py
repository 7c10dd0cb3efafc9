"""`recalld mcp`: the tools over standard input and output, as MCP clients start a server of their own."""

import asyncio
import importlib
from typing import Annotated, Any

import typer

from app.cli.logs import configure
from app.embedding.opening import begin_loading
from app.embedding.options import Options
from app.settings import Settings

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
        begin_loading(chosen.model, threads=chosen.threads, options=Options.of(chosen))
    stdio: Any = importlib.import_module("app.cli.stdio")  # the SDK: a second that no other command waits for
    asked = (agent, user)
    asyncio.run(stdio.local(settings, key, asked, (AGENT, USER)) if url is None else stdio.remote(url, key, asked))
