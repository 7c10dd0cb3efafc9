"""Web pages of named origins may call the service; without the setting, none of another site may."""

import httpx
import pytest
from pydantic import ValidationError

from app.settings import Settings
from tests.conftest import Service, Starter
from tests.support.memories import OWNER, problem

pytestmark = pytest.mark.anyio

APP, OTHER = "https://app.example", "https://evil.example"
ASKS = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization, if-match"}
EXPOSED = {"ETag", "Idempotency-Replayed", "Retry-After", "X-Request-ID"}
ALLOW_ORIGIN, CREDENTIALS = "access-control-allow-origin", "access-control-allow-credentials"


def allowing(settings: Settings, origins: str) -> Settings:
    return Settings(**{**settings.model_dump(), "cors_origins": origins}, _env_file=None)


async def preflight(api: httpx.AsyncClient, origin: str, path: str = "/v1/memories/mem_x") -> httpx.Response:
    return await api.options(path, headers={"Origin": origin, **ASKS})


def list_of(response: httpx.Response, header: str) -> set[str]:
    return {one.strip() for one in response.headers[header].split(",")}


@pytest.mark.before_store
async def test_it_is_off_by_default(api: httpx.AsyncClient, service: Service) -> None:
    assert service.resources.settings.cors_origins == ""
    for response in (
        await preflight(api, APP),
        await api.get("/livez", headers={"Origin": APP}),
        await api.get("/v1/memories", headers={"Origin": APP}),
    ):
        assert not [name for name in response.headers if name.startswith("access-control-")]


async def test_a_page_of_a_named_origin_calls_with_its_key(start: Starter, settings: Settings) -> None:
    async with start(allowing(settings, f"{APP}, https://two.example:8443")) as service:
        api, key = service.client, await service.key()
        asked = await preflight(api, APP)
        assert asked.status_code == 200, "a preflight carries no key"
        assert asked.headers[ALLOW_ORIGIN] == APP
        assert {"GET", "POST", "PUT", "PATCH", "DELETE"} <= list_of(asked, "access-control-allow-methods")
        assert {"authorization", "if-match"} <= list_of(asked, "access-control-allow-headers")
        assert int(asked.headers["access-control-max-age"]) > 0
        assert "x-request-id" in asked.headers
        made = await api.post("/v1/memories", json={**OWNER, "content": "x"}, headers={**key, "Origin": APP})
        assert made.status_code == 201
        assert made.headers[ALLOW_ORIGIN] == APP
        assert made.headers[CREDENTIALS] == "true"
        assert list_of(made, "access-control-expose-headers") >= EXPOSED
        assert "Origin" in list_of(made, "vary")
        assert (await preflight(api, "https://two.example:8443")).status_code == 200


async def test_errors_can_be_read_by_the_page(start: Starter, settings: Settings) -> None:
    async with start(allowing(settings, APP)) as service:
        api, page = service.client, {"Origin": APP, "Content-Type": "application/json"}
        key = await service.key()
        for status, response in (
            (401, await api.get("/v1/memories", headers=page)),
            (404, await api.get("/v1/nope", headers=page)),
            (413, await api.post("/v1/memories", content=b" " * (5 << 20), headers={**page, **key})),
            (422, await api.post("/v1/memories", json={}, headers={**page, **key})),
        ):
            problem(response, status)
            assert response.headers[ALLOW_ORIGIN] == APP
            assert "X-Request-ID" in list_of(response, "access-control-expose-headers")


async def test_another_origin_gets_no_leave(start: Starter, settings: Settings) -> None:
    async with start(allowing(settings, APP)) as service:
        key = await service.key()
        for origin in (OTHER, "null", f"{APP}.evil.example", "http://app.example", f"{APP}:444", ""):
            asked = await preflight(service.client, origin)
            problem(asked, 400, "malformed_request")
            answered = await service.client.get("/v1/memories", headers={**key, "Origin": origin})
            assert answered.status_code == 200
            for response in (asked, answered):
                assert ALLOW_ORIGIN not in response.headers
                assert "Origin" in list_of(response, "vary"), "a cache must not serve it to a page that may"


async def test_any_origin_never_comes_with_credentials(start: Starter, settings: Settings) -> None:
    async with start(allowing(settings, "*")) as service:
        key = await service.key()
        asked = await preflight(service.client, OTHER)
        answered = await service.client.get("/v1/memories", headers={**key, "Origin": OTHER})
        assert (asked.status_code, answered.status_code) == (200, 200)
        for response in (asked, answered):
            assert response.headers[ALLOW_ORIGIN] == "*"
            assert CREDENTIALS not in response.headers


async def test_a_named_origin_is_served_without_a_key_where_this_machine_is(start: Starter, settings: Settings) -> None:
    """The check of `Origin` that keeps foreign pages out knows the origins that the operator named."""
    async with start(allowing(settings, APP)) as service:
        for origin, status in ((APP, 200), (OTHER, 403)):
            given = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            assert (await service.client.get("/v1/memories", headers=given)).status_code == status


async def test_any_origin_does_not_open_a_service_without_keys(start: Starter, settings: Settings) -> None:
    """`*` lets pages read what a key gives them. Without keys it would hand a visitor's memories to every site."""
    async with start(allowing(settings, "*")) as service:
        problem(await service.client.get("/v1/memories", headers={"Origin": OTHER}), 403, "forbidden")


async def test_without_an_origin_nothing_is_added(start: Starter, settings: Settings) -> None:
    async with start(allowing(settings, "*")) as service:
        answered = await service.client.get("/livez")
        assert ALLOW_ORIGIN not in answered.headers
        assert (await service.client.options("/v1/memories")).status_code == 405, "not a preflight"


@pytest.mark.parametrize(
    "wrong", ["app.example", "https://app.example/", "https://a b", "*, https://app.example", "app"]
)
def test_an_origin_that_none_can_have_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        Settings(cors_origins=wrong, _env_file=None)
