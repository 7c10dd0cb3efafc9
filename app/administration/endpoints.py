"""Keys and the audit trail over HTTP, for admin keys."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response

from app.administration import schemas
from app.administration.dependencies import InAudit, InKeys
from app.auth.dependencies import InResources
from app.http.listing import InListing, answer
from app.http.responses import BODY, problems
from app.http.route import StrictRoute
from app.idempotency.dependencies import InPrecondition, InWrite
from app.idempotency.precondition import etag
from app.schemas import Identifier, Page, Timestamp

ADMIN = {"x-verb": "admin"}
KeyId = Annotated[Identifier, Path(examples=["0123456789abcdef"])]
_AS_IT_IS = schemas.KeyRotate()

keys_router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=StrictRoute)
audit_router = APIRouter(prefix="/v1/audit", tags=["keys"], route_class=StrictRoute)


@keys_router.post(
    "", status_code=201, response_model=schemas.CreatedKey, responses=problems(412, *BODY), openapi_extra=ADMIN
)
async def create_key(body: schemas.KeyCreate, held: InResources, keys: InKeys, write: InWrite) -> Response:
    """Make a key for this tenant, with verbs that the calling key has itself. It is shown this once; the answer that is
    stored under an Idempotency-Key has null in its place."""
    made = await write(lambda: keys.create(body))
    await held.keyless.end()
    return made


@keys_router.get("", response_model=Page[schemas.ApiKey], responses=problems(), openapi_extra=ADMIN)
async def list_keys(keys: InKeys, listing: InListing) -> Response:
    """Every key that was ever made for this tenant, newest first."""
    return answer(await keys.page(listing))


@keys_router.get("/{key_id}", response_model=schemas.ApiKey, responses=problems(404), openapi_extra=ADMIN)
async def get_key(key_id: KeyId, keys: InKeys) -> Response:
    """A key without its secret."""
    key = await keys.get(key_id)
    return answer(key, {"ETag": etag(key)})


@keys_router.post(
    "/{key_id}/rotate",
    status_code=201,
    response_model=schemas.CreatedKey,
    responses=problems(404, 409, 412, *BODY),
    openapi_extra=ADMIN,
)
async def rotate_key(
    key_id: KeyId, keys: InKeys, write: InWrite, if_match: InPrecondition, body: schemas.KeyRotate = _AS_IT_IS
) -> Response:
    """Make a key of the same rights in place of this one, which goes on for the overlap."""
    return await write(lambda: keys.rotate(key_id, body, if_match))


@keys_router.post("/{key_id}/revoke", response_model=schemas.ApiKey, responses=problems(404, 412), openapi_extra=ADMIN)
async def revoke_key(key_id: KeyId, keys: InKeys, write: InWrite, if_match: InPrecondition) -> Response:
    """Take a key back: the next request with it is refused."""
    return await write(lambda: keys.revoke(key_id, if_match))


async def asked(
    key_id: Annotated[Identifier | None, Query()] = None,
    action: Annotated[Identifier | None, Query(description="An operation's id, such as `create_memory`.")] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
    record_id: Annotated[Identifier | None, Query(description="Any record's id.")] = None,
    since: Annotated[Timestamp | None, Query()] = None,
    until: Annotated[Timestamp | None, Query(description="Before this.")] = None,
) -> dict[str, Any]:
    return dict(locals())


@audit_router.get("", response_model=Page[schemas.AuditEntry], responses=problems(), openapi_extra=ADMIN)
async def list_audit(audit: InAudit, where: Annotated[dict[str, Any], Depends(asked)], listing: InListing) -> Response:
    """Who did what to which records, newest first. Each entry was committed with the change that it tells of."""
    return answer(await audit.page(where, listing))
