"""What commands share: output as a table or JSON, logs, the store, and calls of the API.

Logs go to standard error: lines for people on a terminal, JSON elsewhere. The API is that of a running service, or of
the local store.
"""

import asyncio
import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Protocol, TextIO, TypedDict, TypeVar
from urllib.parse import urlencode

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.core import tracing, workers
from app.core.clock import rfc3339
from app.core.schemas import Json
from app.core.tuning import USUAL, Tuning
from app.embedding.embedder import Embedder
from app.embedding.factory import begin_loading
from app.embedding.model import ExtraOptions
from app.errors import RecalldError
from app.lifespan import RealParts, open_store
from app.settings import Settings
from app.storage.factory import where_of
from app.storage.transfer import MovableStore

SOME_LEFT_OUT = 3
"""The exit code of an import that left records out. 0: all came in; 1: it failed; 2: the arguments are wrong."""
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_UNPRINTABLE = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), " ") | dict.fromkeys(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
"""Control characters but tab and line feed, and those that turn the direction of a text."""
T = TypeVar("T")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
_PLAIN = "\x1b[0m"
AGENT, USER = "assistant", "me"
"""The owners of memories if none are given."""
PAGE = 100
"""Most items of one page of the API."""


class CommandFailed(RecalldError):
    """A command cannot do what it was asked. Its sentence is printed."""


def whole_address(url: str | None) -> str | None:
    """Returns the address that is meant: `127.0.0.1:8000` is `http://127.0.0.1:8000`, as curl takes it."""
    return f"http://{url}" if url and "://" not in url else url


CALLED_FROM = "RECALLD_CALLED_FROM"


def file_or_folder(name: str) -> Path:
    """Returns the path that the caller means by a name: `scripts/recalld`, which works in the checkout's folder, says
    where it was called."""
    return Path(os.environ.get(CALLED_FROM, ""), name)


UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="RECALLD_URL",
        callback=whole_address,
        help="Use this running service; default: the local store.",
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", envvar=["RECALLD_API_KEY", "RECALLD_KEY"], help="API key; the local store needs none."),
]
UserOption = Annotated[str | None, typer.Option("--user", envvar="RECALLD_USER", help="Of this user.")]
AgentOption = Annotated[str | None, typer.Option("--agent", envvar="RECALLD_AGENT", help="Of this agent.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Most rows.")]


def as_json(result: Any) -> None:
    print(json.dumps(result, indent=2))


def printable(text: str) -> str:
    """Returns a text without the characters that steer a terminal: stored text may come from anybody."""
    return text.translate(_UNPRINTABLE)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. Cells are never cut, so that ids can be copied."""
    lines = [[" ".join(printable(cell).split()) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]], faint: int = 0) -> None:
    """Prints a table whose last column is text. A terminal gets wrapped cells, the last `faint` rows in grey; a file or
    a pipe gets one line for each row."""
    if not sys.stdout.isatty():
        table(columns, rows)
        return
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        last = at == len(columns) - 1
        grid.add_column(name, overflow="fold", no_wrap=not last and at < 2, ratio=1 if last else None)
    for at, row in enumerate(rows):
        grid.add_row(*(Text(printable(cell)) for cell in row), style="dim" if at >= len(rows) - faint else None)
    Console().print(grid)


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, or nothing if it has no rows."""
    if rows:
        table(columns, rows)


@asynccontextmanager
async def opened_store(
    settings: Settings, dim: int = 1, *, elsewhere: str | None = None, existing: bool = False
) -> AsyncIterator[MovableStore]:
    """Opens the store of the settings, or of `elsewhere`, and closes it in the end. Raises StoreUnavailable, with
    `existing` also if there is no store yet. Otherwise a new one is made, and standard error says where."""
    new = where_of(settings, elsewhere).missing
    store = await open_store(settings, dim, elsewhere=elsewhere, existing=existing)
    if new:
        tell_of_new_store(settings)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    """Opens the embedder of the settings, and closes it in the end. Raises EmbeddingUnavailable."""
    embedder = await RealParts().embedder(settings)
    try:
        yield embedder
    finally:
        await embedder.close()


def tell_of_new_store(settings: Settings) -> None:
    """Says on standard error that a command has made a store, and where."""
    print(f"recalld: a new store was made in {settings.data_dir.absolute()}.", file=sys.stderr)


