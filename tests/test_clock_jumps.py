"""A system clock that jumps and comes back neither repeats a request nor parks or doubles a job."""

from datetime import UTC, datetime, timedelta

import pytest

from app.core.clock import SteadyTime
from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.conftest import Service, TestParts, TurnedClock, running

pytestmark = pytest.mark.anyio


class SetClock(TurnedClock):
    """A clock as the service has it, over a system clock that the test sets. `move` lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.jump = timedelta()
        self._start = self.time
        self._steady = SteadyTime(self._system, self._elapsed)

    def _elapsed(self) -> float:
        return (self.time - self._start).total_seconds()

    def _system(self) -> float:
        return (self.time + self.jump).timestamp()

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return datetime.fromtimestamp(self._steady.now(), UTC)


@pytest.mark.parametrize("days", [10, -10])
async def test_a_jump_of_ten_days_for_eight_seconds_changes_nothing(
    days: int, settings: Settings, model: OnnxModel
) -> None:
    clock = SetClock()
    async with running(settings, TestParts(model, clock)) as service:
        before = await remember(service, "before")
        jobs = await service.client.get("/v1/jobs")
        clock.jump = timedelta(days=days)
        for _ in range(8):
            clock.move(seconds=1)
            during = await remember(service, "before")
            assert during == before | {"replayed": "true"}
        meanwhile = await remember(service, "meanwhile")
        clock.jump = timedelta()
        after = await remember(service, "after")
        assert before["created_at"] < meanwhile["created_at"] < after["created_at"]
        listed = await service.client.get("/v1/memories", params={"user_id": "ada"})
        assert len(listed.json()["items"]) == 3
        assert [job["name"] for job in jobs.json()["items"]]
        limit = clock.time + timedelta(days=1, seconds=60)
        for job in (await service.client.get("/v1/jobs")).json()["items"]:
            assert clock.time < datetime.fromisoformat(job["next_run"]) <= limit


async def remember(service: Service, key: str) -> dict[str, str]:
    """Stores a memory that expires in an hour, under an idempotency key."""
    expires = service.clock.time.replace(hour=20, minute=0, second=0, microsecond=0)
    body = {"agent_id": "a", "user_id": "ada", "content": f"The {key} note", "expires_at": expires.isoformat()}
    answer = await service.client.post("/v1/memories", json=body, headers={"Idempotency-Key": key})
    assert answer.status_code == 201, answer.text
    memory = answer.json()
    found = await service.client.get(f"/v1/memories/{memory['memory_id']}")
    assert found.status_code == 200
    return {
        "memory_id": memory["memory_id"],
        "created_at": memory["created_at"],
        "replayed": answer.headers.get("Idempotency-Replayed", "false"),
    }
