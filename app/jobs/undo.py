"""Taking back what an operation did, piece by piece: each piece is brought back whole or not at all."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from app.jobs import operations
from app.jobs.models import OPERATIONS
from app.jobs.runner import Done, Run
from app.storage.changes import Change, CommitConflict
from app.storage.schema import Doc

Back = Callable[[Doc], Awaitable[list[Change] | None]]
"""The changes that bring a piece back; None where it cannot be brought back any more."""


async def undo_each(run: Run, pieces: AsyncIterator[Doc], back: Back) -> Done:
    """A piece that was brought back is none of `pieces` when they are looked for again. A run that was cut short goes
    on counting where it was: count and deed are one commit."""
    own = await run.store.get(OPERATIONS, run.tenant, str(run.lease.job.operation_id))
    done, kept = own["progress"]["done"] if own else 0, 0
    async for piece in pieces:
        if await _brought_back(run, await back(piece), done + 1):
            done += 1
        else:
            kept += 1
    fields = {"status": "undone", "undo": None}
    await run.commit([operations.report(run.tenant, run.payload["operation_id"], run.clock.now(), fields)])
    return Done({"restored": done, "not_restored": kept}, status="partial" if kept else "succeeded")


async def _brought_back(run: Run, changes: list[Change] | None, number: int) -> bool:
    """False where another has its place, or somebody is at it."""
    if changes is None:
        return False
    fields = {"progress": {"done": number, "total": None}}
    report = operations.report(run.tenant, str(run.lease.job.operation_id), run.clock.now(), fields)
    with suppress(CommitConflict):
        await run.commit([*changes, report])
        return True
    return False
