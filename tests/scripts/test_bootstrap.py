"""scripts/serve and scripts/recalld set themselves up; here with empty locks and a stand-in for the service."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import bootstrap

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "a clone"
    for folder in ("scripts", "requirements", "app/cli"):
        (root / folder).mkdir(parents=True)
    for name in ("bootstrap.sh", "bootstrap.py", "serve", "recalld"):
        shutil.copy2(SCRIPTS / name, root / "scripts")
    (root / "requirements/runtime.txt").write_text("# nothing\n")
    (root / "app/cli/__main__.py").write_text(
        "import os, sys\nprint(sys.argv[1:], os.getcwd(), os.environ['RECALLD_CALLED_FROM'])\n"
    )
    return root


def start(script: Path, *arguments: str, python: str = sys.executable) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [script, *arguments],
        cwd="/usr",
        env={**os.environ, "PYTHON": python},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_first_starts_make_one_environment_that_is_used_again_and_an_unfinished_one_is_made_anew(
    clone: Path,
) -> None:
    """One test, for each environment takes its seconds."""
    serve, mark = clone / "scripts/serve", clone / ".venv/mark"
    starts = [start(serve, "--port", "1 2"), start(clone / "scripts/recalld", "serve")]
    answers = [one.communicate() for one in starts]
    folders = f"{clone} /usr\n"  # where it works, and where it was called
    assert [out for out, _ in answers] == [f"['serve', '--port', '1 2'] {folders}", f"['serve'] {folders}"]
    assert "".join(err for _, err in answers).count("Setting up") == 1

    mark.touch()
    link = clone.parent / "link"
    link.symlink_to(clone / "scripts/recalld")
    assert start(link, "keys").communicate() == (f"['keys'] {folders}", "")
    assert mark.exists()

    (clone / ".venv/.locked-runtime").unlink()
    start(serve).communicate()
    assert not mark.exists()


def test_an_unsuitable_interpreter_is_named(clone: Path) -> None:
    refused = start(clone / "scripts/serve", python="/no/such/python")
    _, err = refused.communicate()
    assert err == "PYTHON=/no/such/python is not a Python >= 3.11.\n"
    assert refused.returncode == 1


INSTALLER = """
import pathlib, sys, time
for name in ("one", "two", "three", "four"):
    print("Collecting", name, flush=True)
print("Ignoring five: markers don't match", flush=True)
time.sleep(0.5)
for name in ("pip", "one", "two", "three", "four"):
    pathlib.Path(sys.argv[1], f"{name}.dist-info").mkdir()
time.sleep(0.5)
print("the reason")
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("code", [0, 7])
def test_progress_is_shown_and_the_reason_of_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    lock, packages = tmp_path / "runtime.txt", tmp_path / "lib/python3.11/site-packages"
    lock.write_text(
        "".join(f"{name}==1.0 \\\n    --hash=sha256:0\n" for name in ("one", "two", "three", "four", "five"))
    )
    packages.mkdir(parents=True)
    command = (sys.executable, "-c", INSTALLER, packages, str(code))
    if code:
        with pytest.raises(SystemExit, match="Set-up failed"):
            bootstrap.install_packages(command, tmp_path, lock)
    else:
        bootstrap.install_packages(command, tmp_path, lock)
    shown = capsys.readouterr().err
    assert "4 of 4 packages fetched\n" in shown
    assert "4 of 4 packages installed\n" in shown
    assert ("  failed\n" if code else "  done\n") in shown
    assert ("the reason" in shown) is bool(code)
