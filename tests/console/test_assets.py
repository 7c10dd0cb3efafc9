"""The files of the service's own pages over HTTP: headers, sizes, what leads where, and what is not served."""

import gzip
import hashlib
import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.routing import Route

from app.console.endpoints import STATIC, TYPES, ConsoleFiles, Modules, PageFiles
from app.errors import NoRoute
from app.settings import Settings
from tests.conftest import Starter
from tests.support.memories import problem
from tests.support.server import Server, serving

pytestmark = [pytest.mark.anyio, pytest.mark.before_store]
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 600_000
"""Bytes of the whole console, compressed."""
PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_the_start_leads_browsers_to_the_console_and_tells_others_in_json(api: httpx.AsyncClient) -> None:
    led = await api.get("/", headers=PAGE)
    assert (led.status_code, led.headers["location"], led.headers["vary"]) == (307, "console/", "Accept")
    told = (await api.get("/")).json()
    assert (told["name"], told["console"], told["docs"]) == ("Recalld", "/console/", "/docs")
    for place in ("console", "docs", "openapi", "ready"):
        assert (await api.get(told[place])).status_code == 200
    moved = await api.get("/console")
    assert (moved.status_code, moved.headers["location"]) == (307, "console/")


async def folder_of(api: httpx.AsyncClient) -> str:
    """Where the console's files are: `/console/0123456789abcdef`."""
    return f"/console/{version_in((await api.get('/console/')).text)}"


def version_in(page: str) -> str:
    (version,) = re.findall('src="([0-9a-f]{16})/start.js"', page)
    return str(version)


