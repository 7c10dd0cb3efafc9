"""A chain of predicates through the graph, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.core.clock import rfc3339
from app.embedding.onnx import OnnxModel
from app.facts import graph
from app.settings import Settings
from tests.conftest import Service
from tests.support.facts import day, edge, tell, tell_all
from tests.support.memories import OWNER, Json, problem, shared_service

pytestmark = pytest.mark.anyio


EDGES: list[Json] = [
    edge("Shop", "had", "time-out"),
    edge("Mail", "had", "Time-Out"),
    edge("Blog", "had", "praise"),
    edge("Shop", "uses", "Redis"),
    edge("Shop", "uses", "Postgres"),
    edge("Mail", "uses", "redis"),
    edge("Blog", "uses", "Hugo"),
    edge("Redis", "written_in", "C", user_id=None),
    edge("Shop", "age", "36"),
    edge("Ada", "works_on", "Shop", agent_id=None),
    edge("Ada", "works_on", "Wiki", user_id="v"),
    edge("Ada", "worked_on", "Forum", valid_from=day("2019-01-01"), valid_until=day("2020-01-01")),
    edge("Ada", "knows", "Ben"),
    edge("Ben", "knows", "Ada"),
]
HAD = {"predicate": "had", "direction": "in"}


@pytest.fixture(scope="module")
async def shared(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[Service]:
    async with shared_service(shared_settings, model) as made:
        await tell_all(made.client, *EDGES)
        yield made


@pytest.fixture
def api(shared: Service) -> httpx.AsyncClient:
    return shared.client


async def ask(api: httpx.AsyncClient, start: str, *path: Any, expect: int = 200, **fields: Any) -> Json:
    body = {name: value for name, value in {**OWNER, **fields}.items() if value is not None}
    answered = await api.post("/v1/graph/query", json={"start": start, "path": list(path), **body})
    assert answered.status_code == expect, answered.text
    found: Json = answered.json()
    return found


async def reached(api: httpx.AsyncClient, start: str, *path: Any, **fields: Any) -> set[str]:
    return {node["key"] for node in (await ask(api, start, *path, **fields))["nodes"]}


async def test_tools_of_the_projects_that_had_time_outs(api: httpx.AsyncClient) -> None:
    """Seed 004's question: backwards to the projects, forwards to their tools."""
    body = await ask(api, "Time-out", HAD, "uses")
    assert [node["key"] for node in body["nodes"]] == ["postgres", "redis"]
    ways = {
        (path["node"], *((fact["subject"], fact["predicate"], fact["object"]) for fact in path["facts"]))
        for path in body["paths"]
    }
    assert ways == {
        ("postgres", ("Shop", "had", "time-out"), ("Shop", "uses", "Postgres")),
        ("redis", ("Shop", "had", "time-out"), ("Shop", "uses", "Redis")),
        ("redis", ("Mail", "had", "Time-Out"), ("Mail", "uses", "redis")),
    }
    assert body["truncated"] is None
    assert body["took_ms"] >= 0
    fact = body["paths"][0]["facts"][0]
    got = (await api.get(f"/v1/facts/{fact['fact_id']}")).json()
    assert {name: got[name] for name in fact} == fact


@pytest.mark.parametrize(
    ("start", "path", "fields", "keys"),
    [
        ("shop", ["uses"], {}, {"redis", "postgres"}),
        ("SHOP", ["Uses", "writtenIn"], {}, {"c"}),
        ("Ada", ["works_on", "uses"], {}, {"redis", "postgres"}),
        ("Ada", ["works_on", "uses"], {"include_shared": False}, set()),
        ("Ada", ["works_on"], {"user_id": "v", "agent_id": None}, {"wiki"}),
        ("Ada", ["worked_on"], {}, set()),
        ("Ada", ["worked_on"], {"as_of": day("2019-06-01")}, {"forum"}),
        ("Shop", ["uses"], {"known_at": day("2026-01-01")}, set()),
        ("Shop", ["age"], {}, set()),
        ("Shop", ["uses", "nothing"], {}, set()),
        ("nobody", ["uses"], {}, set()),
        ("Ada", ["knows", "knows"], {}, {"ada"}),
        ("C", [{"predicate": name, "direction": "in"} for name in ("written_in", "uses")], {}, {"shop", "mail"}),
        ("Shop", [{"predicate": "uses"}], {}, {"redis", "postgres"}),
    ],
)  # fmt: skip
async def test_each_step_goes_along_its_predicate_in_scope_and_times(
    api: httpx.AsyncClient, start: str, path: list[Any], fields: Json, keys: set[str]
) -> None:
    assert await reached(api, start, *path, **fields) == keys


