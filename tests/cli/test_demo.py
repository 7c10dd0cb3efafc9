"""The demo's story: what it leaves in a store of either engine, and the command that serves it."""

import socket
from pathlib import Path
from typing import Any

import pytest

from app.cli.demo_writer import write_story
from app.settings import JobSettings, Settings
from tests.conftest import settings_of
from tests.support.memories import shared_service
from tests.support.server import Server, recalld

NO_JOBS = JobSettings(enabled=False)


async def _held(settings: Settings, model: Any) -> dict[str, Any]:
    """Everything that the story is told by, without ids and times."""
    async with shared_service(settings, model) as service:

        async def items(path: str) -> list[dict[str, Any]]:
            answer = await service.client.get(path)
            assert answer.status_code == 200, answer.text
            listed: list[dict[str, Any]] = answer.json().get("items", [answer.json()])
            return listed

        return {
            "memories": [
                (one["content"], one["status"], round(one["base_importance"], 6), one["access_count"], one["version"])
                for one in await items("/v1/memories?status=any&limit=100")
            ],
            "facts": [
                (one["subject"], one["predicate"], one["object"], one["status"])
                for one in await items("/v1/facts?status=any&timeline=true&limit=100")
            ],
            "sessions": [(one["session_id"], one["status"], one["summary"]) for one in await items("/v1/sessions")],
            "operations": [(one["kind"], one["status"]) for one in await items("/v1/operations?limit=100")],
            "procedures": [(one["name"], one["success_count"]) for one in await items("/v1/procedures")],
            "users": [(one["user_id"], one["name"], one["home"]) for one in await items("/v1/users")],
            "checkpoints": [one["label"] for one in await items("/v1/tasks/lisbon-wheels/checkpoints")],
            "actions": [one["total_actions"] for one in await items("/v1/actions/stats?agent_id=workshop")],
        }


@pytest.mark.anyio
async def test_the_story_fills_a_store_in_the_same_way_each_time(
    settings: Settings, tmp_path: Path, model: Any
) -> None:
    again = settings_of(tmp_path / "again")
    for each in (settings, again):
        await write_story(each.model_copy(update={"jobs": NO_JOBS}))
    held = await _held(settings, model)
    assert held == await _held(again, model)
    contents = {content: rest for content, *rest in held["memories"]}
    assert contents["Mira commutes 14 km a day."][0] == "superseded"
    assert contents["Mira commutes 23 km a day since she moved."][0] == "active"
    assert contents["The workshop is closed on Saturdays, a customer says."][0] == "disputed"
    assert contents["Mira cannot take calls at work: please write to her."][2] > 0
    assert ("@user", "lives_in", "Altona", "superseded") in held["facts"]
    assert ("@user", "lives_in", "Bergedorf", "active") in held["facts"]
    assert ("@user", "works_as", "nurse", "superseded") in held["facts"]
    assert ("@user", "works_as", "teacher at the nursing school", "active") in held["facts"]
    assert contents["Mira's Kestrel 28 squeals only when it is wet."][0] == "superseded"
    assert not [content for content in contents if "actions (" in content], "a roll-up hides the story"
    assert ("Aero hub", "costs", "99 EUR", "disputed") in held["facts"]
    assert {user for user, *_ in held["users"]} == {"mira", "jonas", "priya"}
    assert all(status == "succeeded" for _, status in held["operations"])
    expected = {"decay", "post_conversation", "consolidation", "review_procedure", "reflection"}
    assert {kind for kind, _ in held["operations"]} == expected


def test_the_command_serves_a_store_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RECALLD_PORT=1\nRECALLD_HOST=0.0.0.0\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(tmp_path / "own", {}, ("-m", "app.cli", "demo", "--port", str(port)))
    try:
        assert f"http://127.0.0.1:{port}/console" in server.printed()
        sessions = server.client.get("/v1/sessions").json()["items"]
        assert sessions[0]["session_id"] == "jonas-before-the-tour"
        assert not (tmp_path / "own").exists(), "the caller's own store is left alone"
        kept = Path(f"/proc/{server.process.pid}/cwd").resolve()
        assert kept.exists()
    finally:
        server.stop()
    assert not kept.exists()


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    ended = recalld(tmp_path / "own", "demo", "--only-fill", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr == f"recalld: --only-fill: {tmp_path} is not empty: name a new folder\n"
