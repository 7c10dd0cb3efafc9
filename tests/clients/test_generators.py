"""Clients that common generators make of the document, with their default options, do what the README does.

`scripts/generators` installs the generators. Where one is missing its test is skipped and says so; with
`RECALLD_TEST_GENERATORS=required`, as before a release, it fails.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.export_openapi import TARGET
from tests.support.server import ROOT, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(600)]

TOOLS = ROOT / ".venv-generators"
NODE = TOOLS / "node" / "node_modules" / ".bin"
FLOWS = Path(__file__).parent / "flows"
SAID = """kept Ada prefers tea preference {"a.b":1}
said 1 I moved to Boston in May.
found Ada prefers tea true
context true true
missing 404 not_found"""
NUMBERED = re.compile(r"[a-z](?:_?[0-9]+)$", re.IGNORECASE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("generators") / "data") as made:
        yield made


def tool(folder: Path, name: str) -> str:
    """The path of an installed generator."""
    path = folder / name
    if not path.exists():
        missing = f"{name} is not installed: run scripts/generators"
        if os.environ.get("RECALLD_TEST_GENERATORS") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    return str(path)


def run(*command: str, cwd: Path, **environment: str) -> str:
    """What a command prints. It must succeed."""
    path = f"{TOOLS / 'bin'}:{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}"
    return ended.stdout


def openapi_generator(language: str, folder: Path) -> None:
    """Generates with the generator's default options, but without documentation and stubs of tests."""
    only = "models,apis,supportingFiles,apiDocs=false,modelDocs=false,apiTests=false,modelTests=false"
    generate = ("generate", "-g", language, "-i", str(TARGET), "-o", str(folder), "--global-property", only)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it runs for seconds: compiling less takes half the time
    run(tool(TOOLS / "bin", "openapi-generator-cli"), *generate, cwd=TOOLS, JAVA_TOOL_OPTIONS=quick)


def url(server: Server) -> str:
    return str(server.client.base_url).rstrip("/")


def normal(printed: str) -> str:
    """Python and Go print some values in their own way."""
    return printed.strip().replace("{'a.b': 1}", '{"a.b":1}').replace("True", "true")


def test_openapi_generator_for_python(server: Server, tmp_path: Path) -> None:
    openapi_generator("python", tmp_path)
    models = [path.stem for path in (tmp_path / "openapi_client" / "models").glob("*.py")]
    assert len(models) > 150
    assert [name for name in models if NUMBERED.search(name) or "any_of" in name] == []
    shutil.copy(FLOWS / "openapi_generator.py", tmp_path)
    python = tool(TOOLS / "bin", "python")
    assert normal(run(python, "openapi_generator.py", cwd=tmp_path, RECALLD_URL=url(server))) == SAID


def test_openapi_generator_for_go(server: Server, tmp_path: Path) -> None:
    openapi_generator("go", tmp_path)
    (tmp_path / "flow").mkdir()
    shutil.copy(FLOWS / "openapi_generator.go", tmp_path / "flow" / "main.go")
    go = tool(TOOLS / "bin", "go")
    offline = {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    caches = {"GOCACHE": str(ROOT / ".cache" / "go-build"), "GOPATH": str(tmp_path / "path")}
    assert normal(run(go, "run", "./flow", cwd=tmp_path, RECALLD_URL=url(server), **offline, **caches)) == SAID


def test_openapi_generator_for_typescript(server: Server, tmp_path: Path) -> None:
    openapi_generator("typescript-fetch", tmp_path / "made")
    assert typescript("openapi_generator.ts", server, tmp_path) == SAID


def test_openapi_generator_for_ruby(server: Server, tmp_path: Path) -> None:
    """It runs where there is a Ruby with typhoeus, such as Debian's `ruby-typhoeus`: nothing here installs one."""
    ruby = shutil.which("ruby")
    if ruby is None or subprocess.run((ruby, "-rtyphoeus", "-e", ""), check=False, capture_output=True).returncode:
        pytest.skip("there is no Ruby with typhoeus")
    openapi_generator("ruby", tmp_path)
    said = run(ruby, "-Ilib", str(FLOWS / "openapi_generator.rb"), cwd=tmp_path, RECALLD_URL=url(server))
    assert said.strip() == SAID


def test_hey_api(server: Server, tmp_path: Path) -> None:
    run(tool(NODE, "openapi-ts"), "-i", str(TARGET), "-o", str(tmp_path / "made"), "--silent", cwd=TOOLS / "node")
    types = (tmp_path / "made" / "types.gen.ts").read_text()
    assert "export type MemoryType = 'fact' | 'preference'" in types
    assert [name for name in re.findall(r"export type (\w+)", types) if NUMBERED.search(name)] == []
    assert typescript("hey_api.ts", server, tmp_path) == SAID


def test_openapi_typescript(server: Server, tmp_path: Path) -> None:
    run(tool(NODE, "openapi-typescript"), str(TARGET), "-o", str(tmp_path / "made.d.ts"), cwd=tmp_path)
    assert typescript("openapi_typescript.ts", server, tmp_path) == SAID


def typescript(flow: str, server: Server, folder: Path) -> str:
    """What the flow prints, after a strict look at its types and at those of the generated client."""
    strict = {"strict": True, "noEmit": True, "skipLibCheck": True, "types": []}
    library = ["es2022", "dom", "dom.iterable"]
    kind = {"target": "es2022", "module": "esnext", "moduleResolution": "bundler", "lib": library}
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": {**strict, **kind}, "files": [flow]}))
    shutil.copy(FLOWS / flow, folder)
    (folder / "node_modules").symlink_to(TOOLS / "node" / "node_modules")
    run(tool(NODE, "tsc"), "-p", ".", cwd=folder)
    bundled = ("--bundle", "--format=esm", "--platform=node", "--outfile=flow.mjs")
    run(tool(NODE, "esbuild"), flow, *bundled, cwd=folder)
    return run("node", "flow.mjs", cwd=folder, RECALLD_URL=url(server)).strip()


def test_datamodel_codegen(server: Server, tmp_path: Path) -> None:
    generate = ("--input", str(TARGET), "--input-file-type", "openapi", "--output", "models.py")
    pydantic = ("--output-model-type", "pydantic_v2.BaseModel")
    run(tool(TOOLS / "bin", "datamodel-codegen"), *generate, *pydantic, cwd=tmp_path)
    classes = re.findall(r"^class (\w+)", (tmp_path / "models.py").read_text(), re.MULTILINE)
    assert len(classes) > 150
    assert [name for name in classes if NUMBERED.search(name)] == []
    shutil.copy(FLOWS / "datamodel.py", tmp_path)
    python = tool(TOOLS / "bin", "python")
    assert normal(run(python, "datamodel.py", cwd=tmp_path, RECALLD_URL=url(server))) == SAID
