"""Jobs and operations over HTTP: who may ask for what, what it is answered, and what it leads to."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.memories.schemas import MEMORIES
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter, TurnedClock
from tests.support.memories import OWNER, found, problem, remember
from tests.support.operations import forget, operation, rows, undo, work

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    """Its jobs run when a test says so."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def test_operations_are_listed_by_user(service: Service, api: httpx.AsyncClient) -> None:
    by_user = {}
    for user in ("ada", "bob"):
        asked = await api.post("/v1/jobs/consolidation/run", json={"user_id": user})
        by_user[user] = asked.json()["operation_id"]
    await api.post("/v1/jobs/decay/run", json={})
    for user, named in ({"ada": [by_user["ada"]], "bob": [by_user["bob"]], "eve": []}).items():
        page = (await api.get("/v1/operations", params={"user_id": user})).json()
        assert [item["operation_id"] for item in page["items"]] == named
    assert len((await api.get("/v1/operations")).json()["items"]) == 3


# --- Jobs -------------------------------------------------------------------------------------------------------------


async def test_jobs_are_listed(service: Service, api: httpx.AsyncClient) -> None:
    items = (await api.get("/v1/jobs")).json()["items"]
    assert {item["name"] for item in items} >= {"decay", "expiry", "retention", "embed_pending"}
    assert all(item.keys() == {"name", "schedule", "last_run", "next_run", "outcome"} for item in items)


