"""No cache keeps an answer, and no browser takes one for a page. Tried against the port of a service."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.memories import OWNER
from tests.support.raw import send
from tests.support.server import serving

LOCAL = "Host: 127.0.0.1:8000"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("private") / "data") as server:
        yield server.client


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_memories", "arguments": OWNER}}
MCP = {"Accept": "application/json", "MCP-Protocol-Version": "2025-06-18"}


def answers(client: httpx.Client) -> Iterator[httpx.Response]:
    """One of each kind: with and without a body, streams, errors, MCP."""
    made = client.post("/v1/memories", json={**OWNER, "content": "<script>alert(1)</script>"})
    yield made
    yield client.get(f"/v1/memories/{made.json()['memory_id']}")
    yield client.head("/v1/memories")
    yield client.post("/v1/memories/search", json={**OWNER, "query": "script"})
    yield client.post("/v1/context", json={**OWNER, "query": "script"})
    yield client.get("/v1/users/ada/export")
    yield client.get("/v1/memories/none")
    yield client.get("/v1/nothing")
    yield client.post("/v1/memories", content=b"{", headers={"Content-Type": "application/json"})
    yield client.get("/v1/memories", headers={"Host": "memory.example"})
    yield client.get("/metrics")
    yield client.post("/mcp", json=CALL, headers=MCP)
    yield client.delete(f"/v1/memories/{made.json()['memory_id']}")
    with client.stream("GET", "/v1/changes/stream") as stream:
        yield stream


def test_every_answer_is_private_and_what_it_says_it_is(client: httpx.Client) -> None:
    statuses = set()
    for answer in answers(client):
        statuses.add(answer.status_code)
        assert answer.headers.get_list("cache-control") == ["no-store"], answer.url
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer.url
    assert {200, 201, 204, 400, 403, 404} <= statuses


def test_a_body_that_is_too_large_is_refused_as_privately(client: httpx.Client) -> None:
    refused = send(client, "/v1/memories", LOCAL, "Content-Length: 99999999", method="POST")
    assert refused.status == 413
    assert (refused.headers["cache-control"], refused.headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_pages_keep_their_own_rule(client: httpx.Client) -> None:
    assert client.get("/console", follow_redirects=True).headers["cache-control"] == "no-cache"
