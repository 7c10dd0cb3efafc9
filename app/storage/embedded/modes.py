"""The store's files are for their owner alone, whatever the directory's mode and the umask."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

OWNER_ONLY = 0o600
BESIDE_DATABASE = ("-wal", "-shm", "-journal")
"""What SQLite puts beside a database. It gives new ones the database's mode."""


def make_private(database: Path, *, tighten: Callable[[Path, int], None] = Path.chmod) -> None:
    """Makes an empty file where there is none; takes the rights of others from the database and the files beside it.

    Where that is refused (somebody else's file, a file system without modes) the mode stays as it is. Raises OSError
    where the file cannot be made.
    """
    with suppress(FileExistsError):  # never opened then: closing it would drop SQLite's locks of this process
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    for file in (database, *(database.with_name(database.name + ending) for ending in BESIDE_DATABASE)):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                tighten(file, OWNER_ONLY)
