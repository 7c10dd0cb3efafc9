import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pytest

from app.storage.mongo.search_indexes import USABLE
from app.storage.mongo.store import MongoOptions, MongoStore
from tests.support.atlas import Atlas
from tests.support.declared import DIM, ENTRIES, NUMBERED, THINGS
from tests.support.mongodb import Deployment, Emptied, SecantusDB, emptied
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


# --- With search indexes ----------------------------------------------------------------------------------------------


class LateAtlas(Atlas):
    """Its time is that of the stores of these tests."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def settle(self) -> None:
        """Two minutes on: what was written is no longer recent, so only the indexes find it."""
        super().settle()
        self._ahead += timedelta(minutes=2)


@pytest.fixture
def atlas(mongodb: Deployment) -> Iterator[LateAtlas]:
    if not isinstance(mongodb, SecantusDB):
        pytest.skip("a deployment that was named has its own search")
    with closing(LateAtlas(mongodb.port)) as made:
        yield made


@pytest.fixture
async def open_indexed(atlas: LateAtlas, mongodb_database: str, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens a store for which every scope is a large one. It looks at its indexes again and again."""

    async def open_one(**options: Any) -> MongoStore:
        given = {"database": mongodb_database, "deadline_seconds": 60, "exact_up_to": 0, "pause_seconds": 0.05}
        return await MongoStore.open(atlas.uri, COLLECTIONS, MongoOptions(**{**given, **options}), dim=DIM, clock=atlas)

    async with closed_in_the_end(open_one) as opener:
        yield opener


@pytest.fixture
async def indexed(open_indexed: Open) -> MongoStore:
    opened = await open_indexed()
    await until(opened, USABLE)
    return opened


async def until(store: MongoStore, wanted: str) -> None:
    """Until `/readyz` says this of the search."""
    while wanted not in await searching(store):  # noqa: ASYNC110 (it is another's state)
        await asyncio.sleep(0.02)


async def searching(store: MongoStore) -> str:
    (detail,) = [finding.detail for finding in await store.check() if finding.name == "search"]
    return detail
