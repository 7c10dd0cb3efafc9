"""What a search sends to search indexes, and what it makes of the candidates that come back."""

from typing import Any

import numpy as np
import pytest

from app.memories.schemas import MEMORIES
from app.memories.search import SearchRequest, search_filter
from app.storage.changes import Delete, Update
from app.storage.index.record_codec import model_id, quantise
from app.storage.mongo import partitions
from app.storage.mongo.codec import range_name, term_text
from app.storage.mongo.search_indexes import DEPTHS, USABLE, missing, models, vector_filter
from app.storage.mongo.store import MongoStore
from app.storage.schema import And, Eq, Has, Not, Range
from scripts.export_search_indexes import ROOT, rendered
from tests.storage.mongo.conftest import Open, until
from tests.support.atlas import Atlas, verbs_of
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
)
from tests.support.views import view

pytestmark = pytest.mark.anyio

Stage = dict[str, Any]
NEW_ID = model_id("model-b", DIM)
WORD = {word: term_text(ask(word).terms.tolist()) for word in ("tea", "roses")}


@pytest.fixture
async def store(indexed: MongoStore) -> MongoStore:
    return indexed


async def said(store: MongoStore, atlas: Atlas, kinds: str, session: str = "s") -> None:
    """A conversation long ago, one turn for each letter of `kinds`."""
    await store.commit(
        [
            entry(
                f"tea {i}",
                f"{session}{i}",
                kind=kind,
                vector=random_vector(i),
                source={"session_id": session, "message_seq": i, "speaker": "Ann"},
            )
            for i, kind in enumerate(kinds)
        ]
    )
    atlas.settle()
    atlas.watch()


def parts_of(atlas: Atlas) -> list[list[Stage]]:
    """The pipelines of the one command that was sent."""
    (sent,) = atlas.pipelines
    unions = [stage["$unionWith"]["pipeline"] for stage in sent if "$unionWith" in stage]
    return [[stage for stage in sent if "$unionWith" not in stage], *unions]


# --- What is sent -----------------------------------------------------------------------------------------------------


async def test_the_vector_stage_has_the_filter_and_as_many_candidates_as_documented(
    store: MongoStore, atlas: Atlas
) -> None:
    await said(store, atlas, "a")
    vector = random_vector(1)
    await store.search(ENTRIES, ask(vector=vector, where=And((Eq("kind", "a"), Range("created_at", ge=at(0))))))
    stage = parts_of(atlas)[0][0]["$vectorSearch"]
    assert (stage["index"], stage["path"], stage["limit"]) == ("entries_vector", "_r.vector", DEPTHS[0])
    assert 20 * stage["limit"] <= stage["numCandidates"] <= 10_000
    asked = stage["queryVector"].as_vector()
    assert (asked.dtype.name, list(asked.data)) == ("INT8", quantise(vector).tolist())
    (partition,) = await partitions.read(store._database, ENTRIES, T, [AU])
    named = str(stage["filter"])
    for condition in ("tenant_id", T, str(partition.number), str(model_id(MODEL, DIM)), "'kind': {'$eq': 'a'}"):
        assert condition in named


async def test_terms_are_searched_and_counted_in_the_scope_in_the_same_command(store: MongoStore, atlas: Atlas) -> None:
    await said(store, atlas, "aab")
    columns = await store.search(ENTRIES, ask("tea roses", where=Not(Has("tags", "t"))))
    assert columns.df.tolist() == [3, 0]
    first, *others = parts_of(atlas)
    assert set(first[0]["$search"]["compound"]["should"][0]["text"]["query"].split()) == set(WORD.values())
    assert [verb for part in others for verb in part[0]] == ["$searchMeta"] * 3, "the scope, and each term"


async def test_nothing_is_asked_that_was_not_given(store: MongoStore, atlas: Atlas) -> None:
    await said(store, atlas, "a")
    await store.search(ENTRIES, ask(vector=random_vector(1)))
    await store.search(ENTRIES, ask("tea"))
    await store.search(ENTRIES, ask())
    assert [verbs_of(pipeline) & {"$search", "$vectorSearch"} for pipeline in atlas.pipelines] == [
        {"$vectorSearch"},
        {"$search"},
    ]


def test_every_filter_is_declared_in_both_indexes() -> None:
    vector, text = (model.document for model in models(ENTRIES, DIM))
    assert (vector["name"], vector["type"]) == ("entries_vector", "vectorSearch")
    first, *rest = vector["definition"]["fields"]
    assert first == {"type": "vector", "path": "_r.vector", "numDimensions": DIM, "similarity": "cosine"}
    declared = {field["path"] for field in rest if field["type"] == "filter"}
    ranges = {f"_r.ranges.{range_name(field)}" for field in SEARCHED.ranges}
    own = {"tenant_id", "_r.partition", "_r.model", "_r.absent", "base_importance"}
    assert declared == {*own, *SEARCHED.facets, *ranges}
    assert (text["name"], text["type"]) == ("entries_text", "search")
    mappings = text["definition"]["mappings"]
    assert mappings["dynamic"] is False
    fields = mappings["fields"]["_r"]["fields"]
    assert fields["words"] == {"type": "string", "analyzer": "lucene.whitespace", "indexOptions": "freqs"}
    assert fields["ranges"]["fields"]["weight"] == fields["partition"] == {"type": "number"}
    assert mappings["fields"]["kind"] == fields["absent"] == {"type": "token"}


