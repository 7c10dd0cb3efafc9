"""The writes of a transaction in one command, where the deployment has one."""

import pytest

from app.storage.changes import Change, CommitConflict, Delete, Insert, Update
from app.storage.mongo.store import MongoStore
from tests.storage.mongo.conftest import LateAtlas
from tests.support.declared import ENTRIES, THINGS, T, entry, random_vector

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(indexed: MongoStore) -> MongoStore:
    return indexed


def thing(doc_id: str, **fields: object) -> Insert:
    return Insert(THINGS, {"tenant_id": T, "thing_id": doc_id, "created_at": "2026", **fields})


async def test_a_new_record_takes_three_commands(store: MongoStore, atlas: LateAtlas) -> None:
    await store.commit([entry("green tea", "e1", vector=random_vector(1))])
    traffic = atlas.watch()
    await store.commit([entry("black tea", "e2", vector=random_vector(2)), thing("one")])
    assert traffic.commands == {"find": 1, "bulkWrite": 1, "commitTransaction": 1}
    assert (await store.get(THINGS, T, "one")) is not None
    assert (await store.get(ENTRIES, T, "e2")) is not None


async def test_a_server_that_keeps_an_older_format_is_asked_once(store: MongoStore, atlas: LateAtlas) -> None:
    atlas.older = True
    traffic = atlas.watch()
    for number in range(3):
        await store.commit([entry("tea", f"e{number}", vector=random_vector(number)), thing(f"t{number}")])
    assert traffic.commands["bulkWrite"] == 1
    assert await store.count(ENTRIES, T) == await store.count(THINGS, T) == 3


@pytest.mark.parametrize("older", [False, True])
async def test_a_refused_write_is_named_and_takes_the_others_along(
    store: MongoStore, atlas: LateAtlas, older: bool
) -> None:
    atlas.older = older
    await store.commit([thing("one", name="n"), thing("two")])
    with pytest.raises(CommitConflict) as caught:
        await store.commit([entry("tea", "e1", vector=random_vector(1)), thing("one")])
    assert (caught.value.collection, caught.value.doc_id, caught.value.reason) == (THINGS.name, "one", "exists")
    assert await store.count(ENTRIES, T) == 0


@pytest.mark.parametrize("older", [False, True])
async def test_an_update_that_matches_nothing_is_a_conflict(store: MongoStore, atlas: LateAtlas, older: bool) -> None:
    atlas.older = older
    new = entry("tea", "e1", vector=random_vector(1))
    for name, reason in (("none", "missing"), ("one", "expect")):
        if name == "one":
            await store.commit([thing("one", score=1)])
        with pytest.raises(CommitConflict) as caught:
            await store.commit([new, Update(THINGS, T, name, set={"score": 3}, expect={"score": 2})])
        assert (caught.value.doc_id, caught.value.reason) == (name, reason)
    assert await store.count(ENTRIES, T) == 0


async def test_a_record_that_a_list_names_twice_is_written_in_between(store: MongoStore) -> None:
    both: list[Change] = [entry("tea", "e1", vector=random_vector(1)), Delete(ENTRIES, T, "e1"), thing("one")]
    assert (await store.commit(both)).deleted == 1
    assert (await store.count(ENTRIES, T), await store.count(THINGS, T)) == (0, 1)
