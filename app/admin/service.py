"""API keys and the audit trail: request and response bodies, and the rules."""

from datetime import timedelta
from typing import Annotated, cast

from pydantic import BaseModel, Field, with_config
from typing_extensions import TypedDict

from app.audit.tombstones import Tombstones
from app.audit.trail import AUDIT, AuditEntry, AuditRecord
from app.auth.keys import (
    ANONYMOUS,
    API_KEYS,
    UNAUTHENTICATED,
    VERBS,
    ApiKey,
    Keys,
    Made,
    NewKey,
    Principal,
    Verb,
    public,
)
from app.core import schemas as core
from app.errors import Forbidden
from app.settings import SettingInForce, Settings, in_force
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository, between, having
from app.storage.schema import Eq, Has, In, Or, both
from app.storage.scope import SYSTEM, Scope
from app.writes.executor import Precondition, WriteResult, etag

RateLimitField = Annotated[
    float, Field(strict=True, ge=0, le=1_000_000, description="0: no limit; null: as the setting says.")
]
Lifetime = Annotated[int, Field(strict=True, ge=1, le=10 * 366 * 86_400, description="In seconds."), core.WHOLE]


class KeyCreate(core.Schema):
    model_config = core.example({"name": "support bot", "verbs": ["read", "write"], "agents": ["support"]})

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
    verbs: Annotated[list[Verb], Field(min_length=1, description="Among those of the key that asks.")]
    agents: list[core.Identifier] = Field([], description="Binds the key to these agents; none: not bound.")
    users: list[core.Identifier] = Field([], description="Binds the key to these users; none: not bound.")
    expires_in: Lifetime | None = None
    requests_per_second: RateLimitField | None = None
    no_admin: core.Flag = Field(
        False, description="For the first key, made without a key: it need not administer, and no key may do so then."
    )


class KeyRotate(core.Schema):
    model_config = core.example({"overlap_seconds": 86400})

    overlap_seconds: Annotated[int, Field(strict=True, ge=0, le=90 * 86_400), core.WHOLE] = Field(
        86_400, description="How long the old key goes on; never longer than it would have."
    )
    expires_in: Lifetime | None = Field(None, description="Of the new key, in seconds; null: as long as the old one's.")


class KeyRevoke(core.Schema):
    model_config = core.example({"force": False})

    force: core.Flag = Field(False, description="Also the last key that administers the tenant.")


@core.shown
class CreatedKey(ApiKey):
    """A new key."""

    key: Annotated[str | None, Field(description="The whole key, this once: null where the answer comes again.")]


@core.shown
@with_config(
    core.example(
        {
            "tenant": "default",
            "key_id": "0123456789abcdef",
            "verbs": ["read"],
            "agents": ["support"],
            "users": ["ada"],
            "language_model": False,
        }
    )
)
class Caller(TypedDict):
    """What the calling key may do."""

    tenant: str
    key_id: Annotated[
        str, Field(description="Of the API key; `oidc:…`: a token; `anonymous` or `unauthenticated`: there was none.")
    ]
    verbs: list[Verb]
    agents: Annotated[list[str] | None, Field(description="The agents that the key is bound to; null: not bound.")]
    users: Annotated[list[str] | None, Field(description="The users that the key is bound to; null: not bound.")]
    language_model: Annotated[
        bool, Field(description="Whether the service has one: without, nothing is learned or summed up.")
    ]


@core.shown
class SettingsInForce(TypedDict):
    items: list[SettingInForce]
    next_cursor: Annotated[str | None, Field(default=None, description="Always null: this is all.")]


def settings_in_force(settings: Settings, principal: Principal) -> SettingsInForce:
    """Returns the settings, with the operator's addresses and paths to this machine while no key was ever made. Raises
    Forbidden for a caller with bindings."""
    if principal.scope.is_bound:
        raise Forbidden("A key that is bound to agents or users does not read the settings.")
    return {"items": in_force(settings, operator=principal.key_id == ANONYMOUS), "next_cursor": None}


def caller(principal: Principal, *, language_model: bool) -> Caller:
    """Returns what a caller may do, and whether a language model is configured."""
    scope = principal.scope
    return {
        "tenant": scope.tenant,
        "key_id": principal.key_id,
        "verbs": [verb for verb in VERBS if verb in principal.verbs],
        "agents": None if scope.agents is None else sorted(scope.agents),
        "users": None if scope.users is None else sorted(scope.users),
        "language_model": language_model,
    }


