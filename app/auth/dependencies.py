"""Who is calling: the key or token of a request, and requests without one.

Requests without an API key are served only while no key was ever made for the store. A marker file remembers it.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypedDict
from urllib.parse import urlsplit

from fastapi import Depends, Request

from app.auth.keys import ANONYMOUS, PREFIX, UNAUTHENTICATED, Keys, Principal, unauthenticated
from app.core.caches import kept
from app.core.files import write_private
from app.core.work import charge, charge_to
from app.errors import Forbidden, RecalldError, TokenExpired, Unauthorized
from app.resources import Resources
from app.settings import is_address, is_loopback

FILE_NAME = "keys-made"

log = logging.getLogger(__name__)


class KeysMade:
    """The marker file, for one store."""

    def __init__(self, directory: Path, store: str) -> None:
        """`store` is the name of the store in use."""
        self.file = directory / FILE_NAME
        self._store = store
        self._seen: tuple[int, int, int] | None = None
        self._named = False

    def names_store(self) -> bool:
        """Returns True if keys were made for the store, or if the file exists but cannot be read.
        Reads the file only when it has changed."""
        try:
            status = self.file.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        seen = status.st_ino, status.st_mtime_ns, status.st_size
        if seen != self._seen:
            stores = self._read()
            self._named, self._seen = stores is None or self._store in stores, seen
        return self._named

    def note(self) -> None:
        """Adds the store to the file. Logs a warning if the file cannot be written; the key is made nevertheless."""
        stores = self._read() or frozenset()
        if self._store in stores:
            return
        try:
            write_private(self.file, json.dumps({"stores": sorted({*stores, self._store})}))
        except OSError as error:
            log.warning(
                "the file that says that API keys were made cannot be written: if the store is lost, "
                "a new one will serve this machine without a key",
                extra={"file": str(self.file), "error": error.strerror},
            )

    def way_out(self) -> str:
        """Returns advice for an operator whose store has no key although the file names the store."""
        return (
            "API keys were made for this store, but it holds none: it is lost, emptied or another one. Put it back, or "
            "`recalld restore` a backup of it (no recalld.db may lie in the directory). To begin anew on purpose, make "
            f"a key with `recalld keys create`, or delete {self.file}."
        )

    def _read(self) -> frozenset[str] | None:
        """Returns the names of the stores, an empty set if there is no file, or None if it cannot be read."""
        try:
            return frozenset(map(str, json.loads(self.file.read_bytes())["stores"]))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, TypeError, KeyError):
            return None


class KeylessAccess:
    """Decides whether this process serves requests without a key. Once a key was seen, it never does again, even if the
    store loses its keys while the process runs."""

    def __init__(self, keys: Keys, marker: KeysMade) -> None:
        self._keys, self._marker = keys, marker
        self.ended = False

    async def allowed(self) -> bool:
        """Returns True if requests without a key are served. Reads the store only while no key was seen.
        Raises StoreUnavailable."""
        if self.ended:
            return False
        if await self._keys.any_made():
            await self.end()
            return False
        return not self._marker.names_store()

    async def lost(self) -> bool:
        """Returns True if keys were made for this store but it has none now. Raises StoreUnavailable."""
        if await self._keys.any_made():
            await self.end()
            return False
        return self._marker.names_store()

    async def end(self) -> None:
        """Ends access without a key, because a key was seen or made, and records it in the marker file."""
        self.ended = True
        await asyncio.to_thread(self._marker.note)


class RequestState(TypedDict, total=False):
    """What `scope["state"]` of a request holds."""

    request_id: str
    """Set by `RequestLayer` (`app/api/middleware.py`)."""
    resources: Resources
    """Set by the lifespan."""
    admitted: Principal
    """The caller of an MCP tool, whose call is an internal request (`app/mcp/transport.py`)."""
    principal: Principal
    """The authenticated caller. Set by `StrictRoute` (`app/api/strict.py`)."""


def state_of(request: Request) -> RequestState:
    """Returns the state of the request. Reads the scope, since `request.state` raises and catches an AttributeError for
    each lookup."""
    state: RequestState = request.scope["state"]
    return state


def resources_of(request: Request) -> Resources:
    return state_of(request)["resources"]


async def _resources(request: Request) -> Resources:
    """The same as a dependency. FastAPI would run `resources_of`, which is no coroutine, in a thread."""
    return resources_of(request)


def get_caller(request: Request) -> tuple[Resources, Principal]:
    """Returns the resources and the principal that the route class has set: one lookup instead of one dependency for
    each."""
    state = state_of(request)
    return state["resources"], state["principal"]


InResources = Annotated[Resources, Depends(_resources)]

BY_MODEL = "x-recalld-by-model"
"""The header of a client whose calls a model chooses, such as `recalld mcp` in front of a remote service: they write no
rules, unless `RECALLD_MCP_INSTRUCTIONS=on`. It only takes rights away."""

_HOST = re.compile(r"(?:\[(.+)\]|([^\[\]:]*))(?::\d*)?")


_PLAIN_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")


async def authenticate(request: Request) -> Principal:
    """Returns the principal of a request. Raises Unauthorized, Forbidden or RateLimited. Routes call it before they
    read a body."""
    admitted = state_of(request).get("admitted")
    if admitted is not None:  # an internal call of an MCP tool: the tool's caller was authenticated and counted
        return admitted
    resources = resources_of(request)
    principal = await identify(request, count_wrong=True)
    resources.limiter.check(principal.key_id, principal.requests_per_second)
    charge_to(resources.costs.admit(principal.key_id))  # the account of the key, or RateLimited
    charge(1)
    return principal


async def identify(request: Request, *, count_wrong: bool = False) -> Principal:
    """Returns the principal of a request as it is now, without counting it towards a limit of the key. `count_wrong`: a
    wrong key counts towards the limit of its address. Raises Unauthorized, Forbidden or RateLimited."""
    principal, settings = await _identified(request, count_wrong=count_wrong), resources_of(request).settings
    if settings.mcp_instructions == "on" or header(request, BY_MODEL.encode()) is None:
        return principal
    return replace(principal, scope=replace(principal.scope, rules=False))


async def _identified(request: Request, *, count_wrong: bool) -> Principal:
    resources = resources_of(request)
    if resources.settings.auth == "off":
        check_host(request)
        check_origin(request)
        return unauthenticated(UNAUTHENTICATED)
    try:
        principal = await _by_key(request, resources)
    except Unauthorized as error:
        # clients renew a token that has expired, and a limit would keep them from it
        if count_wrong and not isinstance(error, TokenExpired):
            resources.wrong_keys.count(_peer(request))
        error.challenge = challenge(request, resources, wrong=True)
        if resources.tokens is None and await resources.keyless.allowed():
            error.detail = (
                f"{error.detail} No key was ever made here: send none, or make one with `recalld keys create`."
            )
        raise
    if principal is not None:
        return principal
    if resources.tokens is not None or not await resources.keyless.allowed():
        needed = Unauthorized("Send your API key as `Authorization: Bearer rk_…` or `X-API-Key`.")
        needed.challenge = challenge(request, resources)
        raise needed
    if not _from_this_machine(request):
        raise Forbidden("Without an API key the service answers this machine only: `recalld keys create` makes one.")
    check_origin(request)
    return unauthenticated(ANONYMOUS)


def still_admitted(request: Request) -> Callable[[], Awaitable[bool]]:
    """Returns the check that a long answer makes before each part that it sends: whether the caller may still do what
    it was let in for. It may not once its key is revoked or its key or token has expired, or once the key is bound to
    others. Where the store cannot say, it may not either: clients come back. The check counts towards no limit."""
    admitted = get_caller(request)[1]

    async def check() -> bool:
        try:
            now = await identify(request)
        except RecalldError:
            return False
        return now.scope == admitted.scope and now.verbs >= admitted.verbs

    return check


async def while_admitted(request: Request, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the parts of a long answer for as long as the caller is admitted, and ends in the middle then."""
    check = still_admitted(request)
    async for part in parts:
        if not await check():
            return
        yield part


