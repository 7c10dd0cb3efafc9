"""Context sources of the conversation in hand: the task, the session's summary, its last turns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import orjson

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.interactions import INTERACTION, interactions
from app.context.sources.last_lines import LINES, last_lines, placed
from app.core import prompt_text
from app.core.clock import rfc3339
from app.core.served_text import strip_served
from app.core.work import off_loop
from app.errors import NotFound, no_such
from app.facts.outdated import Utterance
from app.memories.repository import MemoryRepository
from app.memories.search_flags import EXTRACT
from app.sessions.repository import SessionRepository, content, is_extract
from app.sessions.schemas import MESSAGES, SESSIONS
from app.storage.repository import expired, pages, unexpired
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
            raise no_such("task")
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
LAST_TOLD = 3
"""So many of the last sessions are told at a session's start, and as many of the last interactions."""
CONSIDERED_SUMMARIES = 20
"""Number of newest sessions among which summaries are looked for."""


async def gather_summary(request: SourceRequest) -> list[Candidate]:
    """Returns the session's own summary. If it has just begun, returns what the last sessions came to, by their
    summaries or their own lines, and the last interactions, newest first."""
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await session_of(request, sessions)
    if session is not None and session["message_count"] >= LAST_SESSIONS:
        return await _so_far(request, session)
    bounds = request.body.sections.get("summary")
    most = LAST_TOLD if bounds is None or bounds.limit is None else bounds.limit
    told = await _last_times(request, sessions, most)
    if request.body.session_id is not None:  # without one, nobody knows whether a conversation begins
        summaries = without_lines(told)
        last = [item for item in await interactions(request) if not any(_tells(one, item) for one in summaries)]
        told += last[:most]
    return sorted(told, key=lambda item: item.place, reverse=True)


def _tells(summary: Candidate, interaction: Candidate) -> bool:
    """Returns whether an interaction is the beginning of a summary, as the end of a session records it."""
    return " ".join(summary.unmarked.split()).startswith(interaction.unmarked)


