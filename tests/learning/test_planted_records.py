"""Every job with a record in it that it cannot handle: the others are handled, and the operation names that one."""

from typing import Any

import httpx
import pytest

from app.actions.schemas import ACTIONS
from app.core.clock import rfc3339
from app.jobs import queue
from app.jobs.queue import EMBED_PENDING, EXPIRY, REDERIVE, REFLECTION, REVIEW_PROCEDURE
from app.memories.agents import AGENTS
from app.memories.repository import pending_note
from app.memories.schemas import MEMORIES
from app.procedures.schemas import PROCEDURES
from app.sessions.schemas import MESSAGES
from app.storage.schema import Eq
from app.storage.scope import Scope
from tests.conftest import Service
from tests.support.actions import log
from tests.support.learning import consolidate, end, kept, learned, operation, talk, work
from tests.support.memories import OWNER, Json, remember
from tests.support.model import Model
from tests.support.planting import plant
from tests.support.procedures import learn, report

pytestmark = pytest.mark.anyio
TENANT = "default"


async def ended(service: Service, path: str, body: Json | None = None) -> Json:
    """The operation that a POST begins, once its job has run."""
    asked = await service.client.post(path, json={} if body is None else body)
    assert asked.status_code == 202, asked.text
    await work(service)
    return await operation(service, asked.json()["operation_id"])


async def run(service: Service, kind: str, **payload: Any) -> Json:
    """The operation of a job that no request begins."""
    answer, changes = queue.start(Scope(TENANT), kind, payload, service.clock.now())
    await service.resources.store.commit(changes)
    await work(service)
    return await operation(service, answer["operation_id"])


async def ids_of(service: Service, *texts: str, **fields: Any) -> list[str]:
    return [str((await remember(service.client, text, **fields))["memory_id"]) for text in texts]


def named(done: Json, *skipped: tuple[str, str]) -> Json:
    """The result of an operation, which is partial and names these records by kind and id."""
    assert done["status"] == "partial", done
    told = done["result"]["skipped_records"]
    assert {(item["kind"], item["id"]) for item in told["items"]} == set(skipped), told
    assert told["count"] == len(skipped)
    assert all(item["error"].endswith("Error") for item in told["items"])
    result: Json = done["result"]
    return result


async def test_decay(service: Service, api: httpx.AsyncClient) -> None:
    for agent_id in ("a", "b"):
        await api.post("/v1/agents", json={"agent_id": agent_id, "name": agent_id})
    bad, untimed, good = await ids_of(service, "tea", "coffee", "milk")
    store = service.resources.store
    await plant(store, MEMORIES, bad, base_importance="high")
    await plant(store, MEMORIES, untimed, anchored_at="yesterday")
    await plant(store, AGENTS, "b", settings=5)
    service.clock.move(days=90)
    skipped = ("memory", bad), ("memory", untimed), ("agent", "b")
    assert named(await ended(service, "/v1/jobs/decay/run", {"dry_run": True}), *skipped)["memories"] == 3
    assert named(await ended(service, "/v1/jobs/decay/run"), *skipped)["changed"] == 1
    stored = {doc["memory_id"]: doc for doc in await store.find(MEMORIES, TENANT)}
    assert stored[untimed]["importance"] == stored[untimed]["base_importance"]
    assert stored[good]["importance"] < stored[good]["base_importance"]


async def test_expiry(service: Service) -> None:
    bad, good = await ids_of(service, "tea", "coffee", expires_at="2026-07-01T00:00:00Z")
    store = service.resources.store
    await plant(store, MEMORIES, bad, without=("version",))
    service.clock.move(days=90)
    done = await run(service, EXPIRY)
    assert (done["status"], done["result"]["memories"]) == ("succeeded", 2), "what is damaged expires, too"
    assert [await store.get(MEMORIES, TENANT, one) for one in (bad, good)] == [None, None]


