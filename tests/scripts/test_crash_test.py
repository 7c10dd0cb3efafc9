"""Two rounds of the crash test, and two with a planted fault: a check that cannot fail proves nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_test.py"

pytestmark = pytest.mark.slow


def crash_test(*options: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, str(SCRIPT), "--json", "--no-wait-for-leases", "--max-ready", "60", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_killed_service_loses_nothing_it_acknowledged() -> None:
    code, report = crash_test("--rounds", "2")
    assert code == 0, report
    assert report["rounds"] == 2
    assert report["acknowledged message batches"] > 0
    assert report["acknowledged memories"] > 0


def test_the_crash_test_catches_a_service_that_acknowledges_too_early() -> None:
    code, report = crash_test("--rounds", "1", "--plant-fault")
    assert code == 0, report
    assert report["lost"] > 0
