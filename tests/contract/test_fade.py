"""`Store.apply(Fade)` is `retrieval/decay.py`, in every engine, and touches nothing else."""

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.core.clock import rfc3339, to_ms
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryRecord
from app.retrieval.decay import DecayCurve, importance
from app.storage.changes import Insert, Update
from app.storage.mongo import store as mongo_fade
from app.storage.protocol import DecayRule, Store
from app.storage.schema import EVERYTHING, And, Doc, Eq, In, Not, Or
from app.storage.scope import Partition
from app.storage.sqlite import store as embedded_fade
from tests.support.declared import OTHER, T, search_entry

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 6, 1, 12, 0, 0, 123000, tzinfo=UTC)
RULES = [
    DecayCurve(),
    DecayCurve(0.5, 0.0, 0.0),
    DecayCurve(1.0, 0.0, 0.3),
    DecayCurve(0.9, 7.5, 1.0),
    DecayCurve(1e-300, 1.0, 0.05),
]
STEPS = {"embedded": embedded_fade, "mongodb": mongo_fade}
ODD: Doc = {"$a.b": [1, 1.5, "ü", None, True], "": {"deep": [{"x": -0.0}]}, "big": 2**53, "tab\t": "\u2028\"'\\"}


def memory(seed: random.Random, tenant: str = T, **fields: Any) -> Insert:
    created = NOW - timedelta(milliseconds=seed.choice([0, 1, seed.randrange(10**8), seed.randrange(10**12)]))
    given = {
        "agent_id": seed.choice(["a", "b", None]),
        "user_id": "u",
        "memory_type": "fact",
        "content": f"memory {seed.random()}",
        "importance": seed.choice([0.0, 1.0, 0.05, seed.random()]),
        "pinned": seed.random() < 0.2,
        "metadata": ODD,
        **fields,
    }
    doc = new_memory(MEMORIES.as_record(given), {}, rfc3339(created), unique=False)
    return Insert(MEMORIES, {"tenant_id": tenant, **doc}, search_entry(doc["content"]))


async def everything(store: Store) -> dict[str, MemoryRecord]:
    return {doc["memory_id"]: doc for doc in await store.find(MEMORIES, None, limit=10_000)}


def rule(decay: DecayCurve, now: datetime = NOW) -> DecayRule:
    return DecayRule(rfc3339(now), float(decay.factor), float(decay.grace_days), float(decay.floor))


def expected(memory: MemoryRecord, decay: DecayCurve, now: datetime = NOW) -> float:
    return importance(memory["base_importance"], to_ms(memory["anchored_at"]), to_ms(now), memory["pinned"], decay)


@pytest.mark.parametrize("decay", RULES)
async def test_what_is_written_down_is_the_one_function(store: Store, decay: DecayCurve) -> None:
    seed = random.Random(repr(decay))
    await store.commit([memory(seed) for _ in range(300 if store.name == "embedded" else 100)])
    before = await everything(store)
    changed = await store.apply(MEMORIES, T, rule(decay))
    after = await everything(store)
    for memory_id, doc in after.items():
        assert doc["importance"] == pytest.approx(expected(doc, decay), rel=1e-9, abs=1e-12)
        old = before[memory_id]
        assert doc | {"importance": 0} == old | {"importance": 0}, "version, times and callers' data stay"
        assert doc["pinned"] <= (doc["importance"] == old["importance"])
    assert changed == sum(after[one]["importance"] != before[one]["importance"] for one in after)
    assert (changed > 0) is (decay.factor < 1 and decay.floor < 1)
    assert await store.apply(MEMORIES, T, rule(decay)) == 0, "the same moment again changes nothing"


@pytest.mark.parametrize("least", [0.0, 0.01])
async def test_whether_a_rule_would_change_anything_is_told_without_a_change(store: Store, least: float) -> None:
    seed, decay = random.Random(7), DecayCurve(0.5, 10.0, 0.05)
    made = [memory(seed, importance=0.8, pinned=at == 0) for at in range(5)]
    await store.commit(made)
    steep = replace(rule(decay, NOW + timedelta(days=400)), least=least)
    before = await everything(store)
    assert await store.would_change(MEMORIES, T, steep)
    assert await store.would_change(MEMORIES, None, steep)
    assert not await store.would_change(MEMORIES, OTHER, steep)
    pinned = Eq("memory_id", made[0].doc["memory_id"])
    assert not await store.would_change(MEMORIES, T, steep, pinned)
    assert await everything(store) == before
    assert await store.apply(MEMORIES, T, steep) == 4
    assert not await store.would_change(MEMORIES, T, steep)


