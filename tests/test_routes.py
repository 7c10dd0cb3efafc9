"""Every route under /v1 asks for a key, and for a verb, before it looks at anything else."""

import re
from collections.abc import AsyncIterator

import pytest
from fastapi.routing import APIRoute

from app.embedding.onnx import OnnxModel
from app.main import ROUTERS
from tests.conftest import Service
from tests.support.memories import problem, shared_service

pytestmark = pytest.mark.anyio

ROUTES = [
    (method, route.path, str((route.openapi_extra or {}).get("x-verb", "read" if method == "GET" else "write")))
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and route.path.startswith("/v1")
    for method in sorted(route.methods or ())
]
OPEN = {"/livez", "/readyz", "/health", "/healthz", "/metrics"}


def test_all_other_routes_are_known_to_be_open() -> None:
    paths = {route.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)}
    assert {path for path in paths if not path.startswith("/v1")} == OPEN
    assert len(ROUTES) > 15


PAGES = {"/", "/docs", "/docs/{path:path}", "/console", "/console/", "/console/{path:path}", "/openapi.json"}
"""Files of the service's own pages. They hold no data."""


async def unguarded(service: Service) -> list[str]:
    """Routes of the whole application, however they came into it, that answer somebody without a key."""
    await service.key()
    found = []
    for route in service.app.routes:
        path, methods = getattr(route, "path", str(route)), getattr(route, "methods", None) or {"GET"}
        if path not in OPEN | PAGES:
            for method in methods:
                answer = await service.client.request(method, re.sub(r"\{.*?\}", "none", path))
                found += [f"{method} {path}"] if answer.status_code != 401 else []
    return found


@pytest.fixture(scope="module")
async def service(
    tmp_path_factory: pytest.TempPathFactory, model: OnnxModel, anyio_backend: str
) -> AsyncIterator[Service]:
    async with shared_service(tmp_path_factory.mktemp("shared"), model) as made:
        yield made


@pytest.fixture(scope="module")
async def keyless(
    tmp_path_factory: pytest.TempPathFactory, model: OnnxModel, anyio_backend: str
) -> AsyncIterator[Service]:
    """For which no key is ever made."""
    async with shared_service(tmp_path_factory.mktemp("keyless"), model) as made:
        yield made


@pytest.mark.parametrize(("method", "path", "verb"), ROUTES)
async def test_a_route_requires_a_key_and_its_verb(service: Service, method: str, path: str, verb: str) -> None:
    every = {"read", "write", "admin"}
    right = await service.key(verbs=verb)
    wrong = await service.key(verbs=",".join(sorted(every - {verb})))
    url = re.sub(r"\{.*?\}", "none", path)
    problem(await service.client.request(method, url), 401, "unauthorized")
    problem(await service.client.request(method, url, headers=wrong), 403, "forbidden")
    allowed = await service.client.request(method, url, headers=right)
    assert allowed.status_code not in (401, 403, 500), allowed.text


FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


@pytest.mark.parametrize(("method", "path", "verb"), ROUTES)
async def test_a_route_without_a_key_refuses_pages_of_other_sites(
    keyless: Service, method: str, path: str, verb: str
) -> None:
    url = re.sub(r"\{.*?\}", "none", path)
    for headers in FOREIGN:
        refused = problem(await keyless.client.request(method, url, headers=headers), 403, "forbidden")
        assert any(name in refused["detail"] for name in headers)
    own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    assert (await keyless.client.request(method, url, headers=own)).status_code not in (401, 403, 500)


async def test_head_asks_as_get_does(service: Service) -> None:
    write, read = await service.key(verbs="write"), await service.key(verbs="read")
    for headers, status in (({}, 401), (write, 403), (read, 200)):
        assert (await service.client.head("/v1/memories", headers=headers)).status_code == status


async def test_no_route_is_unguarded_and_one_that_were_would_be_seen(service: Service) -> None:
    assert await unguarded(service) == []

    async def forgotten() -> str:
        return "everybody's"

    planted = APIRoute("/v1/forgotten", forgotten, methods=["GET"])
    service.app.router.routes.insert(0, planted)
    try:
        assert await unguarded(service) == ["GET /v1/forgotten"]
    finally:
        service.app.router.routes.remove(planted)
