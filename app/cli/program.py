"""The program: commands, and errors as sentences rather than tracebacks."""

import sys

import typer

from app.cli import doctor, forgetting, keys, serve, worker
from app.errors import RecalldError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Memory for AI agents."
)
app.command("serve", epilog=serve.SETTINGS_HELP)(serve.serve)
app.command("worker")(worker.worker)
app.command("doctor")(doctor.doctor)
app.command("decay")(forgetting.decay)
app.command("forget")(forgetting.forget)
app.add_typer(keys.app, name="keys")


def main() -> None:
    try:
        app(prog_name="recalld")
    except RecalldError as fault:
        print(f"recalld: {fault.detail}", file=sys.stderr)
        sys.exit(1)
