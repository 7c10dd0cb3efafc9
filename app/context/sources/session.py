"""Context sources of the conversation in hand: the task, the session's summary, its last turns."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from app.context.passages import best_passage
from app.context.schemas import PromptMessage
from app.context.source import (
    Candidate,
    ContextSource,
    JudgedStatement,
    SourceRequest,
    SourceResult,
    as_said,
    latest_first,
    matching_records,
    part_of,
    same_memory,
    same_message,
    same_text,
    visible,
    visible_memories,
)
from app.context.sources.searched import interactions, memory_item
from app.core import prompt_text
from app.core.clock import parse_rfc3339, rfc3339
from app.core.served_text import strip_served
from app.core.work import characters, off_loop
from app.entities.upcoming import OWN_TIME, times_of
from app.errors import NotFound, no_such
from app.facts.outdated import Utterance
from app.findings.replacing import replaced
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES, MemoryRecord
from app.sessions.repository import SessionRepository, content
from app.sessions.schemas import SESSIONS, FunctionCall, MessageRecord, SessionRecord, ToolCall, speaker_role
from app.storage.repository import expired, unexpired
from app.storage.schema import Eq, In, Not, Or, Range, both, matches
from app.storage.search import Columns
from app.storage.text import IS_QUESTION, SAID_BY_USER, content_hash
from app.tasks.schemas import TaskRecord
from app.tasks.service import TaskRepository
from app.tasks.working_memory import cut_text, entries, select, shorten

WORKING_PART = 0.15
"""Share of the context's budget that entries are chosen for.

