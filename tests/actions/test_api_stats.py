"""Figures of an agent."""

import httpx
import pytest

from tests.conftest import TurnedClock
from tests.support.actions import act, log, log_all, stats
from tests.support.memories import Json, problem

pytestmark = pytest.mark.anyio


async def test_figures_of_nothing_are_nothing(api: httpx.AsyncClient) -> None:
    figures = await stats(api)
    assert (figures["total_actions"], figures["counts"], figures["window_days"]) == (0, {}, 30)
    for name in ("success_rate", "failure_rate", "partial_rate", "mean_duration_ms", "p95_duration_ms", "mean_rating"):
        assert figures[name] is None
    assert (await stats(api, group_by="tool"))["groups"] == []


async def test_rates_durations_and_ratings_are_those_of_the_actions(api: httpx.AsyncClient) -> None:
    outcomes = ["success"] * 8 + ["failure"] * 2 + [None] * 10
    items = [
        act("x", outcome=outcome, action={"duration_ms": float(at)}, feedback={"user_rating": 1 + at % 2})
        for at, outcome in enumerate(outcomes, 1)
    ]
    await log_all(api, *items, act("no figures at all"))
    figures = await stats(api)
    assert (figures["total_actions"], figures["counts"]) == (21, {"failure": 2, "success": 8, "unknown": 11})
    assert figures["success_rate"] == pytest.approx({"value": 0.8, "low": 0.490162, "high": 0.943318}, abs=1e-5)
    assert figures["failure_rate"] == pytest.approx({"value": 0.2, "low": 0.056682, "high": 0.509838}, abs=1e-5)
    assert figures["partial_rate"]["value"] == 0
    assert (figures["mean_duration_ms"], figures["p95_duration_ms"], figures["mean_rating"]) == (10.5, 19.0, 1.5)
    assert figures["groups"] is None


async def test_a_rating_taken_back_no_longer_counts(api: httpx.AsyncClient) -> None:
    made = await log(api, "x", feedback={"user_rating": 5})
    await api.patch(f"/v1/actions/{made['action_id']}/feedback", json={"user_rating": None})
    assert (await stats(api))["mean_rating"] is None


async def test_figures_are_of_what_is_asked_for(api: httpx.AsyncClient) -> None:
    await log_all(
        api,
        act("x", action_type="look"),
        act("x", user_id="v"),
        act("x", user_id=None),
        act("x", agent_id="b"),
    )
    for params, total in (
        ({}, 3),
        ({"agent_id": "b"}, 1),
        ({"user_id": "u"}, 1),
        ({"action_type": "work"}, 2),
        ({"action_type": "none"}, 0),
    ):
        assert (await stats(api, **params))["total_actions"] == total, params


async def test_the_window_is_of_the_last_days(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    start = clock.time
    await log_all(
        api,
        act("x", timestamp=start.isoformat()),
        act("x", timestamp=start.replace(day=10, month=5).isoformat()),
        act("x", timestamp="9999-12-31T23:59:59Z"),
    )
    assert (await stats(api, window_days=1, group_by="day", tz="Asia/Tokyo"))["groups"][0]["key"] == "2026-06-01"
    clock.move(days=6)
    assert (await stats(api, window_days=7))["total_actions"] == (await stats(api, window_days=8))["total_actions"]
    within, outside = await stats(api, window_days=40), await stats(api, window_days=5)
    assert within["total_actions"] - outside["total_actions"] == 2


async def test_groups_are_by_type_tool_or_day_and_add_up(api: httpx.AsyncClient) -> None:
    tools = ["pay", None, "pay", "mail", "pay"]
    await log_all(
        api,
        *(
            act(
                "x",
                action_type=kind,
                action={"tool": tool},
                outcome="success",
                timestamp=f"2026-05-{20 + at}T12:00:00Z",
            )
            for at, (kind, tool) in enumerate(zip("aabbb", tools, strict=True))
        ),
    )

    async def groups(by: str, **params: str) -> list[tuple[str, int]]:
        figures = await stats(api, group_by=by, **params)
        assert sum(one["total_actions"] for one in figures["groups"]) == figures["total_actions"] == 5
        assert all(one["success_rate"]["value"] == 1 for one in figures["groups"])
        return [(one["key"], one["total_actions"]) for one in figures["groups"]]

    assert await groups("action_type") == [("b", 3), ("a", 2)]
    assert await groups("tool") == [("pay", 3), ("mail", 1), ("none", 1)]
    assert await groups("day") == [(f"2026-05-{day}", 1) for day in range(20, 25)]


async def test_a_day_ends_at_midnight_of_the_zone(api: httpx.AsyncClient) -> None:
    times = ("2026-05-30T21:59:59Z", "2026-05-30T22:00:00Z", "2026-05-31T21:59:59.999Z", "2026-05-31T22:00:00Z")
    await log_all(api, *(act("x", timestamp=time) for time in times))
    berlin: list[Json] = (await stats(api, group_by="day", tz="Europe/Berlin"))["groups"]
    expected = [("2026-05-30", 1), ("2026-05-31", 2), ("2026-06-01", 1)]
    assert [(one["key"], one["total_actions"]) for one in berlin] == expected
    utc: list[Json] = (await stats(api, group_by="day"))["groups"]
    assert [(one["key"], one["total_actions"]) for one in utc] == [("2026-05-30", 2), ("2026-05-31", 2)]


async def test_figures_are_of_more_actions_than_one_batch(api: httpx.AsyncClient) -> None:
    for _ in range(3):
        await log_all(api, *[act("x", outcome="success", timestamp="2026-05-30T00:00:00Z")] * 400)
    assert (await stats(api))["counts"] == {"success": 1200}


@pytest.mark.parametrize("tz", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "Europe", "a\0b", "é" * 9, "UTC "])
async def test_a_zone_that_is_none_is_refused(api: httpx.AsyncClient, tz: str) -> None:
    problem(await api.get("/v1/actions/stats", params={"agent_id": "a", "tz": tz}), 422, "invalid", "/query/tz")


@pytest.mark.parametrize("params", [{}, {"agent_id": "a", "window_days": 0}, {"agent_id": "a", "group_by": "hour"}])
async def test_bad_questions_are_refused(api: httpx.AsyncClient, params: Json) -> None:
    problem(await api.get("/v1/actions/stats", params=params), 422, "invalid")