async def test_an_earlier_day_has_its_own_answer(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    then = rfc3339(service.clock.now())
    await tell(api, "Boston", "2026-05-01")
    assert await reached(api, "Ada", "livesIn") == {"boston"}
    assert await reached(api, "Ada", "lives in", known_at=then) == {"new york"}
    assert await reached(api, "Ada", "lives_in", as_of=day("2025-01-01")) == {"new york"}


async def test_a_bound_that_is_met_is_said(shared: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    api = shared.client
    few = await ask(api, "Time-out", HAD, "uses", limit=1)
    assert ([node["key"] for node in few["nodes"]], few["truncated"]) == (["postgres"], "nodes")
    assert {path["node"] for path in few["paths"]} == {"postgres"}
    assert (await ask(api, "Time-out", HAD, "uses", limit=2))["truncated"] is None
    monkeypatch.setattr(graph, "MAX_EDGES", 2)
    cut = await ask(api, "Time-out", HAD, "uses")
    assert cut["truncated"] == "edges"


async def test_paths_are_bounded_and_each_node_keeps_one(service: Service) -> None:
    """Ten ways for each of two steps make a hundred paths to one node."""
    api = service.client
    await tell_all(api, *(edge("start", "to", f"middle {at}") for at in range(30)))
    await tell_all(api, *(edge(f"middle {at}", "to", "end") for at in range(30)))
    body = await ask(api, "start", "to", "to")
    assert [node["key"] for node in body["nodes"]] == ["end"]
    assert body["truncated"] == "paths"
    assert 1 <= len(body["paths"]) < 30
    assert all(path["facts"][-1]["object"] == "end" for path in body["paths"])


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"path": ["uses"]}, "/start"),
        ({"start": "Ada"}, "/path"),
        ({"start": "Ada", "path": []}, "/path"),
        ({"start": "Ada", "path": ["x"] * 6}, "/path"),
        ({"start": "Ada", "path": [" "]}, "/path/0"),
        ({"start": "Ada", "path": [{"predicate": "x", "direction": "up"}]}, "/path/0/direction"),
        ({"start": "Ada", "path": [{"direction": "in"}]}, "/path/0/predicate"),
        ({"start": "Ada", "path": ["x"], "limit": 0}, "/limit"),
        ({"start": "Ada", "path": ["x"], "as_of": "soon"}, "/as_of"),
        ({"start": "Ada", "path": ["x"], "depth": 1}, "/depth"),
    ],
)
async def test_a_bad_question_is_refused(api: httpx.AsyncClient, body: Json, pointer: str) -> None:
    problem(await api.post("/v1/graph/query", json={**OWNER, **body}), 422, "invalid", pointer)


async def test_somebody_must_be_named(api: httpx.AsyncClient) -> None:
    problem(await api.post("/v1/graph/query", json={"start": "Ada", "path": ["x"]}), 422, "invalid")


async def test_a_stranger_walks_nowhere_and_a_reader_may_ask(service: Service) -> None:
    api, owner, reader = service.client, await service.key(), await service.key(verbs="read")
    told = {**edge("Shop", "uses", "Redis")}
    assert (await api.post("/v1/facts", json=told, headers=owner)).status_code == 201
    asked: Json = {**OWNER, "start": "Shop", "path": ["uses"]}
    mine = await api.post("/v1/graph/query", json=asked, headers=reader)
    assert [node["key"] for node in mine.json()["nodes"]] == ["redis"]
    strangers: list[Json] = [{"tenant": "other"}, {"users": ["v"]}, {"agents": ["b"]}]
    for binding in strangers:
        answered = await api.post("/v1/graph/query", json=asked, headers=await service.key(**binding))
        assert (answered.status_code, answered.json()["nodes"], answered.json()["paths"]) == (200, [], [])
