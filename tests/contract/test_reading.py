import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.changes import DeleteWhere, Insert, Update
from app.storage.protocol import TOLD_EVERY, Order, Store
from app.storage.schema import EVERYTHING, Absent, And, Doc, Eq, Filter, Has, In, Not, Or, Range, matches, value_at
from tests.support.declared import NUMBERED, OTHER, THINGS, T, at, fresh, numbered, thing
from tests.support.properties import on_a_store

pytestmark = pytest.mark.anyio
moderate = on_a_store()

HOSTILE: dict[str, Any] = {
    "a.b": 1,
    "$where": "sleep(1)",
    "": {"": [None, True, {"x.y": 2.5}]},
    "ключ 键 🔑": "значение",
    'quo"te': "'; DROP TABLE things; --",
    "__proto__": [[], {}],
}

TEXTS = ("", "a", "b", "B", "ä", "键", "it's", '"', "%", "a.b", "$x", "open", "null", "1", "a\0b", "a\0")
texts = st.sampled_from(TEXTS)
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -0.5, 1.0, 2**53, -(2**53), 1e300]))
times = st.integers(0, 4).map(at)
flags = st.booleans()
lists = st.lists(texts, max_size=3)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "group": texts,
    "score": numbers,
    "done": flags,
    "due": times,
    "tags": lists,
}
documents = st.fixed_dictionaries(
    {},
    optional={name: st.none() | values for name, values in FIELDS.items()}
    | {"origin": st.none() | st.fixed_dictionaries({}, optional={"place": st.none() | texts})},
)

scalars = st.sampled_from(
    [("group", texts), ("score", numbers), ("done", flags), ("due", times), ("origin.place", texts)]
)


