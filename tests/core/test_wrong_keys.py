"""Wrong keys are limited by the address that sends them; a proxy is believed only where it is named."""

import logging
from pathlib import Path

import pytest

from app.core.limits import MAX_ADDRESSES, WrongKeyLimiter, network
from app.errors import RateLimited
from app.settings import LimitSettings, Settings
from tests.conftest import Service, Starter
from tests.support.command import Run
from tests.support.memories import problem
from tests.support.server import Server, serving

WRONG = {"Authorization": f"Bearer rk_{'0' * 16}_{'x' * 43}"}


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def counted(limiter: WrongKeyLimiter, address: str) -> int | None:
    """The wait that is named, or None if the address is within its limit."""
    try:
        limiter.count(address)
    except RateLimited as error:
        return error.retry_after
    return None


def test_a_window_begins_with_the_first_wrong_key() -> None:
    clock = Seconds()
    limiter = WrongKeyLimiter(2, 60, clock)
    assert counted(limiter, "10.0.0.1") is None
    clock.now += 50.5
    assert [counted(limiter, "10.0.0.1") for _ in range(3)] == [None, 10, 10]
    assert counted(limiter, "10.0.0.2") is None
    clock.now += 9.4
    assert counted(limiter, "10.0.0.1") == 1
    clock.now += 0.1
    assert [counted(limiter, "10.0.0.1") for _ in range(3)] == [None, None, 60]


def test_zero_limits_nothing() -> None:
    limiter = WrongKeyLimiter(0, 60, Seconds())
    assert [counted(limiter, "10.0.0.1") for _ in range(1_000)] == [None] * 1_000


def test_the_addresses_that_are_counted_are_bounded() -> None:
    limiter = WrongKeyLimiter(1, 60, Seconds())
    for number in range(MAX_ADDRESSES + 10):
        counted(limiter, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(limiter._windows) == MAX_ADDRESSES


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("", ""),
        ("x" * 10_000, "x" * 64),
    ],
)
def test_what_counts_as_one_address(address: str, source: str) -> None:
    assert network(address) == source


@pytest.mark.anyio
async def test_wrong_keys_are_429_after_their_number_and_a_right_key_is_served(
    start: Starter, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    strict = settings.model_copy(update={"limits": LimitSettings(wrong_keys=3)})
    async with start(strict) as service:
        api, right = service.client, await service.key()
        for wrong in (WRONG, {"X-API-Key": "x"}, {"Authorization": "Basic dTpw"}):
            problem(await api.get("/v1/memories", headers=wrong), 401, "unauthorized")
        with caplog.at_level(logging.WARNING):
            for method, path in (("GET", "/v1/memories"), ("POST", "/v1/memories"), ("POST", "/mcp")):
                refused = await api.request(method, path, headers=WRONG)
                assert "a right one is served" in problem(refused, 429, "rate_limited")["detail"]
                assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert [record.message for record in caplog.records].count("an address sends wrong keys") == 1
        assert (await api.get("/v1/memories", headers=right)).status_code == 200
        problem(await api.get("/v1/memories"), 401, "unauthorized")  # no key is no wrong key
        assert "recalld_wrong_keys_total" in (await api.get("/metrics")).text


@pytest.mark.anyio
async def test_a_key_where_none_was_ever_made_is_told_so(service: Service) -> None:
    refused = await service.client.get("/v1/memories", headers=WRONG)
    assert "No key was ever made here" in problem(refused, 401, "unauthorized")["detail"]
    await service.key()
    refused = await service.client.get("/v1/memories", headers=WRONG)
    assert problem(refused, 401, "unauthorized")["detail"] == "The API key is unknown, revoked or expired."


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP"])
async def test_without_a_key_what_a_proxy_sends_is_not_from_this_machine(service: Service, name: str) -> None:
    problem(await service.client.get("/v1/memories", headers={name: "127.0.0.1"}), 403, "forbidden")
    assert (await service.client.get("/v1/memories", headers={**await service.key(), name: "10.0.0.9"})).is_success


def asked(server: Server, forwarded: str) -> int:
    return server.client.get("/v1/memories", headers={**WRONG, "X-Forwarded-For": forwarded}).status_code


@pytest.mark.parametrize("proxies", ["", "10.0.0.7, 192.168.0.0/16"])
def test_forwarded_addresses_are_not_believed_from_anybody(data: Path, run: Run, proxies: str) -> None:
    run("keys", "create", "--no-admin", "--tenant", "t", "--name", "n")
    with serving(data, RECALLD_LIMITS_WRONG_KEYS="2", RECALLD_TRUSTED_PROXIES=proxies) as server:
        assert [asked(server, f"203.0.113.{number}") for number in range(3)] == [401, 401, 429]


def test_forwarded_addresses_are_believed_from_named_proxies(data: Path, run: Run) -> None:
    run("keys", "create", "--no-admin", "--tenant", "t", "--name", "n")
    named = {"RECALLD_LIMITS_WRONG_KEYS": "2", "RECALLD_TRUSTED_PROXIES": "127.0.0.0/8, 10.0.0.7"}
    with serving(data, **named) as server:
        assert [asked(server, f"203.0.113.{number}") for number in range(3)] == [401, 401, 401]
        # what the client itself has sent stands before what the proxies add
        spoofed = [asked(server, f"192.0.2.{number}, 198.51.100.1, 10.0.0.7") for number in range(3)]
        assert spoofed == [401, 401, 429]


def test_a_proxy_that_is_no_address_stops_the_start(run: Run) -> None:
    for wrong in ("*", "proxy.internal", "10.0.0.1/24"):
        ended = run("serve", RECALLD_TRUSTED_PROXIES=wrong)
        assert ended.returncode == 1
        assert "is no address or network" in ended.stderr
