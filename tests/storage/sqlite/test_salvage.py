"""What can be read of a damaged store comes back, and what cannot is named."""

import random
from pathlib import Path

import pytest

from app.storage.protocol import Finding
from app.storage.schema import Doc
from app.storage.sqlite.connections import checkpoint, log_of
from app.storage.sqlite.files import salvage
from app.storage.sqlite.store import FILE_NAME, EmbeddedStore
from app.storage.transfer import Salvaged
from tests.storage.sqlite.conftest import COLLECTIONS
from tests.storage.sqlite.test_damage import FRAME, PAGE, copied, opened
from tests.support.declared import ENTRIES, THINGS, T, entry, thing

pytestmark = pytest.mark.anyio
NUMBER = 300


@pytest.fixture
async def crashed(store: EmbeddedStore, tmp_path: Path) -> Path:
    """A store of 300 things and 300 entries whose process was killed. A third of the commits is in the database."""
    for number in range(NUMBER):
        await store.commit([thing(f"t{number}", name="x" * 700), entry("tea", f"e{number}")])
        if number == NUMBER // 3:
            checkpoint(store.writer._connection)
    return copied(tmp_path, tmp_path / "crashed")


async def salvaged(path: Path) -> tuple[Salvaged, dict[str, Doc], list[Finding]]:
    """The report, the documents of the new store, and what is wrong with it."""
    target = await opened(path.parent / "new" / FILE_NAME)
    try:
        result = await salvage(path, path.parent / "new", COLLECTIONS, target)
        docs = {doc["thing_id"]: doc for doc in await target.find(THINGS, T, limit=1_000)}
        docs |= {doc["entry_id"]: doc for doc in await target.find(ENTRIES, T, limit=1_000)}
        faults = [one for one in await target.check(deep=True) if not one.ok]
    finally:
        await target.close()
    assert sorted(file.name for file in (path.parent / "new").iterdir() if "salvaged" in file.name) == []
    return result, docs, faults


def ids(*numbers: int) -> set[str]:
    return {f"{kind}{number}" for kind in "te" for number in numbers}


async def test_a_whole_store_comes_back_whole(crashed: Path) -> None:
    before = {file.name: file.read_bytes() for file in crashed.parent.iterdir()}
    result, docs, faults = await salvaged(crashed)
    assert set(docs) == ids(*range(NUMBER))
    assert (result.lost_pages, result.commits_missing, result.all_counters, faults) == ([], 0, True, [])
    assert [one.lost for one in result.rescued] == [{}, {}, {}]
    assert {name: (crashed.parent / name).read_bytes() for name in before} == before


async def test_what_follows_a_torn_frame_of_the_log_is_missing_and_said_to_be(crashed: Path) -> None:
    log = crashed.with_name(f"{FILE_NAME}-wal")
    content = bytearray(log.read_bytes())
    middle = (len(content) - 32) // FRAME // 2
    torn = slice(32 + middle * FRAME + 2_000, 32 + middle * FRAME + 5_000)
    content[torn] = bytes(byte ^ 0xFF for byte in content[torn])
    log.write_bytes(content)
    result, docs, faults = await salvaged(crashed)
    number = len(docs) // 2
    assert NUMBER // 3 < number < NUMBER
    assert set(docs) == ids(*range(number))
    assert (result.commits_missing, faults) == (NUMBER - number, [])


def tear_pages_of_the_log(path: Path) -> int:
    """Half of each page of the database that the log has, too, is zeros, as if the power had failed while a checkpoint
    wrote it. Returns how many."""
    log, content = log_of(path).read_bytes(), bytearray(path.read_bytes())
    logged = {int.from_bytes(log[at : at + 4], "big") for at in range(32, len(log) - FRAME + 1, FRAME)}
    torn = [page for page in logged if 1 < page <= len(content) // PAGE]
    for page in torn:
        content[page * PAGE - PAGE // 2 : page * PAGE] = bytes(PAGE // 2)
    path.write_bytes(content)
    return len(torn)


async def test_a_page_that_the_log_replaces_is_no_loss(crashed: Path) -> None:
    assert tear_pages_of_the_log(crashed) > 5
    result, docs, faults = await salvaged(crashed)
    assert set(docs) == ids(*range(NUMBER))
    assert (result.lost_pages, result.commits_missing, faults) == ([], 0, [])


async def test_a_log_that_was_cut_is_read_to_its_end(crashed: Path) -> None:
    log = crashed.with_name(f"{FILE_NAME}-wal")
    log.write_bytes(log.read_bytes()[: 32 + 100 * FRAME + 700])
    result, docs, faults = await salvaged(crashed)
    assert NUMBER // 3 < len(docs) / 2 < NUMBER
    assert result.commits_missing == NUMBER - len(docs) // 2
    assert faults == []


async def test_a_page_of_zeros_is_a_lost_page_and_its_records_are_named(store: EmbeddedStore) -> None:
    """Its checksum is right: nothing else tells that the page was written once."""
    for number in range(NUMBER):
        await store.commit([thing(f"t{number}", name="x" * 700)])
    await store.close()
    path = store._path
    content = bytearray(path.read_bytes())
    page = content.index(b'"t150"') // PAGE
    content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(content)
    result, docs, _ = await salvaged(path)
    assert result.lost_pages == [page + 1]
    lost = {f"t{number}" for number in range(NUMBER)} - set(docs)
    assert "t150" in lost
    assert len(lost) < 20
    assert {doc_id for one in result.rescued for doc_id in one.lost.values()} == lost


async def test_torn_pages_lose_only_their_records_which_are_named(store: EmbeddedStore) -> None:
    for number in range(NUMBER):
        await store.commit([thing(f"t{number}", name="x" * 700), entry("tea", f"e{number}")])
    await store.close()
    path, dice = store._path, random.Random(5)
    content = bytearray(path.read_bytes())
    torn = dice.sample(range(60, len(content) // PAGE), 8)
    for page in torn:
        content[page * PAGE + 512 : page * PAGE + 4_096] = dice.randbytes(4_096 - 512)
    path.write_bytes(content)
    result, docs, faults = await salvaged(path)
    assert result.lost_pages == [page + 1 for page in sorted(torn)]
    lost = ids(*range(NUMBER)) - set(docs)
    assert 0 < len(lost) < NUMBER // 2
    named = {doc_id for one in result.rescued for doc_id in one.lost.values() if doc_id}
    assert named <= lost, "what is said to be lost is not there"
    assert len(lost) <= sum(len(one.lost) for one in result.rescued)
    indexed = {doc_id for one in result.rescued for _, doc_id in one.unindexed}
    assert indexed <= set(docs)
    assert bool(faults) == any(one.startswith("e") for one in indexed), "only entries need search rows"
