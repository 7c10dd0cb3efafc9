"""`recalld import`: archives, users' exports and memories of other services."""

import asyncio
import importlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import Tombstones
from app.auth.principal import unauthenticated
from app.cli import archive_import, user_import
from app.cli._common import AsJson, as_json, table
from app.cli.archive import ArchiveRefused
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import Json
from app.errors import RecalldError, invalid
from app.importers import agent_memory_server, letta, mem0, zep
from app.importers.loader import Post, bring
from app.importers.models import DefaultOwner, ImportResult, Reader, SkippedRecord
from app.main import create_app
from app.mcp.transport import Api, InProcess, ToolError, checked, get_caller
from app.settings import Settings


class ImportRefused(RecalldError):
    """The file is none that can be read, or the service does not let us in; what was taken before is there."""


READERS: dict[str, Reader] = {
    "mem0": mem0.read,
    "zep": zep.read,
    "letta": letta.read,
    "agent-memory-server": agent_memory_server.read,
}


async def bring_in(
    file: Path,
    system: str,
    whose: tuple[str | None, str | None],
    into: tuple[str | None, str | None] | None,
    *,
    restore_erased: bool = False,
) -> Json:
    """The report. `whose`: agent and user of records that name none; `into`: URL and key, None to make nothing.

    Users whom a tombstone names stay out, unless `restore_erased`. A running service's tombstones cannot be looked
    into: `erased_checked` says so."""
    found = list(READERS[system](_read(file), DefaultOwner(*whose, rfc3339(SystemClock().now()))))
    if into is None:
        return {"dry_run": True, **(await bring(found, _nowhere)).shown(), "erased": {}, "erased_checked": False}
    async with _reached(*into) as (api, tombstones):
        erased = Counter[str]()
        if tombstones is not None and not restore_erased:
            found, erased = await _without_erased(found, tombstones)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("importing", total=sum(not isinstance(one, SkippedRecord) for one in found))
            report = await bring(found, _posting(api), lambda number: progress.advance(bar, number))
    return {"dry_run": False, **report.shown(), "erased": dict(erased), "erased_checked": tombstones is not None}


async def _without_erased(
    found: Sequence[ImportResult], tombstones: Tombstones
) -> tuple[list[ImportResult], Counter[str]]:
    """What is left of `found`, and how many records of each erased user were taken out."""
    users = {user for one in found if (user := _user_of(one)) is not None}
    gone = {user for user in users if await tombstones.find(user) is not None}
    erased = Counter(user for one in found if (user := _user_of(one)) in gone and user is not None)
    return [one for one in found if _user_of(one) not in gone], erased


def _user_of(one: ImportResult) -> str | None:
    if isinstance(one, SkippedRecord):
        return None
    user: str | None = (one.session or one.body).get("user_id")
    return user


def _read(file: Path) -> Any:
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImportRefused(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ImportRefused(f"{file} is no JSON.") from error
    if not isinstance(result, dict | list):
        raise ImportRefused(f"{file} holds neither an object nor a list.")
    return result


async def _nowhere(_: str, __: Json) -> str | None:
    return None


def _posting(api: Api) -> Post:
    async def post(path: str, body: Json) -> str | None:
        answer = await api("POST", path, body)
        if answer.status in (401, 403, 503):  # nothing of the rest would fare better
            checked(answer)
        try:
            checked(answer)
        except ToolError as error:
            return error.detail
        return None

    return post


@asynccontextmanager
async def _reached(url: str | None, key: str | None) -> AsyncIterator[tuple[Api, Tombstones | None]]:
    """The service at `url`, or the local store, whose files whoever starts this can read, and with it its tombstones.
    Raises ImportRefused."""
    try:
        if url is not None:
            async with get_caller(url, key) as api:
                yield api, None
            return
        app = create_app(Settings())
        async with app.router.lifespan_context(app) as state:
            assert state is not None
            resources, principal = state["resources"], unauthenticated("import")
            yield InProcess(app, resources, principal), Tombstones.of(resources, principal.scope.tenant)
    except ToolError as error:
        raise ImportRefused(str(error)) from error


class System(StrEnum):
    MEM0 = "mem0"
    ZEP = "zep"
    LETTA = "letta"
    AGENT_MEMORY_SERVER = "agent-memory-server"


def import_(  # noqa: PLR0913 (options)
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
        str | None, typer.Option(envvar="RECALLD_URL", help="With --from: into this running service.")
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
    was taken and what was left; run again, it updates."""
    if from_ is None:
        if user or agent or dry_run:
            raise invalid("/--from", "must be given with --user, --agent and --dry-run")
        if user_import.is_user_export(file):
            user_import.import_user(file, tenant, restore_erased=restore_erased, as_json_=as_json_)
        else:
            archive_import.import_(file, tenant, restore_erased=restore_erased, as_json_=as_json_)
    elif tenant:
        raise invalid("/--tenant", "does not go with --from: the API key says whose tenant it is")
    else:
        into = None if dry_run else (url, key)
        _foreign(file, from_.value, (agent, user), into, restore_erased=restore_erased, as_json_=as_json_)


def _foreign(
    file: Path,
    system: str,
    whose: tuple[str | None, str | None],
    into: tuple[str | None, str | None] | None,
    *,
    restore_erased: bool,
    as_json_: bool,
) -> None:
    bringing: Any = importlib.import_module("app.cli.import_")  # the service: a second that no other command waits for
    report = asyncio.run(bringing.bring_in(file, system, whose, into, restore_erased=restore_erased))
    if as_json_:
        as_json({"from": system, **report})
    else:
        _show(report, dry_run=into is None)
    if report["erased"]:
        raise ArchiveRefused(
            f"{len(report['erased'])} users were erased and stayed out: {', '.join(report['erased'])}. "
            "To bring them back on purpose, give --restore-erased."
        )


def _show(report: dict[str, Any], *, dry_run: bool) -> None:
    names = {"memory": "memories", "fact": "facts", "message": "messages"}
    print("Would take" if dry_run else "Taken", end=": ")
    print(", ".join(f"{count} {names[kind]}" for kind, count in report["taken"].items()) or "nothing")
    if report["left"]:
        rows = [(str(one["count"]), one["reason"], " ".join(one["such_as"])) for one in report["left"]]
        table(("left", "because", "such as"), rows)
    table(("erased user", "records left out"), [(user, str(number)) for user, number in report["erased"].items()])
    if not report["erased_checked"]:
        print("Not checked: whether a tombstone names one of these users.")
