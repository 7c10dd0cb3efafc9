"""People and agents as they are stored."""

from app.storage.collection import Collection, Unique

USERS = Collection(
    name="users",
    id_field="user_id",
    fields={"user_id": "text", "agent_id": "text", "created_at": "time"},
    opaque=("profile", "interactions"),
    internal=frozenset({"interacted"}),
)
AGENTS = Collection(
    name="agents",
    id_field="agent_id",
    fields={"agent_id": "text", "user_id": "text", "name": "text", "created_at": "time"},
    unique=(Unique("name", ("name",)),),
    everywhere=("created_at",),
    opaque=("settings", "experience"),
    asked_always=True,
)
