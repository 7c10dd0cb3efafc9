"""Facts as a graph, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.core.clock import rfc3339
from app.embedding.onnx import OnnxModel
from app.facts import graph
from app.facts.graph import Graph
from app.facts.repository import FactRepository, View, of_partitions
from app.settings import Settings
from app.storage.schema import both
from app.storage.scope import Partition, Scope
from tests.conftest import Service
from tests.support.facts import day, edge, tell, tell_all
from tests.support.memories import OWNER, Json, problem, shared_service

pytestmark = pytest.mark.anyio


EDGES: list[Json] = [
    edge("Ada", "works_at", "Acme"),
    edge("Ben", "works_at", "ACME"),
    edge("Ben", "lives_in", "Rome"),
    edge("Acme", "based_in", "Oslo", user_id=None),
    edge("Oslo", "part_of", "Norway", agent_id=None),
    edge("Norway", "borders", "Sweden"),
    edge("Ada", "age", "36"),
    edge("Ada", "listens_to", "AC/DC"),
    edge("Ada", "works_at", "Initech", agent_id="b"),
    edge("Ada", "knows", "Zoe", user_id="v"),
    edge("Ada", "lived_in", "Bergen", valid_from=day("2019-01-01"), valid_until=day("2020-01-01")),
]


@pytest.fixture(scope="module")
async def shared(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[Service]:
    async with shared_service(shared_settings, model) as made:
        await tell_all(made.client, *EDGES)
        yield made


@pytest.fixture
def api(shared: Service) -> httpx.AsyncClient:
    return shared.client


async def around(api: httpx.AsyncClient, name: str, **params: Any) -> Json:
    wanted = {name: value for name, value in {**OWNER, **params}.items() if value is not None}
    answered = await api.get(f"/v1/graph/entities/{name}/neighbors", params=wanted)
    assert answered.status_code == 200, answered.text
    body: Json = answered.json()
    assert len({edge["fact_id"] for edge in body["edges"]}) == len(body["edges"])
    reached = {edge[side].casefold() for edge in body["edges"] for side in ("subject", "object")}
    assert {node["key"] for node in body["nodes"]} == reached - {name.casefold().replace("%2f", "/")}
    return body


async def reached(api: httpx.AsyncClient, name: str, **params: Any) -> dict[str, int]:
    return {node["name"]: node["depth"] for node in (await around(api, name, **params))["nodes"]}


async def test_edges_are_walker_both_ways_hop_by_hop(api: httpx.AsyncClient) -> None:
    one = {"Acme": 1, "AC/DC": 1}
    two = {**one, "Ben": 2, "Oslo": 2}
    assert await reached(api, "Ada") == one
    assert await reached(api, "ada", depth=2) == two
    assert await reached(api, "ADA", depth=3) == {**two, "Rome": 3, "Norway": 3}
    assert await reached(api, "Sweden", depth=3) == {"Norway": 1, "Oslo": 2, "Acme": 3}
    body = await around(api, "Acme")
    assert [(one["subject"], one["object"], one["depth"]) for one in body["edges"] if one["subject"] == "Ben"] == [
        ("Ben", "ACME", 1)
    ]
    assert body["truncated"] is None


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"predicate": "Works_At", "depth": 3}, {"Acme", "Ben"}),
        ({"include_shared": False, "depth": 3}, {"Acme", "AC/DC", "Ben", "Rome"}),
        ({"agent_id": None}, {"Acme", "AC/DC", "Initech"}),
        ({"user_id": None}, set()),
        ({"agent_id": "b"}, {"Initech"}),
        ({"user_id": "v"}, {"Zoe"}),
        ({"as_of": day("2019-06-01")}, {"Bergen"}),
        ({"as_of": day("2020-01-01")}, set()),
        ({"known_at": day("2026-01-01")}, set()),
    ],
)
async def test_a_walk_stays_in_its_scope_and_times(api: httpx.AsyncClient, params: Json, names: set[str]) -> None:
    assert set(await reached(api, "Ada", **params)) == names


async def test_any_name_can_be_asked_for(api: httpx.AsyncClient) -> None:
    assert set(await reached(api, "AC%2FDC")) == {"Ada"}
    assert await reached(api, "nobody") == {}
    nowhere = await api.get("/v1/graph/entities/Ada/neighbors")
    problem(nowhere, 422, "invalid", "/query/user_id")
    for depth in (0, 4):
        problem(await api.get("/v1/graph/entities/Ada/neighbors", params={**OWNER, "depth": depth}), 422)


async def test_entities_come_in_pages(shared: Service) -> None:
    async def page(**params: Any) -> Json:
        found: Json = (await shared.client.get("/v1/graph/entities", params={**OWNER, **params})).json()
        return found

    whole = (await page())["items"]
    read: list[Json] = []
    cursor: dict[str, str] = {}
    while True:
        part = await page(limit=2, **cursor)
        read += part["items"]
        assert part["total"] == len(whole)
        if part["next_cursor"] is None:
            break
        cursor = {"cursor": part["next_cursor"]}
    assert (read, len(whole) > 4) == (whole, True)
    other = await shared.client.get("/v1/graph/entities", params={**OWNER, **cursor, "prefix": "a"})
    problem(other, 400, "invalid_cursor")


async def test_entities_are_listed_with_their_degree(api: httpx.AsyncClient) -> None:
    async def listed(**params: Any) -> dict[str, int]:
        answered = await api.get("/v1/graph/entities", params={**OWNER, **params})
        assert answered.status_code == 200, answered.text
        assert answered.json()["truncated"] is None
        degrees = {one["key"]: one["degree"] for one in answered.json()["items"]}
        assert list(degrees.values()) == sorted(degrees.values(), reverse=True)
        assert params.get("limit") or answered.json()["total"] == len(degrees)
        return degrees

    every = {"acme": 3, "ada": 2, "ben": 2, "norway": 2, "oslo": 2, "ac/dc": 1, "rome": 1, "sweden": 1}
    assert await listed() == every
    assert await listed(prefix="A") == {"acme": 3, "ada": 2, "ac/dc": 1}
    assert await listed(limit=2) == {"acme": 3, "ada": 2}
    assert await listed(as_of=day("2019-06-01")) == {"ada": 1, "bergen": 1}
    assert await listed(include_shared=False, prefix="o") == {}
    problem(await api.get("/v1/graph/entities"), 422, "invalid", "/query/user_id")


async def test_a_bound_that_is_met_is_said(shared: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = await around(shared.client, "Ada", depth=3, max_nodes=3)
    assert (len(cut["nodes"]), cut["truncated"]) == (3, "nodes")
    assert (await around(shared.client, "Ada", depth=3, max_nodes=6))["truncated"] is None
    facts = FactRepository(shared.resources.store, Scope("default"))
    walker = Graph(facts, [Partition("a", "u")], View(rfc3339(shared.clock.now())))
    late = await walker.walk(["ada"], 3, max_nodes=100, seconds=0)
    assert (late.truncated, late.nodes) == ("time", {})
    monkeypatch.setattr(graph, "MAX_EDGES", 2)
    few = await walker.walk(["ada"], 3, max_nodes=100)
    assert (few.truncated, len(few.edges)) == ("edges", 2)


async def test_facts_that_are_known_are_as_those_that_are_read(shared: Service) -> None:
    facts, view = FactRepository(shared.resources.store, Scope("default")), View(rfc3339(shared.clock.now()))
    partitions = [Partition("a", "u"), Partition("a", None), Partition(None, "u")]
    believed = [await facts.find(both(of_partition, view.believed())) for of_partition in of_partitions(partitions)]
    known = [fact for found in believed for fact in found]
    read = Graph(facts, partitions, view)
    keys = ["ada", "acme", "oslo", "rome", "nobody"]
    counts = {key: len(found) for key, found in (await read.facts_at(keys, 200)).items()}
    assert counts == {"ada": 3, "acme": 3, "oslo": 2, "rome": 1, "nobody": 0}
    for in_some_order in (known, known[::-1]):
        reused = Graph(facts, partitions, view, known=in_some_order)
        for most in (200, 1):
            assert await reused.facts_at(keys, most) == await read.facts_at(keys, most)


async def test_the_graph_of_an_earlier_day(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    then = rfc3339(service.clock.now())
    moved = await tell(api, "Boston", "2026-05-01")
    await tell(api, "Rome", "2026-05-02", trust=0.1)
    assert set(await reached(api, "Ada")) == {"Boston"}
    assert set(await reached(api, "Ada", as_of=day("2025-01-01"))) == {"New York"}
    assert set(await reached(api, "Ada", known_at=then)) == {"New York"}
    await api.post(f"/v1/facts/{moved['fact_id']}/retract")
    assert await reached(api, "Ada") == {}
