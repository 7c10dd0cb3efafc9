"""`filters` as mem0 has them: whose records they reach, and what is refused."""

import json
from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.support.memories import Json, problem

pytestmark = pytest.mark.anyio

PEOPLE = [("a", "ada"), ("a", "bob"), ("b", "ada"), ("a", None), (None, "ada")]
SEARCHED = {"memories": "memory", "facts": "fact", "actions": "action"}
LISTED = (*SEARCHED, "tasks", "sessions")


def owner(agent: str | None, user: str | None) -> Json:
    return {name: value for name, value in (("agent_id", agent), ("user_id", user)) if value is not None}


async def lived(api: httpx.AsyncClient, headers: dict[str, str]) -> None:
    """A record of each kind for everybody, which says whose it is."""
    for agent, user in PEOPLE:
        whose, name = owner(agent, user), f"{agent} {user}"
        bodies: dict[str, Json] = {
            "memories": {"content": f"secret tea of {name}"},
            "facts": {"subject": "tea", "predicate": "is", "object": f"of {name}", "cardinality": "many"},
        }
        if agent is not None:
            bodies["actions"] = {"action_type": "brew", "content": f"secret tea of {name}"}
            bodies["tasks"] = {"goal": f"tea of {name}"}
        if agent is not None and user is not None:
            bodies["sessions"] = {"session_id": f"{agent}.{user}"}
        for kind, body in bodies.items():
            made = await api.post(f"/v1/{kind}", json={**whose, **body}, headers=headers)
            assert made.status_code == 201, made.text


async def reached(
    api: httpx.AsyncClient, kind: str, filters: Json, headers: dict[str, str], **more: Any
) -> set[tuple[str | None, str | None]] | int:
    """The owners of what a search or, with `listed`, a list shows, or the status of the answer."""
    if more.pop("listed", False):
        asked = {**more, "filters": json.dumps(filters), "limit": 100}
        answer = await api.get(f"/v1/{kind}", params=asked, headers=headers)
        records = answer.json().get("items", [])
    else:
        body = {"query": "secret tea", "top_k": 100, "filters": filters, **more}
        answer = await api.post(f"/v1/{kind}/search", json=body, headers=headers)
        records = [hit[SEARCHED[kind]] for hit in answer.json().get("items", [])]
    return (
        {(each["agent_id"], each["user_id"]) for each in records} if answer.status_code == 200 else answer.status_code
    )


@pytest.mark.parametrize("kind", SEARCHED)
async def test_an_owner_in_filters_is_the_owner_of_the_search(service: Service, kind: str) -> None:
    api, key = service.client, await service.key()
    await lived(api, key)
    there = {pair for pair in PEOPLE if kind != "actions" or pair[0] is not None}
    ada = {pair for pair in there if pair[1] == "ada"}
    with_shared = {("a", "ada"), ("a", None), (None, "ada")} & there
    for filters, right in (
        ({"user_id": "ada"}, ada),
        ({"AND": [{"user_id": "ada"}, {"created_at": {"gte": "2000-01-01T00:00:00Z"}}]}, ada),
        ({"user_id": {"eq": "ada"}, "agent_id": "a"}, with_shared),
        ({"user_id": "nobody"}, set()),
        ({"user_id": {"eq": "*"}}, set()),
    ):
        assert await reached(api, kind, filters, key) == right, filters
    assert await reached(api, kind, {"user_id": "ada"}, key, agent_id="a") == with_shared
    assert await reached(api, kind, {"user_id": "ada"}, key, user_id="ada") == ada
    assert await reached(api, kind, {"user_id": "ada"}, key, user_id="bob") == 422
    assert await reached(api, kind, {}, key) == 422, "of nobody"
    assert await reached(api, kind, {"user_id": "*"}, key) == 403, "a key that is bound to nobody names one"


