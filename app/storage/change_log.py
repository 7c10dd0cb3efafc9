"""The change log: which records were created, updated and deleted, in the order of the commits.

An entry is part of the commit that it tells of. It has no text of the record: readers get the id, and may read the
record. Each tenant has a log of its own, with numbers that rise. A log has an id: a log that begins anew has another.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

from app.core import work
from app.core.clock import Clock, SystemClock, rfc3339
from app.errors import ChangesLost, RecalldError
from app.storage.changes import Allocate, Change, Insert, Update, WithinQuota
from app.storage.schema import EVERYTHING, Collection, Doc, Filter

ChangeType: TypeAlias = Literal["created", "updated", "deleted", "erased"]

CHANGES = Collection(
    name="changes",
    id_field="id",
    fields={"kind": "text", "type": "text", "agent_id": "text", "user_id": "text", "at": "time", "seq": "number"},
    order="seq",
    audited=False,
)
"""The declaration by which filters of the log are read. Engines store the log in tables of their own: it is no
collection of the service, and so neither exported nor migrated."""

PROFILE = "profile"
LOOK_SECONDS = 0.5
"""How often a process looks for commits of others, while somebody waits for them."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How long changes are kept, in hours, 0 for no log; and the clock that times them."""

    hours: float = 72.0
    clock: Clock = field(default_factory=SystemClock)
    scanned: int = 5_000
    """Entries that one page looks at. A page of a filter that matches seldom may be empty and yet not the last one."""

    @property
    def enabled(self) -> bool:
        """Whether changes are logged."""
        return self.hours > 0

    def oldest(self) -> str:
        """Returns the time (RFC 3339) before which entries are dropped."""
        return rfc3339(self.clock.now() - timedelta(hours=self.hours))

    def stamp(self, changes: Sequence[Change]) -> str | None:
        """Returns the time for the entries of a list of changes; None if it needs none."""
        if not self.enabled or not any(_logged(change) for change in changes):
            return None
        return self.stamp_now()

    def stamp_now(self) -> str:
        return rfc3339(self.clock.now())


def _logged(change: Change) -> bool:
    return not isinstance(change, Allocate | WithinQuota) and change.collection.kind is not None


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a tenant's log: the number of the last entry seen. `log` is the id of the log, empty for one that has
    no entry yet."""

    log: str
    seq: int


class LogEntry(NamedTuple):
    """A change of one record. An `erased` entry has neither id nor owners: records of a user were erased."""

    tenant: str
    kind: str
    id: str | None
    type: ChangeType
    agent_id: str | None
    user_id: str | None
    version: int | None
    """The version of the record after the change; of a deleted one, the last one. Messages have none."""
    at: str
    seq: int = 0


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries, the position after which to go on, and whether there is more now."""

    entries: list[LogEntry]
    position: Position
    more: bool

    @classmethod
    def read(cls, head: "Head", entries: list[LogEntry], upto: int, limit: int) -> "LogPage":
        """Returns the page of the first `limit` entries up to the number `upto`."""
        reached = entries[-1].seq if len(entries) == limit else upto
        return cls(entries, Position(head.log, reached), more=reached < head.last)


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a tenant's log. Entries up to the number `floor` were dropped."""

    log: str = ""
    last: int = 0
    floor: int = 0

    def start(self, after: Position | None) -> int:
        """Returns the number after which to read. Raises ChangesLost if changes after the position are gone."""
        if after is None:
            return self.floor
        if after.log not in ("", self.log) or not self.floor <= after.seq <= self.last:
            raise ChangesLost(
                "Changes after this position are no longer in the log, or were never in it: read the records anew, and "
                "then the changes with after=now or without a position."
            )
        return after.seq


class ChangeNotes:
    """Collects the entries of one commit: one for each record, whatever the list does to it; none if `at`, the time of
    the entries, is None.

    An update counts if it raises the version of the record. Counts, accesses, decay, embeddings and appended children
    leave the version as it is. Messages have no version: each of their updates counts, and one that leaves only a
    tombstone is a deletion.
    """

    def __init__(self, at: str | None) -> None:
        self._at = at
        self._entries: dict[tuple[str, str, str], LogEntry] = {}

    def takes(self, collection: Collection) -> bool:
        """Returns whether changes of the collection are noted."""
        return self._at is not None and collection.kind is not None

    def created(self, collection: Collection, doc: Doc) -> None:
        """Notes the insert of a document."""
        self._note(collection, doc, "created")

    def updated(self, collection: Collection, doc: Doc, change: Update) -> None:
        """Notes an update. `doc` is the document after it."""
        if "version" in doc:
            if "version" in change.inc or "version" in change.set:
                self._note(collection, doc, "updated")
        elif change.set:
            self._note(collection, doc, "deleted" if change.set.get("deleted_at") is not None else "updated")

    def deleted(self, collection: Collection, doc: Mapping[str, Any]) -> None:
        """Notes a deletion. Of the document only the id, the tenant, the owners and the version are read."""
        self._note(collection, doc, "deleted")

    def _note(self, collection: Collection, doc: Mapping[str, Any], change_type: ChangeType) -> None:
        if self._at is None or collection.kind is None:
            return
        tenant, record = doc["tenant_id"], str(doc[collection.id_field])
        key, owners = (tenant, collection.name, record), (doc.get("agent_id"), doc.get("user_id"))
        before = self._entries.get(key)
        # what two changes of a record in one commit are together
        if before is not None and before.type == "created":
            if change_type == "deleted":
                del self._entries[key]  # nobody ever saw it
                return
            change_type = "created"
        elif before is not None and before.type == "deleted" and change_type == "created":
            change_type = "updated"
        self._entries[key] = LogEntry(
            tenant, collection.kind, record, change_type, *owners, doc.get("version"), self._at
        )

    def by_tenant(self) -> dict[str, list[LogEntry]]:
        entries: defaultdict[str, list[LogEntry]] = defaultdict(list)
        for entry in self._entries.values():
            entries[entry.tenant].append(entry)
        return entries


