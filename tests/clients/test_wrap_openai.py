"""`wrap_openai`: an OpenAI client that recalls and remembers by itself, against a running service."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel
from recalld_client import (
    NO_RETRY,
    AsyncRecalld,
    AsyncUserMemory,
    MemoryEvent,
    Problem,
    Recalld,
    UserMemory,
    UserSession,
    wrap_openai,
)

from tests.support.chat import completion
from tests.support.scripted import Reply, ScriptedServer, free_port, scripted_server
from tests.support.server import Server, serving

pytestmark = pytest.mark.slow

Json = dict[str, Any]
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("wrap") / "data") as made:
        yield made


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with scripted_server(lambda reply, asked: chat("Fine.").body or b"") as made:
        yield made


@pytest.fixture
def me(server: Server) -> Iterator[UserMemory]:
    with Recalld(str(server.client.base_url)) as memory:
        yield memory.user(uuid4().hex, agent="support")


@pytest.fixture
def plain(model: ScriptedServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=model.url, api_key="none", max_retries=0) as client:
        yield client


def chat(content: str | None, *calls: Json) -> Reply:
    body = json.loads(completion(content, finish="tool_calls" if calls else "stop"))
    body["choices"][0]["message"] |= {"tool_calls": list(calls)} if calls else {}
    return Reply(body=json.dumps({**body, "model": "m", "created": 0, "usage": USAGE}).encode())


def call(name: str, **arguments: Any) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{name}", "type": "function", "function": function}


def events(*chunks: Json, end: bool = True) -> Reply:
    lines = [f"event: {one.get('type', 'message')}\ndata: {json.dumps(one)}\n\n" for one in chunks]
    return Reply(body="".join([*lines, *(["data: [DONE]\n\n"] if end else [])]).encode())


def chunks(*deltas: Json) -> Reply:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    made = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return events(*made, last, {**base, "choices": [], "usage": USAGE})


def response(*output: Json) -> Json:
    given = {"id": "resp_1", "object": "response", "created_at": 0, "model": "m", "status": "completed"}
    return {**given, "output": list(output), "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def output_text(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def replied(*output: Json) -> Reply:
    return Reply(body=json.dumps(response(*output)).encode())


def stored(session: UserSession) -> list[tuple[str, Any]]:
    return [(one["role"], one["content"]) for one in session.messages()]


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def prompt(model: ScriptedServer, index: int = -1) -> list[Json]:
    messages: list[Json] = model.seen[index].body["messages"]
    return messages


LIVES = "Ada lives in Boston"


def test_it_recalls_and_remembers(me: UserMemory, plain: OpenAI, model: ScriptedServer) -> None:
    me.add(LIVES)
    heard = list[MemoryEvent]()
    talk = me.session()
    client = wrap_openai(plain, memory=talk, on_event=heard.append)
    assert isinstance(client, OpenAI)
    model.then(chat("In Boston."))
    system: ChatCompletionMessageParam = {"role": "system", "content": "Be brief."}
    answer = client.chat.completions.create(model="m", messages=[system, user("Where do I live?")])
    assert answer.choices[0].message.content == "In Boston."
    first, second = prompt(model)
    assert (first, second["role"]) == (system, "user")
    assert second["content"].endswith("\n\nWhere do I live?")
    assert LIVES in second["content"]
    assert stored(talk) == [("user", "Where do I live?"), ("assistant", "In Boston.")]
    assert [(one.kind, one.messages) for one in heard] == [("recalled", 0), ("remembered", 1), ("remembered", 1)]
    assert heard[0].context is not None
    assert heard[0].context["tokens"] > 0
    plain.chat.completions.create(model="m", messages=[user("Where do I live?")])
    assert [one["content"] for one in prompt(model)] == ["Where do I live?"]
    assert len(stored(talk)) == 2


def test_each_word_is_stored_once_where_the_caller_sends_the_whole_conversation(
    me: UserMemory, plain: OpenAI, model: ScriptedServer
) -> None:
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    history: list[ChatCompletionMessageParam] = []
    for text in ("I keep three beehives", "What do I keep?", "What do I keep?"):
        history.append(user(text))
        answer = client.chat.completions.create(model="m", messages=history).choices[0].message
        history.append({"role": "assistant", "content": answer.content})
    said = [text for _, text in stored(talk)]
    assert said == ["I keep three beehives", "Fine.", "What do I keep?", "Fine.", "What do I keep?", "Fine."]
    assert str(prompt(model)).count("three beehives") == 1, "a turn of the history is not repeated as memory"


def test_what_stands_before_the_newest_message_stays_the_same(
    me: UserMemory, plain: OpenAI, model: ScriptedServer
) -> None:
    """So that a prompt cache keeps it."""
    me.add(LIVES)
    client = wrap_openai(plain, memory=me.session())
    picture: Any = {"type": "image_url", "image_url": {"url": "https://x.test/a"}}
    asked: Any = {"role": "user", "content": [{"type": "text", "text": "Where do I live?"}, picture]}
    before: list[Any] = [user("Hello"), {"role": "assistant", "content": "Hi."}]
    client.chat.completions.create(model="m", messages=[*before, asked])
    assert prompt(model)[:2] == before
    block, *rest = prompt(model)[2]["content"]
    assert rest == asked["content"]
    assert LIVES in block["text"]
    client.responses.create(
        model="m", input=[*before, {"role": "user", "content": [{"type": "input_text", "text": "Where do I live?"}]}]
    )
    given = model.seen[-1].body["input"]
    assert given[:2] == before
    assert [part["type"] for part in given[2]["content"]] == ["input_text", "input_text"]


def test_where_the_caller_sends_only_the_new_words_the_last_turns_come_from_memory(
    me: UserMemory, plain: OpenAI, model: ScriptedServer
) -> None:
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    for text in ("I keep three beehives", "Yes", "Yes"):
        client.chat.completions.create(model="m", messages=[user(text)])
    assert "three beehives" in prompt(model)[0]["content"]
    assert [text for role, text in stored(talk) if role == "user"] == ["I keep three beehives", "Yes", "Yes"]


def test_the_users_turn_is_stored_before_the_model_is_asked_and_once(
    me: UserMemory, plain: OpenAI, model: ScriptedServer
) -> None:
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    model.then(Reply(500), Reply(500))
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=[user("I moved to Rome")])
    assert stored(talk) == [("user", "I moved to Rome")]
    client.chat.completions.create(model="m", messages=[user("I moved to Rome")])
    assert stored(talk) == [("user", "I moved to Rome"), ("assistant", "Fine.")]


TOOL: ChatCompletionToolParam = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_tools(me: UserMemory, plain: OpenAI, model: ScriptedServer) -> None:
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    model.then(chat(None, call("weather", city="Rome")), chat("Sunny."))
    messages: list[Any] = [user("What is the weather?")]
    asked = client.chat.completions.create(model="m", messages=messages, tools=[TOOL]).choices[0].message
    messages += [asked, {"role": "tool", "tool_call_id": "call_weather", "content": "sun"}]
    client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
    assert [(one["role"], one["content"]) for one in talk.messages()] == [
        ("user", "What is the weather?"),
        ("assistant", ""),
        ("tool", "sun"),
        ("assistant", "Sunny."),
    ]
    (made,) = [one["tool_calls"] for one in talk.messages() if one["tool_calls"]]
    assert made[0]["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}


def test_streams(me: UserMemory, plain: OpenAI, model: ScriptedServer) -> None:
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    model.then(chunks({"role": "assistant", "content": "In "}, {"content": "Rome."}))
    with client.chat.completions.create(model="m", messages=[user("Where?")], stream=True) as stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == "In Rome."
    function = call("weather")["function"]
    begun = {"index": 0, "id": "c1", "type": "function", "function": {**function, "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": part}} for part in ('{"city":', '"Rome"}')]
    model.then(chunks({"tool_calls": [begun]}, *({"tool_calls": [one]} for one in rest)))
    list(client.chat.completions.create(model="m", messages=[user("Weather?")], stream=True))
    model.then(chunks({"content": "Helped."}))
    with client.chat.completions.stream(model="m", messages=[user("By helper?")]) as helper:
        assert helper.get_final_completion().choices[0].message.content == "Helped."
    said = list(talk.messages())
    assert [one["content"] for one in said] == ["Where?", "In Rome.", "Weather?", "", "By helper?", "Helped."]
    assert said[3]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    ]


def test_a_stream_that_the_caller_leaves_is_stored_as_far_as_it_came(
    me: UserMemory, plain: OpenAI, model: ScriptedServer
) -> None:
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    model.then(chunks({"content": "One "}, {"content": "two"}))
    stream = client.chat.completions.create(model="m", messages=[user("Count")], stream=True)
    assert next(stream).choices[0].delta.content == "One "
    stream.close()
    del stream
    last = list(talk.messages())[-1]
    assert (last["content"], last["metadata"]) == ("One ", {"interrupted": True})


class City(BaseModel):
    city: str


def test_parsed_and_raw_answers(me: UserMemory, plain: OpenAI, model: ScriptedServer) -> None:
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    model.then(chat('{"city": "Rome"}'), chat("Raw."), chunks({"content": "Raw stream."}))
    parsed = client.chat.completions.parse(model="m", messages=[user("Which city?")], response_format=City)
    assert parsed.choices[0].message.parsed == City(city="Rome")
    raw = client.chat.completions.with_raw_response.create(model="m", messages=[user("Raw?")])
    assert (raw.status_code, raw.parse().choices[0].message.content) == (200, "Raw.")
    streamed = client.chat.completions.with_raw_response.create(model="m", messages=[user("And?")], stream=True)
    assert len(list(streamed.parse())) == 3
    said = [text for role, text in stored(talk) if role == "assistant"]
    assert said == ['{"city": "Rome"}', "Raw.", "Raw stream."]


def test_responses(me: UserMemory, plain: OpenAI, model: ScriptedServer) -> None:
    me.add(LIVES)
    talk = me.session()
    client = wrap_openai(plain, memory=talk)
    called = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "weather", "arguments": "{}"}
    model.then(replied({"type": "reasoning", "id": "r", "summary": []}, called), replied(output_text("Sunny.")))
    first = client.responses.create(model="m", instructions="Be brief.", input="Where do I live?")
    told = model.seen[-1].body
    assert (told["instructions"], told["input"].endswith("\n\nWhere do I live?")) == ("Be brief.", True)
    assert LIVES in told["input"]
    out: Any = [{"type": "function_call_output", "call_id": "c1", "output": "sun"}]
    client.responses.create(model="m", previous_response_id=first.id, input=out)
    client.responses.create(model="m", input=[{"role": "user", "content": "Thanks"}, *first.output, *out])  # type: ignore[list-item]
    text = output_text("Streamed.")
    model.then(
        events(
            {"type": "response.created", "sequence_number": 0, "response": response()},
            {
                "type": "response.output_item.added",
                "sequence_number": 1,
                "output_index": 0,
                "item": {**text, "content": []},
            },
            {"type": "response.completed", "sequence_number": 2, "response": response(text)},
            end=False,
        )
    )
    list(client.responses.create(model="m", input="Stream?", stream=True))
    said = list(talk.messages())
    assert [(one["role"], one["content"]) for one in said][:4] == [
        ("user", "Where do I live?"),
        ("assistant", ""),
        ("tool", "sun"),
        ("assistant", "Sunny."),
    ]
    assert [one["content"] for one in said][-2:] == ["Stream?", "Streamed."]
    assert said[1]["tool_calls"][0]["id"] == "c1"  # type: ignore[index]


def test_the_session_of_another_user_is_a_mistake_and_no_failing_memory(
    me: UserMemory, plain: OpenAI, model: ScriptedServer
) -> None:
    me.session("theirs").append("I keep bees.")
    client = wrap_openai(plain, memory=UserMemory(me.client, uuid4().hex, "support").session("theirs"))
    with pytest.raises(Problem, match="unique in a tenant") as raised:
        client.chat.completions.create(model="m", messages=[user("Hello?")])
    assert raised.value.code == "already_exists"
    assert model.seen == []


def test_a_conversation_that_was_ended_goes_on(me: UserMemory, plain: OpenAI, model: ScriptedServer) -> None:
    """As in the next start of a program that names its session and ends it."""
    for text in ("I keep bees.", "How many?"):
        client = wrap_openai(plain, memory=me.session(f"{me.user_id}-bees"))
        client.chat.completions.create(model="m", messages=[user(text)])
        me.session(f"{me.user_id}-bees").end()
    talk = me.session(f"{me.user_id}-bees")
    assert [text for _, text in stored(talk)] == ["I keep bees.", "Fine.", "How many?", "Fine."]
    with pytest.raises(Problem, match="session_ended"):
        talk.append("Three.", reopen=False)


def test_without_memory_the_model_answers_and_what_was_missed_is_stored_later(
    me: UserMemory, server: Server, plain: OpenAI, model: ScriptedServer
) -> None:
    heard = list[MemoryEvent]()
    with Recalld(f"http://127.0.0.1:{free_port()}", retry=NO_RETRY) as down:
        talk = down.user(me.user_id, agent="support").session("outage")
        client = wrap_openai(plain, memory=talk, on_event=heard.append)
        answer = client.chat.completions.create(model="m", messages=[user("Hello?")])
        assert answer.choices[0].message.content == "Fine."
        assert {one.kind for one in heard} == {"failed"}
        assert "did not answer" in str(heard[0].error)
        down._connections._http.base_url = server.client.base_url  # it has come back
        client.chat.completions.create(model="m", messages=[user("And now?")])
    assert [text for _, text in stored(me.session("outage"))] == ["Hello?", "Fine.", "And now?", "Fine."]


def test_a_hook_that_raises_and_messages_that_cannot_be_read_break_nothing(
    me: UserMemory, plain: OpenAI, model: ScriptedServer
) -> None:
    def hook(event: MemoryEvent) -> None:
        raise RuntimeError(event.kind)

    client = wrap_openai(plain, memory=me, on_event=hook)
    assert client.chat.completions.create(model="m", messages=[user("Hello")]).choices
    assert client.chat.completions.create(model="m", messages=["odd"]).choices  # type: ignore[list-item]
    assert model.seen[-1].body["messages"] == ["odd"]
    model.then(Reply(body=b'{"odd": 1}'))
    client.chat.completions.create(model="m", messages=[user("Hello")])


def test_only_recall_and_only_remember(me: UserMemory, plain: OpenAI, model: ScriptedServer) -> None:
    me.add(LIVES)
    reading, writing = me.session(), me.session()
    wrap_openai(plain, memory=reading, remember=False).chat.completions.create(
        model="m", messages=[user("Where do I live?")]
    )
    assert LIVES in prompt(model)[0]["content"]
    wrap_openai(plain, memory=writing, budget=0).chat.completions.create(model="m", messages=[user("Where do I live?")])
    assert len(prompt(model)) == 1
    assert [one["session_id"] for one in me.sessions()] == [writing.session_id]


def test_sync_and_async_are_not_mixed(me: UserMemory, model: ScriptedServer) -> None:
    with pytest.raises(TypeError, match="needs the memory of AsyncRecalld"):
        wrap_openai(AsyncOpenAI(base_url=model.url, api_key="none"), memory=me)


async def said_later(me: AsyncUserMemory, session_id: str) -> list[Any]:
    return [one["content"] async for one in me.session(session_id).messages()]


@pytest.mark.anyio
async def test_async(server: Server, model: ScriptedServer) -> None:
    async with (
        AsyncRecalld(str(server.client.base_url)) as memory,
        AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0) as plain,
    ):
        me = memory.user(uuid4().hex, agent="support")
        await me.add(LIVES)
        client = wrap_openai(plain, memory=me.session("async"))
        model.then(chat("Boston."), chunks({"content": "Bos"}, {"content": "ton"}), chunks({"content": "Helped."}))
        asked = [user("Where do I live?")]
        await client.chat.completions.create(model="m", messages=asked)
        assert LIVES in prompt(model)[0]["content"]
        async for _ in await client.chat.completions.create(model="m", messages=asked, stream=True):
            pass
        async with client.chat.completions.stream(model="m", messages=asked) as helper:
            await helper.until_done()
        model.then(chat("Raw."), replied(output_text("Response.")))
        await client.chat.completions.with_raw_response.create(model="m", messages=asked)
        await client.responses.create(model="m", input="Hello")
        model.then(Reply(500))
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="m", messages=[user("Lost?")])
        said = await said_later(me, "async")
    assert said[1::2] == ["Boston.", "Boston", "Helped.", "Raw.", "Response."]
    assert said[-1] == "Lost?"
