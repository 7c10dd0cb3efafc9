"""The change log in MongoDB: a commit leaves its entries without a number, and whoever reads first numbers them.

A number that each transaction took would make all writers of a tenant wait for each other. A number by the clock would
need a pause before it can be read, as long as the longest transaction. So a commit adds entries with the server's
logical time (`op`) at which it wrote. A later transaction takes the entries that are visible, in the order of that
time, and gives them the next numbers; readers see numbered entries only. Two such transactions conflict, and one is
tried again.

The order is right. A commit that was acknowledged before another began has the lower time, and whoever sees the second
sees the first. Of two that change one record, the second can write only if it began to read when the first was
committed, and the time of its entries is that of an answer to such a read. See decision 22.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import uuid4

from bson import Timestamp
from bson.int64 import Int64
from bson.objectid import ObjectId
from pymongo import ReturnDocument, UpdateOne
from pymongo.read_concern import ReadConcern

from app.storage.change_log import (
    CHANGES,
    STEP,
    ChangeLog,
    Head,
    LogEntry,
    LogOptions,
    LogPage,
    Position,
    erased,
    first_old,
)
from app.storage.mongo import codec
from app.storage.mongo.bulk import TransactionWrites
from app.storage.mongo.codec import Stored
from app.storage.mongo.connection import CHANGE_HEADS, CHANGE_LOG, Database, MongoSession
from app.storage.mongo.transactions import TransactionRunner
from app.storage.schema import EVERYTHING, Filter

NEVER = Timestamp(0, 0)
PENDING = {"pending": True}


def stored(entry: LogEntry, op: Timestamp) -> Stored:
    """Returns a new entry as it is stored, without a number."""
    return {
        "_id": ObjectId(),
        "tenant_id": entry.tenant,
        **PENDING,
        "op": op,
        "kind": entry.kind,
        "id": entry.id,
        "type": entry.type,
        "agent_id": entry.agent_id,
        "user_id": entry.user_id,
        "version": None if entry.version is None else Int64(entry.version),
        "at": entry.at,
    }


def append(writes: TransactionWrites, entries: Iterable[LogEntry]) -> None:
    """Adds the entries of a commit to its writes, the last ones. The transaction has read something, so that its
    snapshot is not newer than the time that its entries get."""
    op = writes.session.operation_time or NEVER
    for entry in entries:
        writes.insert(CHANGE_LOG, stored(entry, op))


class MongoChangeLog(ChangeLog):
    """The log in MongoDB. Its reads see what a majority has, so that no number is ever taken back."""

    def __init__(
        self,
        database: Database,
        timely: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
        runner: TransactionRunner,
        options: LogOptions,
    ) -> None:
        """`timely` runs a call of the driver within the deadline of a request."""
        super().__init__(options)
        self._database, self._timely, self._runner = database, timely, runner
        durable = ReadConcern("majority")
        self._entries = database.get_collection(CHANGE_LOG, read_concern=durable)
        self._heads = database.get_collection(CHANGE_HEADS, read_concern=durable)

    async def begin(self) -> None:
        """Empties the log if no changes are logged: what is committed now will be missing in it."""
        if not self.options.enabled and await self._heads.find_one({}, {"_id": 1}):
            await self._heads.delete_many({})
            await self._entries.delete_many({})

    async def page(
        self, tenant: str, after: Position | None, where: Filter = EVERYTHING, *, limit: int = 100
    ) -> LogPage:
        async def read() -> LogPage:
            head = await self._head(tenant)
            start = head.start(after)
            upto = min(head.last, start + self.options.scanned)
            wanted = codec.all_of(
                {"tenant_id": tenant, "seq": {"$gt": Int64(start), "$lte": Int64(upto)}}, codec.where(CHANGES, where)
            )
            entries = await self._entries.find(wanted).sort("seq", 1).limit(limit).to_list()
            (await self._head(tenant)).start(Position(head.log, start))  # nothing of it was dropped meanwhile
            return LogPage.read(head, [_entry(entry) for entry in entries], upto, limit)

        await self._number(tenant)
        page: LogPage = await self._timely(read)
        return page

    async def _current(self, tenant: str) -> Head:
        await self._number(tenant)
        head: Head = await self._timely(lambda: self._head(tenant))
        return head

    async def _head(self, tenant: str) -> Head:
        stored = await self._heads.find_one({"_id": tenant})
        return Head() if stored is None else Head(stored["log"], int(stored["last"]), int(stored["floor"]))

    async def _mark(self, tenant: str) -> object:
        async def look() -> tuple[Any, int]:
            newest = await self._entries.find_one({"tenant_id": tenant, **PENDING}, {"_id": 1}, sort=[("op", -1)])
            return newest and newest["_id"], (await self._head(tenant)).last

        return await self._timely(look)

    async def _number(self, tenant: str) -> None:
        """Numbers all entries that are committed now."""
        pending = {"tenant_id": tenant, **PENDING}

        async def number_some(session: MongoSession) -> None:
            entries, sorted_by = self._database[CHANGE_LOG], [("op", 1), ("_id", 1)]
            unnumbered = entries.find(pending, {"_id": 1}, session=session).sort(sorted_by).limit(STEP)
            ids = [entry["_id"] for entry in await unnumbered.to_list()]
            if not ids:
                return
            head = await self._database[CHANGE_HEADS].find_one_and_update(
                {"_id": tenant},
                {
                    "$inc": {"last": Int64(len(ids))},
                    "$setOnInsert": {"log": uuid4().hex[:12], "floor": Int64(0)},
                },
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            assert head is not None
            first = int(head["last"]) - len(ids) + 1
            writes = [
                UpdateOne({"_id": entry}, {"$set": {"seq": Int64(seq)}, "$unset": {"pending": ""}})
                for seq, entry in enumerate(ids, first)
            ]
            await entries.bulk_write(writes, ordered=True, session=session)

        while await self._timely(lambda: self._entries.find_one(pending, {"_id": 1})):
            await self._runner.in_transaction(number_some, [f"changes {tenant}"])

    async def names(self, tenant: str, user: str) -> bool:
        wanted = {"tenant_id": tenant, "user_id": user}
        return await self._timely(lambda: self._entries.find_one(wanted, {"_id": 1})) is not None

    async def forget(self, tenant: str, user: str) -> None:
        async def replace(session: MongoSession) -> None:
            entries = self._database[CHANGE_LOG]
            gone = await entries.delete_many({"tenant_id": tenant, "user_id": user}, session=session)
            if gone.deleted_count:
                mark = erased(tenant, self.options.stamp_now())
                await entries.insert_one(stored(mark, session.operation_time or NEVER), session=session)

        await self._runner.in_transaction(replace, [f"changes {tenant}"])

    async def has_expired(self) -> bool:
        wanted = {"at": {"$lt": self.options.oldest()}}
        return await self._timely(lambda: self._entries.find_one(wanted, {"_id": 1})) is not None

    async def _expired(self, oldest: str) -> list[str]:
        tenants: list[str] = await self._timely(lambda: self._entries.distinct("tenant_id", {"at": {"$lt": oldest}}))
        return tenants

    async def _drop(self, tenant: str, oldest: str) -> int:
        async def drop() -> int:
            wanted = {"tenant_id": tenant, "seq": {"$exists": True}}
            entries = await self._entries.find(wanted, {"seq": 1, "at": 1}).sort("seq", 1).limit(STEP).to_list()
            old = first_old([(int(entry["seq"]), entry["at"]) for entry in entries], oldest)
            if old:
                await self._heads.update_one({"_id": tenant}, {"$max": {"floor": Int64(old[-1])}})
                await self._entries.delete_many({"tenant_id": tenant, "seq": {"$lte": Int64(old[-1])}})
            return len(old)

        await self._number(tenant)
        dropped: int = await self._timely(drop)
        return dropped


def _entry(stored: Stored) -> LogEntry:
    version = None if stored["version"] is None else int(stored["version"])
    owners = stored["agent_id"], stored["user_id"]
    return LogEntry(
        stored["tenant_id"],
        stored["kind"],
        stored["id"],
        stored["type"],
        *owners,
        version,
        stored["at"],
        int(stored["seq"]),
    )
