"""An encrypted store: no file shows its content, only its key opens it, and damage is noticed.

These tests need apsw-sqlite3mc in the place of apsw. tests/cli/test_encryption.py runs them where it is installed.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from app.errors import StoreDamaged, StoreUnavailable
from app.storage.factory import where_of
from app.storage.sqlite.connections import Faults, StoreKey, connect, log_of, note_of
from app.storage.sqlite.files import bad_pages, findings, rekey, restore, salvage, verify_rest
from app.storage.sqlite.store import FILE_NAME, EmbeddedOptions, EmbeddedStore
from tests.conftest import settings_of
from tests.storage.sqlite.conftest import COLLECTIONS, Open
from tests.storage.sqlite.test_damage import FRAME, PAGE, copied, flip
from tests.support.declared import DIM, ENTRIES, THINGS, T, entry, thing
from tests.support.encryption import KEY, OTHER_KEY, can_encrypt

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not can_encrypt(), reason="run by tests/cli/test_encryption.py, in .venv-encryption"),
]
FIRST, SECOND = StoreKey(KEY), StoreKey(OTHER_KEY)
NEEDLE = "the safe code is 955433"
OpenWith = Callable[..., Awaitable[EmbeddedStore]]


@pytest.fixture(autouse=True)
def no_other_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECALLD_STORE_KEY", raising=False)


@pytest.fixture
def open_with(open_store: Open) -> OpenWith:
    async def opened(key: StoreKey | None = FIRST) -> EmbeddedStore:
        return await open_store(key=key)

    return opened


async def fill(store: EmbeddedStore, number: int = 300, chars: int = 700) -> None:
    for first in range(0, number, 50):
        rows = range(first, first + 50)
        await store.commit([thing(f"t{row}", name=f"{NEEDLE} {row} " + "x" * chars) for row in rows])
        await store.commit([entry("tea", f"e{row}") for row in rows])


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def showing(folder: Path) -> set[str]:
    """Names of the files that show the content, or what SQLite writes in a header or a schema."""
    signs = (NEEDLE.encode(), b"SQLite format", b"CREATE TABLE", b"thing_id")
    return {name for name, content in files(folder).items() if any(sign in content for sign in signs)}


async def numbers(store: EmbeddedStore) -> tuple[int, int]:
    assert all(finding.ok for finding in await store.check(deep=True))
    return await store.count(THINGS, T), await store.count(ENTRIES, T)


async def closed_store(open_with: OpenWith, key: StoreKey | None = FIRST) -> Path:
    store = await open_with(key)
    await fill(store)
    await store.close()
    return store._path


async def test_no_file_shows_what_is_stored(open_with: OpenWith, tmp_path: Path) -> None:
    store = await open_with()
    await fill(store)
    assert log_of(store._path).stat().st_size > 20 * FRAME
    assert showing(tmp_path) == set()
    await store.backup(tmp_path / "backup")
    await store.scrub()
    await store.close()
    assert set(files(tmp_path)) >= {FILE_NAME, note_of(store._path).name, "backup"}
    assert showing(tmp_path) == set()
    assert await numbers(await open_with()) == (300, 300)


async def test_a_store_without_a_key_shows_it(open_with: OpenWith, tmp_path: Path) -> None:
    """The search above finds what is there."""
    store = await open_with(None)
    await fill(store)
    assert log_of(store._path).name in showing(tmp_path)
    await store.backup(tmp_path / "backup")
    await store.close()
    assert showing(tmp_path) == {FILE_NAME, "backup"}


@pytest.mark.parametrize("key", [FIRST, None], ids=["encrypted", "plain"])
async def test_the_file_that_vacuum_works_with_is_encrypted_too(open_with: OpenWith, key: StoreKey | None) -> None:
    store = await open_with(key)
    await fill(store, 2_000, 8_000)
    seen: set[tuple[bool, bool]] = set()

    def look() -> bool:
        seen.update((len(content) > 1 << 20, NEEDLE.encode() in content) for content in deleted_files())
        return False

    def watch(connection: apsw.Connection) -> None:
        connection.set_progress_handler(look, 500)

    apsw.connection_hooks.append(watch)
    try:
        await store.scrub()
    finally:
        apsw.connection_hooks.remove(watch)
    assert (True, key is None) in seen
    assert (True, key is not None) not in seen


def deleted_files() -> Iterator[bytes]:
    """What the files hold that this process has open and that have no name any more."""
    for handle in Path("/proc/self/fd").iterdir():
        try:
            if str(handle.readlink()).endswith("(deleted)"):
                yield handle.read_bytes()
        except OSError:
            continue


async def refused(attempt: Callable[[], Awaitable[object]], path: Path, why: str) -> None:
    """The attempt fails for this reason, and no file has changed."""
    names = (path, log_of(path), note_of(path))
    before = [file.read_bytes() for file in names if file.exists()]
    with pytest.raises(StoreUnavailable, match=why) as caught:
        await attempt()
    assert not isinstance(caught.value, StoreDamaged)
    assert KEY not in caught.value.detail + str(caught.value.__cause__)
    assert [file.read_bytes() for file in names if file.exists()] == before


async def test_another_key_and_none_are_refused_and_nothing_changes(open_with: OpenWith, tmp_path: Path) -> None:
    store = await open_with()
    await fill(store)
    crashed = copied(tmp_path, tmp_path / "crashed")
    for path in (crashed, store._path):
        if path is store._path:
            await store.close()

        async def attempt(key: StoreKey | None, path: Path = path) -> None:
            await EmbeddedStore.open(path.parent, COLLECTIONS, EmbeddedOptions(busy_timeout_ms=50, key=key), dim=DIM)

        await refused(lambda: attempt(SECOND), path, "The key does not open recalld.db: it was encrypted with another")
        await refused(lambda: attempt(None), path, "recalld.db is encrypted: name its key with RECALLD_STORE_KEY_FILE")
        with pytest.raises(StoreUnavailable, match="is encrypted: name its key"):
            list(findings(path))
    assert await numbers(await open_with()) == (300, 300)


async def test_a_key_for_a_store_without_one_is_refused(open_with: OpenWith) -> None:
    path = await closed_store(open_with, None)
    await refused(lambda: open_with(FIRST), path, "recalld.db is not encrypted, and a key for the store is set")


async def test_an_existing_store_is_encrypted_and_gets_new_keys(open_with: OpenWith, tmp_path: Path) -> None:
    path = await closed_store(open_with, None)
    assert showing(tmp_path) == {FILE_NAME}
    for before, after in ((None, FIRST), (FIRST, SECOND)):
        rekey(path, before, after, 50)
        assert showing(tmp_path) == set()
        assert not (path.parent / f"{FILE_NAME}.part").exists()
        assert path.stat().st_mode & 0o077 == 0
        store = await open_with(after)
        assert await numbers(store) == (300, 300)
        await store.close()
        await refused(partial(open_with, before), path, "is encrypted: name" if not before else "another")
    with pytest.raises(StoreUnavailable, match="This is the key that the store has"):
        rekey(path, SECOND, SECOND, 50)


async def test_a_store_in_use_is_not_rewritten(open_with: OpenWith) -> None:
    store = await open_with()
    await fill(store)
    with pytest.raises(StoreUnavailable, match=r"locked|used by another process"):
        rekey(store._path, FIRST, SECOND, 50)
    assert await numbers(store) == (300, 300)


async def test_a_backup_has_the_key_that_the_store_had(open_with: OpenWith, tmp_path: Path) -> None:
    store = await open_with()
    await fill(store)
    file = tmp_path / "backup"
    await store.backup(file)
    await store.close()
    target = tmp_path / "restored"
    for key, why in ((SECOND, "The key does not open backup"), (None, "backup is encrypted: name its key")):
        with pytest.raises(StoreUnavailable, match=why):
            restore(file, target, FILE_NAME, key=key)
        assert list(target.iterdir()) == []
    restore(file, target, FILE_NAME, key=FIRST)
    assert showing(target) == set()
    again = await EmbeddedStore.open(target, COLLECTIONS, EmbeddedOptions(key=FIRST), dim=DIM)
    assert await numbers(again) == (300, 300)
    await again.close()


async def test_every_altered_bit_of_a_page_is_noticed(open_with: OpenWith, tmp_path: Path) -> None:
    path = await closed_store(open_with)
    draw, whole = random.Random(5), path.read_bytes()
    pages = len(whole) // PAGE
    assert [one.ok for one in findings(path, FIRST)] == [True, True]
    for _ in range(150):
        at = draw.randrange(PAGE, len(whole))
        flip(path, at)
        assert bad_pages(path, key=FIRST) == [at // PAGE + 1]
        path.write_bytes(whole)
    for at in draw.sample(range(PAGE), 150):
        if 0 <= at < 24:  # salt that no derivation uses, and fields that the cipher leaves readable
            continue
        flip(path, at)
        with pytest.raises(StoreUnavailable, match=r"another one, or its first page|damaged"):
            await open_with()
        path.write_bytes(whole)
    flip(path, 3 * PAGE + 9)
    flip(path, 30 * PAGE + 9)
    assert [one.detail for one in findings(path, FIRST) if not one.ok] == [
        "2 pages are not as they were written (4, 31)"
    ]
    with pytest.raises(StoreDamaged, match=r"2 pages are not as they were written \(4, 31\)"):
        await open_with()
    faults = Faults()
    await verify_rest(path, faults, 10, FIRST)
    assert faults.damage is not None
    assert pages > 40


async def test_pages_that_changed_places_are_noticed(open_with: OpenWith) -> None:
    path = await closed_store(open_with)
    whole = bytearray(path.read_bytes())
    whole[4 * PAGE : 5 * PAGE], whole[9 * PAGE : 10 * PAGE] = whole[9 * PAGE : 10 * PAGE], whole[4 * PAGE : 5 * PAGE]
    path.write_bytes(whole)
    assert bad_pages(path, key=FIRST) == [5, 10]


async def test_a_running_store_serves_no_altered_page(open_with: OpenWith) -> None:
    path = await closed_store(open_with)
    store = await open_with()
    content = bytearray(path.read_bytes())
    for page in range(30, len(content) // PAGE):
        content[page * PAGE + 3_000] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    with pytest.raises(StoreDamaged):
        await store.find(THINGS, T, limit=500)
    with pytest.raises(StoreDamaged):
        await store.get(THINGS, T, "t1")


async def test_an_altered_log_is_noticed(open_with: OpenWith, tmp_path: Path) -> None:
    store = await open_with()
    await fill(store)
    path = copied(tmp_path, tmp_path / "crashed")
    whole = log_of(path).read_bytes()
    frames = (len(whole) - 32) // FRAME
    for frame in range(0, frames, 9):
        flip(log_of(path), 32 + frame * FRAME + 2_000)
        with pytest.raises(StoreDamaged, match="acknowledged commits are missing"):
            await EmbeddedStore.open(path.parent, COLLECTIONS, EmbeddedOptions(key=FIRST), dim=DIM)
        log_of(path).write_bytes(whole)
    again = await EmbeddedStore.open(path.parent, COLLECTIONS, EmbeddedOptions(key=FIRST), dim=DIM)
    assert await numbers(again) == (300, 300)
    await again.close()


@pytest.mark.parametrize("in_log", [False, True], ids=["checkpointed", "in the log"])
async def test_salvage_reads_all_but_a_damaged_page_into_an_encrypted_store(
    open_with: OpenWith, tmp_path: Path, in_log: bool
) -> None:
    store = await open_with()
    await fill(store)
    if not in_log:
        await store.close()
    path = copied(tmp_path, tmp_path / "damaged") if in_log else store._path
    if not in_log:
        flip(path, 40 * PAGE + 100)
    folder = tmp_path / "new"
    target = await EmbeddedStore.open(folder, COLLECTIONS, EmbeddedOptions(key=FIRST), dim=DIM)
    result = await salvage(path, folder, COLLECTIONS, target, FIRST)
    kept = sum(one.records for one in result.rescued)
    lost = sum(len(one.lost) for one in result.rescued)
    assert result.lost_pages == ([] if in_log else [41])
    assert kept == 600 if in_log else 560 <= kept <= 600 <= kept + lost
    assert all(finding.ok for finding in await target.check(deep=True))
    await target.close()
    assert showing(folder) == set()


def test_a_key_is_64_hexadecimal_digits_of_a_variable_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY.upper()}\n")
    assert where_of(settings_of(tmp_path, store_key_file=str(file))).key == FIRST
    assert where_of(settings_of(tmp_path, store_key=KEY)).key == FIRST
    assert where_of(settings_of(tmp_path)).key is None
    assert KEY not in repr(where_of(settings_of(tmp_path, store_key=KEY))) + repr(FIRST)
    with pytest.raises(StoreUnavailable, match="both set: set one"):
        where_of(settings_of(tmp_path, store_key=KEY, store_key_file=str(file)))
    for content in (b"", b"secret", KEY[:-1].encode(), b"\xff" * 64):
        file.write_bytes(content)
        with pytest.raises(StoreUnavailable, match="holds no key: a key is 64 hexadecimal digits"):
            where_of(settings_of(tmp_path, store_key_file=str(file)))
    with pytest.raises(StoreUnavailable, match=r"cannot be read: .*nowhere: No such file"):
        where_of(settings_of(tmp_path, store_key_file=str(tmp_path / "nowhere")))


def test_an_opened_file_is_closed_again(tmp_path: Path) -> None:
    with closing(connect(tmp_path / FILE_NAME, 50, FIRST)):
        pass
    before = len(list(Path("/proc/self/fd").iterdir()))
    for key in (SECOND, FIRST) * 20:
        try:
            bad_pages(tmp_path / FILE_NAME, key=key)
        except StoreUnavailable:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
