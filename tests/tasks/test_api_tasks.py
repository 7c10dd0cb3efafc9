"""Tasks: how they begin, change, end and go."""

import asyncio
from itertools import product
from typing import Any

import httpx
import pytest

from tests.conftest import Service, TurnedClock
from tests.support.memories import STRANGERS, Json, problem
from tests.support.tasks import OWNER, TASK, begin, checkpoints, move, note, send, task

pytestmark = pytest.mark.anyio

STATUSES = ("pending", "in_progress", "completed", "failed", "cancelled")
WAY: dict[str, tuple[str, ...]] = {
    "pending": (),
    "in_progress": ("in_progress",),
    "completed": ("in_progress", "completed"),
    "failed": ("in_progress", "failed"),
    "cancelled": ("in_progress", "cancelled"),
}
ALLOWED = {("pending", "in_progress"), ("failed", "in_progress")} | {
    (old, end) for old in ("pending", "in_progress") for end in ("completed", "failed", "cancelled")
}
HOSTILE: Json = {"a.b": 1, "$set": {"$inc": 1}, "": "empty", "ключ": [None], "__proto__": {}, "a/b~0": "1", "\u2028": 0}


async def test_a_new_task_has_all_its_fields(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "task_id": "t", "goal": "g", "session_id": "s", "context": HOSTILE, "metadata": HOSTILE}
    plan: list[Json] = [{"action": "search", "params": HOSTILE}, {"action": "read", "step": 7, "status": "skipped"}]
    made = await api.post("/v1/tasks", json={**body, "plan": plan})
    assert made.status_code == 201
    found = made.json()
    assert {name: found[name] for name in body} == body
    assert found["plan"] == [
        {"step": 1, "action": "search", "params": HOSTILE, "status": "pending", "result": None},
        {"step": 7, "action": "read", "params": {}, "status": "skipped", "result": None},
    ]
    assert (found["status"], found["version"], found["expires_at"]) == ("pending", 1, None)
    assert (found["scratchpad"], found["evidence"]) == ([], [])
    assert (found["max_tokens"], found["checkpoint_every"]) == (8000, 0)
    got = await api.get(TASK)
    assert (got.json(), got.headers["etag"]) == (found, '"1"')
    assert made.headers["etag"] == '"1"'
    assert "tenant_id" not in found


async def test_an_id_is_made_up_where_none_is_given(api: httpx.AsyncClient) -> None:
    made = (await api.post("/v1/tasks", json={"agent_id": "a", "goal": "g"})).json()
    assert made["task_id"].startswith("task_")
    assert (await task(api, f"/v1/tasks/{made['task_id']}"))["user_id"] is None


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"agent_id": None}, "/agent_id"),
        ({"agent_id": "a/b"}, "/agent_id"),
        ({"goal": " \n"}, "/goal"),
        ({"goal": None}, "/goal"),
        ({"status": "completed"}, "/status"),
        ({"max_tokens": 0}, "/max_tokens"),
        ({"max_tokens": "8"}, "/max_tokens"),
        ({"checkpoint_every": -1}, "/checkpoint_every"),
        ({"expires_at": "2027-01-01T00:00:00"}, "/expires_at"),
        ({"plan": [{"action": ""}]}, "/plan/0/action"),
        ({"plan": [{"action": "x"}] * 501}, "/plan"),
        ({"context": {str(at): at for at in range(257)}}, "/context"),
        ({"scratchpad": []}, "/scratchpad"),
        ({"version": 1}, "/version"),
    ],
)
async def test_bad_fields_are_named_and_nothing_is_kept(api: httpx.AsyncClient, fields: Json, pointer: str) -> None:
    made = await api.post("/v1/tasks", json={"task_id": "t", "goal": "g", **OWNER, **fields})
    problem(made, 422, "invalid", pointer)
    problem(await api.get(TASK), 404, "not_found")


async def test_an_id_is_taken_once_and_the_answer_names_nobody(api: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(api.post("/v1/tasks", json={"task_id": "t", "goal": "g", "agent_id": f"a{at}"}) for at in range(8))
    )
    assert sorted(made.status_code for made in answers) == [201] + [409] * 7
    for made in answers:
        if made.status_code == 409:
            assert problem(made, 409, "already_exists")["detail"] == "That task_id is taken."


