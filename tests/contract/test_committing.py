import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import RecordDamaged
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES
from app.storage.changes import Allocate, Change, CommitConflict, Committed, Delete, DeleteWhere, Insert, Ref, Update
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Doc, Eq
from tests.support.declared import (
    ENTRIES,
    NUMBERED,
    OTHER,
    THINGS,
    T,
    ask,
    at,
    entry,
    numbered,
    search_entry,
    thing,
)
from tests.support.planting import plant_text
from tests.support.properties import on_a_store

pytestmark = pytest.mark.anyio


async def refused(store: Store, *changes: Change) -> CommitConflict:
    with pytest.raises(CommitConflict) as caught:
        await store.commit(changes)
    return caught.value


# --- All or none ------------------------------------------------------------------------------------------------------

FAILING: list[Change] = [
    thing("taken"),
    thing(group="g", name="n", state="open"),
    Update(THINGS, T, "missing", set={"name": "x"}),
    Update(THINGS, T, "taken", expect={"version": 7}),
    Delete(THINGS, T, "missing"),
    Delete(THINGS, T, "taken", expect={"group": "other"}),
]


@on_a_store()
@given(failing=st.sampled_from(FAILING), place=st.integers(0, 6))
async def test_one_failing_change_undoes_the_whole_list(store: Store, failing: Change, place: int) -> None:
    if await store.get(THINGS, T, "taken") is None:
        await store.commit(
            [thing("taken", group="g", name="n", state="open"), numbered(1, "kept"), entry("old tea", "kept")]
        )
    before = await everything(store)
    good: list[Change] = [
        Allocate("counter", T, 3),
        thing(name=Ref("counter")),
        Update(THINGS, T, "taken", set={"score": 5}, inc={"version": 1}),
        DeleteWhere(NUMBERED, T, EVERYTHING),
        entry("new tea"),
        Update(ENTRIES, T, "kept", set={"kind": "changed"}, entry=search_entry("changed coffee")),
    ]
    await refused(store, *good[:place], failing, *good[place:])
    assert await everything(store) == before
    tried_before = await store.count(NUMBERED, OTHER)
    committed = await store.commit([Allocate("counter", T), numbered(1, tenant=OTHER)])
    assert committed.allocated == {"counter": 1 + tried_before}


async def everything(store: Store) -> Any:
    docs = [await store.find(collection, T) for collection in (THINGS, NUMBERED, ENTRIES)]
    columns = await store.search(ENTRIES, ask("tea coffee"))
    facts = await store.overview(ENTRIES, T, ask().partitions)
    return docs, columns.rows.tolist(), columns.term_counts.tolist(), facts


async def test_a_failed_commit_burns_no_number(store: Store) -> None:
    await store.commit([Allocate("c", T), thing("taken")])
    await refused(store, Allocate("c", T, 10), thing("taken"))
    assert (await store.commit([Allocate("c", T)])).allocated == {"c": 2}


async def test_one_list_fails_without_its_neighbours(store: Store) -> None:
    await store.commit([thing("taken")])
    outcomes = await asyncio.gather(
        *(store.commit([thing(), thing("taken" if i % 3 == 0 else None)]) for i in range(60)), return_exceptions=True
    )
    assert [isinstance(outcome, CommitConflict) for outcome in outcomes] == [i % 3 == 0 for i in range(60)]
    assert await store.count(THINGS, T) == 1 + 2 * 40


async def test_no_change_is_a_commit_too(store: Store) -> None:
    assert await store.commit([]) == Committed({}, 0)


# --- Conflicts and their names ----------------------------------------------------------------------------------------


async def test_a_taken_id_exists(store: Store) -> None:
    await store.commit([thing("one")])
    conflict = await refused(store, thing("one"))
    assert (conflict.collection, conflict.doc_id, conflict.reason) == ("things", "one", "exists")
    await store.commit([thing("one", tenant=OTHER)])


@pytest.mark.parametrize("change", [Update(THINGS, T, "none"), Delete(THINGS, T, "none"), Delete(THINGS, OTHER, "one")])
async def test_what_is_not_there_is_missing(store: Store, change: Change) -> None:
    await store.commit([thing("one")])
    assert (await refused(store, change)).reason == "missing"
    assert await store.get(THINGS, T, "one") is not None


async def test_expectations_see_the_document_as_it_is_at_the_commit(store: Store) -> None:
    await store.commit([thing("one", group=None)])
    await store.commit(
        [Update(THINGS, T, "one", set={"group": "g"}, expect={"group": None, "name": None, "version": 1})]
    )
    assert (await refused(store, Update(THINGS, T, "one", expect={"group": None}))).reason == "expect"
    assert (await refused(store, Delete(THINGS, T, "one", expect={"version": 2}))).reason == "expect"
    await store.commit([Update(THINGS, T, "one", inc={"version": 1}), Delete(THINGS, T, "one", expect={"version": 2})])


