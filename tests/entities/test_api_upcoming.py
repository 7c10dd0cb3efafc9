"""GET /v1/upcoming: plans, what is due, and what ceases to hold."""

from typing import Any

import httpx
import pytest

from tests.conftest import Service, TurnedClock
from tests.support.memories import OWNER, Json, problem, remember

pytestmark = pytest.mark.anyio

# the clock stands at 2026-06-01T12:00:00Z


async def coming(api: httpx.AsyncClient, **params: Any) -> list[tuple[str, str, str]]:
    answer = await api.get("/v1/upcoming", params={**OWNER, **params})
    assert answer.status_code == 200, answer.text
    return [(item["at"][:10], item["kind"], text_of(item)) for item in answer.json()["items"]]


def text_of(item: Json) -> str:
    (record,) = (item[name] for name in ("memory", "task", "fact") if item[name])
    return str(record.get("content") or record.get("goal") or record.get("object"))


async def stocked(api: httpx.AsyncClient) -> None:
    await remember(api, "Dentist", event_at="2026-06-04T09:30:00Z")
    await remember(api, "Market", event_at="2026-06-01T00:00:00Z", event_at_precision="day")
    await remember(api, "Visited Rome", event_at="2026-05-04T09:30:00Z")
    await remember(api, "Pay the bill", due_at="2026-05-20T08:00:00Z")
    await remember(api, "Called the vet", due_at="2026-06-02T08:00:00Z", done_at="2026-06-01T08:00:00Z")
    await remember(api, "The code is 4711", expires_at="2026-06-03T00:00:00Z")
    await remember(api, "On leave", valid_until="2026-06-05T00:00:00Z", user_id=None)
    await remember(api, "Of another user", event_at="2026-06-04T09:30:00Z", user_id="other")
    due = {**OWNER, "due_at": "2026-06-03T10:00:00Z"}
    await api.post("/v1/tasks", json={**due, "goal": "File the report", "status": "in_progress"})
    task = (await api.post("/v1/tasks", json={**due, "goal": "Filed"})).json()
    await api.patch(f"/v1/tasks/{task['task_id']}", json={"status": "completed"})
    fact = {**OWNER, "subject": "Ada", "predicate": "rents", "object": "Flat 3"}
    until = {"valid_from": "2026-01-01T00:00:00Z", "valid_until": "2026-07-01T00:00:00Z"}
    assert (await api.post("/v1/facts", json=fact | until)).status_code == 201


ALL = [
    ("2026-05-20", "due", "Pay the bill"),
    ("2026-06-01", "plan", "Market"),
    ("2026-06-03", "ends", "The code is 4711"),
    ("2026-06-03", "due", "File the report"),
    ("2026-06-04", "plan", "Dentist"),
    ("2026-06-05", "ends", "On leave"),
    ("2026-07-01", "ends", "Flat 3"),
]


async def test_what_comes_stands_in_order(api: httpx.AsyncClient) -> None:
    await stocked(api)
    assert await coming(api) == ALL
    assert await coming(api, until="2026-06-04T09:30:00Z") == ALL[:4]


async def test_pages_go_on_where_the_last_one_ended(api: httpx.AsyncClient) -> None:
    await stocked(api)
    items, cursor = list[Json](), None
    while True:
        page = (
            await api.get("/v1/upcoming", params={**OWNER, "limit": 2, **({"cursor": cursor} if cursor else {})})
        ).json()
        items += page["items"]
        if (cursor := page["next_cursor"]) is None:
            break
    assert [text_of(item) for item in items] == [text for *_, text in ALL]
    first = (await api.get("/v1/upcoming", params={**OWNER, "limit": 2})).json()["next_cursor"]
    other = await api.get("/v1/upcoming", params={**OWNER, "until": "2027-01-01T00:00:00Z", "cursor": first})
    problem(other, 400, "invalid_cursor")


async def test_days_pass(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await stocked(api)
    clock.move(days=4)
    assert [text for *_, text in await coming(api)] == ["Pay the bill", "File the report", "Flat 3"]


async def test_whose_it_is_has_to_be_said(api: httpx.AsyncClient) -> None:
    problem(await api.get("/v1/upcoming"), 422, "invalid", "/query/user_id")
    problem(await api.get("/v1/upcoming", params={"user_id": "u", "until": "soon"}), 422, "invalid", "/query/until")


async def test_others_see_nothing_of_it(service: Service) -> None:
    owner = await service.key()
    body = {**OWNER, "content": "Dentist", "event_at": "2026-06-04T09:30:00Z"}
    assert (await service.client.post("/v1/memories", json=body, headers=owner)).status_code == 201
    seen = await service.client.get("/v1/upcoming", params=OWNER, headers=owner)
    assert len(seen.json()["items"]) == 1
    strangers: tuple[Json, ...] = ({"tenant": "other"}, {"users": ["v"]}, {"agents": ["b"]})
    for stranger in strangers:
        headers = await service.key(**stranger)
        answer = await service.client.get("/v1/upcoming", params=OWNER, headers=headers)
        assert answer.json().get("items", []) == []
