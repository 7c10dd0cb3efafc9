"""The pages of the service: `/` leads to the console, `/console/` is the console, `/docs` is the API page.

The files need no key. They hold no data: the pages ask the REST API, which asks for the key.
"""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from app import VERSION
from app.console.assets import Asset, Folder
from app.errors import NotFound
from app.settings import Settings

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
        found += [
            _route("/console", _to("console/")),
            _route("/console/{path:path}", _Page(Folder(STATIC / "console"), "index.html")),
        ]
    if settings.docs == "open":
        found += [
            _route("/docs", _Page(Folder(STATIC / "docs"), "index.html")),
            _route("/docs/{path:path}", _Page(Folder(STATIC / "docs"))),
        ]
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


class _Page:
    """The files of a folder. `index` is the file for the empty path."""

    def __init__(self, folder: Folder, index: str = "") -> None:
        self._folder, self._index = folder, index

    async def answer(self, request: Request) -> Response:
        asset = await self._folder.get(request.path_params.get("path") or self._index)
        if asset is None:
            raise NotFound("There is no such page.")
        return _response(asset, request)


def _response(asset: Asset, request: Request) -> Response:
    headers = HEADERS | {"ETag": asset.etag}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
