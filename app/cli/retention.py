"""`recalld decay`, `forget` and `forget-tombstones`."""

import asyncio
import sys
from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from rich.console import Console
from rich.progress import Progress

from app.audit import trail
from app.auth.keys import COMMAND_LINE
from app.cli import _common as cli
from app.core.clock import SystemClock, rfc3339
from app.core.schemas import Json
from app.memories.schemas import MEMORIES
from app.retention.service import DecayJob, ForgetRequest, Histograms, histogram
from app.storage.changes import DeleteWhere
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING
from app.validation_words import in_words

BAR_WIDTH = 40
"""The width of the longest bar in characters."""

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's memories; default: all.")]
FORGET_PATH = "/v1/memories/forget"
POLL_SECONDS = 0.1
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")]


def decay(tenant: Tenant = None, dry_run: DryRun = False, as_json_: cli.AsJson = False) -> None:
    """Write down how memories have faded, to the last digit; --dry-run shows the histogram before and after."""
    if dry_run:
        histograms = cli.on_store(lambda store: _histograms(store, tenant), existing=True)
        if as_json_:
            cli.as_json(histograms)
        else:
            print(f"{histograms['memories']} memories; importance as it was written down last, and as it is now:\n")
            before, after = histograms["before"], histograms["after"]
            largest = max([*before, *after, 1])
            rows = [
                (name, str(old), _bar(old, largest), str(new), _bar(new, largest))
                for name, old, new in zip(histogram(after), before, after, strict=True)
            ]
            cli.table(("importance", "before", "", "after", ""), rows)
        return
    changed = cli.on_store(lambda store: DecayJob(store, SystemClock()).apply(tenant), existing=True)
    if as_json_:
        cli.as_json({"changed": changed})
    else:
        print(f"{changed} memories have another importance now.")


async def _histograms(store: Store, tenant: str | None) -> Histograms:
    job = DecayJob(store, SystemClock())
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("memories", total=await store.count(MEMORIES, tenant))
        return await job.dry_run(tenant, lambda seen: progress.update(bar, completed=seen))


def _bar(number: int, limit: int) -> str:
    return "█" * round(BAR_WIDTH * number / limit) or ("▏" if number else "")


def forget(
    tenant: Annotated[str, typer.Option(help="Whose memories; with --url the key says it.")] = "default",
    agent: Annotated[str | None, typer.Option(help="Of this agent.")] = None,
    user: Annotated[str | None, typer.Option(help="Of this user.")] = None,
    older_than_days: Annotated[float | None, typer.Option(help="Only older ones; with another limit: 365.")] = None,
    max_importance: Annotated[float | None, typer.Option(help="Only those faded to this or less.")] = None,
    max_score: Annotated[float | None, typer.Option(help="Only those that score this or less.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Forget them. Without it nothing is changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen: the default.")] = False,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Show what a policy would forget, and why. The policy is --older-than-days, --max-importance, --max-score or
    several of them. With --apply it is forgotten: archived, then deleted after a grace
    time, until which the operation can be undone."""
    if apply and dry_run:
        raise typer.BadParameter("--apply and --dry-run exclude each other")
    policy = cli.given(older_than_days=older_than_days, max_importance=max_importance, max_score=max_score)
    if not policy:
        raise typer.BadParameter("name a policy, such as --older-than-days 90, --max-importance 0.2 or --max-score 50")
    try:
        request = ForgetRequest.model_validate(
            {"policy": policy, "agent_id": agent, "user_id": user, "dry_run": not apply}
        )
    except ValidationError as error:
        raise typer.BadParameter("; ".join(_option_fault(problem) for problem in error.errors())) from error
    if apply:
        operation = cli.call(cli.Target(url, key, tenant, jobs=True), lambda ask: _apply(ask, request), "Forgetting …")
        failed = operation["status"] == "failed"
        if as_json_:
            cli.as_json(operation)
        elif failed:
            print(f"recalld: {operation['error']} ({operation['operation_id']})", file=sys.stderr)
        else:
            print(f"{operation['progress']['done']} memories are archived; {operation['operation_id']} can be undone.")
        if failed:
            raise typer.Exit(1)
        return
    plan = cli.call_once(cli.Target(url, key, tenant), "POST", FORGET_PATH, request.model_dump(exclude_none=True))
    if as_json_:
        cli.as_json(plan)
    else:
        _show_plan(plan)


def _show_plan(plan: Json) -> None:
    print(f"{plan['total']} memories would be forgotten; --apply forgets them.")
    print()
    if not plan["items"]:
        return
    rows = []
    for item in plan["items"]:
        why = [f"{reason['reason']} {reason['points']:.0f} ({reason['detail']})" for reason in item["reasons"]]
        importance, score = f"{item['importance']:.3f}", f"{item['score']:.0f}"
        rows.append((item["memory_id"], item["memory_type"], importance, score, ", ".join(why), item["content"]))
    cli.text_table(("memory", "type", "importance", "score", "why", "content"), rows)


async def _apply(ask: cli.Ask, request: ForgetRequest) -> Json:
    """Asks the service to forget, and waits until it has. Returns the operation."""
    operation: Json = await ask("POST", FORGET_PATH, request.model_dump(exclude_none=True))
    while operation["status"] in ("queued", "running"):
        await asyncio.sleep(POLL_SECONDS)
        operation = await ask("GET", f"/v1/operations/{operation['operation_id']}")
    return operation


def _option_fault(error: ErrorDetails) -> str:
    """Returns what is wrong with the request by the names of the options."""
    name = "-".join(str(part).replace("_", "-").removesuffix("-id") for part in error["loc"] if part != "policy")
    return f"--{name}: {in_words(error)}" if name else "name --agent, --user or both"


def forget_tombstones(
    tenant: Annotated[str, typer.Option(help="Whose tombstones.")], as_json_: cli.AsJson = False
) -> None:
    """Delete a tenant's tombstones, for a store whose erasure key is lost. Nobody can tell any more whom the tenant has
    erased: an import may bring them back."""
    deleted = cli.on_store(lambda store: _forget(store, tenant), existing=True)
    if as_json_:
        cli.as_json({"tenant": tenant, "deleted": deleted})
    else:
        print(f"{deleted} records about erased users of {tenant} are deleted.")


async def _forget(store: Store, tenant: str) -> int:
    """Deletes the tombstones and the sealed key of a tenant. Returns their number."""
    actor = trail.Actor(tenant, COMMAND_LINE, "forget_tombstones")
    number = await store.count(trail.ERASED, tenant)
    noted = trail.entry(actor, rfc3339(SystemClock().now()), None, [], {trail.ERASED.name: {"delete": number}})
    return (await store.commit([DeleteWhere(trail.ERASED, tenant, EVERYTHING), noted])).deleted
