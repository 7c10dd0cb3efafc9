"""Takes running jobs from their workers: what a worker has read so far can no longer be written.

Whatever a job writes expects its token (`queue.py`), so that one more of it ends the run at its next commit. The job is
queued again and begins anew with what is there then.
"""

from collections.abc import Callable
from functools import partial

from app.jobs.models import JOBS
from app.storage.collection import Change, CommitConflict, Delete, Doc, Store, Update
from app.storage.repository import pages
from app.storage.scope import SYSTEM

BATCH = 200


async def fence(store: Store, tenant: str, drop: Callable[[Doc], bool]) -> int:
    """Every job that works on the tenant's data begins anew; those that `drop` picks go, queued or not: how many."""
    dropped = 0
    async for docs in pages(partial(store.find, JOBS, SYSTEM), JOBS, BATCH):
        for doc in docs:
            if doc["tenant"] in (tenant, SYSTEM):
                dropped += await _take(store, doc, drop)
    return dropped


async def _take(store: Store, found: Doc, drop: Callable[[Doc], bool]) -> bool:
    """True where the job went."""
    doc: Doc | None = found
    while doc is not None:
        change = _change(doc, drop)
        try:
            if change is not None:
                await store.commit([change])
        except CommitConflict:
            doc = await store.get(JOBS, SYSTEM, found["job_id"])  # it was taken, renewed or done meanwhile
            continue
        return isinstance(change, Delete)
    return False


def _change(doc: Doc, drop: Callable[[Doc], bool]) -> Change | None:
    if drop(doc):
        return Delete(JOBS, SYSTEM, doc["job_id"])
    if doc["status"] != "running":
        return None
    again = {"status": "queued", "leased_until": None}
    ours = {"status": "running", "token": doc["token"]}
    return Update(JOBS, SYSTEM, doc["job_id"], set=again, inc={"token": 1}, expect=ours)
