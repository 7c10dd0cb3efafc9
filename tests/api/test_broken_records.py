"""No stored record makes a list an error: one that does not fit is named in the log and left out."""

import logging
import shutil
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.actions.schemas import ACTIONS
from app.audit.trail import AUDIT
from app.auth.keys import API_KEYS
from app.facts.profile import USERS
from app.facts.schemas import FACTS
from app.findings.schemas import FINDINGS
from app.jobs.queue import OPERATIONS
from app.memories.agents import AGENTS
from app.memories.schemas import HISTORY, MEMORIES
from app.procedures.schemas import PROCEDURE_HISTORY, PROCEDURES
from app.sessions.schemas import MESSAGES, SESSIONS
from app.settings import JobSettings, Settings
from app.storage.schema import EVERYTHING, Collection, Doc, Eq
from app.storage.scope import SYSTEM
from app.tasks.schemas import CHECKPOINTS, TASKS
from tests.conftest import Service, Starter, TurnedClock
from tests.support import findings
from tests.support.lives import Life
from tests.support.memories import Json
from tests.support.planting import plant, plant_text

pytestmark = pytest.mark.anyio
TENANT = "default"
WRONG: tuple[Any, ...] = (5, "text", [5], {"a": 5}, None)

LISTS: dict[str, tuple[Collection, str]] = {
    "memories": (MEMORIES, "/v1/memories?user_id=ada&status=any"),
    "memory_history": (HISTORY, "/v1/memories/{parent}/history"),
    "facts": (FACTS, "/v1/facts?user_id=ada&status=any&timeline=true"),
    "sessions": (SESSIONS, "/v1/sessions?user_id=ada"),
    "messages": (MESSAGES, "/v1/sessions/{parent}/messages"),
    "last_messages": (MESSAGES, "/v1/sessions/{parent}/messages?last=50"),
    "tasks": (TASKS, "/v1/tasks?user_id=ada"),
    "checkpoints": (CHECKPOINTS, "/v1/tasks/{parent}/checkpoints"),
    "actions": (ACTIONS, "/v1/actions?user_id=ada"),
    "procedures": (PROCEDURES, "/v1/procedures?user_id=ada"),
    "procedure_history": (PROCEDURE_HISTORY, "/v1/procedures/{parent}/history"),
    "agents": (AGENTS, "/v1/agents"),
    "users": (USERS, "/v1/users"),
    "issues": (MEMORIES, "/v1/users/ada/issues"),
    "solutions": (MEMORIES, "/v1/users/ada/solutions"),
    "findings": (FINDINGS, "/v1/findings?status=any"),
    "operations": (OPERATIONS, "/v1/operations"),
    "audit": (AUDIT, "/v1/audit"),
    "keys": (API_KEYS, "/v1/keys"),
}
PARENT = {
    HISTORY.name: "record_id",
    MESSAGES.name: "session_id",
    CHECKPOINTS.name: "task_id",
    PROCEDURE_HISTORY.name: "record_id",
}


class Kept(NamedTuple):
    """A store with records of every kind, to copy; the headers of a key there, and the time when all was written."""

    data: Path
    headers: dict[str, str]
    time: datetime


@pytest.fixture(scope="module")
def kept() -> list[Kept]:
    """What the first test on the embedded engine leaves to the others: a life takes longer than most of them."""
    return []


@pytest.fixture
async def lived(
    start: Starter,
    settings: Settings,
    clock: TurnedClock,
    engine: str,
    kept: list[Kept],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Service, dict[str, str]]]:
    """A service with records of every kind."""
    quiet = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    if engine != "embedded":
        async with start(quiet) as service:
            yield service, await live(service)
        return
    if not kept:
        async with start(quiet) as service:
            headers = await live(service)
        kept.append(Kept(tmp_path_factory.mktemp("lived") / "data", headers, clock.time))
        shutil.copytree(settings.data_dir, kept[0].data)
    shutil.rmtree(settings.data_dir)
    shutil.copytree(kept[0].data, settings.data_dir)
    clock.time = kept[0].time
    async with start(quiet) as service:
        yield service, kept[0].headers


async def live(service: Service) -> dict[str, str]:
    """Makes the records, and returns the headers of a key."""
    await Life(service.client, "ada").lived()
    for agent_id in ("a", "b"):
        await service.client.post("/v1/agents", json={"agent_id": agent_id, "name": agent_id})
    known = (await service.client.get("/v1/memories", params={"user_id": "ada", "limit": 2})).json()["items"]
    owner = {"agent_id": "a", "user_id": "ada"}
    await findings.found(service, *(memory["memory_id"] for memory in known), owner=owner)
    await service.client.post("/v1/jobs/decay/run", json={})
    return await service.key(verbs="read,write,admin")


