"""`recalld migrate`, as it is called."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.mongodb import Deployment
from tests.server import serving


def test_a_service_moves_to_mongodb_and_finds_what_it_knew(run: Run, data: Path, mongodb: Deployment) -> None:
    body = {"agent_id": "a", "user_id": "u", "content": "Ada prefers tea", "metadata": {"$where": 1, "a.b": None}}
    asked = {"agent_id": "a", "user_id": "u", "query": "what does she drink?"}
    with serving(data) as server:
        assert server.client.post("/v1/memories", json=body).status_code == 201
        known = found(server.client.post("/v1/memories/search", json=asked).json())
        server.stop()
    with mongodb.database() as name:
        done = run("migrate", "--to", mongodb.uri, "--json", RECALLD_MONGODB_DATABASE=name)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["ok"]
        (memories,) = [r for r in report["collections"] if r["collection"] == "agent_memories"]
        assert (memories["tenant"], memories["records"], memories["vectors"]) == ("default", 1, 1)
        with serving(data, RECALLD_STORE=mongodb.uri, RECALLD_MONGODB_DATABASE=name) as moved:
            assert moved.client.get("/readyz").json()["store"] == "mongodb"
            assert found(moved.client.post("/v1/memories/search", json=asked).json()) == known
            assert moved.client.post("/v1/memories", json={**body, "content": "and coffee"}).status_code == 201
            moved.stop()
        again = run("migrate", "--to", mongodb.uri, RECALLD_MONGODB_DATABASE=name)
        assert again.returncode == 1
        assert "other data" in again.stderr


def found(body: Any) -> Any:
    assert body["items"]
    return [(item["memory"]["content"], item["memory"]["metadata"]) for item in body["items"]]


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("embedded", "the same store"),
        ("mysql://u:s3cret@h/", "must be `embedded` or a URI"),
        ("mongodb://u:s3cret@127.0.0.1:9/", "cannot be reached"),
    ],
)
def test_what_cannot_be_moved_to_is_a_sentence_without_a_password(run: Run, to: str, said: str) -> None:
    done = run("migrate", "--to", to, RECALLD_MONGODB_DEADLINE_SECONDS="0.5")
    assert done.returncode == 1
    assert said in done.stderr
    assert "s3cret" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
