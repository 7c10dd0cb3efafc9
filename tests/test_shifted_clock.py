"""The real process on a clock that jumps by ten days and back: nothing expires, is doubled or parked.

libfaketime shifts the clock of the day and leaves the time since the machine's start, as `date -s` does. Debian has it
in the package `libfaketime`; `RECALLD_TEST_FAKETIME` names the library where it lies elsewhere.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.jobs.queue import DECAY, EMBED_PENDING, EXPIRY, RETENTION
from tests.support.scripted import Reply, ScriptedServer, scripted_server
from tests.support.server import Server, serving
from tests.support.tuned import tuned

JUMP_SECONDS = 8
PATIENCE_SECONDS = 60
OFTEN = dict.fromkeys((DECAY, EXPIRY, RETENTION, EMBED_PENDING), 1)
SERVE = tuned(job_seconds=OFTEN)
PLANTED = tuned("tests.support.serve_on_system_clock", job_seconds=OFTEN)


def library() -> str | None:
    """The path of libfaketime, or None."""
    named = os.environ.get("RECALLD_TEST_FAKETIME")
    found = [named] if named else sorted(map(str, Path("/usr/lib").glob("**/faketime/libfaketime.so.1")))
    return found[0] if found else None


pytestmark = pytest.mark.skipif(library() is None, reason="libfaketime is not installed (Debian: libfaketime)")


class Shifted:
    """A service whose clock the test sets, and the embedding server that it asks."""

    def __init__(self, server: Server, clock: Path, embedding: ScriptedServer) -> None:
        self.server, self._clock, self._embedding = server, clock, embedding
        self._expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()

    def jump(self, days: int) -> None:
        """Sets the clock `days` off the right time."""
        set_clock(self._clock, days)

    def embedding_fails(self, fails: bool) -> None:
        self._embedding.script.clear()
        if fails:
            self._embedding.then(*[Reply(503)] * 10_000)

    def remember(self, key: str) -> tuple[dict[str, Any], bool]:
        """The memory stored under an idempotency key, which expires in an hour, and whether it was stored before."""
        body = {"agent_id": "a", "user_id": "ada", "content": f"The {key} note", "expires_at": self._expires}
        answer = self.server.client.post("/v1/memories", json=body, headers={"Idempotency-Key": key})
        assert answer.status_code == 201, answer.text
        return answer.json(), "Idempotency-Replayed" in answer.headers

    def memories(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.client.get("/v1/memories", params={"user_id": "ada"}).json()["items"]
        return found

    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.client.get("/v1/jobs").json()["items"]
        return found


def set_clock(file: Path, days: int) -> None:
    part = file.with_suffix(".part")
    part.write_text(f"{days:+d}d\n")
    part.replace(file)


@contextmanager
def shifted(folder: Path, command: tuple[str, ...]) -> Iterator[Shifted]:
    clock = folder / "clock"
    set_clock(clock, 0)
    with scripted_server() as embedding:
        environment = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_CACHE_DURATION": "1",
            "NO_FAKE_STAT": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "RECALLD_EMBEDDING_MODEL": "openai:small",
            "RECALLD_EMBEDDING_BASE_URL": embedding.url,
        }
        with serving(folder / "data", command, **environment) as server:
            yield Shifted(server, clock, embedding)


def a_jump_changes_nothing(service: Shifted, days: int) -> None:
    """Raises AssertionError if a jump of the clock, `JUMP_SECONDS` long, has any effect."""
    before, replayed = service.remember("before")
    assert not replayed
    service.embedding_fails(True)
    waiting, _ = service.remember("waiting")
    assert waiting["embedding"]["status"] == "pending"
    service.jump(days)
    for second in range(JUMP_SECONDS):
        assert service.remember("before") == (before, True), f"run again {second} s after the jump"
        assert len(service.memories()) == 2, f"expired or doubled {second} s after the jump"
        time.sleep(1)
    during, _ = service.remember("during")
    service.jump(0)
    after, _ = service.remember("after")
    assert service.remember("before") == (before, True)
    made = [before, waiting, during, after]
    assert [memory["memory_id"] for memory in made] == sorted(memory["memory_id"] for memory in made)
    assert [memory["created_at"] for memory in made] == sorted(memory["created_at"] for memory in made)
    service.embedding_fails(False)
    not_parked(service)
    assert len(service.memories()) == len(made)


def not_parked(service: Shifted) -> None:
    """Waits until every embedding is made, and until each job of the clock is due within its period."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while any(memory["embedding"]["status"] != "ready" for memory in service.memories()):
        assert time.monotonic() < ends, "an embedding is parked"
        time.sleep(0.2)
    limit = datetime.now(UTC) + timedelta(days=1, seconds=PATIENCE_SECONDS)
    for job in service.jobs():
        assert datetime.fromisoformat(job["next_run"]) <= limit, f"{job['name']} is parked"


@pytest.mark.parametrize("days", [10, pytest.param(-10, marks=pytest.mark.slow)])
def test_a_jump_of_the_clock_and_back_changes_nothing(days: int, tmp_path: Path) -> None:
    with shifted(tmp_path, SERVE) as service:
        a_jump_changes_nothing(service, days)
        assert "the system's clock jumped" in service.server.log_text()  # it was a jump


def test_a_service_that_believes_its_clock_is_found(tmp_path: Path) -> None:
    with shifted(tmp_path, PLANTED) as service, pytest.raises(AssertionError, match="s after the jump"):
        a_jump_changes_nothing(service, 10)
