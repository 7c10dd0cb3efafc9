"""The client of a language model: JSON-schema output, validated, with one repair."""

import asyncio
import json
import random
import re
import time
from typing import Any, Literal, TypeVar

import httpx2
import openai
from pydantic import BaseModel, ConfigDict, ValidationError

from app.core import tokens
from app.core.openai_client import headers, passes, reason, retry_after
from app.core.process import off_loop
from app.errors import LLMReplyInvalid, LLMUnavailable
from app.llm.base import Budget, ObserveCall
from app.setting_groups import LLMSettings

T = TypeVar("T", bound=BaseModel)

SHOWN_ERRORS = 8
_REFUSED = frozenset({"title", "default", "minLength", "maxLength", "pattern"})
_FENCE = re.compile(r"\A\s*```[a-z]*\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Malformed(Exception):
    """The answer does not have the requested shape. The message has the reason and quotes nothing of the answer."""


class InvalidReply(Exception):
    """The model refuses to answer."""


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    total_tokens: int | None = None


class Completion(BaseModel):
    """The parts of a chat completion that this service reads."""

    model_config = ConfigDict(extra="ignore")

    choices: list[_Choice]
    usage: _Usage | None = None


def completion(body: bytes) -> Completion:
    """Parses the body of a response. Raises Malformed if it is no chat completion."""
    try:
        answer = Completion.model_validate_json(body)
    except ValidationError:
        raise Malformed("it is not a chat completion") from None
    if not answer.choices:
        raise Malformed("it has no choices")
    return answer


def text_of(answer: Completion) -> str:
    """Returns the text of the answer. Raises InvalidReply, or Malformed if it was cut off or is empty."""
    choice = answer.choices[0]
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise InvalidReply("the model refused to answer")
    if choice.finish_reason == "length":
        raise Malformed("it was cut off at the most tokens that an answer may have: give a shorter one")
    if not (choice.message.content or "").strip():
        raise Malformed("it is empty")
    return str(choice.message.content)


def parse(text: str, shape: type[T]) -> T:
    """Parses an answer as `shape`, without thoughts before it and a code fence around it.

    Raises Malformed with the first errors by field.
    """
    text = _THOUGHTS.sub("", text)
    if fenced := _FENCE.match(text):
        text = fenced[1]
    try:
        return shape.model_validate_json(text.strip().encode("utf-8", "replace"))
    except ValidationError as error:
        raise Malformed(explain(error)) from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def explain(error: ValidationError) -> str:
    """Returns the errors by field.

    It leaves out the values, which are users' text, because errors are logged and stored.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    said = [f"{'/'.join(map(str, error['loc'])) or 'the answer'}: {error['msg']}" for error in faults[:SHOWN_ERRORS]]
    more = f"; and {len(faults) - SHOWN_ERRORS} more" if len(faults) > SHOWN_ERRORS else ""
    return "; ".join(said) + more


def response_format(
    shape: type[BaseModel], kind: Literal["json_schema", "json_object", "none"]
) -> dict[str, Any] | None:
    """Returns the parameter `response_format` for what a server supports. `none` leaves the shape to the prompt."""
    if kind == "none":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    named = {"name": shape.__name__, "strict": True, "schema": strict_schema(shape.model_json_schema())}
    return {"type": "json_schema", "json_schema": named}


def strict_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema without keywords that OpenAI's strict mode or llama.cpp's grammars reject.

    `parse` still checks these.
    """
    kept = {word: value for word, value in schema.items() if word not in _REFUSED}
    for word in ("properties", "$defs"):
        if word in kept:
            kept[word] = {name: strict_schema(each) for name, each in kept[word].items()}
    if "items" in kept:
        kept["items"] = strict_schema(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [strict_schema(each) for each in kept["anyOf"]]
    return kept


def schema_note(shape: type[BaseModel]) -> str:
    """Returns instructions with the schema, for servers that do not receive it as a parameter."""
    schema = json.dumps(shape.model_json_schema(), ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON object and nothing else. It must follow this JSON schema:\n{schema}"


TRIES = 3
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES = 4 << 20
REPAIR_CHARS = 8_000
"""Maximum length of a wrong answer that is shown to the model again."""

Messages = list[dict[str, str]]


class _Fault(Exception):
    """A temporary failure. `after`: the number of seconds that the server asked to wait."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class OpenAIChat:
    """A language model on an OpenAI-compatible server."""

    def __init__(self, settings: LLMSettings, observe: ObserveCall) -> None:
        self._settings, self._observe = settings, observe
        self._key = settings.api_key.get_secret_value()
        self._client = openai.AsyncOpenAI(
            api_key=self._key or "none",
            base_url=settings.base_url,
            default_headers=headers(self._key),
            max_retries=0,  # `reply` retries within the budget
            http_client=httpx2.AsyncClient(follow_redirects=False),  # a redirect would send key and texts elsewhere
        )

    @property
    def model(self) -> str:
        return self._settings.model

    def budget(self) -> Budget:
        return Budget(self._settings.max_calls, self._settings.max_tokens)

    async def close(self) -> None:
        await self._client.close()

    async def reply(self, instructions: str, data: str, shape: type[T], budget: Budget) -> T:
        """Returns the model's answer to `data` under `instructions`, parsed as `shape`.

        Raises LLMUnavailable if the server fails, LLMReplyInvalid if the answer cannot be used, and LLMBudgetSpent.
        """
        messages = self._messages(instructions, data, shape)
        repaired = False
        for tried in range(1, TRIES + 1):
            said = ""
            try:
                said = await self._ask(messages, shape, budget)
                return await off_loop(len(said), parse, said, shape)
            except InvalidReply as error:
                raise LLMReplyInvalid(f"{error}.") from None
            except Malformed as error:
                if repaired or tried == TRIES:
                    raise LLMReplyInvalid(f"The model's answer cannot be used: {error}.") from None
                repaired = True
                messages = [*messages, *_correction(said, str(error))]
            except _Fault as error:
                await self._wait(error, tried)
        raise AssertionError("the last try returns or raises")

    def _messages(self, instructions: str, data: str, shape: type[BaseModel]) -> Messages:
        if self._settings.reply_format != "json_schema":
            instructions = f"{instructions}\n\n{schema_note(shape)}"
        return [{"role": "system", "content": instructions}, {"role": "user", "content": data}]

    async def _wait(self, error: _Fault, tried: int) -> None:
        wait = FIRST_WAIT * 4.0 ** (tried - 1) * random.uniform(0.5, 1)  # noqa: S311 (not a secret)
        wait = wait if error.after is None else error.after + random.uniform(0, FIRST_WAIT)  # noqa: S311
        if tried == TRIES or wait > LONGEST_WAIT:
            raise LLMUnavailable(f"The model's server {error}.", retry_after=max(1, round(wait))) from None
        await asyncio.sleep(wait)

    async def _ask(self, messages: Messages, shape: type[BaseModel], budget: Budget) -> str:
        asked = sum(tokens.count(message["content"]) for message in messages)
        budget.claim(asked)
        started, outcome, spent = time.perf_counter(), "failed", asked
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                body = await self._post(messages, shape)
            answer = completion(body)
            spent = asked
            if answer.usage and answer.usage.total_tokens:
                spent = answer.usage.total_tokens
            said = text_of(answer)
            outcome = "answered"
            return said
        except TimeoutError:
            raise _Fault(f"did not answer within {self._settings.timeout_seconds:g} s") from None
        finally:
            budget.spend(spent)
            self._observe(outcome, time.perf_counter() - started, spent)

    async def _post(self, messages: Messages, shape: type[BaseModel]) -> bytes:
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": messages,
            "max_tokens": self._settings.answer_tokens,
            "temperature": 0,
        }
        asked = response_format(shape, self._settings.reply_format)
        if asked is not None:
            body["response_format"] = asked
        try:
            return await self._read(body)
        except openai.APIStatusError as error:
            detail = reason(error, self._key)
            if passes(error.status_code):
                raise _Fault(detail, retry_after(error.response.headers.get("retry-after"))) from None
            raise LLMUnavailable(f"The model's server {detail}.", retry_after=None) from None
        except openai.APITimeoutError:
            raise TimeoutError from None
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            kind = type(error.__cause__ or error).__name__
            raise _Fault(f"cannot be reached, or broke off ({kind})") from None

    async def _read(self, body: dict[str, Any]) -> bytes:
        """Reads the answer in pieces, so that a large one cannot fill the memory."""
        read = bytearray()
        async with self._client.chat.completions.with_streaming_response.create(
            **body,
            extra_headers=headers(self._key),
            timeout=httpx2.Timeout(self._settings.timeout_seconds, connect=CONNECT_SECONDS),
        ) as response:
            async for piece in response.iter_bytes():
                read += piece
                if len(read) > ANSWER_BYTES:
                    raise LLMReplyInvalid(f"The model's server gave an answer of more than {ANSWER_BYTES} bytes.")
        return bytes(read)


def _correction(said: str, error: str) -> Messages:
    shown = [{"role": "assistant", "content": said[:REPAIR_CHARS]}] if said.strip() else []
    instruction = f"That answer cannot be used: {error}. Answer again, with the corrected JSON alone."
    return [*shown, {"role": "user", "content": instruction}]
