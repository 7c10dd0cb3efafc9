"""`recalld import`: our own archives, and what other memory systems export."""

import asyncio
import importlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import importing
from app.cli.output import AsJson, as_json, table
from app.errors import invalid


class System(StrEnum):
    MEM0 = "mem0"
    ZEP = "zep"
    LETTA = "letta"
    AGENT_MEMORY_SERVER = "agent-memory-server"


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
    as_json_: AsJson = False,
) -> None:
    """Take in a tenant that was exported: what is there stays, so that an import that was cut short is simply run
    again, and lines that cannot be read are told by their numbers. With --from: what another memory system exported,
    with a report of what was taken and what was left; run again, it updates."""
    if from_ is None:
        if user or agent or dry_run:
            raise invalid("/--from", "must be given with --user, --agent and --dry-run")
        importing.import_(file, tenant, as_json_=as_json_)
    elif tenant:
        raise invalid("/--tenant", "does not go with --from: the API key says whose tenant it is")
    else:
        into = None if dry_run else (url, key)
        _foreign(file, from_.value, (agent, user), into, as_json_=as_json_)


def _foreign(
    file: Path,
    system: str,
    whose: tuple[str | None, str | None],
    into: tuple[str | None, str | None] | None,
    *,
    as_json_: bool,
) -> None:
    bringing: Any = importlib.import_module("app.cli.bringing")  # the service: a second that no other command waits for
    report = asyncio.run(bringing.bring_in(file, system, whose, into))
    if as_json_:
        as_json({"from": system, **report})
        return
    names = {"memory": "memories", "fact": "facts", "message": "messages"}
    print("Would take" if into is None else "Taken", end=": ")
    print(", ".join(f"{count} {names[kind]}" for kind, count in report["taken"].items()) or "nothing")
    if report["left"]:
        rows = [(str(one["count"]), one["reason"], " ".join(one["such_as"])) for one in report["left"]]
        table(("left", "because", "such as"), rows)
