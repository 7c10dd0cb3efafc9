"""Short words for what the tests of tasks do over HTTP."""

from typing import Any

import httpx

from tests.support.memories import Json

OWNER: Json = {"agent_id": "a", "user_id": "u"}
TASK = "/v1/tasks/t"
STATE = ("plan", "context", "scratchpad", "evidence", "status", "open_questions")


async def begin(api: httpx.AsyncClient, task_id: str = "t", **fields: Any) -> Json:
    """A task of the partition (a, u), unless `fields` say otherwise."""
    made = await api.post("/v1/tasks", json={"task_id": task_id, "goal": "find out", **OWNER, **fields})
    assert made.status_code == 201, made.text
    body: Json = made.json()
    return body


async def task(api: httpx.AsyncClient, path: str = TASK) -> Json:
    got = await api.get(path)
    assert got.status_code == 200, got.text
    body: Json = got.json()
    return body


async def send(api: httpx.AsyncClient, method: str, path: str, body: Any = None, expect: int = 200) -> Json:
    """What a call to `path`, seen from the task "t", answers."""
    answered = await api.request(method, TASK + path, json=body)
    assert answered.status_code == expect, answered.text
    found: Json = answered.json()
    return found


async def move(api: httpx.AsyncClient, *statuses: str) -> Json:
    body: Json = {}
    for status in statuses:
        body = await send(api, "PATCH", "", {"status": status})
    body.pop("operation_id", None)  # of the change, not of the task
    return body


async def note(api: httpx.AsyncClient, content: str, priority: float = 0.0) -> Json:
    return await send(api, "POST", "/scratchpad", {"content": content, "priority": priority}, 201)


async def checkpoints(api: httpx.AsyncClient, **params: Any) -> list[Json]:
    listed = await api.get(f"{TASK}/checkpoints", params=params)
    assert listed.status_code == 200, listed.text
    items: list[Json] = listed.json()["items"]
    return items
