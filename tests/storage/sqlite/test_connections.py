"""What is quick is read in the event loop, what is long in a thread, whichever it turns out to be."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from app.storage.sqlite.connections import Faults, ReadPool
from app.storage.sqlite.store import EmbeddedStore
from tests.support.declared import ENTRIES, T, ask, entry

pytestmark = pytest.mark.anyio

COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT count(*) FROM n"


def counting(upto: int, seen: list[int]) -> Callable[[apsw.Connection], int]:
    def work(connection: apsw.Connection) -> int:
        seen.append(threading.get_ident())
        number: Any
        ((number,),) = connection.execute(COUNT, (upto,)).fetchall()
        return int(number)

    return work


async def test_what_turns_out_to_be_long_is_begun_anew_in_a_thread(store: EmbeddedStore, tmp_path: Path) -> None:
    readers, here = ReadPool(tmp_path / "recalld.db", 50, Faults()), threading.get_ident()
    try:
        for _ in range(3):  # each has all of its time again
            seen: list[int] = []
            assert await readers.bounded(counting(10, seen)) == 10
            assert seen == [here]
        seen = []
        assert await readers.bounded(counting(200_000, seen)) == 200_000
        assert len(seen) == 2
        assert seen[0] == here != seen[1]
        assert readers.inline.execute(COUNT, (200_000,)).fetchall() == [(200_000,)], "what has no bound is not ended"
    finally:
        readers.close()


async def test_many_long_documents_are_read_in_a_thread(store: EmbeddedStore) -> None:
    apart, seen = store._readers.apart, list[bool]()

    async def watched(work: Callable[[apsw.Connection], Any]) -> Any:
        seen.append(True)
        return await apart(work)

    await store.commit([entry("tea", f"e{number}", note="x" * 60_000) for number in range(60)])
    rows = (await store.search(ENTRIES, ask("tea"))).rows
    store._readers.apart = watched  # type: ignore[method-assign]
    for few in (rows[:1], rows[:3]):
        assert [one and len(one.doc["note"]) for one in await store.fetch(ENTRIES, T, few)] == [60_000] * len(few)
    assert len(await store.find(ENTRIES, T, limit=3)) == 3
    assert seen == []
    assert [one and len(one.doc["note"]) for one in await store.fetch(ENTRIES, T, rows)] == [60_000] * 60
    assert len(seen) == 1
    assert [len(doc["note"]) for doc in await store.find(ENTRIES, T, limit=60)] == [60_000] * 60
    assert [len(one.doc["note"]) for one in await store.find_fetched(ENTRIES, T, limit=60)] == [60_000] * 60
    assert len(seen) == 3


async def test_reads_that_follow_each_other_let_others_have_their_turn(store: EmbeddedStore, tmp_path: Path) -> None:
    readers, turns, hangs = ReadPool(tmp_path / "recalld.db", 50, Faults()), 0, time.monotonic() + 60

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.create_task(others())
    try:
        await asyncio.sleep(0)
        before = turns
        while turns - before < 5:
            await readers.bounded(lambda connection: connection.execute("SELECT 1").fetchall())
            assert time.monotonic() < hangs, "the reads keep the loop to themselves"
    finally:
        waiting.cancel()
        readers.close()