async def items(api: httpx.AsyncClient, path: str, headers: dict[str, str]) -> list[Json]:
    answered = await api.get(path, headers=headers, params={"limit": 100} if "?last" not in path else {})
    assert answered.status_code == 200, (path, answered.text)
    found: list[Json] = answered.json()["items"]
    return found


async def listed(
    service: Service, collection: Collection, docs: list[Doc], path: str, headers: dict[str, str]
) -> tuple[Doc, str, list[Json]]:
    """The first of the documents that its list has, the path of that list, and its items."""
    for doc in docs:
        of_parent = path.format(parent=doc.get(PARENT.get(collection.name, "")))
        found = await items(service.client, of_parent, headers)
        names = (collection.order,) if collection.name in PARENT else (collection.id_field,)
        marks = {str(doc[name]) for name in names}
        if any(marks & {str(value) for value in item.values()} for item in found):
            return doc, of_parent, found
    raise AssertionError(path)


@pytest.mark.parametrize("name", LISTS)
async def test_a_list_leaves_out_what_does_not_fit(
    lived: tuple[Service, dict[str, str]], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    service, headers = lived
    store, (collection, path) = service.resources.store, LISTS[name]
    tenant = SYSTEM if collection is API_KEYS else TENANT
    where = Eq("memory_type", name.removesuffix("s")) if path.startswith("/v1/users/ada/") else EVERYTHING
    if name == "keys":
        await service.key(verbs="read")  # not that of the caller
    docs = await store.find(collection, tenant, where, limit=500)
    doc, path, before = await listed(service, collection, docs, path, headers)
    doc_id = doc[collection.id_field]
    reached = set(doc) - {
        "tenant_id",
        "user_id",
        collection.id_field,
        PARENT.get(collection.name),
        "memory_type",
        "status",
    }
    for field in sorted(reached - {"tenant"}):
        for wrong in WRONG:
            await plant(store, collection, doc_id, tenant=tenant, **{field: wrong})
            assert len(await items(service.client, path, headers)) >= len(before) - 1, (field, wrong)
        await plant(store, collection, doc_id, tenant=tenant, **{field: doc[field]})
    # an owner is listed by the id, whatever else is known, and keys need no place: all are read
    if name not in ("users", "agents", "keys"):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await plant(store, collection, doc_id, tenant=tenant, without=(collection.order,))
            left = await items(service.client, path, headers)
        assert len(left) == len(before) - 1
        assert doc_id in {vars(record).get("id") for record in caplog.records if record.message == "record left out"}


@pytest.mark.parametrize("name", [name for name, (collection, _) in LISTS.items() if collection.opaque])
async def test_a_list_leaves_out_what_cannot_be_parsed(lived: tuple[Service, dict[str, str]], name: str) -> None:
    service, headers = lived
    store, (collection, path) = service.resources.store, LISTS[name]
    docs = await store.find(collection, TENANT, EVERYTHING, limit=500)
    doc, path, before = await listed(service, collection, docs, path, headers)
    await plant_text(store, collection, doc[collection.id_field])
    assert len(before) - 1 <= len(await items(service.client, path, headers)) <= len(before)


async def test_an_interaction_that_cannot_be_read_is_left_out_of_a_users_list(service: Service) -> None:
    body = {"summary": "Asked how far it is", "outcome": "answered"}
    assert (await service.client.post("/v1/users/ada/interactions", json=body)).status_code == 201
    (first,) = (await service.client.get("/v1/users/ada/interactions")).json()["items"]
    await plant(service.resources.store, USERS, "ada", interactions=[5, first, {**first, "summary": 5}])
    listed = await service.client.get("/v1/users/ada/interactions")
    assert (listed.status_code, listed.json()["items"]) == (200, [first])
    await plant(service.resources.store, USERS, "ada", interactions="text")
    assert (await service.client.get("/v1/users/ada/interactions")).json()["items"] == []


# --- One record -------------------------------------------------------------------------------------------------------

SINGLE: dict[str, tuple[Collection, str, str]] = {
    "memory": (MEMORIES, "/v1/memories", "version"),
    "fact": (FACTS, "/v1/facts", "subject"),
    "session": (SESSIONS, "/v1/sessions", "version"),
    "task": (TASKS, "/v1/tasks", "version"),
    "action": (ACTIONS, "/v1/actions", "version"),
    "procedure": (PROCEDURES, "/v1/procedures", "version"),
    "agent": (AGENTS, "/v1/agents", "version"),
}


@pytest.mark.parametrize("kind", SINGLE)
async def test_a_damaged_record_is_named_to_whoever_may_read_it(
    lived: tuple[Service, dict[str, str]], kind: str
) -> None:
    service, headers = lived
    store, (collection, path, field) = service.resources.store, SINGLE[kind]
    (doc, *_) = await store.find(collection, TENANT, limit=1)
    doc_id = doc[collection.id_field]
    await plant(store, collection, doc_id, without=(field,))
    answered = await service.client.get(f"{path}/{doc_id}", headers=headers)
    problem = answered.json()
    assert (answered.status_code, problem["code"]) == (503, "record_damaged")
    assert problem["detail"].startswith(f"The stored {kind} {doc_id} is damaged: {field} is missing.")
    other = await service.client.get(f"{path}/{doc_id}", headers=await service.key("other"))
    assert other.status_code == 404


@pytest.mark.parametrize("kind", [kind for kind, (collection, _, _) in SINGLE.items() if collection.opaque])
async def test_what_cannot_be_parsed_is_damaged_by_its_id_and_a_warning_in_its_list(
    lived: tuple[Service, dict[str, str]], kind: str
) -> None:
    service, headers = lived
    store, (collection, path, _) = service.resources.store, SINGLE[kind]
    whole = await service.client.get(path, headers=headers)
    assert "warnings" not in whole.json()
    doc_id = whole.json()["items"][0][collection.id_field]
    doc = await store.get(collection, TENANT, doc_id)
    assert doc is not None
    await plant_text(store, collection, doc_id)
    for _ in range(2):
        answered = await service.client.get(f"{path}/{doc_id}", headers=headers)
        assert (answered.status_code, answered.json()["code"]) == (503, "record_damaged")
        assert answered.json()["detail"].startswith(f"The stored {kind} {doc_id} is damaged")
    assert (await service.client.get(f"{path}/{doc_id}", headers=await service.key("other"))).status_code == 404
    bound = await service.key(agents=["nobody"], users=["nobody"])
    seen = await service.client.get(f"{path}/{doc_id}", headers=bound)
    assert seen.status_code == (503 if doc.get("agent_id") is None and doc.get("user_id") is None else 404)
    listed = await service.client.get(path, headers=headers)
    told = {"code": "record_damaged", "detail": f"The stored {kind} {doc_id} is damaged and left out."}
    assert told in listed.json()["warnings"]


SPOILT: dict[str, Json] = {
    "importance": {"base_importance": "high"},
    "anchor": {"anchored_at": "yesterday"},
    "no_anchor": {"without": ("anchored_at",)},
    "content": {"content": 7},
    "source": {"source": 5},
    "version": {"without": ("version",)},
    "trust": {"trust": "much"},
    "event": {"event_at": 5},
    "owner": {"without": ("user_id",)},
}
OWNER = {"agent_id": "a", "user_id": "u"}
ASKED: Json = {**OWNER, "query": "green tea"}


@pytest.mark.parametrize("name", SPOILT)
async def test_searches_and_contexts_go_on_without_a_damaged_memory(service: Service, name: str) -> None:
    api, ids = service.client, list[str]()
    for text in ("green tea", "green tea with milk", "green tea with honey"):
        made = await api.post("/v1/memories", json={**OWNER, "content": text})
        ids.append(made.json()["memory_id"])
    bad, *good = ids
    await plant(service.resources.store, MEMORIES, bad, **SPOILT[name])
    told = {"code": "record_damaged", "detail": f"The stored memory {bad} is damaged and left out."}
    for more in ({}, {"mode": "text"}, {"mode": "vector"}, {"fields": ["importance"]}, {"explain": True}):
        answered = await api.post("/v1/memories/search", json={**ASKED, **more})
        assert answered.status_code == 200, answered.text
        assert {item["memory"]["memory_id"] for item in answered.json()["items"]} == set(good)
        assert answered.json()["warnings"] == [told], more
    context = (await api.post("/v1/context", json={**ASKED, "fill": True, "citations": "ids"})).json()
    assert context["errors"] == []
    assert told in context["warnings"]
    assert all(one in context["text"] for one in good)
    alike = await api.post("/v1/memories", json={**OWNER, "content": "green tea!", "deduplicate": False})
    assert alike.status_code == 201, alike.text
    assert bad not in {one["memory_id"] for one in alike.json()["similar"]}


async def test_a_write_that_needs_a_damaged_memory_names_it(service: Service) -> None:
    made = (await service.client.post("/v1/memories", json={**OWNER, "content": "green tea"})).json()
    await plant(service.resources.store, MEMORIES, made["memory_id"], base_importance="high")
    again = await service.client.post("/v1/memories", json={**OWNER, "content": "green tea"})
    assert (again.status_code, again.json()["code"]) == (503, "record_damaged")
    assert f"memory {made['memory_id']} is damaged: base_importance is no number" in again.json()["detail"]
    mended = await service.client.patch(f"/v1/memories/{made['memory_id']}", json={"importance": 0.7})
    assert (mended.status_code, mended.json()["importance"]) == (200, 0.7)


@pytest.mark.parametrize("spoilt", [{"without": ("version",)}, {"source": 5}, {"content": 7}])
async def test_a_damaged_memory_can_be_deleted(service: Service, spoilt: Json) -> None:
    api, store, ids = service.client, service.resources.store, list[str]()
    for text in ("tea", "coffee", "milk"):
        ids.append((await api.post("/v1/memories", json={**OWNER, "content": text})).json()["memory_id"])
    for one in ids[:2]:
        await plant(store, MEMORIES, one, **spoilt)
    assert (await api.delete(f"/v1/memories/{ids[0]}")).status_code == 204
    assert (await api.delete("/v1/memories", params=OWNER)).json() == {"deleted": 2}
    assert await store.find(MEMORIES, TENANT) == []


async def test_memories_are_deleted_by_filter_beside_damaged_owners_and_disputes(service: Service) -> None:
    api, store, ids = service.client, service.resources.store, list[str]()
    for text, trust in (("lives in Oslo", 0.9), ("lives in Rome", 0.5), ("lives in Turin", 0.4)):
        made = await api.post("/v1/memories", json={**OWNER, "content": text, "key": "home", "trust": trust})
        ids.append(made.json()["memory_id"])
    tea = (await api.post("/v1/memories", json={**OWNER, "content": "tea", "pinned": True})).json()["memory_id"]
    await plant(store, MEMORIES, ids[1], without=("contradicts",))
    await plant(store, MEMORIES, tea, without=("agent_id",))
    params = {"user_id": OWNER["user_id"], "pinned": "true"}
    assert (await api.delete("/v1/memories", params=params)).json() == {"deleted": 1}
    assert (await api.delete("/v1/memories", params={**OWNER, "key": "home"})).json() == {"deleted": 1}
    assert (await api.get(f"/v1/memories/{ids[2]}")).json()["status"] == "active"


@pytest.mark.parametrize("kind", [kind for kind, (collection, _, _) in SINGLE.items() if collection.opaque])
async def test_what_cannot_be_parsed_can_be_deleted(lived: tuple[Service, dict[str, str]], kind: str) -> None:
    service, headers = lived
    store, (collection, path, _) = service.resources.store, SINGLE[kind]
    if kind == "action":
        pytest.skip("actions are deleted with their user")
    (doc, *_) = await store.find(collection, TENANT, limit=1)
    doc_id = doc[collection.id_field]
    await plant_text(store, collection, doc_id)
    refused = await service.client.delete(f"{path}/{doc_id}", headers={**await service.key("other")})
    assert refused.status_code == 404
    stale = await service.client.delete(f"{path}/{doc_id}", headers={**headers, "If-Match": '"77"'})
    assert stale.status_code == 412
    deleted = await service.client.delete(f"{path}/{doc_id}", headers=headers)
    assert deleted.status_code == 204, deleted.text
    assert (await service.client.get(f"{path}/{doc_id}", headers=headers)).status_code == 404


async def test_a_user_with_a_record_that_cannot_be_parsed_is_erased(service: Service) -> None:
    made = (await service.client.post("/v1/memories", json={**OWNER, "content": "green tea"})).json()
    await plant_text(service.resources.store, MEMORIES, made["memory_id"])
    erased = await service.client.delete("/v1/users/u")
    assert erased.status_code == 200, erased.text
    assert erased.json()["erased"]["agent_memories"] == 1
    assert await service.resources.store.count(MEMORIES, TENANT) == 0


async def test_a_users_export_goes_on_without_a_record_whose_expiry_is_no_time(service: Service) -> None:
    ids = [
        (await service.client.post("/v1/memories", json={**OWNER, "content": text})).json()["memory_id"]
        for text in ("tea", "coffee")
    ]
    await plant(service.resources.store, MEMORIES, ids[0], expires_at=5)
    assert ids[1] in (await service.client.get("/v1/users/u/export")).text
