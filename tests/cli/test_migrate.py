"""`recalld migrate`, as it is called."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Run
from tests.support.mongodb import Deployment
from tests.support.server import serving

OWNER = {"agent_id": "a", "user_id": "u"}


def test_a_service_moves_to_mongodb_and_finds_what_it_knew(run: Run, data: Path, mongodb: Deployment) -> None:
    body = {"agent_id": "a", "user_id": "u", "content": "Ada prefers tea", "metadata": {"$where": 1, "a.b": None}}
    asked = {"agent_id": "a", "user_id": "u", "query": "what does she drink?"}
    with serving(data) as server:
        assert server.client.post("/v1/memories", json=body).status_code == 201
        known = found(server.client.post("/v1/memories/search", json=asked).json())
        since = learned(server.client)
        knew = knowledge(server.client, since)
        server.stop()
    checked = json.loads(run("doctor", "--json").stdout)
    assert checked["ok"]
    assert {"facts: search rows", "fact_groups: documents", "procedures: partitions"} <= {
        one["name"] for one in checked["findings"]
    }
    with mongodb.database() as name:
        done = run("migrate", "--to", mongodb.uri, "--json", RECALLD_MONGODB_DATABASE=name)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["ok"]
        (memories,) = [r for r in report["collections"] if r["collection"] == "agent_memories"]
        assert (memories["tenant"], memories["records"], memories["vectors"]) == ("default", 1, 1)
        moved_too = {r["collection"]: (r["records"], r["vectors"]) for r in report["collections"]}
        assert (moved_too["facts"], moved_too["procedures"]) == ((3, 3), (1, 1))
        elsewhere = run("doctor", "--json", RECALLD_STORE=mongodb.uri, RECALLD_MONGODB_DATABASE=name)
        assert json.loads(elsewhere.stdout)["ok"], elsewhere.stdout
        with serving(data, RECALLD_STORE=mongodb.uri, RECALLD_MONGODB_DATABASE=name) as moved:
            assert moved.client.get("/readyz").json()["store"] == "mongodb"
            assert found(moved.client.post("/v1/memories/search", json=asked).json()) == known
            assert moved.client.post("/v1/memories", json={**body, "content": "and coffee"}).status_code == 201
            assert knowledge(moved.client, since) == knew
            assert tell(moved.client, "Oslo", "2026-06-01")["supersedes"] == [knew["now"][0]["fact_id"]]
            moved.stop()
        again = run("migrate", "--to", mongodb.uri, RECALLD_MONGODB_DATABASE=name)
        assert again.returncode == 1
        assert "other data" in again.stderr


def tell(client: httpx.Client, home: str, since: str) -> Any:
    body = {**OWNER, "subject": "Ada", "predicate": "lives_in", "object": home, "valid_from": f"{since}T00:00:00Z"}
    made = client.post("/v1/facts", json=body)
    assert made.status_code == 201, made.text
    return made.json()


def learned(client: httpx.Client) -> str:
    """A move and a procedure; when the first home was known alone."""
    first = tell(client, "New York", "2019-01-01")
    tell(client, "Boston", "2026-05-01")
    made = client.post(
        "/v1/procedures", json={"agent_id": "a", "name": "Reset", "trigger": "cannot log in", "steps": ["x"]}
    )
    path = f"/v1/procedures/{made.json()['procedure_id']}/outcomes"
    assert client.post(path, json={"success": False, "note": "expired"}).status_code in (200, 201)
    known: str = first["known_from"]
    return known


def knowledge(client: httpx.Client, then: str) -> dict[str, Any]:
    """Facts now, as of last year and as they were known `then`; who is linked; how things are done."""

    def facts(**at: str) -> Any:
        return client.get("/v1/facts", params={**OWNER, "subject": "ada", **at}).json()["items"]

    linked = client.get("/v1/graph/entities/ada/neighbors", params=OWNER).json()
    situation = {"agent_id": "a", "situation": "she cannot log in"}
    (done,) = client.post("/v1/procedures/search", json=situation).json()["items"]
    return {
        "now": facts(),
        "last year": facts(as_of="2025-06-01T00:00:00Z"),
        "then": facts(known_at=then),
        "meaning": [
            one["fact"] for one in client.post("/v1/facts/search", json={**OWNER, "query": "home?"}).json()["items"]
        ],
        "linked": [linked["nodes"], linked["edges"]],
        "done": done["procedure"],
    }


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
@pytest.mark.usefixtures("new_store")
def test_what_cannot_be_moved_to_is_a_sentence_without_a_password(run: Run, to: str, said: str) -> None:
    done = run("migrate", "--to", to, RECALLD_MONGODB_DEADLINE_SECONDS="0.5")
    assert done.returncode == 1
    assert said in done.stderr
    assert "s3cret" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
