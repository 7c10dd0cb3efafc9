"""Retries, deadlines and cancellation: nothing is half done, doubled or said to be done when it may not be."""

import asyncio
from typing import Any

import pytest
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from app.errors import StoreUnavailable
from app.storage.changes import Allocate, Update
from app.storage.mongo.connection import KeyedLocks, MongoSession, Retry, TransactionRunner
from app.storage.mongo.store import MongoStore
from tests.storage.mongo.conftest import Open
from tests.support.declared import NUMBERED, THINGS, T, numbered, thing

pytestmark = pytest.mark.anyio


def unknown_outcome(fault: Any) -> Any:
    fault._add_error_label("UnknownTransactionCommitResult")
    return fault


async def test_what_others_interrupt_is_done_once(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two transient faults, both after the writes; the third attempt is the one that counts."""
    faults: list[PyMongoError] = [OperationFailure("conflict", 112), AutoReconnect("gone")]
    for fault in faults:
        fault._add_error_label("TransientTransactionError")
    real = store._client.start_session

    def start_session(*args: Any, **kwargs: Any) -> Any:
        session = real(*args, **kwargs)
        commit = session.commit_transaction

        async def interrupted() -> None:
            if faults:
                await session.abort_transaction()
                raise faults.pop()
            await commit()

        session.commit_transaction = interrupted  # type: ignore[method-assign]
        return session

    monkeypatch.setattr(store._client, "start_session", start_session)
    committed = await store.commit([Allocate("c", T), numbered(1), thing("one")])
    assert not faults
    assert committed.allocated == {"c": 1}
    assert (await store.count(NUMBERED, T), await store.count(THINGS, T)) == (1, 1)


async def test_a_commit_of_unknown_outcome_is_asked_again_and_never_doubled(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store._client.start_session

    def start_session(*args: Any, **kwargs: Any) -> Any:
        session = real(*args, **kwargs)
        commit, calls = session.commit_transaction, iter([True])

        async def committed_but_unheard() -> None:
            await commit()
            if next(calls, False):
                raise unknown_outcome(AutoReconnect("the reply was lost"))

        session.commit_transaction = committed_but_unheard  # type: ignore[method-assign]
        return session

    monkeypatch.setattr(store._client, "start_session", start_session)
    assert (await store.commit([Allocate("c", T), numbered(1)])).allocated == {"c": 1}
    assert await store.count(NUMBERED, T) == 1


async def test_a_commit_whose_outcome_stays_unknown_is_no_success(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(deadline_seconds=0.5)
    real = store._client.start_session

    def start_session(*args: Any, **kwargs: Any) -> Any:
        session = real(*args, **kwargs)

        async def unheard() -> None:
            await asyncio.sleep(0.2)
            raise unknown_outcome(AutoReconnect("the reply was lost"))

        session.commit_transaction = unheard  # type: ignore[method-assign]
        return session

    monkeypatch.setattr(store._client, "start_session", start_session)
    async with asyncio.timeout(60):  # otherwise it tries for ever
        with pytest.raises(StoreUnavailable):
            await store.commit([Allocate("c", T), numbered(1)])


async def test_one_who_is_cancelled_leaves_no_open_transaction_behind(store: MongoStore) -> None:
    await store.commit([thing("one", score=0)])
    for delay in range(30):
        task = asyncio.create_task(store.commit([Update(THINGS, T, "one", inc={"score": 1}), numbered(delay)]))
        await asyncio.sleep(delay / 2000)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled() or task.exception() is None
    await store.commit([Update(THINGS, T, "one", inc={"score": 1}), numbered(99)])
    assert (await store.get(THINGS, T, "one") or {})["score"] == await store.count(NUMBERED, T)


async def test_a_task_that_is_told_to_end_ends(store: MongoStore) -> None:
    """The driver may lose a cancellation; a background loop on the store must not."""

    async def forever() -> None:
        while True:
            await store.find(THINGS, T)
            await store.commit([Allocate("c", T)])

    for delay in range(40):
        task = asyncio.create_task(forever())
        await asyncio.sleep(0.002 + delay / 4000)
        task.cancel()
        done, _ = await asyncio.wait((task,), timeout=20)
        assert done


async def test_those_who_wait_for_their_turn_give_up_in_time(store: MongoStore) -> None:
    runner = TransactionRunner(store._database, 0.2)
    begun, held = asyncio.Event(), asyncio.Event()

    async def hold(session: MongoSession) -> None:
        begun.set()
        await held.wait()

    first = asyncio.create_task(runner.in_transaction(hold, {"key"}))
    await begun.wait()
    with pytest.raises(StoreUnavailable, match="busy"):
        await runner.in_transaction(hold, {"key"})
    held.set()
    await first


async def test_who_never_wins_is_told_that_others_change_the_same(store: MongoStore) -> None:
    attempts = 0

    async def lose(session: MongoSession) -> None:
        nonlocal attempts
        attempts += 1
        raise Retry

    with pytest.raises(StoreUnavailable, match="others keep changing the same records"):
        await TransactionRunner(store._database, 0.3).in_transaction(lose)
    assert attempts > 1


async def test_turns_are_taken_one_by_one_and_forgotten() -> None:
    turns, inside = KeyedLocks(), 0

    async def enter(*keys: str) -> None:
        nonlocal inside
        async with turns.of(keys):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(enter("a", "b") if i % 2 else enter("b", "a", "c") for i in range(50)))
    assert not turns._locks
