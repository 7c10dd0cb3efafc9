"""Short words for what the tests of actions do over HTTP."""

from typing import Any

import httpx

from tests.support.memories import Json

OWNER: Json = {"agent_id": "a", "user_id": "u"}


def act(content: str | None = None, **fields: Any) -> Json:
    """An action of the partition (a, u), unless `fields` say otherwise."""
    return {**OWNER, "action_type": "work", "content": content, **fields}


async def log(api: httpx.AsyncClient, content: str | None = None, **fields: Any) -> Json:
    made = await api.post("/v1/actions", json=act(content, **fields))
    assert made.status_code == 201, made.text
    body: Json = made.json()
    return body


async def log_all(api: httpx.AsyncClient, *items: Json) -> list[Json]:
    made = await api.post("/v1/actions/batch", json={"items": list(items)})
    assert made.status_code == 201, made.text
    found: list[Json] = made.json()["items"]
    return found


async def listed(api: httpx.AsyncClient, **params: Any) -> list[str]:
    """Contents of the first page of a list, in its order."""
    page = await api.get("/v1/actions", params=params)
    assert page.status_code == 200, page.text
    return [item["content"] for item in page.json()["items"]]


async def similar(api: httpx.AsyncClient, query: str, **fields: Any) -> list[str]:
    """Contents that a search finds, best first."""
    found = await api.post("/v1/actions/search", json={**OWNER, "query": query, **fields})
    assert found.status_code == 200, found.text
    return [item["action"]["content"] for item in found.json()["items"]]


async def stats(api: httpx.AsyncClient, **params: Any) -> Json:
    answered = await api.get("/v1/actions/stats", params={"agent_id": "a", **params})
    assert answered.status_code == 200, answered.text
    body: Json = answered.json()
    return body
