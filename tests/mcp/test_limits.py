"""A message over MCP keeps the limits of a body over REST. Tried against the port of a service."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.core.schemas import BodyLimits
from tests.support.server import serving

HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "MCP-Protocol-Version": "2025-06-18"}
OWNER = {"agent_id": "a", "user_id": "u"}
LIMITS = BodyLimits()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("mcp") / "data") as server:
        yield server.client


def message(arguments: str, tool: str = "remember") -> bytes:
    """A call of a tool, with the arguments as JSON."""
    head = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "' + tool + '", "arguments": '
    return (head + arguments + "}}").encode()


def arguments(**more: Any) -> str:
    return json.dumps({**OWNER, "content": "Ada prefers tea", **more})


def sent(client: httpx.Client, path: str, body: bytes) -> tuple[int, str]:
    answer = client.post(path, content=body, headers=HEADERS)
    return answer.status_code, answer.json().get("code", "")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


BODIES = {
    "a key twice": arguments()[:-1] + ', "content": "Ada prefers coffee"}',
    "a key twice, deep inside": arguments()[:-1] + ', "supersedes": [{"a": 1, "a": 2}]}',
    "too deep, and small": arguments()[:-1] + f', "supersedes": {nested(LIMITS.json_depth + 1)}}}',
    "too deep for a parser": arguments()[:-1] + f', "supersedes": {nested(20_000)}}}',
    "too deep, and large": arguments(content="tea " * 7_000)[:-1] + f', "supersedes": {nested(40)}}}',
    "too many values": arguments()[:-1] + f', "supersedes": [{",".join("1" * (LIMITS.json_values + 1))}]}}',
    "no JSON": arguments() + "}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_rest_refuses_of_a_body_mcp_refuses_alike(client: httpx.Client, body: str) -> None:
    over_rest = sent(client, "/v1/memories", body.encode())
    assert over_rest in ((400, "malformed_request"), (422, "invalid"))
    assert sent(client, "/mcp", message(body)) == over_rest
    assert client.get("/v1/memories").json()["items"] == []


def test_what_is_not_utf_8_is_refused(client: httpx.Client) -> None:
    assert sent(client, "/mcp", message('{"content": "\xff"}').replace(b"\xc3\xbf", b"\xff")) == (
        400,
        "malformed_request",
    )


def test_a_key_twice_in_arguments_that_arrive_as_a_string_is_told(client: httpx.Client) -> None:
    twice = json.dumps({**OWNER, "content": "x", "supersedes": '[{"name": "a", "name": "b"}]'})
    result = client.post("/mcp", content=message(twice), headers=HEADERS).json()["result"]
    assert result["isError"]
    assert 'The key "name" occurs twice' in result["content"][0]["text"]


def test_values_are_refused_to_the_model_in_words(client: httpx.Client) -> None:
    """A text that is too long is no fault of the message."""
    too_long = message(arguments(content="tea " * 10_000))
    result = client.post("/mcp", content=too_long, headers=HEADERS).json()["result"]
    assert result["isError"]
    assert str(LIMITS.text_chars) in result["content"][0]["text"]
    made = client.post("/mcp", content=message(arguments()), headers=HEADERS).json()["result"]
    assert not made.get("isError")


WIDE = {str(number): number for number in range(LIMITS.object_keys + 1)}


@pytest.mark.parametrize(
    ("more", "place"),
    [(WIDE, "/"), ({"source": WIDE}, "/source"), ({"messages": [WIDE]}, "/messages/0")],
    ids=["arguments", "one", "a message"],
)
def test_objects_that_are_too_wide_are_refused_before_they_are_read(
    client: httpx.Client, more: dict[str, Any], place: str
) -> None:
    result = client.post("/mcp", content=message(arguments(**more)), headers=HEADERS).json()["result"]
    assert result["isError"]
    told = f"- {place}: must have at most {LIMITS.object_keys} keys"
    assert result["content"][0]["text"] == f"The arguments are not valid. (invalid)\n{told}"


def test_a_pointer_names_no_member_of_a_union(client: httpx.Client) -> None:
    body = message(json.dumps({"agent_id": "a", "memory_type": "rumour"}), "list_memories")
    told = client.post("/mcp", content=body, headers=HEADERS).json()["result"]["content"][0]["text"]
    assert [line.partition(": ")[0] for line in told.splitlines()[1:]] == ["- /memory_type", "- /memory_type"]


def test_a_tool_that_writes_tells_of_a_secret_and_never_its_value(client: httpx.Client) -> None:
    body = message(arguments(content="Pay with 4242 4242 4242 4242"))
    answer = client.post("/mcp", content=body, headers=HEADERS)
    assert "card at characters 9 to 28" in answer.text
    assert "4242 4242 4242 4242" not in answer.text
