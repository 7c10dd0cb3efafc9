"""The tests of integrations/ against the frameworks themselves, in an environment of their own.

`scripts/frameworks` installs it. Without it the tests are skipped and say so; with
`RECALLD_TEST_FRAMEWORKS=required`, as in CI, they fail.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import ROOT, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

INTEGRATIONS = ROOT / "integrations"
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
PACKAGES = sorted(path.parent for path in INTEGRATIONS.glob("*/pyproject.toml"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("frameworks") / "data") as made:
        yield made


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_it_works_with_its_framework(package: Path, server: Server) -> None:
    if not PYTHON.exists():
        missing = "the frameworks are not installed: run scripts/frameworks"
        if os.environ.get("RECALLD_TEST_FRAMEWORKS") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    paths = [ROOT / "clients" / "python", *PACKAGES]
    ours = {"RECALLD_URL": str(server.client.base_url), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    pytest_alone = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(package), "-rs"]
    ended = subprocess.run(
        [str(PYTHON), "-m", "pytest", *pytest_alone, str(package / "tests")],
        env={**os.environ, **ours},
        cwd=package,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout
    assert "skipped" not in ended.stdout, ended.stdout[-2000:]


def test_the_readme_of_the_langgraph_store(server: Server) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (INTEGRATIONS / "langgraph" / "README.md").read_text(), re.DOTALL)
    code = code.replace("http://127.0.0.1:8000", str(server.client.base_url).rstrip("/"))
    paths = os.pathsep.join([str(ROOT / "clients" / "python"), str(INTEGRATIONS / "langgraph")])
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "drink\n['music']\n"), ended.stderr
