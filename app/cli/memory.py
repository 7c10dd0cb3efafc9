"""`recalld add`, `search`, `list` and `show`: memories on a running service or in the local store.

`recalld sessions`, `context` and `chat`: conversations, what goes into a prompt, and a prompt loop with a model.
"""

import asyncio
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from app.cli import _common as cli
from app.core.clock import new_id
from app.core.schemas import Json
from app.documents.extract import TEXT
from app.documents.schemas import ENDINGS
from app.errors import invalid
from app.mcp.transport import segment

DAY = len("2026-01-01")
_UNSHOWN = frozenset({"memory_id", "content", "similar"})


def add(
    content: Annotated[str, typer.Argument(help="One statement, or - to read standard input.")],
    user: cli.UserOption = None,
    agent: cli.AgentOption = None,
    memory_type: Annotated[str, typer.Option("--type", help="fact, preference, instruction, experience …")] = "fact",
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    importance: Annotated[float | None, typer.Option(help="From 0 to 1.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Put it into every context.")] = False,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Store a memory. Without --user and --agent it is of the user `me`."""
    body = {
        "content": sys.stdin.read().strip() if content == "-" else content,
        "memory_type": memory_type,
        "tags": tag or [],
        **cli.owners(agent, user),
        **cli.given(importance=importance, pinned=pinned or None),
    }
    memory = cli.call_once(cli.Target(url, key), "POST", "/v1/memories", body)
    for warning in memory.get("warnings", ()):
        print(f"recalld: {warning['detail']}", file=sys.stderr)
    if as_json_:
        cli.as_json(memory)
    else:
        print(memory["memory_id"])


FiltersOption = Annotated[
    str | None, typer.Option(help='Over fields and metadata, as JSON: \'{"topic": "billing", "trust": {"gte": 0.5}}\'.')
]


def upload(
    file: Annotated[Path, typer.Argument(parser=cli.file_or_folder, help="Markdown, text, HTML or PDF, to 10 MB.")],
    name: Annotated[str | None, typer.Option(help="Default: that of the file. The same name replaces.")] = None,
    user: cli.UserOption = None,
    agent: cli.AgentOption = None,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Remember a file by its passages, and wait until it is read. Without --user and --agent it is of the user `me`."""
    if not file.is_file():
        raise typer.BadParameter(f"{file} is not a file.")
    kind = ENDINGS.get(file.suffix.lower().removeprefix("."), TEXT)

    async def work(ask: cli.Ask) -> Json:
        query = urlencode({"name": name or file.name, **cli.owners(agent, user)})
        sent = await ask("POST", f"/v1/documents?{query}", file.read_bytes(), kind)
        while True:
            document: Json = await ask("GET", f"/v1/documents/{sent['document_id']}")
            if document["status"] != "processing":
                return document
            await asyncio.sleep(LOOK_SECONDS)

    document = cli.call(cli.Target(url, key, jobs=True), work, "Reading the file …")
    if as_json_:
        cli.as_json(document)
    elif document["status"] == "failed":
        print(f"recalld: {document['error']}", file=sys.stderr)
    else:
        print(f"{document['document_id']}: {document['passages']} passages")
    if document["status"] == "failed":
        raise typer.Exit(1)


LOOK_SECONDS = 0.2
HARDLY = 0.01
"""A hit whose score is below hardly fits: a terminal shows it in grey."""


def search(
    query: Annotated[str, typer.Argument(help="A question, or words.")],
    user: cli.UserOption = None,
    agent: cli.AgentOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Most memories.")] = 10,
    filters: FiltersOption = None,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Find memories by meaning and words, the best first. Without --user and --agent it searches what is known of the
    user `me`."""
    body: Json = {"query": query, "top_k": limit}
    try:
        body |= cli.given(filters=None if filters is None else json.loads(filters))
    except ValueError:
        raise invalid("/filters", "must be a JSON object") from None
    named = isinstance(body.get("filters"), dict) and not {"agent_id", "user_id"}.isdisjoint(body["filters"])
    body |= cli.given(agent_id=agent, user_id=user) if named else cli.owners(agent, user)
    answer = cli.call_once(cli.Target(url, key), "POST", "/v1/memories/search", body)
    for warning in answer["warnings"]:
        print(f"recalld: {warning['detail']}", file=sys.stderr)
    if as_json_:
        cli.as_json(answer)
        return
    rows = [(f"{hit['score']:.2f}", *_row(hit["memory"])) for hit in answer["items"]]
    hardly = sum(hit["score"] < HARDLY for hit in answer["items"]) if answer["mode_used"] == "hybrid" else 0
    _table(("score", "memory", "type", "when", "content"), rows, hardly)


def list_(
    user: cli.UserOption = None,
    agent: cli.AgentOption = None,
    limit: cli.LimitOption = 20,
    memory_type: Annotated[str | None, typer.Option("--type", help="Only of this type.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    filters: FiltersOption = None,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """List memories, the newest first: all of them, or those of --user, of --agent, or of both."""
    wanted = cli.given(user_id=user, agent_id=agent, memory_type=memory_type, tag=tag, filters=filters)
    answer = cli.call(cli.Target(url, key), cli.pages("/v1/memories", wanted, limit))
    if as_json_:
        cli.as_json(answer)
        return
    rows = [(memory["memory_id"], owner_of(memory), *_row(memory)[1:]) for memory in answer["items"]]
    _table(("memory", "agent/user", "type", "when", "content"), rows)
    cli.tell_of_more(answer)


def show(
    memory_id: Annotated[str, typer.Argument(help="The id, as `recalld list` shows it.")],
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Show a memory with all its fields."""
    if not memory_id.strip():
        raise invalid("/memory_id", "must be the id of a memory")
    memory = cli.call_once(cli.Target(url, key), "GET", f"/v1/memories/{segment(memory_id)}")
    if as_json_:
        cli.as_json(memory)
        return
    fields = [("memory", memory_id), ("content", memory["content"])]
    fields += [(name, _cell(value)) for name, value in memory.items() if name not in _UNSHOWN]
    cli.text_table(("field", "value"), [(name, value) for name, value in fields if value])


def owner_of(record: Json) -> str:
    """Returns agent and user of a record in one cell; `*` stands for any."""
    return f"{record['agent_id'] or '*'}/{record['user_id'] or '*'}"


def _row(memory: Json) -> tuple[str, str, str, str]:
    when = memory["event_at"] or memory["created_at"]
    return memory["memory_id"], memory["memory_type"], when[:DAY], memory["content"]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], faint: int = 0) -> None:
    if rows:
        cli.text_table(columns, rows, faint)
    else:
        print("Nothing was found.", file=sys.stderr)


