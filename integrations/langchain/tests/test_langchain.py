"""The chat history and the retriever do what LangChain's own do, and chains run on them, against a running service."""

import os
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_recalld import RecalldChatMessageHistory, RecalldRetriever
from pydantic import ValidationError
from recalld_client import AsyncRecalld, AsyncUserMemory, Recalld, UserMemory

URL = os.environ.get("RECALLD_URL", "")
pytestmark = [
    pytest.mark.skipif(not URL, reason="RECALLD_URL names no service"),
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def me() -> Iterator[UserMemory]:
    with Recalld(URL) as memory:
        yield memory.user(uuid4().hex, agent="assistant")


@pytest.fixture
async def me_async(me: UserMemory) -> AsyncIterator[AsyncUserMemory]:
    async with AsyncRecalld(URL) as memory:
        yield memory.user(me.user_id, agent="assistant")


CALL = {"name": "weather", "args": {"city": "Boston"}, "id": "c1", "type": "tool_call"}
PICTURE: list[str | dict[Any, Any]] = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "https://x.test/a"}},
]
SAID: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("What is the weather in Boston?", additional_kwargs={"from": "phone"}, id="h1"),
    AIMessage("", tool_calls=[CALL], response_metadata={"model": "m"}),
    ToolMessage("sun", tool_call_id="c1", artifact={"degrees": 20}),
    AIMessage("Sunny.", usage_metadata={"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}),
    HumanMessage(PICTURE),
    ChatMessage(content="Hello all", role="moderator"),
]


def exercised(history: Any) -> list[Any]:
    seen: list[Any] = [list(history.messages)]
    history.clear()
    history.add_messages([])
    history.add_messages(SAID)
    seen += [list(history.messages), str(history)]
    history.add_user_message("Thanks")
    history.add_ai_message(AIMessage("Welcome"))
    seen.append(list(history.messages))
    history.clear()
    seen.append(list(history.messages))
    history.add_messages([HumanMessage(f"Number {n}") for n in range(230)])
    return [*seen, history.messages]


async def exercised_async(history: Any) -> list[Any]:
    seen = [list(await history.aget_messages())]
    await history.aclear()
    await history.aadd_messages(SAID)
    seen.append(list(await history.aget_messages()))
    await history.aclear()
    return [*seen, await history.aget_messages()]


def test_it_does_what_langchains_own_history_does(me: UserMemory) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = RecalldChatMessageHistory(me.session())
    for mine, theirs in zip(exercised(ours), exercised(InMemoryChatMessageHistory()), strict=True):
        assert mine == theirs


@pytest.mark.parametrize("native", [True, False])
async def test_and_so_do_the_methods_with_a(me: UserMemory, me_async: AsyncUserMemory, native: bool) -> None:
    name = uuid4().hex
    given = {"async_session": me_async.session(name)} if native else {"session": me.session(name)}
    ours = await exercised_async(RecalldChatMessageHistory(**given))
    assert ours == await exercised_async(InMemoryChatMessageHistory())


async def test_it_says_which_session_it_needs(me_async: AsyncUserMemory) -> None:
    with pytest.raises(TypeError, match="async_session="):
        RecalldChatMessageHistory()
    with pytest.raises(TypeError, match="needs session="):
        _ = RecalldChatMessageHistory(async_session=me_async.session()).messages


def test_a_picture_comes_back_as_it_was_or_as_a_text_about_it(me: UserMemory) -> None:
    history = RecalldChatMessageHistory(me.session())
    small, large = [
        HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBO" * size}}])
        for size in (15_000, 100_000)
    ]
    history.add_messages([small, large])
    first, second = history.messages
    assert first == small
    assert isinstance(second.content, list)
    (part,) = second.content
    assert isinstance(part, dict)
    assert part["type"] == "text"
    assert part["text"].startswith("[image_url, 4000")


def test_one_artifact_that_is_no_json_loses_no_turn(me: UserMemory) -> None:
    history = RecalldChatMessageHistory(me.session())
    odd = [object(), b"\xff", float("nan"), {"rows": "x" * 300_000}]
    sent = [ToolMessage("sun", tool_call_id="c1", artifact=one) for one in odd]
    history.add_messages([HumanMessage("Hello"), *sent])
    assert history.messages == [HumanMessage("Hello"), *[ToolMessage("sun", tool_call_id="c1")] * 4]


def test_what_another_program_appended_is_there_too(me: UserMemory) -> None:
    session = me.session()
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Boston"}'}}
    session.append(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sun"},
        ]
    )
    system, hello, called, result = RecalldChatMessageHistory(session).messages
    assert isinstance(system, SystemMessage)
    assert isinstance(hello, HumanMessage)
    assert hello.text == "Hello"
    assert isinstance(called, AIMessage)
    assert called.tool_calls == [CALL]
    assert isinstance(result, ToolMessage)
    assert (result.content, result.tool_call_id) == ("sun", "c1")


