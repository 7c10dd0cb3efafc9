"""HTTP endpoints for keys and the audit trail, which need an admin key, and for what the calling key may do.

Without a key, clients read which issuer's tokens are accepted: the metadata of an OAuth 2.0 protected resource
(RFC 9728).
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.admin import service
from app.api.errors import BODY, problems
from app.api.strict import Answer, InListing, StrictRoute, answer
from app.audit.tombstones import Tombstones
from app.audit.trail import AuditEntry
from app.auth.dependencies import METADATA, RESOURCES, InResources, base_url, get_caller, resources_of
from app.auth.keys import ApiKey, Keys
from app.core.schemas import Identifier, Page
from app.storage.changes import using_reserve
from app.writes.executor import InPrecondition, Writer


async def key_service(request: Request) -> service.KeyService:
    resources, principal = get_caller(request)
    return service.KeyService(resources.store, Keys(resources.store, resources.clock), principal)


InKeys = Annotated[service.KeyService, Depends(key_service)]


ADMIN = {"x-verb": "admin"}
KeyIdPath = Annotated[Identifier, Path(examples=["0123456789abcdef"])]
_AS_IT_IS = service.KeyRotate()
_UNFORCED = service.KeyRevoke()

keys_router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=StrictRoute)
caller_router = APIRouter(prefix="/v1/whoami", tags=["keys"], route_class=StrictRoute)
settings_router = APIRouter(prefix="/v1/settings", tags=["keys"], route_class=StrictRoute)
audit_router = APIRouter(prefix="/v1/audit", tags=["keys"], route_class=StrictRoute)


@keys_router.post("", status_code=201, responses=problems(412, *BODY), openapi_extra=ADMIN)
async def create_key(
    body: service.KeyCreate, resources: InResources, keys: InKeys, write: Writer
) -> Answer[service.CreatedKey]:
    """Make a key for this tenant, with verbs that the calling key has itself. It is shown this once; the answer that is
    stored under an Idempotency-Key has null in its place."""
    result = await write(lambda: keys.create(body))
    await resources.keyless.end()
    return result


@keys_router.get("", responses=problems(), openapi_extra=ADMIN)
async def list_keys(keys: InKeys, listing: InListing) -> Answer[Page[ApiKey]]:
    """List every key that was ever made for this tenant, newest first."""
    return answer(await keys.page(listing))


@keys_router.get("/{key_id}", responses=problems(404), openapi_extra=ADMIN)
async def get_key(key_id: KeyIdPath, keys: InKeys) -> Answer[ApiKey]:
    """Get a key without its secret."""
    return answer(await keys.get(key_id))


@keys_router.post(
    "/{key_id}/rotate",
    status_code=201,
    responses=problems(404, 409, 412, *BODY),
    openapi_extra=ADMIN,
)
async def rotate_key(
    key_id: KeyIdPath, keys: InKeys, write: Writer, precondition: InPrecondition, body: service.KeyRotate = _AS_IT_IS
) -> Answer[service.CreatedKey]:
    """Make a key of the same rights in place of this one, which goes on for the overlap."""
    return await write(lambda: keys.rotate(key_id, body, precondition))


@keys_router.post(
    "/{key_id}/revoke",
    responses=problems(404, 409, 412, *BODY),
    openapi_extra=ADMIN,
)
async def revoke_key(
    key_id: KeyIdPath, keys: InKeys, write: Writer, precondition: InPrecondition, body: service.KeyRevoke = _UNFORCED
) -> Answer[ApiKey]:
    """Take a key back: the next request with it is refused. The last valid key that administers the tenant (verb
    `admin`, no bindings) is revoked only with `force`; otherwise the answer is 409 `last_admin_key`."""
    with using_reserve():  # a full disk must not keep a key valid
        return await write(lambda: keys.revoke(key_id, body, precondition), quota_exempt=True)


@caller_router.get("", responses=problems())
async def whoami(request: Request) -> Answer[service.Caller]:
    """Get what the calling key may do: its tenant, verbs and bindings."""
    resources, principal = get_caller(request)
    return answer(service.caller(principal, language_model=resources.llm is not None))


@settings_router.get("", responses=problems(), openapi_extra=ADMIN)
async def list_settings(request: Request, resources: InResources) -> Answer[service.SettingsInForce]:
    """List the settings of the process that answers. Secrets, and addresses and paths of the operator's, are not
    shown."""
    return answer(service.settings_in_force(resources.settings, get_caller(request)[1]))


@audit_router.get("", responses=problems(), openapi_extra=ADMIN)
async def list_audit(
    request: Request, listing: InListing, where: Annotated[service.AuditFilters, Query()]
) -> Answer[Page[AuditEntry]]:
    """List who did what to which records, newest first. Each entry was committed with the change that it tells of."""
    resources, principal = get_caller(request)
    tombstones = Tombstones.of(resources.store, resources.settings, principal.scope.tenant)
    return answer(await service.audit_page(resources.store, principal.scope, tombstones, where, listing))


BASIC = frozenset({"read", "write"})
"""The rights whose scopes a client asks for unless it knows better."""


async def protected_resource(request: Request) -> Response:
    """Returns the metadata of the path that follows."""
    resources = resources_of(request)
    oidc = resources.settings.oidc
    path = request.scope["path"].removeprefix(METADATA)
    pairs = [pair.rpartition("=") for pair in oidc.scopes.split()]
    return JSONResponse(
        {
            "resource": base_url(request, resources) + path,
            "resource_name": "Recalld",
            "authorization_servers": [oidc.issuer],
            "scopes_supported": list(dict.fromkeys(scope for scope, _, right in pairs if right in BASIC)),
            "bearer_methods_supported": ["header"],
        }
    )


def metadata_routes() -> list[Route]:
    """Returns the routes of the metadata. They need no key and are not part of the API's document."""
    return [
        Route(METADATA + path, protected_resource, methods=["GET"], name="protected_resource", include_in_schema=False)
        for path in RESOURCES
    ]
