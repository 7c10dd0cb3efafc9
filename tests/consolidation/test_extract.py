"""Messages in, memories out, in one call."""

import asyncio
import json

import httpx
import pytest

from tests.conftest import Service
from tests.consolidation.helpers import kept, learned, said
from tests.embedding.scripted import Reply
from tests.llm.chat import completion
from tests.llm.model import Model
from tests.memories.helpers import PAIR, Json, problem, remember

pytestmark = pytest.mark.anyio


async def extract(api: httpx.AsyncClient, *texts: str, expect: int = 201, **more: object) -> Json:
    headers = more.pop("headers", None)
    body = {**PAIR, "messages": said(*texts), **more}
    answer = await api.post("/v1/memories/extract", json=body, headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == expect, answer.text
    found: Json = answer.json()
    return found


async def test_what_the_model_finds_is_stored_and_found(api: httpx.AsyncClient, llm: Model) -> None:
    llm.says["LearnedMemories"] = {"memories": [learned("Ada prefers tea.", 1), learned("Ada moved to Boston.", 3)]}
    made = await extract(api, "I prefer tea.", "Noted.", "I moved to Boston.")
    assert (made["created"], made["superseded"], made["dropped"]) == (2, 0, {})
    assert made["llm"] == {"calls": 1, "tokens": 50}
    assert {memory["source"]["origin"] for memory in made["items"]} == {"extraction"}
    assert {memory["source"]["session_id"] for memory in made["items"]} == {None}
    found = await api.post("/v1/memories/search", json={**PAIR, "query": "Where does Ada live?"})
    assert found.json()["items"][0]["memory"]["content"] == "Ada moved to Boston."


async def test_it_supersedes_what_it_was_shown_and_nothing_else(api: httpx.AsyncClient, llm: Model) -> None:
    mine = await remember(api, "Ada lives in New York.")
    shared = await remember(api, "Ada lives in New York City.", agent_id=None)
    others = await remember(api, "Bob lives in New York.", user_id="bob")
    pinned = await remember(api, "Ada has lived in New York since May.", pinned=True)
    ids = [memory["memory_id"] for memory in (mine, shared, others, pinned)]
    llm.says["LearnedMemories"] = {
        "memories": [learned("Ada lives in Boston.", 1, 99, superseded_ids=[*ids, "mem_invented"])]
    }
    made = await extract(api, "I moved from New York to Boston.")
    shown = {memory["memory_id"] for memory in llm.shown("LearnedMemories")[0]["known_memories"]}
    assert others["memory_id"] not in shown
    assert made["superseded"] == 1
    assert made["dropped"] == {"invented_messages": 1, "invented_ids": 2, "of_another_scope": 1, "protected": 1}
    status = {each: (await api.get(f"/v1/memories/{each}")).json()["status"] for each in ids}
    assert [status[each] for each in ids] == ["superseded", "active", "active", "active"]


async def test_a_long_conversation_is_read_in_stretches(api: httpx.AsyncClient, llm: Model) -> None:
    llm.says["LearnedMemories"] = lambda data: {
        "memories": [
            learned("They count.", data["conversation"][0]["seq"]),
            learned(data["conversation"][0]["text"][:20]),
        ]
    }
    made = await extract(api, *(f"{number} " + "word " * 1500 for number in range(8)))
    assert made["llm"]["calls"] == len(llm.asked) == 3
    assert made["created"] == 4  # the same thing twice is one memory


async def test_the_same_key_asks_the_model_once(api: httpx.AsyncClient, llm: Model) -> None:
    llm.says["LearnedMemories"] = {"memories": [learned("Ada prefers tea.", 1)]}
    first = await extract(api, "I prefer tea.", headers={"Idempotency-Key": "k"})
    assert await extract(api, "I prefer tea.", headers={"Idempotency-Key": "k"}) == first
    assert len(llm.asked) == 1


async def test_a_plan_that_meets_a_conflict_does_not_ask_again(service: Service, llm: Model) -> None:
    llm.says["LearnedMemories"] = {"memories": [learned("Ada prefers tea.", 1)]}
    both = await asyncio.gather(*(extract(service.client, "I prefer tea.") for _ in range(4)))
    assert len(llm.asked) == 4
    assert len({made["items"][0]["memory_id"] for made in both}) == 1
    assert len(await kept(service)) == 1


FAULTS = {
    "server error": Reply(401),
    "no json": Reply(body=completion("sorry?")),
    "wrong schema": Reply(body=completion(json.dumps({"memories": [{"content": 1}]}))),
    "nan": Reply(body=completion('{"memories": [{"content": "x", "importance": NaN}]}')),
    "refusal": Reply(body=completion(None, refusal="no")),
    "truncated": Reply(body=completion('{"memories": [', finish="length")),
    "ten megabytes": Reply(body=completion("x" * (10 << 20))),
}


@pytest.mark.parametrize("reply", FAULTS.values(), ids=FAULTS)
async def test_a_fault_stores_nothing_and_says_why(service: Service, llm: Model, reply: Reply) -> None:
    llm.server.then(reply, reply)
    fault = await extract(service.client, "I prefer tea.", expect=503)
    assert fault["code"] in ("llm_unavailable", "llm_reply_invalid")
    assert await kept(service) == []


async def test_bad_input_is_refused_before_the_model_is_asked(api: httpx.AsyncClient, llm: Model) -> None:
    for body in (
        {"messages": said("hi")},
        {**PAIR, "messages": []},
        {**PAIR, "messages": [{"role": "user"}]},
        {**PAIR, "messages": [{"role": "tool", "content": "hi", "tool_call_id": "t"}]},
        {**PAIR, "messages": said("hi"), "trust": 1},
    ):
        problem(await api.post("/v1/memories/extract", json=body), 422, "invalid")
    assert llm.server.seen == []


async def test_a_bound_key_extracts_for_its_own_user_alone(service: Service, llm: Model) -> None:
    bound = await service.key(users=["bob"])
    body = {**PAIR, "messages": said("hi")}
    problem(await service.client.post("/v1/memories/extract", json=body, headers=bound), 403, "forbidden")
    assert llm.server.seen == []
