"""Filters on metadata and tags mean the same in searches, contexts, lists, deletions and retention policies."""

import json
from typing import Any

import httpx
import pytest

from tests.support.memories import OWNER, batch, found, listed, problem, remember

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

MEALS: list[Json] = [
    {"content": "sushi", "metadata": {"stars": 5, "on": "2026-05-02", "where": {"city": "Bonn"}}, "tags": ["x"]},
    {"content": "tacos", "metadata": {"stars": 1, "on": "2026-04-30", "where": {"city": "Rome"}}, "tags": ["x", "y"]},
    {"content": "lentils", "metadata": {"stars": "3", "note": "Too Salty", "with": ["bread", "wine"]}, "tags": ["y"]},
    {"content": "nothing", "metadata": {"note": None}},
]


def named(case: Any) -> str:
    """A name that is the same in each process, for which the order of a set is another."""
    return str(sorted(case) if isinstance(case, set) else case)[:60]


CASES: list[tuple[Json, set[str]]] = [
    ({"stars": {"gte": 5}}, {"sushi"}),
    ({"stars": {"gt": 0, "lt": 5}}, {"tacos"}),
    ({"stars": {"gte": "3"}}, {"lentils"}),
    ({"on": {"gte": "2026-05-01"}}, {"sushi"}),
    ({"stars": {"eq": 5.0}}, {"sushi"}),
    ({"stars": {"ne": 5}}, {"tacos", "lentils", "nothing"}),
    ({"stars": {"in": [5, "3"]}}, {"sushi", "lentils"}),
    ({"stars": {"nin": [5, "3"]}}, {"tacos", "nothing"}),
    ({"stars": {"not_in": [5, "3"]}}, {"tacos", "nothing"}),
    ({"stars": {"exists": False}}, {"nothing"}),
    ({"note": {"exists": True}}, {"lentils", "nothing"}),
    ({"note": {"contains": "Salt"}}, {"lentils"}),
    ({"note": {"contains": "salt"}}, set()),
    ({"note": {"icontains": "salt"}}, {"lentils"}),
    ({"with": {"contains": "wine"}}, {"lentils"}),
    ({"where": {"city": {"in": ["Bonn", "Paris"]}}}, {"sushi"}),
    ({"where": {"eq": {"city": "Bonn"}}}, {"sushi"}),
    ({"where": {"city": "Bonn"}}, {"sushi"}),
    ({"NOT": {"stars": {"gte": 2}}}, {"tacos", "lentils", "nothing"}),
    ({"NOT": [{"stars": 5}, {"stars": 1}]}, {"lentils", "nothing"}),
    ({"OR": [{"stars": 5}, {"note": {"contains": "Salt"}}]}, {"sushi", "lentils"}),
    ({"AND": [{"stars": {"gte": 1}}, {"NOT": {"on": {"lt": "2026-05-01"}}}]}, {"sushi"}),
]


async def told(api: httpx.AsyncClient, **asked: Any) -> str:
    text: str = (await api.post("/v1/context", json={**OWNER, **asked})).json()["text"]
    return text


@pytest.mark.parametrize(("wanted", "right"), CASES, ids=named)
async def test_one_filter_everywhere(api: httpx.AsyncClient, wanted: Json, right: set[str]) -> None:
    await batch(api, *MEALS)
    assert set(await found(api, "sushi tacos lentils", metadata=wanted)) == right
    body: Json = {"query": "sushi tacos lentils", "metadata": wanted, "fill": True}
    assert {meal["content"] for meal in MEALS if meal["content"] in await told(api, **body)} == right
    mem0: Json = {"query": "sushi tacos lentils", "filters": {"user_id": "u", "metadata": wanted}, "fill": True}
    assert {meal["content"] for meal in MEALS if meal["content"] in await told(api, **mem0)} == right
    query = {"metadata": json.dumps(wanted)}
    assert set(await listed(api, **query)) == right
    policy = {**OWNER, "policy": {"older_than_days": 0, "metadata": wanted}}
    assert {item["content"] for item in (await api.post("/v1/memories/forget", json=policy)).json()["items"]} == right
    assert (await api.delete("/v1/memories", params={"user_id": "u", **query})).json() == {"deleted": len(right)}
    assert set(await listed(api)) == {meal["content"] for meal in MEALS} - right


