"""Short words for what the tests of people and agents do over HTTP."""

from typing import Any

import httpx

from tests.support.memories import Json

USER = "/v1/users/ada"
AGENT = "/v1/agents/a"


async def send(api: httpx.AsyncClient, method: str, path: str, body: Any = None, expect: int = 200) -> Json:
    answered = await api.request(method, path, json=body)
    assert answered.status_code == expect, answered.text
    found: Json = answered.json()
    return found


async def know(api: httpx.AsyncClient, **profile: Any) -> Json:
    """What is added to Ada's profile."""
    return await send(api, "PATCH", f"{USER}/profile", profile)


async def state(api: httpx.AsyncClient, predicate: str, value: str, expect: int = 201, **more: Any) -> Json:
    """A fact about Ada."""
    body = {"user_id": "ada", "subject": "@user", "predicate": predicate, "object": value, **more}
    return await send(api, "POST", "/v1/facts", body, expect)


async def profile(api: httpx.AsyncClient, **params: str) -> Json:
    """Ada's, now or at a time."""
    answered = await api.get(f"{USER}/profile", params=params)
    assert answered.status_code == 200, answered.text
    found: Json = answered.json()
    return found


async def register(api: httpx.AsyncClient, **fields: Any) -> Json:
    return await send(api, "POST", "/v1/agents", {"agent_id": "a", "name": "Support", **fields}, 201)


async def learn(api: httpx.AsyncClient, **lessons: Any) -> Json:
    return await send(api, "PATCH", f"{AGENT}/experience", lessons)


async def prompt(api: httpx.AsyncClient, **params: Any) -> Json:
    answered = await api.get(f"{AGENT}/experience-prompt", params=params)
    assert answered.status_code == 200, answered.text
    body: Json = answered.json()
    return body