The section may take more (`WORKING_SOURCE`), because each line has a citation beside its text.
"""


async def gather_working(request: SourceRequest) -> SourceResult:
    """Returns what is due or planned within a day, then the entries of the task. Raises NotFound if the named
    task does not exist or belongs to others."""
    task = await _task(request)
    items = await _due_items(request, task)
    if task is not None:
        usual = part_of(request.budget, WORKING_PART)
        room = int(WORKING_SOURCE.max_tokens_in(request.body, request.budget, usual))
        items += await off_loop(characters(task), _task_items, task, room)
    return SourceResult(items)


MOST_DUE, LONGEST_DUE, WITHIN = 10, 60, timedelta(days=1)
"""Entries that are due, tokens of each, and how long before."""


async def _due_items(request: SourceRequest, in_hand: TaskRecord | None) -> list[Candidate]:
    """Returns what is due or planned within a day, the soonest first: "due 2026-12-03 08:00: Pay the bill". What
    surfaces later and what is done are left out."""
    # a caller's `now` may be the last day of all
    now, soon = rfc3339(request.now), rfc3339(min(request.now, datetime.max.replace(tzinfo=UTC) - WITHIN) + WITHIN)
    planned = both(OWN_TIME, Range("event_until", ge=now), Range("event_at", le=soon))
    tasks = TaskRepository(request.resources.store, request.scope)
    known_at = min(filter(None, (request.body.now, request.body.known_at)), default=None)
    memories, due_tasks = await asyncio.gather(
        visible_memories(request, Or((Range("due_from", le=now), planned))),
        tasks.due(request.partitions, now, soon, known_at),
    )
    due: list[tuple[str, Candidate]] = []
    for memory in memories:
        # {"plan": "2026-12-04T09:30:00.000Z", "due": …, "ends": …}; a plan of a month or a year is of no day
        times = {kind: at for at, kind in times_of(memory, now)}
        shown = [at for kind, at in times.items() if kind != "ends" and at <= soon]
        if not shown or (memory.get("surface_at") or "") > now or memory["event_at_precision"] in ("month", "year"):
            continue
        at = times.get("due", shown[0])
        of_day = "due" not in times and memory["event_at_precision"] == "day"
        prefix = f"{at[:10] if of_day else _minute(at, request)}: "
        item = Candidate(
            memory["memory_id"],
            memory["memory_type"],
            cut_text(memory["content"], LONGEST_DUE),
            prefix=f"due {prefix}" if "due" in times else prefix,
            keys=frozenset({same_memory(memory["memory_id"])}),
            memory_id=memory["memory_id"],
            utterance=Utterance.in_memory(memory),
        )
        due.append((at, item))
    for task in due_tasks:
        if task["due_at"] and task != in_hand and (task["surface_at"] or "") <= now:
            text = cut_text(f"task {task['task_id']}: {task['goal']}", LONGEST_DUE)
            prefix = f"due {_minute(task['due_at'], request)}: "
            due.append((task["due_at"], Candidate(f"{task['task_id']}:due", "goal", text, prefix=prefix)))
    due.sort(key=lambda pair: pair[0])
    return [item for _, item in due[:MOST_DUE]]


def _minute(at: str, request: SourceRequest) -> str:
    try:
        return f"{parse_rfc3339(at).astimezone(request.zone):%Y-%m-%d %H:%M}"
    except OverflowError:  # at the beginning or the end of all years
        return at[:16].replace("T", " ")


async def _task(request: SourceRequest) -> TaskRecord | None:
    tasks = TaskRepository(request.resources.store, request.scope)
    if request.body.task_id is not None:
        task = await tasks.find_one(request.body.task_id)
        if task is None or expired(task, rfc3339(request.now)) or not matches(task, request.is_own):
            raise no_such("task")
        return task
    if request.body.session_id is None:
        return None
    of_session = both(Eq("session_id", request.body.session_id), Eq("status", "in_progress"), request.is_own)
    latest = await tasks.find(both(of_session, unexpired(rfc3339(request.now))), limit=1)
    return latest[0] if latest else None


def _task_items(task: TaskRecord, room: int) -> list[Candidate]:
    """Returns the entries that `/working-memory` would choose for `room` tokens, then all others, to be packed if there
    is room. The id of an entry is such as `task_1:step/2`."""
    all_entries = entries(task)
    chosen = [line.entry for line in select(all_entries, room)]
    first = {(entry.kind, entry.index) for entry in chosen}
    others = [shorten(entry, room) for entry in all_entries if (entry.kind, entry.index) not in first]
    return [
        Candidate(
            f"{task['task_id']}:{entry.kind}" + ("" if entry.index is None else f"/{entry.index}"),
            entry.kind,
            entry.text,
        )
        for entry in (*chosen, *others)
    ]


WORKING_SOURCE = ContextSource("working", "In hand and due", gather_working, default_limit=100, share=0.3)


BEGUN_MESSAGES = 3
"""A session with fewer messages has just begun."""
LAST_TOLD = 3
"""So many of the last sessions are told at a session's start, and as many of the last interactions."""
CONSIDERED_SUMMARIES = 20
"""Number of newest sessions among which summaries are looked for."""


async def gather_summary(request: SourceRequest) -> SourceResult:
    """Returns the session's own summary. If it has just begun, returns what the last sessions came to, by their
    summaries or their own lines, and the last interactions of other days, newest first."""
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await session_of(request, sessions)
    if session is not None and session["message_count"] >= BEGUN_MESSAGES:
        return await _with_replaced(request, await _so_far(request, session))
    bounds = request.body.sections.get("summary")
    # here the limit counts sessions, and interactions apart; packing counts items
    most_told = LAST_TOLD if bounds is None or bounds.limit is None else bounds.limit
    items = await _last_sessions(request, sessions, most_told)
    if request.body.session_id is not None:  # without one, nobody knows whether a conversation begins
        told_days = {item.place[0][:10] for item in items}
        recorded = await interactions(request)
        items += [item for item in recorded if item.place[0][:10] not in told_days][:most_told]
    return await _with_replaced(request, sorted(items, key=lambda item: item.place, reverse=True))


async def _with_replaced(request: SourceRequest, items: Sequence[Candidate]) -> SourceResult:
    """Returns the items, with statements of theirs that later ones replaced: `mark_sections` marks them."""
    store, ids = request.resources.store, [item.memory_id for item in items if item.memory_id is not None]
    memories = await MemoryRepository(store, request.scope).get_many(ids)
    statements = await replaced(store, request.scope, request.viewpoint, list(memories.values()))
    return SourceResult(items, judged=[JudgedStatement.of_replaced(statement) for statement in statements])


