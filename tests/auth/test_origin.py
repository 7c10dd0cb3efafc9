"""A web page of another site reaches nothing of a service that asks for no key."""

import httpx
import pytest

from app.settings import Settings
from tests.conftest import Service, Starter
from tests.support.memories import OWNER, problem, remember

pytestmark = pytest.mark.anyio

BODY = {**OWNER, "content": "x"}


@pytest.mark.before_store
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://127.0.0.1.evil.example",
        "http://localhost@evil.example",
        "file://localhost",
        "http://[::1",
        "http://",
    ],
)
async def test_a_page_of_another_site_is_refused(api: httpx.AsyncClient, origin: str) -> None:
    refused = problem(await api.post("/v1/memories", json=BODY, headers={"Origin": origin}), 403, "forbidden")
    assert "Origin" in refused["detail"]
    assert (await api.get("/v1/memories")).json()["items"] == []


@pytest.mark.before_store
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://localhost:5173", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://[::1]:6274"},
    ],
)
async def test_clients_and_pages_of_this_machine_are_served(api: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await api.post("/v1/memories", json=BODY, headers=headers)).status_code == 201


@pytest.mark.before_store
async def test_a_page_of_this_service_is_its_own_under_whatever_name(start: Starter, settings: Settings) -> None:
    named = {"Host": "memory.example:8000", "Origin": "http://memory.example:8000"}
    other = {**named, "Origin": "http://memory.example:9000"}
    given = {"auth": "off", "allowed_hosts": "memory.example"}
    async with start(settings.model_copy(update=given)) as service:
        assert (await service.client.get("/v1/memories", headers=named)).status_code == 200
        problem(await service.client.get("/v1/memories", headers=other), 403, "forbidden")


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_it_holds_with_authentication_off(start: Starter, settings: Settings, headers: dict[str, str]) -> None:
    async with start(settings.model_copy(update={"auth": "off"})) as service:
        await remember(service.client, "Ada prefers tea")
        for method, path in (("POST", "/v1/jobs/decay/run"), ("DELETE", "/v1/users/u"), ("GET", "/v1/memories")):
            problem(await service.client.request(method, path, headers=headers), 403, "forbidden")
        assert len((await service.client.get("/v1/memories")).json()["items"]) == 1


async def test_a_key_is_enough_wherever_the_page_is_from(service: Service) -> None:
    key = await service.key()
    for headers in ({"Origin": "https://app.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await service.client.post("/v1/memories", json=BODY, headers={**key, **headers})).is_success


async def test_health_and_documentation_are_open_to_a_link_from_elsewhere(api: httpx.AsyncClient) -> None:
    for path in ("/livez", "/readyz", "/docs"):
        assert (await api.get(path, headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200
