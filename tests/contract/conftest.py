"""What every engine has to do, on a store of each."""

from collections.abc import AsyncIterator

import pytest

from app.memories.models import MEMORIES
from app.settings import Settings
from app.storage.protocol import Store
from tests.support.declared import COUNTED, DIM, ENTRIES, NUMBERED, THINGS
from tests.support.stores import Open as Open
from tests.support.stores import closed_in_the_end, opener_of

COLLECTIONS = (THINGS, NUMBERED, COUNTED, ENTRIES, MEMORIES)


@pytest.fixture
async def open_store(settings: Settings, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens the test's store: of the collections declared here."""
    async with closed_in_the_end(opener_of(settings, COLLECTIONS, DIM)) as opener:
        yield opener


@pytest.fixture
async def second_store(store: Store, open_store: Open) -> Store:
    """Another opener of the data of `store`."""
    return await open_store()
