"""The snippets of docs/guides/frameworks.md and the recipe for LangGraph run, against a running service and a model
that says "Noted."."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_generators import NODE, tool
from tests.clients.test_typescript import install, new_project, packed
from tests.clients.test_typescript import run as run_command
from tests.support.frameworks import ADDRESS, noted, printed
from tests.support.scripted import ScriptedServer, scripted_server
from tests.support.server import ROOT, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.release, pytest.mark.timeout(600)]

GUIDE = ROOT / "docs" / "guides" / "frameworks.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SECTIONS = {part.split("\n")[0]: FENCE.findall(part) for part in GUIDE.read_text().split("\n## ")[1:]}
SAYS = "Noted.\n"
PRINTS = {
    "LangGraph": "{'content': 'Ada drinks tea'}\n",
    "PydanticAI": SAYS,
    "OpenAI Agents SDK": SAYS,
    "LangChain": "I live in Boston.\n",
    "MCP clients": "Ada lives in Boston",
    "Other frameworks": SAYS,
}
MOST_LINES = 5
"""Of a snippet, besides its imports."""
MOCK = """import * as mocks from "ai/test";
const answer = { content: [{ type: "text", text: "Noted." }],
  finishReason: { unified: "stop", raw: "stop" }, warnings: [],
  usage: { inputTokens: { total: 1 }, outputTokens: { total: 1 } } };
const gateway = () => new mocks.MockLanguageModelV4({ doGenerate: async () => answer });
"""


def snippet(section: str, language: str) -> str:
    (code,) = [code for written, code in SECTIONS[section] if written == language]
    return str(code)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("guide") / "data") as made:
        yield made


@pytest.fixture
def server(service: Server) -> Server:
    """A service that knows nothing of the user of the page."""
    service.client.delete("/v1/users/ada").raise_for_status()
    return service


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with scripted_server(noted) as made:
        yield made


def url(server: Server) -> str:
    return str(server.client.base_url).rstrip("/")


def contents(server: Server) -> list[str]:
    items = server.client.get("/v1/memories", params={"user_id": "ada"}).json()["items"]
    return [one["content"] for one in items]


def test_each_snippet_is_short_and_has_a_test_here() -> None:
    written = {(section, language) for section, codes in SECTIONS.items() for language, _ in codes}
    others = {("Vercel AI SDK", "ts"), ("MCP clients", "json"), ("Coding agents", "sh")}
    assert written == {(section, "python") for section in PRINTS} | others
    for codes in SECTIONS.values():
        for _, code in codes:
            lines = [line for line in code.splitlines() if line.strip() and not re.match("import |from ", line)]
            assert 0 < len(lines) <= MOST_LINES, code


@pytest.mark.parametrize("section", PRINTS)
def test_the_python_of_a_section(section: str, server: Server, model: ScriptedServer) -> None:
    said = printed(snippet(section, "python"), url(server), model.url)
    assert PRINTS[section] in said
    if section == "Other frameworks":
        assert {"remember", "recall"} <= {one["name"] for one in model.seen[0].body["tools"]}
    else:
        assert any("Boston" in content or "tea" in content for content in contents(server))


def test_the_graph_of_the_recipes_remembers_from_one_thread_to_the_next(server: Server, model: ScriptedServer) -> None:
    recipe = (ROOT / "docs" / "recipes.md").read_text().split("\n## LangGraph\n")[1]
    (code,) = [code for language, code in FENCE.findall(recipe) if language == "python"]
    assert printed(code, url(server), model.url) == SAYS * 2
    asked = model.seen[-1].body["messages"][-1]["content"]
    assert "user: I live in Boston." in asked
    assert asked.endswith("Where do I live?")


def test_the_middleware_of_the_ai_sdk(server: Server, tmp_path: Path) -> None:
    ai = tool(NODE.parent, "ai")
    folder = new_project(tmp_path / "project")
    install(folder, packed(tmp_path))
    (folder / "node_modules" / "ai").symlink_to(ai)
    code = snippet("Vercel AI SDK", "ts")
    assert "{ gateway, " in code
    (folder / "guide.mjs").write_text(MOCK + code.replace("{ gateway, ", "{ "))
    assert run_command("node", "guide.mjs", cwd=folder, RECALLD_URL=url(server)) == SAYS
    assert "I live in Boston." in contents(server)


def test_the_address_for_hosts_of_mcp(server: Server) -> None:
    (host,) = json.loads(snippet("MCP clients", "json"))["mcpServers"].values()
    assert host["type"] == "http"
    arguments = {"name": "remember", "arguments": {"content": "Ada drinks tea"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}
    headers = {"accept": "application/json, text/event-stream"}
    answer = server.client.post(host["url"].replace(ADDRESS, url(server)), json=call, headers=headers)
    assert answer.status_code == 200, answer.text
    assert contents(server) == ["Ada drinks tea"]


def test_the_hooks_of_coding_agents(server: Server, tmp_path: Path) -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RECALLD_", "CLAUDE_"))}
    env = {**ours, "HOME": str(tmp_path), "RECALLD_URL": url(server), "RECALLD_USER": "ada"}
    subprocess.run(["sh", "-ec", snippet("Coding agents", "sh")], cwd=ROOT, env=env, check=True, timeout=60)
    (entry,) = json.loads((tmp_path / ".claude" / "settings.json").read_text())["hooks"]["UserPromptSubmit"]
    (hook,) = entry["hooks"]
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "c1", "cwd": "/src/shop", "prompt": "We use Nomad."}
    sent = json.dumps({**event, "transcript_path": "/home/ada/x.jsonl", "permission_mode": "default"})
    said = subprocess.run(
        ["sh", "-c", hook["command"]], input=sent, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stderr == ""
    assert contents(server) == ["We use Nomad."]
    assert json.loads((tmp_path / ".cursor" / "hooks.json").read_text())["hooks"]
