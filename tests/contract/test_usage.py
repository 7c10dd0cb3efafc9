"""Every engine counts what a tenant stores, in the commit that changes it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import QuotaExceeded
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryRecord
from app.settings import Settings
from app.storage.changes import Change, CommitConflict, Delete, DeleteWhere, Insert, Update, Usage, WithinQuota, total
from app.storage.protocol import DecayRule, Store
from app.storage.schema import EVERYTHING, Eq
from app.storage.transfer import MovableStore
from tests.contract.conftest import COLLECTIONS
from tests.support.declared import COUNTED, DIM, ENTRIES, THINGS, at, entry, fresh, search_entry, thing
from tests.support.properties import on_a_store
from tests.support.stores import closed_in_the_end, opener_of

pytestmark = pytest.mark.anyio

TENANTS = ("one", "two")
WORDS = st.text("abcü漢", min_size=1, max_size=40)


def note(note_id: str | None = None, *, tenant: str, **fields: Any) -> Insert:
    doc = {"tenant_id": tenant, "note_id": note_id or fresh(), "parent": "p", "created_at": at(0)}
    return Insert(COUNTED, {**doc, "context": {"$odd.": [1, 2.5, "ü"]}, **fields})


async def usage_of(store: Store, tenant: str) -> Usage:
    return total((await store.accounting.stored()).get(tenant, {}))


async def records_of(store: Store, tenant: str) -> int:
    return sum([await store.count(collection, tenant) for collection in COLLECTIONS if collection.counted])


def changes_of(rng: random.Random, there: Sequence[tuple[str, str]], word: str) -> list[Change]:
    """One to five changes of notes and entries; some lists conflict, and some name a record twice."""
    made: list[Change] = []
    for _ in range(rng.randint(1, 5)):
        tenant, note_id = rng.choice(there or [("one", "none")])
        some: list[Change] = [
            note(tenant=rng.choice(TENANTS), name=word, parent=rng.choice("gh")),
            entry(word, tenant=rng.choice(TENANTS)),
            Update(COUNTED, tenant, note_id, set={"name": word * rng.randint(1, 3)}, inc={"count": 1}),
            Delete(COUNTED, tenant, note_id),
            DeleteWhere(COUNTED, rng.choice(TENANTS), Eq("parent", "h")),
            DeleteWhere(ENTRIES, rng.choice(TENANTS), EVERYTHING),
            thing(tenant=rng.choice(TENANTS)),
        ]
        made.append(rng.choice(some))
    return made


@on_a_store()
@given(seed=st.integers(0, 10**9), word=WORDS, lists=st.integers(1, 6))
async def test_counts_equal_the_truth_after_any_changes(store: Store, seed: int, word: str, lists: int) -> None:
    rng = random.Random(seed)
    for _ in range(lists):
        there = [(doc["tenant_id"], doc["note_id"]) for doc in await store.find(COUNTED, None, limit=20)]
        try:
            await store.commit(changes_of(rng, there, word))
        except CommitConflict:
            continue
    for tenant in TENANTS:
        assert (await usage_of(store, tenant)).records == await records_of(store, tenant)
    stored, totals = await store.accounting.stored(), await store.accounting.totals()
    assert totals.tenants == len(stored)
    for collection in COLLECTIONS:
        of_all = sum((own.get(collection.name, Usage()) for own in stored.values()), Usage())
        assert totals.collections.get(collection.name, Usage()) == of_all
    assert await store.accounting.recount() == []


async def test_bytes_are_those_of_the_documents(store: Store) -> None:
    await store.commit([note("a", tenant="t", name="x" * 100)])
    small = await usage_of(store, "t")
    await store.commit([Update(COUNTED, "t", "a", set={"name": "x" * 1_100})])
    large = await usage_of(store, "t")
    assert (large.records, large.bytes - small.bytes) == (1, 1_000)
    await store.commit([Delete(COUNTED, "t", "a")])
    assert await usage_of(store, "t") == Usage()
    assert "t" not in await store.accounting.stored()


async def test_decay_keeps_the_counts(store: Store) -> None:
    given: list[MemoryRecord] = [{"content": f"tea {n}", "importance": n / 7, "memory_type": "fact"} for n in range(7)]
    docs = [new_memory(one, {}, at(0), unique=False) for one in given]
    await store.commit([Insert(MEMORIES, {"tenant_id": "d", **doc}, search_entry(doc["content"])) for doc in docs])
    assert await store.apply(MEMORIES, "d", DecayRule("2026-09-01T00:00:00.000Z", 0.9, 0, 0.1)) == 6
    assert await store.accounting.recount() == []


async def test_loaded_records_are_counted(store: MovableStore) -> None:
    await store.commit([entry("tea", "kept", tenant="from")])
    page = await store.export(ENTRIES, None, 10)
    await store.commit([Delete(ENTRIES, "from", "kept")])
    assert await store.load(ENTRIES, page) == 1
    assert await store.load(ENTRIES, page) == 0
    assert (await usage_of(store, "from")).records == 1
    assert await store.accounting.recount() == []


async def test_a_list_that_would_exceed_is_not_made_and_says_how_much(store: Store) -> None:
    quota = WithinQuota("q", 2, 0)
    await store.commit([note("a", tenant="q"), note("b", tenant="q"), quota])
    with pytest.raises(QuotaExceeded, match=r"is 2 records\. 2 are used, and this write would make it 3"):
        await store.commit([note("c", tenant="q"), quota])
    assert await store.get(COUNTED, "q", "c") is None
    await store.commit([Update(COUNTED, "q", "a", set={"name": "y"}), quota])
    await store.commit([Delete(COUNTED, "q", "a"), note("c", tenant="q"), quota])
    await store.commit([note("elsewhere", tenant="q2"), WithinQuota("q2", 2, 0)])
    assert (await usage_of(store, "q")).records == 2


async def test_a_list_that_frees_something_is_made_above_the_quota(store: Store) -> None:
    await store.commit([note(name, tenant="q", name="x" * 500) for name in "abc"])
    quota = WithinQuota("q", 1, 100)
    with pytest.raises(QuotaExceeded, match=r"100 bytes|1 records"):
        await store.commit([Update(COUNTED, "q", "a", set={"name": "x" * 501}), quota])
    await store.commit([Update(COUNTED, "q", "a", set={"name": "x"}), quota])
    await store.commit([Delete(COUNTED, "q", "b"), quota])
    assert (await usage_of(store, "q")).records == 2


async def test_the_check_finds_a_wrong_count_and_recounting_corrects_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit([note("a", tenant="w"), entry("tea", tenant="w")])
    await lose_counts(store)
    (wrong,) = [finding for finding in await store.check(deep=True) if not finding.ok]
    assert wrong.name == "usage"
    assert "tenant w is said to have 0 records of 0 bytes and has 2 records" in wrong.detail
    (said,) = await store.accounting.recount()
    assert said in wrong.detail
    assert all(finding.ok for finding in await store.check(deep=True))
    await store.commit([Delete(COUNTED, "w", "a")])
    assert (await usage_of(store, "w")).records == 1


async def lose_counts(store: Any) -> None:
    """Empties what the engine has counted."""
    if store.name == "embedded":
        await store.writer.submit(lambda connection: connection.execute("DELETE FROM usage").fetchall())
    else:
        await store._database["recalld_usage"].delete_many({})


async def test_recounting_corrects_the_count_of_a_tenant_that_has_no_records(store: Store) -> None:
    await invent_count(store)
    (said,) = await store.accounting.recount()
    assert said == "tenant gone is said to have 1 records of 9 bytes and has 0 records of 0 bytes"
    assert "gone" not in await store.accounting.stored()
    assert await store.accounting.recount() == []


async def invent_count(store: Any) -> None:
    """Counts a record of a tenant that has none."""
    if store.name == "embedded":
        row = ("gone", COUNTED.name, 1, 9)
        await store.writer.submit(
            lambda connection: connection.execute("INSERT INTO usage VALUES (?, ?, ?, ?)", row).fetchall()
        )
    else:
        counts = {COUNTED.name: {"records": 1, "bytes": 9}}
        await store._database["recalld_usage"].insert_one({"_id": "gone", "tenant_id": "gone", "collections": counts})


async def test_what_a_later_release_counts_is_counted_at_its_start(settings: Settings, store: Store) -> None:
    """The releases before counted the notes, and no things. A thing counts by its bytes, for the tenant it names."""
    await store.commit([note("a", tenant="t"), thing("b", tenant="system", name="payer")])
    later = replace(THINGS, counted=True, only_bytes=True, payer="name")
    async with closed_in_the_end(opener_of(settings, (COUNTED, later), DIM)) as opener:
        opened = await opener()
        (one,) = (await opened.accounting.stored())["payer"].values()
        assert (one.records, one.bytes > 0) == (0, True)
        assert await opened.accounting.recount() == []
        await opened.commit([Delete(later, "system", "b")])
        assert "payer" not in await opened.accounting.stored()
        assert (await usage_of(opened, "t")).records == 1
