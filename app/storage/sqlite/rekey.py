"""Encrypts a store, or gives an encrypted one a new key."""

import os
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import apsw

from app.errors import StoreUnavailable
from app.storage.sqlite.backup import look_through, replace
from app.storage.sqlite.connections import OPEN_FLAGS, connect, translate_errors
from app.storage.sqlite.pages import CIPHER, StoreKey, cipher_layer


def rekey(path: Path, key: StoreKey | None, new: StoreKey, busy_timeout_ms: int) -> None:
    """Writes the database anew, encrypted with the key `new`, and puts it in the place of the old file.

    `key` is the key of the store as it is, None if it is not encrypted. Needs the room of a second copy. A crash leaves
    the old file or the new one. Raises StoreUnavailable, also if another process uses the store.
    """
    cipher_layer()  # before anything is done
    if key == new:
        raise StoreUnavailable("This is the key that the store has.")
    flags = OPEN_FLAGS | apsw.SQLITE_OPEN_URI
    with closing(connect(path, busy_timeout_ms, key, flags)) as connection, translate_errors():
        replace(path, connection, lambda source, target: _copy(source, target, new))


def _copy(connection: apsw.Connection, target: Path, key: StoreKey) -> None:
    """Writes an encrypted copy into an empty file, looks through it, and syncs it."""
    given = f"vfs={cipher_layer()}&cipher={CIPHER}&key={quote(key.pragma)}"
    try:
        connection.execute("VACUUM INTO ?", (f"{target.absolute().as_uri()}?{given}",))
    except apsw.CantOpenError:
        raise apsw.CantOpenError(str(target)) from None  # SQLite's own message quotes the key
    look_through(target, key, target.name)
    with target.open("r+b") as file:
        os.fsync(file.fileno())
