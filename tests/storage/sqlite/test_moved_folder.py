"""A data folder that is removed or replaced under a running store is noticed before the next acknowledgement."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import StoreDamaged, StoreUnavailable
from app.storage.sqlite.files import restore
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from tests.storage.sqlite.conftest import Open
from tests.support.declared import THINGS, T, thing

pytestmark = pytest.mark.anyio


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def emptied(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def replaced(folder: Path) -> None:
    """By a copy of itself, as a backup program leaves it."""
    folder.rename(folder.with_name("before"))
    shutil.copytree(folder.with_name("before"), folder)


def restored(folder: Path) -> None:
    """By another folder with a backup."""
    folder.rename(folder.with_name("before"))
    restore(folder.with_name("file.backup"), folder, FILE_NAME)


@pytest.fixture
async def running(open_store: Open, tmp_path: Path) -> EmbeddedStore:
    """A store in a folder of its own, and a backup beside it."""
    store = await open_store(folder=tmp_path / "data")
    await store.commit([thing("t1")])
    await store.backup(tmp_path / "file.backup")
    return store


@pytest.mark.parametrize("change", [removed, emptied, replaced, restored])
async def test_nothing_is_acknowledged_into_a_folder_that_is_gone(
    running: EmbeddedStore, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    change(tmp_path / "data")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"^recalld.db was removed or replaced while this process had it open"):
            await running.commit([thing("t2")])
    for attempt in (running.get(THINGS, T, "t1"), running.check(), running.scrub()):
        with pytest.raises(StoreDamaged):
            await attempt


@pytest.mark.parametrize("change", [removed, replaced])
async def test_an_idle_store_says_so_when_it_is_asked_whether_it_is_ready(
    running: EmbeddedStore, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    change(tmp_path / "data")
    with pytest.raises(StoreDamaged, match=r"was removed or replaced"):
        await running.check()


async def test_a_read_makes_no_new_database_where_one_was_removed(running: EmbeddedStore, tmp_path: Path) -> None:
    emptied(tmp_path / "data")
    with pytest.raises(StoreUnavailable):
        await running.count(THINGS, None)  # on a connection that a thread opens now
    assert list((tmp_path / "data").iterdir()) == []


async def test_a_backup_is_not_restored_into_a_folder_that_a_process_holds(
    running: EmbeddedStore, tmp_path: Path
) -> None:
    file, folder = tmp_path / "file.backup", tmp_path / "data"
    emptied(folder)
    with pytest.raises(StoreUnavailable, match=r"is in use by another process: a service or command has a store there"):
        restore(file, folder, FILE_NAME)
    assert list(folder.iterdir()) == []
    await running.close()
    assert restore(file, folder, FILE_NAME) == (folder / FILE_NAME).stat().st_size
