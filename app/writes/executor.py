"""The one write path: it claims the idempotency key, plans, commits, and plans again on a conflict."""

import asyncio
import random
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from app.audit.trail import Actor, entries
from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.errors import (
    Conflict,
    IdempotencyInProgress,
    IdempotencyMismatch,
    PreconditionFailed,
    RecalldError,
    StoreUnavailable,
)
from app.metrics import RECORDS
from app.storage.changes import Change, CommitConflict, Committed, Delete, Insert, Update, resolve
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Collection, Doc

IDEMPOTENCY = Collection(
    name="idempotency_keys",
    id_field="claim_id",
    fields={"expires_at": "time", "users": "list"},
    global_indexes=("expires_at",),
    opaque=("body",),
    audited=False,
)
"""A claim on an idempotency key, and the answer once there is one; `users` are those whom the answer is about."""


_TAG = re.compile(r'(W/)?"([^"]*)"')


@dataclass(frozen=True, slots=True)
class IfMatch:
    header: str | None

    def check(self, doc: Mapping[str, Any] | None) -> None:
        """Raises PreconditionFailed when the document is not at a version named, or is not there."""
        if self.header is None or (self.header.strip() == "*" and doc is not None):
            return
        tags = _TAG.findall(self.header) or [("", self.header.strip())]
        named = [version for weak, version in tags if not weak]  # a weak one matches nothing here
        if doc is None or str(doc["version"]) not in named:
            raise PreconditionFailed()


def etag(doc: Mapping[str, Any]) -> str:
    return f'"{doc["version"]}"'


