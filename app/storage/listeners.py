"""Callbacks that an engine calls after its commits, so that tasks of the same process need not poll."""

from collections.abc import Callable, Sequence

from app.storage.changes import Change, Insert
from app.storage.schema import Collection

Callback = Callable[[], None]


class InsertListeners:
    """Callbacks by collection. They are called in the event loop of the commit, after the commit."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callback]] = {}

    def add(self, collection: Collection, callback: Callback) -> None:
        """Registers a callback for inserts into the collection."""
        self._callbacks.setdefault(collection.name, []).append(callback)

    def notify(self, changes: Sequence[Change]) -> None:
        """Calls each callback whose collection has an insert among the changes."""
        if not self._callbacks:
            return
        inserted = {change.collection.name for change in changes if isinstance(change, Insert)}
        for name in inserted & self._callbacks.keys():
            for callback in self._callbacks[name]:
                callback()