def ranges(field: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    bounds = dict.fromkeys(("ge", "gt", "le", "lt"), values)
    return st.fixed_dictionaries({}, optional=bounds).map(lambda given: Range(field, **given))


leaves: st.SearchStrategy[Filter] = st.one_of(
    scalars.flatmap(lambda of: st.builds(Eq, st.just(of[0]), of[1])),
    scalars.flatmap(lambda of: st.builds(In, st.just(of[0]), st.lists(of[1], max_size=3).map(tuple))),
    st.builds(Has, st.just("tags"), texts),
    ranges("score", numbers),
    ranges("due", times),
    st.builds(Absent, st.sampled_from([*FIELDS, "origin.place"])),
)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


async def test_a_document_comes_back_as_it_was_given(store: Store) -> None:
    doc = thing(metadata=HOSTILE, score=0.1, tags=["x", ""], done=False, origin={"place": None}, big=2**53).doc
    await store.commit([Insert(THINGS, doc)])
    assert await store.get(THINGS, T, doc["thing_id"]) == doc


async def test_what_is_not_there_is_none(store: Store) -> None:
    assert await store.get(THINGS, T, "nothing") is None
    assert await store.find(THINGS, T) == []
    assert await store.count(THINGS, T) == 0


async def test_what_is_shown_is_what_is_stored_now(store: Store) -> None:
    doc = thing(score=1).doc
    await store.commit([Insert(THINGS, doc)])
    for score in (1, 2, 1):
        await store.commit([Update(THINGS, T, doc["thing_id"], set={"score": score})])
        (shown,) = await store.find_fetched(THINGS, T, Eq("thing_id", doc["thing_id"]))
        assert shown.doc["score"] == shown.memo.once("score", lambda known: known["score"], shown.doc) == score


@moderate
@given(st.lists(documents, max_size=8), st.lists(filters, min_size=1, max_size=4))
async def test_every_filter_means_what_matches_says(store: Store, given_docs: list[Doc], wanted: list[Filter]) -> None:
    tenant = fresh("tenant")
    inserts = [thing(tenant=tenant, **fields) for fields in given_docs]
    await store.commit(inserts)
    for where in wanted:
        expected = sorted(insert.doc["thing_id"] for insert in inserts if matches(insert.doc, where))
        found = await store.find(THINGS, tenant, where, order="asc")
        assert [doc["thing_id"] for doc in found] == expected
        assert [document.doc for document in await store.find_fetched(THINGS, tenant, where, order="asc")] == found
        assert await store.count(THINGS, tenant, where) == len(expected)
    committed = await store.commit([DeleteWhere(THINGS, tenant, wanted[0])])
    assert committed.deleted == sum(matches(insert.doc, wanted[0]) for insert in inserts)
    assert await store.count(THINGS, tenant) == len(inserts) - committed.deleted
    assert await store.count(THINGS, tenant, wanted[0]) == 0


async def test_a_field_that_is_not_declared_cannot_be_asked_for(store: Store) -> None:
    with pytest.raises(KeyError):
        await store.find(THINGS, T, Eq("metadata.a.b", 1))


async def test_documents_may_be_asked_for_by_their_ids(store: Store) -> None:
    await store.commit([thing("a", group="g"), thing("b"), thing("c"), thing("a", tenant=OTHER)])
    where = And((In("thing_id", ("a", "c", "none")), Absent("group")))
    assert [doc["thing_id"] for doc in await store.find(THINGS, T, where)] == ["c"]
    assert (await store.commit([DeleteWhere(THINGS, T, Eq("thing_id", "a"))])).deleted == 1


async def test_many_values_may_be_asked_for_at_once(store: Store) -> None:
    await store.commit([thing("x", name="n7")])
    assert await store.count(THINGS, T, In("name", tuple(f"n{i}" for i in range(2_000)))) == 1


async def test_lists_go_by_the_order_field_then_by_id(store: Store) -> None:
    await store.commit(
        [thing(name, created_at=at(second)) for name, second in (("b", 1), ("a", 1), ("c", 0), ("d", 2))]
    )
    assert [doc["thing_id"] for doc in await store.find(THINGS, T, order="asc")] == ["c", "a", "b", "d"]
    assert [doc["thing_id"] for doc in await store.find(THINGS, T)] == ["d", "b", "a", "c"]
    assert [doc["thing_id"] for doc in await store.find(THINGS, T, limit=2)] == ["d", "b"]


async def test_numbers_order_as_numbers(store: Store) -> None:
    await store.commit([numbered(seq) for seq in (10, 9, 100, 1)])
    assert [doc["seq"] for doc in await store.find(NUMBERED, T, order="asc")] == [1, 9, 10, 100]
    (last,) = await store.find(NUMBERED, T, Eq("parent", "p"), limit=1)
    assert last["seq"] == 100


@moderate
@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.lists(st.integers(0, 5), max_size=8),
    st.integers(1, 4),
    st.sampled_from(["asc", "desc"]),
    st.sampled_from([EVERYTHING, Eq("group", "kept")]),
)
async def test_pages_have_no_gap_and_no_double_while_others_write(
    store: Store, seconds: list[int], meanwhile: list[int], limit: int, order: Order, where: Filter
) -> None:
    tenant = fresh("tenant")
    first = [thing(tenant=tenant, created_at=at(second), group="kept") for second in seconds]
    await store.commit([*first, *(thing(tenant=tenant, created_at=at(second), group="x") for second in seconds[::2])])
    whole = await store.find(THINGS, tenant, where, order=order)
    seen: list[Doc] = []
    after = None
    others = iter(meanwhile)
    while page := await store.find(THINGS, tenant, where, order=order, after=after, limit=limit):
        seen += page
        after = THINGS.after(page[-1])
        more = [thing(tenant=tenant, created_at=at(second), group="kept") for second in (next(others, None),) if second]
        await store.commit(more) if more else None
    ids = [doc["thing_id"] for doc in seen]
    assert len(ids) == len(set(ids))
    there = {doc["thing_id"] for doc in whole}
    assert [doc for doc in seen if doc["thing_id"] in there] == whole
    places = [(doc["created_at"], doc["thing_id"]) for doc in seen]
    assert places == sorted(places, reverse=order == "desc")


