"""Our code beside the bare driver: get, search and append on one MongoDB deployment, in one run.

    scripts/benchmark mongo --uri mongodb://127.0.0.1:27017/?replicaSet=rs0

Ours and the bare calls take turns. The bare side sends what a careful program would send for the same effect, with the
same concerns and the same indexes:

- get: `find_one` by `_id`.
- search: one `find` of the partition's version, which any search must ask so that it sees every commit, and one of ten
  documents; our side searches all of the partition's memories in between. `cold` reads the partition again.
- append: one transaction of a counter, a message and a session, as the service's append writes them.

It uses a database of its own, which it drops.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import numpy as np
from pymongo import AsyncMongoClient, ReturnDocument
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryRecord
from app.sessions.schemas import MESSAGES, SESSIONS, MessageRecord
from app.storage.changes import Allocate, IndexEntry, Insert, Ref, Update
from app.storage.mongo.codec import key
from app.storage.mongo.connection import OURS, PARTITIONS
from app.storage.mongo.partitions import partition_key
from app.storage.mongo.store import MongoOptions, MongoStore
from app.storage.schema import Eq
from app.storage.scope import Partition
from app.storage.search import SearchQuery
from app.storage.text import index_text, term_ids, terms
from benchmarks import data
from benchmarks.harness import Row, Section, alternate, p50_p95, percentile

AT = "2026-01-01T00:00:00.000Z"
TENANT = "bench"


def memory(number: int, vectors: np.random.Generator) -> Insert:
    owner: MemoryRecord = {"agent_id": "a", "user_id": "u", "memory_type": "fact", "importance": 0.5}
    text = f"memory number {number} speaks of tea, gardens and the {number % 97}th street of a town"
    doc = new_memory(MEMORIES.as_record({**owner, "content": text}), {}, AT, unique=False)
    entry = IndexEntry(index_text(text), data.unit(vectors.standard_normal(data.DIM)), "m")
    return Insert(MEMORIES, {"tenant_id": TENANT, **doc, "embedding": None}, entry)


class Bench:
    """A filled database. The methods `*_ours` and `*_bare` have the same effect."""

    def __init__(self, uri: str, name: str, memories: int) -> None:
        self._uri, self._name = uri, name
        vectors = np.random.default_rng(7)
        self._made = [memory(number, vectors) for number in range(memories)]
        self._ids = [key(TENANT, change.doc["memory_id"]) for change in self._made[:10]]
        self._query = SearchQuery(
            TENANT,
            (Partition("a", "u"),),
            Eq("status", "active"),
            data.unit(vectors.standard_normal(data.DIM)),
            "m",
            term_ids(terms("tea in the garden")),
        )

    async def open_store(self) -> MongoStore:
        options = MongoOptions(database=self._name, deadline_seconds=60)
        return await MongoStore.open(self._uri, (MEMORIES, SESSIONS, MESSAGES), options, dim=data.DIM)

    @asynccontextmanager
    async def filled(self) -> AsyncIterator[None]:
        self._store = await self.open_store()
        self._client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(self._uri, **OURS)
        self._bare = self._client[self._name]
        try:
            for at in range(0, len(self._made), 250):
                await self._store.commit(self._made[at : at + 250])
            session = {"tenant_id": TENANT, "session_id": "ours", "version": 1, "created_at": AT, "message_count": 0}
            await self._store.commit([Insert(SESSIONS, session)])
            await self._bare[SESSIONS.name].insert_one({"_id": key(TENANT, "bare"), **session, "session_id": "bare"})
            await self._bare.create_collection("bare_counters")
            yield
        finally:
            await self._store.close()
            await self._client.drop_database(self._name)
            await self._client.close()

    async def get_ours(self, _: int) -> None:
        assert await self._store.get(MEMORIES, TENANT, self._made[0].doc["memory_id"])

    async def get_bare(self, _: int) -> None:
        assert await self._bare[MEMORIES.name].find_one({"_id": self._ids[0]}, {"_r": 0})

    async def search_ours(self, _: int) -> None:
        columns = await self._store.search(MEMORIES, self._query)
        assert len(columns.rows) == len(self._made)
        await self._store.fetch(MEMORIES, TENANT, columns.rows[np.argsort(-columns.cosine)[:10]])

    async def search_bare(self, _: int) -> None:
        assert await self._bare[PARTITIONS].find({"_id": partition_key(MEMORIES.name, TENANT, "u", "a")}).to_list()
        found = await self._bare[MEMORIES.name].find({"_id": {"$in": self._ids}}, {"_r": 0}).to_list()
        assert len(found) == len(self._ids)

    async def append_ours(self, _: int) -> None:
        message: MessageRecord = {
            "tenant_id": TENANT,
            "message_id": uuid4().hex,
            "session_id": "ours",
            "seq": Ref.number("seq"),
            "role": "user",
            "content": "hello",
            "created_at": AT,
        }
        counted = Update(SESSIONS, TENANT, "ours", inc={"message_count": 1, "version": 1})
        await self._store.commit([Allocate("seq", TENANT), Insert(MESSAGES, message), counted])

    async def append_bare(self, _: int) -> None:
        async with self._client.start_session() as session:
            await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"))
            counter = await self._bare["bare_counters"].find_one_and_update(
                {"_id": "seq"},
                {"$inc": {"value": 1}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            assert counter is not None
            message = {"_id": key(TENANT, uuid4().hex), "tenant_id": TENANT, "session_id": "bare", "role": "user"}
            message |= {"seq": counter["value"], "content": "hello", "created_at": AT}
            await self._bare[MESSAGES.name].insert_one(message, session=session)
            counted = {"$inc": {"message_count": 1, "version": 1}}
            await self._bare[SESSIONS.name].update_one({"_id": key(TENANT, "bare")}, counted, session=session)
            await session.commit_transaction()

    async def cold(self) -> float:
        """Milliseconds of the first search of a store."""
        store = await self.open_store()
        times = await alternate({"cold": lambda _: store.search(MEMORIES, self._query)}, 1, warm_up=0)
        await store.close()
        return times["cold"][0]


async def measure(uri: str, rounds: int, memories: int) -> list[Row]:
    bench, rows = Bench(uri, f"recalld_bench_{uuid4().hex[:8]}", memories), list[Row]()
    async with bench.filled():
        for name in ("get", "search", "append"):
            calls = {side: getattr(bench, f"{name}_{side}") for side in ("ours", "bare")}
            times = await alternate(calls, rounds, warm_up=1)
            mine, theirs = (percentile(taken, 50) for taken in times.values())
            rows.append(
                {
                    "call": name,
                    **p50_p95(times["ours"]),
                    "bare p50 ms": round(theirs, 2),
                    "ratio": round(mine / theirs, 2),
                }
            )
        rows.append({"call": "search, cold", **p50_p95([await bench.cold() for _ in range(3)])})
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--uri", required=True, help="mongodb://…")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--memories", type=int, default=1_000)


def run(options: argparse.Namespace) -> Iterator[Section]:
    rows = asyncio.run(measure(options.uri, options.rounds, options.memories))
    yield Section(f"{options.rounds} rounds, {options.memories:,} memories of the partition", rows)
