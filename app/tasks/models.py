"""The collections of working memory: the state of a task, and its checkpoints as separate documents."""

from app.storage.schema import Collection, Unique

INTERNAL = frozenset({"kept_after_end"})
"""`kept_after_end` is true if the service, not the caller, set `expires_at` because the task ended."""
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
"""The parts of a task that a checkpoint stores and a restore sets back."""


def counter(task_id: str) -> str:
    """Returns the name of the counter that numbers a task's checkpoints."""
    return f"checkpoints:{task_id}"
