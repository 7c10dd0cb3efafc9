"""The clients are made from today's contract, and do what their READMEs say against a running service."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path

import anyio.lowlevel
import httpx
import pytest
from recalld_client import AsyncRecalld, Problem, Recalld, RecalldError, UserMemory, _requests, models
from recalld_client._connections import AT_ONCE

from app.settings import LLMSettings
from scripts import generate_clients as generator
from scripts import unasync_client
from tests.support.chat import says
from tests.support.identifiers import KNOWN
from tests.support.scripted import scripted_server
from tests.support.server import ROOT, Server, serving

pytestmark = pytest.mark.slow

CLIENTS = ROOT / "clients"
OWNER: models.SearchRequest = {"query": "tea", "agent_id": "a", "user_id": "u"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("clients") / "data") as made:
        yield made


def flow(language: str, server: Server) -> str:
    """The README's code, for that server."""
    readme = (CLIENTS / {"python": "python", "ts": "typescript"}[language] / "README.md").read_text()
    code = re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)[-1]
    return str(code).replace("http://127.0.0.1:8000", str(server.client.base_url).rstrip("/"))


def test_they_are_made_from_this_contract() -> None:
    again = "the contract has changed: run scripts/generate_clients.py"
    assert generator.PYTHON.read_text(encoding="utf-8") == generator.python_rendered(), again
    for path, text in unasync_client.rendered().items():
        assert path.read_text(encoding="utf-8") == text, again
    assert generator.fingerprint() in generator.TYPESCRIPT.read_text(encoding="utf-8").partition("\n")[0], again


def test_python_does_what_its_readme_says(server: Server) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", flow("python", server).replace('"ada"', '"grace"').replace('"monday"', '"sunday"')],
        cwd=CLIENTS / "python",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found, *context, facts, missed = ended.stdout.splitlines()
    score, _, content = found.partition(" ")
    assert 0 < float(score) <= 1
    assert content == "Ada moved to Boston in May."
    assert any("Ada moved to Boston in May." in line for line in context)
    assert facts == "['Boston'] True"
    assert missed.startswith("404 not_found")