@pytest.mark.parametrize("kind", SEARCHED)
async def test_any_owner_is_any_that_the_key_may_see(service: Service, kind: str) -> None:
    api, key = service.client, await service.key()
    await lived(api, key)
    await lived(api, await service.key("other"))
    there = {pair for pair in PEOPLE if kind != "actions" or pair[0] is not None}
    bound = await service.key(users=["ada"])
    ada = {pair for pair in there if pair[1] == "ada"}
    assert await reached(api, kind, {"user_id": "*"}, bound) == ada
    assert await reached(api, kind, {"user_id": "*", "agent_id": "b"}, bound, include_shared=False) == {("b", "ada")}
    assert await reached(api, kind, {"agent_id": "*"}, bound) == {
        pair for pair in there if pair[0] and pair[1] != "bob"
    }
    assert await reached(api, kind, {"agent_id": "a", "user_id": "*"}, bound) == {
        pair for pair in there if pair in (("a", "ada"), ("a", None), (None, "ada"))
    }
    assert await reached(api, kind, {"user_id": "bob"}, bound) == set()
    both = await service.key(users=["ada"], agents=["b"])
    assert await reached(api, kind, {"user_id": "*", "agent_id": "*"}, both, include_shared=False) == {("b", "ada")}
    assert await reached(api, kind, {"user_id": "*"}, both) == {pair for pair in ada if pair[0] != "a"}
    nobody = await service.key(users=["eve"])
    assert await reached(api, kind, {"user_id": "*"}, nobody) == set()


@pytest.mark.parametrize("kind", LISTED)
async def test_a_list_by_owner_reaches_no_farther_than_the_key(service: Service, kind: str) -> None:
    api, key = service.client, await service.key()
    await lived(api, key)
    await lived(api, await service.key("other"))
    everybody = await reached(api, kind, {}, key, listed=True)
    assert isinstance(everybody, set)
    assert {("a", "ada"), ("a", "bob"), ("b", "ada")} <= everybody
    of_users = {pair for pair in everybody if pair[1]}
    assert await reached(api, kind, {"user_id": "*"}, key, listed=True) == of_users
    bound = await service.key(users=["ada"])
    assert await reached(api, kind, {"user_id": "*"}, bound, listed=True) == {
        each for each in of_users if each[1] == "ada"
    }
    assert await reached(api, kind, {"user_id": "bob"}, bound, listed=True) == set()
    assert await reached(api, kind, {"NOT": {"created_at": "*"}}, bound, listed=True) == set()
    assert await reached(api, kind, {"user_id": "bob"}, key, listed=True, user_id="ada") == 422


async def test_a_deletion_of_any_owner_is_of_none(service: Service) -> None:
    api, key = service.client, await service.key()
    await lived(api, key)
    for filters in ({"user_id": "*"}, {"agent_id": "*", "user_id": "*"}, {"memory_type": "fact"}):
        answer = await api.delete("/v1/memories", params={"filters": json.dumps(filters)}, headers=key)
        assert problem(answer, 422)["errors"][0]["pointer"] == "/query/user_id"
    bound = await service.key(users=["ada"])
    asked = {"filters": json.dumps({"agent_id": "a", "user_id": "*"})}
    assert (await api.delete("/v1/memories", params=asked, headers=bound)).json() == {"deleted": 1}
    left = await reached(api, "memories", {}, key, listed=True)
    assert left == set(PEOPLE) - {("a", "ada")}


REFUSED: list[tuple[Any, str]] = [
    ({"user_id": "u", "memory_type": "preferance"}, "memory_type"),
    ({"user_id": "u", "trust": {"gte": "high"}}, "trust"),
    ({"user_id": "u", "trust": {"contains": "0"}}, "trust"),
    ({"user_id": "u", "created_at": {"gte": "last week"}}, "RFC 3339"),
    ({"user_id": "u", "created_at": {"gte": 7}}, "created_at"),
    ({"user_id": "u", "memory_type": {"gt": "a"}}, "no order"),
    ({"user_id": "u", "memory_type": {"like": "fa%"}}, "icontains"),
    ({"user_id": "u", "memory_type": ["fact"]}, "memory_type"),
    ({"user_id": "u", "memory_type": {}}, "operator"),
    ({"user_id": "u", "pinned": "yes"}, "pinned"),
    ({"user_id": "u", "topic": {"regex": "b.*"}}, "icontains"),
    ({"user_id": "u", "or": [{"topic": "x"}]}, "OR"),
    ({"user_id": "u", "OR": []}, "OR"),
    ({"user_id": "u", "content": "tea"}, "no field `content`"),
    ({"user_id": "u", "metadata": "tea"}, "metadata"),
    ({"user_id": "u", "thread_id": "t"}, "session_id"),
    ({"user_id": "u", "NOT": [{"user_id": "v"}]}, "inside OR or NOT"),
    ({"OR": [{"user_id": "u"}, {"user_id": "v"}]}, "Ask once for each user_id"),
    ({"AND": [{"user_id": "u"}, {"user_id": "v"}]}, "two values"),
    ({"user_id": {"in": ["u", "v"]}}, "one id"),
    ({"user_id": None}, "one id"),
    ({"user_id": "/*"}, "one id"),
    ({"user_id": " u"}, "white space"),
    ({"user_id": "u", "n": {"in": list(range(300))}}, "at most 256"),
    (["user_id"], "filters"),
]


