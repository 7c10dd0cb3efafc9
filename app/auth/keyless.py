"""Serves requests without an API key only while no key was ever made for the store. A marker file
records that one was."""

import asyncio
import json
import logging
import os
from contextlib import suppress
from pathlib import Path

from app.auth.keys import Keys

FILE_NAME = "keys-made"

log = logging.getLogger(__name__)


class KeysMade:
    """The marker file, for one store."""

    def __init__(self, directory: Path, store: str) -> None:
        """`store` is the name of the store in use."""
        self.file = directory / FILE_NAME
        self._store = store
        self._seen: tuple[int, int, int] | None = None
        self._named = False

    def names_store(self) -> bool:
        """Returns True if keys were made for the store, or if the file exists but cannot be read.
        Reads the file only when it has changed."""
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        seen = found.st_ino, found.st_mtime_ns, found.st_size
        if seen != self._seen:
            stores = self._read()
            self._named, self._seen = stores is None or self._store in stores, seen
        return self._named

    def note(self) -> None:
        """Adds the store to the file. Logs a warning if the file cannot be written; the key is made nevertheless."""
        stores = self._read() or frozenset()
        if self._store in stores:
            return
        try:
            self._write(json.dumps({"stores": sorted({*stores, self._store})}))
        except OSError as error:
            log.warning(
                "the file that says that API keys were made cannot be written: if the store is lost, "
                "a new one will serve this machine without a key",
                extra={"file": str(self.file), "error": error.strerror},
            )

    def way_out(self) -> str:
        """Returns advice for an operator whose store has no key although the file names the store."""
        return (
            "API keys were made for this store, but it holds none: it is lost, emptied or another one. Put it back, or "
            "`recalld restore` a backup of it (no recalld.db may lie in the directory). To begin anew on purpose, make "
            f"a key with `recalld keys create`, or delete {self.file}."
        )

    def _read(self) -> frozenset[str] | None:
        """Returns the names of the stores, an empty set if there is no file, or None if it cannot be read."""
        try:
            return frozenset(map(str, json.loads(self.file.read_bytes())["stores"]))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _write(self, text: str) -> None:
        """Replaces the file in one step, so that a crash cannot leave half of it."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self.file.with_name(f"{FILE_NAME}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as result:
                result.write(text)
                result.flush()
                os.fsync(result.fileno())
            part.replace(self.file)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


class KeylessAccess:
    """Decides whether this process serves requests without a key. Once a key was seen, it never does again, even if the
    store loses its keys while the process runs."""

    def __init__(self, keys: Keys, marker: KeysMade) -> None:
        self._keys, self._marker = keys, marker
        self.ended = False

    async def allowed(self) -> bool:
        """Returns True if requests without a key are served. Reads the store only while no key was seen.
        Raises StoreUnavailable."""
        if self.ended:
            return False
        if await self._keys.any_made():
            await self.end()
            return False
        return not self._marker.names_store()

    async def lost(self) -> bool:
        """Returns True if keys were made for this store but it has none now. Raises StoreUnavailable."""
        if await self._keys.any_made():
            await self.end()
            return False
        return self._marker.names_store()

    async def end(self) -> None:
        """Ends access without a key, because a key was seen or made, and records it in the marker file."""
        self.ended = True
        await asyncio.to_thread(self._marker.note)
