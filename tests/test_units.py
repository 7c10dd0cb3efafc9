"""The units of systemd in `deploy/`: valid, hardened, and patient enough for a drain."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app.cli.main import app
from app.core.tuning import USUAL

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
UNITS = sorted(file.name for file in DEPLOY.iterdir() if file.suffix in (".service", ".timer"))
SERVICES = [name for name in UNITS if name.endswith(".service")]
MOST_EXPOSED = 20
"""Tenths of the ten points of `systemd-analyze security`: below this it says "OK"."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that is there: the checks look for it."""
    for name in UNITS:
        text = (DEPLOY / name).read_text().replace("/opt/recalld/bin/recalld", "/bin/true")
        (tmp_path / name).write_text(text)
    return tmp_path


def analyzed(*arguments: str) -> str:
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_systemd
def test_systemd_finds_no_fault_in_them(units: Path) -> None:
    assert analyzed("verify", *(str(units / name) for name in UNITS)).strip() == ""


@needs_systemd
@pytest.mark.parametrize("name", SERVICES)
def test_they_are_exposed_to_little(units: Path, name: str) -> None:
    analyzed("security", "--offline=yes", f"--threshold={MOST_EXPOSED}", str(units / name))


def test_a_stop_waits_for_the_drain() -> None:
    text = (DEPLOY / "recalld.service").read_text()
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert int(seconds) > USUAL.drain_delay_seconds + USUAL.drain_seconds


def test_a_reload_and_a_stop_reach_the_supervisor_alone() -> None:
    text = (DEPLOY / "recalld.service").read_text()
    page = (DEPLOY.parent / "docs/operations/workers.md").read_text()
    for line in ("ExecReload=/bin/kill -HUP $MAINPID", "KillMode=mixed"):
        assert text.splitlines().count(line) == 1
        assert f"`{line}`" in page


@pytest.mark.parametrize("name", SERVICES)
def test_they_run_commands_of_recalld_on_one_data_directory(name: str) -> None:
    text = (DEPLOY / name).read_text()
    (command,) = re.findall(r"^ExecStart=/opt/recalld/bin/recalld (\w+)", text, re.MULTILINE)
    assert command in {one.name for one in app.registered_commands}
    assert "\nEnvironment=RECALLD_DATA_DIR=/var/lib/recalld\n" in text
    assert "\nStateDirectory=recalld" in text
    assert "\nType=notify" not in text, "the service sends no notification"
