"""Background work as it is stored: the queue, the schedules, and the operations that callers can ask for."""

from app.storage.collection import Collection, Unique
from app.storage.filters import Absent, Not

JOBS = Collection(
    name="jobs",
    id_field="job_id",
    fields={
        "status": "text",
        "kind": "text",
        "lane": "text",
        "run_at": "time",
        "leased_until": "time",
        "slot": "text",
    },
    order="run_at",
    unique=(Unique("slot", ("slot",), Not(Absent("slot"))),),
    indexes=(("status",), ("lane", "status")),
    opaque=("payload",),
    audited=False,
)
"""The queue, under the tenant `SYSTEM`. A job that is done is deleted; one that failed for good says why, for a while.

Of the jobs with a `slot`, one at a time waits or runs: what the clock starts never piles up behind itself."""
SCHEDULES = Collection(name="schedules", id_field="name", fields={})
"""What runs by the clock, under the tenant `SYSTEM`."""
OPERATIONS = Collection(
    name="operations",
    id_field="operation_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "kind": "text",
        "status": "text",
        "created_at": "time",
        "updated_at": "time",
    },
    indexes=(("user_id",),),
    everywhere=("updated_at",),
    opaque=("result", "undo"),
    internal=frozenset({"undo", "undoing"}),
)
"""Work that somebody asked for, in their tenant: its progress, its outcome, and what an undo needs."""
