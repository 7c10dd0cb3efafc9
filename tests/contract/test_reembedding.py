"""Vectors of two models in one store: each search finds by its own, and what is left to move is known."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.storage.changes import Delete, Insert, Update
from app.storage.index.record_codec import model_id
from app.storage.protocol import Store, VectorCounts
from app.storage.scope import Partition
from app.storage.search import Floats
from tests.contract.conftest import Open
from tests.support.declared import (
    AU,
    DIM,
    ENTRIES,
    MODEL,
    OTHER,
    T,
    ask,
    entry,
    entry_doc,
    fresh,
    random_vector,
    search_entry,
)

pytestmark = pytest.mark.anyio

NEW = "model-b"
OLD_ID, NEW_ID = model_id(MODEL, DIM), model_id(NEW, DIM)


def moved(entry_id: str, seed: int, tenant: str = T, dim: int = DIM) -> Update:
    """The record's vector is one of `NEW` from now on."""
    made = search_entry("tea", random_vector(seed, dim), NEW)
    return Update(ENTRIES, tenant, entry_id, entry=made, keep=True)


async def cosines(
    store: Store, model: str, vector: Floats, tenant: str = T, partitions: Sequence[Partition] = (AU,)
) -> dict[str, float]:
    """By id, of those that have a vector of the model."""
    query = ask(vector=vector, model=model, tenant=tenant, partitions=partitions)
    columns = await store.search(ENTRIES, query)
    docs = await store.fetch(ENTRIES, tenant, columns.rows)
    assert not columns.cosine[~columns.has_vector].any()
    return {
        one.doc["entry_id"]: round(float(cosine), 6)
        for one, cosine, has in zip(docs, columns.cosine, columns.has_vector, strict=True)
        if one is not None and has
    }


async def counts(store: Store, model: int = NEW_ID) -> VectorCounts:
    return await store.reembedding.counts(ENTRIES, model, DIM)


async def test_each_model_finds_by_its_own_vectors_while_they_are_moved(store: Store, open_store: Open) -> None:
    await store.commit([entry("tea", f"e{i}", vector=random_vector(i)) for i in range(6)])
    before = await cosines(store, MODEL, random_vector(2))
    assert len(before) == 6
    assert await cosines(store, NEW, random_vector(2)) == {}
    for i in range(6):
        await store.commit([moved(f"e{i}", 100 + i)])
        assert await cosines(store, MODEL, random_vector(2)) == before
        found = await cosines(store, NEW, random_vector(100 + i))
        assert set(found) == {f"e{j}" for j in range(i + 1)}
        assert found[f"e{i}"] > 0.999
    cold, new = await open_store(), await cosines(store, NEW, random_vector(105))
    assert await cosines(cold, MODEL, random_vector(2)) == before
    assert await cosines(cold, NEW, random_vector(105)) == new
    assert (await counts(store), await counts(store, OLD_ID)) == (
        VectorCounts(6, of_model=6, without=0, others=0, alternates=6),
        VectorCounts(6, of_model=0, without=0, others=6, alternates=6),
    )
    assert await store.reembedding.drop_previous_vectors(ENTRIES) == 6
    assert await cosines(await open_store(), MODEL, random_vector(2)) == {}
    assert await cosines(store, NEW, random_vector(105)) == new
    assert (await counts(store)).alternates == 0
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_another_dimension_is_kept_apart(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1)), entry("tea", "two", vector=random_vector(2))])
    await store.commit([moved("one", 3, dim=2 * DIM)])
    assert set(await cosines(store, MODEL, random_vector(1))) == {"one", "two"}
    assert (await store.reembedding.counts(ENTRIES, model_id(NEW, 2 * DIM), 2 * DIM)).of_model == 1
    assert (await counts(store)).of_model == 0, "the same name with another dimension is another model"


async def test_going_back_leaves_nothing_that_is_there_twice(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1))])
    await store.commit([moved("one", 2)])
    back = search_entry("tea", random_vector(1))
    await store.commit([Update(ENTRIES, T, "one", entry=back, keep=True)])
    assert (await cosines(store, MODEL, random_vector(1)))["one"] > 0.999
    assert (await cosines(store, NEW, random_vector(2)))["one"] > 0.999
    await store.commit([Update(ENTRIES, T, "one", entry=back, keep=True)])
    assert await counts(store, OLD_ID) == VectorCounts(1, of_model=1, without=0, others=0, alternates=1)


