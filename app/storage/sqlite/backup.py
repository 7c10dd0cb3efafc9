"""Backups of the embedded store: one file with a checksum, and a folder of dated ones; and their restoration."""

import os
import re
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import apsw

from app.storage.sqlite.admission import reserve_of
from app.storage.sqlite.connections import connect, create, open_file, translate_errors
from app.storage.sqlite.encryption import StoreKey
from app.storage.sqlite.log_file import note_of
from app.storage.sqlite.rewrite import hold_folder, look_through, part_of, sync_folder
from app.storage.transfer import BackupRefused

MARK = b"recalld-backup-1"
TRAILER = len(MARK) + 16 + 64
PIECE = 1 << 20
_FORM = "recalld-%Y%m%dT%H%M%SZ.backup"

_NAME = re.compile(r"recalld-\d{8}T\d{6}Z\.backup")


def backup(source: Path, target: Path, busy_timeout_ms: int, key: StoreKey | None = None) -> int:
    """Writes a consistent copy of the database with a checksum; of an encrypted one it has the same key. Returns its
    size in bytes.

    Raises BackupRefused if the target exists, and if what was copied is damaged; and StoreUnavailable.
    """
    if target.exists():
        raise BackupRefused(f"{target} is there already: a backup overwrites nothing.")
    try:
        with part_of(target) as part:
            with translate_errors(), closing(connect(source, busy_timeout_ms, key)) as connection:
                _copy(connection, part, key)
            look_through(part, key, f"the copy of {source.name}")
            with part.open("r+b") as opened:
                length = opened.seek(0, os.SEEK_END)
                opened.seek(0)
                digest = _digest(opened, length)
                opened.write(MARK + f"{length:016x}{digest}".encode())
                opened.flush()
                os.fsync(opened.fileno())
            _link(part, target)
    except OSError as error:
        raise BackupRefused(f"{target} cannot be written: {error.strerror}.") from error
    return target.stat().st_size


def _copy(source: apsw.Connection, target: Path, key: StoreKey | None) -> None:
    """Copies the database page by page into an empty file, while others write. Raises errors of SQLite."""
    # `cksumvfs` learns from the first page of a file that it has checksums: before it writes others
    create(target, 0, key)
    with closing(open_file(target, 0, key)) as copy:
        copy.pragma("user_version")  # reads the first page
        copy.pragma("journal_mode", "OFF")  # a copy that fails is deleted
        with copy.backup("main", source, "main") as run:
            run.step()


def _link(part: Path, target: Path) -> None:
    """Gives the complete file its final name. Never overwrites another file."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise BackupRefused(f"{target} is there already: a backup overwrites nothing.") from None
    sync_folder(target.parent)


def restore(
    file: Path, directory: Path, name: str, beside: AbstractSet[str] = frozenset(), key: StoreKey | None = None
) -> int:
    """Restores a backup into a directory. Returns the size of the database in bytes.

    Raises BackupRefused if the file is damaged or not a backup, or if the directory contains anything but files named
    in `beside`. Raises StoreUnavailable if its key is not this one, and if a process holds the directory: it would go
    on writing into the store that was there before.
    """
    note, reserve = note_of(directory / name), reserve_of(directory / name)  # of the store that was lost
    if directory.exists() and any(
        entry.name not in {*beside, note.name, reserve.name} for entry in directory.iterdir()
    ):
        raise BackupRefused(f"{directory} is not empty: restore into a new directory.")
    try:
        length, expected = _trailer(file)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as held:
            held.callback(os.close, hold_folder(directory, alone=True))
            part = held.enter_context(part_of(directory / name))
            with file.open("rb") as opened, part.open("wb") as result:
                digest = _digest(opened, length, result)
                result.flush()
                os.fsync(result.fileno())
            if digest != expected:
                raise BackupRefused(f"{file} is damaged: its bytes are not those that were written.")
            look_through(part, key, file.name)
            note.unlink(missing_ok=True)
            _link(part, directory / name)
    except OSError as error:
        raise BackupRefused(f"{error.filename or file}: {error.strerror}.") from error
    return length


def _trailer(file: Path) -> tuple[int, str]:
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - TRAILER))
        trailer = opened.read()
    if len(trailer) != TRAILER or not trailer.startswith(MARK):
        raise BackupRefused(f"{file} is no backup of Recalld, or its end is missing.")
    try:
        length, digest = int(trailer[len(MARK) : -64], 16), trailer[-64:].decode()
    except ValueError:
        raise BackupRefused(f"{file} is damaged: its end cannot be read.") from None
    if length != size - TRAILER:
        raise BackupRefused(f"{file} is damaged: it should have {length + TRAILER} bytes and has {size}.")
    return length, digest


def verify_backup(file: Path) -> None:
    """Reads a backup back. Raises BackupRefused if it is none, or if one of its bytes is not as it was written."""
    try:
        length, expected = _trailer(file)
        with file.open("rb") as opened:
            digest = _digest(opened, length)
    except OSError as error:
        raise BackupRefused(f"{file}: {error.strerror}.") from error
    if digest != expected:
        raise BackupRefused(f"{file} is damaged: its bytes are not those that were written.")


def _digest(source: BinaryIO, length: int, copy: BinaryIO | None = None) -> str:
    """Reads `length` bytes, writes them into `copy` and returns their SHA-256."""
    digest, left = sha256(), length
    while left and (piece := source.read(min(PIECE, left))):
        digest.update(piece)
        left -= len(piece)
        if copy is not None:
            copy.write(piece)
    return digest.hexdigest()


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
    backups = []
    try:
        for file in folder.iterdir():
            if _NAME.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                with suppress(ValueError):  # a name with a 32nd day
                    backups.append(DatedBackup(datetime.strptime(file.name, _FORM).replace(tzinfo=UTC), file))
    except OSError as error:
        raise BackupRefused(f"{folder} cannot be read: {error.strerror}.") from error
    return sorted(backups)


def chosen(folder: Path, at: datetime | None) -> Path:
    """Returns the newest backup of the folder that was begun at `at` or before it; the newest of all without `at`.

    Raises BackupRefused if there is none.
    """
    there = dated(folder)
    fitting = [backup for backup in there if at is None or backup.time <= at]
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
    older = [backup.file for backup in reversed(dated(new.parent)) if backup.file != new]
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