def test_what_the_page_from_mem0_says_runs(server: Server) -> None:
    page = (ROOT / "docs" / "guides" / "from-mem0.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    ended = subprocess.run(
        [sys.executable, "-c", code.replace('"ada"', '"from-mem0"')],
        cwd=CLIENTS / "python",
        env={**os.environ, "RECALLD_URL": str(server.client.base_url)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    how, *hits, counts, tea = ended.stdout.splitlines()
    assert how == "stored 2", "the service has no language model"
    assert any("allergic to peanuts" in hit for hit in hits)
    assert (counts, tea) == ("2 0", "Prefers green tea 1")
    for name in re.findall(r"`me\.(\w+)\(", page):
        assert hasattr(UserMemory, name), name
    for name in re.findall(r"`memory\.(\w+)\(memory_id\)` \|$", page, re.MULTILINE):
        assert hasattr(Recalld, name), name


def test_ten_lines_of_the_readmes_are_a_chatbot_that_remembers(server: Server, tmp_path: Path) -> None:
    chatbot = re.findall(r"```python\n(from openai.*?)```", (CLIENTS / "python" / "README.md").read_text(), re.DOTALL)[
        0
    ]
    assert chatbot in (ROOT / "README.md").read_text()
    assert len([line for line in chatbot.splitlines() if line.strip()]) <= 10
    ours = {"RECALLD_URL": str(server.client.base_url), "PYTHONPATH": str(CLIENTS / "python")}
    with scripted_server(lambda reply, asked: says("Noted.").body or b"") as model:
        env = {**os.environ, **ours, "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        for text in ("My cello is called Otto.", "What is my cello called?"):
            ended = subprocess.run(
                [sys.executable, "-c", chatbot],
                input=f"{text}\n\n",
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (ended.returncode, ended.stdout) == (0, "> Noted.\n> "), ended.stderr
        first, second = (seen.body["messages"] for seen in model.seen)
    assert "Otto" not in str(first[:-1])
    assert "My cello is called Otto." in second[-1]["content"]


@pytest.mark.anyio
async def test_without_a_with_over_the_wire(server: Server) -> None:
    url = str(server.client.base_url)
    memory, later = Recalld(url), AsyncRecalld(url)
    made = memory.create_memory({"agent_id": "a", "user_id": "lines", "content": "Ada drinks tea"})
    lines = [json.loads(line) for line in memory.export_user("lines").splitlines()]
    assert [line["type"] for line in lines] == ["export", "record", "end"]
    assert (await later.export_user("lines")).count("\n") == 3
    changed = await later.update_memory(made["memory_id"], {"importance": 0.9}, if_match=made["version"])
    with pytest.raises(Problem, match="412 precondition_failed"):
        memory.update_memory(made["memory_id"], {"importance": 0.1}, if_match=made["version"])
    memory.delete_memory(made["memory_id"], if_match=changed["version"])
    memory.close()
    await later.aclose()
    assert memory._connections._http.is_closed
    assert not later._connections._of_loops


def test_an_asynchronous_client_works_on_each_event_loop(server: Server) -> None:
    memory = AsyncRecalld(str(server.client.base_url))
    me = memory.user("loops", agent="a")

    async def closing(call: Awaitable[models.Memory]) -> str:
        """The connections of the loop are closed with it, so that nothing is left open."""
        content = (await call)["content"]
        await memory.aclose()
        return content

    assert asyncio.run(closing(me.add("Ada drinks tea"))) == "Ada drinks tea"
    assert asyncio.run(closing(me.add("Ada drinks milk"))) == "Ada drinks milk"


def test_an_httpx_client_of_ones_own_says_that_it_belongs_to_one_loop() -> None:
    http = httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(lambda _: httpx.Response(200, json={})))
    memory = AsyncRecalld(http=http)
    asyncio.run(memory.get_memory("mem_1"))
    with pytest.raises(RecalldError, match="another event loop"):
        asyncio.run(memory.get_memory("mem_1"))


@pytest.mark.anyio
async def test_httpx_sees_no_more_requests_at_once_than_it_has_connections() -> None:
    under_way = most = 0

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await anyio.lowlevel.checkpoint()
        under_way -= 1
        return httpx.Response(200, json={})

    async with httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(answer)) as http:
        memory = AsyncRecalld(http=http)
        await asyncio.gather(*(memory.get_memory(f"mem_{n}") for n in range(500)))
    assert most == AT_ONCE


def test_they_wait_longer_than_the_service_waits_for_its_model() -> None:
    assert LLMSettings().timeout_seconds < _requests.TIMEOUT


@pytest.mark.anyio
@pytest.mark.parametrize("name", KNOWN)
async def test_an_id_of_any_kind_goes_round(api: httpx.AsyncClient, name: str) -> None:
    async with AsyncRecalld(http=api) as memory:
        await memory.update_profile(name, {"name": "Ada"})
        assert (await memory.get_profile(name))["user_id"] == name
        await memory.create_memory({"user_id": name, "content": "Ada drinks tea"})
        assert [one["user_id"] for one in (await memory.list_memories(user_id=name))["items"]] == [name]


@pytest.mark.before_store
@pytest.mark.anyio
async def test_every_kind_of_call(api: httpx.AsyncClient) -> None:
    async with AsyncRecalld(http=api) as memory:
        body: models.MemoryCreate = {
            "agent_id": "a",
            "user_id": "u",
            "content": "Ada drinks tea",
            "metadata": {"a.b": [1]},
        }
        made = await memory.create_memory(body, idempotency_key="once")
        assert (await memory.create_memory(body, idempotency_key="once"))["memory_id"] == made["memory_id"]
        assert (await memory.list_memories(pinned=False, user_id="u", limit=1))["items"][0]["metadata"] == {"a.b": [1]}
        changed = await memory.update_memory(made["memory_id"], {"importance": 0.9, "key": None}, if_match='"1"')
        assert changed["version"] == 2
        with pytest.raises(Problem) as stale:
            await memory.update_memory(made["memory_id"], {"importance": 0.1}, if_match='"1"')
        assert (stale.value.status, stale.value.code) == (412, "precondition_failed")
        with pytest.raises(Problem) as wrong:
            await memory.search_memories({"query": " ", "user_id": "u"})
        assert wrong.value.errors[0]["pointer"] == "/query"
        assert (await memory.search_memories(OWNER))["items"][0]["memory"]["content"] == "Ada drinks tea"
        with pytest.raises(Problem, match="422 invalid: An id in a path"):
            await memory.get_memory("../x")
        await memory.delete_memory(made["memory_id"])
    assert not api.is_closed


def test_both_have_a_method_for_each_operation() -> None:
    wanted = {operation["operationId"] for _, _, operation in generator._operations(generator.document())}
    assert len(wanted) > 80
    for kind in (Recalld, AsyncRecalld):
        assert wanted <= set(dir(kind))


def test_python_reads_changes_and_goes_on_where_it_was(server: Server) -> None:
    with Recalld(str(server.client.base_url)) as memory:
        start = memory.list_changes(after="now")["cursor"]
        made = [
            memory.create_memory({"user_id": "changes", "content": f"number {at} is a memory"})["memory_id"]
            for at in range(5)
        ]
        seen = [*memory.changes(start, every=None, user_id="changes", kind="memory", limit=2)]
        assert [(one["id"], one["type"]) for one in seen] == [(one, "created") for one in made]
        rest = [*memory.changes(seen[2]["cursor"], every=None, user_id="changes", kind="memory")]
        assert [one["id"] for one in rest] == made[3:]
        following = memory.changes(seen[-1]["cursor"], every=0.01, user_id="changes", type="deleted")
        memory.delete_memory(made[0])
        assert next(following)["id"] == made[0]
        with pytest.raises(Problem) as lost:
            [*memory.changes("nonsense", every=None)]
        assert lost.value.code == "invalid_cursor"
