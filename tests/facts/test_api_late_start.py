"""A start that nobody gave is the latest that it can be: what is told later with a start goes before it."""

from typing import Any

import httpx
import pytest

from tests.conftest import TurnedClock

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
OWNER: Json = {"agent_id": "a", "user_id": "u"}
MAY = "2026-05-01T00:00:00.000Z"


async def tell(api: httpx.AsyncClient, thing: str, **fields: Any) -> Json:
    body = {**OWNER, "subject": "Erin", "predicate": "lives_in", "object": thing, **fields}
    told: Json = (await api.post("/v1/facts", json=body)).json()
    return told


async def homes(api: httpx.AsyncClient, **params: str) -> list[str]:
    answer = await api.get("/v1/facts", params={**OWNER, "subject": "Erin", **params})
    return [fact["object"] for fact in answer.json()["items"]]


async def test_a_start_in_the_past_goes_before_none(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    first = await tell(api, "Montreal")
    assert first["valid_from"] == first["known_from"]
    clock.move(days=10)
    told = await tell(api, "Toronto", valid_from=MAY)
    assert told["valid_from"] == MAY
    assert await homes(api) == ["Toronto"]
    assert await homes(api, as_of="2026-05-02T00:00:00Z") == ["Toronto"]
    assert await homes(api, as_of="2026-04-30T00:00:00Z") == []
    assert await homes(api, known_at=first["known_from"], as_of=first["known_from"]) == ["Montreal"]
    rows = (await api.get(f"/v1/facts/{first['fact_id']}/history")).json()["items"]
    assert [(row["status"], row["superseded_by"]) for row in rows] == [("superseded", [told["fact_id"]])]
    assert "start_assumed" not in rows[0]


async def test_what_remains_of_a_row_has_an_assumed_start_only_where_the_row_had_it(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await tell(api, "Montreal")
    clock.move(days=10)
    await tell(api, "Rome", valid_until=None)  # cuts Montreal, whose start stays assumed; its own is assumed as well
    clock.move(days=10)
    await tell(api, "Toronto", valid_from=MAY)
    assert await homes(api) == ["Toronto"]
    assert await homes(api, as_of="2026-06-05T00:00:00Z") == ["Toronto"]


async def test_less_trust_takes_nothing_from_a_start_that_nobody_gave(api: httpx.AsyncClient) -> None:
    await tell(api, "Montreal")
    await tell(api, "Toronto", valid_from=MAY, trust=0.5)
    assert await homes(api) == ["Montreal"]


async def test_a_field_of_a_profile_gives_way_as_well(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await api.patch("/v1/users/u/profile", json={"home": "Montreal"})
    clock.move(days=1)
    fact = {"user_id": "u", "subject": "@user", "predicate": "lives_in", "object": "Toronto", "valid_from": MAY}
    assert (await api.post("/v1/facts", json=fact)).status_code == 201
    assert (await api.get("/v1/users/u/profile")).json()["home"] == "Toronto"