def on_store(work: Callable[[MovableStore], Awaitable[T]], *, existing: bool = False) -> T:
    """Runs `work` on the store of the settings, opened without a model. Raises StoreUnavailable, with `existing` also
    if there is no store yet."""

    async def run() -> T:
        async with opened_store(Settings(), existing=existing) as store:
            return await work(store)

    return asyncio.run(run())


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    traced = tracing.ids()
    return fields if traced is None else fields | {"trace_id": traced[0], "span_id": traced[1]}


class LoggedError(TypedDict):
    """Type and place of a record's error. Its message is left out: it may quote what a caller sent."""

    error: str
    stack: list[str]


def _error(record: logging.LogRecord) -> LoggedError | None:
    if not record.exc_info or not record.exc_info[0]:
        return None
    return {"error": record.exc_info[0].__name__, "stack": traceback.format_tb(record.exc_info[2])}


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON, one line each."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return orjson.dumps({**line, **_fields(record), **(_error(record) or {})}, default=str).decode()


class TextFormatter(logging.Formatter):
    """Formats log records as `14:03:07 WARNING app.lifespan: message name=value`, with the stack of an error below."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone()
        colour = _COLOURS.get(record.levelname, "") if self._colours else ""
        level = f"{colour}{record.levelname:7}{_PLAIN if colour else ''}"
        fields = "".join(f" {name}={value!r}" for name, value in _fields(record).items())
        message = "".join(char if char.isprintable() else " " for char in record.getMessage())  # one line, no controls
        error = _error(record)
        below = "" if error is None else "".join(["\n", *error["stack"], error["error"]])
        return f"{time:%H:%M:%S} {level} {record.name}: {message}{fields}{below}"


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at that moment, which a caller in the same process may have replaced."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Does nothing: the stream is always standard error."""


def _with_worker(record: logging.LogRecord) -> bool:
    """Adds the number of this worker, if it is one, to a record. Keeps every record."""
    if (service := workers.current()) is not None:
        record.worker = service.number
    return True


def configure(settings: Settings, *, at_least: int = logging.DEBUG) -> None:
    """Configures logging to standard error as the settings say. Lines below the level `at_least` are left out."""
    terminal = sys.stderr.isatty()
    handler = _StandardError()
    handler.setFormatter(TextFormatter(colours=terminal) if terminal else JsonFormatter())
    handler.addFilter(_with_worker)
    level = max(at_least, logging.getLevelNamesMapping()[settings.log_level.upper()])
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("uvicorn.access", "httpx", "httpx2", "huggingface_hub"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it quotes what it was sent; our tools log their own errors


class Ask(Protocol):
    """Sends a request to the API."""

    async def __call__(self, method: str, path: str, body: Json | bytes | None = None, kind: str | None = None) -> Any:
        """Returns the body of the answer. `kind`: the media type of a file. Raises CommandFailed."""


@dataclass(frozen=True, slots=True)
class Target:
    """The service that a command uses: the one at `url`, or the local store. `tenant` is for the local store alone."""

    url: str | None = None
    key: str | None = None
    tenant: str = "default"
    jobs: bool = False
    """True if the command waits for background work of the local store."""
    makes: bool = False
    """True if the command makes the local store where there is none."""


def load_model(settings: Settings, tuning: Tuning = USUAL) -> None:
    """Begins to load the embedding model in the background."""
    chosen = settings.embedding
    begin_loading(chosen.model, ExtraOptions.of(chosen, tuning.embedding_seconds))


def load_service(target: Target) -> Any:
    """Imports the module that opens services, which takes a second. The embedding model is loaded meanwhile."""
    settings = Settings()
    configure(settings, at_least=logging.WARNING)  # a request of this process is no news
    if target.url is None:
        load_model(settings)
    return importlib.import_module("app.cli._service")


def call(target: Target, work: Callable[[Ask], Awaitable[T]], doing: str = "Opening the memory …") -> T:
    """Runs `work` on the service and returns its result. A terminal shows `doing`. Raises CommandFailed."""
    with Console(stderr=True).status(doing):
        service = load_service(target)
        result: T = asyncio.run(service.run(target, work))
    return result


def call_once(target: Target, method: str, path: str, body: Json | None = None) -> Any:
    """Sends one request and returns the body of the answer. Raises CommandFailed."""
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


def summary(made: Json) -> str:
    """Returns what a context holds, in a line: `412 of 2,000 tokens: 3 memories, 1 facts`."""
    parts = [f"{len(section['items'])} {section['name']}" for section in made["sections"] if section["items"]]
    return f"{made['tokens']:,} of {made['budget']:,} tokens: {', '.join(parts) or 'nothing'}"
