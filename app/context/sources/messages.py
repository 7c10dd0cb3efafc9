"""Source of the last turns of the conversation."""

from collections.abc import Sequence

import orjson

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.core.clock import rfc3339
from app.core.prompt_fencing import strip_served
from app.errors import NotFound
from app.sessions.repository import SessionRepository
from app.sessions.windows import content
from app.storage.schema import Doc
from app.storage.text import content_hash

NOT_BEGUN = "session_not_begun"
"""Code of the warning for a session without messages."""
SPARE = 3
"""Added to the limit, for messages that are the query itself, are empty or do not fit."""
CALLS = "assistant, calling tools"
"""Role of tool calls without their results.

They are shown as data, because models reject a call without its results.
"""


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns the last messages, newest first, without the query itself if the caller has appended it already.

    A session that does not exist, or that belongs to another agent or user, gives a warning and no messages.
    """
    if request.body.session_id is None:
        return []
    sessions = SessionRepository(request.resources.store, request.scope)
    try:
        session = await sessions.get_unexpired(request.body.session_id, rfc3339(request.now))
    except NotFound:
        session = None
    if session is None or not request.owns(session):
        request.warnings.append({"code": NOT_BEGUN, "detail": "The session has not begun yet: it has no messages."})
        return []
    found = await sessions.messages.find(sessions.within(session), order="desc", limit=request.limit + SPARE)
    if found and found[0]["role"] == "user" and content_hash(found[0]["text"]) == content_hash(request.body.query):
        del found[0]
    items = (_item(session, docs) for docs in with_results(found[::-1]))
    return [item for item in items if item is not None][::-1]


def with_results(oldest_first: Sequence[Doc]) -> list[Sequence[Doc]]:
    """Groups messages: a tool call stays with its results if all of them follow at once; others are alone."""
    groups, at = [], 0
    while at < len(oldest_first):
        size = 1 + _results(oldest_first, at)
        groups.append(oldest_first[at : at + size])
        at += size
    return groups


def _results(docs: Sequence[Doc], at: int) -> int:
    """Returns how many messages after `at` are the results of its calls; 0 if one is missing or two ids are alike."""
    called = [call["id"] for call in docs[at]["tool_calls"] or ()]
    answered = [doc["tool_call_id"] for doc in docs[at + 1 : at + 1 + len(called)] if doc["role"] == "tool"]
    return len(called) if len(set(called)) == len(called) and set(called) == set(answered) else 0


def _item(session: Doc, docs: Sequence[Doc]) -> Candidate | None:
    """Returns None for a message that contains nothing but text that this service rendered."""
    first, *results = docs
    speaker, role = first["name"] or first["role"], first["role"]
    if results:
        speaker, text = f"{speaker} with tools", _with_tools(first, results)
    else:
        text = _said(content(first))
        role = CALLS if first["tool_calls"] and not first["text"] else role
    if not text:
        return None
    same = frozenset(f"message:{session['session_id']}:{doc['seq']}" for doc in docs)
    turns = _as_sent(first, results) if results else ()
    return Candidate(first["message_id"], "message", text, None, f"{speaker}: ", same, role, turns=turns)


def _with_tools(first: Doc, results: Sequence[Doc]) -> str:
    """Returns text, calls and results, each on its own line.

    Further lines are indented, so that none passes for a result.
    """
    parts = [_said(first["text"]), *map(_called, first["tool_calls"])]
    parts += [f"tool: {_said(content(result))}" for result in results]
    return "\n".join("\n  ".join(part.splitlines()) for part in parts if part)


def _called(call: Doc) -> str:
    """Returns a tool call as text, such as `calls now({})`."""
    function = call.get("function")
    if function is None:
        return f"calls {orjson.dumps(call).decode()}"
    return f"calls {function['name']}({function['arguments']})"


def _as_sent(first: Doc, results: Sequence[Doc]) -> tuple[Doc, ...]:
    """Returns the messages as OpenAI clients send them: the call, then one message for each result."""
    call = {"role": "assistant", "content": _said(first["text"]) or None, "tool_calls": first["tool_calls"]}
    answers = ({"role": "tool", "tool_call_id": doc["tool_call_id"], "content": _said(content(doc))} for doc in results)
    return call, *answers


def _said(text: str) -> str:
    """Returns the text without blocks that this service rendered."""
    return strip_served(text).strip()


MESSAGES_SOURCE = ContextSource(
    "messages", "Recent messages", gather, default_limit=10, share=0.35, newest_first=True, turns=True
)
