"""The path of requests that write. `Writer`, the dependency of their endpoints, claims the idempotency key, runs the
write handler and commits. A conflict runs the handler again.

Not on it: a DELETE by filter, the erasure of a user and the note of an export in the audit trail, which their services
commit, the log of accesses, and jobs.
"""

import asyncio
import random
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import blake2b
from typing import Annotated, Any, Generic, TypeAlias

from fastapi import Depends, Header, Request
from typing_extensions import TypeVar

from app.api.strict import Answer
from app.api.strict import etag as etag  # as itself: services import it from here, since writes answer with it
from app.audit.trail import Actor, audit_entries
from app.auth.dependencies import get_caller
from app.auth.keys import Principal
from app.core.clock import Clock, parse_rfc3339, rfc3339
from app.core.schemas import TextWarning
from app.core.work import begin, characters, off_loop
from app.errors import (
    Conflict,
    IdempotencyInProgress,
    IdempotencyMismatch,
    PreconditionFailed,
    QuotaExceeded,
    RecalldError,
    StoreUnavailable,
    invalid,
)
from app.metrics import QUOTA_REFUSALS, RECORDS
from app.resources import Resources
from app.settings import QuotaSettings
from app.storage.changes import Change, CommitConflict, Committed, Delete, Insert, Update, WithinQuota, resolve
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import BaseRecord, Collection, R


class IdempotencyClaim(BaseRecord, total=False):
    """A document of the collection `idempotency_keys`."""

    claim_id: str
    token: str
    fingerprint: str
    answered: bool
    leased_until: str
    expires_at: str
    status: int | None
    headers: dict[str, str] | None
    body: Any
    users: list[str]


IDEMPOTENCY: Collection[IdempotencyClaim] = Collection(
    name="idempotency_keys",
    id_field="claim_id",
    fields={"expires_at": "time", "users": "list"},
    global_indexes=("expires_at",),
    opaque=("body",),
    audited=False,
    counted=True,
    only_bytes=True,
)
"""Claims on idempotency keys, each with the answer once there is one. `users` lists the users that the
answer is about."""


