"""Calls of the API by commands, on a running service or on the local store, and how their answers are printed."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import urlencode

import typer
from rich.console import Console

from app.cli._common import configure
from app.core.schemas import Json
from app.embedding.factory import begin_loading
from app.embedding.model import ExtraOptions
from app.settings import Settings

AGENT, USER = "assistant", "me"
"""The owners of memories if none are given."""
PAGE = 100
"""Most items of one page of the API."""

UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="RECALLD_URL", help="Use this running service; default: the local store.")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", envvar=["RECALLD_API_KEY", "RECALLD_KEY"], help="API key; the local store needs none."),
]
UserOption = Annotated[str | None, typer.Option("--user", envvar="RECALLD_USER", help="Of this user.")]
AgentOption = Annotated[str | None, typer.Option("--agent", envvar="RECALLD_AGENT", help="Of this agent.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Most rows.")]

T = TypeVar("T")


class Ask(Protocol):
    """Sends a request to the API."""

    async def __call__(self, method: str, path: str, body: Json | None = None) -> Any:
        """Returns the body of the answer. Raises CallFailed."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """The service that a command uses: the one at `url`, or the local store. `tenant` is for the local store alone."""

    url: str | None = None
    key: str | None = None
    tenant: str = "default"
    jobs: bool = False
    """True if the command waits for background work of the local store."""


def load_service(target: Target) -> Any:
    """Imports the module that opens services, which takes a second. The embedding model is loaded meanwhile."""
    settings = Settings()
    configure(settings, at_least=logging.WARNING)  # a request of this process is no news
    if target.url is None:
        chosen = settings.embedding
        begin_loading(chosen.model, threads=chosen.threads, options=ExtraOptions.of(chosen))
    return importlib.import_module("app.cli._service")


def call(target: Target, work: Callable[[Ask], Awaitable[T]], doing: str = "Opening the memory …") -> T:
    """Runs `work` on the service and returns its result. A terminal shows `doing` until it ends. Raises CallFailed."""
    with Console(stderr=True).status(doing):
        service = load_service(target)
        result: T = asyncio.run(service.run(target, work))
    return result


def call_once(target: Target, method: str, path: str, body: Json | None = None) -> Any:
    """Sends one request and returns the body of the answer. Raises CallFailed."""
    return call(target, lambda ask: ask(method, path, body))


def owners(agent: str | None, user: str | None) -> Json:
    """Returns the owner fields of a request: those that are given, or else the user `me`."""
    if agent is None and user is None:
        return {"user_id": USER}
    return given(agent_id=agent, user_id=user)


def given(**values: Any) -> Json:
    """Returns the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def pages(path: str, filters: Json, limit: int) -> Callable[[Ask], Awaitable[Json]]:
    """Returns work that lists up to `limit` records of a listing: `items`, and `more`, which is true if there are
    others."""

    async def work(ask: Ask) -> Json:
        items: list[Any] = []
        cursor: Json = {}
        while True:
            query = urlencode({**filters, **cursor, "limit": min(PAGE, limit - len(items))})
            page = await ask("GET", f"{path}?{query}")
            items += page["items"]
            cursor = given(cursor=page["next_cursor"])
            if not cursor or len(items) >= limit:
                return {"items": items, "more": bool(cursor)}

    return work


def tell_of_more(result: Json) -> None:
    """Says on standard error that a listing has more rows than it shows."""
    if result["more"]:
        print(f"The first {len(result['items'])} are shown; --limit shows more.", file=sys.stderr)
