"""How commands print: a table for people, JSON with `--json`."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def as_json(result: Any) -> None:
    print(json.dumps(result, indent=2))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    made = Table(*columns)
    for row in rows:
        made.add_row(*row)
    Console().print(made)
