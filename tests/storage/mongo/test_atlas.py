"""Search on a deployment that has search indexes, as strict and as late as MongoDB's documentation says."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import SearchIndexUnavailable
from app.storage.mongo import store as store_module
from app.storage.mongo.search_indexes import USABLE
from app.storage.mongo.store import MongoStore
from app.storage.schema import Absent, And, Eq, Filter, Has, In, Not, Or, Range, matches
from tests.storage.mongo.conftest import Open, searching, until
from tests.support.atlas import Atlas
from tests.support.declared import ENTRIES, ask, entry, fresh, random_vector, unit
from tests.support.properties import on_a_store
from tests.support.views import view

pytestmark = pytest.mark.anyio
VECTOR, TEXT = "entries_vector", "entries_text"


@pytest.fixture
async def store(indexed: MongoStore) -> MongoStore:
    return indexed


async def filled(store: MongoStore, atlas: Atlas, many: int = 12, **fields: Any) -> None:
    entries = [entry(f"tea {i}", f"e{i}", vector=random_vector(i), **fields) for i in range(many)]
    await store.commit(entries)
    atlas.settle()
    atlas.watch()


async def found(store: MongoStore, *given: Any, **asked: Any) -> set[str]:
    return (await view(store, ENTRIES, ask(*given, **asked))).matched


# --- What is found ----------------------------------------------------------------------------------------------------


async def test_a_search_is_answered_by_the_indexes_in_three_commands(store: MongoStore, atlas: Atlas) -> None:
    await filled(store, atlas)
    columns = await store.search(ENTRIES, ask("tea 3", vector=random_vector(3)))
    assert (len(columns.rows), columns.count, columns.df.tolist()) == (12, 12, [12, 1])
    assert columns.degraded is None
    assert sum(atlas.traffic.commands.values()) <= 3
    assert "$vectorSearch" in atlas.pipelines[0][0]


async def test_what_the_indexes_do_not_hold_yet_is_found_by_the_overlay_alone(open_indexed: Open, atlas: Atlas) -> None:
    store = await open_indexed(overlay_ms=10 * 60_000)
    await until(store, USABLE)
    await filled(store, atlas, 3)
    await store.commit([entry("roses", "new", vector=unit(1))])
    assert "new" in await found(store, "roses")
    without = await open_indexed(overlay_ms=0)
    await until(without, USABLE)
    assert "new" not in await found(without, "roses"), "the index is a second late"


kinds = st.sampled_from(["a", "b", "$x"])
weights = st.sampled_from([-1, 0, 0.5, 1])
bounds = st.fixed_dictionaries({}, optional=dict.fromkeys(("ge", "gt", "le", "lt"), weights))
filters: st.SearchStrategy[Filter] = st.recursive(
    st.one_of(
        st.builds(Eq, st.just("kind"), kinds),
        st.builds(In, st.just("kind"), st.lists(kinds, max_size=3).map(tuple)),
        st.builds(Has, st.just("tags"), kinds),
        bounds.map(lambda given_bounds: Range("weight", **given_bounds)),
        st.builds(Absent, st.just("weight")),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@on_a_store()
@given(drawn=st.lists(filters, min_size=1, max_size=20))
async def test_no_filter_is_refused_and_each_means_what_it_says(
    store: MongoStore, atlas: Atlas, drawn: list[Filter]
) -> None:
    docs: list[Mapping[str, Any]] = [
        {"kind": kind, "tags": tags, "weight": weight}
        for kind in ("a", "b", None)
        for tags in ([], ["a", "$x"])
        for weight in (None, 0, 0.5)
    ]
    tenant = fresh("tenant")
    entries = [entry("tea", f"e{i}", tenant=tenant, vector=random_vector(i), **fields) for i, fields in enumerate(docs)]
    await store.commit(entries)
    atlas.settle()

    async def check(where: Filter) -> None:
        expected = {f"e{i}" for i, doc in enumerate(docs) if matches(entries[i].doc, where)}
        for asked in (
            ask("tea", tenant=tenant, where=where),
            ask(tenant=tenant, vector=random_vector(1), where=where),
        ):
            columns = await store.search(ENTRIES, asked)
            assert columns.degraded is None
            names = [one.doc["entry_id"] for one in await store.fetch(ENTRIES, tenant, columns.rows) if one is not None]
            assert {name for name, hit in zip(names, columns.matched, strict=True) if hit} == expected

    for where in (*drawn, Range("weight", ge=1, lt=1), Range("weight", gt=1, le=0), Range("weight", ge=0, gt=0, lt=1)):
        await check(where)


async def test_a_query_of_a_thousand_words_is_not_refused(store: MongoStore, atlas: Atlas) -> None:
    await filled(store, atlas, 3)
    words = " ".join(f"word{i}" for i in range(1_500))
    assert await found(store, f"tea {words}") == {"e0", "e1", "e2"}
    assert (await store.search(ENTRIES, ask(f"tea {words}"))).degraded is None


async def test_what_no_word_and_no_vector_leads_to_is_found_by_the_filter(store: MongoStore, atlas: Atlas) -> None:
    await filled(store, atlas, 3, kind="a")
    await store.commit([entry("roses", "pending", kind="a"), entry("roses", "other", kind="b")])
    atlas.settle()
    assert await found(store, where=Eq("kind", "a")) == {"e0", "e1", "e2", "pending"}
    query = ask(vector=random_vector(1), where=Eq("kind", "a"))
    assert not (await store.search(ENTRIES, query)).complete, "one of them may have no vector, and has none"
    query.depth = 1
    deeper = await store.search(ENTRIES, query)
    assert (deeper.complete, int(deeper.matched.sum())) == (True, 4)


async def test_a_deeper_search_finds_more_until_all_were_seen(store: MongoStore, atlas: Atlas) -> None:
    near, far = random_vector(1), -random_vector(1)
    await store.commit([entry("x", f"near{i}", vector=near, base_importance=0.9) for i in range(250)])
    await store.commit([entry("x", f"far{i}", vector=far, base_importance=0.9) for i in range(5)])
    atlas.settle()
    query = ask(vector=near)
    first = await store.search(ENTRIES, query)
    assert (len(first.rows), first.complete) == (200, False)
    query.depth = 1
    second = await store.search(ENTRIES, query)
    assert (len(second.rows), second.complete) == (255, True)


async def test_documents_that_never_were_important_enough_are_no_candidates(store: MongoStore, atlas: Atlas) -> None:
    await store.commit([entry("tea", f"e{i}", vector=random_vector(i), base_importance=i / 10) for i in range(10)])
    atlas.settle()
    for query in (ask("tea"), ask(vector=random_vector(1))):
        query.least_importance = 0.3
        columns = await store.search(ENTRIES, query)
        assert columns.base_importance.tolist() == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])


# --- Without an index -------------------------------------------------------------------------------------------------


async def down(atlas: Atlas, _: MongoStore) -> None:
    atlas.down = True


async def dropped_vector(atlas: Atlas, store: MongoStore) -> None:
    atlas.read_only = True
    atlas.drop_search_index(store._database.name, "entries", VECTOR)


async def dropped_text(atlas: Atlas, store: MongoStore) -> None:
    atlas.read_only = True
    atlas.drop_search_index(store._database.name, "entries", TEXT)


LOSSES = {"down": down, "dropped vector index": dropped_vector, "dropped text index": dropped_text}


@pytest.mark.parametrize("loss", LOSSES)
async def test_without_its_index_a_scope_is_searched_exactly_and_the_caller_is_told(
    open_indexed: Open, atlas: Atlas, loss: str
) -> None:
    counted: list[tuple[str, str]] = []
    store = await open_indexed(observe_fallback=lambda *fallback: counted.append(fallback))
    await until(store, USABLE)
    await filled(store, atlas)
    await LOSSES[loss](atlas, store)
    columns = await store.search(ENTRIES, ask("tea", vector=random_vector(3)))
    assert (len(columns.rows), columns.complete) == (12, True)
    assert columns.degraded is not None
    assert counted == [("entries", "exact")]
    assert "entries" in await searching(store), "/readyz names it"


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_scope_too_large_to_be_read_is_refused_and_never_answered_with_nothing(
    open_indexed: Open, atlas: Atlas, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_indexed()
    await until(store, USABLE)
    await filled(store, atlas)
    await LOSSES[loss](atlas, store)
    monkeypatch.setattr(store_module, "EXACT_AT_MOST", 11)
    with pytest.raises(SearchIndexUnavailable, match="12 records") as caught:
        await store.search(ENTRIES, ask("tea", vector=random_vector(3)))
    assert (caught.value.retry_after or 0) >= 1


async def until_used(store: MongoStore) -> None:
    query = ask(vector=random_vector(3))
    while (await store.search(ENTRIES, query)).degraded is not None:  # noqa: ASYNC110 (it is another's state)
        await asyncio.sleep(0.02)
    assert len((await store.search(ENTRIES, query)).rows) == 12


async def test_an_index_that_comes_back_is_used_again(store: MongoStore, atlas: Atlas) -> None:
    await filled(store, atlas)
    atlas.drop_search_index(store._database.name, "entries", VECTOR)
    assert (await store.search(ENTRIES, ask(vector=random_vector(3)))).degraded is not None
    await until_used(store)
    atlas.down = True
    assert (await store.search(ENTRIES, ask(vector=random_vector(3)))).degraded is not None
    atlas.down = False
    await until_used(store)


async def test_a_failed_index_is_not_asked_at_each_search(open_indexed: Open, atlas: Atlas) -> None:
    await until(await open_indexed(), USABLE)
    store = await open_indexed(pause_seconds=300)
    await until(store, USABLE)
    await filled(store, atlas)
    atlas.down = True
    for _ in range(5):
        await store.search(ENTRIES, ask(vector=random_vector(3)))
    assert len(atlas.pipelines) == 1, "the driver does not ask again either"


async def test_a_list_that_cannot_be_read_says_nothing_against_indexes_that_were_ready(
    store: MongoStore, atlas: Atlas
) -> None:
    await filled(store, atlas)
    atlas.down = True
    assert await store._indexes.look(ENTRIES) is None
    atlas.down = False
    assert (await store.search(ENTRIES, ask(vector=random_vector(3)))).degraded is None


async def test_where_nothing_is_near_an_empty_answer_is_believed(store: MongoStore, atlas: Atlas) -> None:
    await filled(store, atlas, 3, kind="a")
    columns = await store.search(ENTRIES, ask(vector=random_vector(1), where=Eq("kind", "none")))
    assert (len(columns.rows), columns.degraded) == (0, None)


async def test_while_an_index_is_built_the_scope_is_searched_exactly(open_indexed: Open, atlas: Atlas) -> None:
    atlas.build_seconds = 3_600
    store = await open_indexed()
    await until(store, "PENDING")
    await store.commit([entry("tea", "one", vector=unit(1))])
    columns = await store.search(ENTRIES, ask("tea"))
    assert (len(columns.rows), columns.degraded is None) == (1, False)
    assert VECTOR in await searching(store)


async def test_an_index_whose_building_takes_longer_than_a_request_may_is_used_in_the_end(
    open_indexed: Open, atlas: Atlas
) -> None:
    """The watch is started within the deadline of the opening, and has none."""
    atlas.build_seconds = 3_600
    store = await open_indexed(deadline_seconds=5)
    await until(store, "PENDING")
    await asyncio.sleep(5.1)
    for index in atlas._mirrors[store._database.name, "entries"].indexes.values():
        index.built_at = 0.0
    async with asyncio.timeout(120):
        await until(store, USABLE)


# --- Clusters that allow few ------------------------------------------------------------------------------------------


async def test_what_cannot_be_made_is_named_once_and_what_can_is_used(
    open_indexed: Open, atlas: Atlas, caplog: pytest.LogCaptureFixture
) -> None:
    atlas.most = 1
    with caplog.at_level("WARNING", "app.storage.mongo.search_indexes"):
        store = await open_indexed()
        await until(store, "IllegalOperation")
        await asyncio.sleep(0.5)  # several looks
    named = [line for line in caplog.records if line.message == "search index is missing"]
    assert [line.__dict__["index"] for line in named] == [TEXT]
    assert set(atlas.search_indexes(store._database.name)) == {VECTOR}
    faults = {finding.name: finding.detail for finding in await store.check(deep=True) if not finding.ok}
    assert faults == {f"search index {TEXT}": f"{TEXT} is missing"}


async def test_indexes_that_somebody_else_made_are_used_by_a_user_who_may_not_make_any(
    open_indexed: Open, atlas: Atlas
) -> None:
    first = await open_indexed()
    await until(first, USABLE)
    atlas.read_only = True
    second = await open_indexed()
    await until(second, USABLE)
    assert all(finding.ok for finding in await second.check(deep=True))


async def test_the_doctor_names_what_a_definition_lacks(store: MongoStore, atlas: Atlas) -> None:
    atlas.read_only = True
    index = atlas._mirrors[store._database.name, "entries"].indexes[VECTOR]
    index.latest = {"fields": [field for field in index.latest["fields"] if field["path"] != "kind"]}
    (fault,) = [finding for finding in await store.check(deep=True) if not finding.ok]
    assert (fault.name, fault.detail) == (f"search index {VECTOR}", f"{VECTOR} is of another definition: kind")


async def test_a_free_cluster_takes_the_definitions(open_indexed: Open, atlas: Atlas) -> None:
    atlas.free = True
    store = await open_indexed()
    await until(store, USABLE)
