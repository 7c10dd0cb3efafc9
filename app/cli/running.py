"""Running a piece of work on the store of the settings."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.settings import Settings
from app.storage.transfer import MovableStore
from app.wiring import open_store

T = TypeVar("T")


def on_store(work: Callable[[MovableStore], Awaitable[T]], *, existing: bool = False) -> T:
    """Opens the store, without the model, and closes it again. Raises StoreUnavailable; with `existing` where there is
    none yet, too."""

    async def run() -> T:
        store = await open_store(Settings(), dim=1, existing=existing)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())
