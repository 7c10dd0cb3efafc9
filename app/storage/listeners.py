"""Callbacks that an engine calls after its commits, so that a task of the same process need not ask again and again."""

from collections.abc import Callable, Sequence

from app.storage.changes import Change, Insert
from app.storage.schema import Collection

Callback = Callable[[], None]


class InsertListeners:
    """Callbacks by collection. Called in the event loop that committed, after the commit."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callback]] = {}

    def add(self, collection: Collection, callback: Callback) -> None:
        self._callbacks.setdefault(collection.name, []).append(callback)

    def notify(self, changes: Sequence[Change]) -> None:
        if not self._callbacks:
            return
        inserted = {change.collection.name for change in changes if isinstance(change, Insert)}
        for name in inserted & self._callbacks.keys():
            for callback in self._callbacks[name]:
                callback()
