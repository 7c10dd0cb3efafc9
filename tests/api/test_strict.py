"""A JSON body is parsed strictly, and what is too large for it is refused as it arrives, before anything is parsed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import strict_route
from app.api.strict import SLICE, SMALL_BODY, JsonScan, parse
from app.core.limits import BodyLimits
from app.errors import BadRequest, Invalid
from tests.conftest import Service

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


CUTS = st.lists(st.integers(0, 200), max_size=6)
MIB = 1 << 20


def read(value: object, limits: BodyLimits, cuts: Sequence[int] = ()) -> Any:
    """Parses a large body that arrives in pieces, cut at these places."""
    body, scan = (json.dumps(value) + PADDING).encode(), JsonScan(limits)
    for start, end in pairwise([0, *sorted(cuts), len(body)]):
        scan.feed(body[start:end])
    return parse(body, limits)


@given(JSON, CUTS)
def test_brackets_commas_and_quotes_in_texts_do_not_count(value: object, cuts: list[int]) -> None:
    assert read(value, LIMITS, cuts) == value


@given(JSON, st.integers(4, 8), CUTS)
def test_a_large_body_is_refused_for_its_depth_exactly_beyond_the_limit(
    value: object, limit: int, cuts: list[int]
) -> None:
    limits = BodyLimits(json_depth=limit)
    if depth(value) <= limit:
        assert read(value, limits, cuts) == value
    else:
        with pytest.raises(Invalid, match="nested deeper"):
            JsonScan(limits).feed(json.dumps(value).encode())
        with pytest.raises(Invalid, match="nested deeper"):
            read(value, limits, cuts)


def test_a_large_body_may_not_hold_too_many_values() -> None:
    limits = BodyLimits(json_values=1_000)
    many = [[0] * 99 for _ in range(9)]
    assert leaves_and_containers(many) == 901
    assert read(many, limits) == many
    with pytest.raises(Invalid, match="more than 1000 values"):
        read([*many, *many], limits)


@pytest.mark.parametrize("kind", [b"[", b'"",', b"[],", b'{"a":', b"\\", b'\\"', b'"a"', b"{}", b" "])
def test_a_scan_takes_as_long_for_each_megabyte_whatever_it_reads(kind: bytes) -> None:
    """A scan that goes back over what it has read takes 64 times as long for eight times the body."""
    took = []
    for size in (MIB // 4, 2 * MIB):
        body = kind * (size // len(kind))
        took.append(min(_scanned(body) for _ in range(5)))
    short, long = took
    assert long < 24 * short


def _scanned(body: bytes) -> float:
    """Processor time of a scan, in seconds."""
    started = time.process_time()
    with suppress(Invalid):
        JsonScan(LIMITS).feed(body)
    return time.process_time() - started


@pytest.mark.parametrize(("text", "places"), [("[" * SLICE, 1), ("[[],[]," * SLICE, 40)])
async def test_the_rest_of_a_body_that_breaks_a_limit_is_not_read(service: Service, text: str, places: int) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"query": ' + b" " * SMALL_BODY
        for start in range(0, 4 * MIB, SLICE):
            sent += 1
            yield text[start % len(text) :][:SLICE].encode()

    headers = {"content-type": "application/json"}
    answer = await service.client.post("/v1/memories/search", content=body(), headers=headers)
    assert answer.status_code == 422
    assert sent <= places


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
    monkeypatch.setattr(strict_route, "BYTES_PER_SECOND", 1 << 20)
    greedy, modest = await service.key("greedy"), await service.key("modest")
    search = {"agent_id": "a", "user_id": "ada", "query": "tea"}

    async def body() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b" " * (32 << 10)
        yield json.dumps(search).encode()

    async def send() -> int:
        headers = greedy | {"content-type": "application/json"}
        return (await service.client.post("/v1/memories/search", content=body(), headers=headers)).status_code

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
