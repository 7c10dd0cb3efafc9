"""The erasure key: it seals the key of each tenant's tombstones, and lies outside of the store.

It is the setting RECALLD_ERASURE_KEY, or the file `erasure.key` in the data directory, which is made when the first
user is erased. Whoever has a copy of the store alone cannot tell whom a tombstone names.
"""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.errors import ErasureKeyUnavailable
from app.settings import Settings

FILE_NAME = "erasure.key"
LEAST_CHARACTERS = 32
_BYTES = 32


@dataclass(frozen=True, slots=True)
class ErasureKey:
    """`setting` is empty where the file in `directory` holds the key."""

    setting: str
    directory: Path

    @classmethod
    def of(cls, settings: Settings) -> "ErasureKey":
        return cls(settings.erasure_key.get_secret_value(), settings.data_dir)

    @property
    def file(self) -> Path:
        return self.directory / FILE_NAME

    @property
    def place(self) -> str:
        """Where an operator looks for the key."""
        return "RECALLD_ERASURE_KEY" if self.setting else f"RECALLD_ERASURE_KEY (not set) or {self.file}"

    def read(self) -> bytes | None:
        """None where there is no key yet. Raises ErasureKeyUnavailable."""
        if self.setting:
            return self.setting.encode()
        try:
            text = self.file.read_bytes().strip()  # the same text may be moved into the setting
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise ErasureKeyUnavailable(f"{self.file} cannot be read: {fault.strerror}.") from fault
        if len(text) < LEAST_CHARACTERS:
            raise ErasureKeyUnavailable(f"{self.file} holds no key: it is shorter than {LEAST_CHARACTERS} characters.")
        return text

    def read_or_make(self) -> bytes:
        """Makes the file where there is no key: durable, and readable by its owner only. Raises
        ErasureKeyUnavailable."""
        found = self.read()
        if found is None:
            try:
                self._make()
            except OSError as fault:
                raise ErasureKeyUnavailable(f"{self.file} cannot be made: {fault.strerror}.") from fault
            found = self.read()
        if found is None:
            raise ErasureKeyUnavailable(f"{self.file} was removed while it was read.")
        return found

    def _make(self) -> None:
        """Under its name only when it is whole; of two processes that make one, the first one's stays."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self.file.with_name(f"{FILE_NAME}.{secrets.token_hex(8)}")
        opened = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.fchmod(opened, 0o600)
            os.write(opened, secrets.token_hex(_BYTES).encode() + b"\n")
            os.fsync(opened)
            with suppress(FileExistsError):
                os.link(part, self.file)
        finally:
            os.close(opened)
            part.unlink()
        folder = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
