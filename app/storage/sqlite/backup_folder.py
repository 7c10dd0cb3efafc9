"""A folder of dated backups: the name of the next one, which to restore for a moment, and which may go."""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.storage.sqlite.backup import verify_backup
from app.storage.transfer import BackupRefused

_FORM = "recalld-%Y%m%dT%H%M%SZ.backup"
_NAME = re.compile(r"recalld-\d{8}T\d{6}Z\.backup")


@dataclass(frozen=True, slots=True, order=True)
class DatedBackup:
    """A file of the folder whose name has the form of a backup, and the time in its name."""

    time: datetime
    file: Path


def next_file(folder: Path, now: datetime) -> Path:
    """Returns the file for a backup made now, and makes the folder. Raises BackupRefused."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BackupRefused(f"{folder} cannot be used as a folder: {error.strerror}.") from error
    return folder / now.astimezone(UTC).strftime(_FORM)


def dated(folder: Path) -> list[DatedBackup]:
    """Returns the files of the folder that are named like backups, the oldest first. Raises BackupRefused."""
    found = []
    try:
        for file in folder.iterdir():
            if _NAME.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                with suppress(ValueError):  # a name with a 32nd day
                    found.append(DatedBackup(datetime.strptime(file.name, _FORM).replace(tzinfo=UTC), file))
    except OSError as error:
        raise BackupRefused(f"{folder} cannot be read: {error.strerror}.") from error
    return sorted(found)


def chosen(folder: Path, at: datetime | None) -> Path:
    """Returns the newest backup of the folder that was begun at `at` or before it; the newest of all without `at`.

    Raises BackupRefused if there is none.
    """
    there = dated(folder)
    fitting = [one for one in there if at is None or one.time <= at]
    if fitting:
        return fitting[-1].file
    if there:
        raise BackupRefused(f"{folder} has no backup from {at} or before; the oldest is {there[0].file.name}.")
    raise BackupRefused(f"{folder} has no dated backup, as `recalld backup --keep` makes them.")


def prune(new: Path, keep: int) -> list[Path]:
    """Verifies the backup `new`, then deletes all but the newest `keep` backups of its folder. Returns what it deleted.

    Deletes only whole backups of Recalld: any other file stays, whatever its name, and does not count. Raises
    BackupRefused, before anything was deleted, if `new` cannot be read back.
    """
    verify_backup(new)
    older = [one.file for one in reversed(dated(new.parent)) if one.file != new]
    whole = [file for file in older if _is_whole(file)]
    gone = whole[max(0, keep - 1) :]
    for file in gone:
        file.unlink(missing_ok=True)
    return gone


def _is_whole(file: Path) -> bool:
    try:
        verify_backup(file)
    except BackupRefused:
        return False
    return True
