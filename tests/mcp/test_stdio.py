"""`recalld mcp` as an MCP client starts it: on the local store, and for a service that runs elsewhere."""

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from app.mcp.tools import CORE, TOOLS
from tests.mcp.conftest import call, refused
from tests.support.command import Run
from tests.support.server import ROOT, environment, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def started(data: Path, *arguments: str, **settings: str) -> AsyncIterator[Client]:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "app.cli", "mcp", *arguments],
        env=environment(data, **settings),
        cwd=ROOT,
    )
    with data.with_suffix(".err").open("w") as errors:
        async with Client(stdio_client(program, errlog=errors)) as client:
            yield client


@pytest.fixture
def key(run: Run) -> str:
    return run("keys", "create", "--no-admin", "--tenant", "default", "--name", "mcp", "--user", "ada").stdout.strip()


async def test_one_store_by_the_service_and_by_its_files(data: Path, key: str) -> None:
    with serving(data) as server:
        url = str(server.client.base_url)
        async with (
            started(data, "--url", url, "--agent", "a", RECALLD_KEY=key) as far,
            started(data, "--agent", "a", "--user", "ada") as near,
        ):
            for client in (far, near):
                assert [tool.name for tool in (await client.list_tools()).tools] == list(CORE)
            made = await call(far, "remember", content="Ada keeps bees", user_id="ada")
            (item,) = (await call(near, "recall", query="what animals does Ada keep?"))["items"]
            assert item["memory_id"] == made["memory_id"]
            assert "forbidden" in await refused(far, "remember", content="x", user_id="bob")
            rule = {"content": "Whisper", "agent_id": "a", "user_id": "ada", "memory_type": "instruction"}
            headers = {"authorization": f"Bearer {key}"}
            stored = server.client.post("/v1/memories", json=rule, headers=headers).json()
            for client in (far, near):
                text = await refused(client, "forget", memory_ids=[stored["memory_id"]])
                assert "RECALLD_MCP_INSTRUCTIONS" in text
            profile: Any = (await near.list_resources()).resources[0]
            assert profile.uri == "recalld://users/ada/profile"
            server.stop()
            assert "cannot be reached" in await refused(far, "recall", query="bees", user_id="ada")
            assert (await call(near, "recall", query="bees"))["items"]
    assert key not in data.with_suffix(".err").read_text() + server.log_text()
    assert "bees" not in data.with_suffix(".err").read_text()


@pytest.fixture
def writing_key(run: Run) -> str:
    bound = ("--agent", "a", "--user", "ada", "--verbs", "write")
    return run("keys", "create", "--no-admin", "--tenant", "default", "--name", "writing", *bound).stdout.strip()


async def test_a_bound_key_fills_its_owners(data: Path, key: str, writing_key: str) -> None:
    with serving(data) as server:
        url = str(server.client.base_url)
        async with (
            started(data, "--url", url, "--tools", "all", RECALLD_KEY=writing_key) as far,
            started(data, "--tools", "all", RECALLD_KEY=key) as near,
        ):
            assert [tool.name for tool in (await near.list_tools()).tools] == list(TOOLS)
            tools = (await far.list_tools()).tools
            assert [tool.name for tool in tools] == list(TOOLS)
            for tool in tools:
                assert not {"agent_id", "user_id"} & set(tool.input_schema["properties"])
            await call(far, "remember", content="Ada keeps bees")
            assert (await call(near, "recall", query="bees", agent_id="a"))["items"][0]["content"] == "Ada keeps bees"
            for client in (far, near):
                (resource,) = (await client.list_resources()).resources
                assert resource.uri == "recalld://users/ada/profile"
                assert "for ada only" in await refused(client, "get_profile", user_id="bob")


@pytest.fixture
def own_logging() -> Iterator[None]:
    """The command sets up the logs of its process, which here is the tests'."""
    before, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = before
    logging.root.setLevel(level)


@pytest.mark.usefixtures("own_logging")
def test_where_it_cannot_serve_it_says_why(data: Path, run: Run) -> None:
    for arguments, said in (
        (("--url", "http://127.0.0.1:9"), "cannot be reached"),
        (("--user", "a/b"), "user_id: must be"),
        (("--key", "rk_x"), "unknown, revoked or expired"),
        (("--tools", "some"), 'tools: must be "all"'),
        (("--tools", "some", "--url", "http://127.0.0.1:9"), 'it is "some"'),
    ):
        ended = run("mcp", *arguments)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert said in ended.stderr
