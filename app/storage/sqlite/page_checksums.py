"""The checksums of SQLite's pages and of the frames of its log, computed for many of them at once.

Both are the same sums over 32-bit words, taken in pairs: s1 += a + s2, then s2 += b + s1. They are linear in the words,
so that one product with constant weights gives them.
Source: https://sqlite.org/cksumvfs.html and https://sqlite.org/fileformat.html#walformat
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

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
