"""Two openers of one store, and the same scope by increments and cold: what they answer never differs."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.changes import Allocate, Change, Delete, DeleteWhere, Insert, Update
from app.storage.mongo import partitions
from app.storage.protocol import Store
from app.storage.schema import And, Collection, Eq, Has, Or, Range
from app.storage.scope import ANY_AGENT, Partition
from tests.contract.conftest import Open
from tests.support.declared import (
    AU,
    ENTRIES,
    OTHER,
    THINGS,
    T,
    ask,
    at,
    entry,
    fresh,
    further_windows,
    random_vector,
    search_entry,
    thing,
    unit,
)
from tests.support.memories import eventually
from tests.support.properties import on_a_store
from tests.support.views import View, view

pytestmark = pytest.mark.anyio

TEXTS = ("tea", "tea and roses", "coffee in May 2023", "roses roses roses?", "键 чай شاي", "the")
PARTITIONS = (AU, Partition(None, "user"), Partition("agent-2", "user"))
EVERY_PARTITION = (Partition(ANY_AGENT, "user"),)


async def seen(store: Store, tenant: str = T, collection: Collection = ENTRIES) -> View:
    where = Or((Eq("kind", "a"), Has("tags", "t"), And((Range("weight", ge=1), Range("created_at", gt=at(1))))))
    query = ask("tea roses 2023 键", tenant=tenant, partitions=EVERY_PARTITION, where=where, vector=random_vector(1))
    return await view(store, collection, query)


async def see_the_same(one: Store, other: Store, tenant: str = T) -> None:
    """Both find the same at once. Term statistics may come from an index that follows the writes a little later."""
    assert (await seen(one, tenant)).rows == (await seen(other, tenant)).rows

    async def agree() -> bool:
        return await seen(one, tenant) == await seen(other, tenant)

    await eventually(agree)


# --- By increments and cold -------------------------------------------------------------------------------------------

fields = st.fixed_dictionaries(
    {"created_at": st.integers(0, 3).map(at)},
    optional={
        "kind": st.sampled_from(["a", "b"]),
        "tags": st.lists(st.sampled_from(["t", "u"]), max_size=2),
        "weight": st.sampled_from([0, 1, 2]),
        "base_importance": st.sampled_from([0.0, 0.5, 1.0]),
        "anchored_at": st.integers(0, 3).map(at),
        "pinned": st.booleans(),
        "source": st.fixed_dictionaries(
            {},
            optional={
                "session_id": st.sampled_from(["s1", "s2"]),
                "message_seq": st.integers(0, 6),
                "speaker": st.sampled_from(["Ann", "Bob"]),
            },
        ),
    },
)
text_and_vector = st.tuples(st.sampled_from(TEXTS), st.none() | st.integers(0, 5))
which = st.integers(0, 999)
turns = st.fixed_dictionaries(
    {
        "source": st.fixed_dictionaries(
            {"session_id": st.sampled_from(["s1", "s1", "s2"]), "message_seq": st.integers(0, 6)}
        )
    }
)
talk = st.one_of(
    st.tuples(st.just("insert"), st.just(AU), turns, st.just(("tea", None))),
    st.tuples(st.just("insert"), st.just(AU), turns, st.just(("tea", None))),
    st.tuples(st.just("change"), which, turns),
    st.tuples(st.just("delete"), which),
)
operations = st.one_of(
    st.tuples(st.just("insert"), st.sampled_from(PARTITIONS), fields, text_and_vector),
    st.tuples(st.just("insert"), st.just(AU), fields, text_and_vector),
    st.tuples(st.just("change"), which, fields),
    st.tuples(st.just("rewrite"), which, fields, text_and_vector),
    st.tuples(st.just("delete"), which),
    st.tuples(st.just("delete kind"), st.sampled_from(["a", "b"])),
)
Operation: TypeAlias = tuple[Any, ...]


class Plan:
    """Turns operations into changes, and knows which documents live."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self.live: dict[str, str | None] = {}

    def changes(self, wanted: Iterable[Operation]) -> list[Change]:
        return [change for operation in wanted for change in self._change(*operation)]

    def _change(self, verb: str, *given: Any) -> list[Change]:
        if verb == "insert":
            return [self._insert(*given)]
        if verb == "delete kind":
            self.live = {doc_id: kind for doc_id, kind in self.live.items() if kind != given[0]}
            return [DeleteWhere(ENTRIES, self._tenant, Eq("kind", given[0]))]
        if not self.live:
            return []
        doc_id = sorted(self.live)[given[0] % len(self.live)]
        if verb == "delete":
            del self.live[doc_id]
            return [Delete(ENTRIES, self._tenant, doc_id)]
        self.live[doc_id] = given[1].get("kind", self.live[doc_id])
        rewritten = _search_entry(given[2]) if verb == "rewrite" else None
        return [Update(ENTRIES, self._tenant, doc_id, set=given[1], inc={"version": 1}, entry=rewritten)]

    def _insert(self, partition: Partition, described: dict[str, Any], said: tuple[str, int | None]) -> Insert:
        doc_id = fresh("e")
        self.live[doc_id] = described.get("kind")
        made = entry(said[0], doc_id, tenant=self._tenant, partition=partition, **described)
        return Insert(ENTRIES, made.doc, _search_entry(said))


