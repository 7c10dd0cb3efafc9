"""`recalld import`: imports archives, users' exports, and exports of other memory systems."""

import asyncio
import importlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import archive, archive_import
from app.cli._common import SOME_LEFT_OUT, AsJson, as_json, table_of, whole_address
from app.errors import invalid
from app.importers.loader import RanImport


class System(StrEnum):
    """Memory systems whose exports can be imported."""

    MEM0 = "mem0"
    ZEP = "zep"
    LETTA = "letta"
    AGENT_MEMORY_SERVER = "agent-memory-server"


def import_(
    file: Annotated[
        Path, typer.Argument(help="What `recalld export`, a user's export, or with --from another system wrote.")
    ],
    from_: Annotated[System | None, typer.Option("--from", help="Another memory system.")] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Whose it becomes; default: the tenant of the file, and `default` for a user's.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="With --from: whose are records that name no user.")] = None,
    agent: Annotated[str | None, typer.Option(help="With --from: whose are records that name no agent.")] = None,
    url: Annotated[
        str | None,
        typer.Option(envvar="RECALLD_URL", callback=whole_address, help="With --from: into this running service."),
    ] = None,
    key: Annotated[str | None, typer.Option(envvar="RECALLD_KEY", help="With --from: API key of that service.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --from: only say what would be taken.")] = False,
    restore_erased: Annotated[
        bool, typer.Option("--restore-erased", help="Take in users whom the tenant has erased, too.")
    ] = False,
    as_json_: AsJson = False,
) -> None:
    """Take in a tenant that `recalld export` wrote, or one user of `GET /v1/users/{id}/export`: what is there stays, so
    that an import that was cut short is simply run again, and lines that cannot be read are told by their numbers.
    Users whom the tenant has erased stay out. With --from: what another memory system exported, with a report of what
    was taken and what was left; run again, it updates. Exit code 3: some records were left out."""
    if from_ is None:
        if user or agent or dry_run:
            raise invalid("/--from", "must be given with --user, --agent and --dry-run")
        if archive.is_user_export(file):
            archive.import_user(file, tenant, restore_erased=restore_erased, as_json_=as_json_)
        else:
            archive_import.import_(file, tenant, restore_erased=restore_erased, as_json_=as_json_)
        return
    if tenant:
        raise invalid("/--tenant", "does not go with --from: the API key says whose tenant it is")
    service: Any = importlib.import_module("app.cli._service")  # imports the service, which takes a second
    into = None if dry_run else (url, key)
    report: RanImport = asyncio.run(
        service.bring_in(file, from_.value, (agent, user), into, restore_erased=restore_erased)
    )
    if as_json_:
        as_json({"from": from_.value, **report})
    else:
        _show(report, dry_run=dry_run)
    if report["erased"]:
        print(
            f"recalld: {len(report['erased'])} users were erased and stayed out: {', '.join(report['erased'])}. "
            "To bring them back on purpose, give --restore-erased.",
            file=sys.stderr,
        )
    if report["erased"] or report["left"]:
        raise typer.Exit(SOME_LEFT_OUT)


def _show(report: RanImport, *, dry_run: bool) -> None:
    names = {"memory": "memories", "fact": "facts", "message": "messages"}
    print("Would take" if dry_run else "Taken", end=": ")
    print(", ".join(f"{count} {names[kind]}" for kind, count in report["taken"].items()) or "nothing")
    if report["there"]:
        print("Already there:", ", ".join(f"{count} {names[kind]}" for kind, count in report["there"].items()))
    for title, skipped in (("left", report["left"]), ("no memory", report["not_memory"])):
        rows = [(str(group["count"]), group["reason"], " ".join(group["such_as"])) for group in skipped]
        table_of((title, "because", "such as"), rows)
    table_of(("id of the source", "id here"), list(report["mapped"].items()))
    table_of(("erased user", "records left out"), [(user, str(number)) for user, number in report["erased"].items()])
    if not report["erased_checked"]:
        print("Not checked: whether a tombstone names one of these users.")
