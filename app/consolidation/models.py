"""What derived work did, of which sources, and how to take it back."""

from app.storage.collection import Collection

DERIVATIONS = Collection(
    name="derivations",
    id_field="derivation_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "session_id": "text",
        "operation_id": "text",
        "undone": "flag",
        "created_at": "time",
    },
    indexes=(("session_id",), ("operation_id",), ("user_id",)),
    everywhere=("created_at",),
    opaque=("result", "undo"),
    audited=False,
)
"""Where something was learned, the id is a hash of the sources, of the part that was learned and of the prompt's
version: no source is learned from twice, also where what came of it was undone. `undo` says how to take it back, as
long as `operation_id` names the operation that did it and can be undone."""
