"""PATCH, If-Match and history."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.conftest import Service, TurnedClock
from tests.support.memories import OWNER, found, history, path_of, problem, remember

pytestmark = pytest.mark.anyio


async def test_what_is_absent_stays_and_null_clears(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "x", key="k", context="c", event_at="2026-01-01T00:00:00Z", tags=["t"], trust=0.5)
    patched = await api.patch(path, json={"key": None, "context": None, "event_at": None, "trust": 0.25})
    body = patched.json()
    assert (body["key"], body["context"], body["event_at"], body["trust"]) == (None, None, None, 0.25)
    assert (body["content"], body["tags"], body["version"]) == ("x", ["t"], 2)
    assert patched.headers["etag"] == '"2"'
    assert (await api.get(path)).json() == body


async def test_null_empties_lists_and_objects(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "x", tags=["t"], metadata={"a": 1})
    cleared = (await api.patch(path, json={"tags": None, "metadata": None})).json()
    assert (cleared["tags"], cleared["metadata"], cleared["version"]) == ([], {}, 2)
    assert (await api.get("/v1/memories", params={"tag": "t"})).json()["items"] == []


@pytest.mark.parametrize("field", ["content", "memory_type", "importance", "trust", "pinned", "status"])
async def test_null_where_nothing_can_be_empty_is_refused(api: httpx.AsyncClient, field: str) -> None:
    path = await path_of(api, "x")
    problem(await api.patch(path, json={field: None}), 422, "invalid", f"/{field}")
    assert (await api.get(path)).json()["version"] == 1


@pytest.mark.parametrize(
    ("patch", "pointer"),
    [
        ({"unknown": 1}, "/unknown"),
        ({"user_id": "other"}, "/user_id"),
        ({"status": "superseded"}, "/status"),
        ({"content": " "}, "/content"),
        ({"valid_from": "2027-01-01T00:00:00Z"}, "/valid_until"),
        ({"valid_from": "2026-05-02T00:00:00Z", "valid_until": "2026-05-02T00:00:00Z"}, "/valid_until"),
        ({"expires_at": "2027-01-01T00:00:00"}, "/expires_at"),
    ],
)
async def test_a_bad_patch_changes_nothing(api: httpx.AsyncClient, patch: dict[str, Any], pointer: str) -> None:
    path = await path_of(api, "x", valid_until="2026-12-31T00:00:00Z")
    problem(await api.patch(path, json=patch), 422, "invalid", pointer)
    assert (await api.get(path)).json()["version"] == 1


async def test_a_patch_that_changes_nothing_makes_no_version(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "x", tags=["t"])
    for same in ({}, {"content": "x"}, {"tags": ["t"], "context": None}):
        assert (await api.patch(path, json=same)).json()["version"] == 1
    assert await history(api, path.rpartition("/")[2]) == []


async def test_new_content_is_embedded_anew(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "plays the violin")
    await api.patch(path, json={"content": "collects stamps"})
    assert await found(api, "violin", mode="text") == []
    assert await found(api, "stamps", mode="text") == ["collects stamps"]
    assert await found(api, "plays the violin", mode="vector", min_similarity=0.9) == []
    assert await found(api, "collects stamps", mode="vector", min_similarity=0.99) == ["collects stamps"]


async def test_a_new_importance_starts_to_fade_from_here(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    path = await path_of(api, "x", importance=0.8)
    clock.move(days=90)
    faded = (await api.get(path)).json()
    assert faded["importance"] == pytest.approx(0.8 * 0.95**2, abs=1e-6)
    assert (faded["base_importance"], faded["version"]) == (0.8, 1)
    assert (await api.patch(path, json={"tags": ["t"]})).json()["importance"] == pytest.approx(0.8 * 0.95**2, abs=1e-6)
    renewed = (await api.patch(path, json={"importance": 0.6})).json()
    assert (renewed["importance"], renewed["base_importance"]) == (0.6, 0.6)
    clock.move(days=29)
    assert (await api.get(path)).json()["importance"] == 0.6
    clock.move(days=31)
    assert (await api.get(path)).json()["importance"] == pytest.approx(0.6 * 0.95, abs=1e-6)


async def test_metadata_is_replaced_as_a_whole(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "x", metadata={"a": 1, "b": 2})
    assert (await api.patch(path, json={"metadata": {"b": 3}})).json()["metadata"] == {"b": 3}
    assert await found(api, "x", metadata={"a": 1}) == []
    assert await found(api, "x", metadata={"b": 3}) == ["x"]


async def test_a_name_of_another_memory_cannot_be_taken(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await remember(api, "one", key="k", expires_at="2026-06-02T00:00:00Z")
    path = await path_of(api, "two")
    problem(await api.patch(path, json={"key": "k"}), 409, "conflict")
    clock.move(days=2)  # what has expired holds no name
    assert (await api.patch(path, json={"key": "k"})).status_code == 200


async def test_an_archived_memory_is_out_of_search_until_it_is_back(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "x")
    await api.patch(path, json={"status": "archived"})
    assert await found(api, "x") == []
    assert await found(api, "x", status="archived") == ["x"]
    await api.patch(path, json={"status": "active"})
    assert await found(api, "x") == ["x"]


# --- If-Match ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ['"2"', "*", '"7", "2"', ' "1" ,"2"'])
async def test_a_write_at_the_version_named_is_done(api: httpx.AsyncClient, held: str) -> None:
    path = await path_of(api, "x")
    await api.patch(path, json={"tags": ["t"]})
    assert (await api.patch(path, json={"tags": ["u"]}, headers={"If-Match": held})).status_code == 200


@pytest.mark.parametrize("stale", ['"1"', '"22"', '"1", "3"', 'W/"2"', '""', "nonsense"])
async def test_a_write_at_another_version_is_not_done(api: httpx.AsyncClient, stale: str) -> None:
    path = await path_of(api, "x")
    await api.patch(path, json={"tags": ["t"]})
    headers = {"If-Match": stale}
    problem(await api.patch(path, json={"tags": ["u"]}, headers=headers), 412, "precondition_failed")
    problem(await api.delete(path, headers=headers), 412, "precondition_failed")
    assert (await api.get(path)).json()["tags"] == ["t"]


async def test_of_many_patches_of_one_version_one_wins(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "x")
    bodies = [{"tags": [str(number)]} for number in range(20)]
    held = {"If-Match": '"1"'}
    done = await asyncio.gather(*(api.patch(path, json=body, headers=held) for body in bodies))
    assert sorted(response.status_code for response in done) == [200] + [412] * 19
    free = await asyncio.gather(*(api.patch(path, json=body) for body in bodies))
    assert {response.status_code for response in free} == {200}
    last = (await api.get(path)).json()
    assert (await history(api, last["memory_id"]))[0]["version"] == last["version"] - 1


async def test_if_match_guards_posts_under_a_name(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "content": "x", "key": "k"}
    for nothing_there in ("*", '"1"'):
        problem(await api.post("/v1/memories", json=body, headers={"If-Match": nothing_there}), 412)
    await api.post("/v1/memories", json=body)
    problem(await api.post("/v1/memories", json={**body, "content": "y"}, headers={"If-Match": '"9"'}), 412)
    done = await api.post("/v1/memories", json={**body, "content": "y"}, headers={"If-Match": '"1"'})
    assert (done.status_code, done.headers["etag"]) == (200, '"2"')


# --- History ----------------------------------------------------------------------------------------------------------


async def test_history_holds_each_version_as_it_left_when_and_by_whom(service: Service, clock: TurnedClock) -> None:
    first, second = await service.key(), await service.key()
    api = service.client
    made = await api.post("/v1/memories", json={**OWNER, "content": "one", "metadata": {"a.b": 1}}, headers=first)
    path = f"/v1/memories/{made.json()['memory_id']}"
    two = await api.patch(path, json={"content": "two"}, headers=first)
    clock.move(hours=1)
    three = await api.patch(path, json={"content": "three"}, headers=second)
    page = (await api.get(f"{path}/history", headers=first)).json()
    assert [past["version"] for past in page["items"]] == [2, 1]
    assert [past["record"]["content"] for past in page["items"]] == ["two", "one"]
    assert [past["changed_by"] for past in page["items"]] == [
        key["Authorization"].split("_")[1] for key in (second, first)
    ]
    assert [past["changed_at"] for past in page["items"]] == [r.json()["updated_at"] for r in (three, two)]
    assert page["items"][1]["record"] == {name: value for name, value in made.json().items() if name != "similar"}


async def test_history_is_paged_in_both_orders(api: httpx.AsyncClient) -> None:
    path = await path_of(api, "v1")
    for version in range(2, 7):
        await api.patch(path, json={"content": f"v{version}"})
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get(f"{path}/history", params={"limit": 2, "order": "asc", **cursor})).json()
        seen += [past["version"] for past in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == [1, 2, 3, 4, 5]
