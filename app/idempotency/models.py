from app.storage.collection import Collection

IDEMPOTENCY = Collection(
    name="idempotency_keys",
    id_field="claim_id",
    fields={"expires_at": "time"},
    everywhere=("expires_at",),
    opaque=("body",),
)
"""A claim on an idempotency key, and the answer once there is one."""
