"""Wheels and sdists of the server and the Python client: they build, install in fresh environments, and work there."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from app import VERSION
from tests.support.server import ROOT, environment, serving

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(1800)]

MOST_BYTES = 375 << 20
"""Of the whole install, without pip. The older embedding model (22 MiB) comes along for stores that have vectors of it,
and goes with the next release."""
LEFT_BEHIND = shutil.ignore_patterns(
    ".git", ".venv*", ".models", "node_modules", "*.egg-info", "__pycache__", ".*_cache"
)


AS_INSTALLED = "import os; os.execv(%r, ['recalld', 'serve'])"
"""`serving` starts this Python, and this one becomes the installed program."""


class Interpreter(NamedTuple):
    """A Python of some version."""

    version: str
    path: Path


class Packages(NamedTuple):
    """What was built."""

    server: Path
    client: Path
    server_source: Path


def interpreters() -> list[Interpreter]:
    """This Python, and 3.13 where there is one on PATH or of pyenv."""
    found = {".".join(map(str, sys.version_info[:2])): Path(sys.executable)}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in ("3.11", "3.13"):
        on_path = shutil.which(f"python{version}")
        candidates = [Path(on_path)] if on_path else []
        candidates += sorted(pyenv.glob(f"{version}.*/bin/python"))
        for candidate in candidates:
            said = subprocess.run([candidate, "-c", "import sys, venv; print(*sys.version_info[:2], sep='.')"],
                                  capture_output=True, text=True, check=False)  # fmt: skip
            if said.stdout.strip() == version:
                found.setdefault(version, candidate)
    return [Interpreter(version, path) for version, path in found.items()]


FOUND = {one.version: one for one in interpreters()}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Built from a copy, since a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("packages")
    made = folder / "dist"
    for name, source in (("server", ROOT), ("client", ROOT / "clients" / "python")):
        copy = shutil.copytree(source, folder / name, ignore=LEFT_BEHIND)
        checked(sys.executable, "-m", "build", "--outdir", made, copy)
    checked(sys.executable, "-m", "twine", "check", "--strict", *made.iterdir())
    (server,) = made.glob("recalld-[0-9]*.whl")
    (client,) = made.glob("recalld_client-*.whl")
    (source,) = made.glob("recalld-[0-9]*.tar.gz")
    return Packages(server, client, source)


def checked(*command: str | Path, cwd: Path = ROOT) -> str:
    ended = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return ended.stdout


@pytest.fixture(scope="module", params=["3.11", "3.13"])
def installed(
    request: pytest.FixtureRequest, packages: Packages, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The `bin` of a fresh environment with both wheels."""
    if request.param not in FOUND:
        pytest.skip(f"there is no Python {request.param} on this machine")
    venv = tmp_path_factory.mktemp("venv") / request.param
    checked(FOUND[request.param].path, "-m", "venv", venv)
    checked(
        venv / "bin" / "pip", "install", "--disable-pip-version-check", f"{packages.server}[openai]", packages.client
    )
    yield venv / "bin"
    shutil.rmtree(venv)


def test_the_packages_hold_what_they_need(packages: Packages) -> None:
    assert packages.server.name == f"recalld-{VERSION}-py3-none-any.whl"
    inside = set(zipfile.ZipFile(packages.server).namelist())
    kept = subprocess.run(["git", "ls-files", "app"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(kept.stdout.splitlines()) <= inside, "every file of the package is in the wheel"
    assert not [name for name in inside if name.startswith(("tests/", "scripts/", "benchmarks/"))]
    assert "recalld_client/py.typed" in zipfile.ZipFile(packages.client).namelist()
    with tarfile.open(packages.server_source) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "requirements/runtime.in"} <= names


@pytest.mark.usefixtures("new_store")
def test_the_wheel_serves_and_uses_memory_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    python, recalld = installed / "python", installed / "recalld"
    checked(python, "-m", "pip", "check")
    own = {name: value for name, value in environment(tmp_path / "data").items() if name != "PYTHONPATH"}

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [recalld, *arguments], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert run("--version") == f"recalld {VERSION}\n"
    memory_id = run("add", "Ada moved to Boston in May", "--user", "ada").strip()
    assert memory_id in run("search", "Which city does Ada live in?", "--user", "ada")
    assert "checks passed" in run("doctor")
    where = checked(python, "-c", "import app; print(app.__file__)", cwd=tmp_path)
    assert where.startswith(str(installed.parent)), "not the checkout"

    with serving(tmp_path / "data", ("-c", AS_INSTALLED % str(recalld)), PYTHONPATH="") as server:
        (item,) = server.client.get("/v1/memories", params={"user_id": "ada"}).json()["items"]
        assert item["memory_id"] == memory_id
        url = str(server.client.base_url)
        code = f"from recalld_client import Recalld as R; print(R({url!r}).get_memory({memory_id!r})['content'])"
        assert checked(python, "-c", code, cwd=tmp_path) == "Ada moved to Boston in May\n"


def test_the_whole_install_is_small(installed: Path) -> None:
    """The sizes of all files, with bytecode; pip and setuptools come with the environment."""
    (packages,) = installed.parent.glob("lib/python3*/site-packages")
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    sizes = {one.name: size(one) for one in packages.iterdir() if not one.name.startswith(tools)}
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:10]
    assert sum(sizes.values()) <= MOST_BYTES, largest


def size(path: Path) -> int:
    return sum(one.stat().st_size for one in (path.rglob("*") if path.is_dir() else [path]) if one.is_file())
