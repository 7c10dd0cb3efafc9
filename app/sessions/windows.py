"""Windows on a conversation: a number of last messages, or as many as fit into a number of tokens."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.core import prompt_text
from app.core.clock import Clock, rfc3339
from app.core.prompt_text import entry, escape
from app.core.schemas import Page
from app.core.work import off_loop
from app.errors import InvalidCursor
from app.sessions.repository import SessionRepository, content
from app.sessions.schemas import MESSAGES, Message, MessageRecord, SessionContext, render_message, speaker_role
from app.storage.repository import Listing, page_of, render_items
from app.storage.schema import both

MAX_LAST = 1000
_CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Window:
    """The messages to return.

    `last` and `max_tokens` look back from the end (or from `before_seq`). Without them messages are paged forwards.
    """

    last: int | None = None
    max_tokens: int | None = None
    before_seq: int | None = None
    after_seq: int | None = None

    @property
    def looks_back(self) -> bool:
        """Whether the window ends at the newest message."""
        return self.last is not None or self.max_tokens is not None


class Windows:
    """Reads the messages of sessions for one caller."""

    def __init__(self, sessions: SessionRepository, clock: Clock) -> None:
        self._sessions, self._clock = sessions, clock

    async def messages(self, session_id: str, window: Window, limit: int, cursor: str | None) -> Page[Message]:
        """Returns a page or a window of messages, oldest first. Raises InvalidCursor for a cursor with a window."""
        session = await self._sessions.get_unexpired(session_id, rfc3339(self._clock.now()))
        where = self._sessions.within(session, window.after_seq, window.before_seq)
        if window.looks_back:
            where = both(where, self._sessions.said_in(session))
            if cursor is not None:  # a cursor belongs to a paged list
                raise InvalidCursor()
            newest_first = await self._sessions.messages.find(where, order="desc", limit=window.last or MAX_LAST)
            if window.max_tokens is not None:
                newest_first = _within_tokens(newest_first, window.max_tokens)
            items = await render_items(MESSAGES, reversed(newest_first), render_message, Message)
            return page_of(items, None)
        listing = Listing("asc", limit, cursor)
        messages, following = await self._sessions.messages.page(where, listing, request=repr((session_id, window)))
        return page_of(await render_items(MESSAGES, messages, render_message, Message), following)

    async def context(self, session_id: str, max_messages: int, max_tokens: int | None) -> SessionContext:
        """Returns the last messages as text of at most `max_tokens` tokens. Older messages are left out first."""
        session = await self._sessions.get_unexpired(session_id, rfc3339(self._clock.now()))
        where = self._sessions.said_in(session)
        newest_first = await self._sessions.messages.find(where, order="desc", limit=max_messages + 1)
        characters = sum(message["tokens"] for message in newest_first) * _CHARACTERS_A_TOKEN
        return await off_loop(characters, _context, session["summary"], newest_first, max_messages, max_tokens)


def _context(
    summary: str | None, newest_first: list[MessageRecord], max_messages: int, max_tokens: int | None
) -> SessionContext:
    newest_lines = (_line(speaker_role(message), content(message)) for message in newest_first[:max_messages])
    lines = [*as_many_as_could_fit(newest_lines, max_tokens)][::-1]
    fitted = fit([_line("summary", summary)] if summary else [], lines, max_tokens)
    return {
        "text": fitted.text,
        "messages": [
            {
                "seq": message["seq"],
                "role": speaker_role(message),
                "name": escape(" ".join((message["name"] or "").split())) or None,
                "content": escape(content(message)),
            }
            for message in reversed(newest_first[: fitted.count])
        ],
        "summary": summary,
        "tokens": fitted.tokens,
        "truncated": fitted.count < len(newest_first) or not fitted.whole_head,
    }


def as_many_as_could_fit(lines: Iterable[str], max_tokens: int | None) -> Iterator[str]:
    """Yields lines up to the first with which they have more than `max_tokens` tokens for certain: a seam takes away
    one at most. What is behind it is not even made: a hundred messages may have three million characters."""
    least = 0
    for line in lines:
        yield line
        if max_tokens is not None:
            least += prompt_text.count(line) - 1
            if least > max_tokens:
                return


@dataclass(frozen=True, slots=True)
class Fitted:
    """The text that fits. `whole_head`: the head is in it."""

    text: str
    tokens: int
    count: int
    """Number of the last lines that are included."""
    whole_head: bool


def fit(head: list[str], lines: list[str], max_tokens: int | None) -> Fitted:
    """Returns `head`, if it fits, and as many of the last `lines` as fit into `max_tokens`, which is never exceeded."""
    text = "\n".join((*head, *lines))
    size = prompt_text.count(text)
    if max_tokens is None or size <= max_tokens:
        return Fitted(text, size, len(lines), whole_head=True)
    if head and prompt_text.count("\n".join(head)) > max_tokens:
        return Fitted(*_last_that_fit([], lines, max_tokens), whole_head=False)
    return Fitted(*_last_that_fit(head, lines, max_tokens), whole_head=True)


def _last_that_fit(head: list[str], lines: list[str], max_tokens: int) -> tuple[str, int, int]:
    """Returns the text with the last lines that fit, its tokens, and the number of lines.

    A seam between lines changes the count by a token at most, so the sum of the parts is a first guess, which is then
    corrected.
    """
    left = max_tokens - prompt_text.count("\n".join(head))
    count = 0
    while count < len(lines) and (left := left - prompt_text.count(lines[-1 - count])) >= 0:
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
    """Returns `head` and the last `count` lines as text, and their tokens."""
    text = "\n".join((*head, *lines[len(lines) - count :]))
    return text, prompt_text.count(text)


def _within_tokens(newest_first: list[MessageRecord], max_tokens: int) -> list[MessageRecord]:
    """Returns the newest messages, without a gap, whose tokens add up to at most `max_tokens`."""
    for index, message in enumerate(newest_first):
        max_tokens -= message["tokens"]
        if max_tokens < 0:
            return newest_first[:index]
    return newest_first


def _line(role: str, text: str) -> str:
    """Returns a line such as `user: I moved to Boston.` Further lines are indented, so that none can pass for a
    role."""
    return entry(f"{role}: ", text).removesuffix("\n")
