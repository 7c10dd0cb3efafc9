"""The language model's client against a real HTTP server that misbehaves as it is told."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from app.errors import LLMBudgetSpent, LLMNotConfigured, LLMReplyInvalid, LLMUnavailable, RecalldError
from app.llm.base import Budget, configured, open_llm
from app.llm.client import ANSWER_BYTES, OpenAIChat
from app.setting_groups import LLMSettings
from tests.support.chat import completion, says, silent
from tests.support.scripted import Reply, ScriptedServer, free_port, scripted_server

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"


class Film(BaseModel):
    """What the tests ask for."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    title: str = Field(max_length=40)
    stars: float = Field(ge=0, le=5)
    seen: list[str]


GOOD: dict[str, Any] = {"title": "Stalker", "stars": 4.5, "seen": ["Ada"]}
Call = tuple[str, float, int]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(silent) as server:
        yield server


@pytest.fixture
def calls() -> list[Call]:
    return []


@pytest.fixture
async def chat(server: ScriptedServer, calls: list[Call]) -> AsyncIterator[OpenAIChat]:
    settings = LLMSettings(base_url=server.url, api_key=SecretStr(KEY), model="small", timeout_seconds=0.5)
    chat = OpenAIChat(settings, lambda *call: calls.append(call))
    yield chat
    await chat.close()


async def ask(chat: OpenAIChat, budget: Budget | None = None) -> Film:
    return await chat.reply("Name the film.", "Ada has seen Stalker.", Film, budget or chat.budget())


async def test_an_answer_is_asked_for_by_its_schema(
    server: ScriptedServer, chat: OpenAIChat, calls: list[Call]
) -> None:
    server.then(says(GOOD, tokens=77))
    budget = chat.budget()
    assert await ask(chat, budget) == Film(**GOOD)
    (seen,) = server.seen
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert [message["role"] for message in seen.body["messages"]] == ["system", "user"]
    asked = seen.body["response_format"]["json_schema"]
    assert asked["strict"] is True
    assert asked["schema"]["additionalProperties"] is False
    assert sorted(asked["schema"]["required"]) == ["seen", "stars", "title"]
    assert budget.spent == {"calls": 1, "tokens": 77}
    assert [(outcome, tokens) for outcome, _, tokens in calls] == [("answered", 77)]


@pytest.mark.parametrize("kind", ["json_object", "none"])
async def test_a_server_without_schemas_finds_it_in_the_prompt(server: ScriptedServer, kind: Any) -> None:
    chat = OpenAIChat(LLMSettings(base_url=server.url, reply_format=kind), lambda *call: None)
    server.then(says(GOOD))
    assert (await ask(chat)).title == "Stalker"
    await chat.close()
    (seen,) = server.seen
    assert '"additionalProperties":false' in seen.body["messages"][0]["content"]
    assert ("response_format" in seen.body) == (kind == "json_object")
    assert "authorization" not in seen.headers


@pytest.mark.parametrize(
    "around",
    ["{}", "```json\n{}\n```", "```\n{}```", "<think>Hm, {{}}?</think>\n{}", " \n{}\n"],
    ids=["bare", "fenced", "fenced shortly", "after thoughts", "spaced"],
)
async def test_what_a_model_says_around_its_json_is_left_out(
    server: ScriptedServer, chat: OpenAIChat, around: str
) -> None:
    server.then(says(around.replace("{}", json.dumps(GOOD)).replace("{{", "{").replace("}}", "}")))
    assert (await ask(chat)).stars == 4.5


WRONG = {
    "no json": says("The film is Stalker."),
    "truncated json": says('{"title": "Stalker", "sta'),
    "cut off": says('{"title": "Stalker"', finish="length"),
    "empty": says(""),
    "null": Reply(body=completion(None)),
    "wrong type": says({"title": 7, "stars": "many", "seen": "Ada"}),
    "a field missing": says({"title": "Stalker"}),
    "a field too many": says(GOOD | {"rm": "-rf"}),
    "out of range": says(GOOD | {"stars": 9}),
    "too long": says(GOOD | {"title": "x" * 41}),
    "nan": says('{"title": "a", "stars": NaN, "seen": []}'),
    "infinity": says('{"title": "a", "stars": Infinity, "seen": []}'),
    "1e999": says('{"title": "a", "stars": 1e999, "seen": []}'),
    "an array": says([GOOD]),
    "nested without end": says("[" * 100_000),
    "no completion": Reply(body=b'{"object": "list", "data": []}'),
    "no choices": Reply(body=b'{"choices": []}'),
    "html": Reply(body=b"<html>busy</html>"),
    "not utf-8": Reply(body=b"\xff\xfe\x00"),
    "no body": Reply(body=b""),
    "lone surrogate": Reply(body=completion('{"title": "\\ud800", "stars": 1, "seen": []}')),
}
PASSING = {
    "429": Reply(429, {"Retry-After": "0"}),
    "500": Reply(500),
    "502": Reply(502, body=b"<html>bad gateway</html>"),
    "503": Reply(503, {"Retry-After": "0"}),
    "504": Reply(504),
    "408": Reply(408),
    "cut connection": Reply(cut=True),
    "silence": Reply(delay=1.5),
    "drip": Reply(trickle=0.02),
}
FINAL = {
    "401": Reply(401, body=json.dumps({"error": {"message": f"bad key {KEY}", "code": KEY}}).encode()),
    "400": Reply(400, body=b'{"error": {"message": "no such format", "code": "invalid_request"}}'),
    "404": Reply(404),
    "redirect": Reply(302, {"Location": "http://127.0.0.1:9/v1"}),
    "a later day": Reply(429, {"Retry-After": "3600"}),
    "refusal": Reply(body=completion(None, refusal="I can't")),
    "filtered": says("", finish="content_filter"),
    "ten megabytes": Reply(body=completion("x" * (10 << 20))),
}