async def session_of(request: SourceRequest, sessions: SessionRepository) -> SessionRecord | None:
    """Returns the session; None if it does not exist yet or belongs to another agent or user."""
    if request.body.session_id is None:
        return None
    try:
        session = await sessions.get_unexpired(request.body.session_id, rfc3339(request.now))
    except NotFound:
        return None
    return session if matches(session, request.is_own) else None


async def _so_far(request: SourceRequest, session: SessionRecord) -> list[Candidate]:
    """Returns the session's own summary, if it has messages before the turns that the context shows."""
    summary, body = session["summary"] or "", request.body
    shown_turns = MESSAGES_SOURCE.limit_in(body) if MESSAGES_SOURCE.is_wanted(body) else 0
    if not summary.strip() or session["message_count"] <= shown_turns:
        return []
    memories = MemoryRepository(request.resources.store, request.scope)
    memory_id = session.get("summary_id")
    memory = None if memory_id is None else await memories.find_one(memory_id)
    if body.min_trust is not None and (memory is None or memory["trust"] < body.min_trust):
        return []
    if body.now is not None and (memory is None or said_last(memory) > body.now):
        return []  # it tells turns that come after the time of the prompt
    return [_summary_item(summary, memory, "earlier in this session: ")]


async def _last_sessions(request: SourceRequest, sessions: SessionRepository, most_told: int) -> list[Candidate]:
    """Returns what the last other sessions of this agent and user came to: `most_told` of them, the latest first, each
    by its summary, or by its lines if it has ended without one.

    Sessions with other agents are outside of what this agent may see of the user. If the request names no session,
    nobody knows whether one begins, and there are no lines.
    """
    body, now = request.body, rfc3339(request.now)
    if body.user_id is None:
        return []
    other = None if body.session_id is None else Not(Eq(SESSIONS.id_field, body.session_id))
    where = both(Eq("agent_id", body.agent_id), Eq("user_id", body.user_id), unexpired(now))
    recent = await sessions.find(both(where, other), limit=CONSIDERED_SUMMARIES)
    by_id = await MemoryRepository(request.resources.store, request.scope).get_many(
        [memory_id for session in recent if (memory_id := session.get("summary_id"))]
    )
    summaries = {
        memory_id: memory
        for memory_id, memory in by_id.items()
        if memory["status"] == "active"
        and not expired(memory, now)
        and said_last(memory) <= now
        and (body.min_trust is None or memory["trust"] >= body.min_trust)
    }
    told = list[tuple[str, list[Candidate]]]()
    for memory in summaries.values():
        prefix = f"session of {request.day(said_last(memory))}: "
        told.append((said_last(memory), [_summary_item(memory["content"], memory, prefix)]))
    if body.session_id is not None:
        ended = [
            session
            for session in recent
            if session.get("summary_id") not in summaries
            and session["status"] == "ended"
            and session["memorize"] != "none"
            and "" < (session["last_message_at"] or "") <= now
        ]
        ended.sort(key=lambda session: (session["last_message_at"] or "", session["session_id"]), reverse=True)
        told += [(lines[0].place[0], lines) for lines in await _last_lines(request, ended[:most_told])]
    told.sort(key=lambda pair: pair[0], reverse=True)
    return [item for _, items in told[:most_told] for item in items]


# The own lines of a session that nobody summed up. A line is the memory of a message, so what was forgotten, replaced
# or is not trusted enough is none, and a prompt that shows it does not repeat it. The lines are the longest statements
# of the user: beside "The van's in for its MOT on Friday", "Ta" stands for nothing.

LINES = 3
"""Lines of a session. In 14 lives that nothing was fitted on, the three longest hold .71 of the statements that later
questions needed, the first three .65, and the three whose vectors are nearest to the mean of all .68."""

LONGEST_LINE = 40
"""Maximum tokens of a line; of a longer message its beginning is shown."""


