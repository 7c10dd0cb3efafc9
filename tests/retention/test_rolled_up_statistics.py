"""What was rolled up still counts, and its ratings and corrections are kept."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.core.clock import rfc3339
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter, TurnedClock
from tests.support.actions import act, log, log_all, stats
from tests.support.memories import OWNER, Json, found
from tests.support.operations import run, work

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


def days_ago(service: Service, days: float) -> str:
    return rfc3339(service.clock.time - timedelta(days=days))


def call(tool: str | None, ms: float | None = None, **fields: Any) -> Json:
    return act("x", action={"tool": tool, "duration_ms": ms}, **fields)


async def test_figures_are_the_same_before_and_after_the_roll_up(service: Service, api: httpx.AsyncClient) -> None:
    old, older = days_ago(service, 35), days_ago(service, 50)
    items = [
        call("pay", 100.0, outcome="success", timestamp=old, feedback={"user_rating": 5}),
        call("pay", 300.0, outcome="failure", timestamp=old, feedback={"user_rating": 2}),
        call("mail", 0.0, outcome="partial", timestamp=older, action_type="write"),
        call(None, None, timestamp=older),
        call("pay", 50.0, outcome="success", timestamp=older, user_id="v"),
        call("pay", 7.0, outcome="success", timestamp=older, user_id=None),
        call("pay", 20.0, outcome="success", timestamp=days_ago(service, 1), feedback={"user_rating": 4}),
    ]
    await log_all(api, *items, call("pay", agent_id="b", timestamp=old))
    asked: list[Json] = [
        {"window_days": 60},
        {"window_days": 60, "group_by": "tool"},
        {"window_days": 60, "group_by": "action_type"},
        {"window_days": 60, "group_by": "day"},
        {"window_days": 60, "user_id": "u"},
        {"window_days": 60, "action_type": "write", "group_by": "tool"},
        {"window_days": 40, "group_by": "tool"},
        {"window_days": 30},
    ]
    before = [await stats(api, **params) for params in asked]
    assert (await run(service, "retention"))["rolled_up"] == 7
    for params, earlier in zip(asked, before, strict=True):
        now = await stats(api, **params)
        assert _without_p95(now) == _without_p95(earlier), params
        if earlier["p95_duration_ms"] is not None:
            assert now["p95_duration_ms"] == pytest.approx(earlier["p95_duration_ms"], rel=0.02)


def _without_p95(figures: Json) -> Any:
    if isinstance(figures, dict):
        return {name: _without_p95(value) for name, value in figures.items() if name != "p95_duration_ms"}
    if isinstance(figures, list):
        return [_without_p95(one) for one in figures]
    return pytest.approx(figures) if isinstance(figures, float) else figures


async def test_p95_of_many_rolled_up_durations_is_near(service: Service, api: httpx.AsyncClient) -> None:
    times = [float(3 * at * at) for at in range(200)]
    await log_all(api, *(call("pay", ms, timestamp=days_ago(service, 40)) for ms in times))
    exact = (await stats(api, window_days=60))["p95_duration_ms"]
    assert exact == times[189]
    await run(service, "retention")
    figures = await stats(api, window_days=60)
    assert figures["p95_duration_ms"] == pytest.approx(exact, rel=0.02)
    assert figures["mean_duration_ms"] == pytest.approx(sum(times) / 200)


async def test_late_actions_of_a_rolled_up_day_are_added(service: Service, api: httpx.AsyncClient) -> None:
    for outcome in ("success", "failure"):
        await log_all(api, call("pay", 10.0, outcome=outcome, timestamp=days_ago(service, 40)))
        await run(service, "retention")
    figures = await stats(api, window_days=60, group_by="tool")
    assert figures["counts"] == {"failure": 1, "success": 1}
    assert [(one["key"], one["total_actions"]) for one in figures["groups"]] == [("pay", 2)]


async def test_the_summary_keeps_ratings_and_corrections(service: Service, api: httpx.AsyncClient) -> None:
    when = days_ago(service, 40)
    first = await log(api, "Wrote a letter", outcome="partial", timestamp=when)
    await api.patch(
        f"/v1/actions/{first['action_id']}/feedback", json={"user_rating": 2, "correction": "Sign with her full name"}
    )
    await log_all(api, act("y", timestamp=when, feedback={"user_rating": 5}), act("z", timestamp=when))
    await run(service, "retention")
    (day,) = (await api.get("/v1/memories", params={**OWNER, "memory_type": "summary"})).json()["items"]
    assert day["metadata"]["ratings"] == {"2": 1, "5": 1}
    assert day["metadata"]["corrections"] == [
        {"action_id": first["action_id"], "action_type": "work", "correction": "Sign with her full name"}
    ]
    assert "Sign with her full name" in day["content"]
    assert await found(api, "how should letters be signed?") == [day["content"]]
    again = act("w", timestamp=when, feedback={"user_rating": 5, "correction": "Use blue ink"})
    await log_all(api, again)
    await run(service, "retention")
    (day,) = (await api.get("/v1/memories", params={**OWNER, "memory_type": "summary"})).json()["items"]
    assert day["metadata"]["ratings"] == {"2": 1, "5": 2}
    assert [one["correction"] for one in day["metadata"]["corrections"]] == ["Sign with her full name", "Use blue ink"]
    assert (await stats(api, window_days=60))["mean_rating"] == 4


async def test_a_summary_that_a_caller_changes_or_deletes_leaves_the_figures(
    service: Service, api: httpx.AsyncClient
) -> None:
    await log_all(api, call("pay", 10.0, outcome="success", timestamp=days_ago(service, 40)))
    await run(service, "retention")
    before = await stats(api, window_days=60)
    (day,) = (await api.get("/v1/memories", params={**OWNER, "memory_type": "summary"})).json()["items"]
    assert (await api.patch(f"/v1/memories/{day['memory_id']}", json={"metadata": {}})).status_code == 200
    assert await stats(api, window_days=60) == before
    await log_all(api, call("pay", 10.0, outcome="success", timestamp=days_ago(service, 40)))
    await run(service, "retention")
    again = (await api.get(f"/v1/memories/{day['memory_id']}")).json()
    assert again["metadata"]["outcomes"] == {"success": 2}, "counted anew from the figures of the day"
    assert (await api.delete(f"/v1/memories/{day['memory_id']}")).status_code == 204
    assert (before["total_actions"], (await stats(api, window_days=60))["total_actions"]) == (1, 2)


async def test_figures_stay_with_their_tenant_bindings_and_user(service: Service, clock: TurnedClock) -> None:
    api, owner = service.client, await service.key(verbs="read,write,admin")
    when = days_ago(service, 40)
    for user in ("u", "v"):
        body = call("pay", 10.0, outcome="success", timestamp=when, user_id=user)
        assert (await api.post("/v1/actions", json=body, headers=owner)).status_code == 201
    asked = (await api.post("/v1/jobs/retention/run", json={}, headers=owner)).json()
    await work(service)
    assert asked["status"] == "queued"

    async def total(headers: dict[str, str]) -> int:
        params: Json = {"agent_id": "a", "window_days": 60}
        answered = await api.get("/v1/actions/stats", params=params, headers=headers)
        return int(answered.json()["total_actions"])

    assert await total(owner) == 2
    bound: list[tuple[Json, int]] = [({"tenant": "other"}, 0), ({"agents": ["b"]}, 0), ({"users": ["v"]}, 1)]
    for binding, seen in bound:
        assert await total(await service.key(**binding)) == seen, binding
    exported = (await api.get("/v1/users/u/export", headers=owner)).text
    assert '"collection":"action_days"' in exported
    assert (await api.delete("/v1/users/u", headers=owner)).status_code in (200, 202)
    await work(service)
    assert await total(owner) == 1
