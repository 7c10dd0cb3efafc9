"""Files with secrets, and files that are written durably."""

import logging
import os
import secrets
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

OTHERS = 0o077
"""The rights of everybody but the owner of a file."""

log = logging.getLogger(__name__)


def warn_of_readers(file: Path) -> None:
    """Logs a warning, once in a process, if others than its owner can read or change a file with a key. Raises OSError
    if there is no such file."""
    mode = file.stat().st_mode
    if mode & OTHERS:
        _warn(file, f"{mode & 0o777:04o}")


@lru_cache(maxsize=16)
def _warn(file: Path, mode: str) -> None:
    # the command line prints the message alone
    message = "others than its owner can read %s, which holds a key: chmod 600"
    log.warning(message, file, extra={"file": str(file), "mode": mode})


def write_private(file: Path, text: str, *, keep: bool = False) -> None:
    """Writes a file that only its owner reads, and makes its folder: durably and in one step, so that a crash cannot
    leave half of it. `keep`: if two processes do this, the first file stays. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as opened:
            os.fchmod(opened.fileno(), 0o600)
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        if keep:
            with suppress(FileExistsError):
                os.link(part, file)
        else:
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename or link in a folder durable. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
