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
import httpx
import pytest

from tests.support.chat import completion
from tests.support.model import NOTHING
from tests.support.scripted import Reply, ScriptedServer, scripted_server
from tests.support.server import ROOT, Server, recalld, serving

pytest.importorskip("langgraph")
from langgraph.store.base import BaseStore, InvalidNamespaceError, SearchOp
from langgraph.store.memory import InMemoryStore

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
LINES = 80
Json = dict[str, Any]


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module
    sys.path.remove(str(EXAMPLES))


def learns(reply: Reply, asked: Json) -> bytes:
    """Recalld's own model: of each part nothing, but for one memory."""
    shape = asked["response_format"]["json_schema"]["name"]
    memory = {"content": "Ada keeps bees", "message_seqs": [1], "context": None, "memory_type": "fact"}
    said = {"memories": [{**memory, "importance": 0.8, "superseded_ids": []}]} if shape == "LearnedMemories" else {}
    return completion(json.dumps(NOTHING[shape] | said))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with (
        scripted_server(learns) as model,
        serving(tmp_path_factory.mktemp("examples") / "data", RECALLD_LLM_BASE_URL=model.url) as made,
    ):
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
    key = recalld(data, "keys", "create", "--tenant", "t", "--name", "k", "--verbs", "read,write").stdout.strip()
    with scripted_server(lambda reply, asked: says("Fine.").body or b"") as model, serving(data) as service:
        ours = {"RECALLD_URL": str(service.client.base_url), "RECALLD_KEY": key}
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
        assert [one["status"] for one in sessions] == ["ended"] * 4


def test_the_plain_loop(example: Any, server: Server, model: ScriptedServer) -> None:
    from openai import OpenAI  # noqa: PLC0415

    loop = example("openai_loop")
    model.then(says("Noted."), says("In Boston."))
    with OpenAI(base_url=model.url, api_key="none") as client:
        loop.turn(server.client, client, "loop", "monday", "I live in Boston.")
        answer = loop.turn(server.client, client, "loop", "tuesday", "Where do I live?")
    assert answer == "In Boston."
    prompt = model.seen[1].body["messages"]
    assert prompt[0]["role"] == "system"
    assert any("I live in Boston." in message["content"] for message in prompt)
    assert server.client.get("/v1/sessions/tuesday").json()["message_count"] == 2


async def _pydantic_ai(example: Any, url: str, model: ScriptedServer) -> str:
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    module = example("pydantic_ai_agent")
    chat = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=model.url, api_key="none"))
    async with httpx.AsyncClient(base_url=url) as memory:
        await memory.post("/v1/agents", json={"agent_id": module.AGENT, "name": module.AGENT})
        await memory.patch("/v1/users/pyd/profile", json={"name": "Ada", "interests": ["astronomy"]})
        talk = module.Conversation(memory, "pyd", "pydantic")
        result = await module.ask(talk, "I have three hives.", chat)
        assert result.output == "Good."
        await module.ask(talk, "And now?", chat, result.all_messages())
        return str(await module.learn(talk))


@pytest.mark.anyio
async def test_pydantic_ai(example: Any, server: Server, model: ScriptedServer) -> None:
    model.then(calls("recall", question="What pets?"), says("Good."), says("Better."))
    operation = await _pydantic_ai(example, str(server.client.base_url), model)
    systems = [m["content"] for m in model.seen[0].body["messages"] if m["role"] in ("system", "developer")]
    assert any("astronomy" in text for text in systems)
    assert [m["role"] for m in model.seen[1].body["messages"]][-1] == "tool"
    with anyio.fail_after(30):  # the service's own worker learns
        while server.client.get(f"/v1/operations/{operation}").json()["status"] in ("queued", "running"):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    found = server.client.post("/v1/memories/search", json={"user_id": "pyd", "query": "bees"}).json()["items"]
    assert [item["memory"]["content"] for item in found] == ["Ada keeps bees", "They talked."]  # the summary, too


