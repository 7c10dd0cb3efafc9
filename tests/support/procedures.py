"""Short words for what the tests of procedures do over HTTP."""

from typing import Any

import httpx

from tests.support.memories import OWNER, Json

PARCEL: Json = {
    "name": "Refund a lost parcel",
    "trigger": "A customer says that a parcel never arrived",
    "steps": ["Look up the tracking number", "Ask the carrier", "Refund the order"],
}
LOGIN: Json = {
    "name": "Reset a password",
    "trigger": "Somebody cannot log in to the account",
    "steps": ["Send a reset link", "Wait for the new password"],
}


async def learn(api: httpx.AsyncClient, procedure: Json | None = None, expect: int = 201, **fields: Any) -> Json:
    """A procedure of the partition (a, u), unless `fields` say otherwise."""
    made = await api.post("/v1/procedures", json={**OWNER, **(procedure or PARCEL), **fields})
    assert made.status_code == expect, made.text
    body: Json = made.json()
    return body


def path(procedure: Json) -> str:
    return f"/v1/procedures/{procedure['procedure_id']}"


async def report(api: httpx.AsyncClient, procedure: Json, *successes: bool, **fields: Any) -> Json:
    """Outcomes, one after the other; the last answer."""
    body: Json = {}
    for success in successes:
        made = await api.post(f"{path(procedure)}/outcomes", json={"success": success, **fields})
        assert made.status_code == 201, made.text
        body = made.json()
    return body


async def got(api: httpx.AsyncClient, procedure: Json) -> Json:
    found = await api.get(path(procedure))
    assert found.status_code == 200, found.text
    assert found.headers["etag"] == f'"{found.json()["version"]}"'
    body: Json = found.json()
    return body


async def listed(api: httpx.AsyncClient, **params: Any) -> list[str]:
    """Names on the first page of a list, in its order."""
    page = await api.get("/v1/procedures", params=params)
    assert page.status_code == 200, page.text
    return [item["name"] for item in page.json()["items"]]


async def looked_up(api: httpx.AsyncClient, situation: str, **fields: Any) -> list[Json]:
    found = await api.post("/v1/procedures/search", json={**OWNER, "situation": situation, **fields})
    assert found.status_code == 200, found.text
    items: list[Json] = found.json()["items"]
    return items


async def names(api: httpx.AsyncClient, situation: str, **fields: Any) -> list[str]:
    """Names that a search finds, best first."""
    return [item["procedure"]["name"] for item in await looked_up(api, situation, **fields)]
