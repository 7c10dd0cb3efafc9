"""The language model's client against a real HTTP server that misbehaves as it is told."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from app.errors import LLMBudgetSpent, LLMNotConfigured, LLMReplyInvalid, LLMUnavailable, RecalldError
from app.llm.base import Budget, configured, open_llm
from app.llm.client import ANSWER_BYTES, Malformed, OpenAIChat, parse, silence, strict_schema
from app.settings import LLMSettings
from tests.support.chat import completion, says, silent
from tests.support.processor_time import processor_time
from tests.support.scripted import Reply, ScriptedServer, free_port, scripted_server

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
PATIENT_SECONDS = 60.0
IMPATIENT_SECONDS = 2.0
"""Long enough for a good answer on a busy machine, shorter than the answers that must not be waited for."""


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
    settings = LLMSettings(base_url=server.url, api_key=SecretStr(KEY), model="small", timeout_seconds=PATIENT_SECONDS)
    chat = OpenAIChat(settings, lambda *call: calls.append(call))
    yield chat
    await chat.close()


@pytest.fixture
async def impatient(server: ScriptedServer) -> AsyncIterator[OpenAIChat]:
    chat = OpenAIChat(LLMSettings(base_url=server.url, timeout_seconds=IMPATIENT_SECONDS), lambda *call: None)
    yield chat
    await chat.close()


async def ask(chat: OpenAIChat, budget: Budget | None = None) -> Film:
    return await chat.reply("Name the film.", "Ada has seen Stalker.", Film, budget or chat.budget())


async def test_the_data_comes_first_and_alike(server: ScriptedServer, chat: OpenAIChat) -> None:
    """Two calls about the same data share their beginning, which a server's prompt cache finds again."""
    usage = {"total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}}
    message = {"role": "assistant", "content": json.dumps(GOOD)}
    cached = json.dumps({"choices": [{"message": message}], "usage": usage}).encode()
    server.then(says(GOOD), Reply(body=cached))
    budget = chat.budget()
    for instructions in ("Name the film.", "Say who saw it."):
        await chat.reply(instructions, "Ada has seen Stalker.", Film, budget)
    first, second = (seen.body["messages"] for seen in server.seen)
    assert first[0] == second[0]
    assert [each[1]["content"].partition("\n\n") for each in (first, second)] == [
        ("Ada has seen Stalker.", "\n\n", "Name the film."),
        ("Ada has seen Stalker.", "\n\n", "Say who saw it."),
    ]
    assert budget.spent["cached_tokens"] == 5


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
    assert budget.spent == {"calls": 1, "tokens": 77, "cached_tokens": 0}
    assert [(outcome, tokens) for outcome, _, tokens in calls] == [("answered", 77)]


@pytest.mark.parametrize("kind", ["json_object", "none"])
async def test_a_server_without_schemas_finds_it_in_the_prompt(server: ScriptedServer, kind: Any) -> None:
    chat = OpenAIChat(LLMSettings(base_url=server.url), lambda *call: None, [kind])
    server.then(says(GOOD))
    assert (await ask(chat)).title == "Stalker"
    await chat.close()
    (seen,) = server.seen
    assert '"additionalProperties":false' in seen.body["messages"][1]["content"]
    assert ("response_format" in seen.body) == (kind == "json_object")
    assert "authorization" not in seen.headers


@pytest.mark.parametrize(
    "around",
    ["{}", "```json\n{}\n```", "```\n{}```", "<think>Hm, {{}}?</think>\n{}", " \n{}\n", "Here it is: {} Done."],
    ids=["bare", "fenced", "fenced shortly", "after thoughts", "spaced", "in a text"],
)
async def test_what_a_model_says_around_its_json_is_left_out(
    server: ScriptedServer, chat: OpenAIChat, around: str
) -> None:
    server.then(says(around.replace("{}", json.dumps(GOOD)).replace("{{", "{").replace("}}", "}")))
    assert (await ask(chat)).stars == 4.5


def test_an_answer_of_line_ends_takes_time_in_proportion_to_its_length() -> None:
    """As a model writes them that cannot stop: of a fence without an end, 8,000 took minutes."""

    def read(length: int) -> None:
        with pytest.raises(Malformed):
            parse("```json" + "\n" * length + "x", Film)

    short, long = (processor_time(partial(read, length)) for length in (200, 1_600))
    assert long < 30 * max(short, 0.002)


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
}
SLOW = {
    "silence": Reply(delay=2 * IMPATIENT_SECONDS),
    "drip": Reply(trickle=0.05),
}
FINAL = {
    "401": Reply(401, body=json.dumps({"error": {"message": f"bad key {KEY}", "code": KEY}}).encode()),
    "403": Reply(403),
    "redirect": Reply(302, {"Location": "http://127.0.0.1:9/v1"}),
    "a later day": Reply(429, {"Retry-After": "3600"}),
    "refusal": Reply(body=completion(None, refusal="I can't")),
    "filtered": says("", finish="content_filter"),
    "ten megabytes": Reply(body=completion("x" * (10 << 20))),
}