async def test_retention(service: Service, api: httpx.AsyncClient) -> None:
    actions = [await log(api, f"attempt {number}") for number in range(3)]
    bad = actions[1]["action_id"]
    await talk(service, "I live in Rome.", "Nice!")
    said = [doc async for doc in messages(service)]
    store = service.resources.store
    await plant(store, ACTIONS, bad, action=5)
    await plant(store, MEMORIES, said[0], without=("version",))
    service.clock.move(days=500)
    result = named(await ended(service, "/v1/jobs/retention/run"), ("action", bad), ("memory", said[0]))
    assert (result["rolled_up"], result["archived"]) == (2, 1)
    assert [doc["action_id"] for doc in await store.find(ACTIONS, TENANT)] == [bad]


async def messages(service: Service) -> Any:
    for doc in await service.resources.store.find(MEMORIES, TENANT, Eq("memory_type", "message"), order="asc"):
        yield doc["memory_id"]


async def test_retention_with_an_earlier_summary_of_the_day(service: Service, api: httpx.AsyncClient) -> None:
    await log(api, "attempt 1")
    service.clock.move(days=40)
    await ended(service, "/v1/jobs/retention/run")
    store = service.resources.store
    (summary,) = await store.find(MEMORIES, TENANT, Eq("memory_type", "summary"))
    late = await log(api, "attempt 2", timestamp="2026-06-01T13:00:00Z")
    other = await log(api, "attempt 3", timestamp="2026-06-02T13:00:00Z")
    await plant(store, MEMORIES, summary["memory_id"], source=5)
    result = named(await ended(service, "/v1/jobs/retention/run"), ("memory", summary["memory_id"]))
    assert result["rolled_up"] == 1
    left = {doc["action_id"] for doc in await store.find(ACTIONS, TENANT)}
    assert late["action_id"] in left
    assert other["action_id"] not in left


async def test_forget_and_its_undo(service: Service) -> None:
    bad, worse, good = await ids_of(service, "tea", "coffee", "milk")
    store = service.resources.store
    await plant(store, MEMORIES, bad, access_count="often")
    service.clock.move(days=200)
    asked: Json = {**OWNER, "policy": {"older_than_days": 100}, "dry_run": False}
    plan = await service.client.post("/v1/memories/forget", json={**asked, "dry_run": True})
    assert {item["memory_id"] for item in plan.json()["items"]} == {worse, good}
    done = await ended(service, "/v1/memories/forget", asked)
    assert named(done, ("memory", bad))["archived"] == 2
    await plant(store, MEMORIES, worse, without=("version",))
    undone = await ended(service, f"/v1/operations/{done['operation_id']}/undo")
    assert named(undone, ("memory", worse))["restored"] == 1
    restored = await store.get(MEMORIES, TENANT, good)
    assert restored is not None
    assert restored["status"] == "active"


async def test_embed_pending(service: Service) -> None:
    bad, good = await ids_of(service, "tea", "coffee")
    store, now = service.resources.store, rfc3339(service.clock.now())
    for memory_id in (bad, good):
        await plant(store, MEMORIES, memory_id, embedding={"model": "m", "dim": 3, "status": "pending"})
        await store.commit([pending_note(MEMORIES, TENANT, memory_id, now)])
    await plant(store, MEMORIES, bad, content=5)
    assert named(await run(service, EMBED_PENDING), ("memory", bad))["embedded"] == 1
    assert (await run(service, EMBED_PENDING))["status"] == "succeeded", "it is put off, not tried at once again"


async def test_learning_and_a_summary(service: Service, llm: Model) -> None:
    await talk(service, "I prefer tea.", "Noted.", "I live in Rome.")
    store = service.resources.store
    (bad,) = await store.find(MESSAGES, TENANT, Eq("seq", 1))
    await plant(store, MESSAGES, bad["message_id"], text=5)
    llm.says["memories"] = {"memories": [learned("The user lives in Rome.", 3)]}
    named(await end(service), ("message", bad["message_id"]))
    assert [memory["content"] for memory in await kept(service)] == ["The user lives in Rome."]
    done = await ended(service, "/v1/sessions/s/summarize")
    assert named(done, ("message", bad["message_id"]))["summary"] == "The user lives in Rome."


