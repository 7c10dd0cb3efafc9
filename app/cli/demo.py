"""`recalld demo`: a throw-away store with a story, and the service on it."""

import asyncio
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import serve as serve_command
from app.cli._logs import configure
from app.errors import invalid
from app.setting_groups import JobSettings
from app.settings import Settings, describe

LOOPBACK = "127.0.0.1"
INTRODUCTION = """A bicycle workshop's memory of eight weeks: two agents, three people, and a tour to Lisbon.
Open http://{host}:{port}/console. Everything is deleted when you stop this with Ctrl+C.
"""


def demo(
    port: Annotated[int, typer.Option(help="Port of the service on 127.0.0.1.", min=1, max=65535)] = 8000,
    only_fill: Annotated[
        Path | None,
        typer.Option("--only-fill", help="Fill a store in this new folder (RECALLD_DATA_DIR is its data/) and end."),
    ] = None,
) -> None:
    """Fill a throw-away store with a story and serve it, to look around: what agents remember, learn and forget. It
    takes some seconds. Your own store, settings and keys are left alone."""
    if only_fill is not None:
        _fill(only_fill)
        return
    with tempfile.TemporaryDirectory(prefix="recalld-demo-") as folder:
        _fill(Path(folder))
        print(INTRODUCTION.format(host=LOOPBACK, port=port), flush=True)
        serve_command.serve(LOOPBACK, port)


def _fill(folder: Path) -> None:
    """Fills a store in the folder. From here on, this process has none of the caller's settings."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise invalid("/--only-fill", f"{folder} is not empty: name a new folder")
    for name, _, _ in describe():
        os.environ.pop(name, None)
    os.environ |= {"RECALLD_DATA_DIR": str(folder / "data"), "RECALLD_LOG_LEVEL": "error"}
    os.chdir(folder)  # a .env of the caller's folder may name another store
    settings = Settings(jobs=JobSettings(enabled=False))
    configure(settings)
    writer: Any = importlib.import_module("app.cli.demo_writer")  # imports the service, which takes a second
    print("Writing the story …", file=sys.stderr)
    counts = asyncio.run(writer.write_story(settings))
    print(", ".join(f"{number} × {kind}" for kind, number in counts.items()), file=sys.stderr)
