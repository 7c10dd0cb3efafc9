"""Who did what, and of whom nothing may come back, as they are stored."""

from app.storage.collection import Collection

AUDIT = Collection(
    name="audit",
    id_field="audit_id",
    fields={
        "user_id": "text",
        "user_hash": "text",
        "key_id": "text",
        "action": "text",
        "records": "list",
        "created_at": "time",
    },
    indexes=(("user_id",),),
    everywhere=("created_at",),
    opaque=("changes",),
    audited=False,
)
"""One entry for each user that a commit touched. No content: ids and counts. Of one who was erased, `user_hash` stands
for the id, and hashes for the ids that callers chose."""

ERASED = Collection(name="erased_users", id_field="erased_id", fields={}, audited=False)
"""By keyed hash of the user's id: `status` is begun or erased. One more document holds the tenant's key, sealed by the
erasure key, which is not in the store."""
