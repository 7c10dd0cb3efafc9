"""Pinned memories and instructions are in every prompt, whatever it is asked."""

from typing import Any

import httpx
import pytest

from tests.conftest import Service
from tests.support.context import ask, dropped, headings, items, texts, warned
from tests.support.memories import batch, remember
from tests.support.profiles import register
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

PEANUTS = "Ada is deadly allergic to peanuts"
TONE = "Answer in short sentences"
ASKED = {
    "English": ("Book a table for my birthday please", "How do I run the tests in this repo?", "Hello!", "Thanks"),
    "German": ("Ändere bitte die Lieferadresse", "Wie soll ich sie erreichen?", "Guten Tag!", "Danke"),
    "Spanish": ("Reserva una mesa para mañana", "¿Dónde vive ahora?", "¡Hola!", "Gracias"),
    "Russian": ("Закажи пиццу на вечер", "Как запустить тесты?", "Привет!", "Спасибо"),
    "Chinese": ("帮我订一张桌子", "我怎么联系她?", "你好!", "谢谢"),
}
QUERIES = [(language, query) for language, queries in ASKED.items() for query in queries]


@pytest.mark.parametrize(("language", "query"), QUERIES)
async def test_they_are_there_whatever_is_asked(api: httpx.AsyncClient, language: str, query: str) -> None:
    await remember(api, PEANUTS, pinned=True, importance=1.0)
    await remember(api, TONE, memory_type="instruction")
    await batch(api, *({"content": f"Ada once visited town {at}"} for at in range(5)))
    for intent in ("auto", "general", "recall", "execute"):
        body = await ask(api, query, intent=intent, token_budget=300)
        assert texts(body, "instructions") == [PEANUTS, TONE]  # pinned ones first
        assert warned(body) == []
        assert {PEANUTS, TONE}.isdisjoint(texts(body, "memories"))


async def test_they_are_there_when_the_query_cannot_be_embedded_to_anything_near(api: httpx.AsyncClient) -> None:
    made = await remember(api, PEANUTS, pinned=True)
    body = await ask(api, "?", format="messages", exclude=["memories"])
    assert [one["id"] for one in items(body, "instructions")] == [made["memory_id"]]
    assert PEANUTS in body["messages"][0]["content"]


async def test_pinned_ones_come_first_then_the_most_trusted_then_the_most_important(api: httpx.AsyncClient) -> None:
    rule: dict[str, Any] = {"memory_type": "instruction"}
    await remember(api, "rule D", trust=0.5, importance=0.9, **rule)
    await remember(api, "rule C", trust=0.9, importance=0.3, **rule)
    await remember(api, "rule B", trust=0.9, importance=0.8, **rule)
    await remember(api, "rule A", trust=0.4, importance=0.1, pinned=True)
    assert texts(await ask(api), "instructions") == ["rule A", "rule B", "rule C", "rule D"]


async def test_they_take_a_quarter_of_the_budget_and_what_does_not_fit_is_warned_of(api: httpx.AsyncClient) -> None:
    rules = [f"Rule {at}: never speak of the colour {at} to anybody who asks for it" for at in range(20)]
    await batch(api, *({"content": rule, "memory_type": "instruction"} for rule in rules))
    body = await ask(api, "What is for dinner?", token_budget=400, min_score=1.0)
    size = sum(one["tokens"] for one in body["sections"] if one["name"] == "instructions")
    assert 70 < size <= 100
    left = len(rules) - len(items(body, "instructions"))
    assert warned(body) == ["instruction_left_out"] * left
    assert {warning["detail"].split(maxsplit=1)[1] for warning in body["warnings"]} == {
        "does not fit: give a larger token_budget."
    }
    assert sorted(one["detail"].split()[0] for one in body["warnings"]) == sorted(dropped(body))
    assert warned(await ask(api, "What is for dinner?", token_budget=4000)) == []


async def test_one_that_does_not_fit_competes_as_a_memory(api: httpx.AsyncClient) -> None:
    long = f"Never tell anybody the code of the safe. {'It is a secret of the house. ' * 50}"
    made = await remember(api, long, memory_type="instruction", importance=0.1)
    body = await ask(api, "What is the code of the safe?", token_budget=300, min_importance=0.9)
    assert [one["id"] for one in items(body, "memories")] == [made["memory_id"]]  # by its passage
    assert "Never tell anybody the code of the safe." in texts(body, "memories")[0]
    assert (warned(body), dropped(body)) == ([], {})


