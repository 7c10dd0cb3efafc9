"""Windows on a conversation: the last so many messages, or as many as fit into so many tokens."""

from dataclasses import dataclass

import orjson

from app.core import tokens
from app.core.clock import Clock, rfc3339
from app.core.process import off_loop
from app.core.prompt_fencing import entry, escape
from app.errors import InvalidCursor
from app.sessions.repository import SessionRepository
from app.sessions.schemas import render_message
from app.storage.repository import Listing
from app.storage.schema import Doc

MAX_LAST = 1000
_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Window:
    """`last` and `max_tokens` look back from the end (or `before_seq`); without them messages are paged onwards."""

    last: int | None = None
    max_tokens: int | None = None
    before_seq: int | None = None
    after_seq: int | None = None

    @property
    def looks_back(self) -> bool:
        return self.last is not None or self.max_tokens is not None


class Windows:
    def __init__(self, sessions: SessionRepository, clock: Clock) -> None:
        self._sessions, self._clock = sessions, clock

    async def messages(self, session_id: str, window: Window, limit: int, cursor: str | None) -> Doc:
        session = await self._sessions.get_unexpired(session_id, rfc3339(self._clock.now()))
        where = self._sessions.within(session, window.after_seq, window.before_seq)
        if window.looks_back:
            if cursor is not None:  # it is of a list that is paged: of another one
                raise InvalidCursor()
            found = await self._sessions.messages.find(where, order="desc", limit=window.last or MAX_LAST)
            kept = found if window.max_tokens is None else _within_tokens(found, window.max_tokens)
            return {"items": [render_message(doc) for doc in reversed(kept)], "next_cursor": None}
        listing = Listing("asc", limit, cursor)
        docs, following = await self._sessions.messages.page(where, listing, mark=repr((session_id, window)))
        return {"items": [render_message(doc) for doc in docs], "next_cursor": following}

    async def context(self, session_id: str, max_messages: int, max_tokens: int | None) -> Doc:
        """The last messages as text; older ones go first when `max_tokens` is short, which the text never exceeds."""
        session = await self._sessions.get_unexpired(session_id, rfc3339(self._clock.now()))
        where = self._sessions.within(session)
        found = await self._sessions.messages.find(where, order="desc", limit=max_messages + 1)
        characters = sum(doc["tokens"] for doc in found) * _CHARACTERS_A_TOKEN
        return await off_loop(characters, _context, session["summary"], found, max_messages, max_tokens)


def _context(summary: str | None, newest_first: list[Doc], max_messages: int, max_tokens: int | None) -> Doc:
    lines = [_line(doc["role"], content(doc)) for doc in reversed(newest_first[:max_messages])]
    kept = fit([_line("summary", summary)] if summary else [], lines, max_tokens)
    return {
        "text": kept.text,
        "messages": [
            {"seq": doc["seq"], "role": doc["role"], "name": doc["name"], "content": escape(content(doc))}
            for doc in reversed(newest_first[: kept.count])
        ],
        "summary": summary,
        "tokens": kept.tokens,
        "truncated": kept.count < len(newest_first) or not kept.whole_head,
    }


@dataclass(frozen=True, slots=True)
class Fitted:
    text: str
    tokens: int
    count: int
    """How many of the last lines are in."""
    whole_head: bool


def fit(head: list[str], lines: list[str], max_tokens: int | None) -> Fitted:
    """`head`, if there is room for it, and as many of the last `lines` as fit. `max_tokens` is a wall."""
    text = "\n".join((*head, *lines))
    size = tokens.count(text)
    if max_tokens is None or size <= max_tokens:
        return Fitted(text, size, len(lines), whole_head=True)
    if head and tokens.count("\n".join(head)) > max_tokens:
        return Fitted(*_last_that_fit([], lines, max_tokens), whole_head=False)
    return Fitted(*_last_that_fit(head, lines, max_tokens), whole_head=True)


def _last_that_fit(head: list[str], lines: list[str], max_tokens: int) -> tuple[str, int, int]:
    """Counts grow with the lines but for a token at a seam: the sum of the parts is nearly right, then put right."""
    left = max_tokens - tokens.count("\n".join(head))
    count = 0
    while count < len(lines) and (left := left - tokens.count(lines[-1 - count])) >= 0:
        count += 1
    text, size = _joined(head, lines, count)
    while size > max_tokens and count:
        count -= 1
        text, size = _joined(head, lines, count)
    while count < len(lines):
        longer, larger = _joined(head, lines, count + 1)
        if larger > max_tokens:
            break
        text, size, count = longer, larger, count + 1
    return text, size, count


def _joined(head: list[str], lines: list[str], count: int) -> tuple[str, int]:
    """`head` and the last `count` lines, and their tokens."""
    text = "\n".join((*head, *lines[len(lines) - count :]))
    return text, tokens.count(text)


def _within_tokens(newest_first: list[Doc], max_tokens: int) -> list[Doc]:
    """The newest whose tokens add up to no more than `max_tokens`, without a gap."""
    for index, doc in enumerate(newest_first):
        max_tokens -= doc["tokens"]
        if max_tokens < 0:
            return newest_first[:index]
    return newest_first


def _line(role: str, text: str) -> str:
    """`user: I moved to Boston.`, further lines indented: none of them can stand where a role stands."""
    return entry(f"{role}: ", text).removesuffix("\n")


def content(doc: Doc) -> str:
    """Its text; a message that has none shows its tool calls or its result."""
    if doc["text"]:
        return str(doc["text"])
    shown = doc["result"] if doc["result"] is not None else doc["tool_calls"]
    return "" if shown is None else orjson.dumps(shown).decode()
