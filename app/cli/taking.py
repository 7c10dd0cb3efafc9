"""`recalld import`: our own archives, and what other memory systems export."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli import foreign, importing
from app.cli.foreign import System
from app.cli.output import AsJson
from app.errors import invalid


def import_(  # noqa: PLR0913 (options)
    file: Annotated[Path, typer.Argument(help="What `recalld export`, or with --from another system, wrote.")],
    from_: Annotated[System | None, typer.Option("--from", help="Another memory system.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Under another tenant's name than the file's.")] = None,
    user: Annotated[str | None, typer.Option(help="With --from: whose are records that name no user.")] = None,
    agent: Annotated[str | None, typer.Option(help="With --from: whose are records that name no agent.")] = None,
    url: Annotated[
        str | None, typer.Option(envvar="RECALLD_URL", help="With --from: into this running service.")
    ] = None,
    key: Annotated[str | None, typer.Option(envvar="RECALLD_KEY", help="With --from: API key of that service.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --from: only say what would be taken.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take in a tenant that was exported: what is there stays, so that an import that was cut short is simply run
    again, and lines that cannot be read are told by their numbers. With --from: what another memory system exported,
    with a report of what was taken and what was left; run again, it updates."""
    if from_ is None:
        if user or agent or dry_run:
            raise invalid("/--from", "must be given with --user, --agent and --dry-run")
        importing.import_(file, tenant, as_json)
    elif tenant:
        raise invalid("/--tenant", "does not go with --from: the API key says whose tenant it is")
    else:
        foreign.import_foreign(file, from_, user, agent, url, key, dry_run, as_json)
