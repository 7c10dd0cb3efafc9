from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import pytest

from app.storage.embedded.store import FILE_NAME, EmbeddedStore
from tests.contract.declared import DIM, ENTRIES, NUMBERED, THINGS

COLLECTIONS = (THINGS, NUMBERED, ENTRIES)
Open: TypeAlias = Callable[..., Awaitable[EmbeddedStore]]


@pytest.fixture
async def open_store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def open_one(**options: Any) -> EmbeddedStore:
            given: dict[str, Any] = {"collections": COLLECTIONS, "dim": DIM, "busy_timeout_ms": 50, **options}
            store = await EmbeddedStore.open(tmp_path, **given)
            stack.push_async_callback(store.close)
            return store

        yield open_one


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
