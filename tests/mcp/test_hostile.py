"""What a broken or malicious client sends is refused in words, quickly, and is never our fault (PITFALLS 42)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.mcp.test_access import HEADERS, post
from tests.support.memories import problem

pytestmark = [pytest.mark.anyio, pytest.mark.before_store]
MODERN = {"MCP-Protocol-Version": "2026-07-28"}
_HERE = "\x01here\x01"


def call_of(params: str) -> bytes:
    return f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'.encode()


BODIES: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"<a/>",
    "truncated": b'{"jsonrpc": "2.0", "id": 1, "met',
    "null": b"null",
    "a number": b"7",
    "a batch": b"[]",
    "two values": b"{}{}",
    "invalid UTF-8": b'{"jsonrpc": "\xff\xfe"}',
    "no method": b'{"jsonrpc": "2.0", "id": 1}',
    "a method of no kind": b'{"jsonrpc": "2.0", "id": 1, "method": 7}',
    "an unknown method": b'{"jsonrpc": "2.0", "id": 1, "method": "admin/drop"}',
    "an id of no kind": b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "tools/list"}',
    "a huge id": b'{"jsonrpc": "2.0", "id": ' + b"9" * 5_000 + b', "method": "tools/list"}',
    "parameters of no kind": call_of("[1]"),
    "a name of no kind": call_of('{"name": {}}'),
    "no such tool": call_of('{"name": "__class__"}'),
    "arguments of no kind": call_of('{"name": "recall", "arguments": 7}'),
    "deep": call_of('{"a":' * 10_000 + "1" + "}" * 10_000),
    "an answer to nothing": b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    "a notification": b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}',
}


@pytest.mark.parametrize(
    "headers", [{}, MODERN, {"MCP-Protocol-Version": "1999-01-01"}], ids=["legacy", "modern", "old"]
)
async def test_what_is_no_request_is_refused(api: httpx.AsyncClient, headers: dict[str, str]) -> None:
    for says, body in BODIES.items():
        async with asyncio.timeout(60):  # it hangs
            answer = await post(api, body=body, **headers)
        assert answer.status_code < 500, (says, answer.text)


async def test_other_types_and_sizes_are_refused(api: httpx.AsyncClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
        for headers in ({}, MODERN):
            problem(await post(api, **{"content-type": kind, **headers}), 415, "unsupported_media_type")
    assert (await post(api, **{"content-type": "Application/JSON; charset=utf-8"})).status_code == 200
    assert (await post(api, body=b" " * (5 << 20))).status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * (1 << 20)

    assert (await api.post("/mcp", content=chunks(), headers=HEADERS)).status_code == 413
    assert (await post(api, accept="text/html")).status_code in (400, 406)


ARGUMENTS: dict[str, str] = {
    "NaN": "NaN",
    "1e999": "1e999",
    "2^70": str(2**70),
    "a lone surrogate": '"\\ud800"',
    "NUL": '"a\\u0000b"',
    "too long": json.dumps("x" * 32_001),
    "an object": '{"$ne": 1}',
    "a list": "[[[[]]]]",
    "depth 40": "[" * 40 + "]" * 40,
    "null": "null",
    "true": "true",
    "empty": '""',
    "blank": '" "',
}
PLACES: list[tuple[str, dict[str, Any]]] = [
    ("remember", {"content": _HERE}),
    ("remember", {"content": "x", "tags": [_HERE]}),
    ("remember", {"content": "x", "importance": _HERE}),
    ("recall", {"query": _HERE}),
    ("recall", {"query": "x", "top_k": _HERE}),
    ("get_context", {"query": "x", "token_budget": _HERE}),
    ("log_action", {"action_type": "x", "input": _HERE, "entities": [_HERE]}),
    ("log_action", {"action_type": _HERE}),
    ("find_procedure", {"situation": _HERE}),
    ("update_task", {"goal": _HERE}),
    ("update_task", {"goal": "x", "context": {"a": _HERE}}),
    ("forget", {"memory_ids": [_HERE]}),
    ("list_memories", {"tag": _HERE}),
    ("list_upcoming", {"until": _HERE}),
    ("list_memories", {"cursor": _HERE, "limit": 3}),
    ("list_memories", {"limit": _HERE, "since": _HERE}),
    ("get_memory", {"memory_id": _HERE}),
    ("update_memory", {"memory_id": _HERE, "content": "x"}),
    ("update_memory", {"memory_id": "mem_nothere", "tags": _HERE, "key": _HERE}),
    ("assert_fact", {"subject": "Ada", "predicate": "likes", "object": _HERE}),
    ("assert_fact", {"subject": _HERE, "predicate": _HERE, "object": "x", "valid_from": _HERE}),
    ("find_facts", {"query": _HERE, "as_of": _HERE}),
    ("find_facts", {"query": "x", "subject": _HERE}),
    ("append_messages", {"session_id": "hostile", "messages": [{"role": "user", "content": _HERE}]}),
    ("append_messages", {"session_id": _HERE, "messages": [{"role": _HERE, "content": "x"}]}),
    ("update_profile", {"name": _HERE, "age": _HERE}),
    ("update_profile", {"custom": {"a": _HERE}}),
]


async def test_no_argument_is_a_fault_of_ours(api: httpx.AsyncClient) -> None:
    for says, raw in ARGUMENTS.items():
        for tool, arguments in PLACES:
            asked = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": tool, "arguments": arguments},
            }
            body = json.dumps(asked).replace(json.dumps(_HERE), raw).encode()
            answer = await post(api, "?agent_id=a&user_id=u", body)
            assert answer.status_code < 500, (says, tool)
            assert "internal" not in answer.text, (says, tool, answer.text)
            if "result" in answer.json() and answer.json()["result"]["isError"]:
                assert len(answer.json()["result"]["content"][0]["text"]) < 2_000


async def test_an_error_says_what_to_do(api: httpx.AsyncClient) -> None:
    async def said(tool: str, **arguments: Any) -> str:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        result = (await post(api, body=asked)).json()["result"]
        assert result["isError"] is True
        return str(result["content"][0]["text"])

    assert "agent_id, user_id or both are required" in await said("recall", query="x")
    assert "- /agent_id: is required" in await said("get_context", query="x")
    assert "- /querry: this argument is not known: did you mean `query`?" in await said(
        "recall", querry="x", user_id="u"
    )
    assert "RFC 3339" in await said("recall", query="x", user_id="u", since="yesterday")
    assert "- /content: must have at most 32000 characters" in await said("remember", content="x" * 32_001, user_id="u")
