"""Updates beside another record and alone: what they count from, and what stands in their way."""

from typing import Any

import pytest

from app.storage.changes import Change, CommitConflict, Insert, Update
from app.storage.mongo.store import MongoStore
from tests.support.declared import NUMBERED, T, at, thing

pytestmark = pytest.mark.anyio


def of(seq: Any, numbered_id: str, **fields: Any) -> Insert:
    doc = {"tenant_id": T, "numbered_id": numbered_id, "parent": "p", "seq": seq, "created_at": at(0), **fields}
    return Insert(NUMBERED, doc)


def change(**given: Any) -> Update:
    return Update(NUMBERED, T, given.pop("id", "one"), **given)


ALONE_OR_NOT: list[list[Change]] = [[], [thing("beside")]]


@pytest.mark.parametrize("beside", ALONE_OR_NOT)
@pytest.mark.parametrize("kept", [{}, {"n": None}, {"n": 0}, {"n": 2**31 - 1}, {"n": 0.5}])
async def test_null_and_nothing_count_as_zero(store: MongoStore, beside: list[Change], kept: dict[str, Any]) -> None:
    await store.commit([of(1, "one", **kept)])
    update = change(inc={"n": 2}, set={"x": 1}, expect={"seq": 1})
    await store.commit([*beside, update])
    doc = await store.get(NUMBERED, T, "one") or {}
    assert (doc["n"], doc["x"]) == ((kept.get("n") or 0) + 2, 1)


@pytest.mark.parametrize("beside", ALONE_OR_NOT)
@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (change(id="none", set={"x": 1}), "missing"),
        (change(set={"x": 1}, expect={"seq": 2}), "expect"),
        (change(set={"x": 1}, expect={"y": 0}), "expect"),
        (change(set={"x": 1}, expect={"x": None, "seq": None}), "expect"),
    ],
)
async def test_what_stood_in_the_way_is_named(
    store: MongoStore, beside: list[Change], update: Update, reason: str
) -> None:
    await store.commit([of(1, "one"), of(2, "two")])
    with pytest.raises(CommitConflict) as caught:
        await store.commit([*beside, change(id="two", set={"x": 1}, expect={"seq": 2}), update])
    assert (caught.value.doc_id, caught.value.reason) == (update.id, reason)
    assert "x" not in (await store.get(NUMBERED, T, "two") or {})


async def test_a_document_named_twice_is_judged_as_the_list_left_it(store: MongoStore) -> None:
    await store.commit([of(1, "one")])
    twice = [change(inc={"seq": 1}, expect={"seq": 1}), change(inc={"seq": 1}, expect={"seq": 2})]
    await store.commit(twice)
    assert (await store.get(NUMBERED, T, "one") or {})["seq"] == 3
    with pytest.raises(CommitConflict):
        await store.commit(twice)
