"""API keys as they are stored. They belong to no tenant's data: the store keeps them under `SYSTEM`."""

from app.storage.collection import Collection

API_KEYS = Collection(
    name="api_keys",
    id_field="key_id",
    fields={},
    internal=frozenset({"secret_sha256", "lineage"}),
    asked_always=True,
)
"""`tenant` is whose data the key opens; `lineage` the id of the first key of its chain of rotations."""
