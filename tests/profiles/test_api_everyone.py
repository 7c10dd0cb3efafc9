"""The list of users has everyone of whom anything is stored."""

from typing import Any

import httpx
import pytest

from app.core.clock import rfc3339
from tests.conftest import Service, TurnedClock
from tests.support.memories import Json, problem
from tests.support.operations import work
from tests.support.profiles import send

pytestmark = pytest.mark.anyio


def made_by(user: str, kind: str) -> tuple[str, Json]:
    """The request that stores one record of a user who has nothing else."""
    owner: Json = {"agent_id": "a", "user_id": user}
    return {
        "memory": ("/v1/memories", {**owner, "content": "likes tea"}),
        "session": ("/v1/sessions", owner),
        "message": (f"/v1/sessions/of-{user}/messages", {**owner, "messages": [{"role": "user", "content": "hi"}]}),
        "fact": ("/v1/facts", {**owner, "subject": "Ada", "predicate": "is", "object": "here"}),
        "task": ("/v1/tasks", {**owner, "goal": "g"}),
        "action": ("/v1/actions", {**owner, "action_type": "look"}),
        "procedure": ("/v1/procedures", {**owner, "name": "n", "trigger": "t", "steps": ["s"]}),
        "interaction": (f"/v1/users/{user}/interactions", {"summary": "met"}),
        "issue": (f"/v1/users/{user}/issues", {"description": "broken"}),
    }[kind]


KINDS = ("memory", "session", "message", "fact", "task", "action", "procedure", "interaction", "issue")


async def users(api: httpx.AsyncClient, headers: dict[str, str] | None = None, **params: Any) -> list[str]:
    """All pages."""
    read: list[str] = []
    asked: Json = {"limit": 2, **params}
    while True:
        answered = await api.get("/v1/users", params=asked, headers=headers)
        assert answered.status_code == 200, answered.text
        page = answered.json()
        assert len(page["items"]) <= asked["limit"]
        read += [item["user_id"] for item in page["items"]]
        if page["next_cursor"] is None:
            return read
        assert len(page["items"]) == asked["limit"]
        asked["cursor"] = page["next_cursor"]


async def test_everyone_who_has_anything_is_listed_once_in_order(api: httpx.AsyncClient) -> None:
    for kind in KINDS:
        path, body = made_by(f"of {kind}".replace(" ", "-"), kind)
        assert (await api.post(path, json=body)).status_code == 201, kind
    for kind in ("memory", "fact", "action"):
        path, body = made_by("everything", kind)
        for agent in ("a", "b"):
            assert (await api.post(path, json={**body, "agent_id": agent})).status_code == 201, kind
    await send(api, "PATCH", "/v1/users/of-memory/profile", {"name": "Mia"})
    await api.post("/v1/memories", json={"agent_id": "a", "content": "of nobody"})
    everyone = sorted(["everything", *(f"of-{kind}" for kind in KINDS)])
    assert await users(api, order="asc") == everyone
    assert await users(api) == everyone[::-1]
    assert await users(api, limit=100) == everyone[::-1]
    page = (await api.get("/v1/users", params={"limit": 100})).json()["items"]
    by_id = {item["user_id"]: item for item in page}
    known = by_id["of-memory"]
    assert (known["name"], known["version"]) == ("Mia", 1)
    profile = (await api.get("/v1/users/of-memory/profile")).json()
    assert known == profile | {"records": known["records"], "last_active": known["last_active"]}
    blank = by_id["of-fact"]
    assert blank.keys() == known.keys()
    assert (blank["name"], blank["interests"], blank["custom"]) == (None, [], {})
    assert (blank["version"], blank["created_at"], blank["updated_at"]) == (None, None, None)
    problem(await api.get("/v1/users/of-fact/profile"), 404, "not_found")
    for user_id, listed in by_id.items():
        answer = await api.get(f"/v1/users/{user_id}")
        etag = None if listed["version"] is None else f'"{listed["version"]}"'
        assert (answer.json(), answer.headers.get("etag")) == (listed, etag)
    problem(await api.get("/v1/users/nobody"), 404, "not_found")


