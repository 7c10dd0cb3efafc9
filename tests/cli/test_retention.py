"""`recalld decay`, `recalld forget` and `recalld worker`."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Run
from tests.support.server import ROOT, environment, serving

BODY = {"agent_id": "a", "user_id": "u", "content": "tea", "importance": 0.85}


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    filled = tmp_path_factory.mktemp("filled") / "data"
    with serving(filled, RECALLD_JOBS_ENABLED="false") as server:
        assert server.client.post("/v1/memories", json=BODY).status_code == 201
        assert server.stop() == 0
    return filled


@pytest.fixture
def filled(filled_once: Path, data: Path) -> Path:
    return shutil.copytree(filled_once, data)


def test_what_would_fade_is_shown_as_a_histogram_and_as_json(filled: Path, run: Run) -> None:
    shown = run("decay", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "1 memories" in shown.stdout
    (bar,) = (line for line in shown.stdout.splitlines() if line.startswith("0.8–0.9"))
    assert "█" in bar
    told = json.loads(run("decay", "--dry-run", "--json").stdout)
    assert told["memories"] == 1
    assert told["before"] == told["after"] == [0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert json.loads(run("decay", "--dry-run", "--tenant", "other", "--json").stdout)["memories"] == 0
    assert json.loads(run("decay", "--json").stdout) == {"changed": 0}
    assert run("decay").stdout == "0 memories have another importance now.\n"


def test_what_would_be_forgotten_is_shown_with_its_reasons(filled: Path, run: Run) -> None:
    asked = ("forget", "--user", "u", "--older-than-days", "0")
    shown = run(*asked)
    assert shown.returncode == 0, shown.stderr
    assert "1 memories would be forgotten; --apply forgets them." in shown.stdout
    assert "recency 100 (0 days old)" in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith("  tea"), "the text is there"
    told = json.loads(run(*asked, "--json").stdout)
    assert (told["total"], told["items"][0]["content"]) == (1, "tea")
    assert json.loads(run(*asked, "--max-score", "10", "--json").stdout)["total"] == 0
    assert json.loads(run("forget", "--user", "u", "--older-than-days", "365", "--json").stdout)["total"] == 0
    other = run("forget", "--user", "u", "--older-than-days", "0", "--tenant", "other", "--apply", "--json")
    assert json.loads(other.stdout)["result"] == {"archived": 0}
    assert json.loads(run(*asked, "--json").stdout)["total"] == 1, "nothing has changed"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--user", "u", "--apply", "--dry-run"), "--apply and --dry-run exclude each other"),
        (("--older-than-days", "9"), "--agent"),
        (("--apply", "--older-than-days", "9"), "--agent"),
        (("--user", "u"), "name a policy, such as --older-than-days 90"),
        (("--user", "u", "--apply"), "name a policy"),
        (("--user", "u", "--apply", "--tenant", "a b", "--max-score", "9"), "--tenant: must be 1 to 128 characters"),
        (("--dry-run", "--user", "u", "--max-importance", "2"), "--max-importance"),
        (("--dry-run", "--user", "a/b", "--max-score", "9"), "--user: must be 1 to 255 printable characters"),
    ],
)
@pytest.mark.usefixtures("new_store")
def test_mistakes_are_told_by_the_names_of_the_options(run: Run, arguments: tuple[str, ...], says: str) -> None:
    ended = run("forget", *arguments)
    assert ended.returncode != 0
    assert says in ended.stderr
    assert "RECALLD" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_worker_beside_a_server_does_the_jobs_and_ends_when_it_is_told(data: Path) -> None:
    with serving(data, RECALLD_JOBS_ENABLED="false") as server:
        assert server.client.post("/v1/memories", json=BODY).status_code == 201
        asked = {"user_id": "u", "policy": {"older_than_days": 0}, "dry_run": False}
        begun = server.client.post("/v1/memories/forget", json=asked).json()
        time.sleep(1)
        assert _status(server.client, begun) == "queued", "the server runs none"
        worker = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "worker"], env=environment(data), cwd=ROOT, stderr=subprocess.PIPE
        )
        try:
            deadline = time.monotonic() + 90
            while _status(server.client, begun) != "succeeded":
                assert time.monotonic() < deadline
                assert worker.poll() is None
                time.sleep(0.05)
            jobs = server.client.get("/v1/jobs").json()["items"]
            assert all(job["next_run"] for job in jobs)
        finally:
            worker.send_signal(signal.SIGTERM)
            _, said = worker.communicate(timeout=20)
        assert worker.returncode == 0, said
        assert b"Traceback" not in said


def _status(client: httpx.Client, begun: dict[str, str]) -> str:
    return str(client.get(f"/v1/operations/{begun['operation_id']}").json()["status"])
