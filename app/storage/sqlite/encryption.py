"""Encryption of the database file, its log and its backups, by SQLite3 Multiple Ciphers (the extra `encryption`).

Each page is encrypted and authenticated with ChaCha20-Poly1305. The authentication code at the end of a page takes the
place of the checksum of `cksumvfs`: a page that was altered cannot be read.
Source: https://utelle.github.io/SQLite3MultipleCiphers/docs/ciphers/cipher_chacha20/
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from app.core.files import warn_of_readers
from app.errors import StoreUnavailable

CIPHER = "chacha20"
CODE_BYTES = 32
"""Bytes that each encrypted page reserves: a nonce of 16 bytes and an authentication code of 16."""
RESERVED_AT = 20
"""Place of the number of reserved bytes in the header of a database."""
HEADER_BYTES = 24
PAYLOAD_FRACTIONS = b"\x40\x20\x20"
"""These bytes follow the number of reserved bytes in the header of every database. The cipher leaves them readable."""
MAKE_A_KEY = "`openssl rand -hex 32 > FILE` makes one"
_PREFIX = "multipleciphers-"
_PLAIN_LAYER = "win32" if os.name == "nt" else "unix"
_DIGITS = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class StoreKey:
    """The key of a store, 256 bits as 64 hexadecimal digits. Its `repr` omits them."""

    digits: str = field(repr=False)

    @classmethod
    def of_text(cls, text: str, source: str) -> "StoreKey":
        """Returns the key that a text holds; `source` names it in errors. Raises StoreUnavailable."""
        digits = text.strip()
        if not _DIGITS.fullmatch(digits):
            raise StoreUnavailable(f"{source} holds no key: a key is 64 hexadecimal digits; {MAKE_A_KEY}.")
        return cls(digits.lower())

    @classmethod
    def of_file(cls, file: Path) -> "StoreKey":
        """Returns the key that a file holds. Raises StoreUnavailable."""
        try:
            text = file.read_text()
            warn_of_readers(file)
            return cls.of_text(text, str(file))
        except OSError as error:
            raise StoreUnavailable(f"The store's key cannot be read: {file}: {error.strerror}.") from error
        except UnicodeDecodeError:
            raise StoreUnavailable(f"{file} holds no key: a key is 64 hexadecimal digits; {MAKE_A_KEY}.") from None

    @property
    def pragma(self) -> str:
        """The value of `PRAGMA key`: the bytes of the key itself, not a passphrase from which one is derived."""
        return f"raw:{self.digits}"


def cipher_layer() -> str:
    """Returns the name of the file layer that encrypts. Raises StoreUnavailable if this apsw has none."""
    name = next((name for name in apsw.vfs_names() if name.startswith(_PREFIX)), None)
    if name is None:
        raise StoreUnavailable(
            "A key for the store is set, and encryption needs the package apsw-sqlite3mc in the place of apsw: "
            "`scripts/extra encryption` installs it."
        )
    return name


def open_keyed(path: Path, key: StoreKey, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
    """Opens an encrypted database, or one that will be. Raises StoreUnavailable and errors of SQLite.

    SQLite uses the key at the first statement: see `key_errors`.
    """
    connection = apsw.Connection(str(path), flags=flags, vfs=cipher_layer(), statementcachesize=512)
    connection.pragma("cipher", CIPHER)
    connection.pragma("key", key.pragma)
    return connection


@contextmanager
def key_errors(name: str, key: StoreKey | None) -> Iterator[None]:
    """Converts the error of a database that the key does not open to StoreUnavailable, which names the file."""
    try:
        yield
    except apsw.NotADBError as error:
        if key is None:
            raise
        raise StoreUnavailable(
            f"The key does not open {name}: it was encrypted with another one, or its first page is damaged."
        ) from error


def header_of(path: Path) -> bytes:
    """Returns the first bytes of a database file; fewer if it is shorter. Raises errors of SQLite.

    SQLite's own file layer reads them: closing another handle of the file would drop SQLite's locks of this process.
    """
    file = apsw.VFSFile(_PLAIN_LAYER, str(path), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        size = min(HEADER_BYTES, file.xFileSize())
        return file.xRead(size, 0) if size else b""
    finally:
        file.xClose()


def is_encrypted(header: bytes) -> bool:
    """Returns whether the first bytes of a file are those of an encrypted database.

    Another database has another number of reserved bytes, even if its first bytes are damaged.
    """
    return header[RESERVED_AT : RESERVED_AT + 4] == bytes([CODE_BYTES]) + PAYLOAD_FRACTIONS


def uses_cipher(connection: apsw.Connection) -> bool:
    """Returns whether the connection's database is encrypted."""
    return connection.open_vfs.startswith(_PREFIX)


def refuse_mismatch(path: Path, key: StoreKey | None, name: str = "") -> None:
    """Raises StoreUnavailable, which names the file, if it is encrypted and there is no key, or the other way round."""
    header, name = header_of(path), name or path.name
    if header and key is None and is_encrypted(header):
        raise StoreUnavailable(f"{name} is encrypted: name its key with RECALLD_STORE_KEY_FILE or RECALLD_STORE_KEY.")
    if header and key is not None and not is_encrypted(header):
        raise StoreUnavailable(
            f"{name} is not encrypted, and a key for the store is set. Unset it and run `recalld rekey FILE` to "
            "encrypt the store with the key in FILE."
        )
