"""The tests, the READMEs and the types of integrations/ with the frameworks themselves, in an environment of their own.

`scripts/frameworks` installs it. Without it the tests are skipped and say so; with
`RECALLD_TEST_FRAMEWORKS=required`, as before a release, they fail.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.frameworks import INTEGRATIONS, PACKAGES, PYTHON, PYTHONPATH, blocks, needed, noted, printed
from tests.support.scripted import ScriptedServer, scripted_server
from tests.support.server import ROOT, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(600)]

READMES = {
    "langchain": "['I live in Boston.', 'Noted.']\nI live in Boston.\n",
    "langgraph": "drink\n['music']\n",
    "openai_agents": "Noted.\n['I live in Boston.', 'Noted.']\n",
    "pydantic_ai": "Noted.\n['I live in Boston.', 'Noted.']\n",
}
"""What the code of each README prints, with a model that says "Noted."."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("frameworks") / "data") as made:
        yield made


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with scripted_server(noted) as made:
        yield made


def run(*arguments: str, cwd: Path, **settings: str) -> str:
    """What a module of the frameworks' Python prints. It must succeed."""
    needed()
    ended = subprocess.run(
        [str(PYTHON), "-m", *arguments],
        env={**os.environ, **settings},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    return ended.stdout


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_it_works_with_its_framework(package: Path, server: Server) -> None:
    pytest_alone = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(package), "-rs")
    url = str(server.client.base_url)
    said = run("pytest", *pytest_alone, "tests", cwd=package, RECALLD_URL=url, PYTHONPATH=PYTHONPATH)
    assert " passed" in said
    assert "skipped" not in said, said[-2000:]


@pytest.mark.parametrize("name", [path.name for path in PACKAGES])
def test_its_readme_runs(name: str, server: Server, model: ScriptedServer) -> None:
    server.client.delete("/v1/users/ada").raise_for_status()
    (code,) = blocks(INTEGRATIONS / name / "README.md", "python")
    assert printed(code, str(server.client.base_url).rstrip("/"), model.url) == READMES[name]


def test_the_types_are_checked_strictly() -> None:
    files = [str(path.relative_to(ROOT)) for package in PACKAGES for path in package.rglob("*.py")]
    paths = os.pathsep.join(str(package.relative_to(ROOT)) for package in PACKAGES)
    said = run("mypy", "--cache-dir", str(PYTHON.parents[1] / ".mypy_cache"), *files, cwd=ROOT, MYPYPATH=paths)
    assert "no issues found" in said
