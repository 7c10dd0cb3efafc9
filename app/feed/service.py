"""Reads the change log for callers: page by page, or as a stream of server-sent events.

A stream keeps no queue: it reads a page, waits until the client has taken it, and reads the next one. A client that is
slow therefore holds up nobody, and falls behind in the log only.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, cast

import orjson
from pydantic import Field, with_config
from typing_extensions import TypeAliasType, TypedDict

from app.core.clock import Clock
from app.core.schemas import Count, Json, example, shown
from app.errors import ChangesOff, RecalldError
from app.storage.change_log import LogEntry, LogPage, Position
from app.storage.protocol import Store, start_stopwatch
from app.storage.repository import open_cursor, seal_cursor
from app.storage.schema import After, Eq, Filter, In, Not, Or, both
from app.storage.scope import Scope
from app.views import RecordReader, ShownRecord

NOW = "now"
"""In place of a cursor: the end of the log."""
STREAMED = 500
"""Entries that a stream reads at once."""
PIECE_BYTES = 256 * 1024
"""About how much of a page a stream hands over at once. A slow reader takes seconds over a page of long records, and
its key may be revoked meanwhile."""
LOOKS = 20
"""How often a page that matches seldom is read on before it is answered with what it has."""
RETRY_MS = 1_000
WAIT_SECONDS = 0.5
"""How often a stream looks, at least, whether the service shuts down and whether its key is still valid."""
READ_EVERY_SECONDS = 0.05
"""Shortest time between two reads of a stream that has reached the end: many commits are read at once."""
HEARTBEAT_SECONDS = 15.0
"""How often an idle stream sends a comment."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader asks for. Empty: all."""

    agent_id: str | None = None
    user_id: str | None = None
    kinds: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    records: bool = False

    def filter(self) -> Filter:
        """Returns the filter. An `erased` entry has no owner, and concerns readers of every kind and owner."""
        named = both(
            None if self.agent_id is None else Eq("agent_id", self.agent_id),
            None if self.user_id is None else Eq("user_id", self.user_id),
            In("kind", self.kinds) if self.kinds else None,
        )
        return both(Or((Eq("type", "erased"), named)), In("type", self.types) if self.types else None)


ChangedKind = TypeAliasType(
    "ChangedKind",
    Literal[
        "memory",
        "document",
        "session",
        "message",
        "task",
        "checkpoint",
        "action",
        "fact",
        "alias",
        "procedure",
        "profile",
        "agent",
        "finding",
    ],
)
RecordChangeType = TypeAliasType("RecordChangeType", Literal["created", "updated", "deleted", "erased"])
ChangedRecord = TypeAliasType("ChangedRecord", Mapping[str, Any])


_EXAMPLE: Json = {
    "cursor": "q0H8bWd3tW9bMTcsIjVmMWMwYTJlOWI3ZCJd",
    "kind": "memory",
    "id": "mem_01a2003d395076f9a13acea58faaf745",
    "type": "created",
    "agent_id": "support",
    "user_id": "ada",
    "version": 1,
    "at": "2026-06-01T12:00:00.000Z",
}
PAGE_EXAMPLE: Json = {"items": [_EXAMPLE], "next_cursor": None, "cursor": _EXAMPLE["cursor"]}


@shown
@with_config(example(_EXAMPLE))
class RecordChange(TypedDict):
    """A change of one record."""

    cursor: Annotated[str, Field(description="Its place in the log: pass it as `after` to go on behind it.")]
    kind: ChangedKind
    id: Annotated[str | None, Field(description="The id of the record; null in an `erased` entry, which names nobody.")]
    type: RecordChangeType
    agent_id: str | None
    user_id: str | None
    version: Annotated[
        Count | None,
        Field(
            description="The record's version after the change, or its last one. Messages and checkpoints have none."
        ),
    ]
    at: Annotated[str, Field(description="When it was committed (RFC 3339).")]
    record: NotRequired[
        Annotated[
            ChangedRecord | None,
            Field(
                default=None,
                description="With `include=record`: the record as it is now; null if it is gone or cannot be read.",
            ),
        ]
    ]


@shown
class ChangePage(TypedDict):
    items: list[RecordChange]
    next_cursor: Annotated[
        str | None, Field(default=None, description="Pass as `after` for the next page; null if there is none now.")
    ]
    cursor: Annotated[
        str, Field(description="Where this page ends, never null: pass it as `after` to read what comes later.")
    ]


