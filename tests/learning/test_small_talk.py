"""What says nothing is not sent to the model, and nothing is made of it."""

import pytest

from tests.conftest import Service
from tests.support.learning import end, kept, learned, talk
from tests.support.memories import OWNER
from tests.support.model import Model

pytestmark = pytest.mark.anyio


async def test_a_session_of_small_talk_is_not_sent(service: Service, llm: Model) -> None:
    await talk(service, "👋", "🙂", "…", "!", "👍", "🙏")
    done = await end(service)
    assert llm.calls == 0
    assert done["status"] == "succeeded"
    assert (done["result"]["messages"], done["result"]["small_talk"]) == (6, 6)
    reasons = {name: part.get("reason") for name, part in done["result"]["parts"].items()}
    assert set(reasons) == {"memories", "profile", "facts", "experience", "summary"}
    assert reasons.pop("experience") == "the agent is not registered"
    assert set(reasons.values()) == {"the messages are small talk"}
    again = await end(service)
    assert again["result"]["small_talk"] == 0  # it is not read again


async def test_what_is_said_between_small_talk_is_sent_without_it(service: Service, llm: Model) -> None:
    llm.says["memories"] = {"memories": [learned("The user prefers tea.", 3)]}
    await talk(service, "👋", "🙂", "I prefer tea.", "Noted down.", "👍", "🙏")
    done = await end(service)
    assert [line["text"] for line in llm.shown("Statements")[0]["conversation"]] == [
        "I prefer tea.",
        "Noted down.",
    ]
    assert (done["result"]["messages"], done["result"]["small_talk"]) == (6, 4)
    assert [memory["content"] for memory in await kept(service)] == ["The user prefers tea."]
    calls = llm.calls
    await end(service)
    assert llm.calls == calls


async def test_extraction_of_small_talk_makes_no_call(service: Service, llm: Model) -> None:
    body = {**OWNER, "messages": [{"role": "user", "content": "🙏"}]}
    answer = await service.client.post("/v1/memories/extract", json=body)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["items"], answer.json()["llm"]["calls"], llm.calls) == ([], 0, 0)
