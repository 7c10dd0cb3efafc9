"""Moving to another embedding model, in MongoDB. See `Reembedding`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from bson.int64 import Int64
from pymongo import UpdateOne

from app.storage.mongo.codec import KEPT, MODEL, OWN, PAIR, ROW, VECTOR, WITH_ROW, Stored, decode
from app.storage.mongo.partitions import PAIRS, Database
from app.storage.protocol import MissingVector, PartitionSelector, VectorCounts
from app.storage.schema import Collection

T = TypeVar("T")

DROPPED_AT_ONCE = 200


class Slow(Protocol):
    """Runs work that may take long, and retries it after conflicts."""

    def __call__(self, work: Callable[[], Awaitable[T]], /) -> Awaitable[T]: ...


class MongoReembedding:
    """Implements `Reembedding`."""

    def __init__(self, database: Database, slow: Slow) -> None:
        self._database, self._slow = database, slow

    async def pairs(
        self, collection: Collection, model: int, after: int, limit: int, which: PartitionSelector
    ) -> list[int]:
        of: dict[PartitionSelector, Stored] = {
            "every": {},
            "unlike": {"model": {"$ne": model}},
            "other": {"model": {"$exists": True, "$nin": [0, model]}},
        }
        wanted = {"collection": collection.name, "pair": {"$gt": after}, "count": {"$gt": 0}, **of[which]}

        async def read() -> list[int]:
            found = self._database[PAIRS].find(wanted, {"pair": 1}).sort("pair", 1).limit(limit)
            return [int(stored["pair"]) async for stored in found]

        return await self._slow(read)

    async def missing_vectors(
        self, collection: Collection, pairs: Sequence[int], model: int, after: int, limit: int
    ) -> list[MissingVector]:
        wanted = {PAIR: {"$in": list(pairs)}, ROW: {"$gt": after}, **_lacks(model)}

        async def read() -> list[MissingVector]:
            found = self._database[collection.name].find(wanted, WITH_ROW).sort(ROW, 1).limit(limit)
            return [MissingVector(int(stored[OWN]["row"]), decode(collection, stored)) async for stored in found]

        return await self._slow(read)

    async def mark_migrated(self, collection: Collection, pairs: Sequence[int], model: int) -> None:
        async def write() -> None:
            versions = self._database[PAIRS].find({"pair": {"$in": list(pairs)}}, {"pair": 1, "version": 1})
            before = await versions.to_list()
            missing_vectors = await self._database[collection.name].aggregate(
                [{"$match": {PAIR: {"$in": list(pairs)}, **_lacks(model)}}, {"$group": {"_id": f"${PAIR}"}}]
            )
            left = {int(group["_id"]) async for group in missing_vectors}
            # a write to the partition meanwhile has changed its version
            writes = [
                UpdateOne({"_id": pair["_id"], "version": pair["version"]}, {"$set": {"model": Int64(model)}})
                for pair in before
                if int(pair["pair"]) not in left
            ]
            if writes:
                await self._database[PAIRS].bulk_write(writes, ordered=False)

        await self._slow(write)

    async def counts(self, collection: Collection, model: int, dim: int) -> VectorCounts:  # noqa: ARG002
        """Counts vectors by model. Does not check their length, because the code of a model includes its dimension."""
        documents = self._database[collection.name]

        async def read() -> VectorCounts:
            records = await documents.count_documents({})
            vectors = await documents.count_documents({VECTOR: {"$exists": True}})
            of_model = await documents.count_documents({VECTOR: {"$exists": True}, MODEL: model})
            kept = await documents.count_documents({KEPT: {"$exists": True}})
            return VectorCounts(records, of_model, records - vectors, vectors - of_model, kept)

        return await self._slow(read)

    async def drop_previous_vectors(self, collection: Collection) -> int:
        dropped = 0
        while step := await self._slow(lambda: self._drop_some(collection)):
            dropped += step

        async def forget() -> None:
            await self._database[PAIRS].update_many(
                {"collection": collection.name, "kept": True}, {"$set": {"kept": False}}
            )

        await self._slow(forget)
        return dropped

    async def _drop_some(self, collection: Collection) -> int:
        documents = self._database[collection.name]
        found = await documents.find({KEPT: {"$exists": True}}, {"_id": 1}).limit(DROPPED_AT_ONCE).to_list()
        ids = [stored["_id"] for stored in found]
        return (await documents.update_many({"_id": {"$in": ids}}, {"$unset": {KEPT: ""}})).modified_count if ids else 0


def _lacks(model: int) -> Stored:
    return {"$or": [{MODEL: {"$ne": model}}, {VECTOR: {"$exists": False}}]}
