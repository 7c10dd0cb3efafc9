"""What was derived from which stretch of a conversation, so that no stretch is learned from twice."""

from app.storage.collection import Collection

DERIVATIONS = Collection(
    name="derivations",
    id_field="derivation_id",
    fields={"agent_id": "text", "user_id": "text", "session_id": "text", "created_at": "time"},
    indexes=(("session_id",), ("user_id",)),
    opaque=("result",),
    audited=False,
)
"""The id is a hash of the sources, of the part that was learned and of the prompt's version."""