class KeyService:
    """Manages the keys of the caller's tenant. Raises Forbidden for a caller with bindings, since other keys are
    outside of its scope."""

    def __init__(self, store: Store, keys: Keys, principal: Principal) -> None:
        if principal.scope.is_bound:
            raise Forbidden("A key that is bound to agents or users does not administer keys.")
        self._store, self._keys, self._principal = store, keys, principal
        self._tenant = principal.scope.tenant

    async def page(self, listing: Listing) -> core.Page[ApiKey]:
        """Returns a page of keys. Reads all keys of the tenant, since there are few."""
        mine = tuple(key["id"] for key in await self._keys.list(self._tenant))
        all_keys = Repository(self._store, Scope(SYSTEM), API_KEYS)
        return await all_keys.listed(In("key_id", mine), listing, public, ApiKey, request=self._tenant)

    async def get(self, key_id: str) -> ApiKey:
        """Returns a key's record. Raises NotFound."""
        return public(await self._keys.find(key_id, self._tenant))

    async def create(self, body: KeyCreate) -> WriteResult[CreatedKey]:
        """Makes a key. Raises Forbidden if it would have verbs that the caller lacks, and Invalid if it is the first
        one and could not administer, unless the body says that none shall."""
        self._require_known_caller()
        if not set(body.verbs) <= self._principal.verbs:
            raise Forbidden("A key can only be given verbs of the key that makes it.")
        lifetime = None if body.expires_in is None else timedelta(seconds=body.expires_in)
        rights = body.model_dump(exclude={"expires_in", "no_admin"})
        new = NewKey(self._tenant, **rights, lifetime=lifetime)
        if self._principal.key_id == ANONYMOUS and not body.no_admin:
            await self._keys.refuse_lockout(new)
        return _once(self._keys.plan_create(new))

    async def rotate(self, key_id: str, body: KeyRotate, precondition: Precondition) -> WriteResult[CreatedKey]:
        """Replaces a key by a new one. Raises NotFound, Conflict, or Forbidden if the key has verbs that the caller
        lacks."""
        self._require_known_caller()
        key = await self._keys.find(key_id, self._tenant)
        precondition.check(key)
        if not set(key["verbs"]) <= self._principal.verbs:
            raise Forbidden("A key can only rotate keys with verbs of its own.")
        lifetime = None if body.expires_in is None else timedelta(seconds=body.expires_in)
        return _once(self._keys.plan_rotate(key, timedelta(seconds=body.overlap_seconds), lifetime))

    async def revoke(self, key_id: str, body: KeyRevoke, precondition: Precondition) -> WriteResult[ApiKey]:
        """Revokes a key. Raises NotFound, or LastAdminKey if the body does not force it."""
        self._require_known_caller()
        key = await self._keys.find(key_id, self._tenant)
        precondition.check(key)
        record, changes = await self._keys.plan_revoke(key, force=body.force)
        return WriteResult(record, changes, headers={"ETag": etag(record)})

    def _require_known_caller(self) -> None:
        """Raises Forbidden while authentication is off: anyone can call then, and a key made now would stay valid when
        it is on again."""
        if self._principal.key_id == UNAUTHENTICATED:
            raise Forbidden("While authentication is off keys are made, rotated and revoked by `recalld keys` only.")


def _once(made: Made) -> WriteResult[CreatedKey]:
    body: CreatedKey = {**made.record, "key": made.key}
    return WriteResult(body, made.changes, 201, {"ETag": etag(body)}, shown_once="key")


class AuditFilters(BaseModel):
    """Which entries a list of the audit trail shows, as the query string names them. None: any."""

    key_id: core.Identifier | None = None
    action: core.Identifier | None = Field(None, description="An operation's id, such as `create_memory`.")
    user_id: core.Identifier | None = None
    record_id: core.Identifier | None = Field(None, description="Any record's id.")
    since: core.Timestamp | None = None
    until: core.Timestamp | None = Field(None, description="Before this.")


async def audit_page(
    store: Store, scope: Scope, tombstones: Tombstones, filters: AuditFilters, listing: Listing
) -> core.Page[AuditEntry]:
    """Returns a page of the audit trail. The id of a user or a record also finds entries under its hash. Raises
    Forbidden for a caller with bindings, since the trail covers all users."""
    if scope.is_bound:
        raise Forbidden("A key that is bound to agents or users does not read the audit trail.")
    fields = filters.model_dump()
    parts = [having(fields, "key_id", "action")]
    if filters.user_id is not None:
        of_user, tombstone = Eq("user_id", filters.user_id), await tombstones.find(filters.user_id)
        parts.append(of_user if tombstone is None else Or((of_user, Eq("user_hash", tombstone["erased_id"]))))
    if (record := filters.record_id) is not None:
        names = [record, await tombstones.known(record)]
        parts.append(Or(tuple(Has("records", name) for name in names if name is not None)))
    where = both(*parts, between("created_at", filters.since, filters.until))
    return await Repository(store, scope, AUDIT).listed(where, listing, _shown_entry, AuditEntry, request=fields)


def _shown_entry(entry: AuditRecord) -> AuditEntry:
    return cast(AuditEntry, AUDIT.public(entry))
