"""The connection: creates the client and checks that the deployment supports what the engine needs."""

from typing import Any

import pymongo
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import ConfigurationError, OperationFailure, PyMongoError
from pymongo.read_preferences import ReadPreference

from app.errors import StoreUnavailable
from app.storage.mongo.errors import AUTHENTICATION, guarded, without_password
from app.storage.mongo.transactions import Client

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