_TAG = re.compile(r'(W/)?"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Precondition:
    """What a request asks of the stored record. `header`: its `If-Match`, such as `"3"`; None if it was not sent.
    `only_new`: it has `If-None-Match: *`."""

    header: str | None
    only_new: bool = False

    def check(self, record: Mapping[str, object] | None) -> None:
        """Raises PreconditionFailed unless the header was not sent or names the record's current version (`*`: any),
        and if the record is there where it must not be."""
        if self.only_new and record is not None:
            raise PreconditionFailed("There is one already, and If-None-Match allows none.")
        if self.header is None or (self.header.strip() == "*" and record is not None):
            return
        tags = _TAG.findall(self.header) or [("", self.header.strip())]
        versions = [version for weak, version in tags if not weak]  # weak tags never match here
        if record is None or str(record.get("version")) not in versions:
            raise PreconditionFailed()


ATTEMPTS = 64
"""The number of times that a handler runs before repeated conflicts raise Conflict."""
LEASE = timedelta(seconds=30)
"""How long a key stays claimed after a crash. A request that works longer renews its lease. If it cannot, and another
request takes the key over, it commits nothing."""
KEPT = timedelta(hours=24)
"""How long an answer stays stored under its key."""
_NOTHING = Committed({}, 0)


A = TypeVar("A", default=Any)
"""What an answer shows, such as `Action`."""


@dataclass(frozen=True, slots=True)
class WriteResult(Generic[A]):
    """An answer and the changes that make it true. `body` is that of the answer, such as a `MemoryCreated`, and may
    contain `Ref`s. If there are no changes, nothing is written."""

    body: A
    changes: Sequence[Change] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    shown_once: str | None = None
    """The name of a body field that is not stored with the answer: it is null when the answer is replayed."""
    users: frozenset[str] = frozenset()
    """Users that the answer is about and that neither its body nor its changes name."""


@dataclass(frozen=True, slots=True)
class SentAnswer:
    """The answer as the caller gets it: `Ref`s are resolved. With an idempotency key it is stored, and sent again."""

    status: int
    headers: dict[str, str]
    body: Any


Shown = TypeVar("Shown", bound=Mapping[str, Any])


def changed(
    repository: Repository[R], record: R, fields: R, render: Callable[[R], Shown], now: str
) -> WriteResult[Shown]:
    """Updates the record with `fields`, raises its version and returns it rendered. Without fields nothing is written.
    Raises Forbidden if the key may not write the record, even without fields."""
    repository.require_write(record)
    if not fields:
        return WriteResult(render(record), headers={"ETag": etag(record)})
    new = repository.as_updated(record, fields, now=now)
    return WriteResult(render(new), [repository.update(record, fields, now=now)], headers={"ETag": etag(new)})


WriteHandler: TypeAlias = Callable[[], Awaitable[WriteResult[A]]]
"""Reads, decides and returns a `WriteResult`. It commits nothing, and it may run more than once."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key. `tenant`, `lineage` and `key` identify it; `fingerprint` hashes method, path
    and body."""

    tenant: str
    lineage: str
    """The lineage of the API key (`Principal.lineage`)."""
    key: str
    fingerprint: str
    users: Sequence[str] = ()
    """Users that the request names."""

    @property
    def claim_id(self) -> str:
        """The id of the claim: a hash of lineage and key."""
        return blake2b(f"{self.lineage}\0{self.key}".encode(), digest_size=16).hexdigest()


_FREEING: set[asyncio.Task[None]] = set()


def quota_of(limits: QuotaSettings, tenant: str) -> WithinQuota | None:
    """Returns what keeps a commit within the quotas of a tenant; None: there are none."""
    return WithinQuota(tenant, limits.records, limits.bytes) if limits.records or limits.bytes else None


async def run_write(
    store: Store,
    clock: Clock,
    keyed_request: KeyedRequest | None,
    handler: WriteHandler,
    actor: Actor | None = None,
    lease: timedelta = LEASE,
    quota: WithinQuota | None = None,
    warnings: Sequence[TextWarning] = (),
) -> SentAnswer:
    """Runs the handler and commits its result: its changes and the answer under the idempotency key, or neither.
    `actor` is named in the audit trail, `quota` may refuse the commit, and `warnings` go into the answer. Raises what
    the handler raises, QuotaExceeded, Conflict if other writers win every attempt, and IdempotencyMismatch or
    IdempotencyInProgress if the key is in use."""
    claim = None if keyed_request is None else _Claim(store, clock, keyed_request, lease)
    stored = None if claim is None else await claim.take()
    if stored is not None:
        return stored
    renewing = None if claim is None else begin(claim.renew(), "lease of an idempotency key")
    try:
        for attempt in range(ATTEMPTS):
            result = await handler()
            if warnings and isinstance(result.body, dict):  # their schema: `_warns` in app/api/openapi.py
                warned = {**result.body, "warnings": [*result.body.get("warnings", ()), *warnings]}
                result = replace(result, body=warned)
            changes = list(result.changes)
            if quota is not None and (changes or claim is not None):  # the stored answer counts, too, and may be large
                changes.append(quota)
            if actor is not None:
                changes += audit_entries(actor, result.changes, rfc3339(clock.now()))
            if claim is not None:
                changes.append(claim.store_answer(result))
            try:
                committed = await store.commit(changes) if changes else _NOTHING
            except CommitConflict as conflict:
                if conflict.collection == IDEMPOTENCY.name:
                    raise IdempotencyInProgress(
                        "Another request took over this idempotency key.", retry_after=1
                    ) from conflict
                await asyncio.sleep(random.uniform(0, 0.002 * min(attempt, 10)))  # noqa: S311 (spreads retries)
                continue
            for change in result.changes:
                if isinstance(change, Insert):
                    RECORDS.labels(change.collection.name).inc()
            body, numbers = result.body, committed.allocated
            if numbers:
                body = await off_loop(characters(body), resolve, body, numbers)
            return SentAnswer(result.status, result.headers, body)
        raise Conflict("The record is being changed by others too often; please try again.", retry_after=1)
    # Freeing the key needs the same unavailable store, so the caller is answered first and the key is freed later.
    except StoreUnavailable:
        if claim is not None:
            freeing = begin(claim.free(), "an idempotency key is freed")
            _FREEING.add(freeing)
            freeing.add_done_callback(_FREEING.discard)
        raise
    except BaseException:
        if claim is not None:
            await asyncio.shield(claim.free())
        raise
    finally:
        if renewing is not None:
            renewing.cancel()


class _Claim:
    """The claim of one request on its idempotency key."""

    def __init__(self, store: Store, clock: Clock, keyed_request: KeyedRequest, lease: timedelta) -> None:
        self._store, self._clock, self._keyed, self._lease = store, clock, keyed_request, lease
        self._token = secrets.token_hex(8)
        self._owned = {"token": self._token, "answered": False}

    async def take(self) -> SentAnswer | None:
        """Returns the stored answer, or None if the key is now claimed by this request.
        Raises IdempotencyMismatch or IdempotencyInProgress."""
        while True:
            claim, now = await self._store.get(IDEMPOTENCY, self._keyed.tenant, self._keyed.claim_id), self._clock.now()
            own: IdempotencyClaim = {
                "tenant_id": self._keyed.tenant,
                "claim_id": self._keyed.claim_id,
                "token": self._token,
                "fingerprint": self._keyed.fingerprint,
                "answered": False,
                "leased_until": rfc3339(now + self._lease),
                "expires_at": rfc3339(now + KEPT),
                "created_at": rfc3339(now),
                "status": None,
                "headers": None,
                "body": None,
                "users": [],
            }
            change: Change = Insert(IDEMPOTENCY, own)
            if claim is not None:
                # until the answer expires or, where there is none yet, the lease
                until = claim["expires_at"] if claim["answered"] else claim["leased_until"]
                if parse_rfc3339(until) > now:
                    return self._answer_in(claim)
                expect = {"token": claim["token"]}
                change = Update(IDEMPOTENCY, claim["tenant_id"], claim["claim_id"], set=own, expect=expect)
            with suppress(CommitConflict):
                await self._store.commit([change])
                return None

    def _answer_in(self, claim: IdempotencyClaim) -> SentAnswer:
        if claim["fingerprint"] != self._keyed.fingerprint:
            raise IdempotencyMismatch("This Idempotency-Key was sent before with another method, path or body.")
        status, headers = claim["status"], claim["headers"]
        if not claim["answered"] or status is None or headers is None:
            raise IdempotencyInProgress(retry_after=1)
        return SentAnswer(status, {**headers, "Idempotency-Replayed": "true"}, claim["body"])

    async def renew(self) -> None:
        """Renews the lease until cancelled, so that slow work (a language model's) does not lose its key."""
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            until = rfc3339(self._clock.now() + self._lease)
            with suppress(RecalldError):  # the commit detects a lost claim
                await self._store.commit([self._ours({"leased_until": until})])

    def store_answer(self, result: WriteResult) -> Change:
        """Returns the change that stores the answer, and the users whose records it is about: it is erased with any of
        them."""
        body = result.body
        items = body.get("items") if isinstance(body, dict) else None
        records = [body, *(items if isinstance(items, list) else ())]
        user_ids = {record.get("user_id") for record in records if isinstance(record, dict)}
        user_ids |= {change.doc.get("user_id") for change in result.changes if isinstance(change, Insert)}
        user_ids |= {change.user for change in result.changes if isinstance(change, Update | Delete)}
        users = {user_id for user_id in user_ids if isinstance(user_id, str)}
        return self._ours(
            {
                "answered": True,
                "status": result.status,
                "headers": result.headers,
                "body": body if result.shown_once is None else {**body, result.shown_once: None},
                "users": sorted({*self._keyed.users, *users, *result.users}),
            }
        )

    def _ours(self, fields: IdempotencyClaim) -> Update[IdempotencyClaim]:
        """Returns a change of the claim that applies only while this request owns the claim."""
        return Update(IDEMPOTENCY, self._keyed.tenant, self._keyed.claim_id, set=fields, expect=self._owned)

    async def free(self) -> None:
        """Deletes the claim of a failed request, so that the key can be used again. If this fails, the
        lease expires."""
        with suppress(RecalldError):
            await self._store.commit([Delete(IDEMPOTENCY, self._keyed.tenant, self._keyed.claim_id, self._owned)])


# --- What endpoints take: the writer of their request, and its `If-Match` --------------------------------------------

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="1–255 characters: sent again with the same body within 24 h, the first answer comes again.",
    ),
]
IfMatchHeader = Annotated[
    str | None, Header(alias="If-Match", description="Only if the record is at this version (its ETag).")
]


