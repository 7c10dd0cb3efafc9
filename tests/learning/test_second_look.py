"""The second look: what it removes, what it sees, and what becomes of a part when it fails."""

import httpx
import pytest

from app.settings import Settings
from tests.conftest import Service, Starter
from tests.support.chat import says as answers
from tests.support.learning import end, kept, learned, operation, summaries, talk, work
from tests.support.memories import OWNER, Json
from tests.support.model import STATED, Model

pytestmark = pytest.mark.anyio

SAID = ("I live in Oslo.", "Nice!", "If I had a dog, I'd call it Rex.", "Ha.")
OSLO, DOG = "The user lives in Oslo.", "The user has a dog called Rex."


def says(llm: Model) -> None:
    home = learned(OSLO, 1, profile_field="home", object="Oslo")
    llm.says = {
        "memories": {"memories": [home, learned(DOG, 3, predicate="has_pet", object="Rex")]},
    }


def objects(*words: str) -> object:
    """Objects to the items that have one of the words."""

    def look(data: Json) -> Json:
        wrong = [item["number"] for item in data["items"] if any(word in str(item) for word in words)]
        return {"unsupported": [{"why": "a condition", "number": number} for number in [*wrong, 999]]}

    return look


async def test_what_it_objects_to_is_stored_in_no_part(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    says(llm)
    llm.says["SecondLook"] = objects("Rex", "dog")  # type: ignore[assignment]
    await talk(service, *SAID)
    done = await end(service)
    parts = done["result"]["parts"]
    assert parts["memories"]["dropped"] == {"unsupported": 1}
    assert [memory["content"] for memory in await kept(service)] == [OSLO]
    assert "Rex" not in str((await api.get("/v1/facts", params={"user_id": "u"})).json())
    assert (await api.get("/v1/users/u/profile")).json()["home"] == "Oslo"
    assert [one["content"] for one in await summaries(service)] == ["The user lives in Oslo."]
    assert done["result"]["llm"]["calls"] == 2


async def test_it_sees_the_conversation_first_and_the_items_of_all_parts(service: Service, llm: Model) -> None:
    says(llm)
    await talk(service, *SAID)
    await end(service)
    (first, second) = (seen.body["messages"] for seen in llm.server.seen)
    assert first[0] == second[0], "the same system message"
    (asked,), (shown,) = llm.shown("Statements"), llm.shown("SecondLook")
    assert shown["conversation"] == asked["conversation"]
    assert [next(iter(data)) for data in (asked, shown)] == ["conversation", "conversation"], "what a cache may hold"
    assert [item["part"] for item in shown["items"]] == ["statements", "statements"]
    assert [item["number"] for item in shown["items"]] == [1, 2]


async def test_without_an_item_that_may_be_stored_nothing_is_asked(service: Service, llm: Model) -> None:
    llm.says = {
        "memories": {"memories": [learned(DOG, 3, certainty="guessed"), learned(DOG, quote="I have a dog")]},
    }
    await talk(service, *SAID)
    done = await end(service)
    assert (llm.calls, llm.shown("SecondLook")) == (1, [])
    assert done["result"]["parts"]["memories"]["dropped"] == {"not_stated": 1, "not_quoted": 1}
    assert done["result"]["parts"]["summary"]["status"] == "skipped"


async def test_if_it_fails_nothing_is_stored_and_the_messages_wait(service: Service, llm: Model) -> None:
    says(llm)
    llm.says["SecondLook"] = {"unsupported": 7}
    await talk(service, *SAID)
    waiting = await end(service)
    assert waiting["status"] == "queued"
    assert "memories: The model's answer cannot be used" in waiting["error"]
    assert (await kept(service), await summaries(service)) == ([], [])
    llm.says["SecondLook"] = objects("Rex", "dog")  # type: ignore[assignment]
    await work(service, minutes=1)
    done = await operation(service, waiting["operation_id"])
    assert done["status"] == "succeeded"
    assert [memory["content"] for memory in await kept(service)] == [OSLO]


@pytest.mark.parametrize(
    "objections",
    [
        {"unsupported": [{"why": "a condition", "number": 2}, {"number": 4}]},
        {"unsupported": [{"why": "a condition", "number": "the fourth"}]},
    ],
)
async def test_an_objection_that_cannot_be_read_lets_nothing_pass(
    service: Service, llm: Model, objections: Json
) -> None:
    says(llm)
    llm.says["SecondLook"] = objections
    await talk(service, *SAID)
    assert (await end(service))["status"] == "queued"
    assert (await kept(service), await summaries(service)) == ([], [])


async def test_objections_that_were_cut_off_let_nothing_pass(service: Service, llm: Model) -> None:
    items = [{**STATED, "quote": "I had a dog", "text": text} for text in (OSLO, DOG)]
    cut = answers('{"unsupported": [{"why": "a condition", "number": 2}, {"why": "a con', finish="length")
    await talk(service, *SAID)
    llm.server.then(answers({"statements": items}), cut, cut)
    waiting = await end(service)
    assert (waiting["status"], await kept(service)) == ("queued", [])
    assert "it was cut off" in waiting["error"]


async def test_a_long_reason_is_an_objection(service: Service, llm: Model) -> None:
    says(llm)
    llm.says["SecondLook"] = lambda data: {
        "unsupported": [{"why": "because " * 100, "number": item["number"]} for item in data["items"]]
    }
    await talk(service, *SAID)
    assert (await end(service))["status"] == "succeeded"
    assert (await kept(service), await summaries(service)) == ([], [])


async def test_a_lesson_of_tool_calls_is_looked_at_in_the_same_call(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await api.post("/v1/agents", json={"agent_id": "a", "name": "Builder"})
    call = {"id": "c", "type": "function", "function": {"name": "make", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Please build it. I live in Oslo."},
        {"role": "assistant", "content": "Building.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "refusing while 3 workers run"},
        {"role": "assistant", "content": "Workers still run."},
    ]
    llm.says = {
        "memories": {"memories": [learned(OSLO, 1)]},
        "LearnedExperience": {
            "lessons": [
                {"quote": "refusing while 3 workers run", "kind": "known_pitfalls", "text": "Stop the workers first."},
                {"quote": "refusing while 3 workers run", "kind": "heuristics", "text": "Never build."},
            ]
        },
    }
    llm.says["SecondLook"] = objects("Never build")  # type: ignore[assignment]
    await api.post("/v1/sessions/s/messages", json={**OWNER, "messages": messages})
    done = await end(service)
    assert done["result"]["llm"]["calls"] == 3, done["result"]["parts"]
    (shown,) = llm.shown("SecondLook")
    assert "refusing" in str(shown["tool_calls"])
    experience = (await api.get("/v1/agents/a/experience")).json()
    assert [lesson["text"] for lesson in experience["known_pitfalls"]] == ["Stop the workers first."]
    assert experience["heuristics"] == []


async def test_switched_off_it_is_not_asked_and_sentences_are_stored(
    start: Starter, settings: Settings, llm: Model
) -> None:
    off = settings.model_copy(update={"llm": settings.llm.model_copy(update={"verify": False})})
    says(llm)
    async with start(off) as service:
        await talk(service, *SAID)
        done = await end(service)
        assert (llm.calls, llm.shown("SecondLook")) == (1, [])
        assert {memory["content"] for memory in await kept(service)} == {SAID[0], SAID[2]}
        assert done["result"]["parts"]["memories"]["dropped"] == {"reworded": 2}