def without_lines(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns what tells the last sessions without their lines: a query that is answered does not need them."""
    return [item for item in items if not item.recalls]


def told_by_lines(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns what tells the last sessions. The lines of one stand for the interaction that its end recorded, with the
    time of its last message."""
    ended = {item.place[0] for item in items if item.recalls}
    return [item for item in items if item.type != INTERACTION or item.place[0] not in ended]


async def session_of(request: SourceRequest, sessions: SessionRepository) -> Doc | None:
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
    if not (session["summary"] or "").strip() or is_extract(session) or session["message_count"] <= _turns(request):
        return []  # quotes of messages, as earlier releases made them, add nothing to the messages
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
    usual = WINDOW // 2 if request.body.layout == "cached" else MESSAGES_SOURCE.default_limit
    return usual if bounds is None or bounds.limit is None else bounds.limit


async def _last_times(request: SourceRequest, sessions: SessionRepository, most: int) -> list[Candidate]:
    """Returns what the last other sessions of this agent and user came to: `most` of them, the latest first, each by
    its summary, or by its lines if it has ended without one.

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
    told = [doc for doc in summaries.values() if not doc["content"].startswith(EXTRACT)]
    visible = [doc for doc in told if is_told(doc, now, body.min_trust)]
    by_time: list[tuple[str, list[Candidate]]] = [(said_last(doc), [told_summary(doc)]) for doc in visible]
    summarised = {doc["memory_id"] for doc in visible}
    untold = [session for session in found if session.get("summary_id") not in summarised]
    by_time += await _lines(request, untold, now, most)
    by_time.sort(key=lambda one: one[0], reverse=True)
    return [item for _, items in by_time[:most] for item in items]


async def _lines(
    request: SourceRequest, untold: Sequence[Doc], now: str, most: int
) -> list[tuple[str, list[Candidate]]]:
    """Returns the lines of the last `most` sessions that have ended, each with the time of its last message. Without a
    session of its own, nobody knows whether a conversation begins."""
    if request.body.session_id is None:
        return []
    ended = last_ended(untold, now)[:most]
    lines = await last_lines(request, ended)
    return [(str(doc["last_message_at"]), placed(lines, doc)) for doc in ended if doc["session_id"] in lines]


def last_ended(sessions: Sequence[Doc], until: str) -> list[Doc]:
    """Returns the sessions that have ended after messages, all up to that time, the latest first."""
    ended = [
        doc for doc in sessions if doc["status"] == "ended" and doc["last_message_at"] and doc["memorize"] != "none"
    ]
    by_then = [doc for doc in ended if doc["last_message_at"] <= until]
    return sorted(by_then, key=lambda doc: (doc["last_message_at"], doc["session_id"]), reverse=True)


def told_summary(memory: Doc) -> Candidate:
    """Returns the summary of another session, with the day of its last message."""
    item = _summary_item(memory["content"], memory, f"session of {said_last(memory)[:10]}: ")
    return replace(item, place=(said_last(memory), 0))


def is_told(memory: Doc, now: str, min_trust: float | None) -> bool:
    """Returns whether the summary may be shown: it is active, not expired, not later than `now`, and trusted enough."""
    if memory["status"] != "active" or expired(memory, now) or said_last(memory) > now:
        return False
    return min_trust is None or bool(memory["trust"] >= min_trust)


def said_last(memory: Doc) -> str:
    """Returns the time of the last message that the summary covers."""
    return str(memory["event_at"] or memory["created_at"])


def _summary_item(text: str, memory: Doc | None, prefix: str) -> Candidate:
    same = {f"text:{content_hash(text)}"}
    if memory is None:
        return Candidate("summary", "summary", text, None, prefix, frozenset(same))
    memory_id = memory["memory_id"]
    same.add(f"memory:{memory_id}")
    said = Utterance.in_memory(memory)
    return Candidate(memory_id, "summary", text, None, prefix, frozenset(same), memory_id=memory_id, said=said)


SUMMARY = ContextSource("summary", "Summary", gather_summary, (LINES + 1) * LAST_TOLD, share=0.1, latest_first=True)


SPARE_MESSAGES = 3
"""Added to the limit, for messages that are the query itself, are empty or do not fit."""
TEMPLATE_TOKENS = 4
"""Tokens that a chat model's template adds to each message."""
LATER_AT_ONCE = 500
WINDOW_SHARE = 0.5
CALLS = "assistant, calling tools"
"""Role of tool calls without their results.

They are shown as data, because models reject a call without its results.
"""


async def gather_messages(request: SourceRequest) -> list[Candidate]:
    """Returns the last messages, newest first, without the query itself if the caller has appended it already.

    A session that has not begun, or that belongs to another agent or user, has no messages here.
    """
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await session_of(request, sessions)
    if session is None:
        return []
    until = None if request.body.now is None else Range("timestamp", le=request.body.now)
    where = both(sessions.said_in(session), until)
    found = await sessions.messages.find(where, order="desc", limit=request.limit + SPARE_MESSAGES)
    if found and found[0]["role"] == "user" and await _is_asked(found[0], request.body.query):
        del found[0]
    items = await off_loop(sum(len(doc["text"]) for doc in found), turn_items, session, found[::-1])
    return items[::-1]


WINDOW = 80
"""Most messages of a prompt that a model caches. As long as no message leaves its beginning, it costs little."""


async def gather_window(request: SourceRequest) -> list[Candidate]:
    """Returns the last messages, newest first, beginning at one that moves seldom: by half a window at a time, as soon
    as more messages or tokens than the window holds were said since. Between two moves messages are only added, so
    that what a model has cached of them stays good.

    The place of the beginning follows from the messages' numbers and tokens alone: it is the first message behind
    n half windows, where n is the least number that leaves a whole window at most.
    """
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await session_of(request, sessions)
    if session is None:
        return []
    most = request.limit
    where = sessions.said_in(session)
    until = None if request.body.now is None else Range("timestamp", le=request.body.now)
    found = await sessions.messages.find(both(where, until), order="desc", limit=most + SPARE_MESSAGES)
    said = session["token_count"] + TEMPLATE_TOKENS * session["message_count"]
    if request.body.now is not None:  # what was said since is no part of the prompt
        later = both(where, Range("timestamp", gt=request.body.now))
        async for docs in pages(partial(sessions.messages.find, later), MESSAGES, LATER_AT_ONCE):
            said -= sum(map(_size, docs))
    kept = _window(found, said, most, room=window_tokens(request))
    if kept and kept[0]["role"] == "user" and await _is_asked(kept[0], request.body.query):
        del kept[0]
    items = await off_loop(sum(len(doc["text"]) for doc in kept), turn_items, session, kept[::-1])
    return items[::-1]


def _window(newest_first: Sequence[Doc], said: int, most: int, room: int) -> list[Doc]:
    """Returns the messages of the window. `said`: tokens of all messages; `room`: tokens of the window."""
    if not newest_first or most <= 0 or room <= 0:
        return []
    step, part = max(1, most // 2), max(1, room // 2)
    first_seq = step * max(0, -(-(newest_first[0]["seq"] - most) // step)) + 1
    first_token = part * max(0, -(-(said - room) // part))
    kept = []
    for doc in newest_first:
        said -= _size(doc)
        if doc["seq"] < first_seq or said < first_token:
            break
        kept.append(doc)
    while kept and kept[-1]["role"] == "tool":  # the call that it answers stands before the window
        kept.pop()
    return kept


def _size(message: Doc) -> int:
    tokens: int = message["tokens"]
    return tokens + TEMPLATE_TOKENS


def window_tokens(request: SourceRequest) -> int:
    """Returns the most tokens of the turns in a prompt that a model caches."""
    bounds = request.body.sections.get("messages")
    if bounds is not None and bounds.tokens is not None:
        return bounds.tokens
    share = WINDOW_SHARE if bounds is None or bounds.share is None else bounds.share
    return int(share * request.budget)


async def _is_asked(message: Doc, query: str) -> bool:
    text: str = message["text"]
    return await off_loop(len(text) + len(query), lambda: content_hash(text) == content_hash(query))


def turn_items(session: Doc, oldest_first: Sequence[Doc]) -> list[Candidate]:
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
    role, speaker = first["role"], prompt_text.speaker(first["role"], first["name"])
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
WINDOW_SOURCE = ContextSource(
    "messages", MESSAGES_SOURCE.title, gather_window, WINDOW, share=WINDOW_SHARE, newest_first=True, turns=True
)