async def _last_lines(request: SourceRequest, sessions: Sequence[SessionRecord]) -> list[list[Candidate]]:
    """Returns the lines of each session that has some, with places that show the latest session first and each session
    in the order of its talk."""
    partitions = request.scope.partitions(request.body.agent_id, request.body.user_id, include_shared=False)
    if not sessions or not partitions:
        return []
    where, keep = visible(request)
    ended_at = {session["session_id"]: str(session["last_message_at"]) for session in sessions}

    def longest_statements(columns: Columns) -> NDArray[Any]:
        is_statement = (columns.flags & SAID_BY_USER != 0) & (columns.flags & IS_QUESTION == 0)
        spoken = np.flatnonzero(columns.matched & is_statement & (columns.session >= 0))
        longest_first = spoken[np.argsort(-columns.length[spoken], kind="stable")]
        of_session = columns.session[longest_first]
        return np.concatenate([longest_first[of_session == one][:LINES] for one in np.unique(of_session)] or [spoken])

    where = both(where, In("source.session_id", tuple(ended_at)), Eq("memory_type", "message"))
    lines: dict[str, list[Candidate]] = {}
    for memory in await matching_records(request, MEMORIES, where, partitions, longest_statements):
        if (session_id := memory["source"]["session_id"]) in ended_at and (keep is None or keep(memory)):
            item = memory_item(memory, best_passage(memory["content"], {}, LONGEST_LINE), None, request)
            assert item.heading is not None
            # the section shows the latest place first: the later session, and of a session the smaller number
            heading, place = replace(item.heading, conversation=False), (ended_at[session_id], -item.place[1])
            lines.setdefault(session_id, []).append(replace(item, heading=heading, place=place))
    return list(lines.values())


def said_last(memory: MemoryRecord) -> str:
    """Returns the time of the last message that the summary covers."""
    return memory["event_at"] or memory["created_at"]


def _summary_item(text: str, memory: MemoryRecord | None, prefix: str) -> Candidate:
    """Returns a summary. `memory`: the one that has it; None: it stands in the session alone."""
    if memory is None:
        return Candidate("summary", "summary", text, prefix=prefix, keys=frozenset({same_text(text)}))
    memory_id = memory["memory_id"]
    return Candidate(
        memory_id,
        "summary",
        text,
        prefix=prefix,
        keys=frozenset({same_text(text), same_memory(memory_id)}),
        memory_id=memory_id,
        place=(said_last(memory), 0),
        utterance=Utterance.in_memory(memory),
    )


SUMMARY_SOURCE = ContextSource(
    "summary",
    "Earlier conversations",
    gather_summary,
    default_limit=(LINES + 1) * LAST_TOLD,  # the lines of each session, and as many interactions as sessions
    share=0.1,
    order=latest_first,
    gets_marks=True,
)


SPARE_MESSAGES = 3
"""Added to the limit, for messages that are the query itself, are empty or do not fit."""
CALLS = "assistant, calling tools"
"""Role of tool calls without their results.

They are shown as data, because models reject a call without its results.
"""


async def gather_messages(request: SourceRequest) -> SourceResult:
    """Returns the last messages, newest first, without the query itself if the caller has appended it already.

    A session that has not begun, or that belongs to another agent or user, has no messages here.
    """
    sessions = SessionRepository(request.resources.store, request.scope)
    session = await session_of(request, sessions)
    if session is None:
        return SourceResult()
    until = None if request.body.now is None else Range("timestamp", le=request.body.now)
    where = both(sessions.undeleted(session), until)
    newest_first = await sessions.messages.find(where, order="desc", limit=request.limit + SPARE_MESSAGES)
    if newest_first and newest_first[0]["role"] == "user":
        text, query = newest_first[0]["text"], request.body.query
        if await off_loop(len(text) + len(query), lambda: content_hash(text) == content_hash(query)):
            newest_first = newest_first[1:]
    length = sum(len(message["text"]) for message in newest_first)
    return SourceResult((await off_loop(length, turn_items, session, newest_first[::-1]))[::-1])


