"""The examples work, against a running service and a language model that says what it is told."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest

from tests.support.chat import completion
from tests.support.learning import learned
from tests.support.model import scripted_model
from tests.support.scripted import Reply, ScriptedServer, scripted_server
from tests.support.server import ROOT, Server, recalld, serving

pytest.importorskip("langgraph")
from langgraph_store_recalld import RecalldStore
from openai import AsyncOpenAI, OpenAI
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from recalld_client import AsyncRecalld, Recalld, wrap_openai

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
PACKAGES = os.pathsep.join(str(ROOT / path) for path in ("clients/python", "integrations/langgraph"))
LINES = 80
Json = dict[str, Any]


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a model of its own, which learns one memory."""
    memory = learned("The user keeps bees", 1, kind="fact", importance=0.8)
    with scripted_model() as model:
        model.says["memories"] = {"memories": [memory]}
        folder = tmp_path_factory.mktemp("examples") / "data"
        with serving(folder, RECALLD_LLM_BASE_URL=model.server.url) as made:
            yield made


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with scripted_server(lambda reply, asked: completion("Fine.")) as made:
        yield made


def whole(body: bytes) -> Reply:
    """With all that stricter clients look for."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return Reply(body=json.dumps({**json.loads(body), "model": "scripted", "created": 0, "usage": usage}).encode())


def says(text: str) -> Reply:
    return whole(completion(text))


def calls(name: str, **arguments: str) -> Reply:
    """A model's wish to use a tool."""
    body = json.loads(completion(None, finish="tool_calls"))
    function = {"name": name, "arguments": json.dumps(arguments)}
    body["choices"][0]["message"]["tool_calls"] = [{"id": f"call_{name}", "type": "function", "function": function}]
    return whole(json.dumps(body).encode())


def test_each_is_short_and_listed() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= LINES, path.name
        assert f"({path.name})" in readme


def test_each_runs_again_and_with_a_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    key = recalld(
        data, "keys", "create", "--no-admin", "--tenant", "t", "--name", "k", "--verbs", "read,write"
    ).stdout.strip()
    with scripted_server(lambda reply, asked: says("Fine.").body or b"") as model, serving(data) as service:
        ours = {"RECALLD_URL": str(service.client.base_url), "RECALLD_KEY": key, "PYTHONPATH": PACKAGES}
        env = {**os.environ, **ours, "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "MODEL": "scripted"}
        for name in ("openai_loop", "pydantic_ai_agent", "langgraph_agent"):
            for _ in range(2):
                command = [sys.executable, str(EXAMPLES / f"{name}.py")]
                ended = subprocess.run(
                    command, input="Hello\n\n", env=env, capture_output=True, text=True, timeout=60, check=False
                )
                assert ended.returncode == 0, ended.stderr
                assert "Fine." in ended.stdout
        headers = {"Authorization": f"Bearer {key}"}
        sessions = service.client.get("/v1/sessions", headers=headers).json()["items"]
        assert [one["status"] for one in sessions] == ["ended"] * 6


@pytest.fixture
def memory(server: Server) -> Iterator[Recalld]:
    with Recalld(str(server.client.base_url)) as made:
        yield made


def test_the_plain_loop(example: Any, memory: Recalld, model: ScriptedServer) -> None:
    loop, me = example("openai_loop"), memory.user("loop", agent="assistant")
    model.then(says("Noted."), says("In Boston."))
    with OpenAI(base_url=model.url, api_key="none") as client:
        loop.turn(me.session("monday"), client, "I live in Boston.")
        answer = loop.turn(me.session("tuesday"), client, "Where do I live?")
    assert answer == "In Boston."
    prompt = model.seen[1].body["messages"]
    assert prompt[0]["role"] == "system"
    assert any("I live in Boston." in message["content"] for message in prompt)
    assert [one["content"] for one in me.session("tuesday").messages()] == ["Where do I live?", "In Boston."]


def test_the_plain_loop_keeps_the_users_words_where_the_model_fails(
    example: Any, memory: Recalld, model: ScriptedServer
) -> None:
    session = memory.user("lost", agent="assistant").session("lost")
    model.then(Reply(500))
    with OpenAI(base_url=model.url, api_key="none", max_retries=0) as client, pytest.raises(openai.InternalServerError):
        example("openai_loop").turn(session, client, "I live in Boston.")
    assert [one["content"] for one in session.messages()] == ["I live in Boston."]


def _chat_model(model: ScriptedServer) -> OpenAIChatModel:
    client = AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0)
    return OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))


