"""Damaged files: each fault is noticed and named, nothing damaged is served, and nothing is overwritten.

A log that is altered under a running process is not noticed: SQLite verifies the log when it recovers. Decision 17 says
why that is so.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import StoreDamaged, StoreUnavailable
from app.storage.changes import Delete
from app.storage.sqlite.connections import (
    CHECKSUM_BYTES,
    RESERVED_AT,
    Faults,
    connect,
    header_of,
    log_of,
    note_of,
    read_note,
)
from app.storage.sqlite.files import backup, bad_pages, failing_pages, findings, restore, verify_rest
from app.storage.sqlite.store import FILE_NAME, EmbeddedOptions, EmbeddedStore
from app.storage.transfer import BackupRefused
from tests.storage.sqlite.conftest import COLLECTIONS, Open
from tests.support.declared import DIM, THINGS, T, entry, thing

pytestmark = pytest.mark.anyio
PAGE = 8192
FRAME = PAGE + 24


@pytest.fixture
async def crashed(store: EmbeddedStore, tmp_path: Path) -> Path:
    """The database file of a store whose process was killed after 60 acknowledged writes, all of them in the log."""
    for number in range(60):
        await store.commit([thing(f"t{number}", name="x" * 500)])
    return copied(tmp_path, tmp_path / "crashed")


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for ending in ("", "-wal", "-commits"):
        shutil.copy(folder / f"{FILE_NAME}{ending}", target)
    return target / FILE_NAME


async def opened(path: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(path.parent, COLLECTIONS, EmbeddedOptions(busy_timeout_ms=50), dim=DIM)


async def stored(path: Path) -> int:
    store = await opened(path)
    try:
        assert all(finding.ok for finding in await store.check(deep=True))
        return await store.count(THINGS, T)
    finally:
        await store.close()


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def has_checksums(path: Path) -> bool:
    return header_of(path)[RESERVED_AT] == CHECKSUM_BYTES


def removed(file: Path) -> None:
    file.unlink()


async def test_a_log_as_a_killed_process_leaves_it_is_whole(crashed: Path) -> None:
    assert log_of(crashed).stat().st_size > 60 * FRAME
    assert findings(crashed)[0].detail == "whole"
    assert await stored(crashed) == 60


@pytest.mark.parametrize(
    "spoil",
    [
        lambda log: flip(log, 32 + 70 * FRAME + 3_000),
        lambda log: flip(log, 32 + 3 * FRAME + 9),
        lambda log: flip(log, log.stat().st_size - 100),
        lambda log: flip(log, 17),
        lambda log: log.write_bytes(log.read_bytes()[:-FRAME]),
        lambda log: log.write_bytes(log.read_bytes()[: 32 + 90 * FRAME]),
        lambda log: log.write_bytes(b""),
        lambda log: log.unlink(),
    ],
    ids=["page", "head", "last page", "header", "last frame cut", "half cut", "emptied", "deleted"],
)
async def test_a_log_that_is_cut_or_altered_is_named_and_left_as_it_is(
    crashed: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(log_of(crashed))
    before = {file.name: file.read_bytes() for file in crashed.parent.iterdir()}
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"^recalld.db-wal is damaged: .*Restore a backup, or run"):
            await opened(crashed)
    after = {file.name: file.read_bytes() for file in crashed.parent.iterdir() if not file.name.endswith("-shm")}
    assert {name: after.get(name, b"") for name in before} == before, "nothing was overwritten"


async def test_doctor_names_a_log_whose_end_is_missing_and_leaves_it_as_it_is(crashed: Path) -> None:
    cut = log_of(crashed).read_bytes()[: 32 + 90 * FRAME]
    log_of(crashed).write_bytes(cut)
    log, database = findings(crashed)
    assert (log.name, log.ok, database.ok) == ("recalld.db-wal", False, True)
    assert "acknowledged commits are missing" in log.detail
    assert log_of(crashed).read_bytes() == cut


async def test_what_a_crash_left_of_an_unacknowledged_write_is_no_damage(crashed: Path) -> None:
    with log_of(crashed).open("ab") as log:
        log.write(log_of(crashed).read_bytes()[-FRAME:] + b"\x01" * 5_000)
    assert await stored(crashed) == 60


async def test_a_note_that_is_missing_or_damaged_keeps_no_store_from_opening(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(note_of(crashed), 20)
    assert read_note(crashed) is None
    assert await stored(crashed) == 60
    assert "note of the last commit is damaged" in caplog.text
    removed(note_of(crashed))
    assert await stored(crashed) == 60


async def test_an_older_copy_of_the_database_is_refused_until_the_note_is_deleted(
    store: EmbeddedStore, open_store: Open
) -> None:
    path = await closed_store(store, 3)
    older = path.read_bytes()
    later = await open_store()
    await later.commit([thing("later")])
    await later.close()
    path.write_bytes(older)
    with pytest.raises(StoreDamaged, match=r"1 acknowledged commits are missing .*delete recalld.db-commits"):
        await opened(path)
    removed(note_of(path))
    assert await stored(path) == 3


async def test_a_database_that_is_missing_beside_its_log_is_not_made_anew(crashed: Path) -> None:
    removed(crashed)
    with pytest.raises(StoreDamaged, match=r"^recalld.db-wal is damaged: it is the log of a database that is missing"):
        await opened(crashed)


async def closed_store(store: EmbeddedStore, number: int = 200) -> Path:
    await store.commit([one for i in range(number) for one in (thing(f"t{i}", name="x" * 900), entry("tea", f"e{i}"))])
    await store.close()
    return store._path


async def test_a_flipped_bit_on_any_page_is_named_at_the_start(store: EmbeddedStore) -> None:
    path = await closed_store(store)
    whole = path.read_bytes()
    for page in range(0, len(whole) // PAGE, 3):
        flip(path, page * PAGE + 4_321)
        with pytest.raises(StoreDamaged, match=r"^recalld.db is damaged: "):
            await opened(path)
        path.write_bytes(whole)
    assert await stored(path) == 200


@pytest.mark.parametrize("at", [0, 16, 18, 20, 60, 63, 68])
async def test_a_damaged_header_is_named(store: EmbeddedStore, at: int) -> None:
    path = await closed_store(store, 1)
    for bit in range(8):
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        with pytest.raises(StoreUnavailable, match=r"damaged|newer version"):
            await opened(path)
        path.write_bytes(whole)
    assert await stored(path) == 1


async def test_damage_met_by_a_read_shuts_the_store(store: EmbeddedStore, open_store: Open) -> None:
    path = await closed_store(store)
    running = await open_store()
    with path.open("r+b") as file:  # every page but the first ones, which hold the schema
        for page in range(60, path.stat().st_size // PAGE):
            file.seek(page * PAGE + 100)
            file.write(b"safe code is 955433")
    with pytest.raises(StoreDamaged, match=r"^recalld.db is damaged: the checksum of a page fails"):
        await running.find(THINGS, T, limit=500)
    for attempt in (running.check(), running.get(THINGS, T, "t1"), running.commit([thing("new")])):
        with pytest.raises(StoreDamaged):
            await attempt


async def test_pages_after_the_first_ones_are_verified_while_the_store_is_served(store: EmbeddedStore) -> None:
    path = await closed_store(store)
    faults = Faults()
    await verify_rest(path, faults, 10)
    assert faults.damage is None
    flip(path, path.stat().st_size - 4_000)
    await verify_rest(path, faults, 10)
    assert faults.damage is not None
    assert "1 pages are not as they were written" in faults.damage.detail


async def test_the_findings_of_the_files_name_what_is_damaged(store: EmbeddedStore) -> None:
    path = await closed_store(store)
    assert [(one.name, one.ok) for one in findings(path)] == [("recalld.db-wal", True), ("recalld.db", True)]
    flip(path, 12 * PAGE + 77)
    flip(path, 20 * PAGE + 77)
    assert [one.detail for one in findings(path) if not one.ok] == ["2 pages are not as they were written (13, 21)"]


async def test_a_backup_has_checksums_on_every_page(store: EmbeddedStore, tmp_path: Path) -> None:
    for number in range(8):  # more than the page cache of a connection, so that pages are written out of order
        await store.commit([thing(f"t{number}-{i}", name="x" * 3_000) for i in range(500)])
    await store.backup(tmp_path / "backup")
    await store.commit([thing("later")])
    path = tmp_path / "restored" / FILE_NAME
    lost_store(note_of(store._path), note_of(path))
    restore(tmp_path / "backup", path.parent, FILE_NAME)
    assert has_checksums(path)
    assert bad_pages(path) == []
    assert await stored(path) == 4_000


async def test_a_damaged_page_is_in_no_backup(store: EmbeddedStore, tmp_path: Path) -> None:
    path = await closed_store(store)
    flip(path, 12 * PAGE + 77)
    with pytest.raises(StoreDamaged, match=r"^recalld.db is damaged: the checksum of a page fails"):
        backup(path, tmp_path / "backup", 50)
    assert backups_in(tmp_path) == []


def backups_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if "backup" in file.name]


def lost_store(note: Path, left: Path) -> None:
    """A directory in which only the note of a lost store is left."""
    left.parent.mkdir()
    shutil.copy(note, left)


# --- Pages of zeros, and pages that have changed places: their checksums are right ------------------------------------


async def long_values(store: EmbeddedStore) -> Path:
    """The database file of a closed store with values of several pages, and with free pages."""
    for number in range(30):
        words = " ".join(f"word{number}x{which}" for which in range(1_000))  # a search row of several pages
        changes = [thing(f"t{number}", name=f"{number:03} " * 5_000), entry(words, f"e{number}")]
        await store.commit([*changes, thing(f"gone{number}", name="y" * 20_000)])
    await store.commit([Delete(THINGS, T, f"gone{number}") for number in range(20)])
    await store.close()
    return store._path


def free_pages(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[36:40])


async def test_a_page_of_zeros_is_damaged_unless_it_is_free(store: EmbeddedStore, tmp_path: Path) -> None:
    path = await long_values(store)
    whole = path.read_bytes()
    pages = [whole[start : start + PAGE] for start in range(0, len(whole), PAGE)]
    free = {number for number, page in enumerate(pages, 1) if not any(page)}
    assert 40 < len(free) < free_pages(path) + 1
    assert findings(path)[1].ok
    for number in range(2, len(pages) + 1):
        if number in free:
            continue
        path.write_bytes(whole[: (number - 1) * PAGE] + bytes(PAGE) + whole[number * PAGE :])
        connection = connect(path, 50)
        assert number in failing_pages(connection), number
        connection.close()
    assert not findings(path)[1].ok
    with pytest.raises(BackupRefused, match=r"is damaged: \d+ pages are not as they were written"):
        backup(path, tmp_path / "backup", 50)
    assert backups_in(tmp_path) == []
    with pytest.raises(StoreDamaged, match=r"^recalld.db is damaged: \d+ pages are not as they were written"):
        await opened(path)
    path.write_bytes(whole)
    assert await stored(path) == 40


async def test_a_free_page_that_the_log_has_given_to_a_table_is_no_damage(store: EmbeddedStore, tmp_path: Path) -> None:
    """The file's own list of free pages counts, not that of the log."""
    path = await long_values(store)
    running = await opened(path)
    reader = connect(path, 50)
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM things").fetchall()  # keeps the checkpoint from copying what follows
        await running.commit([thing(f"new{number}", name="z" * 20_000) for number in range(20)])
        assert free_pages(path) > int(connect(path, 50).pragma("freelist_count"))
        assert bad_pages(path) == []
        assert findings(path)[1].ok
    finally:
        reader.close()
        await running.close()


