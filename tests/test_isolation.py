"""For every record kind, acting as another tenant and as a key bound elsewhere: what is not yours does not exist."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.support.memories import STRANGERS, Json, problem

pytestmark = pytest.mark.anyio

OWNER = {"agent_id": "a", "user_id": "u"}


@dataclass
class Stocked:
    """One record of every kind that belongs to (a, u) of tenant `default`, its owner's headers and a stranger's."""

    api: httpx.AsyncClient
    owner: dict[str, str]
    stranger: dict[str, str]
    memory: str
    procedure: str
    fact: str

    async def call(self, method: str, path: str, who: dict[str, str] | None = None, **sent: Any) -> httpx.Response:
        headers = {**(self.stranger if who is None else who), **sent.pop("headers", {})}
        return await self.api.request(method, path, headers=headers, **sent)


@pytest.fixture(params=STRANGERS)
async def stocked(service: Service, request: pytest.FixtureRequest) -> Stocked:
    api, owner = service.client, await service.key()
    stranger = await service.key(**STRANGERS[request.param])
    made = await api.post("/v1/memories", json={**OWNER, "content": "secret tea", "key": "k"}, headers=owner)
    path = f"/v1/memories/{made.json()['memory_id']}"
    await api.patch(path, json={"tags": ["t"]}, headers=owner)
    said = {**OWNER, "messages": [{"role": "user", "content": "secret plan"}]}
    await api.post("/v1/sessions/s/messages", json=said, headers=owner)
    how = {**OWNER, "name": "secret way", "trigger": "secret", "steps": ["one"], "tags": ["t"]}
    known = (await api.post("/v1/procedures", json=how, headers=owner)).json()["procedure_id"]
    await api.patch(f"/v1/procedures/{known}", json={"steps": ["two"]}, headers=owner)
    told = {**OWNER, "subject": "Ada", "predicate": "hides", "object": "secret"}
    fact = await api.post("/v1/facts", json=told, headers=owner)
    named = {**OWNER, "aliases": ["Ada Lovelace"]}
    assert (await api.post("/v1/graph/entities/Ada/aliases", json=named, headers=owner)).status_code == 201
    return Stocked(api, owner, stranger, made.json()["memory_id"], known, fact.json()["fact_id"])


BY_ID: list[tuple[str, str, Any]] = [
    ("GET", "/v1/memories/{memory}", None),
    ("PATCH", "/v1/memories/{memory}", {"content": "mine now"}),
    ("DELETE", "/v1/memories/{memory}", None),
    ("GET", "/v1/memories/{memory}/history", None),
    ("GET", "/v1/memories/{memory}/related", None),
    ("GET", "/v1/procedures/{procedure}", None),
    ("PATCH", "/v1/procedures/{procedure}", {"name": "mine now"}),
    ("DELETE", "/v1/procedures/{procedure}", None),
    ("GET", "/v1/procedures/{procedure}/history", None),
    ("POST", "/v1/procedures/{procedure}/outcomes", {"success": True}),
    ("GET", "/v1/facts/{fact}", None),
    ("DELETE", "/v1/facts/{fact}", None),
    ("GET", "/v1/facts/{fact}/history", None),
    ("POST", "/v1/facts/{fact}/retract", None),
    ("POST", "/v1/facts/{fact}/resolve", {"keep": "both"}),
    ("GET", "/v1/sessions/{session}", None),
    ("PATCH", "/v1/sessions/{session}", {"summary": "mine now"}),
    ("DELETE", "/v1/sessions/{session}", None),
    ("GET", "/v1/sessions/{session}/messages", None),
    ("DELETE", "/v1/sessions/{session}/messages", None),
    ("GET", "/v1/sessions/{session}/context", None),
    ("POST", "/v1/sessions/{session}/end", None),
    ("POST", "/v1/sessions/{session}/summarize", None),
    ("GET", "/v1/sessions/{session}/stats", None),
]


async def everything(stocked: Stocked) -> list[Any]:
    """All that the owner sees."""
    paths = (
        f"/v1/memories/{stocked.memory}",
        f"/v1/memories/{stocked.memory}/history",
        "/v1/memories?status=any&agent_id=a&user_id=u",
        f"/v1/facts/{stocked.fact}/history",
        "/v1/sessions/s",
        "/v1/sessions/s/messages",
        f"/v1/procedures/{stocked.procedure}",
        f"/v1/procedures/{stocked.procedure}/history",
    )
    return [(await stocked.call("GET", path, stocked.owner)).json() for path in paths]


@pytest.mark.parametrize("headers", [{}, {"If-Match": "*"}, {"If-Match": '"7"'}], ids=["", "any", "stale"])
async def test_what_is_anothers_answers_as_what_does_not_exist(stocked: Stocked, headers: dict[str, str]) -> None:
    before = await everything(stocked)
    for method, path, body in BY_ID:
        theirs = path.format(memory=stocked.memory, session="s", procedure=stocked.procedure, fact=stocked.fact)
        nothing = "0" * 32
        nowhere = path.format(
            memory=f"mem_{nothing}", session="nowhere", procedure=f"proc_{nothing}", fact=f"fact_{nothing}"
        )
        answers = []
        for url in (theirs, nowhere):
            answer = problem(await stocked.call(method, url, json=body, headers=headers), 404, "not_found")
            answers.append(answer | {"request_id": ""})
        assert answers[0] == answers[1], (method, path)
    assert await everything(stocked) == before


async def test_lists_and_searches_are_empty(stocked: Stocked) -> None:
    for params in ({}, {"user_id": "u"}, {"agent_id": "a"}, OWNER, {"key": "k"}, {"session_id": "s"}, {"tag": "t"}):
        assert (await stocked.call("GET", "/v1/memories", params=params)).json()["items"] == []
    for params in ({}, {"user_id": "u"}, {"agent_id": "a"}, OWNER):
        assert (await stocked.call("GET", "/v1/sessions", params=params)).json()["items"] == []
        for named in ({}, {"name": "secret way"}, {"tag": "t"}):
            listed = await stocked.call("GET", "/v1/procedures", params={**params, **named})
            assert listed.json()["items"] == []
        for sight in ({}, {"timeline": True, "status": "any"}):
            facts = await stocked.call("GET", "/v1/facts", params={**params, **sight, "subject": "ada"})
            assert (facts.status_code, facts.json()["items"]) == (200, [])
    for scope in ({"user_id": "u"}, {"agent_id": "a"}, OWNER, {**OWNER, "include_shared": False}):
        found = await stocked.call("POST", "/v1/facts/search", json={"query": "secret", **scope})
        assert (found.status_code, found.json()["items"]) == (200, [])
        for path in ("", "/ada/neighbors", "/secret/neighbors", "/ada/aliases", "/ada lovelace/aliases?status=any"):
            graph = (await stocked.call("GET", f"/v1/graph/entities{path}", params=scope)).json()
            assert graph.get("items", []) == graph.get("nodes", []) == graph.get("edges", []) == []
        known = (await stocked.call("GET", "/v1/graph/entities/Ada", params=scope)).json()
        assert known["names"] == ["Ada"]
        assert not any(known[part]["items"] for part in ("facts", "earlier", "memories", "actions"))
        for mode in ("hybrid", "text", "vector"):
            for more in ({}, {"session_id": "s"}, {"tags": ["t"]}):
                body = {"query": "secret", "mode": mode, **scope, **more}
                found = await stocked.call("POST", "/v1/memories/search", json=body)
                assert (found.status_code, found.json()["items"]) == (200, [])
        for narrowed in ({}, {"tags": ["t"]}):
            asked = {"situation": "secret", **scope, **narrowed}
            found = await stocked.call("POST", "/v1/procedures/search", json=asked)
            assert (found.status_code, found.json()["items"]) == (200, [])


async def test_deleting_by_filter_takes_nothing(stocked: Stocked) -> None:
    before = await everything(stocked)
    for params in ({"user_id": "u"}, {"agent_id": "a"}, OWNER):
        assert (await stocked.call("DELETE", "/v1/memories", params=params)).json() == {"deleted": 0}
    assert await everything(stocked) == before


async def test_anothers_memory_can_be_neither_superseded_nor_named_nor_likened(stocked: Stocked) -> None:
    before = await everything(stocked)
    for agent, user in (("b", "v"), ("a", "v"), ("b", "u")):
        owner = {"agent_id": agent, "user_id": user}
        body = {**owner, "content": "secret tea", "key": "k", "on_similar": "supersede"}
        made = await stocked.call("POST", "/v1/memories", json=body)
        assert made.status_code in (201, 403)
        assert made.json().get("similar", []) == []
        refused = await stocked.call("POST", "/v1/memories", json={**body, "supersedes": [stocked.memory]})
        assert refused.status_code in (422, 403)
    assert await everything(stocked) == before


async def test_the_name_of_anothers_procedure_is_free(stocked: Stocked) -> None:
    before = await everything(stocked)
    for agent, user in (("b", "v"), ("a", "v"), ("b", "u"), ("a", "u")):
        body = {"agent_id": agent, "user_id": user, "name": "secret way", "trigger": "x", "steps": ["x"]}
        made = await stocked.call("POST", "/v1/procedures", json=body)
        assert made.status_code in (201, 403)
    assert await everything(stocked) == before


async def test_anothers_fact_is_neither_contradicted_nor_confirmed(stocked: Stocked) -> None:
    before = await everything(stocked)
    for agent, user in (("a", "u"), ("b", "v"), ("a", "v"), ("b", "u")):
        for said in ("secret", "treasure"):
            body = {"agent_id": agent, "user_id": user, "subject": "Ada", "predicate": "hides", "object": said}
            made = await stocked.call("POST", "/v1/facts", json={**body, "on_conflict": "last_write_wins"})
            assert made.status_code in (201, 403)
            assert stocked.fact not in made.text
    assert await everything(stocked) == before


async def test_a_session_id_that_is_anothers_gives_nothing_away(stocked: Stocked) -> None:
    before = await everything(stocked)
    for owner in (OWNER, {"agent_id": "b", "user_id": "v"}, {"agent_id": "a", "user_id": "v"}):
        sent = {**owner, "messages": [{"role": "user", "content": "hi"}]}
        for answer in (
            await stocked.call("POST", "/v1/sessions/s/messages", json=sent),
            await stocked.call("POST", "/v1/sessions", json={"session_id": "s", **owner}),
        ):
            assert answer.status_code in (201, 403, 404, 409)
            for name in ("a", "u"):
                assert f'"{name}"' not in answer.json().get("detail", "")
    assert await everything(stocked) == before


async def test_idempotency_answers_are_never_another_keys(stocked: Stocked) -> None:
    key = {"Idempotency-Key": "shared"}
    body = {**OWNER, "content": "secret coffee"}
    first = await stocked.call("POST", "/v1/memories", stocked.owner, json=body, headers=key)
    theirs = await stocked.call("POST", "/v1/memories", json=body, headers=key)
    assert "idempotency-replayed" not in theirs.headers
    assert theirs.status_code in (201, 403)
    assert theirs.json().get("memory_id") != first.json()["memory_id"]


# --- Bindings ---------------------------------------------------------------------------------------------------------

A, U = ("a", None), (None, "u")
EVERY = [("a", "u"), A, U, ("a", "v"), ("b", "u"), ("b", None), (None, "v"), ("b", "v")]
BOUND: list[tuple[Json, set[tuple[str | None, str | None]], set[tuple[str | None, str | None]]]] = [
    # bindings, what is seen, what may be written
    ({}, set(EVERY), set(EVERY)),
    ({"users": ["u"]}, {("a", "u"), A, U, ("b", "u"), ("b", None)}, {("a", "u"), U, ("b", "u")}),
    ({"agents": ["a"]}, {("a", "u"), A, U, ("a", "v"), (None, "v")}, {("a", "u"), A, ("a", "v")}),
    ({"agents": ["a"], "users": ["u"]}, {("a", "u"), A, U}, {("a", "u")}),
]


@pytest.mark.parametrize(("bindings", "seen", "writable"), BOUND, ids=["none", "user", "agent", "both"])
async def test_bindings_cut_what_is_seen_and_what_is_written(
    service: Service, bindings: Json, seen: set[Any], writable: set[Any]
) -> None:
    api, full, bound = service.client, await service.key(), await service.key(**bindings)
    ids = {}
    for agent, user in EVERY:
        fact = {"agent_id": agent, "user_id": user, "content": f"tea of {agent} {user}"}
        ids[agent, user] = (await api.post("/v1/memories", json=fact, headers=full)).json()["memory_id"]
    page = (await api.get("/v1/memories", params={"limit": 100}, headers=bound)).json()
    assert {(item["agent_id"], item["user_id"]) for item in page["items"]} == seen
    for (agent, user), memory_id in ids.items():
        path = f"/v1/memories/{memory_id}"
        assert (await api.get(path, headers=bound)).status_code == (200 if (agent, user) in seen else 404)
        patched = await api.patch(path, json={"tags": ["t"]}, headers=bound)
        expected = 200 if (agent, user) in writable else 403 if (agent, user) in seen else 404
        assert patched.status_code == expected, (agent, user)
        assert (await api.patch(path, json={}, headers=bound)).status_code == expected  # though it changes nothing
        fact = {"agent_id": agent, "user_id": user, "content": "new"}
        made = await api.post("/v1/memories", json=fact, headers=bound)
        assert made.status_code == (201 if (agent, user) in writable else 403), (agent, user)
        told = {"agent_id": agent, "user_id": user, "subject": "Ada", "predicate": "likes", "object": "tea"}
        made = await api.post("/v1/facts", json=told, headers=bound)
        assert made.status_code == (201 if (agent, user) in writable else 403), (agent, user)
        search = {"agent_id": agent, "user_id": user, "query": "tea", "top_k": 100}
        found = (await api.post("/v1/memories/search", json=search, headers=bound)).json()["items"]
        assert {(f["memory"]["agent_id"], f["memory"]["user_id"]) for f in found} <= seen
    deleted = 0
    for agent in ("a", "b"):
        deleted += (await api.delete("/v1/memories", params={"agent_id": agent}, headers=bound)).json()["deleted"]
    assert deleted == 2 * len([pair for pair in writable if pair[0]])
    left = (await api.get("/v1/memories", params={"limit": 100}, headers=full)).json()["items"]
    assert {(item["agent_id"], item["user_id"]) for item in left} >= set(EVERY) - writable


@pytest.mark.parametrize(("bindings", "seen", "writable"), BOUND, ids=["none", "user", "agent", "both"])
async def test_bindings_cut_sessions(service: Service, bindings: Json, seen: set[Any], writable: set[Any]) -> None:
    api, bound = service.client, await service.key(**bindings)
    for agent, user in EVERY:
        if agent and user:
            sent = {"agent_id": agent, "user_id": user, "messages": [{"role": "user", "content": "hi"}]}
            made = await api.post(f"/v1/sessions/{agent}-{user}/messages", json=sent, headers=bound)
            assert made.status_code == (201 if (agent, user) in writable else 403)
            alone = {"session_id": f"{agent}.{user}", "agent_id": agent, "user_id": user}
            made = await api.post("/v1/sessions", json=alone, headers=bound)
            assert made.status_code == (201 if (agent, user) in writable else 403)
