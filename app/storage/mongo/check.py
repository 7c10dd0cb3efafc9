"""Opening and checks: the client, what the deployment must support, and the checks of `recalld doctor`.

The connection: creates the client and checks that the deployment supports what the engine needs.

The checks of `recalld doctor` on MongoDB: agreement of partitions with documents, and integrity of packed
records.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pymongo
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import ConfigurationError, OperationFailure, PyMongoError
from pymongo.read_preferences import ReadPreference

from app.errors import StoreUnavailable
from app.storage.changes import differences
from app.storage.index.partitions import is_long
from app.storage.index.record_codec import TERM, head_dtype
from app.storage.mongo import usage
from app.storage.mongo.codec import OWN, SEPARATOR, Stored, decode, raw_vector, unique_keys
from app.storage.mongo.errors import AUTHENTICATION, guarded, without_password
from app.storage.mongo.partitions import PAIRS, Database
from app.storage.mongo.schema import declared, written
from app.storage.mongo.transactions import Client
from app.storage.protocol import Finding
from app.storage.schema import Collection

OURS: dict[str, Any] = {
    "appname": "recalld",
    "w": "majority",
    "journal": True,
    "readConcernLevel": "majority",
    "retryWrites": True,
    "retryReads": True,
    "tz_aware": True,
}
"""Options that override those of the URI: durability is not configurable there."""

NO_TRANSACTIONS = (
    "MongoDB at {where} is a standalone server, which has no transactions: start it with --replSet rs0 and run "
    'mongosh --eval "rs.initiate()" once; a replica set of one member is enough.'
)


def connect(uri: str, deadline_seconds: float) -> Client:
    """Returns the client without connecting yet. Raises StoreUnavailable if the URI is invalid."""
    with guarded():
        return AsyncMongoClient(
            uri,
            serverSelectionTimeoutMS=int(deadline_seconds * 1000),
            connectTimeoutMS=int(deadline_seconds * 1000),
            **OURS,
        )


async def greet(client: Client, uri: str, deadline_seconds: float) -> dict[str, Any]:
    """Connects and returns the deployment's `hello`. Raises StoreUnavailable with advice on what to do."""
    where = without_password(uri)
    try:
        with pymongo.timeout(deadline_seconds):
            said: dict[str, Any] = await client.admin.command("hello", read_preference=ReadPreference.PRIMARY)
            await client.admin.command("ping")
    except OperationFailure as error:
        if error.code in AUTHENTICATION:
            raise StoreUnavailable(f"MongoDB at {where} refuses the user or password of RECALLD_STORE.") from error
        raise StoreUnavailable(f"MongoDB at {where} refuses: {error.details and error.details.get('codeName')}.") from (
            error
        )
    except ConfigurationError as error:
        raise StoreUnavailable(f"RECALLD_STORE cannot be used: {without_password(str(error))}.") from error
    except PyMongoError as error:
        raise StoreUnavailable(
            f"MongoDB at {where} cannot be reached within {deadline_seconds:g} s ({type(error).__name__}): "
            "is it running, is the address right, may this machine connect to it?"
        ) from error
    if "setName" not in said and said.get("msg") != "isdbgrid":
        raise StoreUnavailable(NO_TRANSACTIONS.format(where=where))
    return said


async def deep(database: Database, collections: Sequence[Collection]) -> list[Finding]:
    """Returns the findings of all checks. Reads every document."""
    version = Finding("version", True, str(await written(database)))
    findings = [await _finding("indexes", _missing_indexes(database, collections)), version]
    for collection in collections:
        findings.append(await _finding(f"{collection.name}: documents", _bad_documents(database, collection)))
        if collection.searched:
            findings.append(await _finding(f"{collection.name}: pairs", _bad_pairs(database, collection)))
    findings.append(await _finding("usage", _bad_usage(database, collections)))
    return findings


async def _bad_usage(database: Database, collections: Sequence[Collection]) -> AsyncIterator[str]:
    """Yields tenants whose stored usage is not what they have. Reads one state of the database."""
    async with database.client.start_session(snapshot=True) as session:
        there = await usage.counted(database, collections, {}, session)
        for error in differences(await usage.stored(database, session), there):
            yield error


async def _finding(name: str, faults: AsyncIterator[str]) -> Finding:
    return Finding.of(name, [error async for error in faults])


async def _missing_indexes(database: Database, collections: Sequence[Collection]) -> AsyncIterator[str]:
    for name, models in declared(collections).items():
        there = await database[name].index_information()
        for model in models:
            if model.document["name"] not in there:
                yield f"{name} has no index {model.document['name']}"


async def _bad_documents(database: Database, collection: Collection) -> AsyncIterator[str]:
    async for stored in database[collection.name].find({}):
        own, stored_id = stored.get(OWN, {}), stored["_id"]
        doc = decode(collection, stored)
        doc_id = str(doc.get(collection.id_field))
        if stored_id != f"{doc.get('tenant_id')}{SEPARATOR}{doc_id}":
            yield f"{doc_id} lies under another id or tenant"
        if own.get("u", {}) != unique_keys(collection, doc):
            yield f"{doc_id} has other unique keys than its fields say"
        if collection.searched:
            for error in _bad_row(collection, own):
                yield f"{doc_id} {error}"


def _bad_row(collection: Collection, own: Stored) -> list[str]:
    if "row" not in own:
        return ["has no search row"]
    size = head_dtype(len(collection.spec.ranges)).itemsize
    parts: dict[str, Any] = {name: own.get(name) for name in ("head", "terms", "facets")}
    if any(part is None for part in parts.values()):
        return ["has a search row without " + ", ".join(n for n, part in parts.items() if part is None)]
    whole = len(parts["head"]) == size and not len(parts["terms"]) % TERM.itemsize and not len(parts["facets"]) % 8
    faults = [] if whole else ["has a search row of a wrong size"]
    if bool(own.get("model")) != ("vector" in own) or (whole and not _windows_fit(collection, own)):
        faults.append("has a vector that does not fit its record")
    return faults


def _windows_fit(collection: Collection, own: Stored) -> bool:
    """Returns whether further windows exist if the record says so, each as long as the first."""
    further, long = own.get("further", b""), is_long(collection.spec, own["head"])
    fits = "vector" in own and not len(further) % len(raw_vector(own["vector"]))
    return fits if long and further else long == bool(further)


async def _bad_pairs(database: Database, collection: Collection) -> AsyncIterator[str]:
    grouped = await database[collection.name].aggregate(
        [
            {"$match": {f"{OWN}.pair": {"$exists": True}}},
            {
                "$group": {
                    "_id": f"${OWN}.pair",
                    "there": {"$sum": 1},
                    "newest": {"$max": f"${OWN}.rev"},
                    "models": {"$addToSet": f"${OWN}.model"},
                }
            },
        ]
    )
    there = {int(group["_id"]): group async for group in grouped}
    async for pair in database[PAIRS].find({"collection": collection.name}):
        found = there.pop(int(pair["pair"]), {"there": 0, "newest": 0, "models": []})
        if pair["count"] != found["there"]:
            yield f"pair {pair['pair']} counts {pair['count']} rows and has {found['there']}"
        if found["newest"] > pair["version"]:
            yield f"pair {pair['pair']} is at version {pair['version']} and holds a row of {found['newest']}"
        if pair.get("model") and {*found["models"]} - {pair["model"]}:
            yield f"pair {pair['pair']} holds a row of another embedding model than it says"
    for number in there:
        yield f"pair {number} is not known"
