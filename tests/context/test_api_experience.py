"""What the agent has learned from all its users, in a context."""

import httpx
import pytest

from app.core.clock import rfc3339
from tests.conftest import Service
from tests.support.context import ask, items, names, problem_free, texts
from tests.support.profiles import learn, register

pytestmark = pytest.mark.anyio

QUERY = "The parcel is lost: what about a refund?"


async def test_lessons_that_answer_come_first(api: httpx.AsyncClient) -> None:
    await register(api)
    await learn(api, heuristics=["Greet in the user's language."], known_pitfalls=["Never refund a lost parcel twice."])
    await learn(api, heuristics=["Greet in the user's language."], procedural_knowledge="Be brief.\n\nSay sorry first.")
    for intent in ("general", "recall"):
        other = await ask(api, QUERY, intent=intent)
        assert texts(other, "experience")[0] == "2026-06-01 pitfall: Never refund a lost parcel twice.", intent
    body = problem_free(await ask(api, QUERY, intent="execute"))
    assert texts(body, "experience") == [
        "2026-06-01 pitfall: Never refund a lost parcel twice.",
        "knowledge: Be brief.",
        "knowledge: Say sorry first.",
    ], "two of those that have no rare word of the query, where so little is stored"
    scores = [one["score"] for one in items(body, "experience")]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 5 * scores[1] > 0
    assert [one["id"] for one in items(body, "experience")][:2] == [
        "experience:known_pitfalls/0",
        "experience:procedural_knowledge/0",
    ]
    assert {one["type"] for one in items(body, "experience")} == {"experience"}


async def test_the_newest_lessons_come_first_where_none_answers(service: Service) -> None:
    api = service.client
    await register(api)
    await learn(api, heuristics=[f"Lesson {at}" for at in range(12)])
    await learn(api, heuristics=[f"Lesson {at}" for at in range(12)])
    service.clock.move(days=2)
    await learn(api, known_pitfalls=["Mind the gap."])
    shown = texts(await ask(api, QUERY), "experience")
    assert (shown[0], len(shown)) == ("2026-06-03 pitfall: Mind the gap.", 2)
    service.clock.move(days=2)
    await learn(api, heuristics=["lesson 7"])
    assert texts(await ask(api, QUERY), "experience")[:2] == [
        "2026-06-05 heuristic: Lesson 7",
        "2026-06-03 pitfall: Mind the gap.",
    ], "it was learned again"


async def test_a_prompt_of_then_has_the_lessons_of_then(service: Service) -> None:
    api = service.client
    await register(api)
    await learn(api, heuristics=["Greet in the user's language."])
    then = rfc3339(service.clock.now())
    service.clock.move(minutes=5)
    await learn(api, heuristics=["Greet in the user's language."], known_pitfalls=["Never refund a lost parcel twice."])
    body = await ask(api, QUERY, now=then, known_at=then)
    assert [text.partition(": ")[2] for text in texts(body, "experience")] == ["Greet in the user's language."]
    assert len(texts(await ask(api, QUERY), "experience")) == 2


async def test_an_agent_without_experience_has_no_section(api: httpx.AsyncClient) -> None:
    assert "experience" not in names(await ask(api, QUERY))
    await register(api)
    assert "experience" not in names(await ask(api, QUERY))


async def test_only_the_best_lessons_have_room(api: httpx.AsyncClient) -> None:
    await register(api)
    await learn(
        api,
        heuristics=[f"Lesson {at}" for at in range(40)],
        tool_patterns=["Look up the parcel"],
        known_pitfalls=[f"A refund of {at} needs a form" for at in range(4)],
    )
    body = await ask(api, QUERY, token_budget=2000)
    shown = texts(body, "experience")
    assert "2026-06-01 tool pattern: Look up the parcel" in shown
    assert sum("A refund" in text for text in shown) == 4
    assert sum("Lesson" in text for text in shown) <= 2, "nothing in them is rare"
    bounded = await ask(api, QUERY, sections={"experience": {"limit": 2}})
    assert len(texts(bounded, "experience")) == 2


async def test_a_key_of_another_agent_does_not_see_the_lessons(service: Service) -> None:
    api = service.client
    owner = await service.key()
    agent = {"agent_id": "a", "name": "Support"}
    assert (await api.post("/v1/agents", json=agent, headers=owner)).status_code == 201
    lessons = {"heuristics": ["Never refund a lost parcel twice."]}
    assert (await api.patch("/v1/agents/a/experience", json=lessons, headers=owner)).status_code == 200
    body = {"agent_id": "a", "user_id": "u", "query": QUERY}
    for headers, seen in (
        (owner, True),
        (await service.key(users=["u"]), True),
        (await service.key(agents=["b"]), False),
        (await service.key("elsewhere"), False),
    ):
        answered = await api.post("/v1/context", json=body, headers=headers)
        assert ("lost parcel twice" in answered.text) == seen