async def test_those_that_hold_no_more_are_not_there(service: Service) -> None:
    api = service.client
    rule: dict[str, Any] = {"memory_type": "instruction", "pinned": True}
    await remember(api, "the rule that holds", **rule)
    await remember(api, "expired", expires_at="2026-06-02T00:00:00Z", **rule)
    await remember(api, "no longer true", valid_until="2026-06-02T00:00:00Z", **rule)
    old = await remember(api, "replaced", **rule)
    await remember(api, "the rule instead", supersedes=[old["memory_id"]], **rule)
    archived = await remember(api, "archived", **rule)
    answered = await api.patch(f"/v1/memories/{archived['memory_id']}", json={"status": "archived"})
    assert answered.status_code == 200, answered.text
    sure = await remember(api, "the rule that is sure", trust=0.9, key="k", **rule)
    disputed = await remember(api, "disputed", trust=0.2, key="k", **rule)
    assert (sure["status"], disputed["status"]) == ("active", "disputed")
    deleted = await remember(api, "deleted", **rule)
    assert (await api.delete(f"/v1/memories/{deleted['memory_id']}")).status_code == 204
    service.clock.move(days=2)
    shown = texts(await ask(api, token_budget=8000), "instructions")
    assert set(shown) == {
        "the rule that holds",
        "the rule instead",
        "the rule that is sure",
    }


async def test_pinning_and_the_type_take_effect_at_once(api: httpx.AsyncClient) -> None:
    made = await remember(api, PEANUTS)
    path = f"/v1/memories/{made['memory_id']}"
    assert texts(await ask(api, "Hello"), "instructions") == []
    for change, there in (
        ({"pinned": True}, True),
        ({"pinned": False}, False),
        ({"memory_type": "instruction"}, True),
        ({"memory_type": "fact"}, False),
    ):
        assert (await api.patch(path, json=change)).status_code == 200
        assert bool(texts(await ask(api, "Hello"), "instructions")) is there


async def test_other_users_are_not_there_and_shared_ones_are(api: httpx.AsyncClient) -> None:
    await remember(api, "of another user", user_id="v", pinned=True)
    await remember(api, "of another agent", agent_id="b", pinned=True)
    await remember(api, "of every user", user_id=None, pinned=True)
    await remember(api, "of every agent", agent_id=None, pinned=True)
    assert set(texts(await ask(api), "instructions")) == {"of every user", "of every agent"}


async def test_they_must_be_trusted_enough(api: httpx.AsyncClient) -> None:
    await remember(api, "trusted", trust=0.9, memory_type="instruction")
    await remember(api, "doubtful", trust=0.3, memory_type="instruction")
    assert texts(await ask(api, min_trust=0.5), "instructions") == ["trusted"]
    assert len(texts(await ask(api), "instructions")) == 2


async def test_one_that_was_said_twice_comes_once(api: httpx.AsyncClient) -> None:
    await remember(api, TONE, memory_type="instruction")
    await remember(api, TONE, pinned=True, memory_type="preference")
    body = await ask(api)
    assert texts(body, "instructions") == [TONE]
    assert "duplicate" in dropped(body).values()
    assert warned(body) == []


async def test_one_past_the_limit_is_warned_of_as_that(api: httpx.AsyncClient) -> None:
    first = await remember(api, TONE, memory_type="instruction", trust=0.9)
    second = await remember(api, PEANUTS, memory_type="instruction", trust=0.8)
    bounds = {"instructions": {"limit": 1}}
    body = {"agent_id": "a", "user_id": "u", "query": "Hello", "sections": bounds}
    answered = (await api.post("/v1/context", json={**body, "exclude": ["memories"]})).json()
    assert [rule["id"] for rule in items(answered, "instructions")] == [first["memory_id"]]
    assert answered["warnings"] == [
        {
            "code": "instruction_left_out",
            "detail": f"{second['memory_id']} is past the section's limit: give `instructions` a larger `limit`.",
        }
    ]


# --- Least importance -------------------------------------------------------------------------------------------------


async def test_the_agents_least_importance_holds_unless_the_request_has_its_own(api: httpx.AsyncClient) -> None:
    high = await remember(api, "Ada lives in Boston", importance=0.9)
    low = await remember(api, "Ada lives near the harbour", importance=0.2)
    pinned = await remember(api, "Ada lives alone", importance=0.1, pinned=True)
    await register(api, settings={"min_importance": 0.5})

    async def shown(**fields: Any) -> tuple[set[str], dict[str, str]]:
        body = await ask(api, exclude=["instructions"], **fields)
        return {one["id"] for one in items(body, "memories")}, dropped(body)

    everything = {high["memory_id"], low["memory_id"], pinned["memory_id"]}
    hidden = {low["memory_id"]: "importance"}
    assert await shown() == (everything - hidden.keys(), hidden)
    assert await shown(min_importance=0.0) == (everything, {})
    assert await shown(min_importance=0.5) == (everything - hidden.keys(), hidden)
    assert (await shown(min_importance=0.95))[0] == {pinned["memory_id"]}
    assert (await ask(api, agent_id="another"))["dropped"] == []


