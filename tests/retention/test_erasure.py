"""An erasure goes on after a crash anywhere, and says that it is done only when it is."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.audit.tombstones import Tombstones
from app.audit.trail import AUDIT, ERASED, Actor
from app.errors import StoreUnavailable
from app.jobs.queue import JOBS, MAX_ATTEMPTS, OPERATIONS, JobRecord, OperationRecord
from app.lifespan import COLLECTIONS, job_runner
from app.memories.agents import AGENTS
from app.memories.schemas import MEMORIES
from app.retention.erasure import ERASURE_NOTES, Erasure
from app.settings import JobSettings, Settings
from app.storage.changes import Update
from app.storage.protocol import Store
from app.storage.schema import EVERYTHING, Eq
from app.storage.scope import SYSTEM, Scope
from tests.conftest import Service, Starter, TestParts, wrapped_stores
from tests.jobs.conftest import until
from tests.support.lives import bytes_with
from tests.support.memories import Json, problem, remember
from tests.support.stores import Wrapped

pytestmark = pytest.mark.anyio


class Crash(Exception):
    """The process is gone: nothing of it reaches the store any more."""


class Faulty(Wrapped):
    """A store that a test stops: after so many writing calls, or before a call that waits for `gates`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.left: int | None = None
        self.steps = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.away: list[str] = []

    def hold(self, name: str) -> asyncio.Event:
        """The next calls of that name wait. Returns an event that is set when the first one does."""
        self.gates[name], self.reached[name] = asyncio.Event(), asyncio.Event()
        return self.reached[name]

    def let_go(self, name: str) -> None:
        self.gates.pop(name).set()

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in ("get", "find", "count", "search", "commit", "purge", "scrub"):
            return found

        async def call(*given: Any, **named: Any) -> Any:
            if self.left is not None and self.left <= 0:
                raise Crash
            if name in self.gates:
                self.reached[name].set()
                await self.gates[name].wait()
            if name in self.away:
                self.away.remove(name)
                raise StoreUnavailable("taken away by a test")
            result = await found(*given, **named)
            if name in ("commit", "purge", "scrub"):
                self.steps += 1
                if self.left is not None:
                    self.left -= 1
                    if self.left <= 0:
                        raise Crash
            return result

        return call


@pytest.fixture
def faulty(parts: TestParts) -> list[Faulty]:
    return wrapped_stores(parts, Faulty)


