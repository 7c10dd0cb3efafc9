"""The loop of `recalld chat`. A separate module, since the model's client takes half a second to import."""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
from rich.console import Console

from app.cli import _common as cli
from app.core.openai_client import headers
from app.core.schemas import Json
from app.errors import LLMNotConfigured, RecalldError
from app.mcp.transport import segment
from app.settings import Settings

QUIT, END = "/quit", "/end"
PROMPT = "> "

_notes = Console(stderr=True, highlight=False, style="dim")


@dataclass(frozen=True, slots=True)
class Chat:
    """The session of a chat, and how its prompts are made."""

    agent_id: str
    user_id: str
    session_id: str
    budget: int
    """Most tokens of memory in a prompt."""
    system_prompt: str

    @property
    def path(self) -> str:
        return f"/v1/sessions/{segment(self.session_id)}"


class ChatModel:
    """A chat model behind an OpenAI-compatible server."""

    def __init__(self, client: openai.OpenAI, name: str, sent: dict[str, Any]) -> None:
        """`sent`: headers of each request."""
        self._client, self.name, self._headers = client, name, sent
        self.address = str(client.base_url)

    def stream(self, messages: list[Any]) -> Iterator[str]:
        """Yields the answer in pieces. Raises openai.OpenAIError."""
        answer = self._client.chat.completions.create(
            model=self.name, messages=messages, stream=True, extra_headers=self._headers
        )
        with answer as chunks:
            for chunk in chunks:
                if chunk.choices and chunk.choices[0].delta.content:
                    yield chunk.choices[0].delta.content


def open_model(name: str | None, url: str | None) -> ChatModel:
    """Returns the model of the options, of the settings RECALLD_LLM_…, or of OpenAI's own variables.

    The key of the settings goes to the server of the settings, and OPENAI_API_KEY to OpenAI's. Raises LLMNotConfigured.
    """
    settings = Settings().llm
    name = name or settings.model
    base, key = url or settings.base_url, settings.api_key.get_secret_value()
    if base:
        mine = key if base == settings.base_url else ""
        client, sent = openai.OpenAI(base_url=base, api_key=mine or "none"), headers(mine)
    elif os.environ.get("OPENAI_API_KEY"):
        client, sent = openai.OpenAI(), {}
    else:
        raise LLMNotConfigured(
            "No language model is configured: set RECALLD_LLM_BASE_URL and RECALLD_LLM_MODEL, or OPENAI_API_KEY, or "
            "give --llm-url and --model."
        )
    return ChatModel(client.with_options(timeout=settings.timeout_seconds), name, sent)


def chat(target: cli.Target, talk: Chat, model: ChatModel) -> None:
    """Reads lines from standard input until it ends, and answers each. Raises the error of a store that cannot be
    opened; later errors are printed, and the chat goes on."""
    with _notes.status("Opening the memory …"):
        service = cli.load_service(target)
        runner = asyncio.Runner()
        opened = service.opened(target)
        api, _ = runner.run(opened.__aenter__())
    ask = service.asking(api)
    _notes.print(f"{model.name} · session {talk.session_id} · {QUIT} or {END} to leave")
    try:
        while (text := _line()) not in ("", QUIT):
            if text == END:
                runner.run(ask("POST", f"{talk.path}/end"))
                break
            _turn(runner, ask, talk, model, text)
    finally:
        runner.run(opened.__aexit__(None, None, None))
        runner.close()
    _notes.print(f"Go on with: recalld chat --session {talk.session_id}")


def _line() -> str:
    try:
        return input(PROMPT if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        return ""


def _turn(runner: asyncio.Runner, ask: cli.Ask, talk: Chat, model: ChatModel, text: str) -> None:
    """Stores the user's message, asks the model and stores its answer. Prints what goes wrong."""
    body = {
        "query": text,
        "agent_id": talk.agent_id,
        "user_id": talk.user_id,
        "session_id": talk.session_id,
        "token_budget": talk.budget,
        "system_prompt": talk.system_prompt,
        "format": "messages",
    }
    try:
        # the context is read first: otherwise the message would be found as a memory of itself
        context: Json = runner.run(ask("POST", "/v1/context", body))
        runner.run(_store(ask, talk, "user", text))
    except RecalldError as error:
        _notes.print(f"The message is not stored, and the model was not asked: {error.detail}", markup=False)
        return
    _notes.print(cli.summary(context), markup=False)
    answer = _answer(model, context["messages"])
    if answer:
        try:
            runner.run(_store(ask, talk, "assistant", answer))
        except RecalldError as error:
            _notes.print(f"The answer is not stored: {error.detail}", markup=False)


async def _store(ask: cli.Ask, talk: Chat, role: str, content: str) -> None:
    message = {"role": role, "content": content}
    owner = {"agent_id": talk.agent_id, "user_id": talk.user_id}
    await ask("POST", f"{talk.path}/messages", {**owner, "messages": [message]})


def _answer(model: ChatModel, messages: list[Any]) -> str:
    """Prints the answer as it comes and returns it, as far as it came."""
    pieces: list[str] = []
    try:
        for piece in model.stream(messages):
            pieces.append(piece)
            print(cli.printable(piece), end="", flush=True)
    except openai.APIStatusError as error:
        _notes.print(f"\nThe model's server answered {error.status_code}. Your message is stored.", markup=False)
    except (openai.OpenAIError, httpx2.HTTPError, ValueError) as error:  # the last two: a stream that breaks off
        cause = error.__cause__ or error  # the client's own sentence is "Connection error."
        reason = cli.printable(str(cause)) or type(cause).__name__
        _notes.print(
            f"\nThe model at {model.address} failed: {reason}. Your message is stored.", markup=False, soft_wrap=True
        )
    except KeyboardInterrupt:
        _notes.print("\nStopped. What came is stored.", markup=False)
    print()
    return "".join(pieces)
