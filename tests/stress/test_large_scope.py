"""Recall of a large scope of one user that search indexes answer, beside the exact search of the same records.

The double's vector search is exact: what is measured is what our candidates, filters and statistics lose, not what an
approximate graph does.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from pymongo.asynchronous.database import AsyncDatabase

from app.core.clock import to_ms
from app.retrieval.ranking import bm25
from app.storage.mongo import codec
from app.storage.mongo.connection import PARTITIONS
from app.storage.mongo.partitions import PartitionWriting, add_own
from app.storage.mongo.search_indexes import USABLE
from app.storage.mongo.store import MongoOptions, MongoStore
from app.storage.search import Columns, SearchQuery
from tests.storage.mongo.conftest import COLLECTIONS, LateAtlas, until
from tests.storage.mongo.conftest import atlas as atlas
from tests.stress.size import size
from tests.support.declared import DIM, ENTRIES, ask, entry, random_vector
from tests.support.mongodb import Deployment

pytestmark = [pytest.mark.anyio, pytest.mark.stress, pytest.mark.timeout(7_200)]

MANY = size(2_000, 200_000)
AT_ONCE, QUERIES = 2_000, 20
WORDS = [f"word{number}" for number in range(2_000)]


@pytest.fixture
def database(atlas: LateAtlas) -> Iterator[str]:
    with atlas.database() as name:
        yield name


@pytest.fixture
async def stores(
    mongodb: Deployment, atlas: LateAtlas, database: str, anyio_backend: str
) -> AsyncIterator[tuple[MongoStore, MongoStore]]:
    """One that asks the indexes; and one that reads all, past the double, which reads a collection anew while it is
    written to."""
    async with AsyncExitStack() as stack:

        async def opened(uri: str, exact_up_to: int) -> MongoStore:
            options = MongoOptions(database=database, deadline_seconds=600, exact_up_to=exact_up_to)
            store = await MongoStore.open(uri, COLLECTIONS, options, dim=DIM, clock=atlas)
            stack.push_async_callback(store.close)
            return store

        yield await opened(atlas.uri, 0), await opened(mongodb.uri, 10 * MANY)


def text_of(number: int) -> str:
    """Few words are frequent and most are rare, as in life."""
    drawn = np.random.default_rng(number).zipf(1.3, 12) % len(WORDS)
    return " ".join(WORDS[place] for place in drawn)


async def fill(database: AsyncDatabase[dict[str, Any]], now: datetime) -> None:
    """Writes the rest as a commit does, but as plain inserts: in transactions, 200,000 take an hour."""
    partitions, documents = (
        PartitionWriting(database, database.client.start_session(), set(), 0),
        database[ENTRIES.name],
    )
    for first in range(1, MANY, AT_ONCE):
        stored = []
        for number in range(first, min(MANY, first + AT_ONCE)):
            change = entry(text_of(number), f"e{number}", vector=random_vector(number))
            stored.append(codec.new_document(ENTRIES, change.doc))
            add_own(stored[-1], await partitions.put(ENTRIES, change.doc, None, change.entry))
        await documents.insert_many(stored, ordered=False)
    for state in partitions._open.values():
        state.mark(to_ms(now))  # otherwise all are read beside the index, as written just now
        await database[PARTITIONS].update_one({"_id": state.key}, {"$set": state.fields()})


async def test_the_ten_best_by_meaning_and_by_words_are_among_the_candidates(
    atlas: LateAtlas, stores: tuple[MongoStore, MongoStore]
) -> None:
    indexed, exact = stores
    await exact.commit([entry(text_of(0), "e0", vector=random_vector(0))])
    await fill(exact._database, atlas.now())
    await until(indexed, USABLE)
    atlas.settle()
    recalls = []
    for number in range(QUERIES):
        asked = ask(text_of(MANY + number), vector=random_vector(MANY + number))
        query = replace(asked, terms=np.unique(asked.terms))  # each once, as the retriever asks
        candidates, every = await searched(indexed, query), await searched(exact, query)
        assert (candidates.degraded, candidates.count) == (None, MANY)
        assert candidates.df.tolist() == every.df.tolist()
        for scores in (lambda columns: columns.cosine, bm25):
            best = every.rows[np.argsort(-scores(every), kind="stable")[:10]]
            recalls.append(np.isin(best, candidates.rows).mean())
    print(f"recall@10 of {MANY}: {np.mean(recalls):.3f}, least {np.min(recalls):.2f}")
    assert np.mean(recalls) >= 0.98


async def searched(store: MongoStore, query: SearchQuery) -> Columns:
    return await store.search(ENTRIES, query)
