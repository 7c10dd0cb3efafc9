"""Search by capability: the exact stages sent, in the shapes of MongoDB's documentation, and what is made of replies.

No deployment with search can be had here. What is sent is read where it leaves for the driver; the replies are canned:
real rows of a real store, chosen by the test as an index would choose them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import to_ms
from app.storage.changes import Change, Delete, Update
from app.storage.index.record_codec import model_id, quantise, range_value
from app.storage.mongo import partitions
from app.storage.mongo.ann_search import CANDIDATES, Candidates, fields
from app.storage.mongo.codec import OWN, range_name, term_text
from app.storage.mongo.connection import PAIRS
from app.storage.mongo.search_indexes import models, text_filter, vector_filter
from app.storage.mongo.store import MongoStore
from app.storage.schema import Absent, And, Collection, Eq, Filter, Has, In, Not, Or, Range, matches, value_at
from app.storage.search import Columns, SearchQuery
from tests.support.declared import (
    AU,
    DIM,
    ENTRIES,
    MODEL,
    SEARCHED,
    T,
    ask,
    at,
    entry,
    random_vector,
    search_entry,
    unit,
)

pytestmark = pytest.mark.anyio

Stage = dict[str, Any]
NEW_ID = model_id("model-b", DIM)
WORD = {word: term_text(ask(word).terms.tolist()) for word in ("tea", "roses")}


class Canned(Candidates):
    """Records what is sent. `answers` chooses rows by entry id; counts are given."""

    def __init__(self, store: MongoStore) -> None:
        super().__init__(store._database, DIM)
        self.sent: list[list[Stage]] = []
        self.vector_ids: list[str] = []
        self.text_ids: list[str] = []
        self.counts: dict[str, int] = {}

    async def _aggregate(self, collection: Collection, pipeline: Sequence[Stage]) -> list[Stage]:
        self.sent.append(list(pipeline))
        (verb, stage), *_ = pipeline[0].items()
        if verb == "$searchMeta":
            query = stage["compound"]["filter"][-1]["text"]["query"]
            return [{"count": {"total": self.counts.get(query, 0)}}]
        ids = self.vector_ids if verb == "$vectorSearch" else self.text_ids
        return await self._database[collection.name].find({"entry_id": {"$in": ids}}, fields(collection)).to_list()

    def stage(self, verb: str) -> Stage:
        (found,) = [pipeline[0][verb] for pipeline in self.sent if verb in pipeline[0]]
        stage: Stage = found
        return stage

    async def search(self, query: SearchQuery, now: str = at(3000)) -> Columns:
        states = [s for s in await partitions.read(self._database, ENTRIES, query.tenant, query.pairs) if s.count]
        return await self.columns(ENTRIES, query, states, to_ms(now))


@pytest.fixture
def canned(store: MongoStore) -> Canned:
    return Canned(store)


async def said(store: MongoStore, many: int = 12, session: str = "s") -> None:
    """Long ago, by the mark of the pair: `old` moves it there."""
    for i in range(many):
        source = {"session_id": session, "message_seq": i, "speaker": "Ann"}
        await store.commit([entry(f"tea {i}", f"{session}{i}", vector=random_vector(i), source=source)])
    await old(store)


async def old(store: MongoStore) -> None:
    """As if everything had been written an hour before the search."""
    async for pair in store._database[PAIRS].find({}):
        marks = [[to_ms(at(0)) - 3_600_000, pair["version"]]]
        await store._database[PAIRS].update_one({"_id": pair["_id"]}, {"$set": {"marks": marks}})


async def ids(store: MongoStore, columns: Columns) -> list[str]:
    docs = await store.fetch(ENTRIES, T, columns.rows)
    return [one.doc["entry_id"] for one in docs if one is not None]


# --- What is sent -----------------------------------------------------------------------------------------------------


async def test_vector_search_is_asked_as_documented(store: MongoStore, canned: Canned) -> None:
    await said(store, 1)
    vector = random_vector(1)
    where = And((Eq("kind", "a"), Range("created_at", ge=at(0))))
    await canned.search(ask(vector=vector, where=where))
    stage = canned.stage("$vectorSearch")
    assert stage.keys() == {"index", "path", "queryVector", "numCandidates", "limit", "filter"}
    assert (stage["index"], stage["path"], stage["limit"]) == ("entries_vector", "_r.vector", CANDIDATES)
    assert 20 * stage["limit"] <= stage["numCandidates"] <= 10_000
    asked = stage["queryVector"].as_vector()
    assert stage["queryVector"].subtype == 9
    assert (asked.dtype.name, list(asked.data)) == ("INT8", quantise(vector).tolist())
    (pair,) = await partitions.read(store._database, ENTRIES, T, [AU])
    assert stage["filter"] == {
        "$and": [
            {"tenant_id": {"$eq": T}},
            {"_r.pair": {"$in": [pair.pair]}},
            {"_r.model": {"$eq": model_id(MODEL, DIM)}},
            {"$and": [{"kind": {"$eq": "a"}}, {"_r.ranges.created_at": {"$gte": float(to_ms(at(0)))}}]},
        ]
    }


async def test_text_search_and_its_counts_are_asked_as_documented(store: MongoStore, canned: Canned) -> None:
    await said(store, 1)
    await canned.search(ask("tea roses", where=Not(Has("tags", "t"))))
    (pair,) = await partitions.read(store._database, ENTRIES, T, [AU])
    within = [{"equals": {"path": "tenant_id", "value": T}}, {"in": {"path": "_r.pair", "value": [pair.pair]}}]
    stage = canned.stage("$search")
    assert stage["index"] == "entries_text"
    (should,) = stage["compound"].pop("should")
    assert set(should["text"]["query"].split()) == set(WORD.values())
    assert should["text"]["path"] == "_r.words"
    without = {"compound": {"mustNot": [{"equals": {"path": "tags", "value": "t"}}]}}
    assert stage["compound"] == {"filter": [*within, without], "minimumShouldMatch": 1}
    counted = [pipeline[0]["$searchMeta"] for pipeline in canned.sent if "$searchMeta" in pipeline[0]]
    assert counted == [
        {
            "index": "entries_text",
            "compound": {"filter": [*within, {"text": {"query": word, "path": "_r.words"}}]},
            "count": {"type": "total"},
        }
        for word in WORD.values()
    ]
    after = next(pipeline for pipeline in canned.sent if "$search" in pipeline[0])[1:]
    assert [next(iter(stage)) for stage in after] == ["$limit", "$project"]


async def test_nothing_is_asked_that_was_not_given(store: MongoStore, canned: Canned) -> None:
    await said(store, 1)
    await canned.search(ask(vector=unit(1)))
    await canned.search(ask("tea"))
    assert [next(iter(pipeline[0])) for pipeline in canned.sent] == ["$vectorSearch", "$search", "$searchMeta"] or [
        next(iter(pipeline[0])) for pipeline in canned.sent
    ] == ["$vectorSearch", "$searchMeta", "$search"]


def test_every_filter_is_declared_in_both_indexes() -> None:
    vector, text = (model.document for model in models(ENTRIES, DIM))
    assert (vector["name"], vector["type"]) == ("entries_vector", "vectorSearch")
    first, *rest = vector["definition"]["fields"]
    assert first == {"type": "vector", "path": "_r.vector", "numDimensions": DIM, "similarity": "cosine"}
    declared = {field["path"] for field in rest if field["type"] == "filter"}
    ranges = {f"_r.ranges.{range_name(field)}" for field in SEARCHED.ranges}
    assert declared == {"tenant_id", "_r.pair", "_r.model", "_r.absent", *SEARCHED.facets, *ranges}
    assert (text["name"], text["type"]) == ("entries_text", "search")
    mappings = text["definition"]["mappings"]
    assert mappings["dynamic"] is False
    own = mappings["fields"]["_r"]["fields"]
    assert own["words"] == {"type": "string", "analyzer": "lucene.whitespace", "indexOptions": "freqs"}
    assert own["ranges"]["fields"]["weight"] == own["pair"] == {"type": "number"}
    assert mappings["fields"]["kind"] == own["absent"] == {"type": "token"}


# --- What is made of the replies --------------------------------------------------------------------------------------


async def test_candidates_come_with_their_neighbours_and_the_scopes_statistics(
    store: MongoStore, canned: Canned
) -> None:
    await said(store, 12)
    canned.vector_ids, canned.text_ids, canned.counts = ["s3"], ["s9"], {WORD["tea"]: 12}
    found = await canned.search(ask("tea roses", vector=random_vector(3)))
    names = await ids(store, found)
    assert sorted(names) == sorted(["s1", "s2", "s3", "s4", "s5", "s7", "s8", "s9", "s10", "s11"])
    exact = await store.search(ENTRIES, ask("tea roses", vector=random_vector(3)))
    assert (found.count, found.mean_length, found.df.tolist()) == (12, exact.mean_length, [12, 0])
    own, whole = dict(zip(names, range(12), strict=False)), dict(zip(await ids(store, exact), range(12), strict=True))
    for name, index in own.items():
        for column in ("cosine", "has_vector", "length", "speaker", "time", "content", "rows"):
            assert getattr(found, column)[index] == getattr(exact, column)[whole[name]], (name, column)
    assert names[found.previous[own["s3"]]] == "s2"
    assert names[found.following[own["s3"]]] == "s4"
    assert found.following[own["s5"]] >= 0, "s7 is two turns on: near enough"
    assert found.matched.all()


async def test_turns_that_are_far_apart_are_no_neighbours(store: MongoStore, canned: Canned) -> None:
    await said(store, 12)
    canned.text_ids = ["s0", "s11"]
    found = await canned.search(ask("tea"))
    names = await ids(store, found)
    assert sorted(names) == sorted(["s0", "s1", "s2", "s9", "s10", "s11"])
    assert found.following[names.index("s2")] == -1
    assert found.previous[names.index("s9")] == -1


async def test_what_was_just_written_is_found_before_the_index_has_it(store: MongoStore, canned: Canned) -> None:
    await said(store, 4)
    await store.commit([entry("roses", "new", vector=unit(1))])
    found = await canned.search(ask("roses", vector=unit(1)), now="2100-01-01T00:00:00.000Z")
    assert await ids(store, found) == []
    now = store._clock.now()
    fresh = await canned.columns(
        ENTRIES, ask("roses", vector=unit(1)), await partitions.read(store._database, ENTRIES, T, [AU]), to_ms(now)
    )
    assert await ids(store, fresh) == ["new"]
    assert (fresh.df.tolist(), fresh.count) == ([1], 5)


async def test_what_was_deleted_is_not_found_though_the_index_still_has_it(store: MongoStore, canned: Canned) -> None:
    await said(store, 4)
    changes: list[Change] = [Delete(ENTRIES, T, "s1")]
    await store.commit(changes)
    canned.text_ids = ["s1", "s3"]
    assert "s1" not in await ids(store, await canned.search(ask("tea")))


async def test_a_filter_is_judged_on_the_row_as_it_is_now(store: MongoStore, canned: Canned) -> None:
    """The index may have let through what has changed since."""
    await store.commit([entry("tea", "a", kind="a"), entry("tea", "b", kind="b")])
    await old(store)
    canned.text_ids = ["a", "b"]
    found = await canned.search(ask("tea", where=Eq("kind", "a")))
    assert dict(zip(await ids(store, found), found.matched.tolist(), strict=True)) == {"a": True, "b": False}


async def test_only_large_scopes_of_a_ready_index_take_this_path(
    store: MongoStore, open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(store, 3)
    small = await open_store(exact_up_to=2)
    assert len((await small.search(ENTRIES, ask("tea"))).rows) == 3, "no index: exact"
    candidates = Canned(small)
    candidates.text_ids = ["s0"]
    monkeypatch.setattr(small, "_candidates", candidates)
    small._indexes._ready.add("entries")
    assert len((await small.search(ENTRIES, ask("tea"))).rows) == 3
    assert candidates.sent
    candidates.sent.clear()
    exact = await open_store(exact_up_to=3)
    monkeypatch.setattr(exact, "_candidates", candidates)
    exact._indexes._ready.add("entries")
    await exact.search(ENTRIES, ask("tea"))
    assert not candidates.sent


async def test_a_scope_with_vectors_kept_beside_the_index_is_searched_exactly_by_their_model(
    store: MongoStore, open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(store, 3)
    for i in range(3):
        made = search_entry("tea", random_vector(9 + i), "model-b")
        await store.commit([Update(ENTRIES, T, f"s{i}", entry=made, keep=True)])
    large = await open_store(exact_up_to=2)
    candidates = Canned(large)
    monkeypatch.setattr(large, "_candidates", candidates)
    large._indexes._ready.add("entries")
    found = await large.search(ENTRIES, ask(vector=random_vector(1)))
    assert (found.has_vector.sum(), candidates.sent) == (3, [])
    await large.reembedding.mark_migrated(ENTRIES, await large.reembedding.pairs(ENTRIES, 0, 0, 9, "every"), NEW_ID)
    await large.search(ENTRIES, ask(vector=random_vector(1), model="model-b"))
    assert len(candidates.sent) == 1, "the index has those"
    await large.search(ENTRIES, ask(vector=random_vector(1)))
    assert len(candidates.sent) == 1


# --- Filters, against their meaning -----------------------------------------------------------------------------------

kinds = st.sampled_from(["a", "b", "$x"])
weights = st.sampled_from([-1, 0, 0.5, 1])
docs = st.fixed_dictionaries(
    {"created_at": st.integers(0, 4).map(at)},
    optional={"kind": st.none() | kinds, "tags": st.lists(kinds, max_size=2), "weight": st.none() | weights},
)
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


def stored(doc: dict[str, Any]) -> dict[str, Any]:
    """The fields that the indexes read."""
    ranges = {f: range_value(doc[f]) for f in SEARCHED.ranges if doc.get(f) is not None}
    return doc | {OWN: {"pair": 1, "ranges": ranges, "absent": [f for f in SEARCHED.ranges if doc.get(f) is None]}}


@given(docs, filters)
def test_both_translations_mean_what_the_filter_means(doc: dict[str, Any], where: Filter) -> None:
    whole = stored(doc)
    assert all(_passes(whole, part) for part in vector_filter(where)) == matches(doc, where)
    assert all(_operator(whole, part) for part in text_filter(where)) == matches(doc, where)


def _values(doc: dict[str, Any], path: str) -> list[Any]:
    value = value_at(doc, path)
    return value if isinstance(value, list) else [] if value is None else [value]


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "gte": lambda a, b: bool(a >= b),
    "gt": lambda a, b: bool(a > b),
    "lte": lambda a, b: bool(a <= b),
    "lt": lambda a, b: bool(a < b),
}


def _passes(doc: dict[str, Any], query: Stage) -> bool:
    """A query as documented for `filter` of `$vectorSearch`: any element of an array may match."""
    ((name, asked),) = query.items()
    if name in ("$and", "$or"):
        return (all if name == "$and" else any)(_passes(doc, part) for part in asked)
    values = _values(doc, name)
    return all(_condition(values, sign, wanted) for sign, wanted in asked.items())


def _condition(values: list[Any], sign: str, wanted: Any) -> bool:
    if sign in ("$eq", "$ne"):
        return (wanted in values) is (sign == "$eq")
    if sign in ("$in", "$nin"):
        return any(value in wanted for value in values) is (sign == "$in")
    return any(COMPARE[sign[1:]](value, wanted) for value in values)


def _operator(doc: dict[str, Any], operator: Stage) -> bool:
    """An operator of `$search` as documented."""
    ((name, asked),) = operator.items()
    if name == "compound":
        every = [_operator(doc, part) for part in asked.get("filter", [])]
        never = [_operator(doc, part) for part in asked.get("mustNot", [])]
        some = [_operator(doc, part) for part in asked.get("should", [])]
        return all(every) and not any(never) and sum(some) >= asked.get("minimumShouldMatch", 0)
    values = _values(doc, asked["path"])
    if name == "equals":
        return asked["value"] in values
    if name == "in":
        return any(value in asked["value"] for value in values)
    if name == "exists":
        return bool(values)
    assert name == "range"
    return any(all(COMPARE[s](v, b) for s, b in asked.items() if s != "path") for v in values)


def test_the_words_of_the_index_are_the_terms_of_the_ranking() -> None:
    terms = ask("tea roses tea").terms
    assert term_text(sorted(set(terms.tolist()))).split() == [f"{term:08x}" for term in np.unique(terms)]


async def test_a_long_text_is_indexed_by_its_first_window_and_scored_by_its_best(
    store: MongoStore, canned: Canned
) -> None:
    first, *further = (random_vector(number) for number in (50, 51, 52))
    await store.commit([entry("long", "long", vector=first, further=np.stack(further))])
    stored = await store._database["entries"].find_one({"entry_id": "long"})
    assert stored is not None
    assert list(stored["_r"]["vector"].as_vector().data) == quantise(first).tolist()
    canned.vector_ids = ["long"]
    found = await canned.search(ask(vector=further[-1]))
    assert found.cosine.tolist() == [pytest.approx(1, abs=1e-3)]
