"""Working memory as it is stored: the state of a task, and its checkpoints as documents of their own."""

from app.storage.schema import Collection, Unique

INTERNAL = frozenset({"kept_after_end"})
"""`kept_after_end`: `expires_at` is the service's own, of a task that has ended."""
TASKS = Collection(
    name="task_states",
    id_field="task_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "status": "text",
        "expires_at": "time",
        "created_at": "time",
    },
    indexes=(("agent_id", "user_id"), ("user_id",), ("session_id",)),
    global_indexes=("expires_at",),
    opaque=("metadata", "context", "plan"),
    internal=INTERNAL,
)
CHECKPOINTS = Collection(
    name="checkpoints",
    id_field="checkpoint_id",
    fields={"task_id": "text", "agent_id": "text", "user_id": "text", "seq": "number"},
    order="seq",
    unique=(Unique("seq", ("task_id", "seq")),),
    indexes=(("task_id",), ("user_id",)),
    opaque=("state",),
    audited=False,
)

STATE = ("plan", "context", "scratchpad", "evidence", "status")
"""What a checkpoint keeps and a restore brings back."""


def counter(task_id: str) -> str:
    """Name of the counter of a task's checkpoints."""
    return f"checkpoints:{task_id}"