@pytest.mark.parametrize("reply", WRONG.values(), ids=WRONG)
async def test_a_wrong_answer_is_repaired_once(server: ScriptedServer, chat: OpenAIChat, reply: Reply) -> None:
    server.then(reply, says(GOOD))
    assert await ask(chat) == Film(**GOOD)
    assert len(server.seen) == 2
    assert "cannot be used" in server.seen[1].body["messages"][-1]["content"]


@pytest.mark.parametrize("reply", WRONG.values(), ids=WRONG)
async def test_a_second_wrong_answer_is_a_clear_failure(server: ScriptedServer, chat: OpenAIChat, reply: Reply) -> None:
    server.then(reply, reply, says(GOOD))
    with pytest.raises(LLMReplyInvalid, match="cannot be used"):
        await ask(chat)
    assert len(server.seen) == 2


@pytest.mark.parametrize("reply", PASSING.values(), ids=PASSING)
async def test_what_may_pass_is_tried_again(server: ScriptedServer, chat: OpenAIChat, reply: Reply) -> None:
    server.then(reply, says(GOOD))
    assert await ask(chat) == Film(**GOOD)
    assert len(server.seen) == 2


@pytest.mark.parametrize("reply", FINAL.values(), ids=FINAL)
async def test_what_will_not_pass_is_said_at_once(server: ScriptedServer, chat: OpenAIChat, reply: Reply) -> None:
    server.then(reply, says(GOOD))
    with pytest.raises((LLMUnavailable, LLMReplyInvalid)) as caught:
        await ask(chat)
    assert len(server.seen) == 1
    assert KEY not in str(caught.value)


async def test_a_server_that_stays_down_costs_three_tries(server: ScriptedServer, chat: OpenAIChat) -> None:
    server.then(*[Reply(503, {"Retry-After": "0"})] * 5)
    with pytest.raises(LLMUnavailable, match="answered 503"):
        await ask(chat)
    assert len(server.seen) == 3


async def test_faults_and_wrong_answers_share_the_three_tries(server: ScriptedServer, chat: OpenAIChat) -> None:
    server.then(Reply(429, {"Retry-After": "0"}), says("no"), says("no"), says(GOOD))
    with pytest.raises(LLMReplyInvalid):
        await ask(chat)
    assert len(server.seen) == 3


async def test_nobody_there_is_said() -> None:
    chat = OpenAIChat(LLMSettings(base_url=f"http://127.0.0.1:{free_port()}/v1"), lambda *call: None)
    with pytest.raises(LLMUnavailable, match="cannot be reached"):
        await ask(chat)
    await chat.close()


async def test_a_run_has_a_budget_of_calls_and_of_tokens(server: ScriptedServer, chat: OpenAIChat) -> None:
    server.then(*[says(GOOD, tokens=600)] * 9)
    calls = Budget(calls=2, tokens=100_000)
    await ask(chat, calls)
    await ask(chat, calls)
    with pytest.raises(LLMBudgetSpent, match="2 model calls"):
        await ask(chat, calls)
    tokens = Budget(calls=9, tokens=1000)
    await ask(chat, tokens)
    await ask(chat, tokens)
    with pytest.raises(LLMBudgetSpent, match="1000 tokens, and has spent 1200"):
        await ask(chat, tokens)
    assert len(server.seen) == 4


async def test_neither_key_nor_words_are_told_or_logged(
    server: ScriptedServer, chat: OpenAIChat, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="app")
    server.then(says({"title": "secret words " * 9, "stars": 1, "seen": []}), says({"secret words": 1}))
    with pytest.raises(LLMReplyInvalid) as caught:
        await ask(chat)
    assert "title" in str(caught.value)
    for place in (str(caught.value), caplog.text):
        assert "secret words " not in place
        assert KEY not in place


@pytest.mark.parametrize("asked", ["100000", "1e300", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_long_wait_is_not_passed_on_whole(server: ScriptedServer, chat: OpenAIChat, asked: str) -> None:
    server.then(Reply(429, {"Retry-After": asked}))
    with pytest.raises(LLMUnavailable) as caught:
        await ask(chat)
    assert caught.value.retry_after == 300


async def test_a_stop_ends_a_call_that_waits(server: ScriptedServer, chat: OpenAIChat) -> None:
    server.then(Reply(503, {"Retry-After": "15"}))
    task = asyncio.create_task(ask(chat))
    while not server.seen:  # noqa: ASYNC110 (it is another thread's)
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.seen) == 1, "it was not waited and asked again"


async def test_without_a_server_there_is_no_model() -> None:
    assert open_llm(LLMSettings(), lambda *call: None) is None
    with pytest.raises(LLMNotConfigured, match="RECALLD_LLM_BASE_URL"):
        configured(None)
    assert issubclass(LLMNotConfigured, RecalldError)
    assert LLMNotConfigured.status == 409


def test_an_answer_may_be_larger_than_any_record() -> None:
    assert ANSWER_BYTES >= 4 << 20