async def _by_key(request: Request, resources: Resources) -> Principal | None:
    """Returns the principal of the key or token, or None if there is none. Raises Unauthorized for a wrong one.

    An empty one is none: clients without a key send `Authorization: Bearer`, as openapi-generator's for Ruby do."""
    scheme, _, token = (header(request, b"authorization") or "").partition(" ")
    if scheme and scheme.lower() != "bearer":
        raise Unauthorized("Use the scheme Bearer in the header Authorization.")
    given = token.strip() or header(request, b"x-api-key")
    if not given:
        return None
    if resources.tokens is not None and not given.startswith(PREFIX):
        principal: Principal = await resources.tokens.principal(given)
        return principal
    principal = await Keys(resources.store, resources.clock).principal(given)
    if not resources.keyless.ended:
        await resources.keyless.end()
    return principal


METADATA = "/.well-known/oauth-protected-resource"
"""Where clients read which issuer's tokens are accepted (RFC 9728), followed by the path that they call."""
RESOURCES = ("", "/mcp")
"""The paths with metadata of their own. MCP clients compare the address in it with the one that they call."""


def base_url(request: Request, resources: Resources) -> str:
    """Returns the address by which the client reaches the service, without a path."""
    if resources.settings.public_url:
        return resources.settings.public_url
    host = header(request, b"host") or ""
    return f"{request.scope['scheme']}://{host if _PLAIN_HOST.fullmatch(host) else 'localhost'}"


