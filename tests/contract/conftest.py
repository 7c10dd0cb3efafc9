"""An engine is one entry of `ENGINES`: given a test's own place, a way to open the store that lies there."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.memories.models import MEMORIES
from app.storage.collection import Collection, Store
from app.storage.embedded.store import EmbeddedStore
from app.storage.mongo.store import MongoStore, Options
from tests.contract.declared import DIM, ENTRIES, NUMBERED, THINGS
from tests.mongodb import Deployment, Emptied

COLLECTIONS: tuple[Collection, ...] = (THINGS, NUMBERED, ENTRIES, MEMORIES)

Open: TypeAlias = Callable[[], Awaitable[Store]]


def embedded(request: pytest.FixtureRequest) -> Open:
    directory: Path = request.getfixturevalue("tmp_path")
    return lambda: EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)


def mongodb(request: pytest.FixtureRequest) -> Open:
    deployment: Any = request.getfixturevalue("mongodb")
    options = Options(database=request.getfixturevalue("emptied_contract_database"), deadline_seconds=30)
    return lambda: MongoStore.open(deployment.uri, COLLECTIONS, options, dim=DIM)


ENGINES: dict[str, Callable[[pytest.FixtureRequest], Open]] = {"embedded": embedded, "mongodb": mongodb}


@pytest.fixture(scope="session")
def contract_database(mongodb: Deployment) -> Iterator[Emptied]:
    with mongodb.database() as name, mongodb.client() as client:
        yield Emptied(client[name])


@pytest.fixture
def emptied_contract_database(contract_database: Emptied) -> Iterator[str]:
    yield contract_database.name
    contract_database.empty()


@pytest.fixture(params=sorted(ENGINES))
async def open_store(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens the test's store, as often as it is called: as one process after another, or several at once, would."""
    opener = ENGINES[request.param](request)
    async with AsyncExitStack() as stack:

        async def open_one() -> Store:
            store = await opener()
            stack.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def store(open_store: Open) -> Store:
    return await open_store()


@pytest.fixture
async def second_store(store: Store, open_store: Open) -> Store:
    """Another opener of the data of `store`."""
    return await open_store()
