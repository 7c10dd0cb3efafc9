"""Helpers that commands share: output as a table or JSON, logs on standard error, access to the store."""

import asyncio
import json
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import orjson
import typer

from app.core.clock import rfc3339
from app.lifespan import open_store
from app.settings import Settings
from app.storage.transfer import MovableStore

SOME_LEFT_OUT = 3
"""The exit code of an import that left records out. 0: all came in; 1: it failed; 2: the arguments are wrong."""
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def as_json(result: Any) -> None:
    """Prints a result as JSON."""
    print(json.dumps(result, indent=2))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. Cells are never cut, so that ids can be copied."""
    lines = [[" ".join(cell.split()) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, or nothing if it has no rows."""
    if rows:
        table(columns, rows)


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON, one line each."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[0]:
            # type and place of the error only: its message may quote what a caller sent
            line["error"] = record.exc_info[0].__name__
            line["stack"] = traceback.format_tb(record.exc_info[2])
        return orjson.dumps(line, default=str).decode()


def configure(level: str) -> None:
    """Configures logging to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("uvicorn.access", "httpx", "httpx2", "huggingface_hub"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it quotes what it was sent; our tools log their own errors


T = TypeVar("T")


def on_store(work: Callable[[MovableStore], Awaitable[T]], *, existing: bool = False) -> T:
    """Runs `work` on the store of the settings, opened without a model. Raises StoreUnavailable, with `existing` also
    if there is no store yet."""

    async def run() -> T:
        store = await open_store(Settings(), dim=1, existing=existing)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())
