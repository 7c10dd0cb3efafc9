"""Agents of PydanticAI run with the toolset and the history, against a running service."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_recalld import RecalldHistory, RecalldToolset
from recalld_client import NO_RETRY, AsyncRecalld, AsyncUserMemory, AsyncUserSession, MemoryEvent, Problem

URL = os.environ.get("RECALLD_URL", "")
pytestmark = [pytest.mark.skipif(not URL, reason="RECALLD_URL names no service"), pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def me() -> AsyncIterator[AsyncUserMemory]:
    async with AsyncRecalld(URL) as memory:
        yield memory.user(uuid4().hex, agent="assistant")


class Scripted:
    """A model that says what a test wrote down, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.seen, self.infos = list(answers), list[list[ModelMessage]](), list[AgentInfo]()
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> Any:
        self.seen.append(list(messages))
        self.infos.append(info)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = self._next(messages, info)
        return ModelResponse(parts=[TextPart(said) if isinstance(said, str) else said])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in self._next(messages, info).split(" "):
            yield word + " "


def call(tool: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments)


def prompts(messages: list[ModelMessage]) -> list[Any]:
    """The user prompts of the last request that has any."""
    asked = [one.parts for one in messages if isinstance(one, ModelRequest)]
    found = [[part.content for part in parts if isinstance(part, UserPromptPart)] for parts in asked]
    return next(one for one in reversed(found) if one)


def results(messages: list[ModelMessage]) -> list[Any]:
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]


async def said(session: AsyncUserSession) -> list[str]:
    return [f"{one['role']}: {one['content']}" async for one in session.messages()]


# ---------------------------------------------------------------- the toolset


async def test_the_model_keeps_finds_and_deletes_memories(me: AsyncUserMemory) -> None:
    model = Scripted(
        call("remember", statement="Ada plays the cello"), call("recall", query="Which instrument?"), "Done."
    )
    agent = Agent(model.model, toolsets=[RecalldToolset(me)])
    run = await agent.run("I play the cello.")
    kept, (found,) = results(run.all_messages())
    assert kept == f"Kept as {found['memory_id']}."
    assert found["content"] == "Ada plays the cello"
    assert 0 < found["score"] <= 1
    model.answers = [call("forget", memory_id=found["memory_id"]), "Gone."]
    assert results((await agent.run("Forget it.")).all_messages()) == ["Forgotten."]
    assert await me.search("Which instrument?") == []


async def test_the_model_is_told_what_the_tools_are_for(me: AsyncUserMemory) -> None:
    model = Scripted("Hello.")
    await Agent(model.model, toolsets=[RecalldToolset(me)]).run("Hello")
    (info,) = model.infos
    tools = {one.name: one for one in info.function_tools}
    assert set(tools) == {"recall", "remember", "forget"}
    assert set(tools["recall"].parameters_json_schema["properties"]) == {"query", "limit"}
    for tool in tools.values():
        assert tool.description
        assert all(one["description"] for one in tool.parameters_json_schema["properties"].values())
    assert "long-term memory of the user" in (info.instructions or "")


async def test_it_never_deletes_what_is_another_users(me: AsyncUserMemory) -> None:
    other = AsyncUserMemory(me.client, uuid4().hex, "assistant")
    theirs = await other.add("Bob plays the drums")
    model = Scripted(call("forget", memory_id=theirs["memory_id"]), "I cannot.")
    run = await Agent(model.model, toolsets=[RecalldToolset(me)]).run("Forget it.")
    assert results(run.all_messages()) == ["There is no such memory of this user."]
    assert (await other.get(theirs["memory_id"]))["content"] == "Bob plays the drums"
    shared = await me.client.create_memory({"user_id": me.user_id, "content": "Ada drinks tea"})
    model.answers = [call("forget", memory_id=shared["memory_id"]), "Gone."]
    run = await Agent(model.model, toolsets=[RecalldToolset(me)]).run("Forget that, too.")
    assert results(run.all_messages()) == ["Forgotten."]


@dataclass
class Deps:
    me: AsyncUserMemory


async def test_one_agent_serves_many_users(me: AsyncUserMemory) -> None:
    other = AsyncUserMemory(me.client, uuid4().hex, "assistant")
    await me.add("Ada plays the cello")
    await other.add("Bob plays the drums")
    tools = RecalldToolset[Deps](lambda ctx: ctx.deps.me)
    for user, instrument in ((me, "Ada plays the cello"), (other, "Bob plays the drums")):
        model = Scripted(call("recall", query="Which instrument?"), "That one.")
        run = await Agent(model.model, deps_type=Deps, toolsets=[tools]).run("Which?", deps=Deps(user))
        ((found,),) = results(run.all_messages())
        assert found["content"] == instrument