async def test_a_key_reads_the_users_whom_it_lists(service: Service) -> None:
    for user in ("ada", "ben"):
        await service.client.post("/v1/memories", json={"agent_id": "a", "user_id": user, "content": "x"})
    bound, stranger = await service.key(users=["ada"]), await service.key("elsewhere")
    for headers, seen in ((bound, ["ada"]), (stranger, [])):
        assert await users(service.client, headers) == seen
        for user in ("ada", "ben"):
            answer = await service.client.get(f"/v1/users/{user}", headers=headers)
            assert answer.status_code == (200 if user in seen else 404)


async def test_a_users_list_stays_right_while_users_come(api: httpx.AsyncClient) -> None:
    for user in ("b", "d", "f"):
        await api.post("/v1/memories", json={"user_id": user, "content": "x"})
    page = (await api.get("/v1/users", params={"limit": 2, "order": "asc"})).json()
    assert [item["user_id"] for item in page["items"]] == ["b", "d"]
    for user in ("a", "c", "e", "g"):
        await api.post("/v1/memories", json={"user_id": user, "content": "x"})
    after: Json = {"limit": 9, "order": "asc", "cursor": page["next_cursor"]}
    rest = (await api.get("/v1/users", params=after)).json()
    assert [item["user_id"] for item in rest["items"]] == ["e", "f", "g"]
    problem(await api.get("/v1/users", params={**after, "order": "desc"}), 400, "invalid_cursor")
    problem(await api.get("/v1/users", params={"cursor": "made up"}), 400, "invalid_cursor")


async def test_an_erased_user_is_listed_no_more(service: Service) -> None:
    api = service.client
    for user in ("ada", "ben"):
        for kind in ("memory", "fact", "action", "interaction"):
            path, body = made_by(user, kind)
            assert (await api.post(path, json=body)).status_code == 201
    assert (await api.delete("/v1/users/ada")).status_code in (200, 202)
    await work(service)
    assert await users(api) == ["ben"]


async def test_a_user_whose_last_record_goes_is_listed_no_more(api: httpx.AsyncClient) -> None:
    made = await api.post("/v1/memories", json={"user_id": "ada", "content": "x"})
    assert await users(api) == ["ada"]
    await api.delete(f"/v1/memories/{made.json()['memory_id']}")
    assert await users(api) == []


async def test_each_key_sees_the_users_within_its_bindings(service: Service) -> None:
    api, owner = service.client, await service.key()
    for user, agent in (("ada", "a"), ("ben", "b"), ("cleo", None), ("ada", "b")):
        body = {"user_id": user, "agent_id": agent, "content": f"of {user} and {agent}"}
        assert (await api.post("/v1/memories", json=body, headers=owner)).status_code == 201
    keys: list[tuple[Json, list[str]]] = [
        ({}, ["ada", "ben", "cleo"]),
        ({"agents": ["a"]}, ["ada", "cleo"]),
        ({"agents": ["b"]}, ["ada", "ben", "cleo"]),
        ({"users": ["ben", "cleo", "nobody"]}, ["ben", "cleo"]),
        ({"agents": ["a"], "users": ["ben", "cleo"]}, ["cleo"]),
        ({"tenant": "other"}, []),
    ]
    for bound, expected in keys:
        assert await users(api, await service.key(**bound), order="asc") == expected, bound


