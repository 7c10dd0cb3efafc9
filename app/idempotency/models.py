from app.storage.collection import Collection

IDEMPOTENCY = Collection(
    name="idempotency_keys",
    id_field="claim_id",
    fields={"expires_at": "time", "users": "list"},
    everywhere=("expires_at",),
    opaque=("body",),
    audited=False,
)
"""A claim on an idempotency key, and the answer once there is one; `users` are those whom the answer is about."""
