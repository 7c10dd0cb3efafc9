"""The implementation of `recalld import --from`. A separate module, since importing the service takes a second."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import Tombstones
from app.auth.keys import unauthenticated
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import Json
from app.errors import RecalldError
from app.importers import agent_memory_server, letta, mem0, zep
from app.importers.loader import Post, bring
from app.importers.models import DefaultOwner, ImportResult, Reader, SkippedRecord
from app.main import create_app
from app.mcp.transport import Api, InProcess, ToolError, checked, get_caller
from app.settings import Settings


class ImportRefused(RecalldError):
    """The file cannot be read, or the service refuses access. Records imported before stay."""


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
    """Imports a file and returns the report. `whose` are agent and user of records that name none; `into` is URL and
    key, or None for a dry run.

    Users with a tombstone are skipped, unless `restore_erased`. The tombstones of a running service cannot be read;
    `erased_checked` is then false.
    """
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
    """Returns the records of other users, and how many records of each erased user were removed."""
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
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImportRefused(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ImportRefused(f"{file} is no JSON.") from error
    if not isinstance(data, dict | list):
        raise ImportRefused(f"{file} holds neither an object nor a list.")
    return data


async def _nowhere(_: str, __: Json) -> str | None:
    return None


def _posting(api: Api) -> Post:
    async def post(path: str, body: Json) -> str | None:
        answer = await api("POST", path, body)
        if answer.status in (401, 403, 503):  # all further requests would fail, too
            checked(answer)
        try:
            checked(answer)
        except ToolError as error:
            return error.detail
        return None

    return post


@asynccontextmanager
async def _reached(url: str | None, key: str | None) -> AsyncIterator[tuple[Api, Tombstones | None]]:
    """Yields the service at `url`, or else the local store with its tombstones, which needs no key, since whoever
    starts this can read its files. Raises ImportRefused."""
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
