"""Checkpoints and the way back to them."""

import asyncio
from typing import Any

import httpx
import pytest

from app.tasks.schemas import TASKS
from tests.conftest import Service, TurnedClock
from tests.support.memories import Json, problem
from tests.support.tasks import STATE, TASK, begin, checkpoints, move, note, send, task

pytestmark = pytest.mark.anyio


def state_of(found: Json) -> Json:
    return {part: found[part] for part in STATE}


async def worked(api: httpx.AsyncClient) -> Json:
    """A task with something of everything."""
    await begin(api, plan=[{"action": "one"}], context={"a.b": {"$x": 1}})
    await note(api, "a note")
    await send(api, "POST", "/evidence", {"source": "s", "content": "c"}, 201)
    return await move(api, "in_progress")


async def change(api: httpx.AsyncClient) -> Json:
    """Every part of the state made another."""
    await send(api, "PATCH", "/plan/0", {"status": "completed", "result": "r"})
    await send(api, "PATCH", "/context", {"a.b": None, "c": 2})
    await note(api, "another")
    await send(api, "POST", "/evidence", {"source": "s", "content": "d"}, 201)
    return await move(api, "failed")


async def test_a_checkpoint_keeps_the_state_and_leaves_the_task_as_it_is(api: httpx.AsyncClient) -> None:
    before = await worked(api)
    made = await send(api, "POST", "/checkpoints", {"label": "so far"}, 201)
    assert (made["seq"], made["label"], made["reason"], made["restored_seq"]) == (1, "so far", "asked", None)
    assert made["state"] == state_of(before)
    assert await task(api) == before
    await change(api)
    assert await send(api, "GET", "/checkpoints/1") == made  # it does not follow


async def test_checkpoints_are_numbered_without_gaps_and_listed_newest_first(api: httpx.AsyncClient) -> None:
    await begin(api)
    made = await asyncio.gather(*(send(api, "POST", "/checkpoints", {}, 201) for _ in range(12)))
    assert sorted(one["seq"] for one in made) == list(range(1, 13))
    assert [one["seq"] for one in await checkpoints(api)] == list(range(12, 0, -1))
    page = await send(api, "GET", "/checkpoints?order=asc&limit=5")
    assert [one["seq"] for one in page["items"]] == [1, 2, 3, 4, 5]
    rest = await send(api, "GET", f"/checkpoints?order=asc&limit=10&cursor={page['next_cursor']}")
    assert [one["seq"] for one in rest["items"]] == list(range(6, 13))
    assert (await send(api, "GET", "/checkpoints/-1"))["seq"] == 12
    assert (await send(api, "GET", "/checkpoints/7"))["seq"] == 7


