"""The TypeScript package as people get it: packed, installed into a fresh folder, compiled strictly, run by node.

Compilers and the AI SDK are those that `scripts/generators` installs; `scripts/test --all` runs their tests. Without
them these are skipped and say so.
"""

import filecmp
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import generate_clients as generator
from tests.clients.test_generators import NODE, tool
from tests.support.server import ROOT, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PACKAGE = ROOT / "clients" / "typescript"
TESTS = Path(__file__).parent / "typescript"
URL = "http://127.0.0.1:8000"
AI_VERSIONS = ("ai-5", "ai-6", "ai")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("typescript") / "data") as made:
        yield made


def run(*command: str, cwd: Path, **environment: str) -> str:
    """What a command prints. It must succeed."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} on this machine")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECALLD_")}
    ended = subprocess.run(
        command, cwd=cwd, env={**ours, **environment}, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout[-8000:]}{ended.stderr[-4000:]}"
    return ended.stdout


def install(folder: Path, *what: str) -> None:
    """`npm install`, which must not need the network: the package has no dependencies."""
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", *what, cwd=folder)


def packed(folder: Path) -> str:
    """The path of the file that `npm pack` makes."""
    run("npm", "pack", "--silent", str(PACKAGE), cwd=folder)
    (file,) = folder.glob("recalld-client-*.tgz")
    return str(file)


def new_project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has installed the packed file, and then installed once more, as each developer does."""
    folder = new_project(tmp_path_factory.mktemp("package") / "project")
    install(folder, packed(folder))
    install(folder)
    for test in (*TESTS.glob("*.mjs"), TESTS / "types.ts"):
        shutil.copy(test, folder)
    return folder


def readme() -> list[str]:
    """The README's TypeScript: daily use, an error, the AI SDK."""
    code = re.findall(r"```ts\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(code) == 3
    return [str(one) for one in code]


def url(server: Server) -> str:
    return str(server.client.base_url).rstrip("/")


def compiled(folder: Path, *files: str) -> None:
    """Compiles files with the options of `tsc --init`, which are strict."""
    tsc = tool(NODE, "tsc")
    (folder / "tsconfig.json").unlink(missing_ok=True)
    run(tsc, "--init", "--strict", cwd=folder)
    options = re.sub(r"//.*", "", (folder / "tsconfig.json").read_text())
    options = re.sub(r",(\s*[}\]])", r"\1", options)
    chosen = {**json.loads(options)["compilerOptions"], "noEmit": True}
    assert chosen["strict"] is True
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": chosen, "files": files}))
    run(tsc, "-p", ".", cwd=folder)


@pytest.mark.parametrize("linked", [True, False])
def test_it_survives_the_next_install(tmp_path: Path, linked: bool) -> None:
    folder = new_project(tmp_path / "project")
    install(folder, str(PACKAGE), f"--install-links={str(not linked).lower()}")
    imported = 'import { Recalld } from "recalld-client"; import "recalld-client/ai"; console.log(new Recalld().url)'
    for _ in range(2):
        assert run("node", "--input-type=module", "-e", imported, cwd=folder).strip() == URL
        install(folder)


def test_the_packed_file_has_what_it_needs_and_no_more(tmp_path: Path) -> None:
    run("npm", "pack", "--silent", str(PACKAGE), cwd=tmp_path)
    about = json.loads((PACKAGE / "package.json").read_text())
    assert about["version"] == "1.0.0"
    assert "dependencies" not in about
    listed = json.loads(run("npm", "pack", "--dry-run", "--json", str(PACKAGE), cwd=tmp_path))
    # newer npm answers an object by the package's name, older ones a list
    (package,) = listed.values() if isinstance(listed, dict) else listed
    names = {file["path"] for file in package["files"]}
    assert {"README.md", "LICENSE", "package.json", "schema.d.ts", "lib/index.js", "lib/ai.d.ts"} <= names
    assert all(name.startswith("lib/") or "/" not in name for name in names)


def test_the_readme_runs(server: Server, project: Path) -> None:
    daily, error, _ = (code.replace(URL, url(server)) for code in readme())
    (project / "daily.mjs").write_text(daily)
    said = run("node", "daily.mjs", cwd=project)
    assert said.startswith("I moved to Boston in May. 0.")
    assert "<recalld_context>" in said
    (project / "error.mjs").write_text(error)
    assert run("node", "error.mjs", cwd=project).strip() == "not_found"


@pytest.mark.parametrize("file", ["client.test.mjs", "transport.test.mjs"])
def test_daily_use_and_retries(server: Server, project: Path, file: str) -> None:
    said = run("node", "--test", file, cwd=project, RECALLD_URL=url(server))
    assert re.search(r"pass [1-9]", said)


@pytest.mark.release
def test_the_readme_and_the_types_compile_strictly(project: Path) -> None:
    for name, code in zip(("daily.ts", "error.ts"), readme(), strict=False):
        (project / name).write_text(code)
    compiled(project, "daily.ts", "error.ts", "types.ts")


@pytest.mark.release
@pytest.mark.parametrize("version", AI_VERSIONS)
def test_the_middleware_of_the_ai_sdk(server: Server, project: Path, version: str) -> None:
    folder = new_project(project.parent / version)
    modules = folder / "node_modules"
    modules.mkdir()
    (modules / "recalld-client").symlink_to(project / "node_modules" / "recalld-client")
    (modules / "ai").symlink_to(Path(tool(NODE.parent, version)))
    shutil.copy(TESTS / "ai.test.mjs", folder)
    said = run("node", "--test", "ai.test.mjs", cwd=folder, RECALLD_URL=url(server))
    assert re.search(r"pass [1-9]", said)
    (folder / "readme.ts").write_text(readme()[2])
    compiled(folder, "readme.ts")


BROWSER = """
import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";
const { fetch, AbortController, TransformStream, URLSearchParams, setTimeout, clearTimeout } = globalThis;
const context = createContext({ fetch, AbortController, TransformStream, URLSearchParams, setTimeout, clearTimeout });
runInContext(readFileSync("bundle.js", "utf8"), context);
const search = `new bundle.Recalld({ url: "${process.env.SERVICE}" }).user("nobody").search("tea")`;
console.log(JSON.stringify(await runInContext(search, context)));
"""


@pytest.mark.release
def test_it_runs_where_there_is_only_what_browsers_and_edge_runtimes_have(server: Server, project: Path) -> None:
    (project / "entry.js").write_text('export * from "recalld-client"; export * from "recalld-client/ai";')
    bundled = ("--bundle", "--platform=browser", "--format=iife", "--global-name=bundle", "--outfile=bundle.js")
    run(tool(NODE, "esbuild"), "entry.js", *bundled, cwd=project)
    (project / "browser.mjs").write_text(BROWSER)
    assert run("node", "browser.mjs", cwd=project, SERVICE=url(server)).strip() == "[]"


@pytest.mark.release
def test_what_is_committed_is_compiled_from_the_sources(tmp_path: Path) -> None:
    generator.compile_typescript(tmp_path, tool(NODE, "tsc"))
    found = filecmp.dircmp(tmp_path, PACKAGE / "lib")
    differing = [*found.left_only, *found.right_only, *found.diff_files]
    assert differing == [], "run scripts/generate_clients.py typescript"