async def test_the_unique_key_that_stood_in_the_way_is_named(store: Store) -> None:
    await store.commit([thing(group="g", name="n", state="open", slot=1)])
    assert (await refused(store, thing(group="g", name="n", state="open"))).reason == "name"
    assert (await refused(store, thing(group="g", slot=1))).reason == "slot"
    await store.commit([thing("two", group="g", slot=2)])
    assert (await refused(store, Update(THINGS, T, "two", set={"slot": 1}))).reason == "slot"


async def test_a_unique_key_with_a_longer_name_is_told_from_its_prefix(store: Store) -> None:
    await store.commit([thing(name="n", done=True)])
    assert (await refused(store, thing(name="n", done=True))).reason == "name_of_done"
    await store.commit([thing(name="n", done=False), thing(name="n", done=None)])


async def test_only_documents_that_match_count_for_a_unique_key(store: Store) -> None:
    await store.commit([thing("a", group="g", name="n", state="open"), thing("b", group="g", name="n", state="shut")])
    assert (await refused(store, Update(THINGS, T, "b", set={"state": "open"}))).reason == "name"
    await store.commit([Update(THINGS, T, "a", set={"state": "shut"}), Update(THINGS, T, "b", set={"state": "open"})])
    await store.commit([thing(group="g", name="n", state="open", tenant=OTHER)])


async def test_null_is_a_value_in_a_unique_key(store: Store) -> None:
    await store.commit([thing(group=None, slot=1)])
    assert (await refused(store, thing(slot=1))).reason == "slot"
    await store.commit([thing(group="g", slot=1), thing(), thing()])


async def test_an_id_freed_in_the_list_may_be_taken_in_it(store: Store) -> None:
    await store.commit([thing("one", group="g", slot=1)])
    await store.commit([Delete(THINGS, T, "one"), thing("one", group="g", slot=1, score=2)])
    assert (await store.get(THINGS, T, "one") or {})["score"] == 2


async def test_memories_of_one_key_or_of_equal_content_are_one(store: Store) -> None:
    def memory(content: str, **fields: Any) -> Insert:
        given = {"memory_type": "fact", "importance": 0.5, "agent_id": "a", "content": content, **fields}
        return Insert(
            MEMORIES,
            {"tenant_id": T, **new_memory(MEMORIES.as_record(given), {}, at(0), unique=True)},
            search_entry(content),
        )

    await store.commit([memory("tea", key="drink"), memory("tea")])
    assert (await refused(store, memory("coffee", key="drink"))).reason == "key"
    assert (await refused(store, memory("TEA"))).reason == "content"
    await store.commit([memory("tea", context="in the evening")])
    await store.commit([memory("coffee"), memory("water"), memory("tea", user_id="u", key="drink")])


# --- What the changes do ----------------------------------------------------------------------------------------------


async def test_an_update_sets_and_adds_and_leaves_the_rest(store: Store) -> None:
    await store.commit([thing("one", score=1, tags=["a"], metadata={"a.b": 1})])
    update = Update(THINGS, T, "one", set={"metadata": {"$inc": {"x.y": 1}}, "name": "n"}, inc={"version": 1, "new": 4})
    await store.commit([update, Update(THINGS, T, "one", inc={"new": -1, "score": 2})])
    doc = await store.get(THINGS, T, "one") or {}
    assert doc["metadata"] == {"$inc": {"x.y": 1}}
    assert (doc["name"], doc["version"], doc["new"], doc["score"], doc["tags"]) == ("n", 2, 3, 3, ["a"])
    assert await store.count(THINGS, T, Eq("score", 3)) == 1
    assert await store.count(THINGS, T, Eq("score", 1)) == 0


async def test_concurrent_increments_all_count(store: Store) -> None:
    await store.commit([thing("one", score=0)])
    await asyncio.gather(*(store.commit([Update(THINGS, T, "one", inc={"score": 1})]) for _ in range(100)))
    assert (await store.get(THINGS, T, "one") or {})["score"] == 100


async def test_of_concurrent_conditional_updates_one_wins(store: Store) -> None:
    await store.commit([thing("one")])

    async def attempt(who: int) -> int | None:
        change = Update(THINGS, T, "one", set={"winner": who}, inc={"version": 1}, expect={"version": 1})
        try:
            await store.commit([change, thing(f"of-{who}")])
        except CommitConflict:
            return None
        return who

    (winner,) = [who for who in await asyncio.gather(*(attempt(i) for i in range(40))) if who is not None]
    assert (await store.get(THINGS, T, "one") or {})["winner"] == winner
    assert await store.count(THINGS, T) == 2