async def test_a_job_is_run_by_hand(service: Service, api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await remember(api, "tea")
    clock.move(days=90)
    asked = await api.post("/v1/jobs/decay/run", json={})
    assert asked.status_code == 202
    queued = asked.json()
    assert (queued["kind"], queued["status"], queued["can_undo"]) == ("decay", "queued", False)
    assert await operation(api, queued["operation_id"]) == queued
    assert await work(service) == 1
    done = await operation(api, queued["operation_id"])
    assert (done["status"], done["result"], done["error"]) == ("succeeded", {"changed": 1}, None)
    problem(await api.post(f"/v1/operations/{queued['operation_id']}/undo"), 409)
    problem(await api.post("/v1/jobs/unheard-of/run", json={}), 404, "not_found")


async def test_a_run_is_idempotent(service: Service, api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    first, second = [await api.post("/v1/jobs/decay/run", json={}, headers=headers) for _ in range(2)]
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert await work(service) == 1
    narrower = {"dry_run": False, "user_id": "u"}
    problem(await api.post("/v1/jobs/decay/run", json=narrower, headers=headers), 422, "idempotency_mismatch")


async def test_a_dry_run_heeds_no_idempotency_key(service: Service, api: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    path = "/v1/jobs/decay/run"
    first, second = [(await api.post(path, json={"dry_run": True}, headers=headers)).json() for _ in range(2)]
    assert first["operation_id"] != second["operation_id"]
    assert (await api.post(path, headers=headers)).status_code == 202  # without a body: all defaults
    assert await work(service) == 3


async def test_a_run_by_hand_is_the_jobs_last(service: Service, api: httpx.AsyncClient, clock: TurnedClock) -> None:
    clock.move(days=400)
    asked = (await api.post("/v1/jobs/decay/run")).json()
    await work(service)
    ended = (await api.get(f"/v1/operations/{asked['operation_id']}")).json()
    jobs = {job["name"]: job for job in (await api.get("/v1/jobs")).json()["items"]}
    assert (jobs["decay"]["last_run"], jobs["decay"]["outcome"]) == (ended["updated_at"], "succeeded")


@pytest.mark.parametrize("name", ["decay", "expiry", "retention"])
async def test_a_dry_run_changes_nothing(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock, name: str, engine: str
) -> None:
    await remember(api, "tea", expires_at="2026-07-01T00:00:00Z")
    await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": [{"role": "user", "content": "hello"}]})
    await api.post("/v1/actions", json={**OWNER, "event_type": "tool_call", "action_type": "t", "content": "c"})
    clock.move(days=500)
    store = service.resources.store
    wanted = await rows(service)
    asked = (await api.post(f"/v1/jobs/{name}/run", json={"dry_run": True})).json()
    await work(service)
    result = (await operation(api, asked["operation_id"]))["result"]
    assert await rows(service) == wanted
    numbers = {"decay": {"memories": 2}, "expiry": {"memories": 1}, "retention": {"rolled_up": 1, "archived": 1}}[name]
    assert {key: result[key] for key in numbers} == numbers
    assert store.name == engine


@pytest.mark.parametrize("dry_run", [False, True])
async def test_decay_runs_for_one_agent_or_user(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock, *, dry_run: bool
) -> None:
    for agent, user in (("a", "u"), ("a", "v"), ("b", "u")):
        await remember(api, "tea", agent_id=agent, user_id=user)
    clock.move(days=90)
    bound = await service.key(verbs="read,write,admin", agents=["b"])
    admin = await service.key(verbs="read,write,admin")
    runs = [({"agent_id": "a", "user_id": "v"}, admin, 1), ({"agent_id": "b"}, bound, 1), ({"user_id": "u"}, admin, 1)]
    for owner, headers, changed in runs:
        asked = (await api.post("/v1/jobs/decay/run", json={"dry_run": dry_run, **owner}, headers=headers)).json()
        assert asked["agent_id"] == owner.get("agent_id")
        await work(service)
        result = (await operation(api, asked["operation_id"], headers))["result"]
        if dry_run:
            assert result["memories"] == (2 if owner == {"user_id": "u"} else 1)
        else:
            assert result == {"changed": changed}
    others = await api.post("/v1/jobs/decay/run", json={"agent_id": "a"}, headers=bound)
    problem(others, 403, "forbidden")


async def test_only_admin_keys_see_and_run_jobs(service: Service, api: httpx.AsyncClient) -> None:
    writer, admin = await service.key(), await service.key(verbs="admin")
    bound = await service.key(verbs="read,write,admin", agents=["a"])
    for headers, status in ((writer, 403), (admin, 200), (bound, 200)):
        assert (await api.get("/v1/jobs", headers=headers)).status_code == status
    run = [(writer, 403), (bound, 403), (admin, 202)]  # it works on all of the tenant, more than a bound key may
    for headers, status in run:
        assert (await api.post("/v1/jobs/decay/run", json={}, headers=headers)).status_code == status
    assert (await api.get("/v1/jobs")).status_code == 401


async def test_a_job_run_by_hand_stays_in_the_tenant(service: Service, api: httpx.AsyncClient) -> None:
    keys = {tenant: await service.key(tenant, "read,write,admin") for tenant in ("one", "two")}
    for headers in keys.values():
        body = {**OWNER, "content": "tea", "expires_at": "2026-07-01T00:00:00Z"}
        assert (await api.post("/v1/memories", json=body, headers=headers)).status_code == 201
    service.clock.move(days=60)
    asked = (await api.post("/v1/jobs/expiry/run", json={}, headers=keys["one"])).json()
    await work(service)
    done = await operation(api, asked["operation_id"], keys["one"])
    assert done["result"]["memories"] == 1
    left = await service.resources.store.find(MEMORIES, None)
    assert [doc["tenant_id"] for doc in left] == ["two"]


# --- Operations -------------------------------------------------------------------------------------------------------


async def test_operations_of_others_do_not_exist(service: Service, api: httpx.AsyncClient) -> None:
    mine = await service.key("one")
    other = await service.key("two", "read,write,admin")
    bound = await service.key("one", agents=["another"])
    done = await forget(service, mine)
    path = f"/v1/operations/{done['operation_id']}"
    for headers in (other, bound):
        for response in (await api.get(path, headers=headers), await api.post(f"{path}/undo", headers=headers)):
            body = problem(response, 404, "not_found")
            assert done["operation_id"] not in str({k: v for k, v in body.items() if k != "instance"})
        assert (await api.get("/v1/operations", headers=headers)).json()["items"] == []
    assert [item["operation_id"] for item in (await api.get("/v1/operations", headers=mine)).json()["items"]] == [
        done["operation_id"]
    ]


async def test_operations_are_paged_newest_first(service: Service, api: httpx.AsyncClient) -> None:
    made = [(await api.post("/v1/jobs/decay/run", json={})).json()["operation_id"] for _ in range(5)]
    first = (await api.get("/v1/operations?limit=3")).json()
    second = (await api.get(f"/v1/operations?limit=3&cursor={first['next_cursor']}")).json()
    assert [item["operation_id"] for item in [*first["items"], *second["items"]]] == made[::-1]
    assert second["next_cursor"] is None
    problem(await api.get("/v1/operations?cursor=abc"), 400)


async def test_undone_twice_is_a_conflict_also_while_the_first_is_under_way(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "tea")
    clock.move(days=200)
    done = await forget(service)
    path = f"/v1/operations/{done['operation_id']}"
    assert done["can_undo"] is True
    assert (await api.post(f"{path}/undo")).status_code == 202
    problem(await api.post(f"{path}/undo"), 409)
    assert (await api.get(path)).json()["can_undo"] is False
    await work(service)
    after = (await api.get(path)).json()
    assert (after["status"], after["can_undo"]) == ("undone", False)
    problem(await api.post(f"{path}/undo"), 409)
    assert await found(api, "tea") == ["tea"]


async def test_undo_may_be_asked_again_when_it_failed_for_good(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remember(api, "tea")
    clock.move(days=200)
    done = await forget(service)

    async def broken(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr("app.retention.service.ForgettingJobs.undo", broken)
        begun = (await api.post(f"/v1/operations/{done['operation_id']}/undo")).json()
        for _ in range(8):
            await work(service)
            clock.move(minutes=20)
    failed = await operation(api, begun["operation_id"])
    assert (failed["status"], failed["error"]) == ("failed", "RuntimeError")
    assert (await undo(service, done["operation_id"]))["result"] == {"restored": 1, "not_restored": 0}


async def test_undo_is_not_offered_once_what_it_would_bring_back_may_be_purged(
    service: Service, api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "tea")
    clock.move(days=200)
    done = await forget(service)
    path = f"/v1/operations/{done['operation_id']}"
    clock.move(days=29.9)
    assert (await api.get(path)).json()["can_undo"] is True
    clock.move(days=0.1)
    assert (await api.get(path)).json()["can_undo"] is False
    problem(await api.post(f"{path}/undo"), 409)
