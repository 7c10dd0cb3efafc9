"""Undoes an operation piece by piece. Each piece is restored completely or not at all."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from app.jobs import operations
from app.jobs.models import OPERATIONS
from app.jobs.runner import Done, Run
from app.storage.changes import Change, CommitConflict
from app.storage.schema import Doc

Back = Callable[[Doc], Awaitable[list[Change] | None]]
"""Returns the changes that restore a piece, or None if it can no longer be restored."""


async def undo_each(run: Run, pieces: AsyncIterator[Doc], back: Back) -> Done:
    """Undoes each piece of an operation. A restored piece must not appear in `pieces` again. An interrupted run resumes
    its count, since count and restored piece are one commit."""
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
    """Commits the changes and the progress. Returns False if the piece can no longer be restored, or if it conflicts
    with another change."""
    if changes is None:
        return False
    fields = {"progress": {"done": number, "total": None}}
    report = operations.report(run.tenant, str(run.lease.job.operation_id), run.clock.now(), fields)
    with suppress(CommitConflict):
        await run.commit([*changes, report])
        return True
    return False
