import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import to_ms
from app.memories.repository import new_memory, text_to_index
from app.memories.schemas import MEMORIES, MemoryRecord
from app.storage.changes import Change, CommitConflict, Delete, DeleteWhere, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.schema import Absent, And, Doc, Eq, Filter, Has, In, Not, Or, Range, matches
from app.storage.scope import ANY_AGENT, Partition
from app.storage.text import HAS_NUMBER_OR_TIME_WORD, IS_QUESTION, content_hash, index_text, name_id, spelled, terms
from tests.support.declared import (
    AU,
    DIM,
    ENTRIES,
    MODEL,
    OTHER,
    T,
    ask,
    at,
    entry,
    entry_doc,
    fresh,
    random_vector,
    search_entry,
    unit,
)
from tests.support.properties import on_a_store
from tests.support.views import view

pytestmark = pytest.mark.anyio
moderate = on_a_store()

AGENT_ONLY, USER_ONLY, OTHER_AGENT = Partition("agent", None), Partition(None, "user"), Partition("agent-2", "user")


def said(session: str, ordinal: int, speaker: str | None = None) -> Doc:
    return {"source": {"session_id": session, "message_seq": ordinal, "speaker": speaker}}


# --- Text and vectors -------------------------------------------------------------------------------------------------


async def test_hits_document_frequencies_and_lengths_are_those_of_the_texts(store: Store) -> None:
    texts = {"a": "tea, tea and more tea", "b": "coffee", "c": "a garden with tea and roses", "d": "the of and"}
    await store.commit([entry(text, doc_id) for doc_id, text in texts.items()])
    found = await view(store, ENTRIES, ask("tea roses unheard tea"))
    assert {doc_id: row["hits"] for doc_id, row in found.rows.items()} == {
        "a": [3, 0, 0, 3],
        "b": [0, 0, 0, 0],
        "c": [1, 1, 0, 1],
        "d": [0, 0, 0, 0],
    }
    assert found.df == [2, 1, 0, 2]
    lengths = {doc_id: len(terms(text)) for doc_id, text in texts.items()}
    assert {doc_id: row["length"] for doc_id, row in found.rows.items()} == lengths
    assert (found.count, found.mean_length) == (4, round(sum(lengths.values()) / 4, 6))


@moderate
@given(seeds=st.lists(st.integers(0, 1000), min_size=1, max_size=12))
async def test_the_cosine_is_that_of_the_vectors(store: Store, seeds: list[int]) -> None:
    tenant, query = fresh("tenant"), random_vector(9999)
    await store.commit([entry("x", f"e{i}", tenant=tenant, vector=random_vector(seed)) for i, seed in enumerate(seeds)])
    found = await view(store, ENTRIES, ask(tenant=tenant, vector=query))
    for i, seed in enumerate(seeds):
        assert found.rows[f"e{i}"]["has_vector"]
        assert found.rows[f"e{i}"]["cosine"] == pytest.approx(float(random_vector(seed) @ query), abs=0.01)


async def test_vectors_of_another_model_or_none_are_not_compared(store: Store) -> None:
    await store.commit([entry("x", "ours", vector=unit(1)), entry("x", "pending")])
    theirs = entry("x", "theirs")
    await store.commit([Insert(ENTRIES, theirs.doc, search_entry("x", unit(1), "model-b"))])
    found = await view(store, ENTRIES, ask("x", vector=unit(1)))
    assert {i: (row["has_vector"], row["cosine"]) for i, row in found.rows.items()} == {
        "ours": (True, 1.0),
        "pending": (False, 0.0),
        "theirs": (False, 0.0),
    }
    assert not any(row["has_vector"] for row in (await view(store, ENTRIES, ask("x"))).rows.values())


async def test_vectors_of_another_dimension_are_not_compared(store: Store) -> None:
    long = random_vector(1, 2 * DIM)
    await store.commit([entry("x", "ours", vector=unit(1)), entry("x", "long", vector=long)])
    found = await view(store, ENTRIES, ask(vector=unit(1)))
    assert {i: row["has_vector"] for i, row in found.rows.items()} == {"ours": True, "long": False}
    assert found.rows["long"]["cosine"] == 0
    found = await view(store, ENTRIES, ask(vector=long))
    assert not found.rows["ours"]["has_vector"]
    assert found.rows["ours"]["cosine"] == 0


