"""Declared names of one entity in searches: what the query calls by one is found by each."""

import httpx
import pytest

from tests.support.memories import OWNER, batch, found, remember

pytestmark = pytest.mark.anyio


async def declare(api: httpx.AsyncClient, name: str, *aliases: str, **of: str) -> None:
    body = {**OWNER, **of, "aliases": list(aliases)}
    answer = await api.post(f"/v1/graph/entities/{name}/aliases", json=body)
    assert answer.status_code == 201, answer.text


async def subjects(api: httpx.AsyncClient, query: str, **fields: str) -> list[str]:
    answer = await api.post("/v1/facts/search", json={**OWNER, "query": query, **fields})
    assert answer.status_code == 200, answer.text
    return [f"{item['fact']['subject']} {item['fact']['predicate']}" for item in answer.json()["items"]]


async def tell(api: httpx.AsyncClient, subject: str, predicate: str, of: str) -> None:
    fact = {**OWNER, "subject": subject, "predicate": predicate, "object": of}
    assert (await api.post("/v1/facts", json=fact)).status_code == 201


@pytest.mark.parametrize("mode", ["hybrid", "text"])
async def test_a_fact_is_found_by_the_other_name_of_its_subject(api: httpx.AsyncClient, mode: str) -> None:
    await tell(api, "KTB", "signed", "the contract")
    await tell(api, "Karin Tobler", "works on", "Seeblick")
    await tell(api, "Ben Okafor", "signed", "the lease")
    assert (await subjects(api, "What did Karin Tobler sign?", mode=mode))[0] != "KTB signed"
    await declare(api, "Karin Tobler", "KTB")
    assert (await subjects(api, "What did Karin Tobler sign?", mode=mode))[0] == "KTB signed"
    assert (await subjects(api, "What does KTB work on?", mode=mode))[0] == "Karin Tobler works on"
    assert (await subjects(api, "What did Ben Okafor sign?", mode=mode))[0] == "Ben Okafor signed"


async def test_memories_are_found_by_the_other_name(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "Katharina Sommer drives a red van"}, {"content": "The dentist is on Friday"})
    assert await found(api, "Kate", mode="text") == []
    await declare(api, "Katharina Sommer", "Kate")
    assert await found(api, "Kate", mode="text") == ["Katharina Sommer drives a red van"]
    assert await found(api, "Kate\u2019s car", mode="text") == ["Katharina Sommer drives a red van"]
    assert await found(api, "skate", mode="text") == []


async def test_only_a_whole_name_stands_for_the_other(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "KTB drives a red van"}, {"content": "Tobler is a chocolate"})
    await declare(api, "Karin Tobler", "KTB")
    assert await found(api, "Tobler", mode="text") == ["Tobler is a chocolate"]
    assert (await found(api, "Karin Tobler", mode="text"))[0] == "KTB drives a red van"


async def test_a_dismissed_alias_and_one_of_another_user_join_nothing(api: httpx.AsyncClient) -> None:
    await remember(api, "Katharina Sommer drives a red van")
    await declare(api, "Katharina Sommer", "Kate", user_id="other")
    assert await found(api, "Kate", mode="text") == []
    await declare(api, "Katharina Sommer", "Kate")
    gone = await api.delete("/v1/graph/entities/Katharina Sommer/aliases", params={**OWNER, "alias": "Kate"})
    assert gone.status_code == 200, gone.text
    assert await found(api, "Kate", mode="text") == []


async def test_an_alias_joins_from_when_it_was_known(api: httpx.AsyncClient) -> None:
    await tell(api, "KTB", "signed", "the contract")
    await tell(api, "Karin Tobler", "works on", "Seeblick")
    facts = (await api.get("/v1/facts", params=OWNER)).json()["items"]
    known_at = max(fact["created_at"] for fact in facts)
    await declare(api, "Karin Tobler", "KTB")
    assert len(await subjects(api, "Karin Tobler", mode="text")) == 2
    assert await subjects(api, "Karin Tobler", mode="text", known_at=known_at) == ["Karin Tobler works on"]
