"""A predicate is one, however it is spelled."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.support.facts import HOME, day, found, listed, objects, spans, tell, tell_all
from tests.support.memories import OWNER, Json, problem

pytestmark = pytest.mark.anyio

SPELLINGS = (
    "lives in", "lives_in", "livesIn", "Lives-In", "LIVES IN", "LIVES_IN", "LivesIn", " lives  in ", "ｌｉｖｅｓ＿ｉｎ",
    "lives‑in",
)  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_each_spelling_is_the_same_predicate_shown_as_first_written(
    api: httpx.AsyncClient, spelling: str
) -> None:
    first = await tell(api, "New York", "2019-01-01")
    assert await tell(api, "New York", "2019-01-01", 200, predicate=spelling) == first
    moved = await tell(api, "Boston", "2026-05-01", predicate=spelling)
    assert (moved["predicate"], moved["supersedes"]) == ("lives_in", [first["fact_id"]])
    assert await spans(api) == [("New York", "2019-01-01", "2026-05-01"), ("Boston", "2026-05-01", None)]
    assert {fact["predicate"] for fact in await listed(api, timeline=True, status="any")} == {"lives_in"}
    assert await objects(api, predicate=spelling) == ["Boston"]
    assert await found(api, "where does she live", predicate=spelling) == ["Boston"]
    walked = await api.get("/v1/graph/entities/Ada/neighbors", params={**OWNER, "predicate": spelling})
    assert [edge["predicate"] for edge in walked.json()["edges"]] == ["lives_in"]
    history = (await api.get(f"/v1/facts/{moved['fact_id']}/history")).json()["items"]
    assert [fact["object"] for fact in history] == ["Boston"]


async def test_the_first_spelling_of_a_scope_is_shown_for_every_subject(api: httpx.AsyncClient) -> None:
    await tell(api, "Boston", predicate="livesIn")
    assert (await tell(api, "Rome", subject="Ben", predicate="lives_in"))["predicate"] == "livesIn"
    assert (await tell(api, "Oslo", user_id="v"))["predicate"] == "lives_in", "another scope has its own"
    assert (await tell(api, "Oslo", agent_id=None, predicate="Lives-In"))["predicate"] == "Lives-In"
    made = await tell_all(
        api,
        {"subject": "Cleo", "predicate": "worksAt", "object": "Acme"},
        {"subject": "Dan", "predicate": "works_at", "object": "Acme"},
        {"subject": "Eve", "predicate": "lives_in", "object": "Bern"},
    )
    assert [fact["predicate"] for fact in made] == ["worksAt", "worksAt", "livesIn"]


async def test_a_spelling_neither_splits_nor_joins_what_differs(api: httpx.AsyncClient) -> None:
    for predicate in ("lives in", "lived in", "livesin", "in lives"):
        await tell(api, "Boston", predicate=predicate)
    for predicate in ("hasURL", "has_url", "HAS-URL"):
        assert await tell(api, "x", None, 201 if predicate == "hasURL" else 200, predicate=predicate)
    assert len(await listed(api)) == 5


@pytest.mark.parametrize("predicate", ["_", "-", "→", "__ --"])
async def test_a_predicate_of_signs_alone_is_one_too(api: httpx.AsyncClient, predicate: str) -> None:
    await tell(api, "Boston", predicate=predicate)
    assert await objects(api, predicate=predicate) == ["Boston"]


async def test_keep_both_makes_the_group_many(api: httpx.AsyncClient) -> None:
    await tell(api, "tea", predicate="likes")
    assert (await tell(api, "jazz", predicate="likes", on_conflict="keep_both"))["cardinality"] == "many"
    assert (await tell(api, "rain", predicate="likes"))["cardinality"] == "many"
    assert await objects(api, predicate="likes") == ["jazz", "rain", "tea"]
    one = await tell(api, "snow", predicate="likes", cardinality="one")
    assert one["cardinality"] == "one"
    assert (await tell(api, "hail", predicate="likes"))["cardinality"] == "many", "it was many once"


async def test_a_dispute_settled_for_both_makes_the_group_many(api: httpx.AsyncClient) -> None:
    await tell(api, "tea", predicate="likes")
    weak = await tell(api, "jazz", predicate="likes", trust=0.4)
    kept = await api.post(f"/v1/facts/{weak['fact_id']}/resolve", json={"keep": "both"})
    assert kept.json()["cardinality"] == "many"
    assert (await tell(api, "rain", predicate="likes"))["cardinality"] == "many"
    assert await objects(api, predicate="likes") == ["jazz", "rain", "tea"]


async def test_spellings_meet_in_one_batch(api: httpx.AsyncClient) -> None:
    said: list[tuple[str, str, str]] = [("lives_in", "NY", "2019-01-01"), ("livesIn", "Boston", "2026-05-01")]
    items: list[Json] = [{**HOME, "predicate": p, "object": o, "valid_from": day(since)} for p, o, since in said]
    made = await tell_all(api, *items)
    assert {fact["predicate"] for fact in made} == {"lives_in"}
    assert await objects(api) == ["Boston"]


async def test_concurrent_spellings_end_in_one_book(service: Service) -> None:
    api = service.client

    async def say(at: int) -> Any:
        body = {
            **HOME,
            "predicate": SPELLINGS[at % 8],
            "object": f"Town {at}",
            "valid_from": day(f"2026-01-{at + 1:02d}"),
        }
        return await api.post("/v1/facts", json=body)

    answers = await asyncio.gather(*(say(at) for at in range(12)))
    assert {answer.status_code for answer in answers} == {201}
    (now,) = await listed(api, subject="Ada")
    assert now["object"] == "Town 11"
    assert len({fact["predicate"] for fact in await listed(api, timeline=True, status="any")}) == 1


async def test_another_tenant_has_spellings_of_its_own(service: Service) -> None:
    api, one, two = service.client, await service.key("one"), await service.key("two")
    for key, predicate in ((one, "livesIn"), (two, "lives_in")):
        made = await api.post("/v1/facts", json={**HOME, "predicate": predicate, "object": "Boston"}, headers=key)
        assert made.json()["predicate"] == predicate
    problem(await api.get("/v1/graph/entities/Ada/neighbors", params={**OWNER, "predicate": ""}, headers=one), 422)
