"""The collection of actions: what an agent did, and the outcome."""

from app.storage.schema import Collection, SearchSchema

INTERNAL = frozenset({"tenant_id", "content_hash", "consolidated_at"})
"""Fields that never leave the service. `consolidated_at` is the time when a job learned from the
action; unset before."""

ACTIONS = Collection(
    name="action_logs",
    id_field="action_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "task_id": "text",
        "event_type": "text",
        "action_type": "text",
        "outcome": "text",
        "entities": "list",
        "tags": "list",
        "timestamp": "time",
        "created_at": "time",
        "consolidated_at": "time",
    },
    order="timestamp",
    indexes=(
        ("agent_id", "user_id"),
        ("agent_id", "user_id", "consolidated_at"),
        ("agent_id", "action_type"),
        ("agent_id",),
        ("user_id",),
        ("session_id",),
        ("task_id",),
    ),
    global_indexes=("timestamp",),
    opaque=("action", "context", "metadata"),
    searched=SearchSchema(
        facets=("action_type", "event_type", "outcome", "entities", "tags", "session_id", "task_id"),
        ranges=("timestamp",),
        time=("timestamp",),
        anchor=("timestamp",),
    ),
    internal=INTERNAL,
)
