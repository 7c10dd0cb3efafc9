"""Whom a tenant has erased: a keyed hash of the id, and when. The id itself is nowhere."""

import hmac
import secrets
from hashlib import sha256

from app.audit.models import ERASED
from app.storage.collection import Change, CommitConflict, Doc, Insert, Store, Update

KEY = "key"


class Tombstones:
    def __init__(self, store: Store, tenant: str) -> None:
        self._store, self._tenant = store, tenant

    async def hashed(self, text: str) -> str:
        """HMAC-SHA256 under the tenant's own key, which is made where there is none."""
        return hmac.new(bytes.fromhex(await self._key()), text.encode(), sha256).hexdigest()

    async def _key(self) -> str:
        found = await self._store.get(ERASED, self._tenant, KEY)
        if found is None:
            made = {"tenant_id": self._tenant, "erased_id": KEY, "key": secrets.token_hex(32), "created_at": ""}
            try:
                await self._store.commit([Insert(ERASED, made)])
            except CommitConflict:
                return await self._key()
            return str(made["key"])
        return str(found["key"])

    async def setting(self, user_id: str, now: str) -> tuple[str, Change]:
        """The hash, and the change that notes the erasure; a second one moves its time."""
        erased_id = await self.hashed(user_id)
        if await self._store.get(ERASED, self._tenant, erased_id) is not None:
            return erased_id, Update(ERASED, self._tenant, erased_id, set={"erased_at": now}, inc={"times": 1})
        doc: Doc = {"erased_id": erased_id, "erased_at": now, "times": 1, "created_at": now}
        return erased_id, Insert(ERASED, {"tenant_id": self._tenant, **doc})

    async def erased_since(self, user_id: str, moment: str) -> bool:
        """What was read of the user at `moment` must not be written any more."""
        if await self._store.get(ERASED, self._tenant, KEY) is None:
            return False
        found = await self._store.get(ERASED, self._tenant, await self.hashed(user_id))
        return found is not None and found["erased_at"] >= moment
