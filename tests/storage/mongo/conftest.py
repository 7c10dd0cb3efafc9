from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import pytest

from app.storage.mongo.store import MongoOptions, MongoStore
from tests.support.declared import DIM, ENTRIES, NUMBERED, THINGS
from tests.support.mongodb import Deployment, Emptied, emptied
from tests.support.stores import closed_in_the_end

COLLECTIONS = (THINGS, NUMBERED, ENTRIES)
Open: TypeAlias = Callable[..., Awaitable[MongoStore]]


@pytest.fixture(scope="module")
def module_database(mongodb: Deployment) -> Iterator[Emptied]:
    with emptied(mongodb) as database:
        yield database


@pytest.fixture
def database(module_database: Emptied) -> Iterator[str]:
    yield module_database.name
    module_database.empty()


@pytest.fixture
async def open_store(mongodb: Deployment, database: str, anyio_backend: str) -> AsyncIterator[Open]:
    async def open_one(**options: Any) -> MongoStore:
        given = MongoOptions(**{"database": database, "deadline_seconds": 20, **options})
        return await MongoStore.open(mongodb.uri, COLLECTIONS, given, dim=DIM)

    async with closed_in_the_end(open_one) as opener:
        yield opener


@pytest.fixture
async def store(open_store: Open) -> MongoStore:
    return await open_store()