async def test_a_vector_that_is_no_unit_vector_is_refused() -> None:
    for bad in (np.zeros(DIM), np.full(DIM, np.nan), np.ones(DIM), np.full(DIM, np.inf)):
        with pytest.raises(ValueError, match="unit length"):
            search_entry("x", bad.astype(np.float32))


async def test_a_pending_embedding_that_arrives_is_compared(store: Store) -> None:
    await store.commit([entry("tea", "one"), entry("tea", "two")])
    await view(store, ENTRIES, ask("tea", vector=unit(1)))
    await store.commit([Update(ENTRIES, T, "one", entry=search_entry("tea", unit(1)))])
    found = await view(store, ENTRIES, ask("tea", vector=unit(1)))
    assert {i: (row["has_vector"], row["cosine"]) for i, row in found.rows.items()} == {
        "one": (True, 1.0),
        "two": (False, 0.0),
    }


# --- What else a document says ----------------------------------------------------------------------------------------


async def test_columns_describe_the_document(store: Store) -> None:
    full = {
        "event_at": "2020-05-08T10:00:00.123Z",
        "anchored_at": at(7),
        "base_importance": 0.25,
        "pinned": True,
        **said("s", 3, "Zoë"),
    }
    await store.commit([entry("Did you move in May 2023?", "full", **full), entry("tea", "bare")])
    rows = (await view(store, ENTRIES, ask())).rows
    assert rows["full"] | {"length": 0} == {
        "matched": True,
        "cosine": 0.0,
        "has_vector": False,
        "hits": [],
        "length": 0,
        "speaker": name_id("zoë"),
        "time": to_ms("2020-05-08T10:00:00.123Z"),
        "flags": HAS_NUMBER_OR_TIME_WORD | IS_QUESTION,
        "anchor": to_ms(at(7)),
        "importance": 0.25,
        "pinned": True,
        "content": content_hash("Did you move in May 2023?"),
        "previous": None,
        "following": None,
        "session": ("full",),
    }
    bare = rows["bare"]
    assert (bare["time"], bare["anchor"], bare["speaker"]) == (to_ms(at(0)), to_ms(at(0)), 0)
    assert (bare["pinned"], bare["session"], bare["flags"]) == (False, None, 0)


async def test_an_update_without_text_changes_what_it_says_and_keeps_the_text(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=unit(1), kind="a")])
    await view(store, ENTRIES, ask("tea"))
    changes = {"base_importance": 1.0, "anchored_at": at(9), "pinned": True, "kind": "b", "event_at": at(30)}
    await store.commit([Update(ENTRIES, T, "one", set=changes)])
    row = (await view(store, ENTRIES, ask("tea", where=Eq("kind", "b"), vector=unit(1)))).rows["one"]
    assert (row["importance"], row["anchor"], row["pinned"], row["time"]) == (1.0, to_ms(at(9)), True, to_ms(at(30)))
    assert (row["hits"], row["cosine"], row["matched"]) == ([1], 1.0, True)


async def test_what_searches_keep_stays_after_an_update_of_what_they_do_not_read(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=unit(1))])
    before, again = [await store.search(ENTRIES, ask("tea")) for _ in range(2)]
    await store.commit([Update(ENTRIES, T, "one", set={"last_accessed": at(9)}, inc={"access_count": 1})])
    after = await store.search(ENTRIES, ask("tea"))
    # exact engines keep both; what is computed from an array that replaces another is computed anew
    assert (after.memo is before.memo) == (again.memo is before.memo)
    assert (after.anchor is before.anchor) == (again.anchor is before.anchor)
    (fetched,) = await store.fetch(ENTRIES, T, after.rows)
    assert fetched is not None
    assert fetched.doc["access_count"] == 1
    await store.commit([Update(ENTRIES, T, "one", set={"anchored_at": at(9)})])
    assert (await store.search(ENTRIES, ask("tea"))).anchor.tolist() == [to_ms(at(9))]


async def test_an_update_with_text_replaces_text_and_vector(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=unit(1))])
    await view(store, ENTRIES, ask("tea"))
    await store.commit([Update(ENTRIES, T, "one", entry=search_entry("coffee", unit(0, 1)))])
    row = (await view(store, ENTRIES, ask("tea coffee", vector=unit(0, 1)))).rows["one"]
    assert (row["hits"], row["cosine"]) == ([0, 1], 1.0)


