"""Procedures over HTTP: made, listed, refined, deleted, each version kept."""

import asyncio
from typing import Any

import httpx
import pytest

from app.lifespan import COLLECTIONS
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES
from tests.conftest import Service
from tests.support.memories import OWNER, Json, problem
from tests.support.procedures import LOGIN, PARCEL, got, learn, listed, names, path, report

pytestmark = pytest.mark.anyio


async def test_a_procedure_is_kept_as_it_was_given(api: httpx.AsyncClient) -> None:
    given: Json = {
        "preconditions": ["The order was paid"],
        "notes": ["The carrier answers after 9", "the carrier answers  after 9"],
        "tags": ["money", "money"],
        "metadata": {"a.b": {"$c": [1, None]}, "": "x"},
        "trust": 0.5,
    }
    made = await learn(api, **given)
    assert made["procedure_id"].startswith("proc_")
    kept = {**PARCEL, **given, **OWNER, "notes": ["the carrier answers  after 9"], "tags": ["money"]}
    assert {name: made[name] for name in kept} == kept
    untried = {"success_count": 0, "failure_count": 0, "success_rate": 0.5, "recent_outcomes": [], "last_used": None}
    assert {name: made[name] for name in untried} == untried
    assert (made["version"], made["status"], made["embedding"]["status"]) == (1, "active", "ready")
    assert made["source"]["origin"] == "api"
    assert await got(api, made) == made


REFUSED: list[tuple[Json, str]] = [
    ({"agent_id": None, "user_id": None}, ""),
    ({"name": " "}, "/name"),
    ({"name": "x" * 201}, "/name"),
    ({"trigger": None}, "/trigger"),
    ({"steps": []}, "/steps"),
    ({"steps": ["x"] * 101}, "/steps"),
    ({"steps": ["x", " "]}, "/steps/1"),
    ({"steps": "x"}, "/steps"),
    ({"preconditions": ["x" * 4001]}, "/preconditions/0"),
    ({"notes": ["x"] * 51}, "/notes"),
    ({"success_count": 9}, "/success_count"),
    ({"trust": 1.1}, "/trust"),
]


@pytest.mark.before_store
async def test_a_bad_procedure_is_refused(api: httpx.AsyncClient) -> None:
    for fields, pointer in REFUSED:
        problem(await api.post("/v1/procedures", json={**OWNER, **PARCEL, **fields}), 422, "invalid", pointer)
    for field in ("name", "trigger", "steps", "trust", "status"):  # these are never empty
        problem(await api.patch("/v1/procedures/proc_1", json={field: None}), 422, "invalid", f"/{field}")
    assert await listed(api) == []


# --- Names ------------------------------------------------------------------------------------------------------------


async def test_a_name_is_one_procedures_in_its_scope(api: httpx.AsyncClient) -> None:
    made = await learn(api)
    again = await api.post("/v1/procedures", json={**OWNER, **LOGIN, "name": "REFUND  a lost parcel"})
    assert made["procedure_id"] in problem(again, 409, "already_exists")["detail"]
    for elsewhere in ({"user_id": None}, {"agent_id": None}, {"user_id": "v"}, {"agent_id": "b"}):
        await learn(api, **elsewhere)
    login = await learn(api, LOGIN)
    problem(await api.patch(path(login), json={"name": PARCEL["name"]}), 409, "already_exists")
    assert (await api.patch(path(made), json={"name": "REFUND a lost parcel"})).status_code == 200  # its own

    assert (await api.patch(path(made), json={"status": "archived"})).status_code == 200
    assert (await api.patch(path(login), json={"name": PARCEL["name"]})).status_code == 200
    problem(await api.patch(path(made), json={"status": "active"}), 409, "already_exists")
    await api.delete(path(login))
    assert (await api.patch(path(made), json={"status": "active"})).status_code == 200


async def test_of_many_that_take_a_name_at_once_one_does(api: httpx.AsyncClient) -> None:
    made = await asyncio.gather(*(api.post("/v1/procedures", json={**OWNER, **PARCEL}) for _ in range(8)))
    assert sorted(one.status_code for one in made) == [201] + [409] * 7
    assert await listed(api) == [PARCEL["name"]]


# --- Lists ------------------------------------------------------------------------------------------------------------


async def test_lists_go_by_what_is_named_and_widen_nothing(api: httpx.AsyncClient) -> None:
    await learn(api, name="one", tags=["t"])
    await learn(api, name="two", agent_id=None)
    await learn(api, name="three", user_id=None, tags=["t", "s"])
    gone = await learn(api, name="four")
    await api.patch(path(gone), json={"status": "archived"})
    wanted: list[tuple[Json, list[str]]] = [
        ({}, ["three", "two", "one"]),
        ({"order": "asc"}, ["one", "two", "three"]),
        ({"user_id": "u"}, ["two", "one"]),
        ({"agent_id": "a"}, ["three", "one"]),
        ({**OWNER}, ["one"]),
        ({"tag": "t"}, ["three", "one"]),
        ({"tag": "T"}, []),
        ({"name": " THREE"}, ["three"]),
        ({"status": "archived"}, ["four"]),
        ({"status": "any", **OWNER}, ["four", "one"]),
        ({"since": gone["created_at"], "status": "any"}, ["four"]),
        ({"until": gone["created_at"], "status": "any", **OWNER}, ["one"]),
    ]
    for params, expected in wanted:
        assert await listed(api, **params) == expected, params


