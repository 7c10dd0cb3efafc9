"""The pages of the service: `/` leads to the console, `/console/` is the console, `/docs` is the API page.

Their files are static, and sent compressed, with an ETag. They need no key and hold no data: the pages ask the REST
API, which asks for the key. Addresses of the console's files have a version, `/console/0123456789abcdef/console.js`,
and browsers keep them; the page itself, which names the version, is asked for again.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import cache, cached_property
from http import HTTPStatus
from os import stat_result
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import ASGIApp, Scope

from app import VERSION
from app.console.modules import Modules, times
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
KEPT = "public, max-age=31536000, immutable"
INDEX = "index.html"
VERSION_OF_FILES = re.compile("[0-9a-f]{16}")


def routes(settings: Settings) -> list[Route]:
    """Returns the routes of the pages that the settings open. They are not part of the API's document."""
    opened = [_route("/", _start(settings))]
    if settings.console == "on":
        pages = _compressed(ConsoleFiles(STATIC / "console"))
        opened += [
            _route("/console", RedirectResponse("console/")),
            _route("/console/", pages),
            _route("/console/{path:path}", pages),
        ]
    if settings.docs == "open":
        pages = _compressed(PageFiles(STATIC / "docs"))
        opened += [_route("/docs", pages), _route("/docs/{path:path}", pages)]
    return opened


def _compressed(pages: ASGIApp) -> ASGIApp:
    """Returns the pages compressed as they are sent. The fastest level: anybody may ask for them, and for 1.7 MB of the
    API page it takes 15 ms of processor instead of 63, and 545 kB instead of 458."""
    return GZipMiddleware(pages, minimum_size=1, compresslevel=1)


def _route(path: str, endpoint: Callable[[Request], Awaitable[Response]] | ASGIApp) -> Route:
    return Route(path, endpoint, methods=["GET"], include_in_schema=False)


def _start(settings: Settings) -> Callable[[Request], Awaitable[Response]]:
    """Returns the endpoint of `/`: it leads a browser to the console, and tells other clients in JSON where things
    are."""
    places = {"name": "Recalld", "version": VERSION, "mcp": "/mcp", "ready": "/readyz"}
    if settings.docs == "open":
        places |= {"docs": "/docs", "openapi": "/openapi.json"}
    if settings.console == "on":
        places["console"] = "/console/"
    page = places.get("console") or places.get("docs")

    async def answer(request: Request) -> Response:
        if page is not None and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(page.lstrip("/"), headers={"Vary": "Accept"})
        return JSONResponse(places, headers={"Vary": "Accept"})

    return answer


@cache
def _names(folder: Path) -> frozenset[str]:
    """Returns the names of the files, read once in a process, which may make several applications. A link to outside is
    none of them."""
    inside = folder.resolve()
    files = (path for path in folder.rglob("*") if path.suffix in TYPES and path.is_file())
    files = (path for path in files if path.resolve().is_relative_to(inside))
    return frozenset(path.relative_to(folder).as_posix() for path in files) - {INDEX}


class PageFiles(StaticFiles):
    """The files of a folder, each under one name: `./console.js`, `vendor//preact.mjs` or a link to outside are none. A
    file that is new is seen after a restart. A route without a path is that of `INDEX`, which has no other name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder)
        self.names = _names(folder)

    def get_path(self, scope: Scope) -> str:
        """Returns the name of the file. Raises NoRoute where there is none of the name as it is spelled."""
        name: str | None = scope["path_params"].get("path")
        if name is None:
            return INDEX
        if name not in self.names or b"%" in scope.get("raw_path", b""):
            raise NoRoute("There is no such page.")
        return name

    def file_response(self, full_path: PathLike, stat_result: stat_result, *args: Any) -> Response:
        """Returns the file with our headers, or a 304."""
        response = super().file_response(full_path, stat_result, *args)
        response.headers.update(HEADERS)
        if response.status_code == HTTPStatus.OK:
            response.headers["content-type"] = TYPES[Path(full_path).suffix]
        return response


class ConsoleFiles(PageFiles):
    """The files of the console, each below a version of them all. A version of before leads to the file of now, without
    being kept: a tab that was opened before an update fetches a page's module later."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    @cached_property
    def modules(self) -> Modules:
        """The modules as their files were when the page was last asked for, or a file was first."""
        return Modules(self._folder, self.names)

    def get_path(self, scope: Scope) -> str:
        name: str | None = scope["path_params"].get("path")
        if name is None:
            return INDEX
        version, _, file = name.partition("/")
        if not VERSION_OF_FILES.fullmatch(version):
            raise NoRoute("There is no such page.")
        return super().get_path({**scope, "path_params": {"path": file}})

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path == INDEX:
            if self.modules.times != times(self._folder, self.names):
                del self.modules
            return self._answer(INDEX, self.modules.index.encode(), scope)
        version, _, _ = scope["path_params"]["path"].partition("/")
        if version != self.modules.version or not self.modules.holds(path):
            return await super().get_response(path, scope)
        response = self._answer(path, self.modules.texts[path], scope)
        response.headers["Cache-Control"] = KEPT
        return response

    def _answer(self, name: str, text: bytes, scope: Scope) -> Response:
        tag = hashlib.sha256(text).hexdigest()[:32]
        response = Response(text, headers={**HEADERS, "ETag": f'"{tag}"', "content-type": TYPES[Path(name).suffix]})
        changed = not self.is_not_modified(response.headers, Headers(scope=scope))
        return response if changed else NotModifiedResponse(response.headers)
