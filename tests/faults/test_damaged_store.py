"""A service whose database is damaged while it runs: it says so on every route and to the load balancer, and serves
nothing from it."""

from pathlib import Path

import pytest

from app.errors import StoreDamaged
from app.settings import Settings
from tests.conftest import Starter

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("engine", ["embedded"])]
PAGE = 8192
OWNER = {"agent_id": "a", "user_id": "u"}


def spoil(database: Path) -> None:
    """Changes a letter on each page that holds a text of the test."""
    content = bytearray(database.read_bytes())
    for page in range(1, len(content) // PAGE):
        at = content.find(b"safe code", page * PAGE, (page + 1) * PAGE - 20)
        if at > 0:
            content[at] ^= 1
    with database.open("r+b") as file:
        file.write(content)


async def test_damage_under_a_running_service_is_named_and_never_served(settings: Settings, start: Starter) -> None:
    database = settings.data_dir / "recalld.db"
    async with start(settings) as service:
        for number in range(20):
            body = {**OWNER, "content": f"The safe code {number} is 955431. " + "It is kept in the office. " * 100}
            assert (await service.client.post("/v1/memories", json=body)).status_code == 201
    async with start(settings) as service:
        assert (await service.client.get("/readyz")).status_code == 200
        spoil(database)
        calls = [
            service.client.get("/v1/memories", params={**OWNER, "limit": 100}),
            service.client.post("/v1/memories", json={**OWNER, "content": "new"}),
            service.client.post("/v1/memories/search", json={**OWNER, "query": "safe code"}),
            service.client.get("/readyz"),
        ]
        for call in calls:
            answer = await call
            assert (answer.status_code, answer.json()["code"]) == (503, "store_damaged")
            assert answer.json()["detail"].startswith("recalld.db is damaged: ")
            assert answer.headers["Retry-After"] == "60"
        assert (await service.client.get("/livez")).status_code == 200
    with pytest.raises(StoreDamaged, match="not as they were written"):
        async with start(settings):
            pass