def _cell(value: Any) -> str:
    """Returns a value as a cell; empty for a field that says nothing."""
    if value in (None, [], {}, ""):
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={inner}" for name, inner in value.items() if inner not in (None, [], {}))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


MINUTE = len("2026-01-01T00:00")
BudgetOption = Annotated[int, typer.Option("--budget", min=1, max=10_000_000, help="Most tokens of the memory.")]


def sessions(
    session: Annotated[str | None, typer.Argument(help="Show the messages of this session.")] = None,
    user: cli.UserOption = None,
    agent: cli.AgentOption = None,
    limit: cli.LimitOption = 20,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """List conversations, the newest first, or show the messages of one."""
    if session is not None:
        path, filters = f"/v1/sessions/{segment(session)}/messages", dict[str, Any]()
    else:
        path, filters = "/v1/sessions", cli.given(user_id=user, agent_id=agent)
    answer = cli.call(cli.Target(url, key), cli.pages(path, filters, limit))
    if as_json_:
        cli.as_json(answer)
        return
    if session is not None:
        columns: Sequence[str] = ("no.", "when", "role", "content")
        rows = [_message(message) for message in answer["items"]]
    else:
        columns = ("session", "agent/user", "begun", "messages", "status")
        rows = [
            (
                conversation["session_id"],
                owner_of(conversation),
                conversation["created_at"][:DAY],
                str(conversation["message_count"]),
                conversation["status"],
            )
            for conversation in answer["items"]
        ]
    _table(columns, rows)
    cli.tell_of_more(answer)


def _message(message: Json) -> tuple[str, ...]:
    content = message["content"]
    if not isinstance(content, str):
        content = " ".join(part.get("text", f"[{part['type']}]") for part in content or [])
    return str(message["seq"]), message["timestamp"][:MINUTE], message["name"] or message["role"], content


def context(
    query: Annotated[str, typer.Argument(help="What the next prompt asks.")],
    user: cli.UserOption = None,
    agent: cli.AgentOption = None,
    session: Annotated[str | None, typer.Option(help="The conversation that goes on.")] = None,
    budget: BudgetOption = 2000,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
    as_json_: cli.AsJson = False,
) -> None:
    """Print the block of memory for a prompt. Standard error says what it holds."""
    body = {
        "query": query,
        "agent_id": agent or cli.AGENT,
        "user_id": user or cli.USER,
        "token_budget": budget,
        **cli.given(session_id=session),
    }
    made = cli.call_once(cli.Target(url, key), "POST", "/v1/context", body)
    if as_json_:
        cli.as_json(made)
        return
    print(cli.printable(made["text"]))
    print(cli.summary(made), file=sys.stderr)


def chat(
    user: cli.UserOption = None,
    agent: cli.AgentOption = None,
    session: Annotated[str | None, typer.Option(help="Go on with this conversation; default: a new one.")] = None,
    model: Annotated[str | None, typer.Option(help="Default: RECALLD_LLM_MODEL.")] = None,
    llm_url: Annotated[
        str | None, typer.Option(help="OpenAI-compatible server; default: RECALLD_LLM_BASE_URL, or OpenAI.")
    ] = None,
    system: Annotated[str, typer.Option(help="System prompt.")] = "You are a helpful assistant.",
    budget: BudgetOption = 2000,
    url: cli.UrlOption = None,
    key: cli.KeyOption = None,
) -> None:
    """Talk with a language model that remembers. Each message is stored before the model is asked. An empty line,
    Ctrl-D or /quit ends the chat; /end also ends the session, so that the service learns from it."""
    loop: Any = importlib.import_module("app.cli.chat_loop")  # imports the model's client, which takes half a second
    talk = loop.Chat(agent or cli.AGENT, user or cli.USER, session or new_id("chat"), budget, system)
    loop.chat(cli.Target(url, key), talk, loop.open_model(model, llm_url))