async def test_importance_is_that_of_the_moment(service: Service) -> None:
    api = service.client
    made = await remember(api, "Ada lives in Boston", importance=0.5)
    assert items(await ask(api, min_importance=0.4, now="2026-06-01T13:00:00Z"), "memories")
    service.clock.move(days=300)
    assert dropped(await ask(api, min_importance=0.4)) == {made["memory_id"]: "importance"}


async def test_what_comes_with_a_hit_must_be_important_enough_too(api: httpx.AsyncClient) -> None:
    talk = [
        ("user", "What is the name of your dog?"),
        (
            "assistant",
            "Rex, since the spring of last year, after his uncle, who was a dachshund from Leith and bit the postman.",
        ),
    ]
    await append(api, [{"role": role, "content": content} for role, content in talk], session="before")
    question, answer = items(await ask(api, "Rex and the name of the dog"), "memories")
    changed = await api.patch(f"/v1/memories/{answer['id']}", json={"importance": 0.05})
    assert changed.status_code == 200, changed.text
    body = await ask(api, "the name of the dog", min_importance=0.3)
    assert [memory["id"] for memory in items(body, "memories")] == [question["id"]]
    assert dropped(body) == {answer["id"]: "importance"}


async def test_of_equal_memories_those_that_are_important_enough_stand(api: httpx.AsyncClient) -> None:
    texts_of = ("The boat lies in the harbour of Quincy now", "The boat lies in the harbour of Quincy, now")
    for unimportant in range(2):
        user_id = f"sailor-{unimportant}"
        made = [
            await remember(api, text, user_id=user_id, importance=0.1 if at == unimportant else 0.9)
            for at, text in enumerate(texts_of)
        ]
        body = await ask(api, "Where does the boat lie?", user_id=user_id, min_importance=0.5)
        assert [memory["id"] for memory in items(body, "memories")] == [made[1 - unimportant]["memory_id"]]
        assert dropped(body) == {made[unimportant]["memory_id"]: "importance"}


# --- Conversations ----------------------------------------------------------------------------------------------------


async def test_lines_of_a_conversation_stand_under_its_date_and_number(api: httpx.AsyncClient) -> None:
    await append(api, said("Ada lives in Boston", "Ada has a boat"), session="secret-session-one")
    await append(api, said("Ada lives with a cat"), session="secret-session-two")
    await remember(api, "Ada lives by the sea", event_at="2026-05-08T00:00:00Z")
    body = await ask(api)
    assert headings(body, "memories") == ["2026-05-08", "2026-06-01, conversation 1", "2026-06-01, conversation 2"]
    assert body["text"].count("### 2026-06-01, conversation 1\n") == 1
    assert "secret-session" not in body["text"]


@pytest.mark.parametrize("session", ["x" * 128, "conversation:2@2026-01-01", "Cite.no-entry_of.this"])
async def test_the_callers_id_of_a_session_is_never_shown(api: httpx.AsyncClient, session: str) -> None:
    await append(api, said("Ada lives in Boston"), session=session)
    body = await ask(api)
    assert (headings(body, "memories"), texts(body, "memories")) == (
        ["2026-06-01, conversation 1"],
        ["user: Ada lives in Boston"],
    )
    assert session not in body["text"]


async def test_a_short_answer_says_what_was_asked_and_the_question_stands_once(api: httpx.AsyncClient) -> None:
    talk = [
        {"role": "assistant", "content": "At night 35 decibels are allowed. How far away is his window?"},
        {"role": "user", "content": "Four metres."},
        {"role": "user", "content": "What does he want?"},
        {"role": "user", "content": "Quiet."},
    ]
    await append(api, talk, session="before")
    shown = texts(await ask(api, "How many metres away is the window, four?"), "memories")
    assert 'user, asked "How far away is his window?": Four metres.' in shown
    assert not any(text.startswith("assistant: ") for text in shown), "the question once more"
    assert not any(', asked "What does he want?"' in text for text in shown), "nobody asks himself"


async def test_a_question_comes_with_its_answer_and_an_answer_with_its_question(api: httpx.AsyncClient) -> None:
    talk = [
        ("user", "What is the name of your dog?"),
        (
            "assistant",
            "Rex, since the spring of last year, after his uncle, who was a dachshund from Leith and bit the postman.",
        ),
    ]
    await append(api, [{"role": role, "content": content} for role, content in talk], session="before")
    await batch(api, *({"content": f"The bus number {at} was late again"} for at in range(30)))
    for query in ("the name of the dog", "Rex"):
        shown = texts(await ask(api, query, sections={"memories": {"limit": 2}}), "memories")
        assert shown == [f"{role}: {content}" for role, content in talk]