async def test_learning_from_episodes(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    bad, _ = [await log(api, f"Asked the carrier, attempt {number}") for number in range(2)]
    await plant(service.resources.store, ACTIONS, bad["action_id"], feedback=5)
    result = named(await consolidate(service), ("action", bad["action_id"]))
    assert (result["episodes"], result["waiting"]) == (1, 0)
    assert llm.shown("FoundFacts")[0]["episodes"][0]["content"] == "Asked the carrier, attempt 1"
    assert (await consolidate(service))["status"] == "succeeded", "it is not read for ever"


async def test_consolidation(service: Service) -> None:
    bad, *same = await ids_of(service, "The user prefers coffee.", "The user prefers tea.", "the user prefers tea!")
    await plant(service.resources.store, MEMORIES, bad, content=5)
    result = named(await consolidate(service), ("memory", bad))
    assert [sorted([item["kept"], *item["retired"]]) for item in result["memories"]["items"]] == [sorted(same)]


async def test_judging_again_what_was_learned(service: Service, llm: Model) -> None:
    await talk(service, "I live in Rome and prefer tea.")
    texts = "The user lives in Rome.", "The user prefers tea."
    llm.says["memories"] = {"memories": [learned(text, 1) for text in texts]}
    await end(service)
    bad, good = [memory["memory_id"] for memory in await kept(service)]
    store = service.resources.store
    await plant(store, MEMORIES, bad, source=5)
    payload = {"session_id": "s", "seq": 1, "summarize": False, "memory_id": None}
    (said,) = [doc async for doc in messages(service)]
    assert named(await run(service, REDERIVE, **{**payload, "memory_id": said}), ("memory", bad))["judged"] == 1
    assert await store.get(MEMORIES, TENANT, good) is None


async def test_the_review_of_a_procedure(service: Service, api: httpx.AsyncClient) -> None:
    procedure = await learn(api)
    await report(api, procedure, False)
    bad = procedure["procedure_id"]
    await plant(service.resources.store, PROCEDURES, bad, recent_outcomes=5)
    named(await run(service, REVIEW_PROCEDURE, procedure_id=bad), ("procedure", bad))


async def test_an_erasure_takes_what_cannot_be_handled_too(service: Service, api: httpx.AsyncClient) -> None:
    await log(api, "attempt 1")
    service.clock.move(days=40)
    await ended(service, "/v1/jobs/retention/run")
    await api.post("/v1/agents", json={"agent_id": "b", "name": "b"})
    store = service.resources.store
    (summary,) = await store.find(MEMORIES, TENANT, Eq("memory_type", "summary"))
    await plant(store, MEMORIES, summary["memory_id"], source=5)
    (unlisted,) = await ids_of(service, "tea")
    await plant(store, MEMORIES, unlisted, without=("created_at",))
    await plant(store, AGENTS, "b", experience=5)
    erased = await api.delete("/v1/users/u")
    assert erased.status_code == 200, erased.text
    receipt = erased.json()
    assert receipt["verification"] == {"records_found": 0, "search_found": 0}
    assert [(item["kind"], item["id"]) for item in receipt["skipped_records"]["items"]] == [("agent", "b")]
    assert await store.count(MEMORIES, TENANT, Eq("user_id", "u")) == 0


async def test_reflection(service: Service) -> None:
    (bad,) = await ids_of(service, "I live in Berlin.")
    for owner, firm in ((OWNER, "Acme"), ({"user_id": OWNER["user_id"]}, "Initech")):
        said = {"subject": "Ben", "predicate": "works_at", "cardinality": "one", "object": firm}
        await service.client.post("/v1/facts", json={**owner, **said})
    await plant(service.resources.store, MEMORIES, bad, content=5)
    assert named(await run(service, REFLECTION, dry_run=False), ("memory", bad))["found"] > 0