@pytest.mark.parametrize(
    ("wanted", "right"),
    [
        ({"tags": ["x", "y"]}, {"sushi", "tacos", "lentils"}),
        ({"tags": ["x", "y"], "tags_match": "all"}, {"tacos"}),
        ({"exclude_tags": ["y"]}, {"sushi", "nothing"}),
        ({"tags": ["x"], "exclude_tags": ["y"], "tags_match": "all"}, {"sushi"}),
    ],
    ids=named,
)
async def test_tags_everywhere(api: httpx.AsyncClient, wanted: Json, right: set[str]) -> None:
    await batch(api, *MEALS)
    assert set(await found(api, "food", **wanted)) == right
    text = await told(api, query="food", fill=True, **wanted)
    assert {meal["content"] for meal in MEALS if meal["content"] in text} == right
    query = {name: value if isinstance(value, str) else json.dumps(value) for name, value in wanted.items()}
    assert set(await listed(api, **query)) == right
    policy = {**OWNER, "policy": {"older_than_days": 0, **wanted}}
    assert {item["content"] for item in (await api.post("/v1/memories/forget", json=policy)).json()["items"]} == right
    assert (await api.delete("/v1/memories", params={"user_id": "u", **query})).json() == {"deleted": len(right)}


async def test_filters_of_a_context_name_its_one_owner(api: httpx.AsyncClient) -> None:
    await batch(api, *MEALS)
    await remember(api, "sushi of others", user_id="v")
    asked: Json = {
        "agent_id": "a",
        "query": "sushi",
        "filters": {"user_id": "u", "created_at": {"gt": "2026-01-01T00:00:00Z"}},
    }
    text = (await api.post("/v1/context", json=asked)).json()["text"]
    assert ("sushi" in text, "of others" in text) == (True, False)
    for owner, pointer in (("v", "/filters"), ("*", "/filters")):
        answer = await api.post("/v1/context", json={**asked, "user_id": "u", "filters": {"user_id": owner}})
        assert problem(answer, 422)["errors"][0]["pointer"] == pointer
    anybody = problem(
        await api.post("/v1/context", json={**asked, "filters": {"user_id": "*"}}), 422, pointer="/filters"
    )
    assert "a context is of one" in anybody["errors"][0]["detail"]


async def test_the_rules_of_a_context_have_to_match_as_well(api: httpx.AsyncClient) -> None:
    await remember(api, "Write Go.", memory_type="instruction", metadata={"project": "a"})
    await remember(api, "Write Zig.", pinned=True, metadata={"project": "b", "since": 4})
    await remember(api, "Be brief.", memory_type="instruction")
    project: Json = {"project": "b", "since": {"gte": 4}}
    either: Json = {"OR": [{"project": "b"}, {"project": {"exists": False}}]}
    text = await told(api, query="Which language?", metadata=project)
    assert ("Zig" in text, "Go" in text, "brief" in text) == (True, False, False)
    text = await told(api, query="Which language?", metadata=either)
    assert ("Zig" in text, "Go" in text, "brief" in text) == (True, False, True)


async def test_pages_of_a_filter_that_no_index_decides(api: httpx.AsyncClient) -> None:
    await batch(api, *({"content": f"tea {at}", "metadata": {"n": at}} for at in range(40)))
    query: Json = {"metadata": '{"n": {"gte": 25}}', "limit": 10, "order": "asc"}
    first = (await api.get("/v1/memories", params=query)).json()
    second = (await api.get("/v1/memories", params={**query, "cursor": first["next_cursor"]})).json()
    contents = [item["content"] for page in (first, second) for item in page["items"]]
    assert contents == [f"tea {at}" for at in range(25, 40)]
    assert second["next_cursor"] is None
    other = {**query, "metadata": '{"n": {"gte": 26}}', "cursor": first["next_cursor"]}
    problem(await api.get("/v1/memories", params=other), 400)


@pytest.mark.parametrize(("name", "value"), [("tags", "alpha"), ("tags", "[]"), ("exclude_tags", '{"a": 1}')])
async def test_tags_in_the_query_string_are_a_list(api: httpx.AsyncClient, name: str, value: str) -> None:
    answer = await api.get("/v1/memories", params={name: value})
    assert problem(answer, 422)["errors"][0]["pointer"] == f"/query/{name}"


async def test_a_change_of_metadata_is_seen_by_the_next_search(api: httpx.AsyncClient) -> None:
    made = await remember(api, "tea", metadata={"n": 1})
    assert await found(api, "tea", metadata={"n": {"gt": 1}}) == []
    await api.patch(f"/v1/memories/{made['memory_id']}", json={"metadata": {"n": 2}})
    assert await found(api, "tea", metadata={"n": {"gt": 1}}) == ["tea"]


async def test_sessions_are_listed_by_the_same_filters(api: httpx.AsyncClient) -> None:
    for at in range(3):
        await api.post("/v1/sessions", json={**OWNER, "session_id": f"s{at}", "metadata": {"n": at}})
    answer = (await api.get("/v1/sessions", params={"metadata": '{"NOT": {"n": {"gte": 2}}}'})).json()
    assert sorted(session["session_id"] for session in answer["items"]) == ["s0", "s1"]