def challenge(request: Request, resources: Resources, *, wrong: bool = False) -> str:
    """Returns the header WWW-Authenticate of a 401: where a client reads how to get a token."""
    if resources.tokens is None:
        return "Bearer"
    path = request.scope["path"] if request.scope["path"] in RESOURCES else ""
    parts = ['error="invalid_token"'] if wrong else []
    return "Bearer " + ", ".join([*parts, f'resource_metadata="{base_url(request, resources)}{METADATA}{path}"'])


def has_key(request: Request) -> bool:
    """Returns whether a request has an API key or a token, be it right or wrong."""
    return header(request, b"authorization") is not None or header(request, b"x-api-key") is not None


def header(request: Request, name: bytes) -> str | None:
    """Returns the first header of that name (in lower case) or None. Faster than `request.headers.get`, which builds a
    mapping for each request."""
    for given, value in request.scope["headers"]:
        if given == name:
            return str(value, "latin-1")
    return None


def _called(request: Request) -> list[str]:
    """Returns the names by which a request calls the service: of its headers `Host`, or `localhost` if it has none.
    Reads the headers themselves, since `request.url` substitutes the server's address for an invalid name."""
    hosts = [str(value, "latin-1") for name, value in request.scope["headers"] if name == b"host"]
    return [_name(host) for host in hosts] or ["localhost"]


def check_host(request: Request) -> None:
    """Raises Forbidden for a request without authentication that calls the service by a name that nobody gave it. A web
    page can point its own name at this address, and its requests are then of the same origin.

    A service on a loopback address is called by a loopback name. On another address an IP address is taken as well: it
    is no name that somebody else could point here. Further names are those of RECALLD_ALLOWED_HOSTS.
    """
    settings = resources_of(request).settings
    for host in _called(request):
        by_address = not settings.loopback and is_address(host)
        if not (is_loopback(host) or by_address or settings.hosts & {host, "*"}):
            raise Forbidden(
                "Without authentication the service is not called by this name (the header Host): "
                "RECALLD_ALLOWED_HOSTS names those that it may be called by."
            )


def check_origin(request: Request) -> None:
    """Raises Forbidden for a request from a page of another site: it must not reach a service on its visitor's machine.

    Browsers send `Origin` or, where they omit that (an image, a link), `Sec-Fetch-Site`. Other clients send neither.
    Origins that the operator named may pass; `*` names none.
    """
    origin = header(request, b"origin")
    if origin is None:
        if (header(request, b"sec-fetch-site") or "none") not in ("none", "same-origin"):
            raise Forbidden("A web page of another site may not call this service (the header Sec-Fetch-Site).")
    elif origin not in resources_of(request).settings.origins and not _own_page(origin, header(request, b"host")):
        raise Forbidden("A web page of another site may not call this service (the header Origin).")


def _own_page(origin: str, host: str | None) -> bool:
    """Returns True for an origin of this service or of this machine."""
    try:
        given = urlsplit(origin)
    except ValueError:
        return False
    return given.scheme in ("http", "https") and (given.netloc == host or is_loopback(_name(given.netloc)))


FORWARDING = re.compile(
    rb"via|cdn-loop|forwarded|x-forwarded.*|x-real-ip|.*client-?ip|.*connecting-ip|cf-.*|x-envoy-.*|x-amzn-.*"
)
"""Names of headers that proxies, tunnels and load balancers add (`Via`, `X-Forwarded-For`, `CF-Connecting-IP`).
Whatever they say, the request comes from elsewhere."""


def _from_this_machine(request: Request) -> bool:
    """Returns True if the peer and the `Host` header are both local and no proxy stands between. A foreign web page may
    point its own name at 127.0.0.1, and a proxy on this machine may serve everybody. Clients send one `Host`: where
    there are two, one of them is the address that a proxy was asked for."""
    if any(FORWARDING.fullmatch(name) for name, _ in request.scope["headers"]):
        return False
    hosts = _called(request)
    return is_loopback(_peer(request)) and len(hosts) == 1 and is_loopback(hosts[0])


def _peer(request: Request) -> str:
    """Returns the address of the client: of the connection, or what a trusted proxy says of it."""
    peer = request.scope.get("client")
    return peer[0] if peer else ""


@kept(1 << 20, longest=255)
def _name(host: str) -> str:
    """Returns the name in a `Host` header, without its port; empty if it is none."""
    given = _HOST.fullmatch(host)
    return (given[1] or given[2]).lower() if given else ""
