"""The session does what the Agents SDK's own SQLiteSession does, and an agent runs on it."""

import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from agents import Agent, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from agents_session_recalld import RecalldSession
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from recalld_client import AsyncRecalld, AsyncUserMemory

URL = os.environ.get("RECALLD_URL", "")
pytestmark = [pytest.mark.skipif(not URL, reason="RECALLD_URL names no service"), pytest.mark.anyio]
set_tracing_disabled(True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def me() -> AsyncIterator[AsyncUserMemory]:
    async with AsyncRecalld(URL) as memory:
        yield memory.user(uuid4().hex, agent="assistant")


ITEMS: list[Any] = [
    {"role": "user", "content": "What is the weather in Boston?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city":"Boston"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
]


async def exercised(session: Any) -> list[Any]:
    seen = [await session.get_items(), await session.pop_item(), await session.clear_session()]
    await session.add_items([])
    await session.add_items(ITEMS)
    seen += [await session.get_items(), await session.get_items(2), await session.get_items(99)]
    seen += [await session.pop_item(), await session.get_items(), await session.get_items(1)]
    await session.add_items(ITEMS[:1])
    seen += [await session.get_items(2)]
    await session.clear_session()
    seen += [await session.get_items(), await session.pop_item()]
    await session.add_items([{"role": "user", "content": f"Number {n}"} for n in range(230)])
    return [*seen, await session.get_items(), await session.get_items(3)]


async def test_it_does_what_the_sdks_own_session_does(me: AsyncUserMemory) -> None:
    ours = await exercised(RecalldSession(me.session()))
    for mine, theirs in zip(ours, await exercised(SQLiteSession("own")), strict=True):
        assert mine == theirs


class Scripted(Model):
    """Says what a test wrote down."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs, self.seen = list(outputs), list[Any]()

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> ModelResponse:
        self.seen.append(input)
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


def says(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


async def test_an_agent_goes_on_in_its_session_and_its_words_are_memories(me: AsyncUserMemory) -> None:
    called = ResponseFunctionToolCall(
        id="f", call_id="c1", name="weather", arguments='{"city":"Boston"}', type="function_call"
    )
    model = Scripted(called, says("Sunny."), says("In Boston."))
    agent = Agent("Assistant", model=model, tools=[weather])
    name = uuid4().hex
    first = await Runner.run(agent, "I live in Boston. What is the weather?", session=RecalldSession(me.session(name)))
    assert first.final_output == "Sunny."
    again = RecalldSession(me.session(name))  # another process
    assert (await Runner.run(agent, "Where do I live?", session=again)).final_output == "In Boston."
    assert [item.get("type", item.get("role")) for item in model.seen[-1]] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
        "user",
    ]
    hits = await me.search("Which city does she live in?")
    assert "I live in Boston. What is the weather?" in [hit["memory"]["content"] for hit in hits]
    assert (await again.end())["operation_id"]