class RequestWriter:
    """Runs the write handler of an endpoint by the write executor, and renders its result as a response:
    `return await write(lambda: memories.patch(memory_id, body, precondition))`."""

    def __init__(self, request: Request, principal: Principal, resources: Resources, key: str | None) -> None:
        self._request, self._principal, self._resources, self._key = request, principal, resources, key

    async def __call__(
        self, handler: WriteHandler[A], *, keyed: bool = True, quota_exempt: bool = False, file: bytes | None = None
    ) -> Answer[A]:
        """Commits what the handler returns. `keyed=False` ignores the idempotency key, as does any method but POST.
        `file`: the digest of a body that was a file. `quota_exempt`: it is done whatever the quota says, as any DELETE,
        because it makes room or takes a right away."""
        request, tenant, keyed_request = self._request, self._principal.scope.tenant, None
        if keyed and self._key is not None and request.method == "POST":
            where = f"{request.method}\0{request.scope['path']}\0".encode()
            sent = where + (await request.body() if file is None else request.scope["query_string"] + file)
            fingerprint = blake2b(sent, digest_size=16).hexdigest()
            # POST /v1/users/{user_id}/issues: the body does not name the user
            user_id = request.path_params.get("user_id")
            users = () if user_id is None else (user_id,)
            keyed_request = KeyedRequest(tenant, self._principal.lineage, self._key, fingerprint, users)

        actor = Actor(tenant, self._principal.key_id, request.scope["route"].name)
        exempt = quota_exempt or request.method == "DELETE"
        quota = None if exempt else quota_of(self._resources.settings.quotas, tenant)
        try:
            answer = await run_write(
                self._resources.store,
                self._resources.clock,
                keyed_request,
                handler,
                actor,
                quota=quota,
                warnings=getattr(request, "warnings", ()),  # of `StrictRequest`: found in the texts of the body
            )
        except QuotaExceeded:
            QUOTA_REFUSALS.inc()
            raise
        return Answer(answer.body, answer.status, answer.headers)


async def request_writer(request: Request, key: IdempotencyKey = None) -> RequestWriter:
    resources, principal = get_caller(request)
    return RequestWriter(request, principal, resources, key)


Writer = Annotated[RequestWriter, Depends(request_writer)]


async def precondition(if_match: IfMatchHeader = None) -> Precondition:
    return Precondition(if_match)


InPrecondition = Annotated[Precondition, Depends(precondition)]


async def creation_precondition(
    if_match: IfMatchHeader = None,
    if_none_match: Annotated[
        str | None, Header(alias="If-None-Match", description="`*`: only if there is none yet.", examples=["*"])
    ] = None,
) -> Precondition:
    """Returns both headers as a precondition. Raises Invalid for any other `If-None-Match`: a new record has no
    version."""
    if if_none_match not in (None, "*"):
        raise invalid("/header/If-None-Match", "must be *, which allows a new record alone")
    return Precondition(if_match, only_new=if_none_match is not None)


InCreationPrecondition = Annotated[Precondition, Depends(creation_precondition)]