async def test_tasks_are_listed_by_owner_session_and_status(api: httpx.AsyncClient) -> None:
    await begin(api, "one", session_id="s")
    await begin(api, "two", user_id="u2", status="in_progress")
    await begin(api, "three", agent_id="a2", user_id=None)

    async def listed(**params: Any) -> list[str]:
        return [one["task_id"] for one in (await api.get("/v1/tasks", params=params)).json()["items"]]

    assert await listed() == ["three", "two", "one"]
    assert await listed(order="asc", limit=2) == ["one", "two"]
    assert await listed(agent_id="a") == ["two", "one"]
    assert await listed(user_id="u") == ["one"]
    assert await listed(session_id="s") == ["one"]
    assert await listed(status="in_progress") == ["two"]
    assert await listed(status="failed") == []
    problem(await api.get("/v1/tasks", params={"status": "gone"}), 422, "invalid")


async def test_a_list_goes_page_by_page_and_its_cursor_belongs_to_its_filters(api: httpx.AsyncClient) -> None:
    for at in range(5):
        await begin(api, f"t{at}")
    seen: list[str] = []
    params: Json = {"limit": 2, "agent_id": "a"}
    while True:
        page = (await api.get("/v1/tasks", params=params)).json()
        seen += [one["task_id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == ["t4", "t3", "t2", "t1", "t0"]
    problem(await api.get("/v1/tasks", params={**params, "agent_id": "b"}), 400, "invalid_cursor")


async def test_a_patch_sets_what_it_names_and_null_clears(api: httpx.AsyncClient) -> None:
    await begin(api, session_id="s", expires_at="2027-01-01T00:00:00Z", metadata={"a": 1})
    patched = await send(api, "PATCH", "", {"goal": "another", "metadata": {"b": 2}})
    assert (patched["goal"], patched["metadata"], patched["version"]) == ("another", {"b": 2}, 2)
    assert (patched["session_id"], patched["expires_at"]) == ("s", "2027-01-01T00:00:00.000Z")
    cleared = await send(api, "PATCH", "", {"session_id": None, "expires_at": None})
    assert (cleared["session_id"], cleared["expires_at"], cleared["version"]) == (None, None, 3)
    assert (await send(api, "PATCH", "", {}))["version"] == 3
    assert (await send(api, "PATCH", "", {"metadata": None}))["metadata"] == {}
    wrong: list[Json] = [{"goal": None}, {"max_tokens": None}, {"status": None}, {"user_id": "x"}, {"context": {}}]
    for bad in wrong:
        problem(await api.patch(TASK, json=bad), 422, "invalid", f"/{next(iter(bad))}")


async def test_true_and_1_and_1_0_are_different_values(api: httpx.AsyncClient) -> None:
    """Python holds them for equal: a change from one to another would be lost."""
    await begin(api, metadata={"on": 1}, context={"on": 1, "deep": {"list": [0]}}, plan=[{"action": "x", "result": 1}])
    assert repr((await send(api, "PATCH", "", {"metadata": {"on": True}}))["metadata"]) == "{'on': True}"
    merged = await send(api, "PATCH", "/context", {"on": 1.0, "deep": {"list": [False]}})
    assert repr(merged["context"]) == "{'on': 1.0, 'deep': {'list': [False]}}"
    assert repr((await send(api, "PATCH", "/plan/0", {"result": True}))["plan"][0]["result"]) == "True"
    assert (await task(api))["version"] == 4


async def test_a_status_moves_by_the_table_and_no_other_way(api: httpx.AsyncClient) -> None:
    for old, new in product(STATUSES, STATUSES):
        path = f"/v1/tasks/{old}-{new}"
        await begin(api, f"{old}-{new}")
        for status in WAY[old]:
            await api.patch(path, json={"status": status})
        before = await task(api, path)
        assert before["status"] == old
        answered = await api.patch(path, json={"status": new, "goal": "changed"})
        if (old, new) in ALLOWED or old == new:
            assert (answered.status_code, answered.json()["status"]) == (200, new)
        else:
            detail = problem(answered, 409, "illegal_transition")["detail"]
            named = {status for status in STATUSES if status in detail.partition("Allowed: ")[2]}
            assert named == {to for since, to in ALLOWED if since == old}
            assert await task(api, path) == before


async def test_the_status_it_has_already_changes_nothing(api: httpx.AsyncClient) -> None:
    await begin(api)
    ended = await move(api, "in_progress", "completed")
    assert await move(api, "completed") == ended


async def test_if_match_guards_every_write(api: httpx.AsyncClient) -> None:
    await begin(api, plan=[{"action": "x"}])
    await send(api, "POST", "/checkpoints", {}, 201)
    await move(api, "in_progress")
    before = await task(api)
    stale = {"If-Match": '"1"'}
    for method, path, body in (
        ("PATCH", "", {"goal": "y"}),
        ("PATCH", "/context", {"x": 1}),
        ("PUT", "/plan", {"plan": []}),
        ("PATCH", "/plan/0", {"status": "completed"}),
        ("POST", "/scratchpad", {"content": "x"}),
        ("POST", "/evidence", {"source": "x", "content": "y"}),
        ("POST", "/checkpoints", {}),
        ("POST", "/restore", {"seq": 1}),
        ("DELETE", "", None),
    ):
        problem(await api.request(method, TASK + path, json=body, headers=stale), 412, "precondition_failed")
    assert await task(api) == before
    assert len(await checkpoints(api)) == 1
    assert (await api.delete(TASK, headers={"If-Match": '"2"'})).status_code == 204


async def test_every_write_answers_the_version_that_can_be_sent_back(api: httpx.AsyncClient) -> None:
    await begin(api, plan=[{"action": "x"}])
    for at, (method, path, body) in enumerate(
        (
            ("PATCH", "", {"goal": "y"}),
            ("PATCH", "/context", {"x": 1}),
            ("PUT", "/plan", {"plan": [{"action": "y"}]}),
            ("PATCH", "/plan/0", {"status": "completed"}),
            ("POST", "/scratchpad", {"content": "x"}),
            ("POST", "/evidence", {"source": "x", "content": "y"}),
        ),
        2,
    ):
        answered = await api.request(method, TASK + path, json=body, headers={"If-Match": f'"{at - 1}"'})
        assert (answered.status_code in (200, 201), answered.headers["etag"]) == (True, f'"{at}"')
        assert (await task(api))["version"] == at


async def test_a_context_has_a_limit_across_patches(api: httpx.AsyncClient) -> None:
    """Each patch is small; what they add up to is not."""
    await begin(api)
    for at in range(8):
        assert (await api.patch(f"{TASK}/context", json={f"k{at}": "x" * 32_000})).status_code == 200
    refused = problem(await api.patch(f"{TASK}/context", json={"more": "x" * 32_000}), 422, "invalid", "")
    assert refused["detail"] == "context would have 288075 bytes as JSON: at most 262144 are kept"
    assert "more" not in (await task(api))["context"]
    assert (await api.patch(f"{TASK}/context", json={"k0": None, "more": "x" * 32_000})).status_code == 200
    large = {f"k{at}": "x" * 32_000 for at in range(9)}
    made = await api.post("/v1/tasks", json={"task_id": "large", "goal": "g", **OWNER, "context": large})
    problem(made, 422, "invalid", "/context")


async def test_of_concurrent_conditional_writes_exactly_one_wins(api: httpx.AsyncClient) -> None:
    await begin(api)
    answers = await asyncio.gather(
        *(api.patch(f"{TASK}/context", json={"by": at}, headers={"If-Match": '"1"'}) for at in range(40))
    )
    won = [answer.json() for answer in answers if answer.status_code == 200]
    assert len(won) == 1
    assert sum(answer.status_code == 412 for answer in answers) == 39
    assert await task(api) == won[0]


async def test_concurrent_context_patches_of_different_keys_all_land(api: httpx.AsyncClient) -> None:
    await begin(api)
    answers = await asyncio.gather(*(api.patch(f"{TASK}/context", json={f"k{at}": at}) for at in range(25)))
    assert {answer.status_code for answer in answers} == {200}
    found = await task(api)
    assert (found["context"], found["version"]) == ({f"k{at}": at for at in range(25)}, 26)


async def test_concurrent_writes_of_different_parts_all_land(api: httpx.AsyncClient) -> None:
    await begin(api, plan=[{"action": "x"}])
    await asyncio.gather(
        send(api, "PATCH", "/plan/0", {"status": "completed"}),
        *(note(api, f"note {at}") for at in range(8)),
        *(send(api, "POST", "/evidence", {"source": "s", "content": str(at)}, 201) for at in range(8)),
        *(send(api, "POST", "/checkpoints", {}, 201) for _ in range(8)),
    )
    found = await task(api)
    assert (len(found["scratchpad"]), len(found["evidence"]), found["plan"][0]["status"]) == (8, 8, "completed")
    assert sorted(one["seq"] for one in await checkpoints(api)) == list(range(1, 9))


async def test_a_deleted_task_is_gone_with_its_checkpoints(api: httpx.AsyncClient) -> None:
    await begin(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    assert (await api.delete(TASK)).status_code == 204
    for path in ("", "/working-memory", "/checkpoints", "/checkpoints/1", "/checkpoints/-1"):
        problem(await api.get(TASK + path), 404, "not_found")
    problem(await api.delete(TASK), 404, "not_found")
    await begin(api)
    assert await checkpoints(api) == []


async def test_a_task_is_kept_thirty_days_after_its_end(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await begin(api)
    clock.move(days=400)
    assert (await task(api))["expires_at"] is None  # one that goes on is never too old
    await move(api, "in_progress")
    clock.time = clock.time.replace(year=2027, month=8, day=1, hour=0, minute=0, second=0, microsecond=0)
    ended = await move(api, "completed")
    assert ended["expires_at"].startswith("2027-08-31T00:00:00.")
    clock.move(days=29, hours=23, minutes=59)
    await task(api)
    clock.move(minutes=1, seconds=1)
    for answer in (
        await api.get(TASK),
        await api.patch(TASK, json={"goal": "x"}),
        await api.patch(f"{TASK}/context", json={"x": 1}),
        await api.post(f"{TASK}/checkpoints", json={}),
        await api.get(f"{TASK}/checkpoints"),
        await api.post(f"{TASK}/restore", json={"seq": -1}),
        await api.get(f"{TASK}/working-memory"),
        await api.delete(TASK),
    ):
        problem(answer, 404, "not_found")
    assert (await api.get("/v1/tasks")).json()["items"] == []


async def test_a_failed_task_that_goes_on_does_not_expire(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await begin(api)
    failed = await move(api, "in_progress", "failed")
    assert failed["expires_at"] is not None
    assert (await move(api, "in_progress"))["expires_at"] is None
    clock.move(days=100)
    assert (await task(api))["status"] == "in_progress"


async def test_a_time_that_the_caller_sets_stands_when_the_task_ends(api: httpx.AsyncClient) -> None:
    await begin(api, expires_at="2030-01-01T00:00:00Z")
    assert (await move(api, "in_progress", "completed"))["expires_at"] == "2030-01-01T00:00:00.000Z"
    await begin(api, "other", status="in_progress")
    both = {"status": "cancelled", "expires_at": "2031-01-01T00:00:00Z"}
    answered = await api.patch("/v1/tasks/other", json=both)
    assert answered.json()["expires_at"] == "2031-01-01T00:00:00.000Z"


async def test_an_expired_id_can_be_used_again_and_starts_empty(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await begin(api, expires_at="2026-06-02T00:00:00Z", context={"old": 1})
    await send(api, "POST", "/checkpoints", {"label": "old"}, 201)
    clock.move(days=1)
    found = await begin(api)
    assert (found["context"], found["version"]) == ({}, 1)
    assert await checkpoints(api) == []
    problem(await api.get(f"{TASK}/checkpoints/-1"), 404, "not_found")


@pytest.mark.parametrize("binding", STRANGERS)
async def test_what_is_not_yours_does_not_exist(service: Service, binding: str) -> None:
    api, owner = service.client, await service.key()
    stranger = await service.key(**STRANGERS[binding])
    body = {**OWNER, "task_id": "t", "goal": "secret", "plan": [{"action": "x"}]}
    await api.post("/v1/tasks", json=body, headers=owner)
    await api.post(f"{TASK}/checkpoints", json={}, headers=owner)
    before = (await api.get(TASK, headers=owner)).json()
    for method, path, sent in (
        ("GET", "", None),
        ("PATCH", "", {"goal": "mine"}),
        ("PATCH", "/context", {"x": 1}),
        ("PUT", "/plan", {"plan": []}),
        ("PATCH", "/plan/0", {"status": "completed"}),
        ("POST", "/scratchpad", {"content": "x"}),
        ("POST", "/evidence", {"source": "x", "content": "y"}),
        ("GET", "/working-memory", None),
        ("POST", "/checkpoints", {}),
        ("GET", "/checkpoints", None),
        ("GET", "/checkpoints/1", None),
        ("GET", "/checkpoints/-1", None),
        ("POST", "/restore", {"seq": 1}),
        ("DELETE", "", None),
    ):
        answers = [
            await api.request(method, f"/v1/tasks/{task_id}{path}", json=sent, headers=stranger)
            for task_id in ("t", "none")
        ]
        found, absent = (problem(answer, 404, "not_found") for answer in answers)
        assert found["detail"] == absent["detail"]
    assert (await api.get("/v1/tasks", headers=stranger)).json()["items"] == []
    assert (await api.get(TASK, headers=owner)).json() == before
    assert len((await api.get(f"{TASK}/checkpoints", headers=owner)).json()["items"]) == 1


async def test_another_tenant_may_use_the_same_id(service: Service) -> None:
    api, mine, theirs = service.client, await service.key(), await service.key(tenant="other")
    for headers, goal in ((mine, "mine"), (theirs, "theirs")):
        made = await api.post("/v1/tasks", json={**OWNER, "task_id": "t", "goal": goal}, headers=headers)
        assert made.status_code == 201
        assert (await api.post(f"{TASK}/checkpoints", json={}, headers=headers)).json()["seq"] == 1
    assert (await api.get(TASK, headers=mine)).json()["goal"] == "mine"


async def test_a_bound_key_takes_no_id_of_others_and_writes_nothing_outside(service: Service) -> None:
    api, owner, bound = service.client, await service.key(), await service.key(users=["v"])
    await api.post("/v1/tasks", json={**OWNER, "task_id": "t", "goal": "g"}, headers=owner)
    taken = await api.post(
        "/v1/tasks", json={"agent_id": "a", "user_id": "v", "task_id": "t", "goal": "g"}, headers=bound
    )
    assert "u" not in problem(taken, 404, "not_found")["detail"].split()
    for user in (None, "u"):
        made = await api.post("/v1/tasks", json={"agent_id": "a", "user_id": user, "goal": "g"}, headers=bound)
        problem(made, 403, "forbidden")


async def test_a_callers_own_time_outlives_a_failure(api: httpx.AsyncClient) -> None:
    own = "2030-01-01T00:00:00.000Z"
    await begin(api, expires_at=own)
    assert (await move(api, "in_progress", "failed"))["expires_at"] == own
    assert (await move(api, "in_progress"))["expires_at"] == own
    await begin(api, "late")
    for fields in ({"status": "in_progress"}, {"status": "failed"}, {"expires_at": own}, {"status": "in_progress"}):
        assert (await api.patch("/v1/tasks/late", json=fields)).status_code == 200
    late = await task(api, "/v1/tasks/late")
    assert late["expires_at"] == own
    assert "kept_after_end" not in late


async def test_steps_are_counted_as_the_caller_counts(api: httpx.AsyncClient) -> None:
    made = await begin(api, plan=[{"step": 0, "action": "a"}, {"action": "b"}, {"step": 7.0, "action": "c"}])
    assert [one["step"] for one in made["plan"]] == [0, 2, 7]