@pytest.mark.parametrize(("filters", "words"), REFUSED, ids=lambda case: str(case)[:50])
async def test_what_is_no_filter_is_refused_with_its_rule(api: httpx.AsyncClient, filters: Any, words: str) -> None:
    for answer, pointer in (
        (await api.post("/v1/memories/search", json={"query": "tea", "filters": filters}), "/filters"),
        (await api.get("/v1/memories", params={"filters": json.dumps(filters)}), "/query/filters"),
    ):
        (error,) = problem(answer, 422)["errors"]
        assert error["pointer"] == pointer
        assert words in error["detail"] or words == "filters"


async def test_depth_is_limited(api: httpx.AsyncClient) -> None:
    filters: Json = {"user_id": "u"}
    for _ in range(9):
        filters = {"AND": [filters]}
    answer = await api.post("/v1/memories/search", json={"query": "tea", "filters": filters})
    assert "deeper than 8" in problem(answer, 422)["errors"][0]["detail"]


async def test_mem0_spellings(api: httpx.AsyncClient) -> None:
    """As its users have them in their code: https://docs.mem0.ai on filters."""
    for content, more in (
        ("likes tea", {"metadata": {"category": "taste", "stars": 5}, "tags": ["food"]}),
        ("likes trains", {"metadata": {"category": "travel", "stars": 2}, "source": {"session_id": "s1"}}),
    ):
        await api.post("/v1/memories", json={"user_id": "ada", "content": content, **more})
    for filters, right in (
        ({"user_id": "ada", "category": "taste"}, {"likes tea"}),
        ({"user_id": "ada", "category": "*"}, {"likes tea", "likes trains"}),
        ({"AND": [{"user_id": "ada"}, {"stars": {"gte": 3}}]}, {"likes tea"}),
        ({"user_id": "ada", "OR": [{"category": "taste"}, {"stars": {"lt": 3}}]}, {"likes tea", "likes trains"}),
        ({"user_id": "ada", "NOT": [{"category": "taste"}]}, {"likes trains"}),
        ({"user_id": "ada", "category": {"icontains": "TRAV"}}, {"likes trains"}),
        ({"user_id": "ada", "run_id": "s1"}, {"likes trains"}),
        ({"user_id": "ada", "run_id": "*"}, {"likes trains"}),
        ({"user_id": "ada", "tags": {"contains": "food"}}, {"likes tea"}),
        ({"user_id": "ada", "metadata": {"stars": {"in": [2, 3]}}}, {"likes trains"}),
        ({"user_id": "ada", "created_at": {"lt": "2000-01-01T00:00:00Z"}}, set()),
    ):
        answer = await api.post("/v1/memories/search", json={"query": "likes", "filters": filters})
        assert {hit["memory"]["content"] for hit in answer.json()["items"]} == right, filters
        answer = await api.get("/v1/memories", params={"filters": json.dumps(filters)})
        assert {memory["content"] for memory in answer.json()["items"]} == right, filters


async def test_metadata_of_facts_stays_as_first_given(api: httpx.AsyncClient) -> None:
    told = {"user_id": "ada", "subject": "Ada", "predicate": "lives_in", "object": "Rome", "metadata": {"via": "crm"}}
    made = (await api.post("/v1/facts", json=told)).json()
    assert made["metadata"] == {"via": "crm"}
    again = (await api.post("/v1/facts", json={**told, "metadata": {"via": "chat"}})).json()
    assert (again["fact_id"], again["metadata"]) == (made["fact_id"], {"via": "crm"})
    moved = (await api.post("/v1/facts", json={**told, "object": "Bonn", "metadata": {}})).json()
    assert moved["superseded"][0]["keep_both"]["metadata"] == {"via": "crm"}
    body = {"query": "Where does Ada live?", "user_id": "ada", "metadata": {"via": {"exists": False}}}
    hits = (await api.post("/v1/facts/search", json=body)).json()["items"]
    assert [hit["fact"]["object"] for hit in hits] == ["Bonn"]
