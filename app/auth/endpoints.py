"""Metadata of the service as an OAuth 2.0 protected resource (RFC 9728): which issuer's tokens it accepts."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.auth.dependencies import METADATA, RESOURCES, base_url, resources_of

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


def routes() -> list[Route]:
    """Returns the routes. They need no key and are not part of the API's document."""
    return [
        Route(METADATA + path, protected_resource, methods=["GET"], name="protected_resource", include_in_schema=False)
        for path in RESOURCES
    ]