class ChangeFeed:
    """The changes that a caller may see: those of records that it may read."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        clock: Clock,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        """Raises ChangesOff if no changes are logged."""
        self._heartbeat = heartbeat
        self._scope, self._log = scope, store.change_log
        self._reader = RecordReader(store, scope, clock)
        if not self._log.options.enabled:
            raise ChangesOff("The operator keeps no log of changes: RECALLD_CHANGES_RETENTION_HOURS is 0.")

    async def position(self, after: str | None) -> Position | None:
        """Returns the position of a cursor, of `now`, or None for the oldest change. Raises InvalidCursor."""
        if after is None:
            return None
        if after == NOW:
            return await self._log.end(self._scope.tenant)
        place = open_cursor(after, self._request, int)
        return Position(place.id, int(place.value))

    async def page(self, after: Position | None, wanted: Wanted, limit: int) -> ChangePage:
        """Returns a page of changes, the oldest first. Raises ChangesLost."""
        page = await self._read(after, wanted, limit)
        items = await self._rendered(page, wanted)
        for _ in range(LOOKS):
            if len(items) == limit or not page.more:
                break
            page = await self._read(page.position, wanted, limit - len(items))
            items += await self._rendered(page, wanted)
        cursor = self._cursor(page.position)
        return {"items": items, "next_cursor": cursor if page.more else None, "cursor": cursor}

    async def events(
        self,
        after: Position | None,
        wanted: Wanted,
        *,
        ending: Callable[[], bool],
        allowed: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[bytes]:
        """Yields changes as server-sent events until `ending`, or until the caller is not `allowed` any more.

        Raises nothing: an error ends the stream with an event `error`, whose data are the code and the detail.
        """
        now = asyncio.get_running_loop().time
        yield b"retry: %d\n\n" % RETRY_MS
        sent = read = now()
        with self._log.watch.reading(self._scope.tenant) as changed:
            while not ending():
                start_stopwatch()  # each read has a deadline of its own
                changed.clear()
                try:
                    page = await self._read(after, wanted, STREAMED)
                    changes = await self._rendered(page, wanted)
                except RecalldError as error:
                    yield _event("error", {"code": error.code, "detail": error.detail})
                    return
                read, after = now(), page.position
                if not await allowed():  # at each turn, before what was read is told: a key may be revoked meanwhile
                    return
                for number, piece in enumerate(_pieces(changes)):
                    if number and not await allowed():
                        return
                    yield piece
                    sent = now()
                if page.more:
                    await asyncio.sleep(0)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_SECONDS):
                        await changed.wait()
                if now() - sent >= self._heartbeat:
                    # an id without data: the client's place moves on past changes that it did not ask for
                    yield b": alive\nid: %s\n\n" % self._cursor(after).encode()
                    sent = now()
                await asyncio.sleep(max(0.0, READ_EVERY_SECONDS - (now() - read)))

    async def _read(self, after: Position | None, wanted: Wanted, limit: int) -> LogPage:
        # that somebody else was erased concerns nobody who is bound
        seen = both(wanted.filter(), self._scope.visible(), Not(Eq("type", "erased")) if self._scope.is_bound else None)
        return await self._log.page(self._scope.tenant, after, seen, limit=limit)

    async def _rendered(self, page: LogPage, wanted: Wanted) -> list[RecordChange]:
        records = await self._records(page.entries) if wanted.records else None
        return [self._change(entry, page.position.log, records) for entry in page.entries]

    def _change(self, entry: LogEntry, log: str, records: Mapping[tuple[str, str], ShownRecord] | None) -> RecordChange:
        change: RecordChange = {
            "cursor": self._cursor(Position(log, entry.seq)),
            "kind": cast(ChangedKind, entry.kind),
            "id": entry.id,
            "type": entry.type,
            "agent_id": entry.agent_id,
            "user_id": entry.user_id,
            "version": entry.version,
            "at": entry.at,
        }
        if records is not None:
            change["record"] = None if entry.id is None else records.get((entry.kind, entry.id))
        return change

    async def _records(self, entries: Sequence[LogEntry]) -> dict[tuple[str, str], ShownRecord]:
        """Returns the records of the entries as they are now, by kind and id, as far as the caller may read them."""
        wanted: defaultdict[str, list[str]] = defaultdict(list)
        for entry in entries:
            if entry.id is not None:
                wanted[entry.kind].append(entry.id)
        return {
            (kind, record_id): record
            for kind, ids in wanted.items()
            for record_id, record in (await self._reader.read(kind, ids)).items()
        }

    @property
    def _request(self) -> str:
        return repr((self._scope.tenant, "changes"))

    def _cursor(self, position: Position) -> str:
        return seal_cursor(After(position.seq, position.log), self._request)


def _pieces(changes: Sequence[RecordChange]) -> Iterator[bytes]:
    """Yields the changes as events, whole ones, about `PIECE_BYTES` at once."""
    piece = bytearray()
    for change in changes:
        piece += _event(None, change, change["cursor"])
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _event(name: str | None, data: Mapping[str, object], cursor: str | None = None) -> bytes:
    lines = [b"event: %s\n" % name.encode() if name else b"", b"id: %s\n" % cursor.encode() if cursor else b""]
    return b"".join([*lines, b"data: ", orjson.dumps(data), b"\n\n"])
