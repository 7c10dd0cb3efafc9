"""Static files of the service's own pages: read once for each change, compressed, with an ETag."""

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""The types of files that are served, by the end of the name. Others are not found."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served."""

    content: bytes
    compressed: bytes
    """The content as gzip."""
    etag: str
    media_type: str


class Folder:
    """The files of a folder. A file that changes on disk is read anew, so what is edited is what is served."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._read: dict[str, tuple[tuple[int, int], Asset]] = {}

    async def get(self, name: str) -> Asset | None:
        """Returns the file, or None if there is none or it is not one that is served. `name` is a path inside the
        folder, with `/`."""
        return await asyncio.to_thread(self._get, name)

    def _get(self, name: str) -> Asset | None:
        path = self._root / name
        media_type = TYPES.get(path.suffix)
        try:
            if media_type is None or not path.resolve().is_relative_to(self._root) or not path.is_file():
                return None
            found = path.stat()
        except (OSError, ValueError):  # a name too long, or with a NUL
            return None
        seen = found.st_mtime_ns, found.st_size
        known = self._read.get(name)
        if known is None or known[0] != seen:
            known = self._read[name] = seen, _asset(path.read_bytes(), media_type)
        return known[1]


def _asset(content: bytes, media_type: str) -> Asset:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Asset(content, gzip.compress(content, mtime=0), etag, media_type)