async def test_a_wrong_argument_goes_back_to_the_model(me: AsyncUserMemory) -> None:
    wrong = [call("recall", query="tea", limit=0), call("forget", memory_id="none")]
    model = Scripted(*wrong, call("remember", statement=""), "Sorry.")
    run = await Agent(model.model, toolsets=[RecalldToolset(me)]).run("Try.")
    limit, unknown, empty = results(run.all_messages())
    assert limit == "limit: must be from 1 to 20."
    assert "none" in unknown or "no" in unknown.lower()
    assert "content" in empty


async def test_the_run_goes_on_where_the_memory_is_down() -> None:
    async with AsyncRecalld("http://127.0.0.1:9", retry=NO_RETRY) as memory:
        model = Scripted(call("recall", query="tea"), call("remember", statement="Ada drinks tea"), "Tea, perhaps.")
        run = await Agent(model.model, toolsets=[RecalldToolset(memory.user("ada"))]).run("What do I drink?")
    assert run.output == "Tea, perhaps."
    assert results(run.all_messages()) == ["The memory cannot be reached now. Go on without it."] * 2


async def test_a_wrong_key_is_the_developers_to_see() -> None:
    async with AsyncRecalld(URL, key="rk_wrong") as memory:
        agent = Agent(Scripted(call("recall", query="tea")).model, toolsets=[RecalldToolset(memory.user("ada"))])
        with pytest.raises(Problem) as raised:
            await agent.run("What do I drink?")
    assert raised.value.status == 401


# ---------------------------------------------------------------- the history


async def test_what_is_known_is_in_the_request_and_the_conversation_is_stored(me: AsyncUserMemory) -> None:
    await me.add("Ada moved to Boston in May")
    model, events = Scripted("In Boston."), list[MemoryEvent]()
    session = me.session()
    history = RecalldHistory(session, on_memory=events.append)
    run = await Agent(model.model, capabilities=[history]).run("Which city do I live in?")
    block, question = prompts(model.seen[0])
    assert "moved to Boston in May" in block
    assert question == "Which city do I live in?"
    assert prompts(run.all_messages()) == ["Which city do I live in?"]  # the block is not kept
    assert await said(session) == ["user: Which city do I live in?", "assistant: In Boston."]
    assert [one.kind for one in events] == ["recalled", "remembered", "remembered"]
    assert events[0].context is not None
    assert events[0].context["tokens"] <= 1500


async def test_the_next_run_has_the_messages_of_the_first_once(me: AsyncUserMemory) -> None:
    model, session, events = Scripted("Nice.", "In Boston."), me.session(), list[MemoryEvent]()
    agent = Agent(model.model, capabilities=[RecalldHistory(session, on_memory=events.append)])
    first = await agent.run("I live in Boston.")
    await agent.run("Where do I live?", message_history=first.all_messages())
    assert [prompts([one])[-1] for one in model.seen[1] if isinstance(one, ModelRequest)] == [
        "I live in Boston.",
        "Where do I live?",
    ]
    assert len(await said(session)) == 4
    recalled = [one.context for one in events if one.context is not None]
    assert len(recalled) == 2
    for context in recalled:
        assert "messages" not in [section["name"] for section in context["sections"]]
    another = Scripted("In Boston.")  # a new conversation, as in another process
    await Agent(another.model, capabilities=[RecalldHistory(me.session())]).run("Which city do I live in?")
    assert "I live in Boston." in prompts(another.seen[0])[0]


async def test_a_conversation_that_was_ended_goes_on(me: AsyncUserMemory) -> None:
    session = me.session()
    agent = Agent(Scripted("Nice.", "Two.").model, capabilities=[RecalldHistory(session)])
    await agent.run("I keep bees.")
    await session.end()
    await agent.run("How many?")
    assert len(await said(session)) == 4


