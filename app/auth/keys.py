"""API keys and the principal that a key makes of its caller.

A key is `rk_<id>_<secret>`. The store holds the secret's SHA-256 only. Revoked keys stay on record.
"""

import hmac
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from typing import Annotated, Literal, cast

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.audit.trail import Actor, audit_entries
from app.core import schemas as core
from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.errors import Conflict, Forbidden, Invalid, LastAdminKey, NotFound, Unauthorized, invalid, no_such
from app.storage.changes import Change, CommitConflict, Insert, Update, total
from app.storage.protocol import Store
from app.storage.repository import pages
from app.storage.schema import BaseRecord, Collection
from app.storage.scope import SYSTEM, Scope

Verb = TypeAliasType("Verb", Literal["read", "write", "admin"])
VERBS: tuple[Verb, ...] = ("read", "write", "admin")
ANONYMOUS, UNAUTHENTICATED = "anonymous", "unauthenticated"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: its key, verbs and scope."""

    key_id: str
    """The id of the API key, or `anonymous` / `unauthenticated`."""
    lineage: str
    """The id that a key shares with the keys it was rotated to, so that a retry with the new key counts as a retry."""
    verbs: frozenset[str]
    scope: Scope
    requests_per_second: float | None = None
    """The limit of this key; None: the limit of the settings applies."""

    def require(self, verb: str) -> None:
        """Raises Forbidden if the key lacks the verb."""
        if verb not in self.verbs:
            raise Forbidden(f"This needs a key with the verb {verb}.")


@cache
def unauthenticated(name: str) -> Principal:
    """Returns a principal with all verbs for tenant `default`, for callers without a key."""
    return Principal(name, name, frozenset(VERBS), Scope("default"))


KeyId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", examples=["0123456789abcdef"])]


@core.shown
class ApiKey(TypedDict, total=False):
    """A key without its secret."""

    id: KeyId
    tenant: str
    name: str
    verbs: list[Verb]
    agents: list[str]
    users: list[str]
    requests_per_second: float | None
    expires_at: str | None
    revoked_at: str | None
    replaces: Annotated[str | None, Field(description="The key that this one was made in place of.")]
    replaced_by: str | None
    version: core.Count
    created_at: str
    updated_at: str


class KeyRecord(ApiKey, BaseRecord, total=False):
    """A document of the collection `api_keys`. `API_KEYS` explains its internal fields."""

    key_id: str
    secret_sha256: str
    lineage: str


API_KEYS: Collection[KeyRecord] = Collection(
    name="api_keys",
    id_field="key_id",
    fields={},
    internal=frozenset({"secret_sha256", "lineage"}),
    cached=True,
    counted=True,
    only_bytes=True,
    payer="tenant",
)
"""`tenant` is the tenant whose data the key opens; `lineage` is the id of the first key in its chain of rotations."""
_READ_KEYS = replace(API_KEYS, audited=False)
"""The same collection, for changes that only expect that a key is as it was read."""

PREFIX = "rk_"
_KEY = re.compile(r"rk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
COMMAND_LINE = "cli"


@dataclass(frozen=True, slots=True)
class NewKey:
    """The description of a key to make. `agents` and `users` bind the key to these; if empty, it is not bound."""

    tenant: str
    name: str
    verbs: Sequence[str]
    agents: Sequence[str] = ()
    users: Sequence[str] = ()
    lifetime: timedelta | None = None
    requests_per_second: float | None = None
    """None: the limit of the settings applies."""

    def checked(self) -> "NewKey":
        """Returns the description with composed ids. Raises Invalid with a pointer to the invalid field."""
        if not core.TENANT.fullmatch(self.tenant):
            raise invalid("/tenant", core.TENANT_RULE)
        agents, users = _composed("/agents", self.agents), _composed("/users", self.users)
        if not self.name.strip():
            raise invalid("/name", "must not be empty")
        if not self.verbs or not set(self.verbs) <= set(VERBS):
            raise invalid("/verbs", f"must be some of {', '.join(VERBS)}")
        if self.lifetime is not None and self.lifetime <= timedelta(0):
            raise invalid("/expires", "must lie in the future")
        return replace(self, agents=agents, users=users)


def _composed(pointer: str, ids: Sequence[str]) -> list[str]:
    try:
        return [core.identifier(text) for text in ids]
    except ValueError as error:
        raise invalid(pointer, str(error)) from None


@dataclass(frozen=True, slots=True)
class Made:
    """A new key in plain text (available only now), its public record, and the changes that store it."""

    key: str
    record: ApiKey
    changes: list[Change]


class Keys:
    """Makes, finds, rotates and revokes API keys. Methods named `plan_…` return changes; the others commit, for the
    command line."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def plan_create(self, new: NewKey, replaced: KeyRecord | None = None) -> Made:
        """Makes a key. `replaced` is the record of the key that it replaces. Raises Invalid."""
        new = new.checked()
        now = self._clock.now()
        key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        record: KeyRecord = {
            "tenant_id": SYSTEM,
            "key_id": key_id,
            "tenant": new.tenant,
            "name": new.name,
            "verbs": cast(list[Verb], sorted(set(new.verbs))),
            "agents": sorted(set(new.agents)),
            "users": sorted(set(new.users)),
            "requests_per_second": new.requests_per_second,
            "secret_sha256": _digest(secret),
            "expires_at": _after(now, new.lifetime),
            "revoked_at": None,
            "replaces": None if replaced is None else replaced["key_id"],
            "replaced_by": None,
            "lineage": key_id if replaced is None else replaced["lineage"],
            "version": 1,
            "created_at": rfc3339(now),
            "updated_at": rfc3339(now),
        }
        return Made(f"rk_{key_id}_{secret}", public(record), [Insert(API_KEYS, record)])

    async def create(self, new: NewKey) -> tuple[str, ApiKey]:
        """Stores a new key. Returns the key in plain text (available only now) and its public record."""
        made = self.plan_create(new)
        await self._commit(made.changes, new.tenant, "create_key")
        return made.key, made.record

    async def _commit(self, changes: Sequence[Change], tenant: str, action: str) -> None:
        actor = Actor(tenant, COMMAND_LINE, action)
        await self._store.commit([*changes, *audit_entries(actor, changes, rfc3339(self._clock.now()))])

    async def find(self, key_id: str, tenant: str | None = None) -> KeyRecord:
        """Returns the stored record, of the given tenant if there is one. Raises NotFound."""
        key = await self._store.get(API_KEYS, SYSTEM, key_id)
        if key is None or tenant not in (None, key["tenant"]):
            raise NotFound(f"There is no key {key_id}.") if tenant is None else no_such("key")
        return key

    async def plan_revoke(self, key: KeyRecord, *, force: bool = False) -> tuple[ApiKey, list[Change]]:
        """Returns the public record of the revoked key and the changes. If it was revoked before, there is no change:
        the first time is kept. Raises LastAdminKey without `force` if no other key would administer the tenant."""
        if key["revoked_at"] is not None:
            return public(key), []
        now = rfc3339(self._clock.now())
        record, changes = self._changed(key, {"revoked_at": now, "updated_at": now})
        if self._administers(key) and not force:
            others = [
                other
                async for other in self._stored(key["tenant"])
                if other["key_id"] != key["key_id"] and self._administers(other)
            ]
            if not others:
                raise LastAdminKey(
                    "No other key with the verb admin and without bindings is valid in this tenant. "
                    "Make one first, or revoke this one with force."
                )
            # two keys that revoke each other at once would both succeed if nothing were expected of the one that stays:
            # of several, the one that is valid for the longest time
            other = max(others, key=lambda other: (other["expires_at"] is None, other["expires_at"] or ""))
            changes.append(Update(_READ_KEYS, SYSTEM, other["key_id"], expect={"version": other["version"]}))
        return record, changes

    def _administers(self, key: KeyRecord) -> bool:
        return self._alive(key) and "admin" in key["verbs"] and not key["agents"] and not key["users"]

    def plan_rotate(self, key: KeyRecord, overlap: timedelta, lifetime: timedelta | None = None) -> Made:
        """Makes a key with the same rights and, by default, the same lifetime. The old key stays valid for `overlap`,
        but not beyond its own expiry. Raises Conflict if the old key is revoked, expired or already rotated."""
        if not self._alive(key) or key.get("replaced_by") is not None:
            raise Conflict("This key is revoked, expired, or was rotated before.")
        if lifetime is None and key["expires_at"] is not None:
            lifetime = parse_rfc3339(key["expires_at"]) - parse_rfc3339(key["created_at"])
        new = NewKey(
            key["tenant"],
            key["name"],
            key["verbs"],
            key["agents"],
            key["users"],
            lifetime,
            key.get("requests_per_second"),
        )
        made = self.plan_create(new, key)
        now = self._clock.now()
        ends = min(filter(None, (key["expires_at"], _after(now, overlap))))
        _, changes = self._changed(
            key, {"replaced_by": made.record["id"], "expires_at": ends, "updated_at": rfc3339(now)}
        )
        return Made(made.key, made.record, [*made.changes, *changes])

    def _changed(self, key: KeyRecord, fields: KeyRecord) -> tuple[ApiKey, list[Change]]:
        expect = {"version": key["version"]}
        change = Update(API_KEYS, SYSTEM, key["key_id"], set=fields, inc={"version": 1}, expect=expect)
        return public({**key, **fields, "version": key["version"] + 1}), [change]

    async def revoke(self, key_id: str, *, force: bool = False) -> ApiKey:
        """Revokes a key as of the next request. Revoking twice keeps the first time. Raises NotFound, and LastAdminKey
        without `force`."""
        while True:
            key = await self.find(key_id)
            record, changes = await self.plan_revoke(key, force=force)
            with suppress(CommitConflict):
                await self._commit(changes, key["tenant"], "revoke_key")
                return record

    async def rotate(self, key_id: str, overlap: timedelta, lifetime: timedelta | None = None) -> tuple[str, ApiKey]:
        """Stores a successor of a key. Returns the new key in plain text and its public record. Raises NotFound or
        Conflict."""
        key = await self.find(key_id)
        made = self.plan_rotate(key, overlap, lifetime)
        await self._commit(made.changes, key["tenant"], "rotate_key")
        return made.key, made.record

    async def refuse_lockout(self, new: NewKey) -> None:
        """Raises Invalid if this would be the first key of the store and could not administer: from then on every
        request needs a key, and none could make, rotate or revoke one over HTTP."""
        if ("admin" in new.verbs and not new.agents and not new.users) or await self.any_made():
            return
        raise invalid(
            "/verbs",
            "the first key must administer, since every request needs a key from then on: give it all verbs and no "
            "bindings (`--verbs read,write,admin`; over HTTP `verbs`). If none shall administer, say so "
            "(`--no-admin`; over HTTP `no_admin`)",
        )

    async def unopened(self) -> dict[str, int]:
        """Returns the tenants that hold records and that no valid key opens, with the numbers: `{"default": 12}`, what
        was stored before there was a key."""
        opened = {key["tenant"] async for key in self._stored(None) if self._alive(key)}
        held = {tenant: total(usage).records for tenant, usage in (await self._store.accounting.stored()).items()}
        return {tenant: records for tenant, records in held.items() if records and tenant not in opened}

    async def any_made(self) -> bool:
        """Returns True if the store has any key, revoked ones included."""
        return bool(await self._store.find(API_KEYS, SYSTEM, limit=1))

    async def principal(self, key: str) -> Principal:
        """Returns the principal of a key. Raises Unauthorized, with the same message for every cause."""
        match = _KEY.fullmatch(key)
        record = await self._store.get(API_KEYS, SYSTEM, match[1]) if match else None
        # compared even if there is no such key, so that the response time reveals nothing
        stored = record["secret_sha256"] if record else _digest("-")
        same = hmac.compare_digest(_digest(match[2] if match else ""), stored)
        if record is None or not same or not self._alive(record):
            raise Unauthorized("The API key is unknown, revoked or expired.")
        agents, users = frozenset(record["agents"]) or None, frozenset(record["users"]) or None
        return Principal(
            record["key_id"],
            record["lineage"],
            frozenset(record["verbs"]),
            Scope(record["tenant"], agents, users, record["key_id"]),
            record.get("requests_per_second"),
        )

    def _alive(self, key: KeyRecord) -> bool:
        expires = key["expires_at"]
        return key["revoked_at"] is None and (expires is None or parse_rfc3339(expires) > self._clock.now())

    async def list(self, tenant: str | None = None) -> list[ApiKey]:
        """Returns the public records of all keys, of the given tenant if there is one."""
        return [public(key) async for key in self._stored(tenant)]

    async def _stored(self, tenant: str | None) -> AsyncIterator[KeyRecord]:
        async for keys in pages(partial(self._store.find, API_KEYS, SYSTEM), API_KEYS, 100):
            for key in keys:
                if tenant in (None, key["tenant"]):
                    yield key


def public(key: KeyRecord) -> ApiKey:
    """Returns a key as answers show it, without its internal fields."""
    fields = API_KEYS.public(key)
    return cast(ApiKey, {"id": fields.pop("key_id"), **fields})


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _after(now: datetime, lifetime: timedelta | None) -> str | None:
    try:
        return None if lifetime is None else rfc3339(now + lifetime)
    except OverflowError:
        raise Invalid("expires: too far in the future") from None