@pytest.mark.parametrize("reply", WRONG.values(), ids=WRONG)
async def test_a_wrong_answer_is_asked_for_afresh_once(server: ScriptedServer, chat: OpenAIChat, reply: Reply) -> None:
    """The second request is the first one again: no word of a repair can get into an answer."""
    server.then(reply, says(GOOD))
    assert await ask(chat) == Film(**GOOD)
    first, second = (seen.body for seen in server.seen)
    assert (first.pop("temperature"), second.pop("temperature")) == (0, 0.4)
    assert second == first


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


@pytest.mark.parametrize("reply", SLOW.values(), ids=SLOW)
async def test_what_does_not_come_in_time_is_tried_again(
    server: ScriptedServer, impatient: OpenAIChat, reply: Reply
) -> None:
    server.then(reply, says(GOOD))
    assert await ask(impatient) == Film(**GOOD)
    assert len(server.seen) == 2


@pytest.mark.parametrize("reply", FINAL.values(), ids=FINAL)
async def test_what_will_not_pass_is_said_at_once(server: ScriptedServer, chat: OpenAIChat, reply: Reply) -> None:
    server.then(reply, says(GOOD))
    with pytest.raises((LLMUnavailable, LLMReplyInvalid)) as caught:
        await ask(chat)
    assert len(server.seen) == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [400, 404, 415, 422])
async def test_what_a_server_does_not_know_is_found_out_once(
    server: ScriptedServer, chat: OpenAIChat, status: int
) -> None:
    by_call = {"arguments": json.dumps(GOOD), "name": "answer"}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": by_call}],
    }
    called = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    server.then(Reply(status), Reply(status), Reply(body=called), Reply(body=called))
    assert await ask(chat) == Film(**GOOD)
    assert await ask(chat) == Film(**GOOD)
    ways = [seen.body.get("response_format", {}).get("type", "tools" in seen.body) for seen in server.seen]
    assert ways == ["json_schema", "json_object", True, True]


async def test_a_server_that_knows_no_way_is_said(server: ScriptedServer, chat: OpenAIChat) -> None:
    server.then(*[Reply(400)] * 4, says(GOOD))
    with pytest.raises(LLMUnavailable, match="400"):
        await ask(chat)
    assert len(server.seen) == 4


class Films(BaseModel):
    found: str
    films: list[Film]


async def test_complete_items_of_an_answer_that_was_cut_off_are_kept(server: ScriptedServer, chat: OpenAIChat) -> None:
    whole = json.dumps({"found": "two", "films": [GOOD, GOOD, GOOD]})
    server.then(says(whole[: whole.rindex("4.5")], finish="length"))
    answer = await chat.reply("Name the films.", "{}", Films, chat.budget())
    assert (answer.found, len(answer.films)) == ("two", 2)
    assert len(server.seen) == 1


async def test_a_text_that_was_cut_off_is_not_kept(server: ScriptedServer, chat: OpenAIChat) -> None:
    server.then(says('{"found": "two of th', finish="length"), says('{"found": "two", "films": []}'))
    assert (await chat.reply("Name the films.", "{}", Films, chat.budget())).found == "two"


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


def test_a_schema_says_how_many_items_a_list_may_have_and_no_more() -> None:
    class Listed(BaseModel):
        words: Annotated[list[Annotated[str, Field(max_length=9, pattern="x")]], Field(min_length=1, max_length=3)]

    assert strict_schema(Listed.model_json_schema())["properties"]["words"] == {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": 3,
    }


async def test_a_server_that_is_silent_or_refuses_the_key_is_told_from_one_that_answers(
    server: ScriptedServer,
) -> None:
    settings = LLMSettings(base_url=server.url, api_key=SecretStr(KEY))
    assert await silence(settings) is None, "it has no list of models and answers"
    server.lists_models = 401
    assert await silence(settings) == "answered 401"
    nobody = LLMSettings(base_url=f"http://127.0.0.1:{free_port()}/v1")
    assert await silence(nobody) == "does not answer"
