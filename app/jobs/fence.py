"""Takes running jobs from their workers: what a worker has read so far can no longer be written.

Whatever a job writes expects its token (`queue.py`), so that one more of it ends the run at its next commit. The job is
queued again and begins anew with what is there then. Erasures go on: they write nothing that they have read.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from app.jobs.kinds import ERASE_USER
from app.jobs.models import JOBS
from app.storage.collection import Change, CommitConflict, Delete, Doc, Store, Update
from app.storage.repository import pages
from app.storage.scope import SYSTEM

BATCH = 200


Commit = Callable[[list[Change], int], Awaitable[None]]
"""Commits changes with which so many jobs go. Raises CommitConflict."""


async def fence(store: Store, tenant: str, drop: Callable[[Doc], bool], commit: Commit) -> None:
    """Every job that works on the tenant's data begins anew; those that `drop` picks go, queued or not."""
    async for docs in pages(partial(store.find, JOBS, SYSTEM), JOBS, BATCH):
        for doc in docs:
            if doc["tenant"] in (tenant, SYSTEM):
                await _take(store, doc, drop, commit)


async def _take(store: Store, found: Doc, drop: Callable[[Doc], bool], commit: Commit) -> None:
    doc: Doc | None = found
    while doc is not None:
        change = _change(doc, drop)
        try:
            if change is not None:
                await commit([change], int(isinstance(change, Delete)))
        except CommitConflict:
            doc = await store.get(JOBS, SYSTEM, found["job_id"])  # it was taken, renewed or done meanwhile
            continue
        return


def _change(doc: Doc, drop: Callable[[Doc], bool]) -> Change | None:
    if drop(doc):
        return Delete(JOBS, SYSTEM, doc["job_id"])
    if doc["status"] != "running" or doc["kind"] == ERASE_USER:
        return None
    again = {"status": "queued", "leased_until": None}
    ours = {"status": "running", "token": doc["token"]}
    return Update(JOBS, SYSTEM, doc["job_id"], set=again, inc={"token": 1}, expect=ours)