def _search_entry(said: tuple[str, int | None]) -> Any:
    text, seed = said
    if seed is None:
        return search_entry(text)
    return search_entry(text, random_vector(seed), further=further_windows(seed))


@on_a_store()
@given(
    st.one_of(
        st.lists(st.tuples(st.lists(operations, max_size=5), st.booleans()), min_size=1, max_size=12),
        st.lists(st.tuples(st.lists(talk, min_size=1, max_size=3), st.just(True)), min_size=3, max_size=8),
    )
)
async def test_a_scope_kept_up_to_date_equals_one_read_anew(
    store: Store, open_store: Open, commits: list[tuple[list[Operation], bool]]
) -> None:
    tenant = fresh("tenant")
    plan = Plan(tenant)
    for wanted, searched in commits:
        await store.commit(plan.changes(wanted))
        if searched:
            assert set((await seen(store, tenant)).rows) == set(plan.live)
    cold = await open_store()
    await see_the_same(store, cold, tenant)
    assert await store.overview(ENTRIES, tenant, EVERY_PARTITION) == await cold.overview(
        ENTRIES, tenant, EVERY_PARTITION
    )
    await cold.close()


async def test_hundreds_of_changes_leave_a_scope_as_one_read_anew(store: Store, open_store: Open) -> None:
    plan = Plan(T)
    for i in range(40):
        described = {"kind": "ab"[i % 2], "source": {"session_id": f"s{i % 3}", "message_seq": i}, "created_at": at(i)}
        await store.commit(plan.changes([("insert", AU, described, (TEXTS[i % 6], i % 5)) for _ in range(10)]))
        await store.commit(plan.changes([("delete", 7 * i + j) for j in range(6)]))
        await store.commit(plan.changes([("rewrite", 5 * i + j, {"kind": "b"}, (TEXTS[j], j)) for j in range(3)]))
        await seen(store)
    await store.commit(plan.changes([("delete kind", "a")]))
    await see_the_same(store, await open_store())
    assert set((await seen(store)).rows) == set(plan.live)


# --- Two openers ------------------------------------------------------------------------------------------------------


async def test_a_second_opener_sees_each_commit_of_the_first(store: Store, second_store: Store) -> None:
    for i in range(5):
        await store.commit([thing(f"t{i}"), entry("tea", f"e{i}", kind="a")])
        assert await second_store.get(THINGS, T, f"t{i}") is not None
        assert set((await seen(second_store)).rows) == {f"e{j}" for j in range(i + 1)}
    await store.commit([Delete(ENTRIES, T, "e0"), Update(ENTRIES, T, "e1", set={"kind": "b"})])
    assert (await seen(second_store)).matched == {"e2", "e3", "e4"}
    await see_the_same(second_store, store)


