"""What is marked so stands in every prompt, whatever is asked."""

import httpx
import pytest

from tests.support.context import ask, dropped, items, names, texts
from tests.support.memories import OWNER, problem, remember

pytestmark = pytest.mark.anyio

ALLERGY = "Ada is deadly allergic to peanuts"
QUERIES = ("thanks!", "Surprise me with a recipe", "What is the capital of France?", "Yes please")


async def many(api: httpx.AsyncClient) -> None:
    items = [{**OWNER, "content": f"The tram to stop {at} leaves at {at} past"} for at in range(80)]
    assert (await api.post("/v1/memories/batch", json={"items": items})).status_code == 201


async def test_it_stands_in_every_prompt_once(api: httpx.AsyncClient) -> None:
    await many(api)
    made = await remember(api, ALLERGY, always="health")
    assert made["always"] == "health"
    for query in (*QUERIES, "What is Ada allergic to?"):
        body = await ask(api, query, token_budget=600)
        assert texts(body, "always") == [ALLERGY]
        assert body["text"].count(ALLERGY) == 1
    assert "always" not in names(await ask(api, "thanks!", exclude=["always"]))
    cleared = await api.patch(f"/v1/memories/{made['memory_id']}", json={"always": None})
    assert cleared.json()["always"] is None
    assert "always" not in names(await ask(api, "thanks!", token_budget=600))
    problem(await api.post("/v1/memories", json={**OWNER, "content": "x", "always": "weather"}), 422)


async def test_a_fact_is_marked_too_and_not_repeated_by_the_profile(api: httpx.AsyncClient) -> None:
    await many(api)
    name = {"user_id": "u", "subject": "@user", "predicate": "has_name", "object": "Ada", "always": "identity"}
    made = await api.post("/v1/facts", json=name)
    assert (made.status_code, made.json()["always"]) == (201, "identity")
    await api.post(
        "/v1/facts", json={**OWNER, "subject": "Ada", "predicate": "diet", "object": "vegan", "always": "health"}
    )
    body = await ask(api, "Yes please", token_budget=600)
    assert texts(body, "always") == ["Ada diet vegan", "The user has name Ada"], "health comes first"
    assert items(body, "profile") == []
    again = await api.post("/v1/facts", json={key: value for key, value in name.items() if key != "always"})
    assert again.json()["always"] == "identity", "said again it stays marked"


async def test_it_has_five_entries_and_120_tokens_at_most(api: httpx.AsyncClient) -> None:
    await many(api)
    for at in range(6):
        await remember(api, f"Ada wishes for short answers of kind {at}", always="wish")
    body = await ask(api, "thanks!", token_budget=2000)
    assert len(items(body, "always")) == 5
    assert "limit" in dropped(body).values()
    for at in range(5):
        await remember(api, f"{ALLERGY} of kind {at}, and {'so ' * 20}on", always="health")
    (section,) = [one for one in (await ask(api, "thanks!", token_budget=2000))["sections"] if one["name"] == "always"]
    assert section["tokens"] <= 120


async def test_what_was_replaced_or_is_of_another_user_does_not_stand(api: httpx.AsyncClient) -> None:
    eats = await remember(api, "Ada eats everything", always="health")
    await remember(api, "Ada eats no meat", always="health", supersedes=[eats["memory_id"]])
    await remember(api, "Ben is diabetic", always="health", user_id="v")
    assert texts(await ask(api, "thanks!"), "always") == ["Ada eats no meat"]
