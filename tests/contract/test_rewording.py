"""New terms for a document whose vectors stay."""

import pytest

from app.storage.changes import Update
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Eq
from app.storage.text import IS_QUESTION, LONG, index_text
from tests.contract.conftest import Open
from tests.contract.test_windows import like_the_last, windows
from tests.support.declared import ENTRIES, T, ask, entry, random_vector
from tests.support.memories import eventually
from tests.support.views import view

pytestmark = pytest.mark.anyio


async def test_new_terms_are_found_and_the_old_ones_no_more_and_the_vector_stays(
    store: Store, open_store: Open
) -> None:
    await store.commit([entry("green tea", "one", vector=random_vector(1)), entry("tea", "two")])
    await view(store, ENTRIES, ask("tea"))
    text = index_text("roses roses, and mate?")
    await store.commit([Update(ENTRIES, T, "one", set={"kind": "b"}, terms=text)])
    query = ask("tea roses", where=Eq("kind", "b"), vector=random_vector(1))
    for one in (store, await open_store()):
        found = await view(one, ENTRIES, query)
        row = found.rows["one"]
        assert found.matched == {"one"}
        assert (row["hits"], row["length"], row["flags"], row["cosine"]) == ([0, 2], 3, IS_QUESTION, 1.0)
        assert found.mean_length == 2

        async def terms_are_counted(of: Store = one) -> bool:
            return (await view(of, ENTRIES, query)).df == [1, 1]

        await eventually(terms_are_counted)  # of an index that follows the writes a little later
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_the_windows_of_a_long_text_stay_too(store: Store, open_store: Open) -> None:
    three = windows(1)
    await store.commit([entry("long", "long", vector=three[0], further=three[1:])])
    await store.commit([Update(ENTRIES, T, "long", terms=index_text("roses"))])
    for one in (store, await open_store()):
        row = (await view(one, ENTRIES, like_the_last(1))).rows["long"]
        assert row["cosine"] == pytest.approx(1, abs=1e-3)
        assert row["flags"] & LONG


async def test_the_same_terms_again_change_nothing(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1), kind="a")])
    before = await view(store, ENTRIES, ask("tea", where=EVERYTHING, vector=random_vector(1)))
    await store.commit([Update(ENTRIES, T, "one", terms=index_text("tea"))])
    assert await view(store, ENTRIES, ask("tea", where=EVERYTHING, vector=random_vector(1))) == before
