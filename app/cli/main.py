"""The program: registers the commands, and prints errors as sentences instead of tracebacks."""

import os
import sys
from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from app import VERSION
from app.cli import archive, evaluate, maintenance, memory, retention, serve
from app.cli._common import file_or_folder
from app.errors import RecalldError
from app.settings import explain

PATH_SETTINGS = ("RECALLD_DATA_DIR", "RECALLD_STORE_KEY_FILE")
"""Settings that name a path. One of the environment is the caller's; one of `.env` goes from that file's folder."""
MODEL_SETTINGS = ("RECALLD_EMBEDDING_MODEL", "RECALLD_RERANKER")
"""Settings that may name the folder of a model, which is the caller's, too."""
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"recalld {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Memory for AI agents."""


app.command("add")(memory.add)
app.command("upload")(memory.upload)
app.command("search")(memory.search)
app.command("list")(memory.list_)
app.command("show")(memory.show)
app.command("context")(memory.context)
app.command("sessions")(memory.sessions)
app.command("chat")(memory.chat)
app.command("serve", epilog=serve.SETTINGS_HELP)(serve.serve)
app.command("worker")(serve.worker)
app.command("demo")(serve.demo)
app.command("doctor")(maintenance.doctor)
app.command("export")(archive.export)
app.command("import")(archive.import_)
app.command("backup")(maintenance.backup)
app.command("restore")(maintenance.restore)
app.command("salvage")(maintenance.salvage)
app.command("rekey")(maintenance.rekey)
app.command("migrate")(maintenance.migrate)
app.command("reembed")(maintenance.reembed)
app.command("decay")(retention.decay)
app.command("forget")(retention.forget)
app.command("forget-tombstones")(retention.forget_tombstones)
app.command("mcp")(serve.mcp)
app.command("eval")(evaluate.evaluate)
app.add_typer(maintenance.app, name="keys")


def main() -> None:
    """Runs the program. Prints an error and exits with code 1."""
    for name in (*PATH_SETTINGS, *MODEL_SETTINGS):
        given = os.environ.get(name)
        if given and (name in PATH_SETTINGS or file_or_folder(given).is_dir()):
            os.environ[name] = str(file_or_folder(given))
    try:
        app(prog_name="recalld")
    except RecalldError as error:
        _exit_with([f"{field.pointer.lstrip('/')}: {field.detail}" for field in error.errors] or [error.detail])
    except (ValidationError, SettingsError) as error:
        _exit_with(explain(error))


def _exit_with(sentences: list[str]) -> None:
    for sentence in sentences:
        print(f"recalld: {sentence}", file=sys.stderr)
    sys.exit(1)
