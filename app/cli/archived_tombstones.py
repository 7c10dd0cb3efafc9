"""The tombstones in a tenant's archive: they come in where this machine's erasure key opens them."""

from collections.abc import Sequence
from pathlib import Path

import orjson

from app.audit.erasure_key import ErasureKey
from app.audit.models import ERASED
from app.audit.tombstones import KEY, Tombstones, unseal
from app.storage.collection import Doc
from app.storage.transfer import MovableStore, Record

_BEGINS = b'{"in":"' + ERASED.name.encode() + b'"'


class ArchivedTombstones:
    """`docs`: as the archive has them, the tenant's key included."""

    def __init__(self, docs: Sequence[Doc]) -> None:
        self._key = next((doc for doc in docs if doc["erased_id"] == KEY), None)
        self._docs = [doc for doc in docs if doc["erased_id"] != KEY]
        self._opened: dict[str, Doc] = {}

    @classmethod
    def of_file(cls, file: Path) -> "ArchivedTombstones":
        """Read before all else, wherever they stand in the file. A line that is broken is reported when its turn comes.
        Raises OSError."""
        docs = []
        with file.open("rb") as lines:
            for line in lines:
                if not line.startswith(_BEGINS):
                    continue
                try:
                    doc = orjson.loads(line)["doc"]
                    whole = isinstance(doc["erased_id"], str) and isinstance(doc["created_at"], str)
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    continue
                docs += [doc] if whole else []
        return cls(docs)

    def has(self, found: Doc) -> bool:
        """Whether a tombstone of the target is the archive's own: the user had come back before it was written."""
        ours = self._opened.get(found["erased_id"])
        return ours is not None and ours.get("erased_at") == found.get("erased_at")

    async def adopt(self, store: MovableStore, given: str, tenant: str, key: ErasureKey) -> int:
        """Stores those of the tenant `given` as those of `tenant`, under its key. Where another erasure key sealed
        theirs, or `tenant` has another key of its own, none comes in: how many stayed out."""
        if self._key is None:
            return 0
        tenant_key = self._tenant_key(self._key, given, key)
        if tenant_key is None or not await Tombstones(store, tenant, key).adopt_key(tenant_key):
            return len(self._docs)
        self._opened = {doc["erased_id"]: doc for doc in self._docs}
        await store.load(ERASED, [Record(doc | {"tenant_id": tenant}, None, "") for doc in self._docs])
        return 0

    @staticmethod
    def _tenant_key(doc: Doc, given: str, key: ErasureKey) -> bytes | None:
        try:
            if doc.get("key") is not None:  # an archive of an earlier version holds it as it is
                return bytes.fromhex(doc["key"])
            erasure_key = key.read()
            return None if erasure_key is None else unseal(erasure_key, given, doc)
        except (KeyError, TypeError, ValueError):
            return None