async def test_a_document_like_another_has_its_text_and_vector_and_its_own_fields(store: Store) -> None:
    await store.commit([entry("green tea", "one", vector=unit(1), kind="a"), entry("tea", "pending")])
    query = ask("tea", where=Eq("kind", "b"), vector=unit(1))
    await view(store, ENTRIES, query)
    doc = entry_doc("green tea", "two", kind="b", event_at=at(30))
    await store.commit(
        [
            Update(ENTRIES, T, "one", set={"kind": "c", "event_at": at(9)}),
            Insert(ENTRIES, doc, like="one"),
            Insert(ENTRIES, entry_doc("tea", "three", kind="b"), like="pending"),
        ]
    )
    found = await view(store, ENTRIES, query)
    (one, two, three) = (found.rows[name] for name in ("one", "two", "three"))
    assert found.matched == {"two", "three"}
    assert (two["hits"], two["length"], two["cosine"]) == ([1], 2, 1.0)
    assert (one["time"], two["time"]) == (to_ms(at(9)), to_ms(at(30)))
    assert (three["hits"], three["has_vector"]) == ([1], False)
    with pytest.raises(CommitConflict) as caught:
        await store.commit([Insert(ENTRIES, entry_doc("tea"), like="missing")])
    assert (caught.value.doc_id, caught.value.reason) == ("missing", "missing")
    await store.commit([Delete(ENTRIES, T, "one")])
    assert (await view(store, ENTRIES, query)).rows["two"]["cosine"] == 1.0


# --- Filters ----------------------------------------------------------------------------------------------------------

kinds = st.sampled_from(["", "a", "b", "ä", "a.b", "$x"])
tags = st.lists(kinds, max_size=3)
weights = st.sampled_from([-1, 0, 0.5, 1, 1e9])
times = st.integers(0, 4).map(at)
documents = st.fixed_dictionaries(
    {"created_at": times},
    optional={"kind": st.none() | kinds, "tags": tags, "weight": st.none() | weights, "event_at": st.none() | times},
)


