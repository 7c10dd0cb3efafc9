"""FastAPI dependencies of endpoints that write: the write executor and the `If-Match` precondition."""

from dataclasses import replace
from hashlib import blake2b
from typing import Annotated, Any

import orjson
from fastapi import Depends, Header, Request, Response

from app.audit.trail import Actor
from app.auth.dependencies import get_caller, header
from app.auth.keys import Principal
from app.errors import QuotaExceeded, invalid
from app.metrics import QUOTA_REFUSALS
from app.resources import Resources
from app.storage.changes import WithinQuota
from app.writes import executor as path
from app.writes.executor import IfMatch

_HEADERS = {
    "Idempotency-Key": "1–255 characters: sent again with the same body within 24 h, the first answer comes again.",
    "If-Match": "Only if the record is at this version (its ETag).",
}

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=255, description=_HEADERS["Idempotency-Key"]),
]
IfMatchHeader = Annotated[str | None, Header(alias="If-Match", description=_HEADERS["If-Match"])]


class WriteExecutor:
    """Runs the write handler of an endpoint and renders its result as a response."""

    def __init__(self, request: Request, principal: Principal, resources: Resources, key: str | None) -> None:
        self._request, self._caller, self._resources, self._key = request, principal, resources, key

    async def __call__(self, plan: path.WriteHandler, *, keyed: bool = True, frees: bool = False) -> Response:
        """Commits what `plan` returns. `keyed=False` ignores the idempotency key, as does any method but POST.
        `frees`: it is done whatever the quota says, as any DELETE, because it makes room or takes a right away."""
        keyed = keyed and self._key is not None and self._request.method == "POST"
        named = await self._named() if keyed else None
        actor = Actor(self._caller.scope.tenant, self._caller.key_id, self._request.scope["route"].name)
        allowed = plan if frees else self._within_quota(plan, keyed=keyed)
        try:
            answer = await path.write(self._resources.store, self._resources.clock, named, allowed, actor)
        except QuotaExceeded:
            QUOTA_REFUSALS.inc()
            raise
        if answer.body is None:
            return Response(None, answer.status, answer.headers)
        return Response(orjson.dumps(answer.body), answer.status, answer.headers, "application/json")

    def _within_quota(self, plan: path.WriteHandler, *, keyed: bool) -> path.WriteHandler:
        """Returns the handler with a check of the tenant's quotas. Deletions have none: they may store a note. `keyed`:
        the answer is stored, too, and may be large where nothing else changes."""
        quotas = self._resources.settings.quotas
        if self._request.method == "DELETE" or not (quotas.records or quotas.bytes):
            return plan
        check = WithinQuota(self._caller.scope.tenant, quotas.records, quotas.bytes)

        async def checked() -> path.WriteResult:
            outcome = await plan()
            stores = outcome.changes or keyed
            return replace(outcome, changes=[*outcome.changes, check]) if stores else outcome

        return checked

    async def _named(self) -> path.KeyedRequest:
        assert self._key is not None
        request, scope = self._request, self._caller.scope
        sent = f"{request.method}\0{request.scope['path']}\0".encode() + await request.body()
        fingerprint = blake2b(sent, digest_size=16).hexdigest()
        named = request.path_params.get("user_id")
        return path.KeyedRequest(
            scope.tenant, self._caller.lineage, self._key, fingerprint, () if named is None else (named,)
        )


async def write(request: Request, key: IdempotencyKey = None) -> WriteExecutor:
    """Returns the executor of this request. Raises Invalid if the idempotency key is not 1 to 255 characters long."""
    return _write(request, key)


def _write(request: Request, key: str | None) -> WriteExecutor:
    resources, principal = get_caller(request)
    if key is not None and not (1 <= len(key) <= 255):
        raise invalid("/header/Idempotency-Key", "must have 1 to 255 characters")
    return WriteExecutor(request, principal, resources, key)


Writer = Annotated[WriteExecutor, Depends(write)]


async def precondition(if_match: IfMatchHeader = None) -> IfMatch:
    """Returns the `If-Match` header as a precondition."""
    return IfMatch(if_match)


InPrecondition = Annotated[IfMatch, Depends(precondition)]


def writing(request: Request) -> tuple[WriteExecutor, IfMatch]:
    """Returns the executor and the precondition, for an endpoint that takes only its body and the request: resolving
    dependencies takes as long as a small write. Its route declares `WRITE_HEADERS`."""
    key, if_match = header(request, b"idempotency-key"), header(request, b"if-match")
    return _write(request, key), IfMatch(if_match)


WRITE_HEADERS: dict[str, Any] = {
    "parameters": [
        {
            "name": name,
            "in": "header",
            "required": False,
            "schema": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": text, "title": name},
            "description": text,
        }
        for name, text in _HEADERS.items()
    ]
}
"""The `openapi_extra` of a route whose endpoint calls `writing`."""
