"""`recalld import --from`: what other memory systems export."""

import asyncio
import importlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import AsJson, as_json, table


class System(StrEnum):
    MEM0 = "mem0"
    ZEP = "zep"
    LETTA = "letta"
    AGENT_MEMORY_SERVER = "agent-memory-server"


def import_foreign(  # noqa: PLR0913 (options)
    file: Annotated[Path, typer.Argument(help="What that system exported, as JSON.")],
    from_: Annotated[System, typer.Option("--from", help="Which system.")],
    user: Annotated[str | None, typer.Option(help="Whose are records that name no user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Whose are records that name no agent.")] = None,
    url: Annotated[str | None, typer.Option(envvar="RECALLD_URL", help="Into this running service.")] = None,
    key: Annotated[str | None, typer.Option(envvar="RECALLD_KEY", help="API key of that service.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken.")] = False,
    as_json_: AsJson = False,
) -> None:
    """Take in what another memory system exported, and say what was taken and what was left. Run again, it updates."""
    bringing: Any = importlib.import_module("app.cli.bringing")  # the service: a second that no other command waits for
    report = asyncio.run(bringing.bring_in(file, from_.value, (agent, user), None if dry_run else (url, key)))
    if as_json_:
        as_json({"from": from_.value, **report})
        return
    names = {"memory": "memories", "fact": "facts", "message": "messages"}
    print("Would take" if dry_run else "Taken", end=": ")
    print(", ".join(f"{count} {names[kind]}" for kind, count in report["taken"].items()) or "nothing")
    if report["left"]:
        rows = [(str(one["count"]), one["reason"], " ".join(one["such_as"])) for one in report["left"]]
        table(("left", "because", "such as"), rows)
