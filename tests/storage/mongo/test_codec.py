"""How documents lie in MongoDB: callers' keys are never paths, numbers stay what they are, keys are ours."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import TooLarge
from app.storage.changes import Insert, Update
from app.storage.mongo.codec import OWN, decode, encode, key, unique_keys
from app.storage.mongo.store import MongoStore
from tests.support.declared import THINGS, T, thing
from tests.support.mongodb import Deployment
from tests.support.properties import on_a_store

pytestmark = pytest.mark.anyio

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["$where", "a.b", "", "\0", "1"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | keys
)
objects = st.dictionaries(keys, st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(keys, v)))


@on_a_store()
@given(given_object=objects, replaced=objects)
async def test_callers_objects_come_back_exactly(store: MongoStore, given_object: Any, replaced: Any) -> None:
    insert = thing(metadata=given_object)
    await store.commit([insert])
    doc_id = insert.doc["thing_id"]
    assert repr((await store.get(THINGS, T, doc_id) or {})["metadata"]) == repr(given_object)
    await store.commit([Update(THINGS, T, doc_id, set={"metadata": replaced}, expect={"metadata": given_object})])
    assert repr((await store.get(THINGS, T, doc_id) or {})["metadata"]) == repr(replaced)


async def test_numbers_keep_their_kind(store: MongoStore) -> None:
    given_numbers: dict[str, Any] = {
        "one": 1,
        "float": 1.0,
        "long": 2**53,
        "least": -(2**63),
        "small": 5e-324,
        "zero": -0.0,
    }
    insert = thing(**given_numbers)
    await store.commit([insert])
    found = await store.get(THINGS, T, insert.doc["thing_id"]) or {}
    assert {name: repr(found[name]) for name in given_numbers} == {n: repr(v) for n, v in given_numbers.items()}
    assert all(type(found[name]) is type(value) for name, value in given_numbers.items())


def test_texts_and_numbers_among_callers_fields_lie_there_as_they_are() -> None:
    for value in ("plain", 1, 1.5, True, None):
        assert encode(THINGS, {"metadata": value}) == {"metadata": value}
    assert encode(THINGS, {"metadata": {"$set": 1}}) == {"metadata": {"json": '{"$set":1}'}}
    assert decode(THINGS, {"_id": "x", OWN: {}, "metadata": {"json": "[1]"}}) == {"metadata": [1]}


def test_ids_of_two_tenants_never_clash() -> None:
    assert key("a", "b:c") != key("a:b", "c")


def test_a_unique_key_tells_null_from_nothing_and_numbers_apart_by_value() -> None:
    base = {"tenant_id": T, "state": "open", "name": "n"}
    assert unique_keys(THINGS, {**base, "group": None}) == unique_keys(THINGS, base)
    assert unique_keys(THINGS, {**base, "group": ""}) != unique_keys(THINGS, base)
    assert unique_keys(THINGS, {"tenant_id": T, "slot": 1}) == unique_keys(THINGS, {"tenant_id": T, "slot": 1.0})
    assert unique_keys(THINGS, {**base, "state": "shut"}) == {}


async def test_what_is_larger_than_a_document_may_be_is_refused_in_a_sentence(store: MongoStore) -> None:
    for changes in ([thing(name="x" * (17 << 20))], [thing("small"), thing(metadata={"x": "y" * (17 << 20)})]):
        with pytest.raises(TooLarge, match="16 MB"):
            await store.commit(changes)
    assert await store.count(THINGS, T) == 0


async def test_fields_lie_under_their_own_names(store: MongoStore, mongodb: Deployment, database: str) -> None:
    doc = thing("one", group="g", slot=3, tags=["a"], metadata={"a.b": 1}).doc
    await store.commit([Insert(THINGS, doc)])
    with mongodb.client() as client:
        (stored,) = client[database]["things"].find({"group": "g", "tags": "a"})
    assert stored.pop("_id") == key(T, "one")
    assert stored.pop(OWN) == {"u": {"slot": '["tenant-1","g",3]'}}
    assert stored == doc | {"metadata": {"json": '{"a.b":1}'}}
