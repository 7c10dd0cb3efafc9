"""Pages of the database file: their checksums and their encryption.

**Checksums.** Those of SQLite's pages and of the frames of its log are the same sums over 32-bit words, taken in pairs:
s1 += a + s2, then s2 += b + s1. They are linear in the words, so that one product with constant weights gives them, for
many pages at once. Source: https://sqlite.org/cksumvfs.html and https://sqlite.org/fileformat.html#walformat

**Encryption** of the database file, its log and its backups is that of SQLite3 Multiple Ciphers (the extra
`encryption`). Each page is encrypted and authenticated with ChaCha20-Poly1305. The authentication code at the end of a
page takes the place of the checksum of `cksumvfs`: a page that was altered cannot be read.
Source: https://utelle.github.io/SQLite3MultipleCiphers/docs/ciphers/cipher_chacha20/
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from app.core.files import warn_of_readers
from app.errors import StoreUnavailable

WordArray: TypeAlias = NDArray[np.uint32]

HEADER_BYTES = 100
RESERVED_AT = 20
USER_VERSION_AT = 60
CHECKSUM_BYTES = 8
"""Bytes that each page reserves for its checksum. `cksumvfs` works with exactly this number."""
PIECE_BYTES = 1 << 20
_MASK = 0xFFFFFFFF
_VFS = "win32" if os.name == "nt" else "unix"


@cache
def weights(words: int) -> tuple[WordArray, WordArray]:
    """Returns what each of `words` words adds to s1 and to s2, and the 2 × 2 matrix that carries earlier sums over.

    The weights have the shape (2, words).
    """
    result = np.zeros((2, words), np.uint32)
    carry = [[1, 0], [0, 1]]
    for pair in range(words // 2 - 1, -1, -1):
        for row, (first, second) in enumerate(carry):
            result[row, 2 * pair] = (first + second) & _MASK
            result[row, 2 * pair + 1] = second
        carry = [[(first + second) & _MASK, (first + 2 * second) & _MASK] for first, second in carry]
    return result, np.array(carry, np.uint32)


def sums(words: WordArray) -> WordArray:
    """Returns s1 and s2 of each row of words, of the shape (rows, 2)."""
    factors, _ = weights(words.shape[1])
    return np.stack([np.einsum("ij,j->i", words, factor) for factor in factors], 1)


def fails(pages: WordArray) -> NDArray[np.bool_]:
    """Returns which pages, one a row, do not have the checksum of their content."""
    return np.asarray((sums(pages[:, :-2]) != pages[:, -2:]).any(1))


def page_size(header: bytes) -> int:
    """Returns the page size that the header of a database names; 0 if it cannot be one."""
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size >= 512 and not size & (size - 1) else 0


def version_of(header: bytes) -> int:
    """Returns the `user_version` in the header of a database."""
    return int.from_bytes(header[USER_VERSION_AT : USER_VERSION_AT + 4], "big")


class DatabaseFile:
    """Reads the bytes of a database file beside SQLite.

    SQLite's own file layer reads them: closing another handle of the file would drop SQLite's locks of this process.
    """

    def __init__(self, path: Path) -> None:
        """Raises apsw.CantOpenError."""
        self._file = apsw.VFSFile(_VFS, str(path), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
        self.size = self._file.xFileSize()
        self.header = self.read(0, min(HEADER_BYTES, self.size))
        self.page_bytes = page_size(self.header) if len(self.header) == HEADER_BYTES else 0

    def read(self, offset: int, size: int) -> bytes:
        """Returns bytes of the file."""
        return self._file.xRead(size, offset) if size else b""

    def close(self) -> None:
        """Closes the file."""
        self._file.xClose()

    @property
    def checksummed(self) -> bool:
        """Whether the header says that pages have checksums."""
        return bool(self.page_bytes) and self.header[RESERVED_AT] == CHECKSUM_BYTES

    @property
    def user_version(self) -> int:
        """The number that says whether the store was made with checksums."""
        return version_of(self.header)

    def bad_pages(self, first: int = 1, end: int | None = None) -> list[int]:
        """Returns the numbers of the pages from `first` until before `end` whose checksum fails."""
        found: list[int] = []
        last = self.size // self.page_bytes if end is None else min(end - 1, self.size // self.page_bytes)
        step = max(1, PIECE_BYTES // self.page_bytes)
        for start in range(first, last + 1, step):
            number = min(step, last + 1 - start)
            content = self.read((start - 1) * self.page_bytes, number * self.page_bytes)
            words = np.frombuffer(content, "<u4").reshape(number, -1)
            found += (np.flatnonzero(fails(words)) + start).tolist()
        return found


def write_checksums(file: BinaryIO, user_version: int) -> None:
    """Writes the checksums of all pages of a database that no connection has open, and `user_version` into its header.

    SQLite's VACUUM writes pages of a new file before `cksumvfs` has seen the first one, and so without checksums. Does
    nothing if the pages have no room for checksums.
    """
    file.seek(0)
    header = file.read(HEADER_BYTES)
    size = page_size(header)
    if not size or header[RESERVED_AT] != CHECKSUM_BYTES:
        return
    file.seek(USER_VERSION_AT)
    file.write(user_version.to_bytes(4, "big"))
    for offset, pages in _pieces(file, size):
        pages[:, -2:] = sums(pages[:, :-2])
        file.seek(offset)
        file.write(pages.tobytes())


def _pieces(file: BinaryIO, size: int) -> Iterator[tuple[int, WordArray]]:
    offset = 0
    while True:
        file.seek(offset)
        content = file.read(PIECE_BYTES)
        if not content:
            return
        yield offset, np.frombuffer(content, "<u4").reshape(-1, size // 4).copy()
        offset += len(content)


CIPHER = "chacha20"
CODE_BYTES = 32
"""Bytes that each encrypted page reserves: a nonce of 16 bytes and an authentication code of 16."""
PAYLOAD_FRACTIONS = b"\x40\x20\x20"
"""These bytes follow the number of reserved bytes in the header of every database. The cipher leaves them readable."""
MAKE_A_KEY = "`openssl rand -hex 32 > FILE` makes one"
_PREFIX = "multipleciphers-"
_DIGITS = re.compile(r"[0-9a-fA-F]{64}")
_UNREADABLE = (apsw.CorruptError, apsw.NotADBError)


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
    with closing(DatabaseFile(path)) as file:
        header, name = file.header, name or path.name
    if header and key is None and is_encrypted(header):
        raise StoreUnavailable(f"{name} is encrypted: name its key with RECALLD_STORE_KEY_FILE or RECALLD_STORE_KEY.")
    if header and key is not None and not is_encrypted(header):
        raise StoreUnavailable(
            f"{name} is not encrypted, and a key for the store is set. Unset it and run `recalld rekey FILE` to "
            "encrypt the store with the key in FILE."
        )


class EncryptedFile(DatabaseFile):
    """Reads the pages of an encrypted database file beside its log. SQLite verifies the code of each page."""

    def __init__(self, path: Path, key: StoreKey) -> None:
        """Raises StoreUnavailable and errors of SQLite."""
        super().__init__(path)
        self._connection = open_keyed(path, key)
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            with key_errors(path.name, key):
                self._version = int(self._connection.pragma("user_version"))  # the cipher learns the page size, too
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()
        super().close()

    @property
    def checksummed(self) -> bool:
        """Each page has a code."""
        return bool(self.page_bytes)

    @property
    def user_version(self) -> int:
        """The version of the layout."""
        return self._version

    def bad_pages(self, first: int = 1, end: int | None = None) -> list[int]:
        """Returns the numbers of the pages from `first` until before `end` whose code is wrong."""
        last = self.size // self.page_bytes if end is None else min(end - 1, self.size // self.page_bytes)
        return [page for page in range(first, last + 1) if not self._readable(page)]

    def _readable(self, page: int) -> bool:
        try:  # one page at a time: the cipher does not look at longer reads
            self._connection.read("main", 0, (page - 1) * self.page_bytes, self.page_bytes)
        except _UNREADABLE:
            return False
        return True


def database_file(path: Path, key: StoreKey | None) -> DatabaseFile:
    """Opens the file of a database to verify its pages. Raises StoreUnavailable and errors of SQLite."""
    refuse_mismatch(path, key)
    return DatabaseFile(path) if key is None else EncryptedFile(path, key)
