"""`GET /v1/stats`: counts of a tenant or of what a key sees, kept for seconds; latency for those who read metrics."""

import httpx
import pytest

from app.operations import stats
from app.operations.stats import DAYS, quantile
from app.settings import Settings
from tests.conftest import Service, Starter, TurnedClock
from tests.support.memories import OWNER, problem, remember

pytestmark = pytest.mark.anyio


async def figures(api: httpx.AsyncClient, **headers: str) -> dict[str, object]:
    answer = await api.get("/v1/stats", headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


async def test_records_are_counted_by_kind_type_status_and_day(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    first = await remember(api, "Ada prefers tea", memory_type="preference")
    await api.patch(f"/v1/memories/{first['memory_id']}", json={"status": "archived"})
    clock.move(days=2)
    await remember(api, "Ada lives in Boston")
    said = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Good bye"}]
    assert (await api.post("/v1/sessions/s1/messages", json={**OWNER, "messages": said})).status_code == 201
    assert (await api.delete("/v1/sessions/s1/messages/1")).status_code == 204
    fact = {**OWNER, "subject": "Ada", "predicate": "drinks", "object": "tea"}
    assert (await api.post("/v1/facts", json=fact)).status_code == 201
    found = await figures(api)
    listed = (await api.get("/v1/memories", params={"status": "any", "limit": 100})).json()["items"]
    assert found["counts"] == {
        "memories": len(listed), "messages": 1, "sessions": 1, "facts": 1, "actions": 0, "tasks": 0, "procedures": 0,
        "users": 1, "agents": 1,
    }  # fmt: skip
    assert found["memories_by_status"] == {"active": len(listed) - 1, "archived": 1}
    assert found["memories_by_type"]["preference"] == 1  # type: ignore[index]
    growth = found["growth"]
    assert isinstance(growth, list)
    assert [day["day"] for day in growth] == sorted({day["day"] for day in growth})
    assert len(growth) == DAYS
    assert [day["memories"] for day in growth[-3:]] == [1, 0, len(listed) - 1]
    assert (growth[-1]["sessions"], growth[-1]["facts"]) == (1, 1)


async def test_counts_are_kept_for_ten_seconds(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    before = await figures(api)
    await remember(api, "Ada prefers tea")
    assert (await figures(api))["counts"] == before["counts"]
    clock.move(seconds=11)
    assert (await figures(api))["memories_by_type"] == {"fact": 1}


async def test_what_was_recalled_comes_latest_first(api: httpx.AsyncClient) -> None:
    tea, home = await remember(api, "Ada prefers tea"), await remember(api, "Ada lives in Boston")
    assert (await figures(api))["recalled"] == []
    for query in ("Where does Ada live?", "What does Ada drink?"):
        asked = await api.post("/v1/memories/search", json={**OWNER, "query": query, "top_k": 1})
        assert len(asked.json()["items"]) == 1
    recalled = (await figures(api))["recalled"]
    assert isinstance(recalled, list)
    assert [one["memory_id"] for one in recalled] == [tea["memory_id"], home["memory_id"]]
    assert recalled[0]["content"] == "Ada prefers tea"
    await api.delete(f"/v1/memories/{tea['memory_id']}")
    rest = (await figures(api))["recalled"]
    assert isinstance(rest, list)
    assert [one["memory_id"] for one in rest] == [home["memory_id"]]


async def test_a_bound_key_sees_the_figures_of_its_own(service: Service) -> None:
    everybody, ada = await service.key(), await service.key(users=["ada"])
    other = await service.key(tenant="elsewhere")
    for user in ("ada", "ada", "bob"):
        body = {"user_id": user, "content": f"{user} prefers tea {len(user)}", "deduplicate": False}
        assert (await service.client.post("/v1/memories", json=body, headers=everybody)).status_code == 201
        query = {"user_id": user, "query": "tea"}
        assert (await service.client.post("/v1/memories/search", json=query, headers=everybody)).status_code == 200
    seen = [await figures(service.client, **key) for key in (everybody, ada, other)]
    assert [one["memories_by_type"] for one in seen] == [{"fact": 3}, {"fact": 2}, {}]
    assert [len(one["recalled"]) for one in seen] == [3, 2, 0]  # type: ignore[arg-type]


@pytest.mark.before_store
async def test_latency_is_for_those_who_read_metrics(
    start: Starter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "ROUTES", 1000)  # earlier tests in this process may have asked other routes more often
    async with start(settings.model_copy(update={"metrics": "admin"})) as service:
        read, admin = await service.key(verbs="read"), await service.key(verbs="read,admin")
        bound = await service.key(verbs="read,admin", users=["ada"])
        await service.client.get("/v1/memories", headers=read)
        shown = [(await figures(service.client, **key))["latency"] for key in (read, bound, admin)]
        assert shown[:2] == [None, None]
        assert isinstance(shown[2], list)
        (row,) = [row for row in shown[2] if (row["method"], row["route"]) == ("GET", "/v1/memories")]
        assert row["requests"] >= 1
        assert 0 < row["p50_ms"] <= row["p95_ms"]


def test_a_quantile_is_found_inside_its_bucket() -> None:
    end = float("inf")
    assert quantile([(0.1, 10), (0.2, 20), (end, 20)], 0.5) == 100
    assert quantile([(0.1, 0), (0.2, 20), (end, 20)], 0.5) == 150
    assert quantile([(0.1, 0), (0.2, 0), (end, 4)], 0.95) == 200
    assert quantile([(0.1, 0), (end, 0)], 0.5) == 0


async def test_a_wrong_parameter_is_named(api: httpx.AsyncClient) -> None:
    assert "days" in problem(await api.get("/v1/stats", params={"days": 3}), 422)["errors"][0]["pointer"]
