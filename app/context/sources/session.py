"""Context sources of the conversation in hand: the task, the session's summary, its last turns."""

from collections.abc import Sequence

import orjson

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.core.clock import rfc3339
from app.core.served_text import strip_served
from app.core.work import off_loop
from app.errors import NotFound
from app.memories.repository import MemoryRepository
from app.sessions.repository import SessionRepository, content
from app.sessions.schemas import SESSIONS
from app.storage.repository import expired, unexpired
from app.storage.schema import Doc, Eq, Not, Range, both
from app.storage.text import content_hash
from app.tasks.entries import Entry, characters, entries
from app.tasks.service import TaskRepository
from app.tasks.working_memory import select, shorten

WORKING_PART = 0.15
"""Share of the context's budget that entries are chosen for.

The section may take more (`WORKING`), because each line has a citation beside its text.
"""
USUAL_BUDGET = 4000


async def gather_working(request: SourceRequest) -> list[Candidate]:
    """Returns the entries of the task. Raises NotFound if the named task does not exist or belongs to others."""
    task = await _task(request)
    return [] if task is None else await off_loop(characters(task), _items, task, _room(request))


async def _task(request: SourceRequest) -> Doc | None:
    tasks = TaskRepository(request.resources.store, request.scope)
    if request.body.task_id is not None:
        task = await tasks.find_one(request.body.task_id)
        if task is None or expired(task, rfc3339(request.now)) or not request.owns(task):
            raise NotFound("There is no such task.")
        return task
    if request.body.session_id is None:
        return None
    of_session = both(Eq("session_id", request.body.session_id), Eq("status", "in_progress"), request.owned())
    found = await tasks.find(both(of_session, unexpired(rfc3339(request.now))), limit=1)
    return found[0] if found else None


def _room(request: SourceRequest) -> int:
    """Returns the tokens that the section may expect.

    Its first entries are chosen, and long ones shortened, for this size.
    """
    bounds = request.body.sections.get("working")
    if bounds is not None and bounds.tokens is not None:
        return bounds.tokens
    share = WORKING_PART if bounds is None or bounds.share is None else bounds.share
    return int(share * (request.body.token_budget or USUAL_BUDGET))


def _items(task: Doc, room: int) -> list[Candidate]:
    """Returns the entries that `/working-memory` would choose for `room` tokens, then all others, to be packed if there
    is room."""
    found = entries(task)
    chosen = [line.entry for line in select(found, room)]
    first = {(one.kind, one.index) for one in chosen}
    others = [shorten(one, room) for one in found if (one.kind, one.index) not in first]
    return [_entry_item(task["task_id"], one) for one in (*chosen, *others)]


def _entry_item(task_id: str, entry: Entry) -> Candidate:
    place = "" if entry.index is None else f"/{entry.index}"
    return Candidate(f"{task_id}:{entry.kind}{place}", entry.kind, entry.text)


WORKING = ContextSource("working", "Task in hand", gather_working, default_limit=100, share=0.3)


LAST_SESSIONS = 3
"""A session with fewer messages has just begun."""
CONSIDERED_SUMMARIES = 20
"""Number of newest sessions among which summaries are looked for."""


async def gather_summary(request: SourceRequest) -> list[Candidate]:
    """Returns the session's own summary, or the summaries of the last sessions if it has just begun."""
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await _session(request, sessions)
    if session is None or session["message_count"] < LAST_SESSIONS:
        return await _last_times(request, sessions)
    return await _so_far(request, session)


async def _session(request: SourceRequest, sessions: SessionRepository) -> Doc | None:
    """Returns the session; None if it does not exist yet or belongs to another agent or user."""
    if request.body.session_id is None:
        return None
    try:
        session = await sessions.get_unexpired(request.body.session_id, rfc3339(request.now))
    except NotFound:
        return None
    return session if request.owns(session) else None


async def _so_far(request: SourceRequest, session: Doc) -> list[Candidate]:
    """Returns the session's own summary, if it has messages before the turns that the context shows."""
    if not (session["summary"] or "").strip() or session["message_count"] <= _turns(request):
        return []
    memories = MemoryRepository(request.resources.store, request.scope)
    memory_id = session.get("summary_id")
    memory = None if memory_id is None else await memories.find_one(memory_id)
    least = request.body.min_trust
    if least is not None and (memory is None or memory["trust"] < least):
        return []
    return [_summary_item(session["summary"], memory, "earlier in this session: ")]


def _turns(request: SourceRequest) -> int:
    """Returns how many turns the context shows at most."""
    if "messages" in request.body.exclude:
        return 0
    bounds = request.body.sections.get("messages")
    return MESSAGES_SOURCE.default_limit if bounds is None or bounds.limit is None else bounds.limit


