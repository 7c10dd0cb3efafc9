"""Opens the service that a command uses, and does what `recalld import --from` does with it.

A separate module, since importing the service takes a second.
"""

import asyncio
import json
import logging
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from rich.console import Console
from rich.progress import Progress

from app.audit.tombstones import Tombstones
from app.auth.keys import Keys, Principal, unauthenticated
from app.cli._common import Ask, CommandFailed, Target, tell_of_new_store
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import TENANT, TENANT_RULE, Json, identifier
from app.errors import RecalldError, invalid
from app.importers import formats, loader
from app.importers.histories import HistoryPart, files_of, read_history
from app.main import create_app
from app.mcp import transport
from app.resources import Resources
from app.settings import Settings
from app.storage.factory import where_of

T = TypeVar("T")


async def run(target: Target, work: Callable[[Ask], Awaitable[T]]) -> T:
    """Runs `work` on the service. Raises CommandFailed, or the error of a local store that cannot be opened."""
    async with opened(target) as (api, _):
        return await work(asking(api))


def asking(api: transport.Api) -> Ask:
    """Returns a function that sends requests and raises CommandFailed for errors."""

    async def ask(method: str, path: str, body: Json | bytes | None = None, kind: str | None = None) -> Any:
        try:
            return transport.checked(await api(method, path, body, {"content-type": kind} if kind else None)).body
        except transport.ToolError as error:
            raise CommandFailed(error.once) from error

    return ask


@asynccontextmanager
async def opened(target: Target) -> AsyncIterator[tuple[transport.Api, Resources | None]]:
    """Yields the service at the target's URL, or the local store with its resources.

    The local store needs no key, since whoever starts this can read its files. With a key, the command has that key's
    rights. Other processes may have the store open, a running service too.
    """
    if target.url is not None:
        try:
            service = transport.connect(target.url, target.key)
            async with service as api:
                yield api, None
        except httpx2.InvalidURL:
            raise invalid("/--url", "must be an address such as http://127.0.0.1:8000") from None
        except UnicodeEncodeError:
            raise invalid("/--key", "must be an API key: letters, digits and _ alone") from None
        return
    settings = Settings()
    where = where_of(settings)
    new = where.missing
    if not target.makes:
        where.require_existing()
    if not target.jobs:
        settings = settings.model_copy(update={"jobs": settings.jobs.model_copy(update={"enabled": False})})
    app = create_app(settings)
    with _quiet(logging.getLogger("app.lifespan")):
        async with app.router.lifespan_context(app) as state:
            assert state is not None
            if new:
                tell_of_new_store(settings)
            resources: Resources = state["resources"]
            yield transport.InProcess(app, resources, await _principal(target, resources)), resources


@contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    """Keeps a log silent: what stops a start is printed by the command, and hints for operators are for services."""
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


async def _principal(target: Target, resources: Resources) -> Principal:
    if target.key is not None:
        return await Keys(resources.store, resources.clock).principal(target.key)
    if not TENANT.fullmatch(target.tenant):
        raise invalid("/--tenant", TENANT_RULE)
    principal = unauthenticated("command_line")
    return replace(principal, scope=replace(principal.scope, tenant=target.tenant))


class ImportRefused(RecalldError):
    """The file cannot be read, or the service refuses access. Records imported before stay."""


READERS: dict[str, loader.Reader] = {
    "mem0": formats.read_mem0,
    "zep": formats.read_zep,
    "letta": formats.read_letta,
    "agent-memory-server": formats.read_agent_memory_server,
}
SHAPES = {
    "mem0": '{"results": […], "relations": […]}, or a list of memories',
    "zep": '{"edges": […], "nodes": […], "threads": […]}, or a list of edges',
    "letta": "an agent file with `agents`, or a list of passages",
    "agent-memory-server": '{"memories": […], "sessions": […]}, or a list of memories',
}


async def bring_in(
    file: Path,
    system: str,
    whose: tuple[str | None, str | None],
    into: tuple[str | None, str | None] | None,
    *,
    restore_erased: bool = False,
) -> loader.RanImport:
    """Imports a file, or a history one conversation after the other, and returns the report. `whose` are agent and user
    of records that name none; `into` is URL and key, or None for a dry run. Raises ImportRefused if there is nothing of
    the system.

    Users with a tombstone are skipped, unless `restore_erased`. The tombstones of a running service cannot be read;
    `erased_checked` is then false.
    """
    agent, user = (_composed(name, given) for name, given in zip(("agent", "user"), whose, strict=True))
    now, is_history = rfc3339(SystemClock().now()), system not in READERS
    if is_history and user is None:
        raise invalid("/--user", "must be given with a history: whose it is")
    owner = loader.DefaultOwner(agent or (system if is_history else None), user, now)
    parts: Iterable[HistoryPart]
    if is_history:
        try:
            parts, size = read_history(system, file, owner), sum(part.size for part in files_of(file))
        except (OSError, zipfile.BadZipFile) as error:
            raise ImportRefused(f"{file} cannot be read: {error}.") from error
    else:
        results = _results(file, system, owner)
        parts, size = [(0, results)], sum(isinstance(result, loader.ImportRecord) for result in results)
    report, number, erased, found, gone = loader.ImportReport(), 0, Counter[str](), Counter[str](), dict[str, bool]()
    async with AsyncExitStack() as stack:
        service: loader.ImportTarget = _Nowhere()
        tombstones, is_checked = None, into is not None
        if into is not None and size:  # where there is nothing, no store is made
            api, tombstones = await stack.enter_async_context(_reached(*into))
            service, is_checked = _Reached(api, found), tombstones is not None
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        bar = progress.add_task("importing", total=size)
        for read, results in parts:
            kept = list[loader.ImportResult]()
            for result in results:
                if isinstance(result, loader.ImportRecord):
                    number += 1
                    name = (result.session or result.body).get("user_id")
                    if tombstones is not None and name is not None and not restore_erased:
                        if name not in gone:
                            gone[name] = await tombstones.find(name) is not None
                        if gone[name]:
                            erased[name] += 1
                            continue
                kept.append(result)
            # a history's size is in bytes, that of a file in records
            await loader.bring(kept, service, lambda done: progress.advance(bar, 0 if is_history else done), report)
            progress.advance(bar, read)
    shown = report.shown()
    if is_history and not number:
        reasons = "; ".join(group["reason"] for group in (*shown["left"], *shown["not_memory"])[:3])
        raise ImportRefused(f"{file} holds no conversation of {system}{reasons and ': '}{reasons}.")
    return {
        "dry_run": into is None,
        "agent": owner.agent_id if is_history else None,
        **shown,
        "mapped": owner.mapped,
        "erased": dict(erased),
        "erased_checked": is_checked,
        "secrets": dict(found),
    }


