"""Files with secrets."""

import logging
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
