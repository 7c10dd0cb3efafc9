"""What holds for every route: the error body, the methods, the page envelope, the request id."""

import re

import httpx
import pytest

from app.main import ROUTERS
from app.settings import Settings
from tests.conftest import Service, Starter
from tests.support import bad_input
from tests.support.contract import Contract
from tests.support.conversation import Talk
from tests.support.memories import problem

pytestmark = pytest.mark.anyio

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.mark.before_store
async def test_the_document_names_every_route(service: Service) -> None:
    routes = {
        (method, getattr(route, "path_format", ""))
        for router in ROUTERS
        for route in router.routes
        for method in getattr(route, "methods", ())
        if getattr(route, "include_in_schema", True)
    }
    assert {(op.method, op.path) for op in Contract(service.app).operations()} == routes


@pytest.mark.before_store
@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v2/memories", "/v1/memories/", "/v1/nope", "/v1/%ff"])
async def test_unknown_routes_are_problems(api: httpx.AsyncClient, service: Service, path: str) -> None:
    for method in METHODS:
        response = await api.request(method, path)
        assert response.status_code == 404
        assert Contract(service.app).problem(response) is None


@pytest.mark.before_store
async def test_wrong_methods_are_problems_that_name_the_right_ones(api: httpx.AsyncClient, service: Service) -> None:
    """`/v1/memories/search` is a path of its own, and none of a memory."""
    contract = Contract(service.app)
    paths = [(op.method, op.path, re.compile(re.sub(r"{\w+}", "[^/]+", op.path))) for op in contract.operations()]
    written_out = {path for _, path, _ in paths}
    for url in {bad_input.url(op) for op in contract.operations()}:
        methods = {m for m, path, shape in paths if path == url or (url not in written_out and shape.fullmatch(url))}
        allowed = methods | ({"HEAD"} if "GET" in methods else set())
        for method in {*METHODS, "OPTIONS", "TRACE", "BREW"} - methods:
            response = await api.request(method, url)
            assert response.status_code == 405, (method, url)
            assert contract.problem(response) is None
            assert set(response.headers["allow"].split(", ")) == allowed
    assert "BREW" not in (await api.get("/metrics")).text


async def test_head_answers_as_get_does(api: httpx.AsyncClient) -> None:
    for path, status in (
        ("/livez", 200),
        ("/v1/memories", 200),
        ("/v1/memories/mem_x", 404),
        ("/v1/sessions/x/end", 405),
    ):
        head = await api.head(path)
        assert head.status_code == status, path


async def test_every_list_has_the_page_envelope(service: Service) -> None:
    contract = Contract(service.app)
    talk = Talk(service.client, contract)
    await talk("create_session", 201, body={"session_id": "chat-1", "agent_id": "a", "user_id": "u"})
    lists = [
        op
        for op in contract.operations()
        if op.method == "GET" and any(p["name"] == "cursor" for p in op.parameters("query"))
    ]
    assert len(lists) >= 4
    for op in lists:
        schema = contract.resolve(op.spec["responses"]["200"]["content"]["application/json"]["schema"])
        more = {"total", "truncated"} if op.name == "list_entities" else set()
        assert set(schema["properties"]) - {"warnings"} == {"items", "next_cursor", *more}, op.name
        limit = next(p["schema"] for p in op.parameters("query") if p["name"] == "limit")
        assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 100, 20), op.name
    page = await service.client.get("/v1/sessions")
    assert set(page.json()) == {"items", "next_cursor"}


@pytest.mark.before_store
async def test_the_pages_of_the_documentation_can_be_shut(start: Starter, settings: Settings) -> None:
    pages = ("/docs", "/openapi.json")
    async with start(settings) as service:
        assert [(await service.client.get(page)).status_code for page in pages] == [200] * 2
    async with start(settings.model_copy(update={"docs": "off"})) as service:
        for page in pages:
            problem(await service.client.get(page), 404, "not_found")
        assert list(Contract(service.app).operations()), "the document is still made for those who ask the application"


async def test_the_metrics_can_be_kept_for_admins_or_shut(start: Starter, settings: Settings) -> None:
    async with start(settings.model_copy(update={"metrics": "admin"})) as service:
        api = service.client
        assert (await api.get("/metrics")).status_code == 200, "no key was made, and this is the same machine"
        admin, reader = await service.key(verbs="admin"), await service.key(verbs="read,write")
        problem(await api.get("/metrics"), 401, "unauthorized")
        problem(await api.get("/metrics", headers=reader), 403, "forbidden")
        for name in ("users", "agents"):
            bound = await service.key(verbs="admin", **{name: ["ada"]})  # type: ignore[arg-type]
            problem(await api.get("/metrics", headers=bound), 403, "forbidden")
        assert "recalld_http_requests_total" in (await api.get("/metrics", headers=admin)).text
        assert (await api.get("/livez")).status_code == 200
    async with start(settings.model_copy(update={"metrics": "off"})) as service:
        problem(await service.client.get("/metrics", headers=await service.key(verbs="admin")), 404, "not_found")


@pytest.mark.before_store
async def test_a_request_id_that_is_safe_comes_back(api: httpx.AsyncClient) -> None:
    for given in ("abc-1.2_3", "x" * 64):
        assert (await api.get("/livez", headers={"x-request-id": given})).headers["x-request-id"] == given
    for given in ("", "x" * 65, "a b", "é", '"', "a\tb"):
        response = await api.get("/livez", headers=[(b"x-request-id", given.encode())])
        assert re.fullmatch(r"req_[0-9a-f]{32}", response.headers["x-request-id"])


async def test_a_search_in_an_empty_scope_finds_nothing(api: httpx.AsyncClient) -> None:
    response = await api.post("/v1/memories/search", json={"user_id": "nobody", "query": "x"})
    assert response.json()["items"] == []


async def test_a_condition_on_what_has_no_version_is_refused(api: httpx.AsyncClient, service: Service) -> None:
    """Without a word it would be dropped, and the write made all the same."""
    await api.post("/v1/memories", json={"user_id": "u", "content": "tea"})
    contract = Contract(service.app)
    bare = [op for op in contract.operations() if not any(p["name"] == "If-Match" for p in op.parameters("header"))]
    writing = [op for op in bare if op.method != "GET" and op.spec.get("x-verb") != "read"]
    assert {"delete_memories", "erase_user", "forget_memories", "undo_operation"} <= {op.name for op in writing}
    for op in writing:
        example = None if op.body is None else contract.resolve(op.body)["examples"][0]
        response = await api.request(op.method, bad_input.url(op), json=example, headers={"If-Match": '"1"'})
        assert response.status_code == 412, op.name
    assert len((await api.get("/v1/memories")).json()["items"]) == 1


async def test_a_body_where_none_is_asked_for_is_refused(api: httpx.AsyncClient, service: Service) -> None:
    for op in Contract(service.app).operations():
        if op.method == "POST" and op.body is None and not op.takes_file:
            refused = await api.post(bad_input.url(op), json={"reason": "x"})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), op.name
            assert (await api.post(bad_input.url(op), json={})).status_code != 422, op.name
