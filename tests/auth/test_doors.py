"""Who is let in without a key, by the bytes of the request. Tried against the port of a service."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.raw import send
from tests.support.server import serving

MEMORIES = "/v1/memories"
LOCAL = "Host: 127.0.0.1:8000"


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service for which no key was made."""
    with serving(tmp_path_factory.mktemp("keyless") / "data") as server:
        yield server.client


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Authentication is off, on a loopback address. One name is allowed beside those of this machine."""
    settings = {"RECALLD_AUTH": "off", "RECALLD_ALLOWED_HOSTS": "memory.lan, Recalld"}
    with serving(tmp_path_factory.mktemp("off") / "data", **settings) as server:
        yield server.client


# --- While no key was made --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        [LOCAL, "Via: 1.1 proxy.example"],
        [LOCAL, "CF-Connecting-IP: 203.0.113.9"],
        [LOCAL, "CF-Ray: 8f2b"],
        [LOCAL, "CDN-Loop: cloudflare"],
        [LOCAL, "True-Client-IP: 203.0.113.9"],
        [LOCAL, "Fastly-Client-IP: 203.0.113.9"],
        [LOCAL, "X-Forwarded-Server: proxy.example"],
        [LOCAL, "X-Forwarded-For: 127.0.0.1"],
        [LOCAL, "Forwarded: for=127.0.0.1"],
        ["Host: memory.example"],
    ],
)
def test_what_came_through_a_proxy_is_not_of_this_machine(keyless: httpx.Client, headers: list[str]) -> None:
    refused = send(keyless, MEMORIES, *headers)
    assert refused.status == 403
    assert refused.problem["code"] == "forbidden"


@pytest.mark.parametrize("headers", [[LOCAL, "Host: memory.example"], [LOCAL, LOCAL], ["Host: memory.example", LOCAL]])
def test_two_names_of_a_host_are_no_request(keyless: httpx.Client, headers: list[str]) -> None:
    assert send(keyless, MEMORIES, *headers).status == 400


@pytest.mark.parametrize(
    "target",
    [
        "http://memory.example/v1/memories",
        "http://memory.example:8000/v1/memories",
        "HTTP://127.0.0.1@memory.example/v1/memories",
        "http://127.0.0.1.memory.example/v1/memories",
    ],
)
def test_a_target_with_another_host_is_what_a_proxy_was_asked(keyless: httpx.Client, target: str) -> None:
    refused = send(keyless, target, LOCAL)
    assert refused.status == 403
    assert refused.problem["code"] == "forbidden"


def test_a_target_with_the_host_of_the_header_is_served(keyless: httpx.Client) -> None:
    for host in ("127.0.0.1:8000", "[::1]:8000", "localhost"):
        assert send(keyless, f"http://{host}{MEMORIES}", f"Host: {host}").status == 200
    assert send(keyless, MEMORIES, LOCAL).status == 200


# --- While authentication is off --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["memory.example", "127.0.0.1.memory.example", "10.0.0.9:8000", ""])
def test_a_name_that_nobody_gave_the_service_is_refused(unguarded: httpx.Client, host: str) -> None:
    """A page of `memory.example` that points its name at 127.0.0.1 is of the same origin as the service."""
    refused = send(unguarded, MEMORIES, f"Host: {host}", f"Origin: http://{host}")
    assert refused.status == 403
    assert "RECALLD_ALLOWED_HOSTS" in refused.problem["detail"]


def test_what_is_no_name_of_a_host_is_no_request(unguarded: httpx.Client) -> None:
    assert send(unguarded, MEMORIES, "Host: [::1").status == 400


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:8000", "memory.lan:80", "RECALLD"])
def test_names_of_this_machine_and_of_the_setting_are_served(unguarded: httpx.Client, host: str) -> None:
    assert send(unguarded, MEMORIES, f"Host: {host}").status == 200
    assert send(unguarded, MEMORIES, f"Host: {host}", f"Origin: http://{host}").status == 200
    assert send(unguarded, MEMORIES, f"Host: {host}", "Origin: http://memory.example").status == 403


def test_on_an_open_address_ip_addresses_are_taken_and_names_are_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"RECALLD_AUTH": "off", "RECALLD_HOST": "0.0.0.0"}
    with serving(tmp_path_factory.mktemp("open") / "data", **settings) as server:
        for host, status in (("10.0.0.9:8000", 200), ("[fd00::9]", 200), ("localhost", 200), ("memory.example", 403)):
            assert send(server.client, MEMORIES, f"Host: {host}").status == status, host


def test_a_star_allows_any_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"RECALLD_AUTH": "off", "RECALLD_ALLOWED_HOSTS": "*"}
    with serving(tmp_path_factory.mktemp("any") / "data", **settings) as server:
        assert send(server.client, MEMORIES, "Host: memory.example").status == 200
