from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from app.storage.mongo.store import MongoStore, Options
from tests.contract.declared import DIM, ENTRIES, NUMBERED, THINGS
from tests.mongodb import Deployment, Emptied

COLLECTIONS = (THINGS, NUMBERED, ENTRIES)
Open: TypeAlias = Callable[..., Awaitable[MongoStore]]


@pytest.fixture(scope="module")
def module_database(mongodb: Deployment) -> Iterator[Emptied]:
    with mongodb.database() as name, mongodb.client() as client:
        yield Emptied(client[name])


@pytest.fixture
def database(module_database: Emptied) -> Iterator[str]:
    yield module_database.name
    module_database.empty()


@pytest.fixture
async def open_store(mongodb: Deployment, database: str, anyio_backend: str) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def open_one(**options: Any) -> MongoStore:
            given = Options(**{"database": database, "deadline_seconds": 20, **options})
            store = await MongoStore.open(mongodb.uri, COLLECTIONS, given, dim=DIM)
            stack.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def store(open_store: Open) -> MongoStore:
    return await open_store()
