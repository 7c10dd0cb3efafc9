"""The store's files and its backups are for their owner alone."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.sqlite.files import make_private, restore
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from tests.storage.sqlite.conftest import Open
from tests.support.declared import THINGS, T, thing

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """A umask that takes no right from anybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def give(mode: int, *files: Path) -> None:
    for file in files:
        file.chmod(mode)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def filled(store: EmbeddedStore) -> None:
    await store.commit([thing("one")])


async def test_the_database_and_its_log_are_its_owners_alone(tmp_path: Path, open_store: Open) -> None:
    give(0o777, tmp_path)
    await filled(await open_store())
    found = modes(tmp_path)
    assert set(found) >= {FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"}
    assert set(found.values()) == {0o600}


def test_the_database_is_private_before_anything_is_in_it(tmp_path: Path) -> None:
    make_private(tmp_path / FILE_NAME)
    assert modes(tmp_path) == {FILE_NAME: 0o600}
    assert (tmp_path / FILE_NAME).stat().st_size == 0


async def test_files_that_others_could_read_are_tightened_when_the_store_is_opened(
    tmp_path: Path, open_store: Open
) -> None:
    first = await open_store()
    await filled(first)
    give(0o644, *map(tmp_path.joinpath, modes(tmp_path)))
    await open_store()
    assert set(modes(tmp_path).values()) == {0o600}
    assert await first.count(THINGS, T) == 1


async def test_they_stay_so_when_the_database_is_written_anew(tmp_path: Path, open_store: Open) -> None:
    store = await open_store()
    await filled(store)
    await store.purge(T, "nobody", [])
    assert set(modes(tmp_path).values()) == {0o600}


async def test_a_backup_is_private_from_its_first_moment_on_and_so_is_what_is_restored(
    tmp_path: Path, open_store: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, folder = await open_store(), tmp_path_factory.mktemp("backups")
    await filled(store)
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for name in ("one.backup", "one.backup.part"):
                try:
                    seen.add(stat.S_IMODE((folder / name).stat().st_mode))
                except FileNotFoundError:
                    continue

    watching = threading.Thread(target=look)
    watching.start()
    await store.backup(folder / "one.backup")
    done.set()
    watching.join()
    assert seen <= {0o600}
    assert modes(folder) == {"one.backup": 0o600}
    restore(folder / "one.backup", folder / "restored", FILE_NAME)
    assert modes(folder / "restored") == {FILE_NAME: 0o600}


def test_where_the_mode_may_not_be_changed_the_file_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"whole")

    def refused(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    make_private(tmp_path / FILE_NAME)
    assert (tmp_path / FILE_NAME).read_bytes() == b"whole"
