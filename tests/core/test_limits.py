import pytest

from app.core.limits import MAX_KEYS, RateLimiter
from app.errors import RateLimited
from app.settings import LimitSettings, Settings
from tests.conftest import Starter
from tests.support.memories import problem


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def allowed(limiter: RateLimiter, key: str, tries: int) -> int:
    count = 0
    for _ in range(tries):
        try:
            limiter.check(key)
        except RateLimited:
            continue
        count += 1
    return count


def test_bursts_of_twice_the_rate_then_the_rate() -> None:
    clock = Seconds()
    limiter = RateLimiter(5, clock)
    assert allowed(limiter, "a", 100) == 10
    clock.now += 1
    assert allowed(limiter, "a", 100) == 5
    clock.now += 3600
    assert allowed(limiter, "a", 100) == 10


def test_keys_do_not_share() -> None:
    limiter = RateLimiter(1, Seconds())
    assert allowed(limiter, "a", 10) == 2
    assert allowed(limiter, "b", 10) == 2


def test_the_wait_that_is_named_is_enough() -> None:
    clock = Seconds()
    limiter = RateLimiter(0.25, clock)
    assert allowed(limiter, "a", 3) == 1
    with pytest.raises(RateLimited) as refused:
        limiter.check("a")
    assert refused.value.retry_after == 4
    clock.now += 4
    limiter.check("a")


def test_zero_limits_nothing() -> None:
    assert allowed(RateLimiter(0, Seconds()), "a", 1000) == 1000


def test_what_is_remembered_is_bounded() -> None:
    limiter = RateLimiter(1, Seconds())
    for number in range(MAX_KEYS + 10):
        limiter.check(str(number))
    assert len(limiter._buckets) == MAX_KEYS


@pytest.mark.anyio
async def test_too_many_requests_are_told_when_to_come_back(start: Starter, settings: Settings) -> None:
    slow = settings.model_copy(update={"limits": LimitSettings(requests_per_second=0.5)})
    async with start(slow) as service:
        first, second = await service.key(), await service.key()
        assert (await service.client.get("/v1/memories", headers=first)).status_code == 200
        refused = await service.client.get("/v1/memories", headers=first)
        problem(refused, 429, "rate_limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert (await service.client.get("/v1/memories", headers=second)).status_code == 200
        assert (await service.client.get("/livez")).status_code == 200
