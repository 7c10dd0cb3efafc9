"""GET /v1/audit: every write of a caller is in it, by whom and on what, and never what it said."""

import json

import pytest

from app.audit.trail import AUDIT, MAX_RECORDS, Actor, audit_entries
from app.jobs.queue import Job, Queue
from app.jobs.runner import Run
from app.memories.schemas import HISTORY, MEMORIES
from app.retention.service import ForgettingJobs
from app.settings import Settings
from app.storage.changes import Change, Delete, Insert, Update
from app.storage.schema import EVERYTHING
from app.storage.scope import SYSTEM
from tests.conftest import Service, Starter
from tests.support.lives import Life
from tests.support.memories import OWNER, Json, remember

pytestmark = pytest.mark.anyio


async def trail(service: Service, headers: dict[str, str], **asked: object) -> list[Json]:
    items: list[Json] = []
    cursor: str | None = None
    while True:
        params = {"limit": 100, "order": "asc", **asked, **({"cursor": cursor} if cursor else {})}
        page = (await service.client.get("/v1/audit", params=params, headers=headers)).json()  # type: ignore[arg-type]
        items += page["items"]
        if (cursor := page["next_cursor"]) is None:
            return items


async def test_every_write_is_in_it_and_no_content(service: Service) -> None:
    admin, writer = await service.key(verbs="admin"), await service.key()
    life = Life(service.client, "ada", writer)
    await life.lived()
    found = await trail(service, admin, user_id="ada")
    assert {entry["key_id"] for entry in found} == {writer["Authorization"].split("_")[1]}
    expected = {
        *("put_profile", "update_profile", "add_interaction", "add_issue", "update_issue", "add_solution"),
        *("append_messages", "delete_session", "update_session", "end_session", "clear_messages"),
        *("create_memory", "update_memory", "create_memories", "delete_memory", "forget_memories"),
        *("create_document", "give_memory_feedback", "update_message", "delete_message"),
        *("create_task", "update_task_context", "add_task_note", "add_task_evidence", "create_checkpoint"),
        *("restore_task", "log_action", "log_actions", "give_feedback", "assert_fact", "retract_fact"),
        *("create_procedure", "record_outcome", "update_procedure", "declare_aliases", "dismiss_alias"),
    }
    assert {entry["action"] for entry in found} == expected
    assert "likes tea" not in json.dumps(found)
    (made,) = await trail(service, admin, record_id="chat-ada", action="end_session")
    assert made["changes"]["conversation_sessions"] == {"update": 1}
    assert await trail(service, admin, until=found[0]["created_at"], user_id="ada") == []
    assert await trail(service, await service.key("other", verbs="admin"), user_id="ada") == []
    await service.client.delete("/v1/memories", params={"user_id": "ada"}, headers=writer)
    assert (await trail(service, admin, user_id="ada"))[-1]["action"] == "delete_memories"


async def test_callers_without_a_key_have_one_name_in_it(start: Starter, settings: Settings) -> None:
    async with start(settings.model_copy(update={"auth": "off"})) as service:
        await remember(service.client, "likes tea")
        await service.client.delete("/v1/memories", params={"user_id": OWNER["user_id"]})
        entries = await trail(service, {}, user_id=OWNER["user_id"])
    assert [(entry["action"], entry["key_id"]) for entry in entries] == [
        ("create_memory", "unauthenticated"),
        ("delete_memories", "unauthenticated"),
    ]


async def test_of_an_erased_user_it_tells_under_hashes(service: Service) -> None:
    admin, writer = await service.key(verbs="admin"), await service.key()
    await Life(service.client, "zoe", writer).lived()
    before = await trail(service, admin, user_id="zoe")
    receipt = (await service.client.delete("/v1/users/zoe", headers=writer)).json()
    after = await trail(service, admin, user_id="zoe")
    assert [entry["audit_id"] for entry in after[:-2]] == [entry["audit_id"] for entry in before]
    assert {(entry["user_id"], entry["user_hash"]) for entry in after} == {(None, receipt["tombstone"])}
    assert [(entry["action"], entry["changes"]["users"]) for entry in after[-2:]] == [
        ("erase_user", {"erase_begun": 1}),
        ("erase_user", {"erase": 1}),
    ]
    assert "zoe" not in json.dumps(after), "and no hexadecimal id has a z"
    assert len(await trail(service, admin, record_id="chat-zoe")) >= 3


async def test_it_can_only_be_read(service: Service) -> None:
    admin = await service.key(verbs="read,write,admin")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await service.client.request(method, "/v1/audit", headers=admin)).status_code == 405


async def test_it_goes_back_a_year(service: Service) -> None:
    held = service.resources
    await Life(service.client, "ada").lived()
    service.clock.move(days=364)
    retention = ForgettingJobs(held.store, held.embedder, held.clock, held.settings.retention)
    queued = Job("retention", SYSTEM)
    for left in (True, False):
        await held.store.commit([queued.enqueue(held.clock.now())])
        lease = await Queue(held.store, held.clock).take()
        assert lease is not None
        await retention.retain(Run(held.store, held.clock, lease))
        assert bool(await held.store.find(AUDIT, None, EVERYTHING)) == left
        service.clock.move(days=2)


async def test_a_write_that_is_refused_leaves_none(service: Service) -> None:
    for body in ({"content": "x"}, {"agent_id": "a", "content": ""}):
        assert (await service.client.post("/v1/memories", json=body)).status_code == 422
    assert await service.resources.store.find(AUDIT, None, EVERYTHING) == []


def test_an_entry_for_each_user_and_none_for_bookkeeping() -> None:
    owners = ("ada", "bob", None)
    changes = [Insert(MEMORIES, {"memory_id": f"m{user}", "user_id": user}) for user in owners]
    more: list[Change] = [
        Insert(HISTORY, {"history_id": "h", "user_id": "ada"}),
        Delete(MEMORIES, "t", "gone", user="ada"),
    ]
    updates = [Update(MEMORIES, "t", f"m{number}", user="bob") for number in range(MAX_RECORDS + 5)]
    made = audit_entries(Actor("t", "k", "act"), [*changes, *more, *updates], "now")
    docs = {change.doc["user_id"]: change.doc for change in made if isinstance(change, Insert)}
    assert set(docs) == {"ada", "bob", None}
    assert docs["ada"]["records"] == ["mada", "gone"]
    assert docs["ada"]["changes"] == {"agent_memories": {"insert": 1, "delete": 1}}
    assert len(docs["bob"]["records"]) == MAX_RECORDS
    assert docs["bob"]["changes"]["agent_memories"]["update"] == MAX_RECORDS + 5


async def test_an_entry_names_the_fields_that_were_set_and_no_value(service: Service) -> None:
    key, admin = await service.key(), await service.key(verbs="admin")
    body = {"user_id": "ada", "content": "Ada likes tea"}
    made = (await service.client.post("/v1/memories", json=body, headers=key)).json()
    changed = {"tags": ["secret-tag"], "metadata": {"secret-key": 1}, "importance": 0.9}
    path = f"/v1/memories/{made['memory_id']}"
    assert (await service.client.patch(path, json=changed, headers=key)).status_code == 200
    (entry,) = await trail(service, admin, action="update_memory")
    assert set(changed) <= set(entry["fields"]["agent_memories"])
    assert "version" not in entry["fields"]["agent_memories"]
    assert "secret" not in json.dumps(entry)