def test_trust_and_validity_are_filters_of_the_index_and_no_mask_afterwards() -> None:
    body = SearchRequest(query="tea", user_id="u", min_trust=0.5)
    vector = models(MEMORIES, DIM)[0].document["definition"]
    declared = {field["path"] for field in vector["fields"]}
    named = str(vector_filter(search_filter(body, at(0)).where))
    for field in ("trust", "valid_from", "valid_until", "expires_at"):
        assert f"_r.ranges.{field}" in declared
        assert f"_r.ranges.{field}" in named


def test_a_definition_with_more_than_is_wanted_is_no_other_one() -> None:
    vector, text = (model.document["definition"] for model in models(ENTRIES, DIM))
    assert missing(vector, {"fields": [*vector["fields"], {"type": "filter", "path": "more"}]}) == []
    assert missing(vector, {"fields": vector["fields"][:-1]}) == ["tags"]
    assert missing(models(ENTRIES, 2 * DIM)[0].document["definition"], vector) == ["_r.vector"]
    assert missing(text, {"mappings": {"dynamic": True, "fields": text["mappings"]["fields"]}, "analyzer": "x"}) == []
    assert "_r.words" in missing(text, {"mappings": {"dynamic": True}})


# --- What is made of the replies --------------------------------------------------------------------------------------


async def test_candidates_come_with_their_neighbours_and_the_scopes_statistics(store: MongoStore, atlas: Atlas) -> None:
    await said(store, atlas, "bbbabbbbbabb")
    query = ask("tea roses", vector=random_vector(3), where=Eq("kind", "a"))
    found = await view(store, ENTRIES, query)
    assert sorted(found.rows) == sorted(["s1", "s2", "s3", "s4", "s5", "s7", "s8", "s9", "s10", "s11"])
    assert found.matched == {"s3", "s9"}
    assert (found.count, found.df) == (12, [12, 0])
    assert (found.rows["s3"]["previous"], found.rows["s3"]["following"]) == ("s2", "s4")
    assert found.rows["s5"]["following"] == "s7", "two turns on: near enough"


async def test_turns_that_are_far_apart_are_no_neighbours(store: MongoStore, atlas: Atlas) -> None:
    await said(store, atlas, "abbbbbbbbbba")
    found = await view(store, ENTRIES, ask("tea", where=Eq("kind", "a")))
    assert sorted(found.rows) == sorted(["s0", "s1", "s2", "s9", "s10", "s11"])
    assert found.rows["s2"]["following"] is None
    assert found.rows["s9"]["previous"] is None


async def test_what_was_deleted_or_changed_since_the_index_read_it_is_judged_as_it_is(
    open_indexed: Open, atlas: Atlas
) -> None:
    store = await open_indexed(overlay_ms=0)
    await until(store, USABLE)
    await said(store, atlas, "aaa")
    await store.commit([Delete(ENTRIES, T, "s0"), Update(ENTRIES, T, "s1", set={"kind": "b"})])
    found = await view(store, ENTRIES, ask("tea", where=Eq("kind", "a")))
    assert (found.matched, "s0" in found.rows) == ({"s2"}, False)


async def test_only_large_scopes_are_asked_of_the_indexes(open_indexed: Open, atlas: Atlas) -> None:
    store = await open_indexed(exact_up_to=3)
    await until(store, USABLE)
    await said(store, atlas, "aaa")
    await store.search(ENTRIES, ask("tea"))
    assert atlas.pipelines == []
    await said(store, atlas, "a", "other")
    await store.search(ENTRIES, ask("tea"))
    assert len(atlas.pipelines) == 1


async def test_a_scope_with_vectors_kept_beside_the_index_is_searched_exactly_by_their_model(
    store: MongoStore, atlas: Atlas
) -> None:
    await said(store, atlas, "aaa")
    await store.commit(
        [
            Update(ENTRIES, T, f"s{i}", entry=search_entry("tea", random_vector(9 + i), "model-b"), keep=True)
            for i in range(3)
        ]
    )
    atlas.settle()
    found = await store.search(ENTRIES, ask(vector=random_vector(1)))
    assert (found.has_vector.sum(), atlas.pipelines) == (3, [])
    await store.reembedding.mark_migrated(
        ENTRIES, await store.reembedding.partitions(ENTRIES, 0, 0, 9, "every"), NEW_ID
    )
    await store.search(ENTRIES, ask(vector=random_vector(1), model="model-b"))
    assert len(atlas.pipelines) == 1, "the index has those"
    await store.search(ENTRIES, ask(vector=random_vector(1)))
    assert len(atlas.pipelines) == 1


def test_the_words_of_the_index_are_the_terms_of_the_ranking() -> None:
    terms = ask("tea roses tea").terms
    assert term_text(sorted(set(terms.tolist()))).split() == [f"{term:08x}" for term in np.unique(terms)]


async def test_a_long_text_is_indexed_by_its_first_window_and_scored_by_its_best(
    store: MongoStore, atlas: Atlas
) -> None:
    first, *further = (random_vector(number) for number in (50, 51, 52))
    await store.commit([entry("long", "long", vector=first, further=np.stack(further))])
    atlas.settle()
    stored = await store._database["entries"].find_one({"entry_id": "long"})
    assert stored is not None
    assert list(stored["_r"]["vector"].as_vector().data) == quantise(first).tolist()
    found = await store.search(ENTRIES, ask(vector=further[-1]))
    assert found.cosine.tolist() == [pytest.approx(1, abs=1e-3)]


def test_the_definitions_to_paste_are_those_of_the_code() -> None:
    assert (ROOT / "deploy" / "search-indexes.js").read_text() == rendered(), "run scripts/export_search_indexes.py"
