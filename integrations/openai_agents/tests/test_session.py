"""The session does what the Agents SDK's own SQLiteSession does, and an agent runs on it."""

import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.memory import SessionSettings
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
    await again.add_items([{"role": "user", "content": "And tomorrow?"}])  # a session that has ended goes on
    assert len(await again.get_items()) == 7


async def test_a_new_session_knows_what_earlier_ones_said(me: AsyncUserMemory) -> None:
    model = Scripted(says("Noted."), says("In Boston."), says("Yes."), says("Nuts."))
    agent = Agent("Assistant", model=model)
    await Runner.run(agent, "I live in Boston and I am allergic to nuts.", session=RecalldSession(me.session()))
    session = RecalldSession(me.session())
    await Runner.run(agent, "Where do I live?", session=session)
    block, question = model.seen[1]
    assert block["content"].startswith("<recalld_context>")
    assert "I live in Boston and I am allergic to nuts." in block["content"]
    assert question["content"] == "Where do I live?"
    await Runner.run(agent, "Are you sure?", session=session)
    block, *items = model.seen[2]
    assert "Boston" in block["content"]
    assert "Where do I live?" not in block["content"]  # that is in the history
    assert [_text(item) for item in items] == ["Where do I live?", "In Boston.", "Are you sure?"]
    stored = await session.get_items()
    assert [_text(item) for item in stored] == ["Where do I live?", "In Boston.", "Are you sure?", "Yes."]

    config = RunConfig(call_model_input_filter=session.recall)
    await Runner.run(agent, "What must I not eat?", session=session, run_config=config)
    texts = [_text(item) for item in model.seen[3]]
    assert texts[:4] == ["Where do I live?", "In Boston.", "Are you sure?", "Yes."]
    assert "allergic to nuts" in texts[4]
    assert texts[5] == "What must I not eat?"
    assert len(await session.get_items()) == 6
    assert len([one async for one in me.session(session.session_id).messages()]) == 6


async def test_nothing_is_recalled_where_nothing_is_known_or_wanted(me: AsyncUserMemory) -> None:
    model = Scripted(says("Noted."), says("Hm."), says("Hm."))
    agent = Agent("Assistant", model=model)
    await Runner.run(agent, "I live in Boston.", session=RecalldSession(me.session()))
    assert len(model.seen[0]) == 1
    await Runner.run(agent, "Where do I live?", session=RecalldSession(me.session(), budget=0))
    assert len(model.seen[1]) == 1


async def test_what_is_opaque_comes_back_whole(me: AsyncUserMemory) -> None:
    session = RecalldSession(me.session())
    sent: list[Any] = [
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA" + "Zx9+" * 15_000},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "iVBO" * 15_000}]},
        {"type": "function_call_output", "call_id": "c1", "output": "begin " + "x " * 50_000 + "end"},
    ]
    await session.add_items(sent)
    assert await session.get_items() == sent
    assert [one async for one in me.memories()] == []


async def test_the_settings_of_a_session_say_how_many_items_are_read(me: AsyncUserMemory) -> None:
    session = RecalldSession(me.session(), session_settings={"limit": 2})
    assert RecalldSession(me.session()).session_settings == SessionSettings()
    await session.add_items([{"role": "user", "content": str(n)} for n in range(4)])
    assert [_text(item) for item in await session.get_items()] == ["2", "3"]
    assert [_text(item) for item in await session.get_items(3)] == ["1", "2", "3"]
    session.session_settings = SessionSettings(limit=1)
    assert [_text(item) for item in await session.get_items()] == ["3"]


async def test_a_large_output_is_kept_short_and_an_image_as_a_word_about_it(me: AsyncUserMemory) -> None:
    session = RecalldSession(me.session())
    data = "iVBORw0KGgo" + "A" * 399_997
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"}
    asked = {"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, image]}
    output = {"type": "function_call_output", "call_id": "c1", "output": "begin" + "x" * 500_000 + "end"}
    await session.add_items([asked, output])  # type: ignore[list-item]
    items: list[Any] = await session.get_items()
    assert items[0]["content"] == [asked["content"][0], {"type": "input_text", "text": ABOUT_IMAGE}]
    kept = items[1]["output"]
    assert (kept[:5], kept[-3:], len(kept) <= 250_000) == ("begin", "end", True)


ABOUT_IMAGE = "[input_image, 400088 characters, was not kept]"


def _text(item: Any) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
