"""`recalld sessions`, `context` and `chat`: conversations, what goes into a prompt, and a prompt loop with a model."""

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from app.cli._calls import (
    AGENT,
    USER,
    AgentOption,
    KeyOption,
    LimitOption,
    Target,
    UrlOption,
    UserOption,
    call,
    call_once,
    given,
    pages,
    tell_of_more,
)
from app.cli._common import AsJson, as_json, printable, text_table
from app.cli.memory import DAY, owner_of
from app.core.schemas import Json
from app.mcp.transport import segment

MINUTE = len("2026-01-01T00:00")
BudgetOption = Annotated[int, typer.Option("--budget", min=1, max=10_000_000, help="Most tokens of the memory.")]


def sessions(  # noqa: PLR0913 (options)
    session: Annotated[str | None, typer.Argument(help="Show the messages of this session.")] = None,
    user: UserOption = None,
    agent: AgentOption = None,
    limit: LimitOption = 20,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json_: AsJson = False,
) -> None:
    """List conversations, the newest first, or show the messages of one."""
    if session is not None:
        path, filters = f"/v1/sessions/{segment(session)}/messages", dict[str, Any]()
    else:
        path, filters = "/v1/sessions", given(user_id=user, agent_id=agent)
    found = call(Target(url, key), pages(path, filters, limit))
    if as_json_:
        as_json(found)
        return
    if session is not None:
        columns: Sequence[str] = ("no.", "when", "role", "content")
        rows = [_message(one) for one in found["items"]]
    else:
        columns = ("session", "agent/user", "begun", "messages", "status")
        rows = [_row(one) for one in found["items"]]
    if rows:
        text_table(columns, rows)
    else:
        print("Nothing was found.", file=sys.stderr)
    tell_of_more(found)


def _message(message: Json) -> tuple[str, ...]:
    content = message["content"]
    if not isinstance(content, str):
        content = " ".join(part.get("text", f"[{part['type']}]") for part in content or [])
    return str(message["seq"]), message["timestamp"][:MINUTE], message["name"] or message["role"], content


def _row(session: Json) -> tuple[str, ...]:
    count = str(session["message_count"])
    return session["session_id"], owner_of(session), session["created_at"][:DAY], count, session["status"]


def context(  # noqa: PLR0913 (options)
    query: Annotated[str, typer.Argument(help="What the next prompt asks.")],
    user: UserOption = None,
    agent: AgentOption = None,
    session: Annotated[str | None, typer.Option(help="The conversation that goes on.")] = None,
    budget: BudgetOption = 2000,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json_: AsJson = False,
) -> None:
    """Print the block of memory for a prompt. Standard error says what it holds."""
    body = {
        "query": query,
        "agent_id": agent or AGENT,
        "user_id": user or USER,
        "token_budget": budget,
        **given(session_id=session),
    }
    made = call_once(Target(url, key), "POST", "/v1/context", body)
    if as_json_:
        as_json(made)
        return
    print(printable(made["text"]))
    print(summary(made), file=sys.stderr)


def summary(made: Json) -> str:
    """Returns what a context holds, in a line: `412 of 2,000 tokens: 3 memories, 1 facts`."""
    parts = [f"{len(section['items'])} {section['name']}" for section in made["sections"] if section["items"]]
    return f"{made['tokens']:,} of {made['budget']:,} tokens: {', '.join(parts) or 'nothing'}"


def chat(  # noqa: PLR0913 (options)
    user: UserOption = None,
    agent: AgentOption = None,
    session: Annotated[str | None, typer.Option(help="Go on with this conversation; default: a new one.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: RECALLD_LLM_MODEL.")] = None,
    llm_url: Annotated[
        str | None, typer.Option(help="OpenAI-compatible server; default: RECALLD_LLM_BASE_URL, or OpenAI.")
    ] = None,
    system: Annotated[str, typer.Option(help="System prompt.")] = "You are a helpful assistant.",
    budget: BudgetOption = 2000,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Talk with a language model that remembers. Each message is stored before the model is asked. An empty line,
    Ctrl-D or /quit ends the chat; /end also ends the session, so that the service learns from it."""
    loop: Any = importlib.import_module("app.cli.chat_loop")  # imports the model's client, which takes half a second
    talk = loop.Chat(agent or AGENT, user or USER, session or loop.new_session(), budget, system)
    loop.chat(Target(url, key), talk, loop.open_model(model, llm_url))