async def test_parts_of_long_values_that_have_changed_places_are_noticed(store: EmbeddedStore) -> None:
    """SQLite's own check finds nothing: each page is the last one of a long value."""
    path = await long_values(store)
    whole = path.read_bytes()
    pages = [whole[start : start + PAGE] for start in range(0, len(whole), PAGE)]

    one, other = (
        next(at for at, page in enumerate(pages) if page[:4] == bytes(4) and name in page)
        for name in (b"003 003", b"007 007")
    )
    pages[one], pages[other] = pages[other], pages[one]
    path.write_bytes(b"".join(pages))
    spoilt = await opened(path)
    assert len(await spoilt.find(THINGS, T, limit=500)) == 38, "two are left out"
    assert [finding.name for finding in await spoilt.check(deep=True) if not finding.ok] == ["things: documents"]
    await spoilt.close()


async def test_pages_that_have_changed_places_are_named_at_the_start_and_in_no_backup(
    store: EmbeddedStore, tmp_path: Path
) -> None:
    path = await closed_store(store)
    whole = path.read_bytes()
    pages = [whole[start : start + PAGE] for start in range(0, len(whole), PAGE)]
    leaves = [at for at, page in enumerate(pages) if page[0] == 13 and b"x" * 900 in page]
    first, second = leaves[1], leaves[-2]
    pages[first], pages[second] = pages[second], pages[first]
    path.write_bytes(b"".join(pages))
    assert bad_pages(path) == [], "each has its checksum"
    with pytest.raises(BackupRefused, match=r"is damaged: its pages do not fit together"):
        backup(path, tmp_path / "backup", 50)
    with pytest.raises(StoreDamaged, match=r"^recalld.db is damaged: its pages do not fit together: .*out of order"):
        await opened(path)


async def test_pages_of_indexes_that_have_changed_places_are_named_at_the_start(store: EmbeddedStore) -> None:
    """A search would find no partition, and say nothing."""
    path = await closed_store(store, 1)
    connection = connect(path, 50)
    named = "SELECT rootpage FROM sqlite_schema WHERE name IN ('things_id', 'sqlite_autoindex_partitions_1')"
    one, other = (page - 1 for (page,) in connection.execute(named))
    connection.close()
    whole = path.read_bytes()
    pages = [whole[start : start + PAGE] for start in range(0, len(whole), PAGE)]
    pages[one], pages[other] = pages[other], pages[one]
    path.write_bytes(b"".join(pages))
    with pytest.raises(StoreDamaged, match=r"^recalld.db is damaged: its pages do not fit together"):
        await opened(path)
