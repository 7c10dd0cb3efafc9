"""On the exact path, what a search answers and how it is ranked are the embedded engine's, whatever was written."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import to_ms
from app.retrieval.query import SettledQuery, analyse
from app.storage.changes import Change, Delete, Insert, Update
from app.storage.mongo.store import MongoStore
from app.storage.protocol import Store
from app.storage.schema import Eq, Has, Or, Range
from app.storage.scope import ANY_AGENT, Partition
from app.storage.search import SearchQuery
from app.storage.sqlite.store import EmbeddedStore
from tests.storage.mongo.conftest import COLLECTIONS
from tests.support.columns import rank
from tests.support.declared import (
    AU,
    DIM,
    ENTRIES,
    ask,
    at,
    entry,
    fresh,
    further_windows,
    random_vector,
    search_entry,
)
from tests.support.properties import on_a_store
from tests.support.views import view

pytestmark = pytest.mark.anyio

QUERY, NOW_MS = analyse("tea roses 2023", ("Ann", "Bob")), to_ms("2026-03-02T00:00:00.000Z")
TEXTS = ("tea", "tea and roses", "coffee in May 2023", "roses roses roses?", "键 чай شاي", "the")
PARTITIONS = (AU, Partition(None, "user"), Partition("agent-2", "user"))

fields = st.fixed_dictionaries(
    {"created_at": st.integers(0, 3).map(at)},
    optional={
        "kind": st.sampled_from(["a", "b"]),
        "tags": st.lists(st.sampled_from(["t", "u"]), max_size=2),
        "weight": st.none() | st.sampled_from([0, 1.5, 2]),
        "base_importance": st.sampled_from([0.0, 0.5, 1.0]),
        "pinned": st.booleans(),
        "source": st.fixed_dictionaries(
            {"session_id": st.sampled_from(["s1", "s2"])},
            optional={"message_seq": st.integers(0, 6), "speaker": st.sampled_from(["Ann", "Bob"])},
        ),
    },
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.sampled_from(PARTITIONS), fields, st.sampled_from(TEXTS), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("update"), st.integers(0, 30), fields),
        st.tuples(st.just("rewrite"), st.integers(0, 30), st.sampled_from(TEXTS), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=16,
)


def changes_of(tenant: str, wanted: list[Any]) -> list[Change]:
    live: list[str] = []
    made: list[Change] = []
    for verb, *given_parts in wanted:
        if verb == "insert":
            partition, described, text, seed = given_parts
            vector, further = (random_vector(seed), further_windows(seed)) if seed else (None, None)
            insert: Insert = entry(
                text, fresh("e"), tenant=tenant, partition=partition, vector=vector, further=further, **described
            )
            made.append(insert)
            live.append(insert.doc["entry_id"])
        elif live:
            doc_id = live[given_parts[0] % len(live)]
            if verb == "delete":
                live.remove(doc_id)
                made.append(Delete(ENTRIES, tenant, doc_id))
            elif verb == "update":
                made.append(Update(ENTRIES, tenant, doc_id, set=given_parts[1], inc={"version": 1}))
            else:
                seed = given_parts[2]
                again = search_entry(given_parts[1], random_vector(seed), further=further_windows(seed))
                made.append(Update(ENTRIES, tenant, doc_id, entry=again))
    return made


@on_a_store()
@given(wanted=steps, at_once=st.booleans())
async def test_columns_and_ranking_are_the_same(
    store: MongoStore, tmp_path: Path, wanted: list[Any], at_once: bool
) -> None:
    tenant = fresh("tenant")
    embedded = await EmbeddedStore.open(tmp_path, COLLECTIONS, dim=DIM)
    try:
        changes = changes_of(tenant, wanted)
        for part in [changes] if at_once else [[change] for change in changes]:
            await store.commit(part)
            await embedded.commit(part)
        where = Or((Eq("kind", "a"), Has("tags", "t"), Range("weight", ge=1)))
        query = ask(
            "tea roses 2023",
            tenant=tenant,
            partitions=[Partition(ANY_AGENT, "user")],
            where=where,
            vector=random_vector(1),
        )
        facts = await store.overview(ENTRIES, tenant, query.partitions)
        theirs = await embedded.overview(ENTRIES, tenant, query.partitions)
        assert (facts.count, set(facts.speakers)) == (theirs.count, set(theirs.speakers))
        assert await view(store, ENTRIES, query) == await view(embedded, ENTRIES, query)
        assert await ranked(store, query) == await ranked(embedded, query)
    finally:
        await embedded.close()


async def ranked(store: Store, query: SearchQuery) -> list[tuple[float, str]]:
    """Scores and ids, best first; of an exact tie the smaller id, for handles of two engines do not compare."""
    columns = await store.search(ENTRIES, query)
    found = rank(columns, SettledQuery(QUERY.terms, QUERY.speaker, order=QUERY.order), "hybrid", NOW_MS)
    docs = await store.fetch(ENTRIES, query.tenant, columns.rows[found.order])
    scores = [round(float(found.score[index]), 6) for index in found.order]
    ids = [one.doc["entry_id"] for one in docs if one is not None]
    return sorted(zip(scores, ids, strict=True), key=lambda one: (-one[0], one[1]))
