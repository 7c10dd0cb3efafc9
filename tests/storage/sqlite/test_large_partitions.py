"""A large partition is searched in a thread, while others write to it."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from app.storage.changes import Delete
from app.storage.schema import Eq
from app.storage.search import Columns
from tests.storage.sqlite.conftest import Open
from tests.support.declared import ENTRIES, T, ask, entry, random_vector

pytestmark = pytest.mark.anyio

LARGE = 50


async def test_searches_beside_writes_see_what_was_acknowledged(open_store: Open) -> None:
    """Of every four searches one is cancelled: its thread goes on, and what is written waits for it."""
    store = await open_store(large=LARGE)
    await store.commit([entry("tea", f"old-{number}", vector=random_vector(number)) for number in range(2 * LARGE)])
    asked = replace(ask("tea roses", vector=random_vector(1)), candidates=True)

    async def write_and_search(number: int) -> Columns | None:
        new = entry("roses", f"new-{number}", vector=random_vector(1_000 + number))
        await store.commit([new, Delete(ENTRIES, T, f"old-{number}")])
        search = asyncio.create_task(store.search(ENTRIES, asked))
        if number % 4 == 0:
            await asyncio.sleep(0)
            search.cancel()
            return None
        columns = await search
        found = await store.fetch(ENTRIES, T, columns.rows[columns.term_counts[1] > 0])
        assert new.doc["entry_id"] in {one.doc["entry_id"] for one in found if one is not None}
        return columns

    await asyncio.gather(*(write_and_search(number) for number in range(LARGE)))
    cold_store = await open_store(large=LARGE)
    warm, cold = await store.search(ENTRIES, asked), await cold_store.search(ENTRIES, asked)
    order, other = np.argsort(warm.rows), np.argsort(cold.rows)
    for name in ("rows", "cosine", "length", "matched"):
        assert np.array_equal(getattr(warm, name)[order], getattr(cold, name)[other]), name
    assert np.array_equal(warm.term_counts[:, order], cold.term_counts[:, other])
    assert (warm.count, warm.df.tolist()) == (2 * LARGE, [LARGE, LARGE])


async def test_a_search_with_a_filter_alone_returns_what_matches(open_store: Open) -> None:
    store = await open_store(large=LARGE)
    await store.commit([entry("tea", f"e{number}", kind="ab"[number % 10 > 0]) for number in range(2 * LARGE)])
    from_filter = await store.search(ENTRIES, ask(where=Eq("kind", "a")))
    assert (len(from_filter.rows), from_filter.count) == (LARGE // 5, 2 * LARGE)
    assert from_filter.matched.all()
