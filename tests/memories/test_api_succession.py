"""Deleting a memory that superseded others, and setting a superseded one active by hand."""

import asyncio
from typing import Any

import httpx
import pytest

from app.core.clock import rfc3339
from app.memories.repository import MemoryRepository
from app.memories.service import Succession
from app.storage.changes import CommitConflict
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.learning import consolidate
from tests.support.memories import found, history, listed, problem, remember

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


async def read(api: httpx.AsyncClient, memory: Json) -> Json:
    answer = await api.get(f"/v1/memories/{memory['memory_id']}")
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


async def delete(api: httpx.AsyncClient, memory: Json, **params: str) -> None:
    answer = await api.delete(f"/v1/memories/{memory['memory_id']}", params=params)
    assert answer.status_code == 204, answer.text


async def chain(api: httpx.AsyncClient, *contents: str) -> list[Json]:
    """Memories, each of which supersedes the one before."""
    made: list[Json] = []
    for content in contents:
        made.append(await remember(api, content, supersedes=[one["memory_id"] for one in made[-1:]]))
    return made


async def test_a_deleted_successor_brings_its_predecessor_back(api: httpx.AsyncClient) -> None:
    old, new = await chain(api, "lives in Oslo", "lives in Bergen")
    await delete(api, new)
    back = await read(api, old)
    assert (back["status"], back["superseded_by"], back["version"]) == ("active", None, 3)
    assert await found(api, "Where does she live?") == ["lives in Oslo"]
    assert [past["record"]["status"] for past in await history(api, old["memory_id"])] == ["superseded", "active"]


async def test_all_that_one_memory_superseded_comes_back(api: httpx.AsyncClient) -> None:
    olds = [await remember(api, text) for text in ("one", "two", "three")]
    new = await remember(api, "all", supersedes=[old["memory_id"] for old in olds])
    await delete(api, new)
    assert sorted(await listed(api)) == ["one", "three", "two"]


async def test_near_duplicates_that_were_superseded_on_wish_come_back(api: httpx.AsyncClient) -> None:
    await remember(api, "Ada likes green tea in the morning.")
    new = await remember(api, "Ada likes green tea in the morning!", on_similar="supersede")
    await delete(api, new)
    assert await listed(api) == ["Ada likes green tea in the morning."]


async def test_the_history_of_a_superseded_near_duplicate_has_it_as_it_was(api: httpx.AsyncClient) -> None:
    old = await remember(api, "Ada likes green tea in the morning.")
    before = await read(api, old)
    await remember(api, "Ada likes green tea in the morning!", on_similar="supersede")
    (past,) = await history(api, old["memory_id"])
    assert past["record"] == before


async def test_only_the_last_link_of_a_chain_comes_back(api: httpx.AsyncClient) -> None:
    first, second, third = await chain(api, "one", "two", "three")
    await delete(api, third)
    assert await listed(api) == ["two"]
    assert (await read(api, first))["superseded_by"] == second["memory_id"]
    await delete(api, second)
    assert await listed(api) == ["one"]


async def test_a_link_deleted_in_the_middle_leaves_its_predecessor_to_its_successor(api: httpx.AsyncClient) -> None:
    first, second, third = await chain(api, "one", "two", "three")
    await delete(api, second)
    assert await listed(api) == ["three"]
    assert (await read(api, first))["superseded_by"] == third["memory_id"]
    last = await read(api, third)
    assert (last["supersedes"], last["version"]) == ([first["memory_id"]], 1)
    await delete(api, third)
    assert await listed(api) == ["one"]


async def test_the_chain_goes_on_wish(api: httpx.AsyncClient) -> None:
    *_, third = await chain(api, "one", "two", "three")
    await remember(api, "beside")
    await delete(api, third, predecessors="delete")
    assert await listed(api, status="any") == ["beside"]


async def test_predecessors_can_only_be_restored_or_deleted(api: httpx.AsyncClient) -> None:
    (one,) = await chain(api, "one")
    answer = await api.delete(f"/v1/memories/{one['memory_id']}", params={"predecessors": "keep"})
    problem(answer, 422, "invalid", "/query/predecessors")
    assert await listed(api) == ["one"]


async def test_a_predecessor_comes_back_with_its_key(api: httpx.AsyncClient) -> None:
    old = await remember(api, "lives in Oslo", key="home")
    new = await remember(api, "moved", supersedes=[old["memory_id"]])
    await delete(api, new)
    assert (await read(api, old))["key"] == "home"
    assert (await remember(api, "lives in Rome", 200, key="home"))["memory_id"] == old["memory_id"]


async def test_a_predecessor_comes_back_without_a_key_that_another_memory_has_now(api: httpx.AsyncClient) -> None:
    first = await remember(api, "lives in Oslo", key="home")
    second = await remember(api, "lives in Bergen", key="home2")
    new = await remember(api, "moved", supersedes=[first["memory_id"], second["memory_id"]])
    other = await remember(api, "lives in Rome", key="home")
    await delete(api, new)
    assert sorted(await listed(api)) == ["lives in Bergen", "lives in Oslo", "lives in Rome"]
    assert (await read(api, first))["key"] is None
    assert (await read(api, second))["key"] == "home2"
    assert (await read(api, other))["key"] == "home"


