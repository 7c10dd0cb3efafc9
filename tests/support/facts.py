"""Short words for what the tests of facts do over HTTP."""

from typing import Any

import httpx

from tests.support.memories import OWNER, Json

HOME: Json = {**OWNER, "subject": "Ada", "predicate": "lives_in"}


def day(text: str) -> str:
    """`2026-05-01` as it is stored."""
    return f"{text}T00:00:00.000Z"


def edge(subject: str, predicate: str, object: str, **fields: Any) -> Json:
    """A fact that is an edge of the graph."""
    since = {"valid_from": day("2026-01-01"), "cardinality": "many"}
    return {**OWNER, "subject": subject, "predicate": predicate, "object": object, **since, **fields}


async def tell(api: httpx.AsyncClient, object: str, since: str | None = None, expect: int = 201, **fields: Any) -> Json:
    """Where Ada lives, unless `fields` say otherwise; `since` is a day, and left out where it is None."""
    body = {**HOME, "object": object, **({} if since is None else {"valid_from": day(since)}), **fields}
    made = await api.post("/v1/facts", json=body)
    assert made.status_code == expect, made.text
    fact: Json = made.json()
    return fact


async def tell_all(api: httpx.AsyncClient, *items: Json, expect: int = 201) -> list[Json]:
    made = await api.post("/v1/facts/batch", json={"items": [{**OWNER, **item} for item in items]})
    assert made.status_code == expect, made.text
    found: list[Json] = made.json().get("items", [])
    return found


async def listed(api: httpx.AsyncClient, **params: Any) -> list[Json]:
    page = await api.get("/v1/facts", params={"limit": 100, **params})
    assert page.status_code == 200, page.text
    items: list[Json] = page.json()["items"]
    return items


async def objects(api: httpx.AsyncClient, **params: Any) -> list[str]:
    """Of a list, in order of their names."""
    return sorted(fact["object"] for fact in await listed(api, **params))


async def spans(api: httpx.AsyncClient, **params: Any) -> list[tuple[str, str | None, str | None]]:
    """All that is known now, whenever it is true: object, from, until (days)."""
    facts = await listed(api, timeline=True, **params)
    found = [(f["object"], *((f[n] and f[n][:10]) for n in ("valid_from", "valid_until"))) for f in facts]
    return sorted(found, key=lambda span: (span[1] or "", span[0]))


async def found(api: httpx.AsyncClient, query: str, **fields: Any) -> list[str]:
    """Objects that a search finds, best first."""
    answered = await api.post("/v1/facts/search", json={**OWNER, "query": query, **fields})
    assert answered.status_code == 200, answered.text
    return [item["fact"]["object"] for item in answered.json()["items"]]