def erased(tenant: str, at: str) -> LogEntry:
    """Returns the entry that stands for those of an erased user."""
    return LogEntry(tenant, PROFILE, None, "erased", None, None, None, at)


STEP = 1_000
"""Entries that one transaction numbers, drops or looks through, so that others can write in between."""


def first_old(entries: Sequence[tuple[int, str]], oldest: str) -> list[int]:
    """Returns the numbers of the first entries of a log, (number, time) each, that are older than a time.

    What lies behind a younger one waits for it, so that a log has no hole in its middle.
    """
    return [seq for seq, _ in takewhile(lambda entry: entry[1] < oldest, entries)]


class ChangeLog(ABC):
    """The log of an engine, which reads and writes its own tables. Every method raises StoreUnavailable."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self.watch = LogWatch(self._mark)
        """Tells readers of new entries."""

    @abstractmethod
    async def page(
        self, tenant: str, after: Position | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> LogPage:
        """Returns the entries after a position that match, the oldest first; with None from the oldest one.

        Every commit that was acknowledged before the call is in the log. Raises ChangesLost if the log no longer goes
        back to the position.
        """

    async def end(self, tenant: str) -> Position:
        """Returns the position of the last entry."""
        head = await self._current(tenant)
        return Position(head.log, head.last)

    @abstractmethod
    async def names(self, tenant: str, user: str) -> bool:
        """Returns whether an entry names the user."""

    @abstractmethod
    async def forget(self, tenant: str, user: str) -> None:
        """Removes the entries that name the user. If there were any, one `erased` entry is added."""

    @abstractmethod
    async def has_expired(self) -> bool:
        """Returns whether `prune` would drop anything. Only reads."""

    async def prune(self) -> int:
        """Drops entries that are older than the retention, of all tenants. Returns how many."""
        oldest, dropped = self.options.oldest(), 0
        for tenant in await self._expired(oldest):
            while step := await self._drop(tenant, oldest):
                dropped += step
        return dropped

    @abstractmethod
    async def _current(self, tenant: str) -> Head:
        """Returns the head after every commit that was acknowledged before."""

    @abstractmethod
    async def _mark(self, tenant: str) -> object:
        """Returns a value that is another one after each commit to the tenant's log. It only reads."""

    @abstractmethod
    async def _expired(self, oldest: str) -> list[str]:
        """Returns the tenants whose logs may have entries of before a time."""

    @abstractmethod
    async def _drop(self, tenant: str, oldest: str) -> int:
        """Drops the `first_old` of the first `STEP` entries, and raises the floor. Returns how many."""


class LogWatch:
    """Wakes readers after commits: of this process at once, of others within `LOOK_SECONDS`.

    Nothing is kept for a reader: it is woken, and reads the log. Nobody looks while nobody reads.
    """

    def __init__(self, mark: Callable[[str], Awaitable[object]]) -> None:
        """`mark` returns a value that is another one after each commit to a tenant's log. It only reads."""
        self._mark = mark
        self._readers: dict[str, list[asyncio.Event]] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def reading(self, tenant: str) -> Iterator[asyncio.Event]:
        """Yields an event that each commit to the tenant's log sets. A reader clears it before it reads the log: what
        is committed later sets it again."""
        changed = asyncio.Event()
        self._readers.setdefault(tenant, []).append(changed)
        if self._looking is None or self._looking.done():
            self._looking = work.begin(self._look(), "change log")
        try:
            yield changed
        finally:
            self._readers[tenant].remove(changed)
            if not self._readers[tenant]:
                del self._readers[tenant]

    def readers(self, tenant: str) -> int:
        """Returns how many read the tenant's log now."""
        return len(self._readers.get(tenant, ()))

    def committed(self, changes: Sequence[Change]) -> None:
        """Wakes the readers of the tenants whose records this process has changed."""
        if self._readers:
            for change in filter(_logged, changes):
                self._tell(str(change.doc["tenant_id"] if isinstance(change, Insert) else change.tenant))

    def _tell(self, tenant: str) -> None:
        for changed in self._readers.get(tenant, ()):
            changed.set()

    async def close(self) -> None:
        """Ends the looking."""
        await work.end(self._looking)

    async def _look(self) -> None:
        marks: dict[str, object] = {}
        while self._readers:
            await asyncio.sleep(LOOK_SECONDS)
            marks = {tenant: marks.get(tenant) for tenant in self._readers}
            for tenant, known in marks.copy().items():
                with suppress(RecalldError):  # the readers meet the error themselves
                    marks[tenant] = await self._mark(tenant)
                    if marks[tenant] != known:
                        self._tell(tenant)