async def test_a_message_that_was_deleted_is_gone(me: UserMemory, me_async: AsyncUserMemory) -> None:
    session = me.session()
    history = RecalldChatMessageHistory(session, me_async.session(session.session_id))
    history.add_messages([HumanMessage("One"), HumanMessage("Two")])
    me.client.delete_message(session.session_id, 1)
    assert history.messages == [HumanMessage("Two")]
    assert await history.aget_messages() == [HumanMessage("Two")]


async def test_a_session_that_has_ended_goes_on(me: UserMemory, me_async: AsyncUserMemory) -> None:
    session = me.session()
    history = RecalldChatMessageHistory(session, me_async.session(session.session_id))
    history.add_user_message("Hello")
    session.end()
    history.add_user_message("Are you there?")
    session.end()
    await history.aadd_messages([AIMessage("Yes.")])
    assert history.messages == [HumanMessage("Hello"), HumanMessage("Are you there?"), AIMessage("Yes.")]


def test_a_chain_goes_on_in_its_history_and_its_words_are_memories(me: UserMemory) -> None:
    seen: list[Any] = []
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), ("user", "{text}")])

    def kept(value: Any) -> Any:
        seen.append(value.to_messages())
        return value

    model = GenericFakeChatModel(messages=iter([AIMessage("Nice."), AIMessage("In Boston.")]))
    chain = RunnableWithMessageHistory(
        prompt | kept | model,
        lambda session_id: RecalldChatMessageHistory(me.session(session_id)),
        input_messages_key="text",
        history_messages_key="history",
    )
    monday: Any = {"configurable": {"session_id": uuid4().hex}}
    chain.invoke({"text": "I live in Boston."}, monday)
    assert chain.invoke({"text": "Where do I live?"}, monday).content == "In Boston."
    assert [one.content for one in seen[-1]] == ["I live in Boston.", "Nice.", "Where do I live?"]
    assert "I live in Boston." in [hit["memory"]["content"] for hit in me.search("Which city does she live in?")]


@pytest.mark.parametrize("native", [True, False])
async def test_the_retriever_finds_what_helps_best_first(
    me: UserMemory, me_async: AsyncUserMemory, native: bool
) -> None:
    made = me.add("Ada plays the cello", tags=["music"], metadata={"page": 3, "score": "own"})
    me.add("Ada drinks tea")
    retriever = RecalldRetriever(memory=me, async_memory=me_async if native else None)
    first, *_ = retriever.invoke("Which instrument does she play?")
    assert (first.page_content, first.id) == ("Ada plays the cello", made["memory_id"])
    assert (first.metadata["page"], first.metadata["score"]) == (3, "own")
    assert first.metadata["tags"] == ["music"]
    assert 0 < retriever.invoke("What does she drink?")[0].metadata["score"] <= 1
    assert (
        len(retriever.invoke("What does Ada do?", k=1)) == len(await retriever.ainvoke("What does Ada do?", k=1)) == 1
    )
    again = await retriever.ainvoke("Which instrument does she play?")
    assert [one.page_content for one in again][:1] == ["Ada plays the cello"]


def test_the_retriever_keeps_its_options(me: UserMemory) -> None:
    for word in ("cello", "viola", "flute"):
        me.add(f"Ada plays the {word}", tags=["strings" if word != "flute" else "wind"])
    assert len(RecalldRetriever(memory=me, k=1).invoke("Which instrument?")) == 1
    (only,) = RecalldRetriever(memory=me, options={"tags": ["wind"]}).invoke("Which instrument?")
    assert only.page_content == "Ada plays the flute"
    with pytest.raises(ValidationError, match="less than or equal to 100"):
        RecalldRetriever(memory=me, k=101)
    with pytest.raises(ValidationError, match="async_memory="):
        RecalldRetriever()


def test_the_retriever_sees_one_user_only(me: UserMemory) -> None:
    with Recalld(URL) as memory:
        memory.user(uuid4().hex, agent="assistant").add("Bob plays the drums")
    assert RecalldRetriever(memory=me).invoke("Which instrument?") == []


def test_a_chain_of_retrieval_runs_on_it(me: UserMemory) -> None:
    me.add("Ada plays the cello")
    seen: list[Any] = []

    def joined(documents: Any) -> str:
        seen.append([one.page_content for one in documents])
        return "\n".join(one.page_content for one in documents)

    prompt = ChatPromptTemplate([("system", "{known}"), ("user", "{question}")])
    model = GenericFakeChatModel(messages=iter([AIMessage("The cello.")]))
    known: Any = RecalldRetriever(memory=me) | joined
    chain = {"known": known, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()
    assert chain.invoke("Which instrument does she play?") == "The cello."
    assert seen == [["Ada plays the cello"]]