@pytest.mark.parametrize("new", [random_vector(9), None])
async def test_a_new_text_ends_what_was_kept(store: Store, new: Floats | None) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1)), entry("tea", "two", vector=random_vector(2))])
    await store.commit([moved("one", 3), moved("two", 4)])
    await store.commit([Update(ENTRIES, T, "one", entry=search_entry("roses", new))])
    assert (await counts(store)).alternates == 1
    assert set(await cosines(store, NEW, random_vector(3))) == {"two"}
    assert set(await cosines(store, MODEL, random_vector(1))) == ({"one", "two"} if new is not None else {"two"})


async def test_a_changed_record_keeps_both_and_a_deleted_one_neither(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1)), entry("tea", "two", vector=random_vector(2))])
    await store.commit([moved("one", 3), moved("two", 4)])
    await store.commit([Update(ENTRIES, T, "one", set={"kind": "a"}), Delete(ENTRIES, T, "two")])
    assert set(await cosines(store, MODEL, random_vector(1))) == {"one"}
    assert set(await cosines(store, NEW, random_vector(3))) == {"one"}
    assert await counts(store) == VectorCounts(1, of_model=1, without=0, others=0, alternates=1)
    assert all(finding.ok for finding in await store.check(deep=True))


# --- What is left -----------------------------------------------------------------------------------------------------


async def test_a_record_like_another_has_the_vectors_of_both_models(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1))])
    await store.commit([moved("one", 2)])
    await store.commit([Insert(ENTRIES, entry_doc("tea", "two"), like="one")])
    assert await cosines(store, MODEL, random_vector(1)) == {"one": 1.0, "two": 1.0}
    assert await cosines(store, NEW, random_vector(2)) == {"one": 1.0, "two": 1.0}
    await store.commit([Delete(ENTRIES, T, "one")])
    assert (await counts(store)).alternates == 1


async def partitions_of(store: Store, which: Any, model: int = NEW_ID) -> list[int]:
    return await store.reembedding.partitions(ENTRIES, model, 0, 100, which)


async def missing_vectors(store: Store, partitions: list[int], limit: int = 100) -> list[str]:
    found: list[str] = []
    place = 0
    while page := await store.reembedding.missing_vectors(ENTRIES, partitions, NEW_ID, place, limit):
        assert len(page) <= limit
        place = page[-1].row
        found += [one.doc["entry_id"] for one in page]
    return found


async def test_what_is_left_is_known_by_partition_and_by_record(store: Store) -> None:
    users = [Partition("agent", f"user-{i}") for i in range(3)]
    await store.commit(
        [entry("tea", f"{p.user}.{i}", partition=p, vector=random_vector(i)) for p in users for i in range(3)]
    )
    await store.commit([entry("tea", "theirs", tenant=OTHER, vector=random_vector(1))])
    every = await partitions_of(store, "every")
    assert len(every) == 4
    assert await partitions_of(store, "unlike") == await partitions_of(store, "other") == every
    assert await partitions_of(store, "unlike", OLD_ID) == []
    assert await store.reembedding.partitions(ENTRIES, NEW_ID, every[1], 1, "unlike") == [every[2]]
    assert len(await missing_vectors(store, every, limit=4)) == 10
    assert sorted(await missing_vectors(store, every[1:2])) == [f"user-1.{i}" for i in range(3)]

    await store.commit([moved(f"user-1.{i}", i) for i in range(3)] + [moved("user-2.0", 0)])
    assert sorted(await missing_vectors(store, every[1:3])) == ["user-2.1", "user-2.2"]
    await store.reembedding.mark_migrated(ENTRIES, every, NEW_ID)
    assert await partitions_of(store, "unlike") == [every[0], *every[2:]]
    assert await partitions_of(store, "other") == [every[0], every[3]], "the third has both, and so is of none"
    assert all(finding.ok for finding in await store.check(deep=True))


