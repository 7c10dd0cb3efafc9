"""Short words for what the tests of sessions do over HTTP."""

from typing import Any

import httpx

Json = dict[str, Any]
OWNER: Json = {"agent_id": "a", "user_id": "u"}


def said(*contents: str, role: str = "user", **fields: Any) -> list[Json]:
    return [{"role": role, "content": content, **fields} for content in contents]


async def append(
    api: httpx.AsyncClient, messages: list[Json], session: str = "s", expect: int = 201, **fields: Any
) -> Json:
    made = await api.post(f"/v1/sessions/{session}/messages", json={**OWNER, "messages": messages, **fields})
    assert made.status_code == expect, made.text
    body: Json = made.json()
    return body


async def create(api: httpx.AsyncClient, session: str = "s", expect: int = 201, **fields: Any) -> Json:
    made = await api.post("/v1/sessions", json={"session_id": session, **OWNER, **fields})
    assert made.status_code == expect, made.text
    body: Json = made.json()
    return body


async def messages(api: httpx.AsyncClient, session: str = "s", **params: Any) -> list[Json]:
    page = await api.get(f"/v1/sessions/{session}/messages", params=params)
    assert page.status_code == 200, page.text
    items: list[Json] = page.json()["items"]
    return items


async def seqs(api: httpx.AsyncClient, session: str = "s", **params: Any) -> list[int]:
    return [message["seq"] for message in await messages(api, session, **params)]


async def memories(api: httpx.AsyncClient, **params: Any) -> list[Json]:
    """Memories, oldest first."""
    page = await api.get("/v1/memories", params={"order": "asc", **params})
    items: list[Json] = page.json()["items"]
    return items