def _results(file: Path, system: str, owner: loader.DefaultOwner) -> list[loader.ImportResult]:
    """Returns what a file of a system holds. Raises ImportRefused for a file of something else."""
    data = _read(file)
    results = list(READERS[system](data, owner))
    if not any(isinstance(result, loader.ImportRecord) for result in results):
        _refuse_other_system(file, data, system, owner)
        skipped = [result for result in results if isinstance(result, loader.SkippedEntry)]
        if any(data.values() if isinstance(data, dict) else data) and not any(one.is_memory for one in skipped):
            reasons = "; ".join([*dict.fromkeys(one.reason for one in skipped)][:3])
            shape = f"give {SHAPES[system]}"
            raise ImportRefused(f"{file} holds no memory of {system}: {reasons and f'{reasons}; '}{shape}.")
    return results


def _refuse_other_system(file: Path, data: Any, system: str, owner: loader.DefaultOwner) -> None:
    """Raises ImportRefused if a file in which nothing was found is one of another system: the one whose reader finds
    most in it."""
    anybody = replace(owner, user_id=owner.user_id or "anybody", mapped={})
    numbers = {
        name: sum(isinstance(record, loader.ImportRecord) for record in read(data, anybody))
        for name, read in READERS.items()
    }
    likely, number = max(numbers.items(), key=lambda item: item[1])
    if not numbers[system] and number:
        raise ImportRefused(
            f"{file} holds nothing of {system}, but it reads as a file of {likely} with {number} records: "
            f"import it with --from {likely}."
        )


def _composed(name: str, given: str | None) -> str | None:
    try:
        return None if given is None else identifier(given)
    except ValueError as error:
        raise invalid(f"/--{name}", str(error)) from None


def _read(file: Path) -> Any:
    """Returns the JSON of a file, in UTF-8 or UTF-16, with or without a byte order mark."""
    try:
        content = file.read_bytes()
        data = loader.parsed(content.decode(json.detect_encoding(content)))
    except OSError as error:
        raise ImportRefused(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ImportRefused(f"{file} is no JSON.") from error
    if not isinstance(data, dict | list):
        raise ImportRefused(f"{file} holds neither an object nor a list.")
    return data


RATE_LIMITED = 429


class _Nowhere:
    """Takes everything and keeps nothing, for a dry run."""

    async def post(self, _: str, __: Json) -> str | None:
        return None

    async def get(self, _: str) -> Json | None:
        return None


@dataclass(frozen=True, slots=True)
class _Reached:
    """The service behind an API. `found` counts the secrets that its answers warn of."""

    api: transport.Api
    found: Counter[str] = field(default_factory=Counter)

    async def post(self, path: str, body: Json) -> str | None:
        answer = await self._answer("POST", path, body)
        try:
            transport.checked(answer)
        except transport.ToolError as error:
            return error.detail
        self.found.update(warning["kind"] for warning in answer.body.get("warnings", ()) if "kind" in warning)
        return None

    async def get(self, path: str) -> Json | None:
        answer = await self._answer("GET", path)
        return answer.body if answer.status < transport.BAD else None

    async def _answer(self, method: str, path: str, body: Json | None = None) -> transport.ApiAnswer:
        answer = await self.api(method, path, body)
        while answer.status == RATE_LIMITED:
            await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
            answer = await self.api(method, path, body)
        if answer.status in (401, 403, 503, 507):  # all further requests would fail, too
            transport.checked(answer)
        return answer


@asynccontextmanager
async def _reached(url: str | None, key: str | None) -> AsyncIterator[tuple[transport.Api, Tombstones | None]]:
    """Yields the service at `url`, or else the local store with its tombstones. Raises ImportRefused."""
    target = Target(url, key if url else None, jobs=True, makes=True)
    try:
        async with opened(target) as (api, resources):
            yield api, None if resources is None else Tombstones.of(resources.store, resources.settings, target.tenant)
    except transport.ToolError as error:
        raise ImportRefused(error.once) from error
