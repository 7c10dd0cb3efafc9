import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import StoreUnavailable
from app.memories.schemas import MEMORIES
from app.storage.changes import CommitConflict
from app.storage.schema import EVERYTHING, Absent, And, Eq, Filter, Has, Not, Range, Unique
from app.storage.sqlite import sql
from app.storage.sqlite.sql import LAYOUT, REFILLED_AT_ONCE
from app.storage.sqlite.store import EmbeddedOptions, EmbeddedStore
from tests.storage.sqlite.conftest import COLLECTIONS, Open
from tests.support.declared import DIM, ENTRIES, THINGS, T, ask, at, entry, thing

pytestmark = pytest.mark.anyio
Raw = Callable[..., list[Any]]

WIDER = replace(
    THINGS,
    fields={**THINGS.fields, "color": "text", "marks": "list", "origin.city": "text"},
    indexes=(*THINGS.indexes, ("color",)),
    unique=(*THINGS.unique, Unique("color", ("color",), Not(Absent("color")))),
)


async def test_a_newly_declared_field_and_index_are_filled_from_the_documents(
    store: EmbeddedStore, open_store: Open
) -> None:
    await store.commit([thing("red", color="red", marks=["m"], origin={"city": "Rome"}), thing("none")])
    await store.close()
    wider = await open_store(collections=(WIDER,))
    for where in (Eq("color", "red"), Has("marks", "m"), Eq("origin.city", "Rome")):
        assert [doc["thing_id"] for doc in await wider.find(WIDER, T, where)] == ["red"]
    with pytest.raises(CommitConflict) as caught:
        await wider.commit([replace(thing(color="red"), collection=WIDER)])
    assert caught.value.reason == "color"
    assert all(finding.ok for finding in await wider.check(deep=True))


async def test_every_document_of_a_large_collection_is_filled(store: EmbeddedStore, open_store: Open) -> None:
    """They are read in steps."""
    many = 2 * REFILLED_AT_ONCE + 1
    await store.commit([thing(f"t{number:05}", marks=[f"m{number}"]) for number in range(many)])
    await store.close()
    wider = await open_store(collections=(WIDER,))
    assert await wider.count(WIDER, T, Absent("marks")) == 0
    for number in (0, REFILLED_AT_ONCE - 1, REFILLED_AT_ONCE, many - 1):
        (doc,) = await wider.find(WIDER, T, Has("marks", f"m{number}"))
        assert doc["thing_id"] == f"t{number:05}"


async def test_an_older_process_goes_on_beside_a_newer_schema(store: EmbeddedStore, open_store: Open) -> None:
    await open_store(collections=(WIDER,))
    await store.commit([thing("one", name="n")])
    assert await store.count(THINGS, T, Eq("name", "n")) == 1


async def test_a_newer_layout_is_refused_untouched(store: EmbeddedStore, open_store: Open, raw: Raw) -> None:
    raw(f"PRAGMA user_version = {LAYOUT + 1}")
    with pytest.raises(StoreUnavailable, match=f"newer version: .*layout {LAYOUT + 1}"):
        await open_store()
    assert raw("PRAGMA user_version") == [(LAYOUT + 1,)]


async def test_processes_that_start_at_once_make_one_schema(tmp_path: Path) -> None:
    patient = EmbeddedOptions(busy_timeout_ms=10_000)
    opened = await asyncio.gather(
        *(EmbeddedStore.open(tmp_path / "new", COLLECTIONS, patient, dim=DIM) for _ in range(4))
    )
    await asyncio.gather(*(store.commit([thing()]) for store in opened))
    assert await opened[0].count(THINGS, T) == 4
    for store in opened:
        await store.close()


async def test_the_database_is_durable_by_its_settings(store: EmbeddedStore) -> None:
    connection = store.writer._connection
    assert connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    assert connection.execute("PRAGMA synchronous").fetchall() == [(2,)]
    assert connection.execute("PRAGMA page_size").fetchall() == [(8192,)]


async def test_lists_and_ids_are_found_by_an_index(store: EmbeddedStore, raw: Raw) -> None:
    for condition in ("id = 'x'", '"group" = 1 ORDER BY created_at DESC, id DESC', "1 ORDER BY created_at, id"):
        ((*_, plan),) = raw(f"EXPLAIN QUERY PLAN SELECT doc FROM things WHERE tenant = 't' AND {condition}")
        assert "USING INDEX things_" in plan


async def test_counts_of_covered_fields_read_no_document(store: EmbeddedStore, raw: Raw) -> None:
    for read in ("SELECT state, count(*) FROM things WHERE tenant = 't' GROUP BY 1", "SELECT count(*) FROM things"):
        plan = " ".join(str(row[3]) for row in raw(f"EXPLAIN QUERY PLAN {read}"))
        assert "USING COVERING INDEX" in plan


async def test_the_cache_of_scopes_is_bounded_in_bytes(open_store: Open) -> None:
    store = await open_store(cache_bytes=200_000)
    partitions = [ask().partitions[0]._replace(user=f"u{i}") for i in range(40)]
    for partition in partitions:
        await store.commit([entry("tea and roses", partition=partition) for _ in range(50)])
    for partition in [*partitions, *partitions]:
        found = await store.search(ENTRIES, ask("tea", partitions=[partition]))
        assert len(found.rows) == 50
        assert store._cache.nbytes <= 200_000
    assert 1 < len(store._cache._held) < 40
    everything = await store.search(ENTRIES, ask("tea", partitions=partitions))
    assert len(everything.rows) == 2_000


async def test_a_scope_larger_than_the_cache_is_searched_all_the_same(open_store: Open) -> None:
    store = await open_store(cache_bytes=1)
    others = [ask().partitions[0]._replace(user=f"u{i}") for i in range(3)]
    for partition in others:
        await store.commit([entry("tea", partition=partition) for _ in range(2_500)])
    searches = [store.search(ENTRIES, ask("tea", partitions=[partition])) for partition in others for _ in range(2)]
    async with asyncio.timeout(90):
        assert [len(found.rows) for found in await asyncio.gather(*searches)] == [2_500] * 6


@pytest.mark.parametrize("tenant", [None, "acme"])
@pytest.mark.parametrize(
    ("where", "index"),
    [
        (EVERYTHING, "by_created_at"),
        (Range("expires_at", le=at(9)), "everywhere_expires_at"),
        (And((Eq("status", "archived"), Range("archived_at", le=at(9)))), "everywhere_archived_at"),
    ],
)
async def test_what_jobs_ask_is_answered_by_an_index(
    open_store: Open, raw: Raw, where: Filter, index: str, tenant: str | None
) -> None:
    await open_store(collections=(MEMORIES,))
    condition, values = sql.selection(MEMORIES, tenant, where)
    order = sql.order_of(MEMORIES, where)
    statement = f'SELECT doc FROM "agent_memories" WHERE {condition} ORDER BY {order}, id LIMIT 100'
    plan = " ".join(str(row[3]) for row in raw(f"EXPLAIN QUERY PLAN {statement}", *values))
    index = index.replace("by_", "everywhere_") if tenant is None else index
    assert f"USING INDEX agent_memories_{index}" in plan
    assert ("TEMP B-TREE" in plan) is (where != EVERYTHING)
