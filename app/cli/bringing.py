"""What `recalld import --from` runs: it reaches a service, or is one."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import Tombstones
from app.auth.principal import unauthenticated
from app.clock import SystemClock, rfc3339
from app.errors import RecalldError
from app.foreign import agent_memory_server, letta, mem0, zep
from app.foreign.bring import Post, bring
from app.foreign.records import Found, Json, Left, Owner, Reader
from app.main import create_app
from app.mcp.api import Api, InProcess, Refused, checked
from app.mcp.remote import calling
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
    found = list(READERS[system](_read(file), Owner(*whose, rfc3339(SystemClock().now()))))
    if into is None:
        return {"dry_run": True, **(await bring(found, _nowhere)).shown(), "erased": {}, "erased_checked": False}
    async with _reached(*into) as (api, tombstones):
        erased = Counter[str]()
        if tombstones is not None and not restore_erased:
            found, erased = await _without_erased(found, tombstones)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("importing", total=sum(not isinstance(one, Left) for one in found))
            report = await bring(found, _posting(api), lambda number: progress.advance(bar, number))
    return {"dry_run": False, **report.shown(), "erased": dict(erased), "erased_checked": tombstones is not None}


async def _without_erased(found: Sequence[Found], tombstones: Tombstones) -> tuple[list[Found], Counter[str]]:
    """What is left of `found`, and how many records of each erased user were taken out."""
    users = {user for one in found if (user := _user_of(one)) is not None}
    gone = {user for user in users if await tombstones.find(user) is not None}
    erased = Counter(user for one in found if (user := _user_of(one)) in gone and user is not None)
    return [one for one in found if _user_of(one) not in gone], erased


def _user_of(one: Found) -> str | None:
    if isinstance(one, Left):
        return None
    user: str | None = (one.session or one.body).get("user_id")
    return user


def _read(file: Path) -> Any:
    try:
        made = json.loads(file.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ImportRefused(f"{file} cannot be read: {fault.strerror}.") from fault
    except (ValueError, RecursionError) as fault:
        raise ImportRefused(f"{file} is no JSON.") from fault
    if not isinstance(made, dict | list):
        raise ImportRefused(f"{file} holds neither an object nor a list.")
    return made


async def _nowhere(_: str, __: Json) -> str | None:
    return None


def _posting(api: Api) -> Post:
    async def post(path: str, body: Json) -> str | None:
        answer = await api("POST", path, body)
        if answer.status in (401, 403, 503):  # nothing of the rest would fare better
            checked(answer)
        try:
            checked(answer)
        except Refused as fault:
            return fault.detail
        return None

    return post


@asynccontextmanager
async def _reached(url: str | None, key: str | None) -> AsyncIterator[tuple[Api, Tombstones | None]]:
    """The service at `url`, or the local store, whose files whoever starts this can read, and with it its tombstones.
    Raises ImportRefused."""
    try:
        if url is not None:
            async with calling(url, key) as api:
                yield api, None
            return
        app = create_app(Settings())
        async with app.router.lifespan_context(app) as state:
            assert state is not None
            held, caller = state["resources"], unauthenticated("import")
            yield InProcess(app, held, caller), Tombstones.of(held, caller.scope.tenant)
    except Refused as fault:
        raise ImportRefused(str(fault)) from fault
