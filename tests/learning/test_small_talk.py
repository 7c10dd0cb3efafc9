"""Small talk is not sent to the model, and nothing is made of it."""

import pytest

from tests.conftest import Service
from tests.support.learning import end, kept, learned, summaries, talk
from tests.support.memories import PAIR, Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio

USER = (
    "hi", "Good morning!", "haha nothing much", "ok", "thanks", "👍", "danke schön", "merci beaucoup", "gracias",
    "grazie mille", "obrigada", "dank je wel", "спасибо", "谢谢", "ありがとう", "cool", "see you later", "i'm fine",
    "How are you?", "Nice weather today, isn't it?",
)  # fmt: skip
ASSISTANT = ("Good morning! How can I help you today?", "You're welcome!", "Glad to hear that!", "I am always here.")


def _memories(data: Json) -> Json:
    texts = list(dict.fromkeys(line["text"] for line in data["conversation"]))[:50]
    shape: Json = {"context": None, "memory_type": "preference", "importance": 0.9, "superseded_ids": []}
    return {"memories": [{"quote": text, "content": text, **shape} for text in texts]}


def _facts(data: Json) -> Json:
    texts = list(dict.fromkeys(line["text"] for line in data["conversation"]))[:50]
    shape = {"subject": "user", "predicate": "likes", "cardinality": "many", "valid_from": None}
    return {"facts": [{"quote": text, **shape, "object": text} for text in texts]}


def _profile(data: Json) -> Json:
    texts = list(dict.fromkeys(line["text"] for line in data["conversation"]))[:30]
    return {"profile": [{"quote": text, "field": "interest", "about": None, "value": text} for text in texts]}


async def test_a_session_of_small_talk_is_not_sent(service: Service, llm: Model) -> None:
    await talk(service, "Good morning!", "Good morning!", "nothing much", "Cool!", "thanks 👍", "You're welcome!")
    done = await end(service)
    assert llm.calls == 0
    assert done["status"] == "succeeded"
    assert (done["result"]["messages"], done["result"]["small_talk"]) == (6, 6)
    reasons = {name: part.get("reason") for name, part in done["result"]["parts"].items()}
    assert reasons.pop("interaction") is None
    assert set(reasons) == {"memories", "profile", "facts", "experience", "summary"}
    assert reasons.pop("experience") == "the agent is not registered"
    assert set(reasons.values()) == {"the messages are small talk"}
    again = await end(service)
    assert again["result"]["small_talk"] == 0  # it is not read again


async def test_what_is_said_between_small_talk_is_sent_without_it(service: Service, llm: Model) -> None:
    llm.says["LearnedMemories"] = {"memories": [learned("The user prefers tea.", 3)]}
    await talk(service, "hi", "Good morning!", "I prefer tea.", "Noted down.", "thanks", "You're welcome!")
    done = await end(service)
    assert [line["text"] for line in llm.shown("LearnedMemories")[0]["conversation"]] == [
        "I prefer tea.",
        "Noted down.",
    ]
    assert (done["result"]["messages"], done["result"]["small_talk"]) == (6, 4)
    assert [memory["content"] for memory in await kept(service)] == ["The user prefers tea."]
    calls = llm.calls
    await end(service)
    assert llm.calls == calls


async def test_extraction_of_small_talk_makes_no_call(service: Service, llm: Model) -> None:
    body = {**PAIR, "messages": [{"role": "user", "content": "thanks"}]}
    answer = await service.client.post("/v1/memories/extract", json=body)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["items"], answer.json()["llm"]["calls"], llm.calls) == ([], 0, 0)


async def test_five_hundred_turns_of_small_talk_leave_at_most_ten_records(service: Service, llm: Model) -> None:
    llm.says |= {"LearnedMemories": _memories, "LearnedFacts": _facts, "LearnedProfile": _profile}
    for number in range(10):
        turns = [(USER[at % len(USER)], ASSISTANT[at % len(ASSISTANT)]) for at in range(number, number + 25)]
        await talk(service, *[text for turn in turns for text in turn], session=f"s{number % 5}")
    for number in range(5):
        done = await end(service, f"s{number}")
        assert done["status"] == "succeeded", done
    assert llm.calls
    facts = (await service.client.get("/v1/facts", params={"user_id": "u"})).json()["items"]
    profile = (await service.client.get("/v1/users/u/profile")).json()
    learnt = [*await kept(service), *facts, *profile.get("interests", [])]
    assert len(await summaries(service)) + len(learnt) <= 10
