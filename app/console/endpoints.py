"""The pages of the service: `/` leads to the console, `/console/` is the console, `/docs` is the API page.

Their files are static. Each is read once for each change, and sent compressed, with an ETag. They need no key and hold
no data: the pages ask the REST API, which asks for the key.
"""

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from app import VERSION
from app.errors import NoRoute
from app.settings import Settings

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""The types of files that are served, by the end of the name. Others are not found."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served."""

    content: bytes
    compressed: bytes
    """The content as gzip."""
    etag: str
    media_type: str


class Folder:
    """The files of a folder, each under one name: `./console.js`, `vendor//preact.mjs` or a link to outside are none.
    A file that changes on disk is read anew, so what is edited is what is served; one that is new is seen after a
    restart."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        files = (path for path in self._root.rglob("*") if path.suffix in TYPES and path.is_file())
        self._names = frozenset(path.relative_to(self._root).as_posix() for path in files)
        self._read: dict[str, tuple[tuple[int, int], Asset]] = {}

    async def get(self, name: str) -> Asset | None:
        """Returns the file, or None if there is none or it is not one that is served. `name` is a path inside the
        folder, with `/`."""
        return await asyncio.to_thread(self._get, name) if name in self._names else None

    def _get(self, name: str) -> Asset | None:
        path = self._root / name
        try:
            if not path.resolve().is_relative_to(self._root):
                return None
            status = path.stat()
        except OSError:  # it was deleted
            return None
        seen = status.st_mtime_ns, status.st_size
        known = self._read.get(name)
        if known is None or known[0] != seen:
            known = self._read[name] = seen, _asset(path.read_bytes(), TYPES[path.suffix])
        return known[1]


def _asset(content: bytes, media_type: str) -> Asset:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Asset(content, gzip.compress(content, mtime=0), etag, media_type)


STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: files of the service alone, no inline script and no inline style."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again by ETag: a new version of the service is seen at once
    "Vary": "Accept-Encoding",
}


def routes(settings: Settings) -> list[Route]:
    """Returns the routes of the pages that the settings open. They are not part of the API's document."""
    found = [_route("/", _Start(settings))]
    if settings.console == "on":
        pages = _Page(Folder(STATIC / "console"))
        found += [
            _route("/console", _to("console/")),
            _route("/console/", pages),
            _route("/console/{path:path}", pages),
        ]
    if settings.docs == "open":
        pages = _Page(Folder(STATIC / "docs"))
        found += [_route("/docs", pages), _route("/docs/{path:path}", pages)]
    return found


def _route(path: str, endpoint: "_Start | _Page | _Redirect") -> Route:
    return Route(path, endpoint.answer, methods=["GET"], include_in_schema=False)


class _Redirect:
    def __init__(self, to: str) -> None:
        self._to = to

    async def answer(self, _: Request) -> Response:
        return RedirectResponse(self._to, 307)


def _to(path: str) -> _Redirect:
    return _Redirect(path)


class _Start:
    """`/`: leads a browser to the console, and tells other clients in JSON where things are."""

    def __init__(self, settings: Settings) -> None:
        self._places = {"name": "Recalld", "version": VERSION, "mcp": "/mcp", "ready": "/readyz"}
        if settings.docs == "open":
            self._places |= {"docs": "/docs", "openapi": "/openapi.json"}
        if settings.console == "on":
            self._places["console"] = "/console/"

    async def answer(self, request: Request) -> Response:
        page = self._places.get("console") or self._places.get("docs")
        if page is not None and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(page.lstrip("/"), 307, {"Vary": "Accept"})
        return JSONResponse(self._places, headers={"Vary": "Accept"})


INDEX = "index.html"


class _Page:
    """The files of a folder. A route without a path is that of `INDEX`, which has no other name."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    async def answer(self, request: Request) -> Response:
        name = request.path_params.get("path")
        spelled_otherwise = name == INDEX or b"%" in request.scope.get("raw_path", b"")
        asset = None if spelled_otherwise else await self._folder.get(INDEX if name is None else name)
        if asset is None:
            raise NoRoute("There is no such page.")
        return _response(asset, request)


def _response(asset: Asset, request: Request) -> Response:
    headers = HEADERS | {"ETag": asset.etag}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