def ranges(field: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    bounds = dict.fromkeys(("ge", "gt", "le", "lt"), values)
    return st.fixed_dictionaries({}, optional=bounds).map(lambda given: Range(field, **given))


filters: st.SearchStrategy[Filter] = st.recursive(
    st.one_of(
        st.builds(Eq, st.just("kind"), kinds),
        st.builds(In, st.just("kind"), st.lists(kinds, max_size=3).map(tuple)),
        st.builds(Has, st.just("tags"), kinds),
        ranges("weight", weights),
        ranges("event_at", times),
        ranges("created_at", times),
        st.builds(Absent, st.sampled_from(["event_at", "weight"])),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@moderate
@given(st.lists(documents, max_size=10), st.lists(filters, min_size=1, max_size=4))
async def test_matched_is_what_the_filter_says(store: Store, given_docs: list[Doc], wanted: list[Filter]) -> None:
    tenant = fresh("tenant")
    inserts = [entry("x", tenant=tenant, **fields) for fields in given_docs]
    await store.commit(inserts)
    for where in wanted:
        found = await view(store, ENTRIES, ask(tenant=tenant, where=where))
        assert found.count == len(inserts), "what the filter leaves out still belongs to the scope"
        assert found.matched == {insert.doc["entry_id"] for insert in inserts if matches(insert.doc, where)}


async def test_filters_do_not_change_what_a_scope_knows(store: Store) -> None:
    await store.commit([entry(f"tea {i}", kind="a" if i else "b", **said("s", i)) for i in range(4)])
    whole, cut = [await view(store, ENTRIES, ask("tea", where=where)) for where in (And(), Eq("kind", "b"))]
    assert (cut.df, cut.count, cut.mean_length) == (whole.df, whole.count, whole.mean_length)
    assert len(cut.matched) == 1


async def test_memories_are_found_by_session_and_metadata(store: Store) -> None:
    def memory(content: str, session: str, metadata: Doc) -> Insert:
        fields: MemoryRecord = {"memory_type": "fact", "importance": 0.5, "content": content, "metadata": metadata}
        doc = new_memory(
            MEMORIES.as_record({**fields, "agent_id": "agent", "user_id": "user"}),
            {"session_id": session},
            at(0),
            unique=False,
        )
        doc |= {"tenant_id": T}
        return Insert(MEMORIES, doc, IndexEntry(index_text(doc["content"], None, text_to_index(doc).time), None, MODEL))

    hostile = {"a.b": 1, "$where": "x", "": None, "ключ": [1]}
    one, two = memory("tea", "s1", hostile), memory("tea too", "s2", {})
    await store.commit([one, two])
    wanted: list[Filter] = [Has("metadata_terms", term) for term in one.doc["metadata_terms"]]
    for where in (Eq("source.session_id", "s1"), *wanted):
        assert (await view(store, MEMORIES, ask(where=where))).matched == {one.doc["memory_id"]}
    assert (await store.get(MEMORIES, T, one.doc["memory_id"]) or {})["metadata"] == hostile


# --- Whose it is ------------------------------------------------------------------------------------------------------


async def filled(store: Store) -> None:
    for partition in (AU, AGENT_ONLY, USER_ONLY, OTHER_AGENT, Partition("agent", "user-2")):
        name = f"{partition.agent}-{partition.user}"
        await store.commit([entry("tea", name, partition=partition, **said("s", 1, name))])
    await store.commit([entry("tea", f"{AU.agent}-{AU.user}", tenant=OTHER, **said("s", 1, "Mallory"))])


@pytest.mark.parametrize(
    ("partitions", "found"),
    [
        ([AU], {"agent-user"}),
        ([AGENT_ONLY], {"agent-None"}),
        ([USER_ONLY], {"None-user"}),
        ([AU, AGENT_ONLY, USER_ONLY], {"agent-user", "agent-None", "None-user"}),
        ([Partition(ANY_AGENT, "user")], {"agent-user", "None-user", "agent-2-user"}),
        ([Partition(ANY_AGENT, "user"), AU], {"agent-user", "None-user", "agent-2-user"}),
        ([Partition(ANY_AGENT, "nobody")], set()),
        ([Partition("user", "agent")], set()),
        ([], set()),
    ],
)
async def test_a_search_covers_the_partitions_that_it_names(
    store: Store, partitions: list[Partition], found: set[str]
) -> None:
    await filled(store)
    seen = await view(store, ENTRIES, ask("tea", partitions=partitions))
    assert set(seen.rows) == found
    assert (seen.count, seen.df) == (len(found), [len(found)])
    facts = await store.overview(ENTRIES, T, partitions)
    assert (facts.count, set(facts.speakers)) == (len(found), found)


async def test_neighbours_and_sessions_of_two_partitions_stay_apart(store: Store) -> None:
    for partition in (AU, USER_ONLY):
        await store.commit(
            [entry("tea", f"{partition.agent}-{i}", partition=partition, **said("s", i)) for i in range(2)]
        )
    rows = (await view(store, ENTRIES, ask(partitions=[AU, USER_ONLY]))).rows
    assert rows["agent-1"]["previous"] == "agent-0"
    assert rows["None-0"]["following"] == "None-1"
    assert rows["None-0"]["previous"] is None
    assert rows["agent-0"]["session"] == ("agent-0", "agent-1")


async def test_another_tenant_is_neither_found_nor_counted_nor_fetched_nor_deleted(store: Store) -> None:
    await filled(store)
    theirs = await store.search(ENTRIES, ask("tea", tenant=OTHER))
    assert len(theirs.rows) == 1
    assert await store.fetch(ENTRIES, T, theirs.rows) == [None]
    global_indexes = ask("tea", where=Or((And(), Eq("kind", "x"))), partitions=[Partition(ANY_AGENT, "user")])
    assert not set(theirs.rows.tolist()) & set((await store.search(ENTRIES, global_indexes)).rows.tolist())
    await store.commit([DeleteWhere(ENTRIES, T, And())])
    assert (await view(store, ENTRIES, ask("tea", tenant=OTHER))).matched == {"agent-user"}
    assert (await store.overview(ENTRIES, OTHER, [AU])).speakers == ("Mallory",)
    assert (await store.overview(ENTRIES, T, [AU])).count == 0


async def test_an_empty_scope_answers_with_empty_columns(store: Store) -> None:
    columns = await store.search(ENTRIES, ask("tea coffee", vector=unit(1)))
    assert (len(columns.rows), columns.count, columns.term_counts.shape, columns.df.tolist()) == (0, 0, (2, 0), [0, 0])
    assert await store.fetch(ENTRIES, T, columns.rows) == []


async def test_documents_without_any_word_have_none_that_is_close(store: Store) -> None:
    await store.commit([entry("(((((", "signs", vector=unit(1))])
    columns = await store.search(ENTRIES, replace(ask("reykavik", vector=unit(1)), spelled=spelled("reykavik")))
    assert (columns.count, columns.df.tolist(), columns.close) == (1, [0], {term: {} for term in spelled("reykavik")})


async def test_speakers_are_named_as_they_were_given_and_each_once(store: Store) -> None:
    await store.commit(
        [entry("x", f"e{i}", **said("s", i, name)) for i, name in enumerate(("Zoë", "bob", "Zoë", None))]
    )
    assert sorted((await store.overview(ENTRIES, T, [AU])).speakers) == ["Zoë", "bob"]
    await store.commit([DeleteWhere(ENTRIES, T, And())])
    assert (await store.overview(ENTRIES, T, [AU])).speakers == ()


# --- After a write ----------------------------------------------------------------------------------------------------


async def test_a_search_sees_what_was_acknowledged_before_it(store: Store) -> None:
    async def write_and_search(i: int) -> bool:
        doc_id = f"e{i}"
        await store.commit([entry("tea", doc_id, kind="new")])
        there = (await view(store, ENTRIES, ask("tea"))).rows.get(doc_id)
        await store.commit([Update(ENTRIES, T, doc_id, set={"kind": "old"})])
        after = (await view(store, ENTRIES, ask("tea", where=Eq("kind", "old")))).matched
        return there is not None and doc_id in after

    assert all(await asyncio.gather(*(write_and_search(i) for i in range(20))))


async def test_what_was_deleted_is_not_found_and_its_handle_leads_nowhere(store: Store) -> None:
    await store.commit([entry("tea", "one"), entry("tea", "two")])
    before = await store.search(ENTRIES, ask("tea"))
    await store.commit([Delete(ENTRIES, T, "one")])
    assert [one and one.doc["entry_id"] for one in await store.fetch(ENTRIES, T, before.rows)] == [None, "two"]
    found = await view(store, ENTRIES, ask("tea"))
    assert (set(found.rows), found.df, found.count) == ({"two"}, [1], 1)
    await store.commit([entry("tea", "three")])
    assert [one and one.doc["entry_id"] for one in await store.fetch(ENTRIES, T, before.rows)] == [None, "two"]


async def test_handles_are_fetched_in_the_order_asked(store: Store) -> None:
    await store.commit([entry("x", f"e{i}") for i in range(5)])
    rows = (await store.search(ENTRIES, ask())).rows
    docs = await store.fetch(ENTRIES, T, rows[::-1])
    assert docs == (await store.fetch(ENTRIES, T, rows))[::-1]


# --- A conversation, against an oracle --------------------------------------------------------------------------------

Said = tuple[str, int]  # session, ordinal


@moderate
@given(
    st.lists(st.tuples(st.sampled_from(["s1", "s2", ""]), st.integers(0, 30)), max_size=12, unique=True),
    st.lists(st.integers(0, 11), max_size=4, unique=True),
    st.booleans(),
)
async def test_neighbours_are_the_ones_by_ordinal_in_the_session(
    store: Store, turns: list[Said], deleted: list[int], searched_before: bool
) -> None:
    tenant = fresh("tenant")
    for i, (session, ordinal) in enumerate(turns):
        source = said(session, ordinal) if session else {}
        await store.commit([entry("x", f"e{i:02d}", tenant=tenant, **source)])
        if searched_before and i % 3 == 0:
            await store.search(ENTRIES, ask(tenant=tenant))
    gone: list[Change] = [Delete(ENTRIES, tenant, f"e{i:02d}") for i in deleted if i < len(turns)]
    await store.commit(gone)
    live = [(f"e{i:02d}", turn) for i, turn in enumerate(turns) if i not in deleted]
    rows = (await view(store, ENTRIES, ask(tenant=tenant))).rows
    expected: dict[str, tuple[str | None, str | None]] = {doc_id: (None, None) for doc_id, _ in live}
    for session in ("s1", "s2"):
        order = sorted(((turn[1], doc_id) for doc_id, turn in live if turn[0] == session))
        for (_, one), (_, next_one) in pairwise(order):
            expected[one] = (expected[one][0], next_one)
            expected[next_one] = (one, expected[next_one][1])
    assert {doc_id: (row["previous"], row["following"]) for doc_id, row in rows.items()} == expected
    assert all((row["session"] is None) == (turn[0] == "") for (doc_id, turn) in live if (row := rows[doc_id]))
