"""The jobs by the clock: what has passed its time goes, and nothing else; old action logs become summaries."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.actions.schemas import ACTIONS
from app.core.clock import rfc3339
from app.jobs import queue
from app.jobs.queue import OPERATIONS, Job
from app.memories.repository import PENDING
from app.memories.schemas import MEMORIES, MemoryRecord
from app.settings import JobSettings, Settings
from app.storage.changes import Insert
from app.storage.protocol import Store
from app.storage.scope import SYSTEM, Scope
from tests.conftest import Service, Starter, TestParts, TurnedClock
from tests.support.memories import OWNER, Faulty, Json, found, history, remember
from tests.support.operations import forget, rows_of, run, work

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def by_clock(service: Service, *kinds: str) -> None:
    """As a tick would have it: for every tenant."""
    for kind in kinds:
        await service.resources.store.commit([Job(kind, SYSTEM).enqueue(service.clock.now())])
        assert await work(service) == 1


async def test_what_has_expired_goes_in_every_tenant_with_its_parts_and_nothing_else(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    keys = [await service.key(tenant, "read,write,admin") for tenant in ("one", "two")]
    soon = "2026-07-01T00:00:00Z"
    for headers in keys:
        for name, extra in (("stays", {}), ("goes", {"expires_at": soon})):
            memory = {**OWNER, "content": name, "key": name, **extra}
            assert (await api.post("/v1/memories", json=memory, headers=headers)).status_code == 201
            memory["content"] = f"{name}, as it was changed"
            assert (await api.post("/v1/memories", json=memory, headers=headers)).status_code == 200
            session = {"session_id": name, **OWNER, "memorize": "none", **extra}
            assert (await api.post("/v1/sessions", json=session, headers=headers)).status_code == 201
            said = {"messages": [{"role": "user", "content": "x"}]}
            path = f"/v1/sessions/{name}/messages"
            assert (await api.post(path, json=said, headers=headers)).status_code == 201
            task = {"task_id": name, **OWNER, "goal": "g", **extra}
            keyed = headers | {"Idempotency-Key": f"{name}"}
            assert (await api.post("/v1/tasks", json=task, headers=keyed)).status_code == 201
            await api.post(f"/v1/tasks/{name}/checkpoints", json={}, headers=headers)
    clock.move(days=60)
    fresh = keys[0] | {"Idempotency-Key": "fresh"}
    await api.post("/v1/memories", json={**OWNER, "content": "new", "key": "new"}, headers=fresh)
    await by_clock(service, "expiry")
    wanted = {
        "agent_memories": 3,
        "memory_history": 2,
        "conversation_sessions": 2,
        "messages": 2,
        "task_states": 2,
        "checkpoints": 2,
        "idempotency_keys": 1,
        "api_keys": 2,
    }
    left = {name: await rows_of(service, name) for name in wanted}
    assert {name: len(docs) for name, docs in left.items()} == wanted
    assert all("goes" not in str(doc) for docs in left.values() for doc in docs)
    for headers in keys:
        assert (await api.get("/v1/tasks/stays", headers=headers)).status_code == 200
    before = {name: await rows_of(service, name) for name in wanted}
    await by_clock(service, "expiry")
    assert {name: await rows_of(service, name) for name in wanted} == before


async def test_a_dispute_is_over_once_what_it_contradicts_is_swept(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    soon = "2026-07-01T00:00:00Z"
    one, two = [await remember(api, name, trust=0.9, expires_at=soon) for name in ("one", "two")]
    both = [one["memory_id"], two["memory_id"]]
    with_both = await remember(api, "three", key="number", trust=0.6, supersedes=both)
    await remember(api, "lives in Oslo", key="home", trust=0.9, expires_at=soon)
    with_home = await remember(api, "lives in Rome", key="home", trust=0.6)
    sure = await remember(api, "stays", key="drink", trust=0.9)
    stays = await remember(api, "coffee", key="drink", trust=0.6)
    clock.move(days=60)
    assert (await run(service, "expiry"))["memories"] == 3
    for disputed, key in ((with_both, "number"), (with_home, "home")):
        left = (await api.get(f"/v1/memories/{disputed['memory_id']}")).json()
        assert (left["status"], left["key"], left["contradicts"]) == ("active", key, [])
    assert (await api.get(f"/v1/memories/{stays['memory_id']}")).json()["contradicts"] == [sure["memory_id"]]


async def test_notes_of_feedback_go_after_two_days_and_the_counts_stay(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    made = await remember(api, "tea")
    said = {"items": [{"memory_id": made["memory_id"], "helpful": True}]}
    assert (await api.post("/v1/memories/feedback", json=said)).status_code == 200
    clock.move(days=1, hours=23)
    assert (await run(service, "expiry"))["feedback_notes"] == 0
    clock.move(hours=2)
    assert (await run(service, "expiry"))["feedback_notes"] == 1
    assert await rows_of(service, "memory_feedback") == []
    assert (await api.get(f"/v1/memories/{made['memory_id']}")).json()["helpful_count"] == 1


# --- Retention --------------------------------------------------------------------------------------------------------


async def log(api: httpx.AsyncClient, at: str, **fields: Any) -> str:
    body = {**OWNER, "event_type": "tool_call", "action_type": "mail", "content": "did it", "timestamp": at, **fields}
    made = await api.post("/v1/actions", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["action_id"])


async def summaries(store: Store) -> list[MemoryRecord]:
    docs = await store.find(MEMORIES, None, order="asc", limit=1_000)
    return sorted((doc for doc in docs if doc["memory_type"] == "summary"), key=lambda doc: str(doc["key"]))


async def test_old_actions_become_one_summary_a_day_of_each_agent_and_user(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    store = service.resources.store
    first = [await log(api, f"2026-04-01T{hour:02d}:30:00Z", outcome="success") for hour in (0, 12, 23)]
    first.append(await log(api, "2026-04-01T05:00:00Z", action_type="call", outcome="failure"))
    await log(api, "2026-04-02T00:00:00Z")
    await log(api, "2026-04-01T00:00:00Z", user_id=None)
    await log(api, "2026-04-01T00:00:00Z", agent_id="b")
    young = await log(api, rfc3339(clock.now() - timedelta(days=29)))
    assert (await run(service, "retention"))["rolled_up"] == 7
    assert [doc["action_id"] for doc in await store.find(ACTIONS, None)] == [young]
    made = await summaries(store)
    assert len(made) == 4
    (day,) = (doc for doc in made if (doc["agent_id"], doc["user_id"], doc["key"]) == ("a", "u", "actions:2026-04-01"))
    assert day["metadata"] == {"outcomes": {"failure": 1, "success": 3}, "types": {"call": 1, "mail": 3}}
    assert sorted(day["source"]["action_ids"]) == sorted(first)
    assert day["source"]["origin"] == "consolidation"
    assert await found(api, "how many actions on 2026-04-01?", include_shared=False, record_access=False)
    before = await summaries(store)
    assert (await run(service, "retention"))["rolled_up"] == 0
    assert await summaries(store) == before


async def test_late_actions_are_added_to_the_days_summary(service: Service, api: httpx.AsyncClient) -> None:
    store = service.resources.store
    early = await log(api, "2026-04-01T10:00:00Z", outcome="success")
    await run(service, "retention")
    late = await log(api, "2026-04-01T11:00:00Z", outcome="failure")
    await run(service, "retention")
    (day,) = await summaries(store)
    assert day["metadata"] == {"outcomes": {"failure": 1, "success": 1}, "types": {"mail": 2}}
    assert day["source"]["action_ids"] == [early, late]
    assert day["content"].startswith("On 2026-04-01: 2 actions")
    assert len(await history(api, day["memory_id"])) == 1
    assert await found(api, "2 actions on 2026-04-01", mode="text") == [day["content"]]


async def test_each_tenants_actions_stay_in_it(service: Service, api: httpx.AsyncClient) -> None:
    for tenant in ("one", "two"):
        body = {
            **OWNER,
            "event_type": "decision",
            "action_type": "t",
            "content": "c",
            "timestamp": "2026-04-01T00:00:00Z",
        }
        await api.post("/v1/actions", json=body, headers=await service.key(tenant))
    await by_clock(service, "retention")
    assert sorted(doc["tenant_id"] for doc in await summaries(service.resources.store)) == ["one", "two"]


async def test_summary_and_purge_are_one_commit(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = service.resources.store
    for day in (1, 2, 3):
        await log(api, f"2026-04-0{day}T10:00:00Z")
    commit, rolled = store.commit, 0

    async def breaking(changes: Any) -> Any:
        nonlocal rolled
        rolled += any(getattr(change, "collection", None) is ACTIONS for change in changes)
        if rolled == 2:
            rolled += 1
            raise RuntimeError
        return await commit(changes)

    monkeypatch.setattr(store, "commit", breaking)
    await store.commit([Job("retention", SYSTEM).enqueue(clock.now())])
    await work(service)
    assert len(await summaries(store)) == 1
    assert await store.count(ACTIONS, None) == 2
    clock.move(minutes=1)
    await work(service)
    made = await summaries(store)
    assert [doc["metadata"]["types"] for doc in made] == [{"mail": 1}] * 3
    assert await store.count(ACTIONS, None) == 0


@pytest.mark.parametrize("metadata", [{}, {"outcomes": {"success": 5}, "types": {"x": 5}}, {"outcomes": 3}])
async def test_a_callers_memory_of_the_same_name_stays_theirs(
    service: Service, api: httpx.AsyncClient, metadata: Json
) -> None:
    theirs = await remember(api, "mine", key="actions:2026-04-01", metadata=metadata)
    await log(api, "2026-04-01T10:00:00Z", outcome="success")
    assert (await run(service, "retention"))["rolled_up"] == 1
    got = (await api.get(f"/v1/memories/{theirs['memory_id']}")).json()
    assert (got["content"], got["metadata"], got["version"]) == ("mine", metadata, 1)
    (day,) = await summaries(service.resources.store)
    assert day["metadata"]["types"] == {"mail": 1}


async def test_summaries_are_kept_and_embedded_later_when_the_model_fails(
    start: Starter, settings: Settings, parts: TestParts
) -> None:
    faulty: list[Faulty] = []

    def wrap(embedder: Any) -> Faulty:
        faulty.append(Faulty(embedder))
        return faulty[-1]

    parts.wrap = wrap
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        await log(service.client, "2026-04-01T10:00:00Z")
        await run(service, "retention")
        await log(service.client, "2026-04-01T11:00:00Z")
        faulty[0].failing = True
        await run(service, "retention")
        (day,) = await summaries(service.resources.store)
        assert day["embedding"] is not None
        assert day["embedding"]["status"] == "pending"
        faulty[0].failing = False
        await by_clock(service, "embed_pending")
        (day,) = await summaries(service.resources.store)
        assert day["embedding"] is not None
        assert day["embedding"]["status"] == "ready"
        assert await service.resources.store.count(PENDING, SYSTEM) == 0


async def test_message_memories_unused_for_a_year_are_archived_then_purged(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    said = [{"role": "user", "content": text} for text in ("tea please", "my bicycle is red")]
    await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": said})
    await remember(api, "a fact")
    clock.move(days=200)
    await found(api, "bicycle", top_k=1, mode="text")
    await service.resources.accesses.flush()  # type: ignore[attr-defined]
    clock.move(days=164)
    assert (await run(service, "retention"))["archived"] == 0
    clock.move(days=2)
    assert (await run(service, "retention"))["archived"] == 1
    statuses = {doc["content"]: doc["status"] for doc in await rows_of(service, "agent_memories")}
    assert statuses == {"tea please": "archived", "my bicycle is red": "active", "a fact": "active"}
    clock.move(days=31)
    await by_clock(service, "expiry")
    assert {doc["content"] for doc in await rows_of(service, "agent_memories")} == {"my bicycle is red", "a fact"}
    assert len(await rows_of(service, "messages")) == 2, "short-term memory is another matter"


async def test_pinned_message_memories_stay_however_long_nobody_asks_for_them(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    said = [{"role": "user", "content": text} for text in ("tea please", "my bicycle is red")]
    await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": said})
    (bicycle,) = (doc for doc in await rows_of(service, "agent_memories") if "bicycle" in doc["content"])
    pinned = await api.patch(f"/v1/memories/{bicycle['memory_id']}", json={"pinned": True})
    assert pinned.status_code == 200, pinned.text
    clock.move(days=5_000)
    assert (await run(service, "retention"))["archived"] == 1
    statuses = {doc["content"]: doc["status"] for doc in await rows_of(service, "agent_memories")}
    assert statuses == {"tea please": "archived", "my bicycle is red": "active"}


# --- Operations and jobs that are over --------------------------------------------------------------------------------


async def test_operations_that_ended_and_jobs_that_failed_long_ago_are_deleted(
    service: Service, clock: TurnedClock
) -> None:
    store, born = service.resources.store, clock.now()
    waiting, _ = queue.new_operation(Scope("other"), "forget", born)
    ended = queue.new_operation(Scope("other"), "forget", born)[0] | {"status": "succeeded"}
    await store.commit([Insert(OPERATIONS, doc) for doc in (waiting, ended)])
    await forget(service)
    await store.commit([Job("unknown", SYSTEM).enqueue(born)])
    for _ in range(6):
        await work(service)
        clock.move(days=1)
    assert [doc["status"] for doc in await rows_of(service, "jobs")] == ["failed"]
    clock.move(days=24)
    young = await forget(service)
    await by_clock(service, "retention")
    assert len(await rows_of(service, "operations")) == 4, "a day longer than it can be undone"
    clock.move(days=7)
    await by_clock(service, "retention")
    left = {doc["operation_id"] for doc in await rows_of(service, "operations")}
    assert left == {waiting["operation_id"], young["operation_id"]}, "what is not over stays, however old"
    assert await rows_of(service, "jobs") == []
    clock.move(days=32)
    assert (await run(service, "retention"))["operations"] == 1
