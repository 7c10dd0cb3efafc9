"""Helpers that commands share: output as a table or JSON, access to the store."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.lifespan import open_store
from app.settings import Settings
from app.storage.transfer import MovableStore

SOME_LEFT_OUT = 3
"""The exit code of an import that left records out. 0: all came in; 1: it failed; 2: the arguments are wrong."""
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def as_json(result: Any) -> None:
    """Prints a result as JSON."""
    print(json.dumps(result, indent=2))


_UNPRINTABLE = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), " ") | dict.fromkeys(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
"""Control characters but tab and line feed, and those that turn the direction of a text."""


def printable(text: str) -> str:
    """Returns a text without the characters that steer a terminal: stored text may come from anybody."""
    return text.translate(_UNPRINTABLE)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. Cells are never cut, so that ids can be copied."""
    lines = [[" ".join(printable(cell).split()) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table whose last column is text. A terminal gets wrapped cells; a file or a pipe gets one line for each
    row."""
    if not sys.stdout.isatty():
        table(columns, rows)
        return
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        last = at == len(columns) - 1
        grid.add_column(name, overflow="fold", no_wrap=not last and at < 2, ratio=1 if last else None)
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(grid)


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table, or nothing if it has no rows."""
    if rows:
        table(columns, rows)


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