def turn_items(session: SessionRecord, oldest_first: Sequence[MessageRecord]) -> list[Candidate]:
    """Returns the messages as turns."""
    items = (_turn_item(session, messages) for messages in with_results(oldest_first))
    return [item for item in items if item is not None]


def with_results(oldest_first: Sequence[MessageRecord]) -> list[Sequence[MessageRecord]]:
    """Groups messages: a tool call stays with its results if all of them follow at once; others are alone, and so is a
    call with two ids that are alike."""
    groups, at = list[Sequence[MessageRecord]](), 0
    while at < len(oldest_first):
        called = [call.get("id") or "" for call in oldest_first[at]["tool_calls"] or ()]
        following = oldest_first[at + 1 : at + 1 + len(called)]
        answered = [message["tool_call_id"] or "" for message in following if message["role"] == "tool"]
        told_apart = len(set(called)) == len(called) or not any(called)  # calls without ids are answered in their order
        has_results = told_apart and sorted(answered) == sorted(called)
        size = 1 + len(called) if has_results else 1
        groups.append(oldest_first[at : at + size])
        at += size
    return groups


def _turn_item(session: SessionRecord, messages: Sequence[MessageRecord]) -> Candidate | None:
    """Returns a message, or a call with its results, as one turn. Returns None for a message that contains nothing but
    text that this service rendered."""
    first, *results = messages
    role: str = speaker_role(first)
    speaker = prompt_text.speaker(role, first["name"])
    if results:
        # text, calls and results, each on its own line; further lines are indented, so that none passes for a result
        parts = [_quoted(first["text"]), *map(_tool_call, first["tool_calls"] or ())]
        parts += [f"tool: {_quoted(content(result))}" for result in results]
        speaker = f"{speaker} with tools"
        text = "\n".join("\n  ".join(part.splitlines()) for part in parts if part)
    else:
        text = _quoted(content(first))
        role = CALLS if first["tool_calls"] and not first["text"] else role
    if not text:
        return None
    keys = frozenset(same_message(session["session_id"], message["seq"]) for message in messages)
    turns = _as_chat(first, results) if results else ()
    return Candidate(first["message_id"], "message", text, None, f"{speaker}: ", keys, role=role, turns=turns)


def _tool_call(call: ToolCall) -> str:
    """Returns a tool call as text, such as `calls now({})`."""
    function = call.get("function")
    if function is None:
        return f"calls {orjson.dumps(call).decode()}"
    return f"calls {function['name']}({_arguments(function)})"


def _arguments(function: FunctionCall) -> str:
    """Returns the arguments as JSON. Some models give an object."""
    arguments = function.get("arguments") or {}
    return arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()


def _as_chat(first: MessageRecord, results: Sequence[MessageRecord]) -> tuple[PromptMessage, ...]:
    """Returns the messages as OpenAI clients send them: the call, then one message for each result. Calls without ids
    get some: `call_7_0`."""
    calls = [_as_openai(call, f"call_{first['seq']}_{at}") for at, call in enumerate(first["tool_calls"] or ())]
    call: PromptMessage = {
        "role": "assistant",
        "content": _quoted(first["text"]) or None,
        "tool_calls": calls,
    }
    answers: list[PromptMessage] = [
        {
            "role": "tool",
            "tool_call_id": result["tool_call_id"] or made["id"] or "",
            "content": _quoted(content(result)),
        }
        for made, result in zip(calls, results, strict=True)
    ]
    return call, *answers


def _as_openai(call: ToolCall, call_id: str) -> ToolCall:
    made: ToolCall = {**call, "id": call.get("id") or call_id}
    function = call.get("function")
    if function is not None:
        made["function"] = {**function, "arguments": _arguments(function)}
        made["type"] = call.get("type") or "function"  # Ollama sends none, and OpenAI refuses a call without one
    return made


def _quoted(text: str) -> str:
    """Returns the text without blocks that this service rendered."""
    return strip_served(text).strip()


MESSAGES_SOURCE = ContextSource(
    "messages",
    "Recent messages",
    gather_messages,
    default_limit=10,
    share=0.35,
    order=as_said,
    holds_turns=True,
)
