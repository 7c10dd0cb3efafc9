"""`recalld add`, `search`, `list` and `show`: memories on a running service or in the local store."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from app.cli._calls import (
    AgentOption,
    KeyOption,
    LimitOption,
    Target,
    UrlOption,
    UserOption,
    call,
    call_once,
    given,
    owners,
    pages,
    tell_of_more,
)
from app.cli._common import AsJson, as_json, text_table
from app.core.schemas import Json
from app.errors import invalid
from app.mcp.transport import segment

DAY = len("2026-01-01")
_UNSHOWN = frozenset({"memory_id", "content", "similar"})


def add(  # noqa: PLR0913 (options)
    content: Annotated[str, typer.Argument(help="One statement, or - to read standard input.")],
    user: UserOption = None,
    agent: AgentOption = None,
    memory_type: Annotated[str, typer.Option("--type", help="fact, preference, instruction, experience …")] = "fact",
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    importance: Annotated[float | None, typer.Option(help="From 0 to 1.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Put it into every context.")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json_: AsJson = False,
) -> None:
    """Store a memory. Without --user and --agent it is of the user `me`."""
    body = {
        "content": sys.stdin.read().strip() if content == "-" else content,
        "memory_type": memory_type,
        "tags": tag or [],
        **owners(agent, user),
        **given(importance=importance, pinned=pinned or None),
    }
    memory = call_once(Target(url, key), "POST", "/v1/memories", body)
    if as_json_:
        as_json(memory)
    else:
        print(memory["memory_id"])


def search(  # noqa: PLR0913 (options)
    query: Annotated[str, typer.Argument(help="A question, or words.")],
    user: UserOption = None,
    agent: AgentOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Most memories.")] = 10,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json_: AsJson = False,
) -> None:
    """Find memories by meaning and words, the best first. Without --user and --agent it searches what is known of the
    user `me`."""
    body = {"query": query, "top_k": limit, **owners(agent, user)}
    found = call_once(Target(url, key), "POST", "/v1/memories/search", body)
    for warning in found["warnings"]:
        print(f"recalld: {warning['detail']}", file=sys.stderr)
    if as_json_:
        as_json(found)
        return
    rows = [(f"{hit['score']:.2f}", *_row(hit["memory"])) for hit in found["items"]]
    _table(("score", "memory", "type", "when", "content"), rows)


def list_(  # noqa: PLR0913 (options)
    user: UserOption = None,
    agent: AgentOption = None,
    limit: LimitOption = 20,
    memory_type: Annotated[str | None, typer.Option("--type", help="Only of this type.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json_: AsJson = False,
) -> None:
    """List memories, the newest first: all of them, or those of --user, of --agent, or of both."""
    filters = given(user_id=user, agent_id=agent, memory_type=memory_type, tag=tag)
    found = call(Target(url, key), pages("/v1/memories", filters, limit))
    if as_json_:
        as_json(found)
        return
    rows = [(memory["memory_id"], owner_of(memory), *_row(memory)[1:]) for memory in found["items"]]
    _table(("memory", "agent/user", "type", "when", "content"), rows)
    tell_of_more(found)


def show(
    memory_id: Annotated[str, typer.Argument(help="The id, as `recalld list` shows it.")],
    url: UrlOption = None,
    key: KeyOption = None,
    as_json_: AsJson = False,
) -> None:
    """Show a memory with all its fields."""
    if not memory_id.strip():
        raise invalid("/memory_id", "must be the id of a memory")
    memory = call_once(Target(url, key), "GET", f"/v1/memories/{segment(memory_id)}")
    if as_json_:
        as_json(memory)
        return
    fields = [("memory", memory_id), ("content", memory["content"])]
    fields += [(name, _cell(value)) for name, value in memory.items() if name not in _UNSHOWN]
    text_table(("field", "value"), [(name, value) for name, value in fields if value])


def owner_of(record: Json) -> str:
    """Returns agent and user of a record in one cell; `*` stands for any."""
    return f"{record['agent_id'] or '*'}/{record['user_id'] or '*'}"


def _row(memory: Json) -> tuple[str, str, str, str]:
    when = memory["event_at"] or memory["created_at"]
    return memory["memory_id"], memory["memory_type"], when[:DAY], memory["content"]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        text_table(columns, rows)
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
