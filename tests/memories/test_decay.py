"""The decay job: a pure function of anchors and now, whatever the schedule; access starts it anew (SPEC §8)."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from app.core.clock import parse_rfc3339, rfc3339, to_ms
from app.errors import StoreUnavailable
from app.memories.access_log import AT_ONCE, SAME_ANCHOR, TOGETHER, AccessRecorder
from app.memories.agents import AGENTS
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, MemoryRecord
from app.retention.service import DecayJob, histogram
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve, importance
from app.storage.changes import CommitConflict, IndexEntry, Insert, Update
from app.storage.protocol import Store
from app.storage.schema import value_at
from app.storage.text import index_text
from tests.support.stores import Open

pytestmark = pytest.mark.anyio

BORN = parse_rfc3339("2026-01-01T00:00:00.000Z")
OWN = DecayCurve(0.5, 1.0, 0.01)


class SetClock:
    def __init__(self) -> None:
        self.time: datetime = BORN

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def job(store: Store, clock: SetClock) -> DecayJob:
    return DecayJob(store, clock)


@pytest.fixture
def accesses(store: Store, clock: SetClock) -> AccessRecorder:
    return AccessRecorder(store, clock)


async def put(store: Store, memory_id: str, *, at: datetime = BORN, tenant: str = "acme", **fields: Any) -> None:
    given = {"agent_id": "a", "memory_type": "fact", "content": memory_id, "importance": 0.8, **fields}
    doc = new_memory(MEMORIES.as_record(given), {}, rfc3339(at), unique=False)
    doc |= {"tenant_id": tenant, "memory_id": memory_id}
    await store.commit([Insert(MEMORIES, doc, IndexEntry(index_text(memory_id), None, "m"))])


async def get(store: Store, memory_id: str = "m", tenant: str = "acme") -> MemoryRecord:
    doc = await store.get(MEMORIES, tenant, memory_id)
    assert doc is not None
    return doc


async def put_agent(store: Store, agent_id: str, decay: DecayCurve, tenant: str = "acme") -> None:
    settings = {"decay": {"factor": decay.factor, "grace_days": decay.grace_days, "floor": decay.floor}}
    doc = {"tenant_id": tenant, "agent_id": agent_id, "name": agent_id, "settings": settings, "version": 1}
    await store.commit([Insert(AGENTS, doc | {"created_at": rfc3339(BORN)})])


def at_days(base: float, idle: float, decay: DecayCurve = DEFAULT_DECAY, *, pinned: bool = False) -> float:
    now = BORN + timedelta(days=idle)
    return importance(base, to_ms(BORN), to_ms(now), pinned, decay)


# --- Any schedule -----------------------------------------------------------------------------------------------------


async def test_once_a_day_and_every_minute_give_the_same_numbers(store: Store, job: DecayJob, clock: SetClock) -> None:
    seed = random.Random(1)
    ages = {f"m{n}": (seed.random(), seed.uniform(25, 400)) for n in range(20)}
    start = BORN + timedelta(days=500)
    for name, (base, age) in ages.items():
        await put(store, name, importance=base, at=start - timedelta(days=age))
    clock.time = start
    await job.apply(None)
    for minute in range(0, 1440, 1 if store.name == "embedded" else 60):  # a server takes a tenth of a second for each
        clock.time = start + timedelta(minutes=minute + 1)
        await job.apply(None)
    often = {name: (await get(store, name))["importance"] for name in ages}
    for name, (base, age) in ages.items():
        once = importance(base, to_ms(start - timedelta(days=age)), to_ms(clock.time))
        assert often[name] == pytest.approx(once, abs=1e-9)
        await store.commit([Update(MEMORIES, "acme", name, set={"importance": base})])
    await job.apply(None)  # as if it had not run since
    assert {name: (await get(store, name))["importance"] for name in ages} == pytest.approx(often, abs=1e-9)


@pytest.mark.parametrize("number", range(8))
async def test_any_schedule_and_any_number_at_once_give_the_same_and_never_more(
    store: Store, job: DecayJob, clock: SetClock, number: int
) -> None:
    seed = random.Random(number)
    bases = {f"m{n}": seed.random() for n in range(10)}
    for name, base in bases.items():
        await put(store, name, importance=base)
    moments = sorted(seed.uniform(0, 2_000) for _ in range(12))
    last = bases
    for moment in moments:
        clock.time = BORN + timedelta(days=moment)
        await asyncio.gather(*(job.apply(seed.choice([None, "acme"])) for _ in range(seed.randint(1, 3))))
        values = {name: float((await get(store, name))["importance"]) for name in bases}
        assert all(values[name] <= last[name] + 1e-12 for name in bases), "never up without an access"
        assert all(values[name] >= min(bases[name], 0.1) - 1e-12 for name in bases)
        last = values
    wanted = {name: at_days(base, moments[-1]) for name, base in bases.items()}
    assert last == pytest.approx(wanted, abs=1e-9)


async def test_a_clock_that_goes_back_is_one_more_moment(store: Store, job: DecayJob, clock: SetClock) -> None:
    await put(store, "m")
    for idle in (400, 90, 400):
        clock.time = BORN + timedelta(days=idle)
        await job.apply(None)
        assert (await get(store))["importance"] == pytest.approx(at_days(0.8, idle), abs=1e-9)


async def test_pinned_never_fades(store: Store, job: DecayJob, clock: SetClock) -> None:
    await put(store, "m", pinned=True)
    clock.time = BORN + timedelta(days=3_000)
    assert await job.apply(None) == 0
    assert (await get(store))["importance"] == 0.8


async def test_decay_and_access_are_nothing_that_a_caller_asked_for(
    store: Store, job: DecayJob, accesses: AccessRecorder, clock: SetClock
) -> None:
    await put(store, "m")
    before = await get(store)
    clock.time = BORN + timedelta(days=100)
    await job.apply(None)
    accesses.note("acme", ["m"])
    await accesses.flush()
    after = await get(store)
    changing = ("importance", "base_importance", "anchored_at", "last_accessed", "access_count")
    assert {k: v for k, v in after.items() if k not in changing} == {
        k: v for k, v in before.items() if k not in changing
    }
    assert [name for name in changing if value_at(after, name) == value_at(before, name)] == []


# --- Agents' own settings ---------------------------------------------------------------------------------------------


async def test_agents_fade_by_their_own_settings_each_tenants_apart(
    store: Store, job: DecayJob, clock: SetClock
) -> None:
    await put_agent(store, "a", OWN)
    await put_agent(store, "plain", DEFAULT_DECAY)
    await put_agent(store, "b", OWN, "other")
    await put_agent(store, "c", DecayCurve(0.7, 3.0, 0.2), "other")
    wanted = {
        ("acme", "a"): OWN,
        ("acme", "plain"): DEFAULT_DECAY,
        ("acme", "b"): DEFAULT_DECAY,
        ("acme", None): DEFAULT_DECAY,
        ("other", "a"): DEFAULT_DECAY,
        ("other", "b"): OWN,
        ("other", "c"): DecayCurve(0.7, 3.0, 0.2),
        ("other", "unknown"): DEFAULT_DECAY,
    }
    for tenant, agent in wanted:
        await put(store, f"{tenant}-{agent}", tenant=tenant, agent_id=agent, user_id="u")
    clock.time = BORN + timedelta(days=75)
    assert await job.apply(None) == len(wanted)
    for (tenant, agent), decay in wanted.items():
        doc = await get(store, f"{tenant}-{agent}", tenant)
        assert doc["importance"] == pytest.approx(at_days(0.8, 75, decay), abs=1e-9), (tenant, agent)
    assert await job.apply("acme") == await job.apply("other") == 0


async def test_very_many_agents_with_settings_of_their_own(store: Store, job: DecayJob, clock: SetClock) -> None:
    many = 1_500 if store.name == "embedded" else 300
    agents = [(f"a{n}", DecayCurve(0.5 + n / 10_000, 1.0, 0.0), f"tenant-{n % 1_200}") for n in range(many)]
    await asyncio.gather(*(put_agent(store, *agent) for agent in agents))
    await put(store, "m", agent_id="a7", tenant="tenant-7")
    await put(store, "n", agent_id="a8", tenant="tenant-7")
    clock.time = BORN + timedelta(days=61)
    await job.apply(None)
    own, plain = await get(store, "m", "tenant-7"), await get(store, "n", "tenant-7")
    assert own["importance"] == pytest.approx(at_days(0.8, 61, DecayCurve(0.5007, 1.0, 0.0)), abs=1e-9)
    assert plain["importance"] == pytest.approx(at_days(0.8, 61), abs=1e-9)


async def test_the_dry_run_shows_before_and_after_by_each_agents_settings_and_changes_nothing(
    store: Store, job: DecayJob, clock: SetClock
) -> None:
    await put_agent(store, "a", OWN)
    await put(store, "own")
    await put(store, "plain", agent_id="b")
    await put(store, "pinned", pinned=True, importance=1.0)
    await put(store, "elsewhere", tenant="other")
    clock.time = BORN + timedelta(days=75)
    seen: list[int] = []
    shown = await job.dry_run("acme", seen.append)
    before, after = [0] * 10, [0] * 10
    before[8], before[9] = 2, 1
    for value in (at_days(0.8, 75, OWN), at_days(0.8, 75), 1.0):
        after[min(int(value * 10), 9)] += 1
    assert shown == {"memories": 3, "before": before, "after": after}
    assert seen[-1] == 3
    assert (await get(store, "own"))["importance"] == 0.8
    assert (await job.dry_run(None))["memories"] == 4
    assert len(histogram(after)) == len(after)


# --- Access -----------------------------------------------------------------------------------------------------------


async def test_an_access_makes_the_value_of_its_moment_the_new_base(
    store: Store, job: DecayJob, accesses: AccessRecorder, clock: SetClock
) -> None:
    await put_agent(store, "a", OWN)
    await put(store, "m")
    clock.time = BORN + timedelta(days=40)
    for _ in range(3):
        accesses.note("acme", ["m"])
    await accesses.flush()
    doc, value = await get(store), at_days(0.8, 40, OWN)
    assert (doc["access_count"], doc["last_accessed"], doc["anchored_at"]) == (
        3,
        rfc3339(clock.time),
        rfc3339(clock.time),
    )
    assert doc["base_importance"] == doc["importance"] == pytest.approx(value, abs=1e-12)
    clock.time += timedelta(days=1)
    await job.apply(None)
    assert (await get(store))["importance"] == pytest.approx(value, abs=1e-12), "the grace time begins anew"


@pytest.mark.parametrize("number", range(12))
async def test_access_and_decay_in_any_order_give_the_same(
    store: Store, job: DecayJob, accesses: AccessRecorder, clock: SetClock, number: int
) -> None:
    """Whatever runs between, in whatever order the two are written at one moment."""
    seed = random.Random(number)
    await put(store, "m")
    base, anchor = 0.8, BORN
    for _ in range(8):
        clock.time += timedelta(days=seed.choice((seed.uniform(0, 90), seed.uniform(0, 0.1))))
        steps: list[Callable[[], Coroutine[Any, Any, Any]]] = [partial(job.apply, None)] * seed.randint(0, 2)
        if seed.random() < 0.5:
            accesses.note("acme", ["m"])
            steps.append(accesses.flush)
            if clock.time - anchor >= SAME_ANCHOR:
                base, anchor = importance(base, to_ms(anchor), to_ms(clock.time)), clock.time
        seed.shuffle(steps)
        if seed.random() < 0.5:
            await asyncio.gather(*(step() for step in steps))
        else:
            for step in steps:
                await step()
    await job.apply(None)
    doc = await get(store)
    assert doc["importance"] == pytest.approx(importance(base, to_ms(anchor), to_ms(clock.time)), abs=1e-9)
    assert doc["base_importance"] == pytest.approx(base, abs=1e-9)


async def test_an_access_soon_after_another_counts_and_leaves_the_anchor(
    store: Store, accesses: AccessRecorder, clock: SetClock
) -> None:
    await put(store, "m")
    clock.time = BORN + timedelta(days=40)
    first = clock.time

    async def access() -> tuple[int, str, str | None]:
        accesses.note("acme", ["m"])
        await accesses.flush()
        doc = await get(store)
        return doc["access_count"], doc["anchored_at"], doc["last_accessed"]

    assert await access() == (1, rfc3339(first), rfc3339(first))
    clock.time = first + SAME_ANCHOR - timedelta(milliseconds=1)
    assert await access() == (2, rfc3339(first), rfc3339(clock.time))
    clock.time = first + SAME_ANCHOR
    assert await access() == (3, rfc3339(clock.time), rfc3339(clock.time))


async def test_a_flush_writes_first_what_has_waited_longest(store: Store, accesses: AccessRecorder) -> None:
    ids = ["m1", "m2", "m3"]
    for memory_id in ids:
        await put(store, memory_id)
    counts = []
    accesses.note("acme", ids)
    accesses.note("acme", ["m2"])
    for _ in range(3):
        await accesses.flush(1)
        counts.append([(await get(store, memory_id))["access_count"] for memory_id in ids])
        accesses.note("acme", ["m1"])
    assert counts == [[1, 0, 0], [1, 2, 0], [1, 2, 1]]
    await accesses.flush(1)
    assert (await get(store, "m1"))["access_count"] == 4, "what is accessed again and again waits for the others"


async def test_many_accesses_are_written_in_several_flushes(
    store: Store, accesses: AccessRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"m{number}" for number in range(AT_ONCE + 1)]
    for memory_id in ids:
        await put(store, memory_id)
    accesses.note("acme", ids)
    commit, sizes, made = store.commit, list[int](), asyncio.Event()

    async def watched(changes: Any) -> Any:
        sizes.append(len(changes))
        if sum(sizes) == len(ids):
            made.set()
        return await commit(changes)

    monkeypatch.setattr(store, "commit", watched)
    task = asyncio.create_task(accesses.run())
    await asyncio.wait_for(made.wait(), 20)
    task.cancel()
    await asyncio.wait([task])
    await accesses.flush()
    assert sizes == [AT_ONCE, 1]
    assert [(await get(store, memory_id))["access_count"] for memory_id in ids] == [1] * len(ids)


async def test_many_recorders_count_every_access(open_store: Open, clock: SetClock) -> None:
    stores = [await open_store() for _ in range(4)]
    await put(stores[0], "m")
    clock.time = BORN + timedelta(days=50)
    recorders = [AccessRecorder(store, clock) for store in stores]
    for _ in range(10):
        for recorder in recorders:
            recorder.note("acme", ["m"])
        await asyncio.gather(*(recorder.flush() for recorder in recorders), DecayJob(stores[0], clock).apply(None))
        clock.time += timedelta(milliseconds=5)
    for recorder in recorders:
        await recorder.flush()
    doc = await get(stores[0])
    assert doc["access_count"] == 40
    assert doc["importance"] == pytest.approx(at_days(0.8, 50), abs=1e-6)


async def test_accesses_that_lose_every_race_are_written_the_next_time(
    store: Store, accesses: AccessRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "m")
    accesses.note("acme", ["m"])
    commit = store.commit

    async def lost(_: Any) -> Any:
        raise CommitConflict(MEMORIES.name, "m", "expect")

    monkeypatch.setattr(store, "commit", lost)
    await accesses.flush()
    monkeypatch.setattr(store, "commit", commit)
    accesses.note("acme", ["m"])
    await accesses.flush()
    assert (await get(store))["access_count"] == 2


async def test_accesses_wait_for_a_store_that_is_away(
    store: Store, accesses: AccessRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "m")
    accesses.note("acme", ["m", "gone"])
    commit = store.commit

    async def away(_: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store, "commit", away)
    await accesses.flush()
    monkeypatch.setattr(store, "commit", commit)
    await accesses.flush()
    await accesses.flush()
    assert (await get(store))["access_count"] == 1


async def test_a_store_that_is_away_is_asked_once_a_flush(
    store: Store, accesses: AccessRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"m{number}" for number in range(TOGETHER + 1)]
    for memory_id in ids:
        await put(store, memory_id)
    accesses.note("acme", ids)
    commit, asked = store.commit, []

    async def away(changes: Any) -> Any:
        asked.append(changes)
        raise StoreUnavailable("away")

    monkeypatch.setattr(store, "commit", away)
    await accesses.flush()
    assert len(asked) == 1, "each waits for as long as the store may take to answer"
    monkeypatch.setattr(store, "commit", commit)
    await accesses.flush()
    assert [(await get(store, memory_id))["access_count"] for memory_id in ids] == [1] * len(ids)


async def test_a_stop_in_the_middle_of_a_flush_loses_nothing(
    store: Store, accesses: AccessRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, "m")
    accesses.note("acme", ["m"])
    commit, reached = store.commit, asyncio.Event()

    async def slow(changes: Any) -> Any:
        reached.set()
        await asyncio.sleep(0.02)
        return await commit(changes)

    monkeypatch.setattr(store, "commit", slow)
    task = asyncio.create_task(accesses.run())
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    await accesses.flush()  # as the service does when it ends
    assert (await get(store))["access_count"] == 1


async def test_an_access_that_comes_late_moves_nothing_back(
    store: Store, accesses: AccessRecorder, clock: SetClock
) -> None:
    await put(store, "m")
    late = AccessRecorder(store, clock)
    clock.time = BORN + timedelta(days=40)
    late.note("acme", ["m"])
    clock.time = BORN + timedelta(days=41)
    accesses.note("acme", ["m"])
    await accesses.flush()
    before = await get(store)
    await late.flush()
    assert await get(store) == before | {"access_count": 2}
