from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import pytest

from app.storage.schema import Collection
from app.storage.sqlite.store import FILE_NAME, EmbeddedOptions, EmbeddedStore
from tests.support.declared import DIM, ENTRIES, NUMBERED, THINGS
from tests.support.stores import closed_in_the_end

COLLECTIONS = (THINGS, NUMBERED, ENTRIES)
Open: TypeAlias = Callable[..., Awaitable[EmbeddedStore]]


@pytest.fixture
async def open_store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Open]:
    async def open_one(
        collections: Sequence[Collection] = COLLECTIONS, dim: int = DIM, folder: Path = tmp_path, **options: Any
    ) -> EmbeddedStore:
        given = EmbeddedOptions(**{"busy_timeout_ms": 50, **options})
        return await EmbeddedStore.open(folder, collections, given, dim=dim)

    async with closed_in_the_end(open_one) as opener:
        yield opener


@pytest.fixture
async def store(open_store: Open) -> EmbeddedStore:
    return await open_store()


@pytest.fixture
def raw(tmp_path: Path, store: EmbeddedStore) -> Callable[..., list[Any]]:
    """Runs one statement on the database, behind the engine's back."""

    def run(statement: str, *values: Any) -> list[Any]:
        connection = apsw.Connection(str(tmp_path / FILE_NAME))
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    return run