@pytest.mark.parametrize(("seq", "status"), [("0", 404), ("2", 404), ("-2", 422), ("x", 422), ("9" * 40, 422)])
async def test_a_checkpoint_that_is_not_there_is_said(api: httpx.AsyncClient, seq: str, status: int) -> None:
    await begin(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    problem(await api.get(f"{TASK}/checkpoints/{seq}"), status)


async def test_checkpoints_are_documents_of_their_own_and_of_one_task(service: Service) -> None:
    api = service.client
    await begin(api)
    await begin(api, "other")
    for _ in range(3):
        await send(api, "POST", "/checkpoints", {}, 201)
    stored = await service.resources.store.get(TASKS, "default", "t")
    assert stored is not None
    assert not any("checkpoint" in name for name in stored if name != "checkpoint_every")
    assert (await api.post("/v1/tasks/other/checkpoints", json={})).json()["seq"] == 1
    assert len(await checkpoints(api)) == 3
    problem(await api.get("/v1/tasks/other/checkpoints/2"), 404, "not_found")


async def test_checkpoints_are_kept_after_each_n_completed_steps(api: httpx.AsyncClient) -> None:
    await begin(api, checkpoint_every=2, plan=[{"action": str(at)} for at in range(6)])
    for at in range(5):
        await send(api, "PATCH", f"/plan/{at}", {"status": "in_progress"})
        await send(api, "PATCH", f"/plan/{at}", {"status": "completed"})
    await send(api, "PATCH", "/plan/5", {"status": "skipped"})
    second, first = await checkpoints(api)
    assert [(one["seq"], one["reason"]) for one in (first, second)] == [(1, "steps"), (2, "steps")]
    done = [[step["status"] for step in one["state"]["plan"]].count("completed") for one in (first, second)]
    assert done == [2, 4]  # the step that made it is in it
    await send(api, "PATCH", "/plan/3", {"status": "completed"})  # as it is already
    await send(api, "PATCH", "/plan/3", {"result": "late"})
    assert len(await checkpoints(api)) == 2


async def test_without_a_number_no_checkpoint_is_kept_on_the_way(api: httpx.AsyncClient) -> None:
    await begin(api, plan=[{"action": "x"}])
    await send(api, "PATCH", "/plan/0", {"status": "completed"})
    assert await checkpoints(api) == []


@pytest.mark.parametrize("seq", [1, -1])
async def test_a_restore_brings_the_whole_state_back_and_loses_nothing(api: httpx.AsyncClient, seq: int) -> None:
    before = await worked(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    changed = await change(api)
    restored = await send(api, "POST", "/restore", {"seq": seq})
    assert state_of(restored) == state_of(before)
    assert restored["version"] == changed["version"] + 1
    assert restored == await task(api)
    assert {name: restored[name] for name in ("goal", "metadata", "expires_at")} == {
        name: before[name] for name in ("goal", "metadata", "expires_at")
    }
    after, prior, first = await checkpoints(api)
    assert (first["seq"], first["reason"], first["state"]) == (1, "asked", state_of(before))
    assert (prior["seq"], prior["reason"], prior["state"]) == (2, "before_restore", state_of(changed))
    assert (after["seq"], after["reason"], after["restored_seq"]) == (3, "restore", 1)
    assert after["state"] == state_of(before)


async def test_a_restore_can_be_taken_back_and_done_twice(api: httpx.AsyncClient) -> None:
    before = await worked(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    changed = await change(api)
    await send(api, "POST", "/restore", {"seq": 1})
    assert state_of(await send(api, "POST", "/restore", {"seq": 1})) == state_of(before)
    assert state_of(await send(api, "POST", "/restore", {"seq": 2})) == state_of(changed)
    assert [one["seq"] for one in await checkpoints(api)] == list(range(7, 0, -1))


async def test_the_latest_is_the_default(api: httpx.AsyncClient) -> None:
    before = await worked(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    await change(api)
    assert state_of(await send(api, "POST", "/restore", {})) == state_of(before)


@pytest.mark.parametrize("body", [{"seq": 2}, {"seq": 0}, {"seq": 2**31 - 1}])
async def test_a_missing_checkpoint_changes_nothing(api: httpx.AsyncClient, body: Json) -> None:
    await worked(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    before, kept = await change(api), await checkpoints(api)
    problem(await api.post(f"{TASK}/restore", json=body), 404, "not_found")
    assert (await task(api), await checkpoints(api)) == (before, kept)


async def test_without_any_checkpoint_there_is_no_latest(api: httpx.AsyncClient) -> None:
    before = await worked(api)
    problem(await api.post(f"{TASK}/restore", json={}), 404, "not_found")
    assert (await task(api), await checkpoints(api)) == (before, [])


@pytest.mark.parametrize("seq", [-2, "1", 1.5, None, True])
async def test_a_seq_is_a_number(api: httpx.AsyncClient, seq: Any) -> None:
    await begin(api)
    problem(await api.post(f"{TASK}/restore", json={"seq": seq}), 422, "invalid", "/seq")


async def test_a_restored_scratchpad_stays_within_a_bound_that_was_lowered(api: httpx.AsyncClient) -> None:
    await begin(api)
    for priority in (0.0, 1.0):
        await note(api, "three words here", priority)
    kept = await send(api, "POST", "/checkpoints", {}, 201)
    size = kept["state"]["scratchpad"][0]["tokens"]
    await send(api, "PATCH", "", {"max_tokens": size})
    restored = await send(api, "POST", "/restore", {"seq": 1})
    assert [one["priority"] for one in restored["scratchpad"]] == [1.0]
    assert await send(api, "GET", "/checkpoints/1") == kept


async def test_restored_evidence_stays_within_a_bound_that_was_lowered(api: httpx.AsyncClient) -> None:
    await begin(api)
    for at in range(2):
        await send(api, "POST", "/evidence", {"source": "web", "content": f"fact {at}"}, 201)
    kept = await send(api, "POST", "/checkpoints", {}, 201)
    await send(api, "PATCH", "", {"max_tokens": kept["state"]["evidence"][1]["tokens"]})
    restored = await send(api, "POST", "/restore", {"seq": 1})
    assert [one["content"] for one in restored["evidence"]] == ["fact 1"]
    assert await send(api, "GET", "/checkpoints/1") == kept


async def test_a_restore_leaves_the_time_that_a_caller_set(api: httpx.AsyncClient) -> None:
    await begin(api, expires_at="2030-01-01T00:00:00Z")
    await send(api, "POST", "/checkpoints", {}, 201)
    assert (await send(api, "POST", "/restore", {}))["expires_at"] == "2030-01-01T00:00:00.000Z"


async def test_a_task_restored_to_its_end_expires_and_one_restored_from_it_does_not(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await begin(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    await move(api, "in_progress", "failed")
    await send(api, "POST", "/checkpoints", {}, 201)
    assert (await move(api, "in_progress"))["expires_at"] is None
    ended = await send(api, "POST", "/restore", {"seq": 2})
    assert (ended["status"], ended["expires_at"] is None) == ("failed", False)
    again = await send(api, "POST", "/restore", {"seq": 1})
    assert (again["status"], again["expires_at"]) == ("pending", None)
    clock.move(days=31)
    await task(api)


async def test_concurrent_restores_and_notes_lose_nothing(api: httpx.AsyncClient) -> None:
    await worked(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    answers = await asyncio.gather(
        *(note(api, f"late {at}") for at in range(6)), *(send(api, "POST", "/restore", {"seq": 1}) for _ in range(3))
    )
    written = {answer["note"]["id"] for answer in answers[:6]}
    found = await checkpoints(api)
    assert [one["seq"] for one in found] == list(range(7, 0, -1))
    kept = [one["state"]["scratchpad"] for one in found] + [(await task(api))["scratchpad"]]
    assert written <= {entry["id"] for notes in kept for entry in notes}


async def test_a_plan_that_completes_steps_leaves_a_checkpoint_too(api: httpx.AsyncClient) -> None:
    await begin(api, checkpoint_every=2, plan=[{"action": str(at)} for at in range(5)])

    async def done(count: int) -> int:
        plan = [{"action": str(at), "status": "completed" if at < count else "pending"} for at in range(5)]
        await send(api, "PUT", "/plan", {"plan": plan})
        return len(await checkpoints(api))

    assert [await done(count) for count in (1, 3, 3, 2, 5)] == [0, 1, 1, 1, 2]


async def test_a_checkpoint_needs_no_body(api: httpx.AsyncClient) -> None:
    await begin(api)
    made = await api.post(f"{TASK}/checkpoints")
    assert (made.status_code, made.json()["label"]) == (201, None)
    assert (await api.post(f"{TASK}/restore")).status_code == 200


# --- Open questions, and tasks that are over --------------------------------------------------------------------------


async def test_open_questions_come_back_with_a_checkpoint(api: httpx.AsyncClient) -> None:
    await begin(api, open_questions=["Who signs?"])
    made = await send(api, "POST", "/checkpoints", {}, 201)
    assert made["state"]["open_questions"] == ["Who signs?"]
    await send(api, "PATCH", "", {"open_questions": ["When?", "Where?"]})
    assert (await send(api, "POST", "/restore", {"seq": 1}))["open_questions"] == ["Who signs?"]
    assert (await send(api, "POST", "/restore", {"seq": 2}))["open_questions"] == ["When?", "Where?"]
    assert "Where?" in (await send(api, "GET", "/working-memory"))["text"]


@pytest.mark.parametrize("end", ["completed", "cancelled"])
async def test_a_task_that_is_over_is_restored_only_where_that_is_meant(api: httpx.AsyncClient, end: str) -> None:
    before = await worked(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    over, kept = await move(api, end), await checkpoints(api)
    for body in ({}, {"seq": 1}, {"reopen": False}):
        refused = problem(await api.post(f"{TASK}/restore", json=body), 409, "conflict")
        assert "reopen" in refused["detail"]
    assert (await task(api), await checkpoints(api)) == (over, kept)
    restored = await send(api, "POST", "/restore", {"seq": 1, "reopen": True})
    assert state_of(restored) == state_of(before)
    assert restored["expires_at"] is None
    await move(api, "completed")


async def test_a_task_that_goes_on_needs_no_reopening(api: httpx.AsyncClient) -> None:
    await worked(api)
    await send(api, "POST", "/checkpoints", {}, 201)
    await move(api, "failed")
    assert (await send(api, "POST", "/restore", {}))["status"] == "in_progress"
    assert (await send(api, "POST", "/restore", {"reopen": True}))["status"] == "in_progress"
