"""Which job is taken next: one whose worker died, else of the tenant whose turn it is what was due first, of the lanes
that are asked for."""

from datetime import timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.clock import rfc3339
from app.jobs.queue import EMBEDDING_MODEL, JOBS, LANES, LANGUAGE_MODEL, ORDINARY, Job, Lane, Queue, lane_of
from app.storage.changes import DeleteWhere, Insert, Update
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Doc
from app.storage.scope import SYSTEM
from tests.conftest import Service, TurnedClock
from tests.jobs.conftest import put, taken
from tests.support.properties import on_a_store

pytestmark = pytest.mark.anyio

KINDS: dict[Lane, str] = {LANGUAGE_MODEL: "summarize", EMBEDDING_MODEL: "embed_pending", ORDINARY: "decay"}
STATES = ("queued", "lapsed", "leased", "failed")
ASKED = [lanes for size in range(len(LANES) + 1) for lanes in combinations(LANES, size)]
SCRIPTS = st.lists(st.tuples(st.sampled_from(LANES), st.sampled_from(STATES), st.integers(-3, 1)), max_size=12)


def stored(clock: TurnedClock, lane: Lane, state: str, due_in: int) -> Insert:
    change = Job(KINDS[lane], SYSTEM).enqueue(clock.now() + timedelta(minutes=due_in))
    leased_until = {
        "lapsed": rfc3339(clock.now() - timedelta(seconds=1)),
        "leased": rfc3339(clock.now() + timedelta(seconds=30)),
    }.get(state)
    status = {"lapsed": "running", "leased": "running"}.get(state, state)
    return Insert(JOBS, change.doc | {"status": status, "leased_until": leased_until})


@given(script=SCRIPTS, queued=st.sampled_from(ASKED), lapsed=st.sampled_from(ASKED))
@on_a_store()
async def test_a_lapsed_job_is_taken_before_queued_ones_and_else_what_was_due_first(
    store: Store, clock: TurnedClock, script: list[tuple[Lane, str, int]], queued: list[Lane], lapsed: list[Lane]
) -> None:
    await store.commit([DeleteWhere(JOBS, SYSTEM, EVERYTHING)])
    docs: list[Doc] = []
    wanted: list[tuple[bool, str, str]] = []
    for lane, state, due_in in script:
        change = stored(clock, lane, state, due_in)
        await store.commit([change])
        docs.append(change.doc)
        if (state == "queued" and due_in <= 0 and lane in queued) or (state == "lapsed" and lane in lapsed):
            wanted.append((state != "lapsed", change.doc["run_at"], change.doc["job_id"]))
    queue, got = Queue(store, clock), []
    while lease := await queue.take(queued, lapsed):
        got.append((lease.doc["run_at"], lease.doc["job_id"]))
    assert got == [(run_at, job_id) for _, run_at, job_id in sorted(wanted)]


@given(script=st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(0, 12)), max_size=16))
@on_a_store()
async def test_a_tenant_that_waits_is_not_passed_twice_by_another_and_has_its_jobs_in_their_order(
    store: Store, clock: TurnedClock, script: list[tuple[str, int]]
) -> None:
    await store.commit([DeleteWhere(JOBS, SYSTEM, EVERYTHING)])
    queue, waiting = Queue(store, clock), dict[str, list[str]]()
    passed: dict[str, list[str]] = {}  # by tenant: whose jobs were taken while it waited
    for taken_before in range(30):
        for number, (tenant, at) in enumerate(script):
            if at == taken_before:
                clock.move(seconds=0.001)
                change = Job("document", tenant, {"number": number}).enqueue(clock.now())
                await store.commit([change])
                waiting.setdefault(tenant, []).append(change.doc["job_id"])
        lease = await queue.take()
        assert (lease is not None) == bool(waiting)
        if lease is None:
            continue
        tenant = lease.job.tenant
        assert waiting[tenant].pop(0) == lease.doc["job_id"]
        for other in waiting.keys() - {tenant}:
            passed.setdefault(other, []).append(tenant)
            assert len(set(passed[other])) == len(passed[other])
        passed.pop(tenant, None)
        waiting = {each: jobs for each, jobs in waiting.items() if jobs}
    assert not waiting


@pytest.mark.parametrize("tenants", [("a", "b"), ("b", "a")])
async def test_a_hundred_documents_of_one_tenant_do_not_hold_up_one_of_another(
    store: Store, queue: Queue, clock: TurnedClock, tenants: tuple[str, str]
) -> None:
    many, one = tenants
    for _ in range(100):
        await put(store, clock, "document", many)
    assert (await taken(queue)).job.tenant == many
    clock.move(seconds=1)
    await put(store, clock, "document", one)
    assert [(await taken(queue)).job.tenant for _ in range(3)] == [one, many, many]


@pytest.mark.parametrize("lane", LANES)
async def test_a_lane_is_not_hidden_by_the_queue_of_another(store: Store, clock: TurnedClock, lane: Lane) -> None:
    for other in LANES:
        if other is not lane:
            for _ in range(20):
                await put(store, clock, KINDS[other])
    clock.move(seconds=1)
    await put(store, clock, KINDS[lane])
    lease = await Queue(store, clock).take([lane], [])
    assert lease is not None
    assert (lease.lane, lease.job.kind) == (lane, KINDS[lane])


async def test_a_job_that_was_put_off_has_its_new_place_when_its_lease_lapses(
    store: Store, queue: Queue, clock: TurnedClock
) -> None:
    await put(store, clock, "first")
    await (await taken(queue)).failed("later", [])
    await put(store, clock, "second")
    clock.move(minutes=1)
    assert [(await taken(queue)).job.kind for _ in range(2)] == ["second", "first"]
    clock.move(minutes=1)
    await put(store, clock, "third")
    assert [(await taken(queue)).job.kind for _ in range(3)] == ["second", "first", "third"]


async def test_of_two_who_lease_a_lapsed_job_one_has_it(store: Store, queue: Queue, clock: TurnedClock) -> None:
    await put(store, clock)
    lease = await taken(queue)
    expired = {"leased_until": rfc3339(clock.now())}
    await store.commit([Update(JOBS, SYSTEM, lease.doc["job_id"], set=expired)])
    clock.move(seconds=1)
    first = await queue.take([], [ORDINARY])
    assert first is not None
    assert await queue.take() is None


async def test_every_kind_that_the_service_runs_is_in_its_lane(service: Service) -> None:
    models = {
        LANGUAGE_MODEL: {"post_conversation", "summarize", "extract", "merge_fact", "consolidation", "retention"}
        | {"review_procedure", "reflection"},
        EMBEDDING_MODEL: {"embed_pending", "document"},
    }
    runner = service.resources.jobs
    lanes: dict[Lane, set[str]] = {}
    for kind in runner._handlers:
        lanes.setdefault(lane_of(kind), set()).add(kind)
    assert {lane: lanes[lane] for lane in models} == models
    assert {"decay", "expiry", "forget", "undo"} <= lanes[ORDINARY]