async def test_deletions_by_filter_count_what_they_deleted_and_stay_in_their_tenant(store: Store) -> None:
    await store.commit([thing(tenant=tenant, group=group) for tenant in (T, OTHER) for group in ("a", "a", "b")])
    committed = await store.commit([DeleteWhere(THINGS, T, Eq("group", "a")), DeleteWhere(THINGS, T, Eq("group", "x"))])
    assert committed.deleted == 2
    assert (await store.count(THINGS, T), await store.count(THINGS, OTHER)) == (1, 3)


async def test_what_cannot_be_read_can_be_deleted_and_nothing_else(store: Store) -> None:
    await store.commit([thing(name, state="x", metadata={"a": 1}) for name in ("one", "two", "three")])
    for name in ("one", "two"):
        await plant_text(store, THINGS, name, tenant=T)
    with pytest.raises(RecordDamaged) as damaged:
        await store.get(THINGS, T, "one")
    assert {"thing_id": "one", "tenant_id": T, "state": "x", "created_at": at(0)}.items() <= damaged.value.known.items()
    with pytest.raises(RecordDamaged):
        await store.commit([Update(THINGS, T, "one", set={"name": "n"})])
    assert (await refused(store, Delete(THINGS, T, "one", {"created_at": at(1)}))).reason == "expect"
    await store.commit([Delete(THINGS, T, "one", {"created_at": at(0)})])
    assert (await store.commit([DeleteWhere(THINGS, T, Eq("state", "x"))])).deleted == 2
    assert await store.count(THINGS, T) == 0


async def test_deletions_by_filter_see_the_changes_before_them(store: Store) -> None:
    committed = await store.commit([thing(group="a"), DeleteWhere(THINGS, T, EVERYTHING), thing("left", group="a")])
    assert committed.deleted == 1
    assert [doc["thing_id"] for doc in await store.find(THINGS, T)] == ["left"]


# --- Counters ---------------------------------------------------------------------------------------------------------


async def test_counters_start_at_one_and_leave_no_gap_under_concurrency(store: Store) -> None:
    async def append(many: int) -> list[int]:
        messages = [numbered(Ref("seq", i), "chat") for i in range(many)]
        first = (await store.commit([Allocate("seq", T, many), *messages])).allocated["seq"]
        return list(range(first, first + many))

    taken = await asyncio.gather(*(append(1 + i % 3) for i in range(100)))
    numbers = [number for own in taken for number in own]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert [doc["seq"] for doc in await store.find(NUMBERED, T, order="asc", limit=999)] == sorted(numbers)


async def test_counters_are_of_their_tenant_and_name(store: Store) -> None:
    await store.commit([Allocate("c", T, 5)])
    committed = await store.commit([Allocate("d", T), Allocate("c", T)])
    assert committed.allocated == {"c": 6, "d": 1}
    assert (await store.commit([Allocate("c", OTHER)])).allocated == {"c": 1}


async def test_references_are_replaced_wherever_they_stand(store: Store) -> None:
    nested: Doc = {"list": [Ref("c"), {"a.b": Ref("c", 1)}], "plain": "Ref"}
    insert = thing("one", score=Ref("c", 2), metadata=nested)
    update = Update(THINGS, T, "two", set={"score": Ref("c"), "metadata": {"deep": [[Ref("c", 3)]]}})
    await store.commit([thing("two"), Allocate("c", T, 4), insert, update])
    one, two = await store.get(THINGS, T, "one") or {}, await store.get(THINGS, T, "two") or {}
    assert (one["score"], one["metadata"]) == (3, {"list": [1, {"a.b": 2}], "plain": "Ref"})
    assert (two["score"], two["metadata"]) == (1, {"deep": [[4]]})
    assert await store.count(THINGS, T, Eq("score", 3)) == 1


async def test_a_hundred_commits_at_once_are_all_there(store: Store) -> None:
    inserts = [[thing(), entry(f"text number {i}", created_at=at(i))] for i in range(100)]
    await asyncio.gather(*(store.commit(changes) for changes in inserts))
    assert await store.count(THINGS, T) == await store.count(ENTRIES, T) == 100
    assert (await store.overview(ENTRIES, T, ask().partitions)).count == 100


# --- Listeners --------------------------------------------------------------------------------------------------------


async def test_what_is_inserted_is_told_once_it_is_committed(store: Store) -> None:
    seen: list[int] = []
    counted: list[str] = []
    store.on_insert(THINGS, lambda: seen.append(len(seen)))
    store.on_insert(NUMBERED, lambda: counted.append("numbered"))
    await store.commit([thing("a"), thing("b")])
    assert seen == [0], "once for a commit"
    await store.commit([Update(THINGS, T, "a", set={"name": "x"}), Delete(THINGS, T, "b")])
    await refused(store, thing("c"), thing("a"))
    assert (len(seen), counted) == (1, [])
