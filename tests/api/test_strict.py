"""A JSON body is parsed strictly, and one that is too deep or holds too many values is refused."""

import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import strict
from app.api.strict import SMALL_BODY, is_deeper, parse
from app.core.schemas import BodyLimits
from app.errors import BadRequest, Invalid
from tests.conftest import Service
from tests.support.processor_time import processor_time
from tests.support.server import Server, serving

pytestmark = pytest.mark.anyio

LIMITS = BodyLimits()
PADDING = " " * SMALL_BODY
"""White space that makes a body a large one."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text('[]{}",:\\ab', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('[{"\\', max_size=3), inner, max_size=4),
    max_leaves=30,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def leaves_and_containers(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(leaves_and_containers, inner))


def empty_ones(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (value in ([], {})) + sum(map(empty_ones, inner))


MIB = 1 << 20


@given(JSON)
def test_values_are_counted_and_brackets_commas_and_quotes_in_texts_are_not(value: object) -> None:
    body = (json.dumps(value) + PADDING).encode()
    most = leaves_and_containers(value) + empty_ones(value)
    assert parse(body, BodyLimits(json_values=most)) == value
    with pytest.raises(Invalid, match=f"more than {most - 1} values"):
        parse(body, BodyLimits(json_values=most - 1))


@given(JSON, st.integers(1, 8), st.sampled_from(["", PADDING]))
def test_a_body_is_refused_for_its_depth_exactly_beyond_the_limit(value: object, limit: int, padding: str) -> None:
    body, limits = (json.dumps(value) + padding).encode(), BodyLimits(json_depth=limit)
    assert is_deeper(value, limit) == (depth(value) > limit)
    if depth(value) <= limit:
        assert parse(body, limits) == value
    else:
        with pytest.raises(Invalid, match="nested deeper"):
            parse(body, limits)


@pytest.mark.parametrize("kind", [b"[", b'"",', b"[],", b'{"a":', b"\\", b'\\"', b'"a"', b"{}", b" "])
def test_a_refusal_takes_as_long_for_each_megabyte_whatever_it_reads(kind: bytes) -> None:
    """One that goes back over what it has read takes 64 times as long for eight times the body."""
    took = []
    for size in (MIB // 2, 4 * MIB):
        body = kind * (size // len(kind))
        took.append(processor_time(partial(_refused, body), tries=5))
    short, long = took
    assert long < 40 * short


def _refused(body: bytes) -> None:
    with pytest.raises((Invalid, BadRequest)):
        parse(body, LIMITS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("strict") / "data") as running:
        yield running


BOMBS = {
    "lists in lists": "[" * (3 * MIB),
    "objects in objects": '{"a":' * (3 * MIB // 5),
    "closed, too": "[" * MIB + "]" * MIB,
    "deeper than allowed, and not than a parser takes": "[" * 40 + "]" * 40 + PADDING,
    "many lists": "[" + "[]," * MIB + "[]]",
    "many numbers": "[" + "0," * MIB + "0]",
}


@pytest.mark.parametrize("query", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("path", ["/v1/memories/search", "/mcp"])
def test_a_body_that_would_take_much_memory_or_a_deep_stack_is_refused(server: Server, path: str, query: str) -> None:
    body, headers = f'{{"query": {query}}}', {"content-type": "application/json"}
    refused = server.client.post(path, content=body, headers=headers, timeout=60)
    assert (refused.status_code, refused.json()["code"]) in ((422, "invalid"), (400, "malformed_request"))
    assert server.client.get("/livez").status_code == 200


@pytest.mark.parametrize("padding", ["", PADDING])
def test_a_key_that_occurs_twice_is_refused_by_name(padding: str) -> None:
    with pytest.raises(BadRequest, match='"user_id" occurs twice'):
        parse(('{"a": [{"user_id": "ada", "n": 1, "user_id": "bob"}]}' + padding).encode(), LIMITS)


async def test_a_request_with_a_key_twice_stores_nothing(service: Service) -> None:
    body = '{"agent_id": "a", "user_id": "ada", "user_id": "bob", "content": "Ada likes tea"}'
    headers = {"content-type": "application/json"}
    answer = await service.client.post("/v1/memories", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    for user in ("ada", "bob"):
        listed = await service.client.get("/v1/memories", params={"user_id": user})
        assert listed.json()["items"] == []


async def test_large_bodies_of_a_tenant_share_a_rate_and_hold_up_nobody_else(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict, "BYTES_PER_SECOND", 1 << 20)
    greedy, modest = await service.key("greedy"), await service.key("modest")
    search = {"agent_id": "a", "user_id": "ada", "query": "tea"}

    async def body() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b" " * (32 << 10)
        yield json.dumps(search).encode()

    async def send() -> int:
        headers = greedy | {"content-type": "application/json"}
        return (await service.client.post("/v1/memories/search", content=body(), headers=headers)).status_code

    await service.client.post("/v1/memories/search", json=search, headers=modest)  # the first one reads the tables
    started = time.monotonic()
    large = [asyncio.create_task(send()) for _ in range(2)]
    await asyncio.sleep(0)
    answer = await service.client.post("/v1/memories/search", json=search, headers=modest)
    assert answer.status_code == 200
    assert not any(task.done() for task in large)
    assert await asyncio.gather(*large) == [200, 200]
    assert time.monotonic() - started >= 0.4


async def test_a_large_body_is_parsed_and_checked_as_a_small_one(service: Service) -> None:
    items = [{"agent_id": "a", "content": f"{n} " + "tea " * 200} for n in range(250)]
    answer = await service.client.post("/v1/memories/batch", json={"items": items})
    assert answer.status_code == 201
    items[99]["content"] = "NUL \0"
    answer = await service.client.post("/v1/memories/batch", json={"items": items})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/items/99/content")


async def test_a_body_that_breaks_off_is_dropped(service: Service) -> None:
    """Counts what is held after forty megabytes, where no search for garbage helps."""
    part = bytes(64 << 10)

    async def broken_off(path: str) -> None:
        left = 60

        async def receive() -> dict[str, object]:
            nonlocal left
            left -= 1
            return (
                {"type": "http.request", "body": bytearray(part), "more_body": True}
                if left
                else {"type": "http.disconnect"}
            )

        async def send(message: object) -> None:
            pytest.fail(f"{message} was sent to a client that has left")

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"4194304")]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
        place = {
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "client": ("127.0.0.1", 1),
        }
        state = {"resources": service.resources}
        await service.app({**scope, **place, "server": None, "headers": headers, "state": state}, receive, send)

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for path in ("/v1/memories/batch", "/v1/context", "/mcp"):
            await broken_off(path)  # imports and caches
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(10):
                await broken_off(path)
            assert tracemalloc.get_traced_memory()[0] - before < 1 << 20, path
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("path", ["/v1/memories", "/mcp"])
async def test_a_compressed_body_is_415(service: Service, path: str) -> None:
    for coding, wanted in (("gzip", 415), ("br", 415), ("identity", None)):
        headers = {"content-type": "application/json", "content-encoding": coding}
        answer = await service.client.post(path, content=b"{}", headers=headers)
        assert (answer.status_code == 415) == (wanted == 415), answer.text
        if wanted:
            assert answer.json()["code"] == "unsupported_media_type"
            assert f"Content-Encoding: {coding}" in answer.json()["detail"]


def test_a_query_string_is_parsed_once_for_the_checks_and_for_the_endpoint() -> None:
    assert strict.checked_query(b"user_id=ada&key=%C3%A9t%C3%A9+2&tag=", frozenset({"user_id", "key", "tag"})) == {
        "user_id": "ada",
        "key": "\u00e9t\u00e9 2",
        "tag": "",
    }
