"""An engine is one entry of `ENGINES`: given a directory of its own, a way to open the store that lies there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from app.memories.models import MEMORIES
from app.storage.collection import Collection, Store
from app.storage.embedded.store import EmbeddedStore
from tests.contract.declared import DIM, ENTRIES, NUMBERED, THINGS

COLLECTIONS: tuple[Collection, ...] = (THINGS, NUMBERED, ENTRIES, MEMORIES)

Open: TypeAlias = Callable[[], Awaitable[Store]]


async def embedded(directory: Path) -> Store:
    return await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)


ENGINES: dict[str, Callable[[Path], Awaitable[Store]]] = {"embedded": embedded}


@pytest.fixture(params=sorted(ENGINES))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens the test's store, as often as it is called: as one process after another, or several at once, would."""
    opener = ENGINES[request.param]
    async with AsyncExitStack() as stack:

        async def open_one() -> Store:
            store = await opener(tmp_path)
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
