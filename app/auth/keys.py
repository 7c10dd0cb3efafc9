"""API keys: `rk_<id>_<secret>`, the secret kept as SHA-256 only. Revoked keys stay on record: a key was once made."""

import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from app.auth.models import API_KEYS
from app.auth.principal import VERBS, Principal
from app.clock import Clock, parse_rfc3339, rfc3339
from app.errors import Invalid, NotFound, Unauthorized, invalid
from app.storage.collection import CommitConflict, Doc, Insert, Store, Update
from app.storage.scope import SYSTEM, Scope

_KEY = re.compile(r"rk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_IDENTIFIER = re.compile(r"[A-Za-z0-9._:@-]{1,128}")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key's description. `agents` and `users` bind it; empty binds nothing."""

    tenant: str
    name: str
    verbs: Sequence[str]
    agents: Sequence[str] = ()
    users: Sequence[str] = ()
    lifetime: timedelta | None = None

    def check(self) -> None:
        """Raises Invalid, naming the field."""
        for pointer, values in (("/tenant", [self.tenant]), ("/agents", self.agents), ("/users", self.users)):
            if not all(_IDENTIFIER.fullmatch(value) for value in values):
                raise invalid(pointer, "must be 1 to 128 characters of A-Z a-z 0-9 . _ : @ -")
        if not self.name.strip():
            raise invalid("/name", "must not be empty")
        if not self.verbs or not set(self.verbs) <= set(VERBS):
            raise invalid("/verbs", f"must be some of {', '.join(VERBS)}")
        if self.lifetime is not None and self.lifetime <= timedelta(0):
            raise invalid("/expires", "must lie in the future")


class Keys:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def create(self, new: NewKey) -> tuple[str, Doc]:
        """The whole key, shown this once, and its record."""
        new.check()
        now = self._clock.now()
        key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        doc: Doc = {
            "tenant_id": SYSTEM,
            "key_id": key_id,
            "tenant": new.tenant,
            "name": new.name,
            "verbs": sorted(set(new.verbs)),
            "agents": sorted(set(new.agents)),
            "users": sorted(set(new.users)),
            "secret_sha256": _digest(secret),
            "expires_at": _after(now, new.lifetime),
            "revoked_at": None,
            "version": 1,
            "created_at": rfc3339(now),
            "updated_at": rfc3339(now),
        }
        await self._store.commit([Insert(API_KEYS, doc)])
        return f"rk_{key_id}_{secret}", public(doc)

    async def list(self, tenant: str | None = None) -> list[Doc]:
        docs: list[Doc] = []
        from_here = None
        while page := await self._store.find(API_KEYS, SYSTEM, order="asc", after=from_here, limit=100):
            docs += page
            from_here = API_KEYS.after(page[-1])
        return [public(doc) for doc in docs if tenant in (None, doc["tenant"])]

    async def revoke(self, key_id: str) -> Doc:
        """Takes effect with the next request. Raises NotFound. Revoking twice keeps the first time."""
        doc = await self._store.get(API_KEYS, SYSTEM, key_id)
        if doc is None:
            raise NotFound(f"There is no key {key_id}.")
        if doc["revoked_at"] is None:
            now = rfc3339(self._clock.now())
            change = Update(
                API_KEYS,
                SYSTEM,
                key_id,
                set={"revoked_at": now, "updated_at": now},
                inc={"version": 1},
                expect={"revoked_at": None},
            )
            try:
                await self._store.commit([change])
            except CommitConflict:
                return await self.revoke(key_id)
            doc |= {"revoked_at": now}
        return public(doc)

    async def any_made(self) -> bool:
        return bool(await self._store.find(API_KEYS, SYSTEM, limit=1))

    async def principal(self, key: str) -> Principal:
        """Raises Unauthorized, saying no more to one who guesses than to one who mistypes."""
        match = _KEY.fullmatch(key)
        doc = await self._store.get(API_KEYS, SYSTEM, match[1]) if match else None
        # compared even where there is no such key, so that time tells nothing
        same = hmac.compare_digest(_digest(match[2] if match else ""), doc["secret_sha256"] if doc else _digest("-"))
        if doc is None or not same or not self._alive(doc):
            raise Unauthorized("The API key is unknown, revoked or expired.")
        return Principal(
            doc["key_id"],
            frozenset(doc["verbs"]),
            Scope(doc["tenant"], frozenset(doc["agents"]) or None, frozenset(doc["users"]) or None, doc["key_id"]),
        )

    def _alive(self, doc: Doc) -> bool:
        expires = doc["expires_at"]
        return doc["revoked_at"] is None and (expires is None or parse_rfc3339(expires) > self._clock.now())


def public(doc: Doc) -> Doc:
    """A key's record without its secret's hash."""
    hidden = {"tenant_id", "secret_sha256", "key_id"}
    return {"id": doc["key_id"]} | {name: value for name, value in doc.items() if name not in hidden}


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _after(now: datetime, lifetime: timedelta | None) -> str | None:
    try:
        return None if lifetime is None else rfc3339(now + lifetime)
    except OverflowError:
        raise Invalid("expires: too far in the future") from None
