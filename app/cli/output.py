"""How commands print: a table for people, JSON with `--json`."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def as_json(result: Any) -> None:
    print(json.dumps(result, indent=2))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Never cut: an id that is shown can be copied."""
    lines = [[" ".join(cell.split()) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())
