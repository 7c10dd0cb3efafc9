"""GET /v1/memories: filters, order, pages, cursors."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.conftest import Service
from tests.support.memories import OWNER, batch, listed, problem, remember, shared_service

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stocked(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_service(shared_settings, model) as service:
        api = service.client
        await remember(
            api, "first", memory_type="preference", tags=["t", "o'clock"], importance=0.9, metadata={"a.b": [1], "n": 1}
        )
        await remember(api, "second", key="k", pinned=True, metadata={"n": 1, "$x": None})
        service.clock.move(days=1)
        await remember(api, "agent's", user_id=None)
        await remember(api, "user's", agent_id=None)
        await remember(api, "other's", user_id="u2", tags=["t"])
        yield api


@pytest.mark.parametrize(
    ("params", "contents"),
    [
        ({}, ["other's", "user's", "agent's", "second", "first"]),
        ({"order": "asc"}, ["first", "second", "agent's", "user's", "other's"]),
        ({"user_id": "u"}, ["user's", "second", "first"]),
        ({"agent_id": "a"}, ["other's", "agent's", "second", "first"]),
        ({"agent_id": "a", "user_id": "u"}, ["second", "first"]),
        ({"memory_type": "preference"}, ["first"]),
        ({"tag": "t"}, ["other's", "first"]),
        ({"tag": "o'clock", "user_id": "u"}, ["first"]),
        ({"key": "k"}, ["second"]),
        ({"pinned": "true"}, ["second"]),
        ({"pinned": "false", "user_id": "u", "agent_id": "a"}, ["first"]),
        ({"since": "2026-06-02T00:00:00Z"}, ["other's", "user's", "agent's"]),
        ({"until": "2026-06-02T02:00:00+02:00"}, ["second", "first"]),
        ({"session_id": "none"}, []),
        ({"status": "superseded"}, []),
        ({"limit": 2}, ["other's", "user's"]),
        ({"metadata": '{"n": 1}'}, ["second", "first"]),
        ({"metadata": '{"n": 1.0, "a.b": [1]}'}, ["first"]),
        ({"metadata": '{"$x": null}'}, ["second"]),
        ({"metadata": '{"n": "1"}'}, []),
        ({"metadata": '{"n": 1}', "tag": "t", "user_id": "u"}, ["first"]),
        ({"metadata": "{}", "user_id": "u2"}, ["other's"]),
    ],
)
async def test_lists_have_what_matches_exactly_newest_first(
    stocked: httpx.AsyncClient, params: dict[str, Any], contents: list[str]
) -> None:
    assert await listed(stocked, **params) == contents


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "101"),
        ("limit", "ten"),
        ("order", "up"),
        ("user_id", "a/b"),
        ("memory_type", "secret"),
        ("since", "2026-06-02T00:00:00"),
        ("pinned", "perhaps"),
        ("status", "deleted"),
        ("metadata", "[1]"),
        ("metadata", '{"n": 1'),
        ("metadata", '{"n": NaN}'),
        ("metadata", "x" * 9000),
    ],
)
async def test_bad_parameters_are_named(stocked: httpx.AsyncClient, name: str, value: str) -> None:
    problem(await stocked.get("/v1/memories", params={name: value}), 422, "invalid", f"/query/{name}")


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_neither_skip_nor_repeat_while_the_list_changes(api: httpx.AsyncClient, order: str) -> None:
    await batch(api, *({"content": f"n {i}"} for i in range(7)))  # all of one moment: the id decides
    whole = (await api.get("/v1/memories", params={"order": order})).json()["items"]
    seen: list[str] = []
    params: dict[str, Any] = {"order": order, "limit": 3}
    while True:
        page = (await api.get("/v1/memories", params=params)).json()
        seen += [item["memory_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        await api.delete(f"/v1/memories/{seen[0]}")
        params["cursor"] = page["next_cursor"]
        params["limit"] = 2
    assert seen == [item["memory_id"] for item in whole]


async def test_a_cursor_is_bound_to_filters_order_and_tenant(service: Service) -> None:
    ours, theirs = await service.key("ours"), await service.key("theirs")
    api = service.client
    for headers in (ours, theirs):
        for content in ("one", "two"):
            await api.post("/v1/memories", json={**OWNER, "content": content}, headers=headers)
    params: dict[str, Any] = {"limit": 1, "user_id": "u"}
    cursor = (await api.get("/v1/memories", params=params, headers=ours)).json()["next_cursor"]
    same = await api.get("/v1/memories", params={**params, "cursor": cursor}, headers=ours)
    assert [item["content"] for item in same.json()["items"]] == ["one"]

    for changed in ({"user_id": "u2"}, {"order": "asc"}, {"tag": "t"}, {"status": "any"}, {"metadata": '{"a":1}'}):
        response = await api.get("/v1/memories", params={**params, **changed, "cursor": cursor}, headers=ours)
        problem(response, 400, "invalid_cursor")
    problem(await api.get("/v1/memories", params={**params, "cursor": cursor}, headers=theirs), 400, "invalid_cursor")
    problem(await api.get("/v1/sessions", params={"user_id": "u", "cursor": cursor}, headers=ours), 400)


async def test_a_cursor_that_was_tampered_with_is_refused(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "one"}, {"content": "two"})
    cursor = (await api.get("/v1/memories", params={"limit": 1})).json()["next_cursor"]
    for at in (0, 5, len(cursor) // 2, len(cursor) - 3):
        other = "A" if cursor[at] != "A" else "B"
        tampered = cursor[:at] + other + cursor[at + 1 :]
        problem(await api.get("/v1/memories", params={"cursor": tampered}), 400, "invalid_cursor")
    for nonsense in ("", "x", "=", "Ä", "{}", cursor[:-4], "bnVsbA"):
        problem(await api.get("/v1/memories", params={"cursor": nonsense}), 400, "invalid_cursor")


async def test_a_cursor_has_one_spelling_only(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "one"}, {"content": "two"})
    cursor = (await api.get("/v1/memories", params={"limit": 1})).json()["next_cursor"]
    problem(await api.get("/v1/memories", params={"cursor": cursor + "!"}), 400, "invalid_cursor")