async def test_files_have_a_strict_policy_and_an_etag(api: httpx.AsyncClient) -> None:
    folder = await folder_of(api)
    kept = (f"{folder}/console.js", f"{folder}/vendor/preact.mjs")
    for path in ("/console/", "/docs", "/docs/swagger-ui.css", f"/console/{'0' * 16}/console.js", *kept):
        found = await api.get(path, headers={"accept-encoding": "identity"})
        assert found.status_code == 200
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        for_good = "public, max-age=31536000, immutable"
        assert found.headers["cache-control"] == (for_good if path in kept else "no-cache")
        again = await api.get(path, headers={"if-none-match": f'"other", W/{found.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["cache-control"] == found.headers["cache-control"]
        packed = await api.get(path, headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.content == found.content


async def test_only_files_of_known_types_inside_the_folder_are_served(api: httpx.AsyncClient) -> None:
    outside = ["..%2f..%2fendpoints.py", "%2e%2e/%2e%2e/libraries.json", "/etc/passwd", "%00.js", "x" * 5_000 + ".js"]
    folder = await folder_of(api)
    for name in (*outside, "vendor", "vendor/preact.d.mts", "nothing.js", ""):
        problem(await api.get(f"{folder}/{name}"), 404, "not_found")
    for name in (*outside, "console.js", "vendor/preact.mjs", folder.rpartition("/")[2], f"{'g' * 16}/console.js"):
        problem(await api.get(f"/console/{name}"), 404, "not_found")
    problem(await api.post(f"{folder}/console.js"), 405, "method_not_allowed")


async def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    root = tmp_path / "served"
    root.mkdir()
    (root / "page.js").write_text("1")
    (tmp_path / "outside.js").write_text("secret")
    (root / "link.js").symlink_to(tmp_path / "outside.js")
    app = Starlette(routes=[Route("/{path:path}", GZipMiddleware(PageFiles(root)))])
    app.add_exception_handler(NoRoute, lambda request, error: Response(status_code=404))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        first = await client.get("/page.js")
        (root / "page.js").write_text("two")
        second = await client.get("/page.js")
        assert (first.text, second.text) == ("1", "two")
        assert first.headers["etag"] != second.headers["etag"]
        assert (await client.get("/link.js")).status_code == 404
        (root / "page.js").unlink()
        assert (await client.get("/page.js")).status_code == 404


def test_a_page_names_all_that_its_modules_import(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("{version} {preloads} {imports} {icons}")
    modules = {
        "start.js": 'import { parse } from "./route.js";\nimport("./api.js");',
        "route.js": 'export const a = "./no.js";\n/** import("./no.js") */\n',
        "api.js": 'import createClient from "./vendor/a.mjs";',
        "console.js": 'import { b } from "./api.js";\nimport { c } from "./parts/c.js";',
        "parts/c.js": 'export {\n  useState, useEffect,\n} from "../vendor/b.mjs";',
        "pages/d.js": 'import "./e.js";\nimport { c } from "../parts/c.js";\nimport { f } from "../parts/f.js";',
        "pages/e.js": 'import { d } from "./d.js";\n',
        "parts/f.js": "",
        "vendor/a.mjs": 'import{a as b}from"./b.mjs";var c=1;',
        "vendor/b.mjs": "",
        "vendor/icons.svg": "<svg/>",
    }
    for name, text in modules.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = Modules(tmp_path, frozenset(modules))
    version, *links, imports, icons = made.index.split()
    assert (version, icons) == (made.version, "<svg/>")
    named = re.findall(f'href="{version}/(.+?)"', " ".join(links))
    assert set(named) == {"start.js", "route.js", "api.js", "vendor/a.mjs", "vendor/b.mjs", "console.js", "parts/c.js"}
    assert named[:2] == ["start.js", "route.js"]
    assert json.loads(imports) == {
        "pages/d.js": ["pages/d.js", "pages/e.js", "parts/f.js"],
        "pages/e.js": ["pages/e.js", "pages/d.js", "parts/f.js"],
    }
    (tmp_path / "parts/f.js").write_text("1")
    assert Modules(tmp_path, frozenset(modules)).version != version


async def test_an_edited_module_is_seen_at_once_and_kept_under_a_new_version_alone(tmp_path: Path) -> None:
    shutil.copytree(STATIC / "console", tmp_path / "console")
    files = ConsoleFiles(tmp_path / "console")
    app = Starlette(routes=[Route("/console/", files), Route("/console/{path:path}", files)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        before = await folder_of(client)
        first = await client.get(f"{before}/parts/bars.js")
        assert "immutable" in first.headers["cache-control"]
        assert await folder_of(client) == before
        (tmp_path / "console/parts/bars.js").write_text("// none")
        edited = await client.get(f"{before}/parts/bars.js")
        assert (edited.text, edited.headers["cache-control"]) == ("// none", "no-cache")
        assert "immutable" in (await client.get(f"{before}/ui.js")).headers["cache-control"]
        after = await folder_of(client)
        assert after != before
        again = await client.get(f"{after}/parts/bars.js")
        assert again.text == "// none"
        assert "immutable" in again.headers["cache-control"]


def test_each_file_has_one_name(port: Server) -> None:
    """Asked by raw paths: clients and proxies may send them as they are."""
    version = version_in(port.client.get("/console/").text)
    spellings = ["./console.js", "vendor/../console.js", "//console.js", "consol%65.js", "vendor//preact.mjs"]
    spellings += ["vendor/./preact.mjs", "index.html", "./", "console.js/", "CONSOLE.JS", "console.js%00"]
    asked = [f"/console/{version}/{name}" for name in spellings]
    asked += [f"/console/./{version}/console.js", f"/console//{version}/console.js", f"/console/{version}//console.js"]
    asked += [f"//console/{version}/console.js", "/docs/", "/docs/index.html", "/docs/./swagger-ui.js"]
    assert {path: status(port, path) for path in asked} == dict.fromkeys(asked, 404)
    assert [status(port, path) for path in ("/console/", f"/console/{version}/vendor/preact.mjs", "/docs")] == [200] * 3


def status(server: Server, path: str) -> int:
    address = server.client.base_url
    with socket.create_connection((address.host, address.port or 80)) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: {address.host}\r\nconnection: close\r\n\r\n".encode())
        return int(client.makefile("rb").readline().split()[1])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("served") / "data") as server:
        yield server


async def test_settings_shut_the_pages(start: Starter, settings: Settings) -> None:
    async with start(settings.model_copy(update={"console": "off"})) as service:
        problem(await service.client.get("/console/"), 404, "not_found")
        assert (await service.client.get("/", headers=PAGE)).headers["location"] == "docs"
    async with start(settings.model_copy(update={"console": "off", "docs": "off"})) as service:
        for path in ("/docs", "/docs/swagger-ui.js", "/openapi.json", "/console/console.js"):
            problem(await service.client.get(path), 404, "not_found")
        assert (await service.client.get("/", headers=PAGE)).json()["name"] == "Recalld"


def test_the_console_is_small_and_asks_nobody_else() -> None:
    files = [path for path in (STATIC / "console").rglob("*") if path.suffix in TYPES and path.suffix != ".txt"]
    assert len(files) > 20
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= LIMIT
    own = [path for path in files if path.parent.name != "vendor"]
    for path in own:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(src|href|from|import\()\s*=?\s*[\"'(]*(https?:)?//", text), path
        assert "innerHTML" not in text, path
        assert not re.search(r"<[a-z]+[^>]* (style=\"|on[a-z]+=\")", text), path
        assert "eval(" not in text, path


def test_vendored_files_are_those_of_the_record() -> None:
    record = json.loads((ROOT / "app/console/libraries.json").read_text())
    named = set()
    for name, library in record.items():
        assert library["version"]
        assert library["licence"] in {"MIT", "ISC", "Apache-2.0", "BSD-3-Clause", "MPL-2.0"}, name
        for file, digest in library["sha256"].items():
            path = ROOT / library["folder"] / file
            named.add(path)
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, path
    served = {path for path in (STATIC / "console/vendor").iterdir() if not path.name.endswith(".d.mts")}
    assert served <= named


def test_types_are_checked_with_the_versions_that_are_served() -> None:
    record = json.loads((ROOT / "app/console/libraries.json").read_text())
    checked = json.loads((ROOT / "tests/console/package.json").read_text())["dependencies"]
    assert {name: record[name]["version"] for name in checked if name in record} == {
        name: version for name, version in checked.items() if name != "typescript"
    }