async def test_a_profile_field_that_is_not_known_says_where_it_goes(api: httpx.AsyncClient) -> None:
    for method in ("PUT", "PATCH"):
        body: Json = {"name": "Ada", "nickname": "Addy", "age": -1}
        answered = await api.request(method, "/v1/users/ada/profile", json=body)
        told = {error["pointer"]: error["detail"] for error in problem(answered, 422, "invalid")["errors"]}
        assert told.keys() == {"/nickname", "/age"}
        assert "custom" in told["/nickname"]
        assert "custom" not in told["/age"]
    problem(await api.get("/v1/users/ada/profile"), 404, "not_found")
    kept = await send(api, "PATCH", "/v1/users/ada/profile", {"custom": {"nickname": "Addy"}})
    assert kept["custom"] == {"nickname": "Addy"}


async def test_owners_are_listed_with_what_they_own_and_their_last_day_whether_registered_or_not(
    service: Service, clock: TurnedClock
) -> None:
    api = service.client
    first = rfc3339(clock.now())[:10]
    for kind in ("memory", "session", "message", "fact", "task", "action", "procedure", "issue"):
        path, body = made_by("ada", kind)
        assert (await api.post(path, json=body)).status_code == 201, kind
    clock.move(days=3)
    last = rfc3339(clock.now())[:10]
    await api.post("/v1/memories", json={"agent_id": "b", "user_id": "ada", "content": "likes coffee"})
    await api.post("/v1/memories", json={"agent_id": "c", "content": "of no user"})
    await send(api, "POST", "/v1/agents", {"agent_id": "registered", "name": "Registered"}, 201)
    await send(api, "PATCH", "/v1/users/ben/profile", {"interests": ["bees"]})
    nothing = dict.fromkeys(("memories", "sessions", "facts", "actions", "tasks", "procedures"), 0)
    counts = {"sessions": 2, "facts": 1, "actions": 1, "tasks": 1, "procedures": 1}
    listed = (await api.get("/v1/users", params={"order": "asc"})).json()["items"]
    assert [(one["user_id"], one["records"], one["last_active"]) for one in listed] == [
        ("ada", {"memories": 4, **counts}, last),
        ("ben", nothing, None),
    ]
    listed = (await api.get("/v1/agents", params={"order": "asc"})).json()["items"]
    assert [(one["agent_id"], one["name"], one["records"], one["last_active"]) for one in listed] == [
        ("a", None, {"memories": 2, **counts}, first),
        ("b", None, nothing | {"memories": 1}, last),
        ("c", None, nothing | {"memories": 1}, last),
        ("registered", "Registered", nothing, None),
    ]
    assert listed[0]["settings"] == listed[3]["settings"], "an agent that is not registered works with the defaults"
    assert {one["version"] for one in listed[:3]} == {None}
    page = (await api.get("/v1/agents", params={"order": "asc", "limit": 3})).json()
    rest = await api.get("/v1/agents", params={"order": "asc", "limit": 3, "cursor": page["next_cursor"]})
    assert [one["agent_id"] for one in page["items"] + rest.json()["items"]] == ["a", "b", "c", "registered"]
    assert rest.json()["next_cursor"] is None
    counted = (await api.get("/v1/stats")).json()["counts"]
    assert (counted["users"], counted["agents"]) == (2, 4)


async def test_each_key_sees_the_agents_and_counts_within_its_bindings(service: Service) -> None:
    api, owner = service.client, await service.key()
    for user, agent in (("ada", "a"), ("ben", "b"), ("ada", "b"), (None, "a")):
        body = {"user_id": user, "agent_id": agent, "content": f"of {user} and {agent}"}
        assert (await api.post("/v1/memories", json=body, headers=owner)).status_code == 201

    async def seen(**bound: Any) -> dict[str, int]:
        answered = await api.get("/v1/agents", headers=await service.key(**bound))
        return {one["agent_id"]: one["records"]["memories"] for one in answered.json()["items"]}

    assert await seen() == {"a": 2, "b": 2}
    assert await seen(agents=["a"]) == {"a": 2}
    assert await seen(users=["ben"]) == {"a": 1, "b": 1}, "what is of no user is seen by each"
    assert await seen(agents=["b"], users=["ada"]) == {"b": 1}
    assert await seen(tenant="other") == {}
