"""`recalld decay` and `recalld forget`: what would fade, and what would go."""

from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from rich.console import Console
from rich.progress import Progress

from app.cli.output import AsJson, as_json, table
from app.cli.running import on_store
from app.clock import SystemClock
from app.forgetting.decay import BARS, DecayJob, bar_of, histogram
from app.forgetting.schemas import ForgetRequest, PolicyIn
from app.forgetting.service import Forgetting
from app.memories.decays import Decays
from app.memories.models import MEMORIES
from app.memories.repository import MemoryRepository
from app.profiles.settings import StoredAgentSettings
from app.storage.collection import Doc, Store
from app.storage.scope import Scope

BAR_WIDTH = 40

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's memories; default: all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")]


def decay(tenant: Tenant = None, dry_run: DryRun = False, as_json_: AsJson = False) -> None:
    """Write down how memories have faded, to the last digit; --dry-run shows the histogram before and after."""
    result = on_store(lambda store: _decay(store, tenant, dry_run=dry_run))
    if as_json_:
        as_json(result)
    elif dry_run:
        _show(result)
    else:
        print(f"{result['changed']} memories have another importance now.")


async def _decay(store: Store, tenant: str | None, *, dry_run: bool) -> Doc:
    job = DecayJob(store, SystemClock())
    if not dry_run:
        return {"changed": await job.apply(tenant)}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("memories", total=await store.count(MEMORIES, tenant))
        return await job.dry_run(tenant, lambda seen: progress.update(bar, completed=seen))


def _show(result: Doc) -> None:
    print(f"{result['memories']} memories; importance as it was written down last, and as it is now:\n")
    before, after = result["before"], result["after"]
    most = max([*before, *after, 1])
    rows = [
        (name, str(old), _bar(old, most), str(new), _bar(new, most))
        for name, old, new in zip(histogram(after), before, after, strict=True)
    ]
    table(("importance", "before", "", "after", ""), rows)


def _bar(number: int, most: int) -> str:
    return "█" * round(BAR_WIDTH * number / most) or ("▏" if number else "")


def forget(  # noqa: PLR0913 (options)
    tenant: Annotated[str, typer.Option(help="Whose memories.")] = "default",
    agent: Annotated[str | None, typer.Option(help="Of this agent.")] = None,
    user: Annotated[str | None, typer.Option(help="Of this user.")] = None,
    older_than_days: Annotated[float, typer.Option(help="Only older ones.")] = 365,
    max_importance: Annotated[float | None, typer.Option(help="Only those faded to this or less.")] = None,
    max_score: Annotated[float | None, typer.Option(help="Only those that score this or less.")] = None,
    dry_run: DryRun = False,
    as_json_: AsJson = False,
) -> None:
    """Show what a policy would forget, and why. To apply it, ask the service: POST /v1/memories/forget."""
    if not dry_run:
        raise typer.BadParameter(
            "forgetting is asked of the service, where it can be undone; here it is shown: --dry-run"
        )
    try:
        policy = PolicyIn(older_than_days=older_than_days, max_importance=max_importance, max_score=max_score)
        asked = ForgetRequest(policy=policy, agent_id=agent, user_id=user)
    except ValidationError as fault:
        raise typer.BadParameter("; ".join(_said(error) for error in fault.errors())) from fault
    plan = on_store(lambda store: _plan(store, tenant, asked))
    if as_json_:
        as_json(plan)
        return
    print(f"{plan['total']} memories would be forgotten. Their importance:\n")
    counts = plan["importance"]
    table(
        ("importance", "", ""),
        [(n, str(c), _bar(c, max([*counts, 1]))) for n, c in zip(histogram(counts), counts, strict=True)],
    )
    print()
    if plan["items"]:
        table(("memory", "type", "importance", "score", "why"), [_row(item) for item in plan["items"]])


def _said(error: ErrorDetails) -> str:
    name = "-".join(str(part).replace("_", "-").removesuffix("-id") for part in error["loc"])
    return f"--{name}: {error['msg']}" if name else "name --agent, --user or both"


async def _plan(store: Store, tenant: str, asked: ForgetRequest) -> Doc:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("forgettable memories", total=await store.count(MEMORIES, tenant))
        counts = [0] * BARS

        def step(item: Doc) -> None:
            counts[bar_of(item["importance"])] += 1
            progress.advance(bar)

        plan = await _forgetting(store, tenant).plan(asked, step)
        return plan | {"importance": counts}


def _forgetting(store: Store, tenant: str) -> Forgetting:
    decays = Decays(StoredAgentSettings(store), tenant)
    return Forgetting(MemoryRepository(store, Scope(tenant)), decays, SystemClock())


def _row(item: Doc) -> tuple[str, ...]:
    why = ", ".join(f"{r['reason']} {r['points']:.0f} ({r['detail']})" for r in item["reasons"])
    return item["memory_id"], item["memory_type"], f"{item['importance']:.3f}", f"{item['score']:.0f}", why
