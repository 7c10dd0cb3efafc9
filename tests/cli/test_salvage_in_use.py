"""`recalld salvage` copies no store that a process has open."""

from pathlib import Path

from tests.cli.conftest import Run
from tests.support.server import serving


def test_a_store_in_use_is_not_salvaged(run: Run, data: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with serving(data) as server:
        made = server.client.post("/v1/memories", json={"agent_id": "a", "user_id": "u", "content": "Ada prefers tea"})
        assert made.status_code == 201
        ended = run("salvage", "--to", str(new))
        assert ended.returncode == 1
        assert ended.stderr.startswith("recalld: ")
        assert "recalld.db is in use by another process: stop every service" in ended.stderr
        assert not new.exists()
        assert server.client.get("/v1/memories").status_code == 200
        server.stop()
    assert run("salvage", "--to", str(new)).returncode == 0
    with serving(new) as server:
        (memory,) = server.client.get("/v1/memories").json()["items"]
        assert memory["content"] == "Ada prefers tea"