async def test_in_a_loop_of_tools_each_step_has_the_memory_and_the_prompt_is_stored_once(me: AsyncUserMemory) -> None:
    await me.add("Ada lives in Bergen")
    model, events, session = Scripted(call("weather"), "Rain."), list[MemoryEvent](), me.session()
    agent = Agent(model.model, capabilities=[RecalldHistory(session, on_memory=events.append)])

    @agent.tool_plain
    def weather() -> str:
        """The weather."""
        return "rain"

    await agent.run("How is the weather where I live?")
    assert all("lives in Bergen" in prompts(messages)[0] for messages in model.seen)
    assert await said(session) == ["user: How is the weather where I live?", "assistant: Rain."]
    assert [one.kind for one in events] == ["recalled", "remembered", "remembered"]


class City(BaseModel):
    name: str


async def test_an_output_with_a_shape_is_stored_as_json(me: AsyncUserMemory) -> None:
    model, session = Scripted(call("final_result", name="Boston")), me.session()
    run = await Agent(model.model, output_type=City, capabilities=[RecalldHistory(session)]).run("Where do I live?")
    assert run.output == City(name="Boston")
    assert (await said(session))[1] == 'assistant: {"name":"Boston"}'


async def test_a_stream_is_stored_at_its_end(me: AsyncUserMemory) -> None:
    model, session = Scripted("It is sunny"), me.session()
    agent = Agent(model.model, capabilities=[RecalldHistory(session)])
    async with agent.run_stream("How is the weather?") as run:
        text = [one async for one in run.stream_text(delta=True)]
    assert "".join(text).strip() == "It is sunny"
    assert [one.strip() for one in await said(session)] == ["user: How is the weather?", "assistant: It is sunny"]


async def test_the_prompt_stays_where_the_model_fails(me: AsyncUserMemory) -> None:
    session = me.session()
    agent = Agent(Scripted(RuntimeError("no model")).model, capabilities=[RecalldHistory(session)])
    with pytest.raises(RuntimeError, match="no model"):
        await agent.run("I live in Boston.")
    assert await said(session) == ["user: I live in Boston."]


async def test_a_failing_memory_never_fails_the_run() -> None:
    events = list[MemoryEvent]()

    def told(event: MemoryEvent) -> None:
        events.append(event)
        raise ValueError("a hook that fails")

    async with AsyncRecalld("http://127.0.0.1:9") as memory:
        history = RecalldHistory(memory.user("ada").session("monday"), on_memory=told)
        run = await Agent(Scripted("Hello.").model, capabilities=[history]).run("Hello")
    assert run.output == "Hello."
    assert [one.kind for one in events] == ["failed"] * 3


async def test_the_session_of_another_user_is_a_mistake_and_no_failing_memory(me: AsyncUserMemory) -> None:
    session = me.session()
    await session.append("I keep bees.")
    async with AsyncRecalld(URL) as memory:
        theirs = memory.user(uuid4().hex, agent="assistant").session(session.session_id)
        with pytest.raises(Problem, match="unique in a tenant"):
            await Agent(Scripted("Hello.").model, capabilities=[RecalldHistory(theirs)]).run("Hello")


async def test_of_a_prompt_with_a_picture_the_text_is_stored(me: AsyncUserMemory) -> None:
    model, session = Scripted("A cat."), me.session()
    agent = Agent(model.model, capabilities=[RecalldHistory(session)])
    await agent.run(["What is this?", BinaryContent(b"\x89PNG", media_type="image/png")])
    assert await said(session) == ["user: What is this?", "assistant: A cat."]


async def test_recalling_and_remembering_can_be_switched_off(me: AsyncUserMemory) -> None:
    await me.add("Ada lives in Bergen")
    model, session = Scripted("Hm.", "Bergen."), me.session()
    await Agent(model.model, capabilities=[RecalldHistory(session, budget=0)]).run("Where do I live?")
    assert prompts(model.seen[0]) == ["Where do I live?"]
    assert len(await said(session)) == 2
    await Agent(model.model, capabilities=[RecalldHistory(session, remember=False)]).run("Where do I live?")
    assert "lives in Bergen" in prompts(model.seen[1])[0]
    assert len(await said(session)) == 2


async def test_the_session_may_come_from_the_run(me: AsyncUserMemory) -> None:
    def of(ctx: RunContext[Deps]) -> AsyncUserSession:
        return ctx.deps.me.session("monday-" + ctx.deps.me.user_id)

    agent = Agent(Scripted("Hello.").model, deps_type=Deps, capabilities=[RecalldHistory[Deps](of)])
    await agent.run("Good morning", deps=Deps(me))
    assert await said(me.session("monday-" + me.user_id)) == ["user: Good morning", "assistant: Hello."]
