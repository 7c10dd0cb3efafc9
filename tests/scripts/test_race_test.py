"""The race test, in small: four services, then four workers, on one MongoDB over the real wire."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mongodb import Deployment

SCRIPT = Path(__file__).parents[2] / "scripts" / "race_test.py"

pytestmark = pytest.mark.slow


def race_test(*options: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, str(SCRIPT), "--json", "--tiny", "--servers", "4", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_four_services_on_one_mongodb_lose_and_double_nothing(mongodb: Deployment) -> None:
    code, report = race_test("--store", mongodb.uri)
    assert code == 0, report
    assert report["appends"]["servers"] == report["jobs"]["workers"] == 4
    assert report["jobs"]["stale tokens refused"] >= 1, "a worker that was stopped past its lease wrote nothing more"