async def _last_times(request: SourceRequest, sessions: SessionRepository) -> list[Candidate]:
    """Returns summaries of the latest other sessions of this agent and user, newest first.

    Sessions with other agents are outside of what this agent may see of the user.
    """
    body, now = request.body, rfc3339(request.now)
    if body.user_id is None:
        return []
    other = None if body.session_id is None else Not(Eq(SESSIONS.id_field, body.session_id))
    where = both(Eq("agent_id", body.agent_id), Eq("user_id", body.user_id), unexpired(now))
    found = await sessions.find(both(where, other), limit=CONSIDERED_SUMMARIES)
    memories = MemoryRepository(request.resources.store, request.scope)
    summaries = await memories.get_many([doc["summary_id"] for doc in found if doc.get("summary_id")])
    visible = [doc for doc in summaries.values() if _is_told(doc, now, body.min_trust)]
    visible.sort(key=_when, reverse=True)
    return [_summary_item(doc["content"], doc, f"{_when(doc)[:10]} last session: ") for doc in visible[: request.limit]]


def _is_told(memory: Doc, now: str, min_trust: float | None) -> bool:
    """Returns whether the summary may be shown: it is active, not expired, not later than `now`, and trusted enough."""
    if memory["status"] != "active" or expired(memory, now) or _when(memory) > now:
        return False
    return min_trust is None or bool(memory["trust"] >= min_trust)


def _when(memory: Doc) -> str:
    """Returns the time of the last message that the summary covers."""
    return str(memory["event_at"] or memory["created_at"])


def _summary_item(text: str, memory: Doc | None, prefix: str) -> Candidate:
    same = {f"text:{content_hash(text)}"}
    if memory is None:
        return Candidate("summary", "summary", text, None, prefix, frozenset(same))
    memory_id = memory["memory_id"]
    same.add(f"memory:{memory_id}")
    return Candidate(memory_id, "summary", text, None, prefix, frozenset(same), memory_id=memory_id)


SUMMARY = ContextSource("summary", "Summary", gather_summary, default_limit=3, share=0.1)


NOT_BEGUN = "session_not_begun"
"""Code of the warning for a session without messages."""
SPARE_MESSAGES = 3
"""Added to the limit, for messages that are the query itself, are empty or do not fit."""
CALLS = "assistant, calling tools"
"""Role of tool calls without their results.

They are shown as data, because models reject a call without its results.
"""


async def gather_messages(request: SourceRequest) -> list[Candidate]:
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
    until = None if request.body.now is None else Range("timestamp", le=request.body.now)
    where = both(sessions.said_in(session), until)
    found = await sessions.messages.find(where, order="desc", limit=request.limit + SPARE_MESSAGES)
    if found and found[0]["role"] == "user" and content_hash(found[0]["text"]) == content_hash(request.body.query):
        del found[0]
    items = await off_loop(sum(len(doc["text"]) for doc in found), _turn_items, session, found[::-1])
    return items[::-1]


def _turn_items(session: Doc, oldest_first: Sequence[Doc]) -> list[Candidate]:
    items = (_turn_item(session, docs) for docs in with_results(oldest_first))
    return [item for item in items if item is not None]


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


def _turn_item(session: Doc, docs: Sequence[Doc]) -> Candidate | None:
    """Returns None for a message that contains nothing but text that this service rendered."""
    first, *results = docs
    speaker, role = first["name"] or first["role"], first["role"]
    if results:
        speaker, text = f"{speaker} with tools", _with_tools(first, results)
    else:
        text = _quoted(content(first))
        role = CALLS if first["tool_calls"] and not first["text"] else role
    if not text:
        return None
    same = frozenset(f"message:{session['session_id']}:{doc['seq']}" for doc in docs)
    turns = _as_chat(first, results) if results else ()
    return Candidate(first["message_id"], "message", text, None, f"{speaker}: ", same, role, turns=turns)


def _with_tools(first: Doc, results: Sequence[Doc]) -> str:
    """Returns text, calls and results, each on its own line.

    Further lines are indented, so that none passes for a result.
    """
    parts = [_quoted(first["text"]), *map(_tool_call, first["tool_calls"])]
    parts += [f"tool: {_quoted(content(result))}" for result in results]
    return "\n".join("\n  ".join(part.splitlines()) for part in parts if part)


def _tool_call(call: Doc) -> str:
    """Returns a tool call as text, such as `calls now({})`."""
    function = call.get("function")
    if function is None:
        return f"calls {orjson.dumps(call).decode()}"
    return f"calls {function['name']}({function['arguments']})"


def _as_chat(first: Doc, results: Sequence[Doc]) -> tuple[Doc, ...]:
    """Returns the messages as OpenAI clients send them: the call, then one message for each result."""
    call = {"role": "assistant", "content": _quoted(first["text"]) or None, "tool_calls": first["tool_calls"]}
    answers = (
        {"role": "tool", "tool_call_id": doc["tool_call_id"], "content": _quoted(content(doc))} for doc in results
    )
    return call, *answers


def _quoted(text: str) -> str:
    """Returns the text without blocks that this service rendered."""
    return strip_served(text).strip()


MESSAGES_SOURCE = ContextSource(
    "messages", "Recent messages", gather_messages, default_limit=10, share=0.35, newest_first=True, turns=True
)
