"""Stores that a test opens as often as it likes: one process after another, or several at once, would do so."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ParamSpec, TypeAlias, TypeVar

from app.settings import Settings
from app.storage.collection import Collection, Store
from app.storage.opening import open_store
from app.wiring import where_of

P = ParamSpec("P")
S = TypeVar("S", bound=Store)
Open: TypeAlias = Callable[[], Awaitable[Store]]


@asynccontextmanager
async def closed_in_the_end(opener: Callable[P, Awaitable[S]]) -> AsyncIterator[Callable[P, Awaitable[S]]]:
    """`opener`, and all that it opened is closed afterwards."""
    async with AsyncExitStack() as stack:

        async def open_one(*args: P.args, **kwargs: P.kwargs) -> S:
            store = await opener(*args, **kwargs)
            stack.push_async_callback(store.close)
            return store

        yield open_one


def opener_of(settings: Settings, collections: Sequence[Collection], dim: int) -> Open:
    """Of the settings' engine and place."""
    return lambda: open_store(where_of(settings), collections, dim=dim)