async def test_two_openers_write_at_once_and_lose_nothing(store: Store, second_store: Store) -> None:
    await store.commit([thing("one", score=0)])
    both = (store, second_store)
    changes: list[Change] = [Update(THINGS, T, "one", inc={"score": 1}), Allocate("c", T)]
    done = await asyncio.gather(*(both[i % 2].commit([*changes, entry("tea", f"e{i}")]) for i in range(60)))
    assert sorted(committed.allocated["c"] for committed in done) == list(range(1, 61))
    assert (await second_store.get(THINGS, T, "one") or {})["score"] == 60
    assert len((await seen(store)).rows) == 60
    await see_the_same(store, second_store)


async def test_handles_of_one_opener_are_not_those_of_what_came_later(store: Store, second_store: Store) -> None:
    await store.commit([entry("tea", "one")])
    rows = (await second_store.search(ENTRIES, ask())).rows
    await store.commit([Delete(ENTRIES, T, "one"), entry("tea", "two")])
    await store.commit([entry("tea", "theirs", tenant=OTHER)])
    assert await second_store.fetch(ENTRIES, T, rows) == [None]


@pytest.mark.parametrize("left", [0, 3, 300])
async def test_many_deletions_reach_a_copy_that_was_made_before_them(
    store: Store, second_store: Store, left: int
) -> None:
    await store.commit([entry(f"tea {i}", f"gone{i}", kind="gone", vector=unit(1)) for i in range(250)])
    await store.commit([entry(f"tea {i}", f"left{i}", vector=unit(1)) for i in range(left)])
    assert len((await seen(second_store)).rows) == 250 + left
    for i in range(125):
        await store.commit([Delete(ENTRIES, T, f"gone{i}")])
    assert len((await seen(store)).rows) == 125 + left
    await store.commit([DeleteWhere(ENTRIES, T, Eq("kind", "gone"))])
    await store.commit([entry("tea", "after")])
    assert len((await seen(second_store)).rows) == left + 1
    await see_the_same(store, second_store)


@pytest.fixture
def many(store: Store, monkeypatch: pytest.MonkeyPatch) -> int:
    """Documents of a scope that is read in a thread."""
    if store.name == "embedded":
        return 2_600
    monkeypatch.setattr(partitions, "INLINE_ROWS", 200)  # a server in Python takes six milliseconds for each
    return 260


async def test_large_scopes_are_as_exact_as_small_ones(store: Store, second_store: Store, many: int) -> None:
    vectors = [random_vector(seed) for seed in range(16)]
    turns: list[dict[str, Any]] = [
        {"kind": "ab"[i % 2], "source": {"session_id": f"s{i % 50}", "message_seq": i // 50}} for i in range(many)
    ]
    made = [
        entry(
            TEXTS[i % 6],
            f"e{i}",
            vector=vectors[i % 16],
            further=further_windows(i) if i % 5 == 0 else None,
            created_at=at(i),
            **turn,
        )
        for i, turn in enumerate(turns)
    ]
    await store.commit(made[:100])
    assert len((await seen(store)).rows) == 100
    await store.commit(made[100:])
    answers = await asyncio.gather(*(seen(second_store) for _ in range(2)), *(seen(store) for _ in range(2)))
    assert len(answers[0].rows) == many
    assert all(answer.rows == answers[0].rows for answer in answers)
    await see_the_same(store, second_store)
    await store.commit([DeleteWhere(ENTRIES, T, Eq("kind", "a")), Update(ENTRIES, T, "e1", set={"kind": "x"})])
    assert len((await seen(second_store)).rows) == many // 2
    await see_the_same(store, second_store)


async def test_a_large_scope_that_shrinks_while_it_is_read_is_answered(store: Store, second_store: Store) -> None:
    await store.commit([entry("tea", f"e{i}", kind="a" if i else "b") for i in range(2_100)])
    searches = asyncio.gather(*(second_store.search(ENTRIES, ask("tea")) for _ in range(3)))
    await store.commit([DeleteWhere(ENTRIES, T, Eq("kind", "a"))])
    async with asyncio.timeout(90):
        await searches
        assert set((await seen(second_store)).rows) == {"e0"}