async def test_pages_go_on_where_they_ended(api: httpx.AsyncClient) -> None:
    for at in range(5):
        await learn(api, name=f"n{at}")
    seen: list[str] = []
    params: Json = {**OWNER, "limit": 2}
    while True:
        page = (await api.get("/v1/procedures", params=params)).json()
        seen += [one["name"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == ["n4", "n3", "n2", "n1", "n0"]
    problem(await api.get("/v1/procedures", params={**params, "tag": "t"}), 400, "invalid_cursor")


# --- Versions ---------------------------------------------------------------------------------------------------------


async def history(api: httpx.AsyncClient, procedure: Json, **params: Any) -> Json:
    page: Json = (await api.get(f"{path(procedure)}/history", params=params)).json()
    return page


async def test_each_version_is_kept_as_it_left(api: httpx.AsyncClient) -> None:
    made = await learn(api)
    assert (await history(api, made))["items"] == []
    await report(api, made, True, note="quick")
    tried = await got(api, made)
    patched = await api.patch(path(made), json={"steps": ["Refund at once"], "trust": 0.2})
    assert (patched.status_code, patched.headers["etag"]) == (200, '"2"')
    body = patched.json()
    assert body == {**tried, "steps": ["Refund at once"], "trust": 0.2, "version": 2, "updated_at": body["updated_at"]}
    assert body["success_count"] == 1  # of these steps, as refined
    await api.patch(path(made), json={"trigger": "A parcel is gone"})
    page = await history(api, made)
    assert [one["version"] for one in page["items"]] == [2, 1]
    assert [one["record"] for one in page["items"]] == [body, tried]
    assert page["items"][1]["changed_at"] == body["updated_at"]
    first = await history(api, made, limit=1, order="asc")
    assert [one["version"] for one in first["items"]] == [1]
    assert first["next_cursor"] is not None


async def test_a_change_that_changes_nothing_makes_no_version(api: httpx.AsyncClient) -> None:
    made = await learn(api, tags=["t"])
    for fields in ({}, {"name": PARCEL["name"], "steps": PARCEL["steps"]}, {"tags": ["t", "t"]}):
        unchanged = await api.patch(path(made), json=fields)
        assert (unchanged.status_code, unchanged.json()) == (200, made)
    assert (await history(api, made))["items"] == []


async def test_conditional_writes(api: httpx.AsyncClient) -> None:
    made = await learn(api)
    stale, fresh = {"If-Match": '"7"'}, {"If-Match": '"1"'}
    problem(await api.patch(path(made), json={"trust": 0.1}, headers=stale), 412)
    problem(await api.delete(path(made), headers=stale), 412)
    problem(await api.post(f"{path(made)}/outcomes", json={"success": True}, headers=stale), 412)
    problem(await api.post("/v1/procedures", json={**OWNER, **LOGIN}, headers=fresh), 412)
    await report(api, made, True, True)  # leave the version alone
    assert (await api.patch(path(made), json={"trust": 0.1}, headers=fresh)).status_code == 200
    problem(await api.patch(path(made), json={"trust": 0.2}, headers=fresh), 412)
    assert (await got(api, made))["trust"] == 0.1


async def test_a_new_trigger_is_found_and_the_old_one_is_not(api: httpx.AsyncClient) -> None:
    made = await learn(api)
    await learn(api, LOGIN)
    assert (await names(api, "the parcel is missing"))[0] == PARCEL["name"]
    await api.patch(path(made), json={"name": "Open a bottle", "trigger": "Somebody wants to drink wine"})
    assert (await names(api, "a glass of Riesling"))[0] == "Open a bottle"


async def test_a_deleted_one_is_gone_with_its_history(service: Service) -> None:
    api, store = service.client, service.resources.store
    made, other = await learn(api), await learn(api, LOGIN)
    for one in (made, other):
        await api.patch(path(one), json={"trust": 0.5})
    assert (await api.delete(path(made))).status_code == 204
    for method, url, body in (
        ("GET", path(made), None),
        ("GET", f"{path(made)}/history", None),
        ("POST", f"{path(made)}/outcomes", {"success": True}),
        ("DELETE", path(made), None),
    ):
        problem(await api.request(method, url, json=body), 404, "not_found")
    assert await names(api, "parcel") == [LOGIN["name"]]
    assert [await store.count(one, "default") for one in (PROCEDURES, PROCEDURE_HISTORY)] == [1, 1]


async def test_what_was_lived_through_is_whole(service: Service) -> None:
    """`doctor` reads every declared collection, `migrate` copies it: these are declared."""
    assert PROCEDURES in COLLECTIONS
    assert PROCEDURE_HISTORY in COLLECTIONS
    api = service.client
    made, gone = await learn(api), await learn(api, LOGIN)
    await report(api, made, True, False, note="hm")
    await api.patch(path(made), json={"name": "Refund"})
    await api.delete(path(gone))
    assert [finding for finding in await service.resources.store.check(deep=True) if not finding.ok] == []


async def test_bindings(service: Service) -> None:
    api, full, bound = service.client, await service.key(), await service.key(users=["u"])
    made = {}
    for agent, user in (("a", "u"), ("a", None), (None, "u"), ("a", "v")):
        owner = {"agent_id": agent, "user_id": user, **PARCEL}
        created = await api.post("/v1/procedures", json=owner, headers=full)
        made[agent, user] = f"/v1/procedures/{created.json()['procedure_id']}"
        mine = await api.post("/v1/procedures", json={**owner, "name": "mine"}, headers=bound)
        assert mine.status_code == (201 if user == "u" else 403)
    for (_, user), url in made.items():
        seen, writable = user != "v", user == "u"
        assert (await api.get(url, headers=bound)).status_code == (200 if seen else 404)
        told = await api.post(f"{url}/outcomes", json={"success": True}, headers=bound)
        assert told.status_code == (201 if writable else 403 if seen else 404)
    found = await api.post("/v1/procedures/search", json={**OWNER, "situation": "parcel"}, headers=bound)
    assert {one["procedure"]["user_id"] for one in found.json()["items"]} == {"u", None}