async def test_an_anchor_in_the_future_fades_nothing(store: Store) -> None:
    await store.commit([memory(random.Random(1), importance=0.8, pinned=False)])
    await store.apply(MEMORIES, T, rule(DecayCurve(0.5, 0.0, 0.0), NOW - timedelta(days=40_000)))
    (doc,) = (await everything(store)).values()
    assert doc["importance"] == 0.8


async def test_only_what_matches_in_the_tenant_named_is_touched(store: Store) -> None:
    seed = random.Random(2)
    await store.commit([memory(seed, tenant, pinned=False) for tenant in (T, OTHER) for _ in range(50)])
    before = await everything(store)
    of_a = And((Eq("tenant_id", T), In("agent_id", ("a",))))
    steep = DecayCurve(0.1, 0.0, 0.0)
    await store.apply(MEMORIES, T, rule(steep), of_a)
    after = await everything(store)
    touched = {one for one in after if after[one] != before[one]}
    mine = {one for one, doc in before.items() if (doc["tenant_id"], doc["agent_id"]) == (T, "a")}
    assert touched <= mine
    assert touched
    await store.apply(MEMORIES, None, rule(steep), Not(Or((of_a, Eq("agent_id", "b")))))
    final = await everything(store)
    others = {one for one in final if final[one] != after[one]}
    assert others.isdisjoint(mine)
    assert {final[one]["tenant_id"] for one in others} == {T, OTHER}
    assert {final[one]["agent_id"] for one in others} == {"a", None}


async def test_what_has_moved_by_less_than_asked_is_not_written_and_lags_by_less_whatever_the_schedule(
    store: Store,
) -> None:
    seed, decay, least = random.Random(5), DecayCurve(0.5, 10.0, 0.05), 0.01
    await store.commit([memory(seed) for _ in range(60)])
    moments = sorted(NOW + timedelta(hours=seed.uniform(0, 4_000)) for _ in range(5))
    for moment in moments:
        before = await everything(store)
        changed = await store.apply(MEMORIES, None, replace(rule(decay, moment), least=least))
        after = await everything(store)
        lag = {one: abs(doc["importance"] - expected(doc, decay, moment)) for one, doc in before.items()}
        for one, doc in after.items():
            written = doc["importance"] != before[one]["importance"]
            assert written is (lag[one] >= least)
            assert doc["importance"] == (
                pytest.approx(expected(doc, decay, moment)) if written else before[one]["importance"]
            )
        assert changed == sum(value >= least for value in lag.values())


async def test_more_than_one_step_leaves_nobody_out_and_two_at_once_agree(
    store: Store, second_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STEPS[store.name], "ROWS", 100)
    seed = random.Random(3)
    await store.commit([memory(seed, pinned=False, importance=0.9, metadata={}) for _ in range(320)])
    steep = DecayCurve(0.5, 0.0, 0.0)
    await asyncio.gather(*(one.apply(MEMORIES, None, rule(steep)) for one in (store, second_store)))
    docs = list((await everything(store)).values())
    wrong = [doc for doc in docs if abs(doc["importance"] - expected(doc, steep)) > 1e-9]
    assert not wrong
    assert await store.apply(MEMORIES, None, rule(steep)) == 0


async def test_writes_after_a_fade_and_searches_see_the_document_whole(store: Store) -> None:
    made = memory(random.Random(4), pinned=False, importance=0.7)
    await store.commit([made])
    facts = await store.overview(MEMORIES, T, (Partition(made.doc["agent_id"], "u"),))
    await store.apply(MEMORIES, T, rule(DecayCurve(0.5, 0.0, 0.0)), EVERYTHING)
    expect = {"version": 1, "metadata": ODD, "base_importance": 0.7}
    await store.commit([Update(MEMORIES, T, made.doc["memory_id"], set={"context": "x"}, expect=expect)])
    assert await store.overview(MEMORIES, T, (Partition(made.doc["agent_id"], "u"),)) == facts
