"""What an agent works with: context, plan, scratchpad, evidence, and the text made of them."""

import httpx
import pytest

from app import tokens
from tests.conftest import Service
from tests.memories.helpers import Json, problem
from tests.tasks.helpers import TASK, begin, note, send, task
from tests.tasks.test_api_tasks import HOSTILE

pytestmark = pytest.mark.anyio


async def test_context_is_merged_and_null_removes(api: httpx.AsyncClient) -> None:
    await begin(api, context={"focus": "speed", "deep": {"a": 1, "b": {"c": 2}}, "list": [1, 2]})
    patch = {"focus": None, "deep": {"b": {"c": None, "d": 3}}, "list": [None], "absent": None, "new": {"x": None}}
    merged = await send(api, "PATCH", "/context", patch)
    assert merged["context"] == {"deep": {"a": 1, "b": {"d": 3}}, "list": [None], "new": {}}
    assert merged["version"] == 2
    assert (await send(api, "PATCH", "/context", {"absent": None}))["version"] == 2


async def test_keys_are_data_and_never_paths(api: httpx.AsyncClient) -> None:
    await begin(api, context={"a": {"b": "nested"}})
    await send(api, "PATCH", "/context", HOSTILE)
    assert (await task(api))["context"] == {"a": {"b": "nested"}, **HOSTILE}
    await send(api, "PATCH", "/context", dict.fromkeys(HOSTILE))
    assert (await task(api))["context"] == {"a": {"b": "nested"}}


@pytest.mark.parametrize("body", ["[]", '"x"', "1", "null", "true"])
async def test_a_context_patch_is_an_object(api: httpx.AsyncClient, body: str) -> None:
    await begin(api, context={"a": 1})
    sent = await api.patch(f"{TASK}/context", content=body, headers={"Content-Type": "application/json"})
    problem(sent, 422, "invalid")
    assert (await task(api))["context"] == {"a": 1}


async def test_a_context_never_gets_more_than_256_keys_in_an_object(api: httpx.AsyncClient) -> None:
    full = {str(at): at for at in range(256)}
    await begin(api, context={**full, "0": full})
    for patch in ({"more": 1}, {"0": {"more": 1}}):
        problem(await api.patch(f"{TASK}/context", json=patch), 422, "invalid")
    assert (await task(api))["version"] == 1
    swapped = await send(api, "PATCH", "/context", {"1": None, "more": 1})
    assert len(swapped["context"]) == 256


async def test_a_plan_is_replaced(api: httpx.AsyncClient) -> None:
    await begin(api, plan=[{"action": "one"}, {"action": "two"}])
    plan = (await send(api, "PUT", "/plan", {"plan": [{"action": "three", "params": HOSTILE}]}))["plan"]
    assert plan == [{"step": 1, "action": "three", "params": HOSTILE, "status": "pending", "result": None}]
    assert (await send(api, "PUT", "/plan", {"plan": []}))["plan"] == []
    problem(await api.put(f"{TASK}/plan", json={}), 422, "invalid", "/plan")


async def test_a_step_takes_status_and_result_and_null_is_not_absence(api: httpx.AsyncClient) -> None:
    await begin(api, plan=[{"action": "one"}, {"action": "two"}])
    first, second = (await send(api, "PATCH", "/plan/1", {"status": "completed", "result": HOSTILE}))["plan"]
    assert (first["status"], second["status"], second["result"]) == ("pending", "completed", HOSTILE)
    assert (await send(api, "PATCH", "/plan/1", {"status": "failed"}))["plan"][1]["result"] == HOSTILE
    cleared = (await send(api, "PATCH", "/plan/1", {"result": None}))["plan"][1]
    assert (cleared["status"], cleared["result"]) == ("failed", None)
    for bad in ({"status": None}, {"status": "done"}, {"action": "x"}):
        problem(await api.patch(f"{TASK}/plan/1", json=bad), 422, "invalid", f"/{next(iter(bad))}")


@pytest.mark.parametrize(("index", "status"), [("2", 404), ("500", 404), ("-1", 422), ("x", 422), ("9" * 30, 422)])
async def test_a_step_that_is_not_there_is_said(api: httpx.AsyncClient, index: str, status: int) -> None:
    await begin(api, plan=[{"action": "one"}, {"action": "two"}])
    problem(await api.patch(f"{TASK}/plan/{index}", json={"status": "completed"}), status)
    assert (await task(api))["version"] == 1