async def test_a_place_between_documents_is_as_good_as_one_of_theirs(store: Store) -> None:
    await store.commit([numbered(seq) for seq in (1, 2, 4)])
    two = (await store.find(NUMBERED, T, order="asc"))[1]
    await store.commit([DeleteWhere(NUMBERED, T, Eq("seq", 2))])
    found = await store.find(NUMBERED, T, order="asc", after=NUMBERED.after(two))
    assert [doc["seq"] for doc in found] == [4]


async def test_no_read_sees_another_tenant(store: Store) -> None:
    await store.commit([thing("same", tenant=T, group="mine"), thing("same", tenant=OTHER, group="theirs")])
    await store.commit([thing("only-theirs", tenant=OTHER)])
    assert (await store.get(THINGS, T, "same") or {})["group"] == "mine"
    assert await store.get(THINGS, T, "only-theirs") is None
    assert [doc["group"] for doc in await store.find(THINGS, T, Or((EVERYTHING, Eq("group", "theirs"))))] == ["mine"]
    assert await store.count(THINGS, T, In("group", ("mine", "theirs"))) == 1


async def test_reads_see_what_was_just_acknowledged(store: Store) -> None:
    async def write_and_read(name: str) -> bool:
        await store.commit([thing(name, name=name)])
        return await store.get(THINGS, T, name) is not None and await store.count(THINGS, T, Eq("name", name)) == 1

    assert all(await asyncio.gather(*(write_and_read(f"n{i}") for i in range(50))))


async def test_the_check_of_a_sound_store_finds_nothing(store: Store) -> None:
    await store.commit([thing(), numbered(1)])
    assert all(finding.ok for finding in await store.check())
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_a_deep_check_tells_what_it_reads_and_how_far_it_is(store: Store) -> None:
    await store.commit([thing() for _ in range(TOLD_EVERY + 1)])
    told = list[tuple[str, int, int | None]]()
    findings = await store.check(deep=True, told=lambda name, done, total: told.append((name, done, total)))
    assert {finding.name for finding in findings if ": " in finding.name} <= {name for name, *_ in told}
    of_things = [(done, total) for name, done, total in told if name == "things: documents" and total is not None]
    assert of_things == [(0, TOLD_EVERY + 1), (TOLD_EVERY, TOLD_EVERY + 1)]


@moderate
@given(st.lists(documents, max_size=12), filters)
async def test_a_tally_counts_the_documents_that_match_by_value_and_by_day(
    store: Store, docs: list[Doc], where: Filter
) -> None:
    await store.commit([DeleteWhere(THINGS, T, EVERYTHING)])
    inserted = [thing(**doc).doc for doc in docs]
    await store.commit([Insert(THINGS, doc) for doc in inserted] + [thing(tenant=OTHER, group="other's")])
    there = [doc for doc in inserted if matches(doc, where)]
    groups = Counter((doc.get("group"), doc.get("score"), value_at(doc, "origin.place")) for doc in there)
    assert await store.tally(THINGS, T, ("group", "score", "origin.place"), where) == groups
    days = Counter((doc.get("state"), doc["due"][:10] if doc.get("due") else None) for doc in there)
    assert await store.tally(THINGS, T, ("state", "due"), where, first=10) == days


@moderate
@given(
    st.lists(documents, max_size=12), filters, st.sampled_from(["asc", "desc"]), st.integers(1, 5), st.none() | texts
)
async def test_distinct_values_are_those_of_the_documents_that_match(
    store: Store, docs: list[Doc], where: Filter, order: Order, limit: int, after: str | None
) -> None:
    await store.commit([DeleteWhere(THINGS, T, EVERYTHING)])
    inserted = [thing(**doc).doc for doc in docs]
    await store.commit([Insert(THINGS, doc) for doc in inserted] + [thing(tenant=OTHER, group="other's")])
    beyond = Range("group", lt=after) if order == "desc" else Range("group", gt=after)
    there = {doc["group"] for doc in inserted if matches(doc, where) and matches(doc, beyond)} - {None}
    found = await store.values(THINGS, T, "group", And((where, beyond)), order=order, limit=limit)
    assert found == sorted(there, reverse=order == "desc")[:limit]
