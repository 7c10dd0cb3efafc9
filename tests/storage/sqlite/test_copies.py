"""Whatever writes a whole file leaves a right checksum on each of its pages, also if the file is larger than any cache.

`cksumvfs` writes checksums from the moment on at which it has seen the first page of a file. SQLite writes a file that
does not fit into its cache in the order in which pages leave the cache: a copy of 2 MB is right either way, one of 200
MB only if the first page came first.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from app.storage.sqlite.connections import FILE_NAME, PAGE_BYTES, checkpoint, connect, use_checksums
from app.storage.sqlite.files import backup, bad_pages, failing_pages, findings, prepare, restore, scrub
from app.storage.sqlite.writer import DiskSpace
from tests.storage.sqlite.conftest import COLLECTIONS

MB = 1 << 20
WAIT_MS = 5_000


@pytest.fixture(params=[16, pytest.param(200, marks=pytest.mark.release)], ids="{} MB".format)
def megabytes(request: pytest.FixtureRequest) -> int:
    size: int = request.param
    return size


@pytest.fixture
def store(tmp_path: Path, megabytes: int) -> Path:
    """The database of a store."""
    path = tmp_path / "store" / FILE_NAME
    path.parent.mkdir()
    fill(path, megabytes)
    return path


def fill(path: Path, megabytes: int) -> None:
    """Leaves most in the database, and deletions in its log."""
    prepare(path, COLLECTIONS, WAIT_MS, None)
    with closing(connect(path, WAIT_MS)) as connection:
        connection.execute("CREATE TABLE padding (row INTEGER PRIMARY KEY, content BLOB)")
        connection.execute("CREATE INDEX padding_by_end ON padding (substr(content, -20))")
        for _ in range(megabytes // 4):
            connection.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
                "INSERT INTO padding (content) SELECT randomblob(1000 + i * 17 % 9000) FROM n"
            )
        checkpoint(connection)
        connection.execute("DELETE FROM padding WHERE row % 7 = 0")
    assert path.stat().st_size > megabytes * MB


def rows(path: Path) -> Sequence[object]:
    with closing(connect(path, WAIT_MS)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute("SELECT count(*), sum(length(content)) FROM padding").fetchall()


def test_of_a_backup_and_what_is_restored_from_it(store: Path, tmp_path: Path) -> None:
    size = backup(store, tmp_path / "backup", WAIT_MS)
    restored = tmp_path / "restored" / FILE_NAME
    restore(tmp_path / "backup", restored.parent, FILE_NAME)
    assert bad_pages(restored) == []
    assert findings(restored)[1].detail == f"the checksums of {restored.stat().st_size // PAGE_BYTES} pages are right"
    assert size > restored.stat().st_size > store.stat().st_size / 2
    assert rows(restored) == rows(store)


def test_of_a_store_that_is_written_anew_after_an_erasure(store: Path) -> None:
    before, size = rows(store), store.stat().st_size
    scrub(store, WAIT_MS, DiskSpace(store, 0), None)
    assert store.stat().st_size < size
    assert bad_pages(store) == []
    assert rows(store) == before


def test_a_copy_without_them_is_found(store: Path, tmp_path: Path) -> None:
    """The planted bug: `VACUUM INTO` as it is."""
    use_checksums()
    copy = tmp_path / "copy"
    with closing(connect(store, WAIT_MS)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    with closing(apsw.Connection(str(copy))) as connection:
        connection.pragma("user_version")
        assert len(failing_pages(connection)) > 1_000
