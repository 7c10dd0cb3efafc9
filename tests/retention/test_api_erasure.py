"""DELETE /v1/users/{id} and its export: everything is told, everything goes, and nothing brings it back."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.audit.trail import owned
from app.jobs.queue import JOBS, OPERATIONS, Queue
from app.lifespan import COLLECTIONS, job_runner
from app.memories.schemas import MEMORIES
from app.settings import JobSettings, Settings
from app.storage.changes import Update
from app.storage.schema import EVERYTHING, Collection, Eq
from app.storage.scope import SYSTEM
from app.storage.sqlite import files as sqlite_files
from tests.conftest import Service, Starter
from tests.support import findings
from tests.support.lives import Life, bytes_with
from tests.support.memories import found, problem, remember

pytestmark = pytest.mark.anyio
CANARY = "canary7f3a9c"


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def exported(api: httpx.AsyncClient, user: str, headers: dict[str, str] | None = None) -> list[Any]:
    answer = await api.get(f"/v1/users/{user}/export", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/x-ndjson; charset=utf-8"
    return [json.loads(line) for line in answer.text.splitlines()]


async def everything(service: Service) -> list[tuple[Collection, Any]]:
    """All that is stored, whosoever."""
    found = []
    for collection in COLLECTIONS:
        docs = await service.resources.store.find(collection, None, EVERYTHING, limit=10_000)
        found += [(collection, doc) for doc in docs]
    return found


async def test_an_erased_user_is_nowhere_and_others_are_as_they_were(
    service: Service, api: httpx.AsyncClient, settings: Settings
) -> None:
    await Life(api, "other").lived()
    await Life(api, CANARY).lived()
    known = (await api.get("/v1/memories", params={"user_id": CANARY, "limit": 2})).json()["items"]
    owner = {"agent_id": "a", "user_id": CANARY}
    await findings.found(service, *(one["memory_id"] for one in known), owner=owner)
    await findings.judged(service, owner)
    await api.post("/v1/memories/search", json={"user_id": CANARY, "query": "tea"})
    before = (await exported(api, "other"))[1:-1]
    records = (await exported(api, CANARY))[1:-1]
    kinds = {line["collection"] for line in records}
    rolled_up = {"action_roll_ups", "action_days"}
    assert kinds >= {one.name for one in owned(COLLECTIONS)} - {"agents", "derivations", "statements"} - rolled_up

    receipt = (await api.delete(f"/v1/users/{CANARY}")).json()
    assert receipt["verification"] == {"records_found": 0, "search_found": 0}
    counts = {kind: sum(line["collection"] == kind for line in records) for kind in kinds}
    assert {kind: receipt["erased"][kind] for kind in kinds} == counts
    assert receipt["erased"]["idempotency_keys"] > 20
    assert receipt["erased"]["jobs"] == 5, (
        "what its session's end, two changed messages, its document and its forgetting had queued"
    )
    stored = await everything(service)
    assert [(one.name, doc) for one, doc in stored if CANARY in json.dumps(doc)] == []
    hashes = {doc["user_hash"] for one, doc in stored if one.name == "audit" and doc["user_hash"]}
    assert hashes == {receipt["tombstone"]}
    if settings.store.get_secret_value() == "embedded":
        assert bytes_with(settings.data_dir, CANARY) == {}
        assert bytes_with(settings.data_dir, "other") != {}, "the scan finds what is there"
    assert (await exported(api, CANARY))[-1]["total"] == 0
    assert [doc for one, doc in await everything(service) if CANARY in json.dumps(doc)] == []
    assert await found(api, "tea", user_id=CANARY) == []
    assert (await exported(api, "other"))[1:-1] == before


@pytest.mark.parametrize("engine", ["embedded"])
async def test_the_scan_sees_what_is_only_deleted(
    service: Service, api: httpx.AsyncClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_files, "scrub", lambda *_: None)
    await Life(api, CANARY).lived()
    await api.delete(f"/v1/users/{CANARY}")
    assert bytes_with(settings.data_dir, CANARY) != {}


async def test_what_was_never_there_is_erased_as_well(api: httpx.AsyncClient) -> None:
    receipt = (await api.delete("/v1/users/nobody")).json()
    assert receipt["erased"] == {}
    again = (await api.delete("/v1/users/nobody")).json()
    assert again["tombstone"] == receipt["tombstone"]


async def test_a_new_write_brings_the_user_back(api: httpx.AsyncClient) -> None:
    await remember(api, "tea", user_id="ada")
    await api.delete("/v1/users/ada")
    await remember(api, "coffee", user_id="ada")
    assert await found(api, "what to drink", user_id="ada") == ["coffee"]


async def test_a_job_that_has_read_the_user_writes_nothing_any_more(service: Service, api: httpx.AsyncClient) -> None:
    """Roll-up and learning read first and write later: one that holds what it read in its hands."""
    held = service.resources
    await Life(api, CANARY).lived()
    queue = Queue(held.store, held.clock)
    leases = [await queue.take() for _ in range(2)]
    await api.delete(f"/v1/users/{CANARY}")
    for lease in leases:
        assert lease is not None
        with pytest.raises(Exception, match="was taken over"):
            await lease.commit([])
    runner = job_runner(held.settings, held.store, held.embedder, held.clock, held.llm)
    while await runner.step():
        pass
    assert await held.store.find(JOBS, SYSTEM) == []
    assert [one.name for one, doc in await everything(service) if CANARY in json.dumps(doc)] == []


async def test_another_users_job_begins_anew(service: Service, api: httpx.AsyncClient) -> None:
    held = service.resources
    await remember(api, "tea", user_id="other")
    policy = {"user_id": "other", "policy": {"older_than_days": 0}, "dry_run": False}
    service.clock.move(minutes=1)
    begun = (await api.post("/v1/memories/forget", json=policy)).json()
    lease = await Queue(held.store, held.clock).take()
    assert lease is not None
    await api.delete(f"/v1/users/{CANARY}")
    with pytest.raises(Exception, match="was taken over"):
        await lease.commit([])
    runner = job_runner(held.settings, held.store, held.embedder, held.clock, held.llm)
    while await runner.step():
        pass
    told = (await api.get(f"/v1/operations/{begun['operation_id']}")).json()
    assert (told["status"], told["result"]) == ("succeeded", {"archived": 1})


async def test_while_others_write_the_truth_is_told(service: Service, api: httpx.AsyncClient) -> None:
    """What comes after is a new write; what is left is whole, and is found."""
    await Life(api, "ada").lived()

    async def keep_writing() -> None:
        for number in range(10):
            await remember(api, f"new {number}", user_id="ada")

    writing = asyncio.create_task(keep_writing())
    erased = await api.delete("/v1/users/ada")
    await writing
    assert erased.status_code in (200, 202)
    held = service.resources
    runner = job_runner(held.settings, held.store, held.embedder, held.clock, held.llm)
    service.clock.move(minutes=5)
    while await runner.step():
        service.clock.move(minutes=5)
    operation = (await held.store.find(OPERATIONS, "default", Eq("kind", "erase_user")))[0]
    assert operation["status"] == "succeeded"
    left = (await exported(api, "ada"))[-1]["counts"]
    assert set(left) <= {"agent_memories"}
    assert all(finding.ok for finding in await service.resources.store.check(deep=True))
    assert len(await found(api, "new", user_id="ada", top_k=100)) == left.get("agent_memories", 0)


async def test_derived_records_go_with_their_sources(service: Service, api: httpx.AsyncClient) -> None:
    mine = await remember(api, "tea", user_id="ada")
    other = await remember(api, "coffee", user_id="bob")
    learned = {}
    for name, ids in {"mine": [mine], "both": [mine, other], "other": [other]}.items():
        made = await remember(api, f"drinks of {name}", user_id=None)
        source = made["source"] | {"origin": "consolidation", "memory_ids": [one["memory_id"] for one in ids]}
        change = Update(MEMORIES, "default", made["memory_id"], set=MEMORIES.as_record({"source": source}))
        await service.resources.store.commit([change])
        learned[name] = f"/v1/memories/{made['memory_id']}"
    receipt = (await api.delete("/v1/users/ada")).json()
    assert receipt["erased"]["derived_agent_memories"] == 1
    assert {name: (await api.get(path)).status_code for name, path in learned.items()} == {
        "mine": 404,
        "both": 200,
        "other": 200,
    }


async def test_who_may_erase_and_export(service: Service) -> None:
    api, full = service.client, await service.key(verbs="read,write")
    await remember_as(api, full, "ada")
    bound = {"users": await service.key(users=["ada"]), "agents": await service.key(agents=["a"])}
    another = await service.key(users=["bob"])
    elsewhere = await service.key("elsewhere")
    read = await service.key(verbs="read")
    for headers in (bound["agents"], another, read):
        problem(await api.delete("/v1/users/ada", headers=headers), 403, "forbidden")
    assert (await api.delete("/v1/users/ada", headers=elsewhere)).json()["erased"] == {}
    for headers, seen in ((another, 0), (elsewhere, 0), (bound["agents"], 2), (bound["users"], 3), (read, 3)):
        lines = await exported(api, "ada", headers)
        assert lines[-1]["total"] == len(lines) - 2 == seen
    assert (await api.delete("/v1/users/ada", headers=bound["users"])).json()["erased"]["agent_memories"] == 3


async def remember_as(api: httpx.AsyncClient, headers: dict[str, str], user: str) -> None:
    for agent in ("a", "b", None):
        body = {"agent_id": agent, "user_id": user, "content": f"tea of {agent}"}
        assert (await api.post("/v1/memories", json=body, headers=headers)).status_code == 201
