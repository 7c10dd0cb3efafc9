"""Long texts in both engines: stored with a vector for each window, found by the best."""

from dataclasses import replace

import numpy as np
import pytest

from app.storage.changes import Delete, Insert, Update
from app.storage.index.record_codec import model_id
from app.storage.protocol import Store
from app.storage.search import Floats, SearchQuery
from tests.contract.conftest import Open
from tests.support.declared import DIM, ENTRIES, T, ask, at, entry, entry_doc, random_vector, search_entry
from tests.support.views import view

pytestmark = pytest.mark.anyio

NEW = "model-b"


def windows(seed: int, count: int = 3) -> Floats:
    return np.stack([random_vector(100 * seed + number) for number in range(count)])


async def cosine(store: Store, doc_id: str, query: SearchQuery) -> float:
    found: float = (await view(store, ENTRIES, query)).rows[doc_id]["cosine"]
    return found


def like_the_last(seed: int, count: int = 3, model: str = "model-a") -> SearchQuery:
    """A query that says what the last window does."""
    return ask(vector=windows(seed, count)[-1], model=model)


async def test_a_long_text_is_found_by_any_of_its_windows(store: Store, open_store: Open) -> None:
    three = windows(1)
    await store.commit([entry("long", "long", vector=three[0], further=three[1:]), entry("tea", "short")])
    for one in (store, await open_store()):
        for window in three:
            assert await cosine(one, "long", ask(vector=window)) == pytest.approx(1, abs=1e-3)
    query = like_the_last(1)
    assert await cosine(store, "long", replace(query, first_windows=True)) < 0.9
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_what_changes_beside_the_text_leaves_the_windows(store: Store, open_store: Open) -> None:
    three = windows(1)
    await store.commit([entry("long", "long", vector=three[0], further=three[1:])])
    await view(store, ENTRIES, like_the_last(1))
    await store.commit([Update(ENTRIES, T, "long", set={"kind": "b", "base_importance": 1.0, "created_at": at(9)})])
    for one in (store, await open_store()):
        assert await cosine(one, "long", like_the_last(1)) == pytest.approx(1, abs=1e-3)
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_a_new_text_has_its_own_windows(store: Store, open_store: Open) -> None:
    three, two = windows(1), windows(2, 2)
    await store.commit([entry("long", "long", vector=three[0], further=three[1:])])
    assert await cosine(store, "long", like_the_last(1)) > 0.99
    await store.commit([Update(ENTRIES, T, "long", entry=search_entry("long", two[0], further=two[1:]))])
    for one in (store, await open_store()):
        assert await cosine(one, "long", like_the_last(2, 2)) > 0.99
        assert await cosine(one, "long", like_the_last(1)) < 0.9
    await store.commit([Update(ENTRIES, T, "long", entry=search_entry("short", random_vector(7)))])
    for one in (store, await open_store()):
        assert await cosine(one, "long", like_the_last(2, 2)) < 0.9
    await store.commit([Delete(ENTRIES, T, "long")])
    assert (await view(store, ENTRIES, like_the_last(1))).rows == {}
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_a_document_like_a_long_one_has_its_windows(store: Store) -> None:
    three = windows(1)
    await store.commit([entry("long", "long", vector=three[0], further=three[1:])])
    await store.commit([Insert(ENTRIES, entry_doc("long", "again"), like="long")])
    await store.commit([Delete(ENTRIES, T, "long")])
    assert await cosine(store, "again", like_the_last(1)) > 0.99


async def test_both_models_find_a_long_text_by_its_windows_while_it_is_moved(store: Store, open_store: Open) -> None:
    old, new = windows(1), windows(2, 5)
    await store.commit([entry("long", "long", vector=old[0], further=old[1:]), entry("tea", "short", vector=old[2])])
    before = await cosine(store, "long", like_the_last(1))
    moved = search_entry("long", new[0], NEW, new[1:])
    await store.commit([Update(ENTRIES, T, "long", entry=moved, keep=True)])
    for one in (store, await open_store()):
        assert await cosine(one, "long", like_the_last(1)) == before
        assert await cosine(one, "long", like_the_last(2, 5, NEW)) > 0.99
    counts = await store.reembedding.counts(ENTRIES, model_id(NEW, DIM), DIM)
    assert (counts.of_model, counts.others, counts.alternates) == (1, 1, 1)
    short = search_entry("long", new[0], NEW)
    await store.commit([Update(ENTRIES, T, "long", entry=short, keep=True)])
    assert await cosine(await open_store(), "long", like_the_last(1)) == before
    assert await cosine(store, "long", like_the_last(2, 5, NEW)) < 0.9
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_a_short_vector_that_was_kept_stays_one_window(store: Store, open_store: Open) -> None:
    new = windows(2, 5)
    await store.commit([entry("long", "long", vector=random_vector(1))])
    await store.commit([Update(ENTRIES, T, "long", entry=search_entry("long", new[0], NEW, new[1:]), keep=True)])
    assert await cosine(await open_store(), "long", ask(vector=random_vector(1))) == pytest.approx(1, abs=1e-3)
