"""What is to be done: when it is due, when it surfaces, and what recurs."""

import httpx
import pytest

from tests.support.memories import OWNER, Json, found, problem, remember

pytestmark = pytest.mark.anyio

TUESDAY = "2026-12-01T08:00:00.000Z"


async def changed(api: httpx.AsyncClient, memory: Json, **fields: object) -> Json:
    answer = await api.patch(f"/v1/memories/{memory['memory_id']}", json=fields)
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


async def test_what_recurs_is_due_again_when_it_is_done(api: httpx.AsyncClient) -> None:
    due: Json = {"due_at": TUESDAY, "surface_at": "2026-11-30T20:00:00Z", "rrule": "FREQ=WEEKLY;BYDAY=TU"}
    memory = await remember(api, "Put the bins out", **due)
    early = await changed(api, memory, done_at="2026-11-29T10:00:00Z")
    assert (early["due_at"], early["surface_at"]) == ("2026-12-08T08:00:00.000Z", "2026-12-07T20:00:00.000Z")
    assert early["done_at"] is None
    late = await changed(api, memory, done_at="2026-12-30T10:00:00Z")
    assert late["due_at"] == "2027-01-05T08:00:00.000Z", "what was missed is not due again"
    snoozed = await changed(api, memory, surface_at="2027-01-06T00:00:00Z")
    assert snoozed["due_at"] == late["due_at"]
    assert (await changed(api, memory, done_at="2027-01-06T08:00:00Z"))["surface_at"] is None, "it was snoozed once"
    history = (await api.get(f"/v1/memories/{memory['memory_id']}/history")).json()["items"]
    assert len(history) == 4


async def test_the_last_time_is_done(api: httpx.AsyncClient) -> None:
    memory = await remember(api, "Take the pills", due_at=TUESDAY, rrule="FREQ=DAILY;UNTIL=20261202T080000Z")
    assert (await changed(api, memory, done_at=TUESDAY))["done_at"] is None
    last = await changed(api, memory, done_at="2026-12-02T09:00:00Z")
    assert (last["due_at"], last["done_at"]) == ("2026-12-02T08:00:00.000Z", "2026-12-02T09:00:00.000Z")


async def test_two_days_are_two_reminders(api: httpx.AsyncClient) -> None:
    one = await remember(api, "Water the plants", due_at=TUESDAY)
    other = await api.post(
        "/v1/memories", json={**OWNER, "content": "Water the plants", "due_at": "2026-12-05T08:00:00Z"}
    )
    assert (other.status_code, other.json()["memory_id"] == one["memory_id"]) == (201, False)
    again = await api.post("/v1/memories", json={**OWNER, "content": "Water the plants", "due_at": TUESDAY})
    assert (again.status_code, again.json()["memory_id"]) == (200, one["memory_id"])


@pytest.mark.parametrize(
    ("fields", "pointer", "said"),
    [
        ({"rrule": "FREQ=SECONDLY", "due_at": TUESDAY}, "/rrule", "FREQ"),
        ({"rrule": "FREQ=DAILY;INTERVAL=0", "due_at": TUESDAY}, "/rrule", "INTERVAL"),
        ({"rrule": "FREQ=DAILY" + ";" * 300, "due_at": TUESDAY}, "/rrule", "200"),
        ({"rrule": "FREQ=DAILY"}, "/rrule", "needs due_at"),
        ({"rrule": "FREQ=DAILY", "due_at": None}, "/rrule", "needs due_at"),
        ({"due_at": "tomorrow"}, "/due_at", "RFC 3339"),
    ],
)
async def test_what_cannot_be_is_named(api: httpx.AsyncClient, fields: Json, pointer: str, said: str) -> None:
    answer = await api.post("/v1/memories", json={**OWNER, "content": "x", **fields})
    problem(answer, 422, "invalid", pointer)
    assert said in answer.text
    items = [{**OWNER, "content": "y"}, {**OWNER, "content": "x", **fields}]
    problem(await api.post("/v1/memories/batch", json={"items": items}), 422, "invalid", f"/items/1{pointer}")


async def test_a_patch_keeps_a_rule_with_its_time(api: httpx.AsyncClient) -> None:
    memory = await remember(api, "x", due_at=TUESDAY, rrule="FREQ=DAILY")
    answer = await api.patch(f"/v1/memories/{memory['memory_id']}", json={"due_at": None})
    problem(answer, 422, "invalid", "/rrule")
    cleared = await changed(api, memory, due_at=None, rrule=None)
    assert (cleared["due_at"], cleared["rrule"]) == (None, None)


async def test_a_question_about_its_day_finds_it_first(api: httpx.AsyncClient) -> None:
    notes = ("The bins are behind the shed", "Ada likes Fridays", "The rent is 900 a month", "The shop opens at nine")
    for note in notes:
        await remember(api, note)
    await remember(api, "Pay the electricity bill", due_at="2026-06-05T08:00:00Z")
    drill = await remember(api, "Return the drill", due_at="2026-06-09T08:00:00Z")
    asked = {"now": "2026-06-02T12:00:00Z"}
    assert (await found(api, "What do I have on Friday?", **asked))[0] == "Pay the electricity bill"
    assert (await found(api, "What is due next Tuesday?", **asked))[0] == "Return the drill"
    await changed(api, drill, due_at="2026-06-12T08:00:00Z")
    assert (await found(api, "What do I have to do on 12 June?", **asked))[0] == "Return the drill"
    listed = await api.get("/v1/memories", params={**OWNER, "filters": '{"due_at": {"lt": "2026-06-06T00:00:00Z"}}'})
    assert [item["content"] for item in listed.json()["items"]] == ["Pay the electricity bill"]
