"""Writes the whole database file anew: with another key, or without deleted bytes.

If it is interrupted, the store is as it was before or as it is afterwards.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from app.errors import StoreUnavailable
from app.storage.sqlite import schema
from app.storage.sqlite.admission import DiskSpace
from app.storage.sqlite.check import failing_pages, named_pages, structure_faults
from app.storage.sqlite.connections import OPEN_FLAGS, PAGE_BYTES, connect, translate_errors, use_checksums
from app.storage.sqlite.encryption import CIPHER, StoreKey, cipher_layer, key_errors, open_keyed, refuse_mismatch
from app.storage.sqlite.log_file import checkpoint_after_others
from app.storage.transfer import BackupRefused

log = logging.getLogger(__name__)
OWNER_ONLY = 0o600
BESIDE_DATABASE = ("-wal", "-shm", "-journal", "-commits")
"""Suffixes of the files beside a database: those of SQLite, which get the database's mode, and the note of commits."""
FRAME_HEADER_BYTES = 24
"""Of a page in the log."""
LEAST_WAIT_MS = 5_000
"""Waits at least this long for readers of other processes to finish."""


def _keep_others_out(connection: apsw.Connection) -> None:
    """Makes the connection the only one until it is closed, and empties the log. Raises StoreUnavailable and errors of
    SQLite."""
    connection.pragma("locking_mode", "EXCLUSIVE")
    if connection.pragma("journal_mode", "DELETE") != "delete":
        raise StoreUnavailable("The store is used by another process.")
    connection.execute("BEGIN EXCLUSIVE")  # holds the lock until the connection is closed
    connection.execute("COMMIT")


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """Yields an empty private file beside the target, into which SQLite can write. If it still has this name in the
    end, it is deleted. Raises OSError."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        make_private(part)
        yield part
    finally:
        part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes a rename or link in a folder durable. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def look_through(database: Path, key: StoreKey | None, name: str) -> None:
    """Reads every page of a database that no process uses, and looks whether they fit together. Raises BackupRefused,
    which names it, if it is damaged, and StoreUnavailable, also if a newer version wrote it."""
    use_checksums()
    with translate_errors():
        refuse_mismatch(database, key, name)
        flags = apsw.SQLITE_OPEN_READWRITE  # whoever only reads leaves the files of an empty log behind
        opened = open_keyed(database, key, flags) if key else apsw.Connection(str(database), flags=flags)
        with closing(opened) as connection:
            with key_errors(name, key):
                connection.pragma("user_version")
            pages = failing_pages(connection)
            faults = named_pages(pages) if pages else structure_faults(connection)
            if faults:
                raise BackupRefused(f"{name} is damaged: {faults}.")
            schema.refuse_newer(connection, name)


def make_private(database: Path) -> None:
    """Creates an empty file if there is none, and removes access by others from the database and the files beside it.

    If changing the mode is refused (a file of another user, a file system without modes), the mode stays. Raises
    OSError if the file cannot be created.
    """
    # an existing file is not opened: closing it would drop SQLite's locks of this process
    with suppress(FileExistsError):
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    for file in (database, *(database.with_name(database.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(OWNER_ONLY)


def make_folder(path: Path) -> int:
    """Makes the folder of a database file and makes the file private. Returns the folder as `hold_folder` opens it.
    Raises StoreUnavailable and CantOpenError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = hold_folder(path.parent)
        make_private(path)
    except OSError as error:
        raise apsw.CantOpenError(f"{error.filename or path}: {error.strerror}") from error
    return held


def hold_folder(folder: Path, *, alone: bool = False) -> int:
    """Opens a folder and locks it until it is closed. All processes with a store there hold it together, whatever
    becomes of its files; who restores a backup into it is `alone`. Raises StoreUnavailable and OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_NB | (fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
    except BlockingIOError:
        os.close(opened)
        who = "a service or command has a store there" if alone else "a backup is restored into it"
        raise StoreUnavailable(f"{folder} is in use by another process: {who}. Nothing was written.") from None
    except OSError as error:  # a file system without such locks
        log.warning("the data directory cannot be locked", extra={"error": str(error)})
    return opened


def scrub(path: Path, busy_timeout_ms: int, space: DiskSpace, key: StoreKey | None) -> None:
    """Rewrites the database without deleted bytes. Runs while this process writes nothing.

    The new pages are in the log first, so as many bytes must be free as the database uses. Raises StorageFull if they
    are not, even with those kept back, and StoreUnavailable if another process keeps the log open.
    """
    with closing(connect(path, max(busy_timeout_ms, LEAST_WAIT_MS), key)) as connection:
        connection.pragma("temp_store", "FILE")  # the copy may not fit in memory; of an encrypted store it is encrypted
        pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
        log_bytes = (pages + 1) * (PAGE_BYTES + FRAME_HEADER_BYTES)  # every page that is in use
        with space.room_for(log_bytes, "overwrite what was deleted"):
            connection.execute("VACUUM").fetchall()
            if not checkpoint_after_others(connection, "TRUNCATE"):
                raise StoreUnavailable("Another process still reads what was deleted: please try again.")


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
        _keep_others_out(connection)
        try:
            with part_of(path) as part:
                encrypted = f"vfs={cipher_layer()}&cipher={CIPHER}&key={quote(new.pragma)}"
                try:
                    connection.execute("VACUUM INTO ?", (f"{part.absolute().as_uri()}?{encrypted}",))
                except apsw.CantOpenError:
                    raise apsw.CantOpenError(str(part)) from None  # SQLite's own message quotes the key
                look_through(part, new, part.name)
                with part.open("r+b") as file:
                    os.fsync(file.fileno())
                part.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            raise StoreUnavailable(f"{error.filename or path}: {error.strerror}.") from error
