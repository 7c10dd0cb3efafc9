"""POST /v1/memories/forget: say, archive, bring back, purge."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.retention import service as forgetting
from app.retention.service import Forgetting
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter, TurnedClock
from tests.support.memories import OWNER, Json, batch, found, history, listed, problem, remember
from tests.support.operations import forget, operation, rows, rows_of, run, undo, work

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def plan(api: httpx.AsyncClient, headers: dict[str, str] | None = None, **body: Any) -> Json:
    answer = await api.post("/v1/memories/forget", json={**OWNER, "policy": {}, **body}, headers=headers)
    assert answer.status_code == 200, answer.text
    shown: Json = answer.json()
    return shown


async def test_the_dry_run_is_the_default_says_why_and_changes_nothing(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "tea")
    await remember(api, "a bug", memory_type="issue")
    await remember(api, "kept", pinned=True)
    clock.move(days=400)
    await remember(api, "new")
    before = await rows(service)
    shown = await plan(api)
    assert await rows(service) == before
    assert (shown["dry_run"], shown["total"]) == (True, 2)
    assert [(item["content"], item["score"]) for item in shown["items"]] == [("tea", 0), ("a bug", 50)]
    assert [reason["reason"] for reason in shown["items"][0]["reasons"]] == ["recency", "type", "access"]
    assert (await plan(api, policy={"older_than_days": 1, "max_score": 49}))["total"] == 1
    assert (await plan(api, policy={"older_than_days": 1, "max_importance": 0.1}))["total"] == 0
    assert (await plan(api, policy={"older_than_days": 1, "types": ["issue"]}))["total"] == 1
    assert (await plan(api, user_id="somebody-else"))["total"] == 0
    problem(await api.post("/v1/memories/forget", json={"policy": {}}), 422)
    problem(await api.post("/v1/memories/forget", json=OWNER), 422, pointer="/policy")
    assert (await api.get("/v1/operations")).json()["items"] == []


async def test_applied_it_archives_and_an_undo_brings_all_back(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    made = await remember(api, "tea", key="drink")
    await remember(api, "pinned", pinned=True)
    path = f"/v1/memories/{made['memory_id']}"
    clock.move(days=200)
    done = await forget(service)
    assert (done["status"], done["result"], done["can_undo"]) == ("succeeded", {"archived": 1}, True)
    assert await found(api, "tea") == ["pinned"]
    assert await listed(api) == ["pinned"] or await listed(api, status="active") == ["pinned"]
    archived = (await api.get(path)).json()
    assert archived["status"] == "archived"
    assert await found(api, "tea", status="archived") == ["tea"]
    undone = await undo(service, done["operation_id"])
    assert (undone["status"], undone["result"]) == ("succeeded", {"restored": 1, "not_restored": 0})
    back = (await api.get(path)).json()
    assert back["status"] == "active"
    assert set(await found(api, "tea")) == {"tea", "pinned"}
    assert [one["record"]["status"] for one in await history(api, made["memory_id"])] == ["archived", "active"]
    assert back["version"] == 3
    assert (await remember(api, "coffee", 200, key="drink"))["memory_id"] == made["memory_id"], "its name works"


async def test_archives_are_purged_after_the_grace_time_and_not_before(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    made = await remember(api, "tea")
    path = f"/v1/memories/{made['memory_id']}"
    clock.move(days=200)
    await forget(service)
    clock.move(days=29.99)
    assert (await run(service, "expiry"))["archived"] == 0
    assert (await api.get(path)).status_code == 200
    clock.move(days=0.02)
    assert (await run(service, "expiry"))["archived"] == 1
    problem(await api.get(path), 404)
    assert await rows_of(service, "agent_memories") == await rows_of(service, "memory_history") == []


async def test_what_was_brought_back_by_hand_is_never_purged(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    made = await remember(api, "tea")
    path = f"/v1/memories/{made['memory_id']}"
    clock.move(days=200)
    done = await forget(service)
    assert (await api.patch(path, json={"status": "active"})).status_code == 200
    assert (await undo(service, done["operation_id"]))["status"] == "failed"
    clock.move(days=40)
    await run(service, "expiry")
    assert (await api.get(path)).json()["status"] == "active"


async def test_an_undo_is_partial_where_another_has_taken_the_place(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "tea", key="drink")
    await remember(api, "blue", key="colour")
    await remember(api, "equal")
    clock.move(days=200)
    done = await forget(service)
    await remember(api, "coffee", key="drink")
    await remember(api, "equal")
    undone = await undo(service, done["operation_id"])
    assert (undone["status"], undone["result"]) == ("partial", {"restored": 1, "not_restored": 2})
    assert sorted(await listed(api, status="active")) == ["blue", "coffee", "equal"]
    assert (await operation(api, done["operation_id"]))["status"] == "undone"


async def test_an_undo_that_restores_nothing_has_failed_and_may_be_asked_again(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "tea", key="drink")
    clock.move(days=200)
    done = await forget(service)
    taken = await remember(api, "coffee", key="drink")
    failed = await undo(service, done["operation_id"])
    assert (failed["status"], failed["result"]) == ("failed", {"restored": 0, "not_restored": 1})
    assert "was changed, replaced or deleted since" in failed["error"]
    as_before = await operation(api, done["operation_id"])
    assert (as_before["status"], as_before["can_undo"]) == ("succeeded", True)
    assert (await api.delete(f"/v1/memories/{taken['memory_id']}")).status_code == 204
    again = await undo(service, done["operation_id"])
    assert (again["status"], again["result"], again["error"]) == ("succeeded", {"restored": 1, "not_restored": 0}, None)
    assert (await operation(api, done["operation_id"]))["status"] == "undone"
    assert await listed(api, status="active") == ["tea"]


async def test_an_undo_of_what_is_gone_has_failed(service: Service, api: httpx.AsyncClient, clock: TurnedClock) -> None:
    tea = await remember(api, "tea")
    clock.move(days=200)
    done = await forget(service)
    await api.patch(f"/v1/memories/{tea['memory_id']}", json={"status": "active"})
    failed = await undo(service, done["operation_id"])
    assert (failed["status"], failed["result"]) == ("failed", {"restored": 0, "not_restored": 0})
    assert "nothing is left" in failed["error"]
    assert (await operation(api, done["operation_id"]))["status"] == "succeeded"


async def test_a_run_cut_short_goes_on_and_counts_all(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "BATCH", 20)
    await batch(api, *({"content": f"m{n}", "deduplicate": False} for n in range(30)))
    clock.move(days=200)
    archive, calls = Forgetting.archive, 0

    def failing(self: Forgetting, docs: Any, by: str) -> Any:
        nonlocal calls
        calls += 1
        if calls == 25:  # in the second batch
            raise OSError
        return archive(self, docs, by)

    monkeypatch.setattr(Forgetting, "archive", failing)
    asked = {**OWNER, "policy": {"older_than_days": 100}, "dry_run": False}
    begun = (await api.post("/v1/memories/forget", json=asked)).json()
    await work(service)
    halfway = await operation(api, begun["operation_id"])
    assert (halfway["status"], halfway["progress"]["done"]) == ("queued", 20)
    clock.move(minutes=10)
    await work(service)
    done = await operation(api, begun["operation_id"])
    assert (done["status"], done["result"]) == ("succeeded", {"archived": 30})

    bring_back, calls = Forgetting.bring_back, 0

    def failing_undo(self: Forgetting, doc: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise OSError
        return bring_back(self, doc)

    monkeypatch.setattr(Forgetting, "bring_back", failing_undo)
    undoing = (await api.post(f"/v1/operations/{begun['operation_id']}/undo")).json()
    await work(service)
    assert (await operation(api, undoing["operation_id"]))["progress"]["done"] == 11
    clock.move(minutes=10)
    await work(service)
    undone = await operation(api, undoing["operation_id"])
    assert undone["result"] == {"restored": 30, "not_restored": 0}


async def test_bound_keys_forget_what_they_may_write_and_undo_it(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "of a", user_id="u")
    await remember(api, "of b", agent_id="b", user_id="u")
    await remember(api, "of all agents", agent_id=None, user_id="u")
    bound = await service.key(agents=["a"])
    two = await service.key(agents=["a", "c"])
    reader = await service.key(verbs="read")
    whole = await service.key()
    clock.move(days=200)
    path, policy = "/v1/memories/forget", {"older_than_days": 100}
    apply = {"policy": policy, "dry_run": False, "user_id": "u"}
    problem(await api.post(path, json=apply, headers=reader), 403)
    problem(await api.post(path, json={**apply, "agent_id": "b"}, headers=bound), 403)
    problem(await api.post(path, json=apply, headers=two), 403)  # of all agents, which it may not write
    shown = await plan(api, bound, policy=policy, agent_id=None)
    assert [item["content"] for item in shown["items"]] == ["of a"]
    begun = (await api.post(path, json=apply, headers=bound)).json()
    await work(service)
    done = await operation(api, begun["operation_id"], bound)
    assert done["result"] == {"archived": 1}
    active = (await api.get("/v1/memories?status=active", headers=whole)).json()["items"]
    assert sorted(item["content"] for item in active) == ["of all agents", "of b"]
    assert (await undo(service, done["operation_id"], bound))["result"] == {"restored": 1, "not_restored": 0}


async def test_a_key_that_may_not_read_is_shown_no_plan(service: Service) -> None:
    both, writes = await service.key(), await service.key(verbs="write")
    body = {**OWNER, "policy": {"older_than_days": 0}}
    problem(await service.client.post("/v1/memories/forget", json=body, headers=writes), 403, "forbidden")
    assert (await service.client.post("/v1/memories/forget", json=body, headers=both)).status_code == 200
    applied = await service.client.post("/v1/memories/forget", json={**body, "dry_run": False}, headers=writes)
    assert applied.status_code == 202


async def test_scores_are_whole_numbers_and_texts_are_there(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await remember(api, "Prefers tea")
    clock.move(seconds=20_000)
    (item,) = (await plan(api, policy={"older_than_days": 0}))["items"]
    assert item["content"] == "Prefers tea"
    assert (item["score"], item["reasons"][0]["points"], item["reasons"][0]["detail"]) == (100, 100, "0 days old")
    assert isinstance(item["score"], int)
