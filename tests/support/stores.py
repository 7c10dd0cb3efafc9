"""Stores that a test opens as often as it likes: one process after another, or several at once, would do so. And what a
test puts around a store."""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from app.core.tuning import USUAL, Tuning
from app.errors import StoreUnavailable
from app.settings import Settings
from app.storage.factory import open_store, where_of
from app.storage.protocol import Store
from app.storage.schema import Collection

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


def opener_of(settings: Settings, collections: Sequence[Collection], dim: int, tuning: Tuning = USUAL) -> Open:
    """Of the settings' engine and place."""
    return lambda: open_store(where_of(settings), collections, dim=dim, tuning=tuning)


class Wrapped:
    """A store, but for what a subclass does otherwise."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Asked(NamedTuple):
    """A call: its method, the collection, what was given by place and what by name."""

    method: str
    collection: Collection
    given: tuple[Any, ...]
    named: dict[str, Any]


_WATCH: ContextVar[object] = ContextVar("watch")


class Watched(Wrapped):
    """Notes what is read by what was begun since `watch`; some of these reads find the store away. What an earlier
    request left running, as one that failed may, is none of it."""

    READS = ("get", "find", "count", "values", "tally", "overview", "search", "fetch", "find_fetched")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.watch()

    def watch(self, away: Container[int] = ()) -> None:
        """Begins anew. `away`: the numbers, from 1, of reads that find the store away."""
        self.asked: list[Asked] = []
        self._away, self._since = away, object()
        _WATCH.set(self._since)

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in self.READS:
            return found

        async def read(collection: Collection, *given: Any, **named: Any) -> Any:
            if _WATCH.get(None) is self._since:
                self.asked.append(Asked(name, collection, given, named))
                if len(self.asked) in self._away:
                    raise StoreUnavailable("taken away by a test")
            return await found(collection, *given, **named)

        return read
