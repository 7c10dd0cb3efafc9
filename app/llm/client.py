"""A client of OpenAI-compatible chat servers that returns answers in a given shape.

A temporary fault and an answer of the wrong shape both cost a try; there are three. Errors contain no text of the
server or the model, which may quote a key or users' text; they contain only the server's status and error code.
"""

import asyncio
import random
import time
from typing import Any, TypeVar

import httpx2
import openai
from pydantic import BaseModel

from app.core import tokens
from app.core.openai_client import headers, passes, reason, retry_after
from app.core.process import off_loop
from app.errors import LLMReplyInvalid, LLMUnavailable
from app.llm.base import Budget, ObserveCall
from app.llm.structured_output import InvalidReply, Malformed, completion, parse, response_format, schema_note, text_of
from app.settings import LLMSettings

TRIES = 3
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES = 4 << 20
REPAIR_CHARS = 8_000
"""Maximum length of a wrong answer that is shown to the model again."""

T = TypeVar("T", bound=BaseModel)
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