@pytest.fixture
async def service(faulty: list[Faulty], start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


@pytest.fixture
def store(service: Service, faulty: list[Faulty]) -> Faulty:
    return faulty[-1]


async def lived(service: Service, user: str) -> list[str]:
    """A little of everything that an erasure treats in a way of its own. Returns ids of what was derived."""
    api, about = service.client, {"agent_id": "a", "user_id": user}
    said = {**about, "messages": [{"role": "user", "content": f"I am {user}"}]}
    for session in (f"chat-{user}", f"left-{user}"):
        assert (await api.post(f"/v1/sessions/{session}/messages", json=said)).status_code == 201
    assert (await api.delete(f"/v1/sessions/left-{user}")).status_code == 204
    key = {"Idempotency-Key": f"key of {user}"}
    made = (await api.post("/v1/memories", json={**about, "content": f"{user} drinks tea"}, headers=key)).json()
    task = {"task_id": f"task-{user}", **about, "goal": f"for {user}"}
    assert (await api.post("/v1/tasks", json=task)).status_code == 201
    assert (await api.post(f"/v1/tasks/task-{user}/checkpoints", json={})).status_code == 201
    policy = {**about, "policy": {"older_than_days": 0}, "dry_run": False}
    assert (await api.post("/v1/memories/forget", json=policy)).status_code == 202
    shared = await remember(api, f"what {user} taught", user_id=None)
    learned = shared["source"] | {"origin": "consolidation", "memory_ids": [made["memory_id"]]}
    agent = await service.resources.store.get(AGENTS, "default", "a")
    assert agent is not None
    lesson = {"text": f"of {user}", "source": {"session_id": f"chat-{user}"}}
    experience = agent["experience"] | {"heuristics": [*agent["experience"]["heuristics"], lesson]}
    jobs = [doc for doc in await service.resources.store.find(JOBS, SYSTEM) if doc["kind"] == "forget"]
    changes = [
        *(Update(JOBS, SYSTEM, job["job_id"], set={"run_at": "2100-01-01T00:00:00.000Z"}) for job in jobs),
        Update(MEMORIES, "default", shared["memory_id"], set={"source": learned}),
        Update(AGENTS, "default", "a", set={"experience": experience}),
    ]
    await service.resources.store.commit(list(changes))
    return [shared["memory_id"]]


async def work(service: Service) -> None:
    """A worker's next turns, after every lease of the one before has lapsed."""
    held = service.resources
    service.clock.move(seconds=31)
    runner = job_runner(held.settings, held.store, held.embedder, held.clock, held.llm)
    while await runner.step():
        service.clock.move(hours=1)


async def stored(service: Service, text: str) -> list[Json]:
    found = []
    for collection in COLLECTIONS:
        docs = await service.resources.store.find(collection, None, EVERYTHING, limit=10_000)
        found += [doc for doc in docs if text in json.dumps(doc)]
    return found


async def erasures(service: Service) -> list[OperationRecord]:
    return await service.resources.store.find(OPERATIONS, "default", Eq("kind", "erase_user"))


async def registered(service: Service) -> None:
    assert (await service.client.post("/v1/agents", json={"agent_id": "a", "name": "a"})).status_code == 201


async def test_a_crash_anywhere_ends_as_if_there_had_been_none(
    service: Service, store: Faulty, settings: Settings
) -> None:
    await registered(service)
    await lived(service, "first")
    steps = store.steps
    without_fault = (await service.client.delete("/v1/users/first")).json()
    steps = store.steps - steps
    assert steps > 15
    assert without_fault["erased"]["lessons"] == without_fault["erased"]["derived_agent_memories"] == 1
    for after in range(1, steps + 1):
        user = f"canary{after}z"
        (derived,) = await lived(service, user)
        store.left = after
        answer = await service.client.delete(f"/v1/users/{user}")
        store.left = None
        if answer.status_code == 200:
            assert after >= steps - 1, "the operation is told as succeeded with the last commit"
        await work(service)
        operation = (await erasures(service))[0]
        assert operation["status"] == "succeeded", after
        assert operation["result"] is not None
        assert operation["user_id"] is not None
        assert operation["result"]["erased"] == without_fault["erased"], after
        tombstone = await store.get(ERASED, "default", operation["user_id"])
        assert (tombstone["status"], tombstone["erased_at"]) == ("erased", operation["result"]["erased_at"])
        entries = await store.find(AUDIT, "default", Eq("user_hash", operation["user_id"]))
        ends = [entry["changes"]["users"] for entry in entries if entry["action"] == "erase_user"]
        assert ends == [{"erase": 1}, {"erase_begun": 1}]
        assert await store.get(MEMORIES, "default", derived) is None
        assert await stored(service, user) == []
        assert await store.find(ERASURE_NOTES, None) == await store.find(JOBS, SYSTEM) == []
        names = {counter.name for counter in await store.counters()}
        assert {f"messages:chat-{user}", f"messages:left-{user}", f"checkpoints:task-{user}"} & names == set()
        if settings.store.get_secret_value() == "embedded":
            assert bytes_with(settings.data_dir, user) == {}, after


async def test_nothing_is_said_to_be_erased_before_it_is(service: Service, store: Faulty) -> None:
    await registered(service)
    await lived(service, "ursula")
    admin, unbound = await service.key(verbs="admin"), await service.key()
    ada, bob = await service.key(users=["ursula"]), await service.key(users=["bob"])
    held, reached = service.resources, store.hold("purge")
    erasure = Erasure(
        held.store, Scope("default"), held.clock, Tombstones.of(held.store, held.settings, "default"), held.jobs
    )
    erased = await erasure.erase("ursula", Actor("default", "k", "erase_user"), seconds=0)
    await reached.wait()
    assert dict(erased)["status"] in ("queued", "running")
    assert "ursula" not in json.dumps(erased)
    (operation,) = await erasures(service)
    tombstone = await store.get(ERASED, "default", operation["user_id"])
    assert (tombstone["status"], tombstone["erased_at"]) == ("begun", None)
    assert await Tombstones.of(held.store, held.settings, "default").erased_since("ursula", "9999")

    async def trail() -> list[Json]:
        found = await service.client.get("/v1/audit", params={"user_id": "ursula", "limit": 100}, headers=admin)
        return [entry["changes"]["users"] for entry in found.json()["items"] if entry["action"] == "erase_user"]

    assert await trail() == [{"erase_begun": 1}]
    path = f"/v1/operations/{operation['operation_id']}"
    for headers, status in ((unbound, 200), (ada, 200), (bob, 404)):
        assert (await service.client.get(path, headers=headers)).status_code == status
    listed = (await service.client.get("/v1/operations", headers=bob)).json()["items"]
    assert operation["operation_id"] not in [one["operation_id"] for one in listed]
    store.let_go("purge")

    async def ended() -> bool:
        return bool((await erasures(service))[0]["status"] == "succeeded")

    await until(ended)
    receipt = (await service.client.get(path, headers=ada)).json()["result"]
    assert await trail() == [{"erase": 1}, {"erase_begun": 1}]
    assert "user_id" not in receipt
    assert receipt["verification"] == {"records_found": 0, "search_found": 0}


async def test_202_until_the_last_byte_is_gone(service: Service, store: Faulty) -> None:
    await remember(service.client, "tea", user_id="ursula")
    store.away.append("scrub")
    answer = await service.client.delete("/v1/users/ursula")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert (told["kind"], told["status"]) == ("erase_user", "running")
    assert await stored(service, "ursula") == [], "records and the job's payload are gone before"
    await work(service)
    ended = (await service.client.get(f"/v1/operations/{told['operation_id']}")).json()
    assert (ended["status"], ended["result"]["erased"]["agent_memories"]) == ("succeeded", 1)


@pytest.mark.parametrize("held_at", ["purge", "search"])
async def test_asking_again_joins_what_is_under_way_and_sees_to_what_was_written_before(
    service: Service, store: Faulty, held_at: str
) -> None:
    """Held at `search`, the records were counted already: what is written then is found because of the second call."""
    api = service.client
    await remember(api, "tea", user_id="ursula")
    reached = store.hold(held_at)
    first = asyncio.create_task(api.delete("/v1/users/ursula"))
    await reached.wait()
    await api.put("/v1/users/ursula/profile", json={"name": "Ada"})  # a record that no search finds
    times = await _times(store)
    second = asyncio.create_task(api.delete("/v1/users/ursula"))

    async def joined() -> bool:
        return await _times(store) != times

    await until(joined)
    store.let_go(held_at)
    answers = await asyncio.gather(first, second)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["erased"]["users"] == 1
    assert len(await erasures(service)) == 1
    assert (await api.get("/v1/users/ursula/profile")).status_code == 404
    assert (await api.delete("/v1/users/ursula")).json()["tombstone"] == answers[0].json()["tombstone"]
    assert len(await erasures(service)) == 2, "what has ended is not joined"


async def _times(store: Faulty) -> list[int]:
    return [doc["times"] for doc in await store.find(ERASED, "default") if "times" in doc]


async def test_what_failed_for_good_is_begun_anew(service: Service, store: Faulty) -> None:
    await remember(service.client, "tea", user_id="ursula")
    store.hold("purge")
    erasing = asyncio.create_task(service.client.delete("/v1/users/ursula"))
    await store.reached["purge"].wait()
    (job,) = await store.find(JOBS, SYSTEM)
    store.left = 0
    store.let_go("purge")
    assert (await erasing).status_code == 500
    store.left = None
    over: JobRecord = {"attempts": MAX_ATTEMPTS - 1, "leased_until": "2000-01-01T00:00:00.000Z"}
    await store.commit([Update(JOBS, SYSTEM, job["job_id"], set=over)])
    await work(service)
    (failed,) = await erasures(service)
    assert failed["status"] == "failed"
    await remember(service.client, "coffee", user_id="ursula")
    receipt = (await service.client.delete("/v1/users/ursula")).json()
    assert receipt["erased"]["agent_memories"] == 2, "what the first one took away counts as well"
    assert await stored(service, "ursula") == []


async def test_a_worker_that_was_overtaken_deletes_nothing(service: Service, store: Faulty) -> None:
    """The user came back after the other worker had ended the erasure."""
    await remember(service.client, "tea", user_id="ursula")
    reached = store.hold("purge")
    overtaken = asyncio.create_task(service.client.delete("/v1/users/ursula"))
    await reached.wait()
    gate = store.gates.pop("purge")
    await work(service)
    assert [one["status"] for one in await erasures(service)] == ["succeeded"]
    await remember(service.client, "coffee", user_id="ursula")
    gate.set()
    assert (await overtaken).status_code == 200
    left = (await service.client.get("/v1/memories", params={"user_id": "ursula"})).json()["items"]
    assert [one["content"] for one in left] == ["coffee"]


async def test_another_erasure_is_neither_stopped_nor_dropped(service: Service, store: Faulty) -> None:
    """Erasing takes every other job on the tenant's data from its worker."""
    for user in ("ursula", "bob"):
        await remember(service.client, "tea", user_id=user)
    reached = store.hold("purge")
    of_ada = asyncio.create_task(service.client.delete("/v1/users/ursula"))
    await reached.wait()
    gate = store.gates.pop("purge")
    assert (await service.client.delete("/v1/users/bob")).status_code == 200
    gate.set()
    assert (await of_ada).status_code == 200
    problem(await service.client.get("/v1/users/ursula/profile"), 404)