async def test_a_write_of_another_model_and_one_without_a_vector_are_seen(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1)), entry("tea", "two", vector=random_vector(2))])
    await store.commit([moved("one", 3), moved("two", 4)])
    (partition,) = await partitions_of(store, "every")
    for written, left in (
        (entry("tea", "old", vector=random_vector(5)), ["old"]),
        (entry("tea", "none"), ["old", "none"]),
        (Update(ENTRIES, T, "one", entry=search_entry("roses", random_vector(6))), ["one", "old", "none"]),
    ):
        await store.reembedding.mark_migrated(ENTRIES, [partition], NEW_ID)
        await store.commit([written])
        assert await partitions_of(store, "unlike") == [partition]
        assert await missing_vectors(store, [partition]) == left
    assert await counts(store) == VectorCounts(4, of_model=1, without=1, others=2, alternates=1)
    await store.reembedding.mark_migrated(ENTRIES, [partition], NEW_ID)
    assert await partitions_of(store, "unlike") == [partition], "nothing is noted that is not so"


async def test_a_partition_of_one_record_is_of_its_model(store: Store) -> None:
    await store.commit([entry("tea", "one", vector=random_vector(1))])
    await store.commit([moved("one", 3)])
    assert await partitions_of(store, "unlike") == []
    await store.commit([Delete(ENTRIES, T, "one")])
    assert await partitions_of(store, "every") == []
    await store.commit([entry("tea", "two", vector=random_vector(1))])
    assert await partitions_of(store, "unlike", OLD_ID) == []


# --- Any order of writes ----------------------------------------------------------------------------------------------

Step: TypeAlias = tuple[str, int, str, int]
steps = st.tuples(
    st.sampled_from(["insert", "move", "move", "rewrite", "pending", "change", "delete"]),
    st.integers(0, 5),
    st.sampled_from([MODEL, NEW]),
    st.integers(0, 3),
)


class Kept:
    """Record → model → seed of the vector, as it should be."""

    def __init__(self) -> None:
        self.vectors: dict[str, dict[str, int]] = {}

    def change(self, tenant: str, step: Step) -> Insert | Update | Delete | None:
        verb, number, model, seed = step
        entry_id, made = f"{tenant}.{number}", search_entry("tea", random_vector(seed), model)
        if verb == "insert":
            if entry_id in self.vectors:
                return None
            self.vectors[entry_id] = {model: seed}
            return Insert(ENTRIES, entry_doc("tea", entry_id, tenant=tenant), made)
        if entry_id not in self.vectors:
            return None
        if verb == "delete":
            del self.vectors[entry_id]
            return Delete(ENTRIES, tenant, entry_id)
        if verb == "change":
            return Update(ENTRIES, tenant, entry_id, set={"kind": f"k{seed}"})
        if verb == "pending":
            self.vectors[entry_id] = {}
            return Update(ENTRIES, tenant, entry_id, entry=search_entry("tea"))
        before = self.vectors[entry_id] if verb == "move" else {}
        self.vectors[entry_id] = {**before, model: seed}
        return Update(ENTRIES, tenant, entry_id, entry=made, keep=verb == "move")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=8))
async def test_whatever_is_written_each_model_has_its_own(
    store: Store, open_store: Open, commits: list[list[Step]]
) -> None:
    tenant, kept = fresh("tenant"), Kept()
    for wanted in commits:
        await store.commit([change for step in wanted if (change := kept.change(tenant, step)) is not None])
        for model in (MODEL, NEW):
            found = await cosines(store, model, random_vector(1), tenant)
            assert found == pytest.approx(expected(kept, model), abs=0.01)
    cold = await open_store()
    assert await cosines(cold, MODEL, random_vector(1), tenant) == await cosines(store, MODEL, random_vector(1), tenant)
    assert all(finding.ok for finding in await cold.check(deep=True))
    await cold.close()


def expected(kept: Kept, model: str) -> dict[str, float]:
    wanted = random_vector(1)
    return {
        entry_id: float(np.dot(wanted, random_vector(of[model])))
        for entry_id, of in kept.vectors.items()
        if model in of
    }