async def test_of_two_predecessors_with_one_key_the_later_comes_back_with_it(api: httpx.AsyncClient) -> None:
    first = await remember(api, "lives in Oslo", key="home")
    new = await remember(api, "moved", supersedes=[first["memory_id"]], key="move")
    second = await remember(api, "lives in Bergen", key="home")
    await remember(api, "moved", 200, supersedes=[second["memory_id"]], key="move")
    await delete(api, new)
    assert [(await read(api, one))["key"] for one in (first, second)] == [None, "home"]


async def test_a_predecessor_whose_equal_is_there_comes_back_beside_it(api: httpx.AsyncClient) -> None:
    old = await remember(api, "tea")
    new = await remember(api, "coffee", supersedes=[old["memory_id"]])
    await remember(api, "tea", 201)
    await delete(api, new)
    assert await listed(api) == ["tea", "tea"]
    assert await found(api, "tea") == ["tea"]


async def test_a_predecessor_that_was_set_active_by_hand_stays_as_it_is(api: httpx.AsyncClient) -> None:
    old, new = await chain(api, "one", "two")
    path = f"/v1/memories/{old['memory_id']}"
    back = (await api.patch(path, json={"status": "active"})).json()
    assert (back["status"], back["superseded_by"]) == ("active", None)
    assert (await read(api, new))["supersedes"] == []
    assert sorted(await listed(api)) == ["one", "two"]
    await api.patch(path, json={"content": "one by hand"})
    await delete(api, new)
    assert await listed(api) == ["one by hand"]
    problem(await api.patch(path, json={"status": "superseded"}), 422)


async def test_a_superseded_memory_cannot_be_archived(api: httpx.AsyncClient) -> None:
    old, _ = await chain(api, "one", "two")
    problem(await api.patch(f"/v1/memories/{old['memory_id']}", json={"status": "archived"}), 409, "conflict")


async def test_a_superseded_memory_whose_key_is_taken_is_not_set_active(api: httpx.AsyncClient) -> None:
    old = await remember(api, "one", key="k")
    await remember(api, "two", supersedes=[old["memory_id"]])
    await remember(api, "three", key="k")
    problem(await api.patch(f"/v1/memories/{old['memory_id']}", json={"status": "active"}), 409, "conflict")


async def test_deleting_by_filter_brings_nothing_back(api: httpx.AsyncClient) -> None:
    await chain(api, "one", "two")
    gone = await api.delete("/v1/memories", params={"user_id": "u", "status": "active"})
    assert gone.json() == {"deleted": 1}
    assert await listed(api) == []
    assert await listed(api, status="superseded") == ["one"]


async def test_duplicates_that_were_merged_do_not_come_back_but_go_on_wish(service: Service) -> None:
    api = service.client
    for content in ("Ada likes tea.", "Ada likes tea!"):
        await remember(api, content, deduplicate=False)
    done = await consolidate(service, user_id="u")
    (group,) = done["result"]["memories"]["items"]
    (retired,) = group["retired"]
    await delete(api, {"memory_id": group["kept"]})
    assert await listed(api) == []
    by_hand = await api.patch(f"/v1/memories/{retired}", json={"status": "active"})
    assert by_hand.json()["status"] == "active"


async def test_what_was_superseded_before_a_merge_comes_back_and_the_merged_does_not(service: Service) -> None:
    api = service.client
    old = await remember(api, "Ada likes milk.")
    await remember(api, "Ada likes tea.", supersedes=[old["memory_id"]], importance=0.9)
    await remember(api, "Ada likes tea!", deduplicate=False)
    (group,) = (await consolidate(service, user_id="u"))["result"]["memories"]["items"]
    await delete(api, {"memory_id": group["kept"]})
    assert await listed(api) == ["Ada likes milk."]


async def test_two_links_of_a_chain_deleted_at_once_leave_the_first_active(api: httpx.AsyncClient) -> None:
    _, second, third = await chain(api, "one", "two", "three")
    await asyncio.gather(delete(api, second), delete(api, third))
    assert await listed(api, status="any") == ["one"]
    assert await listed(api) == ["one"]


async def test_a_deletion_that_read_its_links_before_another_one_is_made_again(service: Service) -> None:
    """The deletion of "three" knows of "two" alone, and that of "two" hands "one" over to "three"."""
    api, held = service.client, service.resources
    _, second, third = await chain(api, "one", "two", "three")
    memories = MemoryRepository(held.store, Scope("default"))
    read_before = await memories.get(third["memory_id"])
    await delete(api, second)
    changes = await Succession(memories, rfc3339(held.clock.now())).deletion(read_before)
    with pytest.raises(CommitConflict):
        await held.store.commit(changes)
    await delete(api, third)
    assert await listed(api) == ["one"]


async def test_a_key_that_is_bound_brings_back_its_own_users_memories_alone(service: Service) -> None:
    key = await service.key(users=["u"])
    api = service.client
    bodies = [{"agent_id": "a", "user_id": "u", "content": content} for content in ("one", "two")]
    first = (await api.post("/v1/memories", json=bodies[0], headers=key)).json()
    body = {**bodies[1], "supersedes": [first["memory_id"]]}
    second = (await api.post("/v1/memories", json=body, headers=key)).json()
    gone = await api.delete(f"/v1/memories/{second['memory_id']}", headers=key)
    assert gone.status_code == 204
    assert (await api.get(f"/v1/memories/{first['memory_id']}", headers=key)).json()["status"] == "active"
