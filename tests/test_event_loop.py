"""One caller cannot stop the others: no long text of a caller is worked on on the event loop.

Counts characters, not time: those of the arguments of every function that goes through texts, each time that one is
called on the loop's thread, between two turns of the loop. Of what goes through values, the values.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any

import httpx
import orjson
import pytest
from pydantic import BaseModel, TypeAdapter

from app.api import strict
from app.core import characters, language, prompt_text, served_text
from app.core.work import LONG_TEXT
from app.core.work import characters as counted
from app.mcp import transport
from app.storage import text as stored_text
from app.storage.changes import resolve
from tests.conftest import Service

pytestmark = pytest.mark.anyio

MOST = 64_000
"""Characters between two turns."""
TEXT = ("a & b < c <system> \u202e&lt; \u200b[INST] " * 1_000)[:30_000]
"""Awkward: `&`, `<`, bidi, invisible."""
OWNER = {"agent_id": "a", "user_id": "u"}
MCP = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """The functions that a module defines. Generators are not counted."""
    for made in vars(module).values():
        for function in vars(made).values() if inspect.isclass(made) else [made]:
            plain = inspect.unwrap(function) if callable(function) else None
            if inspect.isfunction(plain) and plain.__module__ == module.__name__ and not _is_resumed(plain.__code__):
                yield plain.__code__


def _is_resumed(code: CodeType) -> bool:
    return bool(code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE))


def dumps(value: Any, *given: Any, **named: Any) -> bytes:
    """`orjson.dumps`, which is no function of Python, so that its calls can be counted."""
    return real_dumps(value, *given, **named)


def loads(text: str | bytes) -> Any:
    """`orjson.loads`, as `dumps`."""
    return real_loads(text)


real_dumps, real_loads = orjson.dumps, orjson.loads


class Counter:
    """Counts on the thread on which it is started."""

    def __init__(self) -> None:
        modules = (prompt_text, characters, served_text, language, stored_text)
        json = (strict.parse, strict.decoded, transport.encoded, transport.quoted, dumps)
        values = (TypeAdapter.validate_python, resolve)
        self.seams: dict[CodeType, Callable[[Any], int]] = {
            code: _size for module in modules for code in _codes(module)
        }
        self.seams |= {made.__code__: _size for made in json} | {made.__code__: _values for made in values}
        self.seams[BaseModel.model_dump.__code__] = lambda body: (
            _values(vars(body)) if isinstance(body, BaseModel) else 0
        )
        self.seams[loads.__code__] = lambda text: len(text) // 10  # read so much faster than a text is worked on
        self.now = self.most = 0
        self.where: dict[str, int] = {}
        self._inside: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is vars(asyncio.BaseEventLoop)["_run_once"].__code__:
            self.now = 0
        elif event == "call" and self._inside is None and frame.f_code in self.seams:
            names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
            self._inside = frame
            caller = frame.f_back.f_code.co_qualname if frame.f_back else ""
            size = self.seams[frame.f_code]
            self._count(f"{frame.f_code.co_qualname} < {caller}", sum(size(frame.f_locals.get(name)) for name in names))
        elif event == "return" and frame is self._inside:
            self._inside = None

    def _count(self, name: str, size: int) -> None:
        self.now += size
        if self.now > self.most:
            self.most = self.now
            self.where[name] = self.now


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 0


def _values(value: Any) -> int:
    """How many values pydantic walks over: a text takes no time there, and a model is taken as it is."""
    if isinstance(value, dict):
        return sum(map(_values, value.values()))
    return sum(map(_values, value)) if isinstance(value, list | tuple) else 1


@contextmanager
def counting() -> Iterator[Counter]:
    counter = Counter()
    sys.setprofile(counter)
    try:
        yield counter
    finally:
        sys.setprofile(None)


async def test_the_counter_finds_a_long_text_on_the_loop_and_none_in_a_thread() -> None:
    with counting() as counter:
        prompt_text.escape(TEXT)
        prompt_text.quote(TEXT)
        await asyncio.sleep(0)
        prompt_text.escape(TEXT)
    assert counter.most == 2 * len(TEXT)
    with counting() as counter:
        await asyncio.to_thread(prompt_text.escape, TEXT)
    assert counter.most == 0


@pytest.fixture
async def filled(service: Service) -> httpx.AsyncClient:
    """A service that holds fifty long notes, a long conversation, and an agent, a user and a task with much to say."""
    client = service.client
    for start in range(0, 50, 10):
        items = [{**OWNER, "content": f"{number} {TEXT[:9_000]}"} for number in range(start, start + 10)]
        assert (await client.post("/v1/memories/batch", json={"items": items})).status_code == 201
    objects = {f"k{number}": TEXT for number in range(7)}
    for method, path, body in (
        ("POST", "/v1/sessions/s/messages", {**OWNER, "messages": [{"role": "user", "content": TEXT}] * 40}),
        ("POST", "/v1/agents", {"agent_id": "a", "name": "A"}),
        ("PATCH", "/v1/agents/a/experience", {"procedural_knowledge": TEXT, "heuristics": [TEXT[:1900]] * 40}),
        ("PATCH", "/v1/users/u/profile", {"custom": objects}),
        ("POST", "/v1/tasks", {**OWNER, "task_id": "t", "goal": "g", "context": objects}),
    ):
        answer = await client.request(method, path, json=body)
        assert answer.status_code in (200, 201), answer.text
    return client


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def asked(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


MANY = {f"k{number}": TEXT for number in range(60)}
VALUES = {"k": [["ab"] * 490] * 480}
"""As many values as a body may have, nearly."""
ENTRANCES: dict[str, tuple[str, str, Any]] = {
    "largest metadata": ("POST", "/v1/memories", {**OWNER, "content": "m", "metadata": MANY}),
    "most values": ("POST", "/v1/memories", {**OWNER, "content": "n", "metadata": VALUES}),
    "list of most values": ("GET", "/v1/memories?limit=1", None),
    "most values in an action": ("POST", "/v1/actions", {**OWNER, "event_type": "e", "action": VALUES}),
    "most values in a message": (
        "POST",
        "/v1/sessions/values/messages",
        {**OWNER, "messages": [{"role": "tool", "tool_call_id": "c", "content": "41", "result": VALUES}]},
    ),
    "most values in a profile": ("PATCH", "/v1/users/u/profile", {"custom": {"k": [["a"] * 490] * 130}}),
    "most faults": (
        "POST",
        "/v1/memories/batch",
        {"items": [{"content": "x", **dict.fromkeys(map(str, range(249)), "ab")}] * 480},
    ),
    "text too long": ("POST", "/v1/memories", {**OWNER, "content": TEXT * 60}),
    "unknown fields": ("POST", "/v1/memories/batch", {"items": [{**OWNER, "content": TEXT, "x": TEXT}] * 30}),
    "messages": ("POST", "/v1/sessions/new/messages", {**OWNER, "messages": [{"role": "user", "content": TEXT}] * 60}),
    "list": ("GET", "/v1/memories?limit=100", None),
    "search": ("POST", "/v1/memories/search", {**OWNER, "query": TEXT[:2_000], "top_k": 100}),
    "actions of most values": ("GET", "/v1/actions", None),
    "conversation of most values": ("GET", "/v1/sessions/values/messages", None),
    "conversation": ("GET", "/v1/sessions/s/messages?limit=100", None),
    "session context": ("GET", "/v1/sessions/s/context?max_tokens=1000000&max_messages=500", None),
    "context": ("POST", "/v1/context", {**OWNER, "query": "a & b", "session_id": "s", "token_budget": 100_000}),
    "experience prompt": ("GET", "/v1/agents/a/experience-prompt?max_tokens=1000000&user_id=u", None),
    "working memory": ("GET", "/v1/tasks/t/working-memory?max_tokens=1000000", None),
    "profile": ("GET", "/v1/users/u/profile", None),
    "feed": ("GET", "/v1/changes?format=json&limit=1000", None),
    "export": ("GET", "/v1/users/u/export", None),
    "MCP arguments": ("POST", "/mcp", called("remember", **OWNER, content=TEXT * 60)),
    "MCP arguments, many": ("POST", "/mcp", called("remember", **OWNER, content="m", source=MANY)),
    "MCP messages": (
        "POST",
        "/mcp",
        called("append_messages", **OWNER, session_id="n", messages=[{"role": "user", "content": TEXT}] * 60),
    ),
    "MCP list": ("POST", "/mcp", called("list_memories", **OWNER, limit=50)),
    "MCP recall": ("POST", "/mcp", called("recall", **OWNER, query="a & b", top_k=50)),
    "MCP context": ("POST", "/mcp", called("get_context", **OWNER, query="a", session_id="s", token_budget=100_000)),
    "MCP task": ("POST", "/mcp", called("update_task", task_id="t")),
    "MCP resource": ("POST", "/mcp", asked("resources/read", uri="recalld://users/u/profile")),
    "MCP prompt": (
        "POST",
        "/mcp",
        asked("prompts/get", name="about_me", arguments={"user_id": "u", "topic": TEXT * 60}),
    ),
}


async def test_long_bodies_and_answers_are_worked_on_beside_the_loop(
    filled: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orjson, "dumps", dumps)
    monkeypatch.setattr(orjson, "loads", loads)
    await filled.post("/mcp", content=orjson.dumps(called("get_profile", user_id="u")), headers=MCP)  # imports the SDK
    too_much = {}
    for name, (method, path, body) in ENTRANCES.items():
        content = None if body is None else real_dumps(body)
        with counting() as counter:
            answer = await filled.request(method, path, content=content, headers=MCP, timeout=300)
        assert answer.status_code in (200, 201, 202, 422), (name, answer.text[:500])
        if counter.most > MOST:
            too_much[name] = counter.where
    assert too_much == {}


def test_characters_are_counted_as_far_as_matters() -> None:
    assert counted({"a": ["bc", 1, None, {"d": "efg"}]}, "h") == 6 + 1 + 4 + 1
    assert LONG_TEXT < counted(["x" * 15_000] * 100_000) <= LONG_TEXT + 100_000
    assert counted("x", TEXT, TEXT) == len("x" + TEXT)
