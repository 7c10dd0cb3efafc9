"""The collection of registered agents. It is declared below `profiles`, which serves it, since the decay of an agent's
memories is among its settings."""

from app.storage.schema import Collection, Unique

AGENTS = Collection(
    name="agents",
    kind="agent",
    counted=True,
    id_field="agent_id",
    fields={"agent_id": "text", "user_id": "text", "name": "text", "created_at": "time"},
    unique=(Unique("name", ("name",)),),
    global_indexes=("created_at",),
    opaque=("settings", "experience"),
    cached=True,
)