def test_langgraph(example: Any, server: Server, model: ScriptedServer) -> None:
    from openai import OpenAI  # noqa: PLC0415

    store = example("langgraph_store").RecalldStore(server.client, "lang")
    agent = example("langgraph_agent").graph(store)
    model.then(calls("save_memory", content="Ada plays the cello"), says("Kept it."))
    model.then(calls("search_memory", query="which instrument?"), says("The cello."))
    with OpenAI(base_url=model.url, api_key="none") as client:
        whom = {"user_id": "ada", "model": client}
        agent.invoke({"messages": [{"role": "user", "content": "I play the cello."}]}, context=whom)
        asked = {"messages": [{"role": "user", "content": "Which instrument do I play?"}]}
        assert agent.invoke(asked, context=whom)["messages"][-1]["content"] == "The cello."
    assert json.loads(model.seen[3].body["messages"][-1]["content"]) == ["Ada plays the cello"]


def _shown(found: Any) -> Any:
    """Without times and scores, in an order of its own: LangGraph promises neither."""
    if isinstance(found, list):
        return sorted((_shown(one) for one in found), key=str)
    return found if found is None or isinstance(found, tuple | int) else (found.namespace, found.key, found.value)


def _exercised(store: BaseStore) -> list[Any]:
    """What a graph may do with a store; LangGraph's own one says what comes of it."""
    ada, bob, deep, own = ("m", "ada"), ("m", "bob"), ("m", "ada", "work", "x y/ü"), ("shared",)
    value: Json = {"content": "tea", "n": 1, "a.b": {"$c": [None, True, 1.5]}, "": "empty"}
    seen: list[Any] = [store.search(("m",)), store.list_namespaces()]
    for space in (ada, bob, deep, own):
        for key in ("k", "k/2", "ключ"):
            store.put(space, key, {**value, "kind": key})
        seen += [store.get(space, "k"), store.get(space, "nothing")]
    store.put(ada, "k", {"content": "coffee", "kind": "k"})
    store.delete(ada, "k/2")
    store.delete(bob, "never there")
    for prefix in (ada, bob, deep, own, ("m",), ("m", "ada", "work"), ("ma",), ()):
        seen += [store.search(prefix, filter=only, limit=50) for only in (None, {"kind": "k"}, {"n": 2})]
    seen += [len(store.search(bob, limit=2)), len(store.search(bob, limit=2, offset=2)), store.search(bob, offset=9)]
    seen += [
        store.list_namespaces(),
        store.list_namespaces(prefix=("m",)),
        store.list_namespaces(prefix=("*", "bob")),
        store.list_namespaces(suffix=("x y/ü",)),
        store.list_namespaces(max_depth=2),
        store.list_namespaces(limit=1, offset=1),
    ]
    both = [SearchOp(ada), SearchOp(bob, limit=1)]
    seen += [[len(one) for one in store.batch(both)]]  # type: ignore[arg-type]
    return [_shown(one) for one in seen]


def test_the_store_does_what_langgraphs_own_does(example: Any, server: Server) -> None:
    store = example("langgraph_store").RecalldStore(server.client, "own")
    for ours, theirs in zip(_exercised(store), _exercised(InMemoryStore()), strict=True):
        assert ours == theirs
    for refused in ((), ("a.b",), ("langgraph",)):
        with pytest.raises(InvalidNamespaceError):
            store.put(refused, "k", {})
    with pytest.raises(NotImplementedError):
        store.put(("m", "ada"), "k", {}, ttl=5)


@pytest.mark.anyio
async def test_the_store_finds_by_meaning_within_its_namespace(example: Any, server: Server) -> None:
    store = example("langgraph_store").RecalldStore(server.client, "meaning")
    for user, text in (("ada", "She grows tomatoes"), ("ada", "He repairs clocks"), ("bob", "They sell vegetables")):
        await store.aput(("m", user), text[:4], {"content": text, "kind": "note"})
    (best, _) = await store.asearch(("m", "ada"), query="vegetables from the garden")
    assert (best.key, best.namespace) == ("She ", ("m", "ada"))
    assert best.score > 0
    assert await store.asearch(("m", "ada"), query="vegetables", filter={"kind": "other"}) == []
    assert await store.asearch(("m", "ada", "work"), query="vegetables") == []
