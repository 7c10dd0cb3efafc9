"""FastAPI dependencies of endpoints that write: the writer and the `If-Match` precondition."""

from hashlib import blake2b
from typing import Annotated

from fastapi import Depends, Header, Request

from app.api.strict import Answer
from app.audit.trail import Actor
from app.auth.dependencies import get_caller
from app.auth.keys import Principal
from app.errors import QuotaExceeded
from app.metrics import QUOTA_REFUSALS
from app.resources import Resources
from app.storage.changes import WithinQuota
from app.writes import executor
from app.writes.executor import A, IfMatch

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
    `return await write(lambda: memories.patch(memory_id, body, if_match))`."""

    def __init__(self, request: Request, principal: Principal, resources: Resources, key: str | None) -> None:
        self._request, self._caller, self._resources, self._key = request, principal, resources, key

    async def __call__(
        self, handler: executor.WriteHandler[A], *, keyed: bool = True, frees: bool = False
    ) -> Answer[A]:
        """Commits what the handler returns. `keyed=False` ignores the idempotency key, as does any method but POST.
        `frees`: it is done whatever the quota says, as any DELETE, because it makes room or takes a right away."""
        keyed = keyed and self._key is not None and self._request.method == "POST"
        keyed_request = await self._keyed_request() if keyed else None
        actor = Actor(self._caller.scope.tenant, self._caller.key_id, self._request.scope["route"].name)
        limits, quota = self._resources.settings.quotas, None
        if (limits.records or limits.bytes) and not frees and self._request.method != "DELETE":
            quota = WithinQuota(actor.tenant, limits.records, limits.bytes)
        try:
            answer = await executor.run_write(
                self._resources.store, self._resources.clock, keyed_request, handler, actor, quota=quota
            )
        except QuotaExceeded:
            QUOTA_REFUSALS.inc()
            raise
        return Answer(answer.body, answer.status, answer.headers)

    async def _keyed_request(self) -> executor.KeyedRequest:
        assert self._key is not None
        request, scope = self._request, self._caller.scope
        sent = f"{request.method}\0{request.scope['path']}\0".encode() + await request.body()
        fingerprint = blake2b(sent, digest_size=16).hexdigest()
        user_id = request.path_params.get("user_id")
        users = () if user_id is None else (user_id,)
        return executor.KeyedRequest(scope.tenant, self._caller.lineage, self._key, fingerprint, users)


async def request_writer(request: Request, key: IdempotencyKey = None) -> RequestWriter:
    """Returns the writer of this request."""
    resources, principal = get_caller(request)
    return RequestWriter(request, principal, resources, key)


Writer = Annotated[RequestWriter, Depends(request_writer)]


async def precondition(if_match: IfMatchHeader = None) -> IfMatch:
    """Returns the `If-Match` header as a precondition."""
    return IfMatch(if_match)


InPrecondition = Annotated[IfMatch, Depends(precondition)]