@pytest.mark.anyio
async def test_pydantic_ai(example: Any, server: Server, model: ScriptedServer) -> None:
    module = example("pydantic_ai_agent")
    model.then(calls("recall", question="What pets?"), says("Good."), says("Better."), Reply(500))
    async with AsyncRecalld(str(server.client.base_url)) as memory:
        await memory.create_agent({"agent_id": module.AGENT, "name": module.AGENT})
        me = memory.user("pyd", agent=module.AGENT)
        await me.profile.update(name="Ada", interests=["astronomy"])
        talk = module.Conversation(me, me.session("pydantic"))
        result = await module.ask(talk, "I keep bees.", _chat_model(model))
        assert result.output == "Good."
        await module.ask(talk, "And now?", _chat_model(model), result.all_messages())
        with pytest.raises(ModelHTTPError):
            await module.ask(talk, "And after that?", _chat_model(model))
        said = [one["content"] async for one in talk.session.messages()]
        assert said == ["I keep bees.", "Good.", "And now?", "Better.", "And after that?"]
        systems = [m["content"] for m in model.seen[0].body["messages"] if m["role"] in ("system", "developer")]
        assert any("astronomy" in text for text in systems)
        assert [m["role"] for m in model.seen[1].body["messages"]][-1] == "tool"
        operation = (await talk.session.end())["operation_id"]
        with anyio.fail_after(30):  # the service's own worker learns
            while (await memory.get_operation(operation))["status"] in ("queued", "running"):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        found = [hit["memory"]["content"] for hit in await me.search("bees")]
    assert found == ["The user keeps bees"]


@pytest.mark.skipif(
    "RECALLD_TEST_MODEL" not in os.environ, reason="RECALLD_TEST_MODEL and OPENAI_BASE_URL name a model"
)
def test_each_runs_with_a_real_model(tmp_path: Path) -> None:
    """Small models understand little: what must hold is that they answer, and that what they were told is there."""
    told = "My name is Ada and I live in Boston."
    with serving(tmp_path / "data") as service, Recalld(str(service.client.base_url)) as memory:
        ours = {"RECALLD_URL": memory.url, "PYTHONPATH": PACKAGES, "MODEL": os.environ["RECALLD_TEST_MODEL"]}
        env = {"OPENAI_API_KEY": "none", **os.environ, **ours}
        for name in ("openai_loop", "pydantic_ai_agent", "langgraph_agent"):
            command = [sys.executable, str(EXAMPLES / f"{name}.py")]
            ended = subprocess.run(
                command, input=f"{told}\n\n", env=env, capture_output=True, text=True, timeout=280, check=False
            )
            assert ended.returncode == 0, ended.stderr
            assert ended.stdout.removeprefix("> ").strip(), name
        hits = memory.user("me", agent="assistant").search("Where does Ada live?")
    assert told in [hit["memory"]["content"] for hit in hits]


def test_langgraph(example: Any, memory: Recalld, model: ScriptedServer) -> None:
    agent = example("langgraph_agent").graph(RecalldStore(memory, agent="lang"))
    model.then(calls("save_memory", content="Ada plays the cello"), says("Kept it."))
    model.then(calls("search_memory", query="which instrument?"), says("The cello."), Reply(500))
    session = memory.user("ada", agent="lang").session("lang")
    with OpenAI(base_url=model.url, api_key="none", max_retries=0) as client:
        whom = {"user_id": "ada", "model": wrap_openai(client, memory=session, budget=0)}
        agent.invoke({"messages": [{"role": "user", "content": "I play the cello."}]}, context=whom)
        asked = {"messages": [{"role": "user", "content": "Which instrument do I play?"}]}
        assert agent.invoke(asked, context=whom)["messages"][-1]["content"] == "The cello."
        with pytest.raises(openai.InternalServerError):
            agent.invoke({"messages": [{"role": "user", "content": "And my sister?"}]}, context=whom)
    assert json.loads(model.seen[3].body["messages"][-1]["content"]) == ["Ada plays the cello"]
    said = [one["content"] for one in session.messages() if one["role"] == "user"]
    assert said == ["I play the cello.", "Which instrument do I play?", "And my sister?"]