async def test_the_scratchpad_is_bounded_and_the_answer_says_what_went(api: httpx.AsyncClient) -> None:
    text = "one two three four five"
    each = tokens.count(text)
    await begin(api, max_tokens=3 * each)
    ids = [(await note(api, text, priority))["note"]["id"] for priority in (1.0, 0.0, 0.0)]
    low, first, second = ids[0], ids[1], ids[2]
    answer = await note(api, text, 0.5)
    assert [gone["id"] for gone in answer["evicted"]] == [first]  # of the lowest, the oldest
    assert (await note(api, text, 0.5))["evicted"][0]["id"] == second
    found = (await task(api))["scratchpad"]
    assert found == (await note(api, text, 0.25))["scratchpad"]  # the least itself: it does not stay
    assert (found[0]["id"], sum(one["tokens"] for one in found)) == (low, 3 * each)


async def test_a_note_larger_than_the_scratchpad_goes_itself(api: httpx.AsyncClient) -> None:
    await begin(api, max_tokens=5)
    kept = (await note(api, "small", -1.0))["note"]
    huge = "many more words than can ever be kept here"
    answer = await note(api, huge, -2.0)
    assert answer["note"] is None
    assert [gone["content"] for gone in answer["evicted"]] == [huge]
    assert answer["scratchpad"] == [kept]


async def test_a_note_too_large_drives_out_no_other_however_urgent_it_is(api: httpx.AsyncClient) -> None:
    await begin(api, max_tokens=5)
    kept = (await note(api, "small", 0.0))["note"]
    answer = await note(api, "many more words than can ever be kept here", 9.0)
    assert (answer["note"], answer["scratchpad"]) == (None, [kept])


async def test_a_lower_bound_takes_effect_at_once(api: httpx.AsyncClient) -> None:
    await begin(api)
    for priority in (0.0, 1.0):
        await note(api, "three words here", priority)
    bounded = await send(api, "PATCH", "", {"max_tokens": tokens.count("three words here")})
    assert [one["priority"] for one in bounded["scratchpad"]] == [1.0]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"content": ""}, "/content"),
        ({"content": "x", "priority": "1"}, "/priority"),
        ({"content": "x", "priority": None}, "/priority"),
        ({"content": "x", "id": "y"}, "/id"),
        ({"content": "x" * 32_001}, "/content"),
    ],
)
async def test_a_bad_note_is_refused(api: httpx.AsyncClient, body: Json, pointer: str) -> None:
    await begin(api)
    problem(await api.post(f"{TASK}/scratchpad", json=body), 422, "invalid", pointer)


async def test_evidence_is_added_in_order_and_bounded(service: Service) -> None:
    api = service.client
    found = await begin(api)
    for at in range(3):
        found = await send(api, "POST", "/evidence", {"source": "web", "content": f"fact {at}"}, 201)
    assert found["evidence"] == [{"source": "web", "content": f"fact {at}"} for at in range(3)]
    problem(await api.post(f"{TASK}/evidence", json={"content": "x"}), 422, "invalid", "/source")


async def test_working_memory_is_plan_notes_and_evidence_within_the_budget(api: httpx.AsyncClient) -> None:
    plan = [{"action": "search", "params": {"q": "fast"}}, {"action": "read", "status": "completed", "result": "done"}]
    await begin(api, plan=plan)
    await note(api, "minor", 0.1)
    await note(api, "major", 0.9)
    await send(api, "POST", "/evidence", {"source": "paper", "content": "HNSW wins"}, 201)
    whole = await send(api, "GET", "/working-memory")
    assert whole["tokens"] == tokens.count(whole["text"])
    words = ("find out", "search", "fast", "done", "major", "minor", "HNSW wins")
    places = [whole["text"].index(word) for word in words]
    assert places == sorted(places)
    for budget in range(0, whole["tokens"] + 2, 3):
        part = await send(api, "GET", f"/working-memory?max_tokens={budget}")
        assert part["tokens"] == tokens.count(part["text"]) <= budget
    assert (await send(api, "GET", "/working-memory?max_tokens=0")) == {"text": "", "tokens": 0}
    problem(await api.get(f"{TASK}/working-memory?max_tokens=-1"), 422, "invalid")
