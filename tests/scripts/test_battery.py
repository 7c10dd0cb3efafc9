"""Two parts of the battery, small: each sees the bug that is planted for it, and finds none of ours."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "battery.py"

pytestmark = pytest.mark.slow


def test_parts_of_the_battery_pass() -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--json", "erasure", "faults"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(row["caught"] and not row["faults"] for row in json.loads(done.stdout))


def test_an_unknown_part_is_said_to_be_one() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "nonsense"], capture_output=True, text=True, check=False)
    assert (done.returncode, "unknown parts: nonsense" in done.stderr) == (2, True)
