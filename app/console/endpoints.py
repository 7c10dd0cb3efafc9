"""The pages of the service: `/` leads to the console, `/console/` is the console, `/docs` is the API page.

Their files are static, and sent compressed, with an ETag. They need no key and hold no data: the pages ask the REST
API, which asks for the key. Addresses of the console's files have a version, `/console/0123456789abcdef/console.js`,
and browsers keep them; the page itself, which names the version, is asked for again.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from functools import cache, cached_property
from http import HTTPStatus
from os import stat_result
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import ASGIApp, Scope

from app import VERSION
from app.errors import NoRoute
from app.settings import Settings

# --- The modules of the console and what each imports, as their import statements say it ------------------------------
# A browser learns of a module's imports when it has the module, so that each step of a chain of imports waits for an
# answer. The page that is sent names all modules of the frame, and the imports of the others, and so all are asked for
# at once: `preloads` and `imports` of `index.html`.

_IMPORT = re.compile(r"""^(?:import|export)\b(?:[^;"'=]*\bfrom)?\s*["'](\.[^"']+)["']""", re.MULTILINE)
"""`import { html } from "../ui.js"`, `import "./a.js"`, `export { html } from "./ui.js"`, at the start of a line. One
that is made while the page runs, `import("./a.js")`, is none."""
ICONS = "vendor/icons.svg"
FRAME = ("start.js", "api.js", "console.js")
"""What every page needs, in the order in which it is asked for. `start.js` runs first, then `api.js` asks who the
caller is."""


class Modules:
    """The modules of a folder as they are now.

    Args:
        folder: With the modules of the frame and `index.html`.
        names: The files that are served.

    Attributes:
        times: Of the files, as `times` returns them.
        texts: The files by their names.
    """

    def __init__(self, folder: Path, names: frozenset[str]) -> None:
        self._folder = folder
        self.times = times(folder, names)  # before they are read: one that changes meanwhile differs from its time
        self.texts = {name: (folder / name).read_bytes() for name in sorted(names)}
        self._index = (folder / "index.html").read_text(encoding="utf-8")

    @cached_property
    def version(self) -> str:
        """16 hexadecimal digits, others when a file changes. All addresses of modules begin with it, so that browsers
        keep each for good."""
        digest = hashlib.sha256()
        for name, text in self.texts.items():
            digest.update(f"{name} {len(text)}\n".encode() + text)
        return digest.hexdigest()[:16]

    @cached_property
    def index(self) -> str:
        """The page: `index.html` with the version, the modules of the frame, the imports of all others, and the icons.
        To draw a symbol of another file, a browser parses that file as a document first."""
        frame = dict.fromkeys(needed for name in FRAME for needed in self.needs(name))
        links = (f'<link rel="modulepreload" href="{self.version}/{name}">' for name in frame)
        others = {name: self.needs(name) for name in self.texts if name.startswith("pages/") and name not in frame}
        imports = {name: [needed for needed in needs if needed not in frame] for name, needs in others.items()}
        return (
            self._index.replace("{version}", self.version)
            .replace("{preloads}", "\n  ".join(links))
            .replace("{imports}", json.dumps(imports, separators=(",", ":")))
            .replace("{icons}", self.texts[ICONS].decode())
        )

    def holds(self, name: str) -> bool:
        """Returns whether the file is still as it was read."""
        try:
            return (self._folder / name).stat().st_mtime_ns == self.times[name]
        except FileNotFoundError:
            return False

    def needs(self, name: str) -> list[str]:
        """Returns the module and all that it imports, what is nearest to it first: `["a.js", "ui.js", "vendor/x.mjs"]`.
        Raises KeyError where a module imports a file that is not served."""
        needs = [name]
        for module in needs:
            places = _IMPORT.findall(self.texts[module].decode())
            imports = dict.fromkeys(_place(PurePosixPath(module).parent, place) for place in places)
            needs += [needed for needed in imports if needed not in needs]
        return needs


def times(folder: Path, names: frozenset[str]) -> dict[str, int]:
    """Returns when each file and `index.html` was changed last, in nanoseconds."""
    return {name: (folder / name).stat().st_mtime_ns for name in ("index.html", *names)}


def _place(folder: PurePosixPath, place: str) -> str:
    """Returns the name of a file: `_place("pages", "../ui.js")` is `ui.js`."""
    for part in place.split("/"):
        folder = folder.parent if part == ".." else folder / part
    return folder.as_posix()


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
