"""What our code costs over the bare driver: get, search and append on one MongoDB deployment, in one run.

    python scripts/bench_mongo.py --uri mongodb://… [--rounds 200] [--memories 1000] [--json]

Ours and the bare calls take turns, round by round, so that what the machine does to one it does to both. The bare side
sends what a careful program would send for the same effect, with the same concerns and the same indexes:

- get: `find_one` by `_id`.
- search: one `find` of the pair's version, which any search must ask so that it sees every commit, and one of ten
  documents; our side searches all of the pair's memories in between. `cold` reads the pair anew.
- append: one transaction of a counter, a message and a session, as the service's append writes them.

Uses a database of its own, which it drops.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from pymongo import AsyncMongoClient, ReturnDocument
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from app.memories.models import MEMORIES
from app.memories.records import new_memory
from app.sessions.models import MESSAGES, SESSIONS
from app.storage.changes import Allocate, IndexEntry, Insert, Ref, Update
from app.storage.filters import Eq
from app.storage.mongo.client import OURS
from app.storage.mongo.codec import key
from app.storage.mongo.partitions import PAIRS, pair_key
from app.storage.mongo.store import MongoOptions, MongoStore
from app.storage.scope import Partition
from app.storage.search import SearchQuery
from app.storage.text import index_text, term_ids, terms

DIM = 384
AT = "2026-01-01T00:00:00.000Z"
TENANT = "bench"
Step: TypeAlias = Callable[[], Awaitable[Any]]


def unit(seed: int) -> Any:
    whole = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return whole / np.float32(np.linalg.norm(whole))


def memory(i: int) -> Insert:
    given = {"agent_id": "a", "user_id": "u", "memory_type": "fact", "importance": 0.5}
    text = f"memory number {i} speaks of tea, gardens and the {i % 97}th street of a town"
    doc = new_memory({**given, "content": text}, {}, AT, unique=False)
    entry = IndexEntry(index_text(text), unit(i), "m")
    return Insert(MEMORIES, {"tenant_id": TENANT, **doc, "embedding": None}, entry)


class Bench:
    def __init__(self, uri: str, database: str, memories: int) -> None:
        self._uri, self._name, self._memories = uri, database, memories

    async def _open(self) -> MongoStore:
        options = MongoOptions(database=self._name, deadline_seconds=60)
        return await MongoStore.open(self._uri, (MEMORIES, SESSIONS, MESSAGES), options, dim=DIM)

    async def __aenter__(self) -> "Bench":
        self.store = await self._open()
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(self._uri, **OURS)
        self.bare = self.client[self._name]
        made = [memory(i) for i in range(self._memories)]
        for at in range(0, len(made), 250):
            await self.store.commit(made[at : at + 250])
        self.id = made[0].doc["memory_id"]
        self.ten = [key(TENANT, one.doc["memory_id"]) for one in made[:10]]
        session = {"tenant_id": TENANT, "session_id": "ours", "version": 1, "created_at": AT, "message_count": 0}
        await self.store.commit([Insert(SESSIONS, session)])
        await self.bare[SESSIONS.name].insert_one({"_id": key(TENANT, "bare"), **session, "session_id": "bare"})
        self.query = SearchQuery(
            TENANT, (Partition("a", "u"),), Eq("status", "active"), unit(7), "m", term_ids(terms("tea in the garden"))
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()
        await self.client.drop_database(self._name)
        await self.client.close()

    async def get_ours(self) -> None:
        assert await self.store.get(MEMORIES, TENANT, self.id)

    async def get_bare(self) -> None:
        assert await self.bare[MEMORIES.name].find_one({"_id": key(TENANT, self.id)}, {"_r": 0})

    async def search_ours(self) -> None:
        columns = await self.store.search(MEMORIES, self.query)
        assert len(columns.rows) == self._memories
        await self.store.fetch(MEMORIES, TENANT, columns.rows[np.argsort(-columns.cosine)[:10]])

    async def search_bare(self) -> None:
        assert await self.bare[PAIRS].find({"_id": pair_key(MEMORIES.name, TENANT, "u", "a")}).to_list()
        wanted = {"_id": {"$in": self.ten}}
        assert len(await self.bare[MEMORIES.name].find(wanted, {"_r": 0}).to_list()) == 10

    async def cold_ours(self) -> None:
        store = await self._open()
        started = time.perf_counter()
        await store.search(MEMORIES, self.query)
        self.cold.append(time.perf_counter() - started)
        await store.close()

    cold: list[float]

    async def append_ours(self) -> None:
        message = {"tenant_id": TENANT, "message_id": uuid4().hex, "session_id": "ours", "seq": Ref("seq")}
        await self.store.commit(
            [
                Allocate("seq", TENANT),
                Insert(MESSAGES, {**message, "role": "user", "content": "hello", "created_at": AT}),
                Update(SESSIONS, TENANT, "ours", inc={"message_count": 1, "version": 1}),
            ]
        )

    async def append_bare(self) -> None:
        async with self.client.start_session() as session:
            await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"))
            counter = await self.bare["bare_counters"].find_one_and_update(
                {"_id": "seq"},
                {"$inc": {"value": 1}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
                session=session,
            )
            assert counter is not None
            message = {"_id": key(TENANT, uuid4().hex), "tenant_id": TENANT, "session_id": "bare", "role": "user"}
            message |= {"seq": counter["value"], "content": "hello", "created_at": AT}
            await self.bare[MESSAGES.name].insert_one(message, session=session)
            counted = {"$inc": {"message_count": 1, "version": 1}}
            await self.bare[SESSIONS.name].update_one({"_id": key(TENANT, "bare")}, counted, session=session)
            await session.commit_transaction()


async def timed(step: Step) -> float:
    started = time.perf_counter()
    await step()
    return time.perf_counter() - started


async def run(uri: str, rounds: int, memories: int) -> dict[str, Any]:
    async with Bench(uri, f"recalld_bench_{uuid4().hex[:8]}", memories) as bench:
        await bench.bare.create_collection("bare_counters")
        found: dict[str, Any] = {}
        for name in ("get", "search", "append"):
            ours, bare = getattr(bench, f"{name}_ours"), getattr(bench, f"{name}_bare")
            for step in (ours, bare):
                await step()
            both = [(await timed(ours), await timed(bare)) for _ in range(rounds)]
            mine, theirs = (median(one) * 1000 for one in zip(*both, strict=True))
            found[name] = {"ours_ms": round(mine, 3), "bare_ms": round(theirs, 3), "ratio": round(mine / theirs, 2)}
        bench.cold = []
        for _ in range(3):
            await bench.cold_ours()
        found["search, cold"] = {"ours_ms": round(median(bench.cold) * 1000, 3)}
    return {"rounds": rounds, "memories": memories, "p50": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--memories", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result = asyncio.run(run(given.uri, given.rounds, given.memories))
    if given.json:
        print(json.dumps(result))
        return
    print(f"p50 of {given.rounds} rounds, in ms; the pair has {given.memories} memories\n")
    for name, row in result["p50"].items():
        bare = f"bare {row['bare_ms']:8.2f}   ratio {row['ratio']:.2f}" if "bare_ms" in row else ""
        print(f"{name:14} ours {row['ours_ms']:8.2f}   {bare}")


if __name__ == "__main__":
    main()
