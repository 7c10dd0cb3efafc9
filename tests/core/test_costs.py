"""The work of each key is limited by what it costs."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.core.limits import MAX_KEYS, CostLimiter
from app.core.work import BODY_BYTES_PER_UNIT, CHARACTERS_PER_UNIT, SEARCH_UNITS
from app.embedding.onnx import OnnxModel
from app.errors import RateLimited
from app.settings import LimitSettings, Settings
from tests.conftest import Service, TestParts, TurnedClock, running

pytestmark = pytest.mark.anyio


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spend(limiter: CostLimiter, key: str, units: float) -> None:
    account = limiter.admit(key)
    assert account is not None
    account(units)


def test_a_key_that_is_overdrawn_waits_until_it_is_not() -> None:
    clock = Seconds()
    limiter = CostLimiter(10, 6, clock)
    spend(limiter, "a", 60)
    spend(limiter, "a", 40)
    with pytest.raises(RateLimited, match="At most 10 units of work a second with one key, and 60 at once") as caught:
        limiter.admit("a")
    assert "40 units ahead" in caught.value.detail
    assert caught.value.retry_after == 4
    spend(limiter, "b", 1)
    clock.now = 3.9
    with pytest.raises(RateLimited):
        limiter.admit("a")
    clock.now = 4
    spend(limiter, "a", 1)


def test_what_is_not_used_adds_up_to_the_burst_only() -> None:
    clock = Seconds()
    limiter = CostLimiter(10, 6, clock)
    spend(limiter, "a", 30)
    clock.now = 1_000
    spend(limiter, "a", 61)
    with pytest.raises(RateLimited):
        limiter.admit("a")


def test_no_limit_and_no_more_keys_than_stated() -> None:
    assert CostLimiter(0, 60, Seconds()).admit("a") is None
    limiter = CostLimiter(1, 1, Seconds())
    for number in range(MAX_KEYS + 5):
        spend(limiter, str(number), 1)
    assert len(limiter._buckets) == MAX_KEYS


@pytest.fixture
async def limited(settings: Settings, model: OnnxModel, clock: TurnedClock) -> AsyncIterator[Service]:
    """A service with 86.4 units for each key, and in effect no more."""
    limits, parts = LimitSettings(cost_per_second=0.001), TestParts(model, clock)
    parts.tuning = replace(parts.tuning, cost_burst_seconds=86_400)
    async with running(settings.model_copy(update={"limits": limits}), parts) as service:
        yield service


async def test_long_texts_cost_more_than_short_ones_and_others_are_served(limited: Service) -> None:
    greedy, modest = await limited.key("one"), await limited.key("two")
    body = {"agent_id": "a", "user_id": "ada", "content": "tea and cake " * 150}
    first = await limited.client.post("/v1/memories", json=body, headers=greedy)
    assert first.status_code == 201
    second = await limited.client.post("/v1/memories", json=body | {"content": "tea " * 1_000}, headers=greedy)
    assert second.status_code == 201  # what it costs is known too late
    refused = await limited.client.get("/v1/memories", headers=greedy)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert "0.001 units of work a second" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) >= 1
    short = body | {"content": "Ada likes tea"}
    assert (await limited.client.post("/v1/memories", json=short, headers=modest)).status_code == 201
    search = {"query": "tea", "agent_id": "a", "user_id": "ada"}
    assert (await limited.client.post("/v1/memories/search", json=search, headers=modest)).status_code == 200


async def test_a_request_is_charged_for_its_body_its_search_and_its_embedding(limited: Service) -> None:
    first, key = await limited.key("one"), await limited.key("one")
    memory = {"agent_id": "a", "user_id": "ada", "content": "Ada likes tea"}
    assert (await limited.client.post("/v1/memories", json=memory, headers=first)).status_code == 201
    costs = limited.resources.costs
    assert isinstance(costs, CostLimiter)
    search = {"query": "What does Ada like to drink?", "agent_id": "a", "user_id": "ada"}
    answer = await limited.client.post("/v1/memories/search", json=search, headers=key)
    assert answer.status_code == 200
    _, (left, _) = costs._buckets._held.values()
    body, query = len(answer.request.content) / BODY_BYTES_PER_UNIT, len(search["query"]) / CHARACTERS_PER_UNIT
    assert 86.4 - left == pytest.approx(1 + SEARCH_UNITS + body + query, abs=0.1)
