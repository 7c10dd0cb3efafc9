"""What is due stands in the working part of a prompt."""

from typing import Any

import httpx
import pytest

from tests.support.context import ask, texts
from tests.support.memories import OWNER, batch, remember

pytestmark = pytest.mark.anyio

NOW = "2026-12-02T10:00:00Z"


async def lines(api: httpx.AsyncClient, **options: Any) -> list[str]:
    body = await ask(api, **{"now": NOW, **options})
    text = body["text"].partition("## In hand and due\n")[2].partition("##")[0].partition("</recalld")[0]
    return [line.partition("] ")[2] for line in text.splitlines() if line.startswith("- [")]


async def test_what_is_due_within_a_day_and_not_done_is_shown(api: httpx.AsyncClient) -> None:
    await batch(
        api,
        {"content": "Pay the bill", "due_at": "2026-12-03T10:00:00Z"},
        {"content": "Change the filter", "due_at": "2026-06-01T00:00:00Z"},
        {"content": "Call Bea", "due_at": "2026-12-03T10:00:01Z"},
        {"content": "Book the ferry", "due_at": "2026-12-01T00:00:00Z", "surface_at": "2026-12-05T08:00:00Z"},
        {"content": "Descale the kettle", "due_at": "2026-12-02T00:00:00Z", "done_at": "2026-12-01T09:00:00Z"},
        {"content": "Dentist", "event_at": "2026-12-03T09:30:00Z"},
        {"content": "Market", "event_at": "2026-12-02T00:00:00Z", "event_at_precision": "day"},
        {"content": "Sales", "event_at": "2026-12-01T00:00:00Z", "event_at_precision": "month"},
        {"content": "Saw Rome", "event_at": "2026-12-01T00:00:00Z"},
    )
    assert await lines(api) == [
        "due 2026-06-01 00:00: Change the filter",
        "2026-12-02: Market",
        "2026-12-03 09:30: Dentist",
        "due 2026-12-03 10:00: Pay the bill",
    ]
    assert (await lines(api, timezone="Europe/Berlin"))[2] == "2026-12-03 10:30: Dentist"
    assert "due 2026-12-01 00:00: Book the ferry" in await lines(api, now="2026-12-05T08:00:00Z")


async def test_it_goes_when_it_is_done_or_snoozed(api: httpx.AsyncClient) -> None:
    memory = await remember(api, "Pay the bill", due_at="2026-12-02T12:00:00Z")
    path = f"/v1/memories/{memory['memory_id']}"
    for change, shown in (
        ({"surface_at": "2026-12-02T11:00:00Z"}, 0),
        ({"surface_at": None}, 1),
        ({"done_at": "2026-12-02T09:00:00Z"}, 0),
        ({"done_at": None}, 1),
        ({"due_at": None}, 0),
    ):
        assert (await api.patch(path, json=change)).status_code == 200
        assert len(await lines(api)) == shown, change


async def test_a_task_is_due_until_it_ends(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "goal": "File the report", "due_at": "2026-12-02T12:00:00Z"}
    task = (await api.post("/v1/tasks", json=body)).json()
    path = f"/v1/tasks/{task['task_id']}"
    assert await lines(api) == [f"due 2026-12-02 12:00: task {task['task_id']}: File the report"]
    in_hand = await lines(api, task_id=task["task_id"])
    assert in_hand == ["goal [pending]: File the report"], "not twice"
    await api.patch(path, json={"surface_at": "2026-12-03T00:00:00Z"})
    assert await lines(api) == []
    await api.patch(path, json={"surface_at": None, "status": "completed"})
    assert await lines(api) == []


async def test_a_task_of_later_is_hidden(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "task_id": "t", "goal": "Pack", "due_at": "2026-01-02T10:00:00Z"}
    assert (await api.post("/v1/tasks", json=body)).status_code == 201
    assert await lines(api) == ["due 2026-01-02 10:00: task t: Pack"]
    before = "2026-01-02T09:00:00Z"
    assert await lines(api, now=before) == []
    assert await lines(api, known_at=before) == []


async def test_it_stands_once(api: httpx.AsyncClient) -> None:
    await remember(api, "Pay the electricity bill", due_at="2026-12-02T12:00:00Z")
    body = await ask(api, "When do I pay the electricity bill?", now=NOW)
    assert body["text"].count("electricity bill") == 1
    assert texts(body, "working") == ["due 2026-12-02 12:00: Pay the electricity bill"]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
async def test_the_ends_of_time_are_shown(api: httpx.AsyncClient, at: str) -> None:
    await remember(api, "Wait", due_at=at, event_at=at)
    await ask(api, now=NOW, timezone="America/New_York")
    for zone in ("Asia/Tokyo", "America/New_York"):
        assert (await api.get("/v1/upcoming", params={**OWNER})).status_code == 200
        late = await ask(api, now="9999-12-31T20:00:00Z", timezone=zone)
        assert ("Wait" in late["text"], late["errors"]) == (True, [])