ATTEMPTS = 64
LEASE = timedelta(seconds=30)
"""A crash blocks its key for so long. One that works longer renews it; one that could not, and lost it to another
request, commits nothing."""
KEPT = timedelta(hours=24)
_NOTHING = Committed({}, 0)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """An answer and the changes that make it true. The body may hold `Ref`s. No changes: nothing is to be written."""

    body: Any
    changes: Sequence[Change] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    shown_once: str | None = None
    """A field of the body that is not stored with it: null when the answer comes again."""
    users: frozenset[str] = frozenset()
    """Users whom the answer is about, where neither its body nor its changes name them."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    status: int
    headers: dict[str, str]
    body: Any


def changed(repository: Repository, doc: Doc, fields: Doc, render: Callable[[Doc], Doc], now: str) -> WriteResult:
    """The record as `fields` leave it, its version moved. Without any, nothing is written; a key that may not write it
    is refused all the same."""
    repository.require_write(doc)
    if not fields:
        return WriteResult(render(doc), headers={"ETag": etag(doc)})
    new = doc | fields | {"version": doc["version"] + 1, "updated_at": now}
    return WriteResult(render(new), [repository.update(doc, fields, now=now)], headers={"ETag": etag(new)})


WriteHandler = Callable[[], Awaitable[WriteResult]]


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """What an idempotency key is bound to: the first three name it, `fingerprint` is what it was sent with."""

    tenant: str
    lineage: str
    """Of the API key (`Principal.lineage`)."""
    key: str
    fingerprint: str
    users: Sequence[str] = ()
    """Whom the request names."""

    @property
    def claim_id(self) -> str:
        return blake2b(f"{self.lineage}\0{self.key}".encode(), digest_size=16).hexdigest()


def users_of(outcome: WriteResult) -> set[str]:
    """Whose records an answer is about: it goes with them."""
    found = {change.doc.get("user_id") for change in outcome.changes if isinstance(change, Insert)}
    found |= {change.user for change in outcome.changes if isinstance(change, Update | Delete)}
    shown = [outcome.body, *_items(outcome.body)]
    found |= {one.get("user_id") for one in shown if isinstance(one, dict)}
    return {user for user in found if isinstance(user, str)} | outcome.users


def _items(body: Any) -> Sequence[Any]:
    items = body.get("items") if isinstance(body, dict) else None
    return items if isinstance(items, list) else ()


_FREEING: set[asyncio.Task[None]] = set()


async def write(
    store: Store,
    clock: Clock,
    request: KeyedRequest | None,
    plan: WriteHandler,
    actor: Actor | None = None,
    lease: timedelta = LEASE,
) -> StoredAnswer:
    """`actor` is named in the audit trail. Raises what the plan raises, and Conflict where others win every race."""

    def audit_entries(outcome: WriteResult) -> Sequence[Change]:
        return entries(actor, outcome.changes, rfc3339(clock.now())) if actor is not None else ()

    if request is None:
        return await _attempt(store, plan, audit_entries)
    claim = _Claim(store, clock, request, lease)
    stored = await claim.take()
    if stored is not None:
        return stored
    renewing = asyncio.create_task(claim.renew(), context=Context())
    try:
        return await _attempt(store, plan, lambda outcome: [*audit_entries(outcome), *claim.mark_migrated(outcome)])
    except StoreUnavailable:  # freeing waits for the same store: the caller is told first, whose patience is over
        freeing = asyncio.create_task(claim.free(), context=Context())
        _FREEING.add(freeing)
        freeing.add_done_callback(_FREEING.discard)
        raise
    except BaseException:
        await asyncio.shield(claim.free())
        raise
    finally:
        renewing.cancel()


async def _attempt(store: Store, plan: WriteHandler, more: Callable[[WriteResult], Sequence[Change]]) -> StoredAnswer:
    for attempt in range(ATTEMPTS):
        outcome = await plan()
        changes = [*outcome.changes, *more(outcome)]
        try:
            committed = await store.commit(changes) if changes else _NOTHING
        except CommitConflict as conflict:
            if conflict.collection == IDEMPOTENCY.name:
                raise IdempotencyInProgress(
                    "Another request took over this idempotency key.", retry_after=1
                ) from conflict
            await asyncio.sleep(random.uniform(0, 0.002 * min(attempt, 10)))  # noqa: S311 (spreads retries)
            continue
        for change in outcome.changes:
            if isinstance(change, Insert):
                RECORDS.labels(change.collection.name).inc()
        return StoredAnswer(outcome.status, outcome.headers, resolve(outcome.body, committed.allocated))
    raise Conflict("The record is being changed by others too often; please try again.", retry_after=1)


class _Claim:
    def __init__(self, store: Store, clock: Clock, request: KeyedRequest, lease: timedelta) -> None:
        self._store, self._clock, self._request, self._lease = store, clock, request, lease
        self._token = secrets.token_hex(8)

    async def take(self) -> StoredAnswer | None:
        """The stored answer, or None: the key is ours now. Raises IdempotencyMismatch or IdempotencyInProgress."""
        while True:
            doc = await self._store.get(IDEMPOTENCY, self._request.tenant, self._request.claim_id)
            if doc is None:
                change: Change = Insert(IDEMPOTENCY, self._fresh())
            elif self._over(doc):
                change = Update(
                    IDEMPOTENCY, doc["tenant_id"], doc["claim_id"], set=self._fresh(), expect={"token": doc["token"]}
                )
            else:
                return self._stored(doc)
            try:
                await self._store.commit([change])
            except CommitConflict:
                continue
            return None

    def _fresh(self) -> Doc:
        now = self._clock.now()
        return {
            "tenant_id": self._request.tenant,
            "claim_id": self._request.claim_id,
            "token": self._token,
            "fingerprint": self._request.fingerprint,
            "answered": False,
            "leased_until": rfc3339(now + self._lease),
            "expires_at": rfc3339(now + KEPT),
            "created_at": rfc3339(now),
            "status": None,
            "headers": None,
            "body": None,
            "users": [],
        }

    def _over(self, doc: Doc) -> bool:
        until = doc["expires_at"] if doc["answered"] else doc["leased_until"]
        return parse_rfc3339(until) <= self._clock.now()

    def _stored(self, doc: Doc) -> StoredAnswer:
        if doc["fingerprint"] != self._request.fingerprint:
            raise IdempotencyMismatch("This Idempotency-Key was sent before with another method, path or body.")
        if not doc["answered"]:
            raise IdempotencyInProgress(retry_after=1)
        return StoredAnswer(doc["status"], {**doc["headers"], "Idempotency-Replayed": "true"}, doc["body"])

    async def renew(self) -> None:
        """Until cancelled, so that work that takes long (a language model's) keeps its key."""
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            until = {"leased_until": rfc3339(self._clock.now() + self._lease)}
            with suppress(RecalldError):  # one that was lost is found out by the commit
                await self._store.commit([self._ours(until)])

    def mark_migrated(self, outcome: WriteResult) -> Sequence[Change]:
        body = outcome.body if outcome.shown_once is None else {**outcome.body, outcome.shown_once: None}
        answer = {"answered": True, "status": outcome.status, "headers": outcome.headers, "body": body}
        answer["users"] = sorted({*self._request.users, *users_of(outcome)})
        return [self._ours(answer)]

    def _ours(self, fields: Doc) -> Update:
        """A change of the claim, made only while it is ours."""
        ours = {"token": self._token, "answered": False}
        return Update(IDEMPOTENCY, self._request.tenant, self._request.claim_id, set=fields, expect=ours)

    async def free(self) -> None:
        """A request that failed leaves its key unused. One that cannot be freed is, by its lease."""
        ours = {"token": self._token, "answered": False}
        try:
            await self._store.commit([Delete(IDEMPOTENCY, self._request.tenant, self._request.claim_id, ours)])
        except RecalldError:
            return
