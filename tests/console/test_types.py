"""The console's modules agree with the types of the API's document: `tsc --checkJs`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is checked, with the compiler and the types of the libraries."""
    if shutil.which("npm") is None:
        if os.environ.get("RECALLD_TEST_BROWSER") == "required":
            pytest.fail("There is no npm, which fetches the compiler.")
        pytest.skip("There is no npm, which fetches the compiler.")
    folder = tmp_path_factory.mktemp("types")
    for part in ("app/console/static/console", "clients/typescript"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("node_modules"))
    checked = folder / "tests" / "console"
    checked.mkdir(parents=True)
    for name in ("package.json", "tsconfig.json"):
        shutil.copy(HERE / name, checked)
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline", "--silent")
    subprocess.run(["npm", "install", *options], cwd=checked, check=True)
    return folder


def said(folder: Path) -> str:
    tsc = folder / "tests/console/node_modules/.bin/tsc"
    return subprocess.run([tsc, "-p", folder / "tests/console"], check=False, capture_output=True, text=True).stdout


def test_the_modules_have_no_error_of_types_and_a_planted_one_is_found(compiler: Path) -> None:
    assert said(compiler) == ""
    planted = compiler / "app/console/static/console/planted.js"
    planted.write_text('import { api } from "./api.js";\nawait api.GET("/v1/nowhere");\n')
    assert "planted.js(2" in said(compiler)
