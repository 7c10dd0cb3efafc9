"""The double of Atlas is as strict as MongoDB's documentation: what it lets through is what counts."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bson.binary import Binary, BinaryVectorDtype
from pymongo.collection import Collection
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel
from pymongo.read_concern import ReadConcern

from tests.storage.mongo.conftest import LateAtlas

Json = dict[str, Any]
LOCAL = ReadConcern("local")
VECTOR = {
    "fields": [
        {"type": "vector", "path": "v", "numDimensions": 2, "similarity": "cosine"},
        {"type": "filter", "path": "kind"},
        {"type": "filter", "path": "size"},
    ]
}
TEXT = {
    "mappings": {
        "dynamic": False,
        "fields": {"kind": {"type": "token"}, "size": {"type": "number"}, "words": {"type": "string"}},
    }
}


@pytest.fixture
def things(atlas: LateAtlas, mongodb_database: str) -> Iterator[Collection[Json]]:
    with atlas.client() as client:
        made = client[mongodb_database].get_collection("things", read_concern=LOCAL)
        made.insert_many(
            [{"_id": str(i), "v": vector(i, 3), "kind": "ab"[i % 2], "size": i, "words": f"x w{i}"} for i in range(4)]
        )
        made.create_search_index(SearchIndexModel(VECTOR, "vector", "vectorSearch"))
        made.create_search_index(SearchIndexModel(TEXT, "text", "search"))
        atlas.settle()
        yield made


def vector(*values: int) -> Binary:
    return Binary.from_vector(list(values), BinaryVectorDtype.INT8)


def near(**more: Any) -> list[Json]:
    stage = {"index": "vector", "path": "v", "queryVector": vector(0, 3), "numCandidates": 20, "limit": 2}
    return [{"$vectorSearch": stage | more}]


def text(operator: Json, **more: Any) -> list[Json]:
    return [{"$search": {"index": "text", **operator, **more}}]


def size(**bounds: int) -> list[Json]:
    return text({"range": {"path": "size", **bounds}})


KIND = {"equals": {"path": "kind", "value": "a"}}
REFUSED: dict[str, tuple[list[Json], str]] = {
    "not first": ([{"$match": {}}, *near()], "only valid as the first stage"),
    "in a facet": ([{"$facet": {"a": near()}}], "within a .facet"),
    "too many candidates": (near(numCandidates=10_001), "within bounds"),
    "fewer candidates than results": (near(limit=21), "less than or equal"),
    "no candidates": (near(numCandidates=None), "numCandidates is required"),
    "unknown option": (near(candidates=5), "unrecognized field"),
    "other dimension": (near(queryVector=vector(1, 2, 3)), "indexed with 2 dimensions but queried with 3"),
    "no vector field": (near(path="w"), "not indexed as vector"),
    "undeclared filter": (near(filter={"other": {"$eq": "a"}}), "needs to be indexed as token"),
    "unknown operator of a filter": (near(filter={"kind": {"$regex": "a"}}), "not supported"),
    "empty list in a filter": (near(filter={"kind": {"$in": []}}), "must not be empty"),
    "empty conjunction": (near(filter={"$and": []}), "not empty"),
    "text where a vector index is": ([{"$search": {"index": "vector", **KIND}}], "Cannot execute"),
    "unknown operator": (text({"near": {"path": "size", "origin": 1, "pivot": 1}}), "unrecognized field"),
    "two operators": (text({**KIND, "exists": {"path": "kind"}}), "exactly one"),
    "undeclared field": (text({"equals": {"path": "other", "value": "a"}}), "needs to be indexed as token"),
    "number where text is": (text({"equals": {"path": "kind", "value": 1}}), "needs to be indexed as number"),
    "mixed list": (text({"in": {"path": "kind", "value": ["a", 1]}}), "same type"),
    "bounds the wrong way round": (size(gte=2, lt=1), "must not be greater"),
    "nothing between bounds": (size(gte=2, lt=2), "must both be inclusive"),
    "two lower bounds": (size(gte=2, gt=2), "at most one"),
    "no bound": (size(), "at least one of"),
    "no clause": (text({"compound": {"filter": []}}), "at least one clause"),
    "more to match than there is": (
        text({"compound": {"should": [KIND], "minimumShouldMatch": 2}}),
        "cannot be greater than number of should clauses",
    ),
    "too many words": (
        text({"text": {"path": "words", "query": " ".join(f"w{i}" for i in range(1_025))}}),
        "maxClauseCount",
    ),
    "unknown count": ([{"$searchMeta": {"index": "text", **KIND, "count": {"type": "exact"}}}], "must be one of"),
    "inside a union": ([{"$match": {}}, {"$unionWith": {"coll": "things", "pipeline": near(limit=21)}}], "less than"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_the_reference_refuses_is_refused(things: Collection[Json], wrong: str) -> None:
    pipeline, sentence = REFUSED[wrong]
    with pytest.raises(OperationFailure, match=sentence):
        list(things.aggregate(pipeline))


@pytest.mark.parametrize("pipeline", [near(), text(KIND), [{"$searchMeta": {"index": "text", **KIND}}]])
def test_every_read_concern_but_local_is_refused(things: Collection[Json], pipeline: list[Json]) -> None:
    assert list(things.aggregate(pipeline))
    for level in ("majority", "snapshot"):
        with pytest.raises(OperationFailure, match="other than 'local'") as caught:
            list(things.with_options(read_concern=ReadConcern(level)).aggregate(pipeline))
        assert caught.value.code == 72


def test_answers_are_exact_and_in_order(things: Collection[Json]) -> None:
    def ids(pipeline: list[Json]) -> list[str]:
        return [found["_id"] for found in things.aggregate(pipeline)]

    assert ids(near()) == ["0", "1"]
    assert ids(near(filter={"kind": {"$eq": "b"}})) == ["1", "3"]
    assert sorted(ids(size(gte=1, lt=3))) == ["1", "2"]
    assert ids(text({"text": {"path": "words", "query": "x w3"}}))[0] == "3", "a rare word counts more"
    assert len(ids([*text({"text": {"path": "words", "query": "x"}}), {"$limit": 3}])) == 3
    (meta,) = things.aggregate([{"$searchMeta": {"index": "text", **KIND, "count": {"type": "total"}}}])
    assert meta == {"count": {"total": 2}}


def test_an_index_that_is_missing_answers_with_nothing_and_one_being_built_with_an_error(
    things: Collection[Json], atlas: LateAtlas
) -> None:
    assert list(things.aggregate(near(index="vectr"))) == []
    atlas.build_seconds = 3_600
    things.create_search_index(SearchIndexModel(VECTOR, "second", "vectorSearch"))
    with pytest.raises(OperationFailure, match="INITIAL_SYNC"):
        list(things.aggregate(near(index="second")))
    things.update_search_index("vector", VECTOR)
    (listed,) = things.list_search_indexes("vector")
    assert (listed["status"], listed["queryable"]) == ("BUILDING", True)
    assert list(things.aggregate(near())), "the old definition answers meanwhile"


def test_answers_are_late(things: Collection[Json]) -> None:
    things.insert_one({"_id": "new", "v": vector(0, 3), "kind": "a", "size": 9})
    assert "new" not in [found["_id"] for found in things.aggregate(near(limit=10))]
    things.delete_one({"_id": "0"})
    assert "0" not in [found["_id"] for found in things.aggregate(near(limit=10))], "documents are read anew"


def test_what_was_being_read_while_it_settled_is_older_than_that(
    atlas: LateAtlas, things: Collection[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reading, go_on = atlas._image, threading.Event(), threading.Event()

    def slowly(*asked: Any) -> Any:
        found = read(*asked)
        if threading.current_thread() in atlas._threads and not reading.is_set():
            reading.set()
            assert go_on.wait(60)
        return found

    monkeypatch.setattr(atlas, "_image", slowly)
    things.update_one({"_id": "0"}, {"$set": {"words": "seen"}})
    assert reading.wait(60)
    things.update_one({"_id": "0"}, {"$set": {"words": "settled"}})
    settling = threading.Thread(target=atlas.settle)
    settling.start()
    go_on.set()
    settling.join(60)
    assert len(list(things.aggregate(text({"text": {"query": "settled", "path": "words"}})))) == 1
    assert len(atlas._mirrors[things.database.name, "things"].images) == 1
