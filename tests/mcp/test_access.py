"""Who may do what over MCP: what a key may over REST, and never more."""

import json
from typing import Any

import httpx
import pytest

from app.mcp.tools import CORE, TOOLS
from tests.conftest import Service
from tests.mcp.conftest import Connect, call, refused
from tests.support.memories import problem

pytestmark = pytest.mark.anyio
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def post(api: httpx.AsyncClient, query: str = "", body: Any = LIST, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await api.post(f"/mcp{query}", content=content, headers={**HEADERS, **headers})


async def test_once_there_is_a_key_nobody_is_served_without(service: Service) -> None:
    assert (await post(service.client)).json()["result"]["tools"]
    key = await service.key()
    problem(await post(service.client), 401, "unauthorized")
    problem(await post(service.client, Authorization="Bearer rk_x_y"), 401, "unauthorized")
    assert (await post(service.client, **key)).status_code == 200


async def test_without_a_key_this_machine_alone_is_served(api: httpx.AsyncClient) -> None:
    problem(await post(api, Host="evil.example"), 403, "forbidden")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://127.0.0.1.evil.example", 403),
        ("http://localhost@evil.example", 403),
        ("file://localhost", 403),
        ("http://localhost:6274", 200),
        ("http://[::1]:6274", 200),
        ("http://127.0.0.1", 200),
    ],
)
async def test_pages_of_other_sites_are_refused(api: httpx.AsyncClient, origin: str, status: int) -> None:
    assert (await post(api, Origin=origin)).status_code == status


async def test_verbs_hold(connect: Connect, service: Service) -> None:
    reader, writer = await service.key(verbs="read"), await service.key(verbs="write")
    async with connect("?agent_id=a&user_id=u", reader) as client:
        assert "verb write" in await refused(client, "remember", content="x")
        assert (await call(client, "recall", query="x"))["items"] == []
    async with connect("?agent_id=a&user_id=u", writer) as client:
        await call(client, "remember", content="x")
        assert "verb read" in await refused(client, "recall", query="x")


async def test_tenants_and_bindings_hold(connect: Connect, service: Service) -> None:
    ours = await service.key()
    async with connect("?agent_id=a&user_id=u", ours) as client:
        secret = (await call(client, "remember", content="secret tea", key="k"))["memory_id"]
        task = (await call(client, "update_task", goal="secret"))["task_id"]
    for bindings in ({"tenant": "other"}, {"users": ["v"]}, {"agents": ["b"]}):
        theirs = await service.key(**bindings)
        async with connect(headers=theirs) as client:
            mine = {"agent_id": "b", "user_id": "v"}
            whose = {name: value for name, value in mine.items() if f"{name[:-3]}s" not in bindings}
            assert (await call(client, "recall", query="secret tea", **whose))["items"] == []
            assert (await call(client, "forget", memory_ids=[secret]))["not_found"] == [secret]
            assert "not_found" in await refused(client, "update_task", task_id=task)
    async with connect("?agent_id=a&user_id=u", ours) as client:
        assert (await call(client, "recall", query="secret tea"))["items"][0]["memory_id"] == secret


async def test_a_connection_for_a_user_reaches_no_other(connect: Connect) -> None:
    async with connect("?agent_id=a&user_id=u") as client:
        secret = (await call(client, "remember", content="secret tea"))["memory_id"]
        assert "only" in await refused(client, "recall", query="tea", user_id="v")
        assert (await call(client, "recall", query="tea", user_id="u"))["items"]
    async with connect("?user_id=v") as client:
        assert (await call(client, "forget", memory_ids=[secret]))["not_found"] == [secret]
        assert (await call(client, "recall", query="tea", agent_id="a"))["items"] == []


async def test_what_a_connection_fixes_is_no_argument(connect: Connect, service: Service) -> None:
    bound = await service.key(agents=["a"], users=["u"])
    both = await service.key(agents=["a", "b"])
    for query, headers, names in (
        ("?agent_id=a&user_id=u&tools=all", await service.key(), set()),
        ("?tools=all", bound, set()),
        ("?user_id=u&tools=all", both, {"agent_id"}),
        ("?tools=all", both, {"agent_id", "user_id"}),
    ):
        async with connect(query, headers) as client:
            for tool in (await client.list_tools()).tools:
                taken = names & set(TOOLS[tool.name].arguments.model_fields)  # some go by ids, or by the user alone
                assert {"agent_id", "user_id"} & set(tool.input_schema["properties"]) == taken
    for query in ("?user_id=v", "?agent_id=b"):
        problem(await post(service.client, query, **bound), 403, "forbidden")


@pytest.mark.parametrize("query", ["?user=u", "?user_id=", "?user_id=a%2Fb", "?user_id=u&user_id=v", "?user_id=%00"])
async def test_an_address_that_says_it_wrongly_is_refused(api: httpx.AsyncClient, query: str) -> None:
    problem(await post(api, query), 422, "invalid")


async def test_a_connection_lists_the_core_unless_it_asks_for_all(connect: Connect) -> None:
    async with connect("?agent_id=a&user_id=u") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == list(CORE)
        assert (await call(client, "list_memories"))["items"] == []  # not listed, and served
    async with connect("?agent_id=a&user_id=u&tools=all") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == list(TOOLS)


@pytest.mark.parametrize("tools", ["core", "", "ALL", "recall,forget", "x" * 2000])
async def test_tools_of_another_name_are_refused(api: httpx.AsyncClient, tools: str) -> None:
    found = problem(await post(api, f"?tools={tools}"), 422, "invalid")
    assert found["errors"][0]["pointer"] == "/query/tools"
    assert f'it is "{tools[:50]}' in found["detail"]
    assert len(found["detail"]) < 500


async def test_only_posts_are_served(api: httpx.AsyncClient) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = await api.request(method, "/mcp", headers=HEADERS)
        problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"


async def test_a_call_counts_once_against_the_rate(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(service.resources.limiter, "check", lambda key_id, rate=None: seen.append(key_id))
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "recall", "arguments": {"query": "x", "user_id": "u"}},
    }
    assert (await post(service.client, body=body)).json()["result"]["isError"] is False
    assert seen == ["anonymous"]
