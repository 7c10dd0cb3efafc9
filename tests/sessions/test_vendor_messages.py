"""Messages of all vendors: what a part says is text, what only the vendor knows comes back, and neither is lost."""

import base64
import random
from typing import Any

import httpx
import pytest

from app.core.schemas import OBJECT_BYTES
from app.sessions.schemas import MessageIn
from tests.support.context import ask
from tests.support.sessions import Json, append, memories, messages, said

pytestmark = pytest.mark.anyio

BLOB = base64.b64encode(random.Random(7).randbytes(45_000)).decode()
"""60,000 characters, as the encrypted content of a compaction has."""
TEXT = {"type": "text", "text": "41 crates"}
WIDE = {str(number): number for number in range(257)}
ANSWER = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "41 crates"}


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (ANSWER, "41 crates"),
        ({**ANSWER, "content": [TEXT, {"type": "image", "source": {"type": "base64", "data": BLOB}}]}, "41 crates"),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "41 crates"}},
            "41 crates",
        ),
        ({"type": "document", "source": {"type": "content", "content": [TEXT, TEXT]}}, "41 crates\n41 crates"),
        ({"type": "search_result", "source": "https://x", "title": "Bay", "content": [TEXT]}, "41 crates"),
        (
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": "41 crates"}},
            "41 crates",
        ),
        ({"type": "refusal", "refusal": "I cannot say."}, "I cannot say."),
        ({"type": "input_audio", "transcript": "41 crates", "input_audio": {"data": "AAAA"}}, "41 crates"),
        ({"type": "audio", "audio": {"data": BLOB, "transcript": "41 crates"}}, "41 crates"),
        ({"type": "function_call_output", "call_id": "c", "output": "41 crates"}, "41 crates"),
        ({"type": "tool-result", "toolCallId": "c", "output": {"type": "text", "value": "41 crates"}}, "41 crates"),
        ({"type": "tool-result", "toolCallId": "c", "output": {"type": "json", "value": {"n": 41}}}, '{"n":41}'),
        ({"text": "41 crates"}, "41 crates"),
        ({"type": "run_result", "content": {"type": "ran", "stdout": "41 crates", "stderr": ""}}, "41 crates"),
        ({"type": "input_file", "filename": "bay.txt", "file_text": "41 crates"}, "41 crates"),
        ({"type": "reasoning_summary", "summary_text": "Hm."}, ""),
        ({"toolResult": {"toolUseId": "t", "content": [{"json": {"n": 41}}, {"text": "crates"}]}}, '{"n":41}\ncrates'),
        ({"functionResponse": {"name": "stock", "response": {"output": "41 crates"}}}, "41 crates"),
        ({"type": "tool_use", "id": "t", "name": "write", "input": {"text": "Buy milk", "content": "x"}}, ""),
        ({"toolUse": {"toolUseId": "t", "name": "write", "input": {"text": "Buy milk"}}}, ""),
        ({"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}, ""),
        ({"type": "thinking", "thinking": "Hm.", "content": "Hm."}, ""),
        ({"text": "Hm.", "thought": True}, ""),
        ({"type": "image_generation_call", "result": BLOB}, ""),
        ({"type": "image_url", "image_url": {"url": "https://x/y.png"}}, ""),
        ({"type": "web_search_tool_result", "content": [{"type": "web_search_result", "encrypted_content": BLOB}]}, ""),
    ],
)
def test_what_a_part_says_is_found_by_its_shape(part: Json, text: str) -> None:
    assert MessageIn(role="assistant", content=[part]).text() == text  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("role", "parts", "text"),
    [
        ("assistant", ["The capital is ", "Paris", "."], "The capital is Paris."),
        ("assistant", ["I look it up.", ANSWER, "It is ", "Paris."], "I look it up.\n41 crates\nIt is Paris."),
        ("assistant", ["I look it up.", {"type": "thinking", "thinking": "Hm."}, "Paris."], "I look it up.\nParis."),
        ("user", ["Two notes:", "Buy milk"], "Two notes:\nBuy milk"),
    ],
)
def test_what_a_model_says_around_its_citations_is_one_text(role: str, parts: list[Any], text: str) -> None:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    message = MessageIn.model_validate({"role": role, "content": content})
    assert message.text() == text
    assert message.text(own=True) == text.replace("41 crates\n", "")


async def test_a_part_without_text_is_named_and_a_thought_is_not(api: httpx.AsyncClient) -> None:
    parts = [
        TEXT,
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "thinking", "thinking": "Hm"},
    ]
    made = await append(api, [{"role": "user", "content": parts}, {"role": "assistant", "reasoning": "Hm"}])
    assert [(one["code"], one["pointer"]) for one in made["warnings"]] == [
        ("no_text", "/messages/0/content/1"),
        ("no_text", "/messages/1"),
    ]


async def test_a_tools_answer_in_a_users_message_is_the_tools_word(api: httpx.AsyncClient) -> None:
    await append(
        api, [{"role": "user", "content": [ANSWER]}, {"role": "user", "content": [ANSWER, {**TEXT, "text": "Ok?"}]}]
    )
    assert [memory["content"] for memory in await memories(api)] == ["Ok?"]
    context = (await api.get("/v1/sessions/s/context")).json()
    assert context["text"] == "tool: 41 crates\nuser: 41 crates\n  Ok?"
    assert [one["role"] for one in await messages(api)] == ["user", "user"]


async def test_a_refusal_and_a_transcript_beside_the_content_are_said(api: httpx.AsyncClient) -> None:
    await append(
        api,
        [
            {"role": "assistant", "content": None, "refusal": "I cannot open that drawer."},
            {"role": "assistant", "content": None, "audio": {"id": "a", "data": "AAAA", "transcript": "It is open."}},
        ],
    )
    assert [one["content"] for one in await memories(api)] == ["I cannot open that drawer.", "It is open."]


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 1


VENDORS: list[Json] = [
    {"role": "assistant", "content": "40 euros", "reasoning_content": "He asks for the bill."},
    {"role": "assistant", "content": "", "thinking_blocks": [{"type": "thinking", "thinking": "x", "signature": BLOB}]},
    {"role": "assistant", "content": "Done", "provider_specific_fields": {"a.b": {"$c": None}}, "id": "msg_1"},
    {"role": "user", "content": "What is this?", "images": [BLOB]},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "w", "arguments": {"city": "Rome"}}}]},
    {"role": "tool", "content": "14 degrees", "tool_name": "w"},
    {"role": "assistant", "tool_calls": [{"id": "", "type": "function", "function": {"name": "w", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "", "content": "15 degrees"},
    {"role": "assistant", "tool_calls": [{"id": "x" * 950, "function": {"name": "w", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "x" * 950, "content": "16 degrees"},
]


async def test_what_only_a_vendor_knows_comes_back_and_goes_nowhere_else(api: httpx.AsyncClient) -> None:
    made = await append(api, VENDORS)
    kept = await messages(api)
    assert kept == made["items"]
    for sent, one in zip(VENDORS, kept, strict=True):
        assert {name: one[name] for name in sent} == sent
    assert [memory["content"] for memory in await memories(api)] == ["40 euros", "Done", "What is this?"]
    assert all(memory["metadata"] == {} for memory in await memories(api))
    prompt = await ask(api, "And now?", session_id="s")
    assert "asks for the bill" not in prompt["text"]
    assert BLOB[:40] not in prompt["text"]
    patched = await api.patch("/v1/sessions/s/messages/1", json={"content": "41 euros"})
    assert patched.json()["reasoning_content"] == "He asks for the bill."
    await api.delete("/v1/sessions/s/messages/1")
    assert "reasoning_content" not in (await messages(api))[0]


async def test_calls_without_ids_are_replayed_as_openai_takes_them(api: httpx.AsyncClient) -> None:
    calls = [{"function": {"name": "w", "arguments": {"city": city}}} for city in ("Rome", "Oslo")]
    results = [{"role": "tool", "content": degrees, "tool_name": "w"} for degrees in ("14", "4")]
    await append(api, [*said("Weather?"), {"role": "assistant", "content": "", "tool_calls": calls}, *results])
    replayed = (await ask(api, "And now?", session_id="s", format="messages", exclude=["memories"]))["messages"][:-1]
    made = [
        {"id": f"call_2_{at}", "type": "function", "function": {"name": "w", "arguments": f'{{"city":"{city}"}}'}}
        for at, city in enumerate(("Rome", "Oslo"))
    ]
    assert replayed[1:] == [
        {"role": "assistant", "content": None, "tool_calls": made},
        {"role": "tool", "tool_call_id": "call_2_0", "content": "14"},
        {"role": "tool", "tool_call_id": "call_2_1", "content": "4"},
    ]


async def test_what_exceeds_the_limits_is_left_out_and_named(api: httpx.AsyncClient) -> None:
    large = "x" * (OBJECT_BYTES + 1)
    sent: Json = {
        "role": "assistant",
        "content": [TEXT, {"type": "opaque", "blob": large}, {"type": "odd", "deep": nested(40)}],
        "deep": {"fine": nested(5), "much": nested(40)},
        "wide": WIDE,
        "long": [*range(501)],
        "large": large,
        "seq": 7,
        "metadata": {"large": large, "blob": BLOB},
    }
    made = await append(api, [*said("fine"), sent])
    assert [one["pointer"] for one in made["warnings"] if one["code"] == "not_kept"] == [
        f"/messages/1/{place}"
        for place in ("seq", "content/2/deep", "deep/much", "wide", "long", "content/1", "metadata/large", "large")
    ]
    kept = (await messages(api))[1]
    assert (kept["content"], kept["deep"], kept["metadata"]) == (
        [TEXT, {"type": "odd"}],
        {"fine": nested(5)},
        {"blob": BLOB},
    )
    assert not {"wide", "long", "large"} & kept.keys()
    assert kept["seq"] == 2


async def test_a_part_keeps_its_text_and_a_call_its_name_when_something_in_it_is_left_out(
    api: httpx.AsyncClient,
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "store", "arguments": WIDE}}
    parts: list[Json] = [
        {"type": "output_text", "text": "41 crates", "logprobs": [{"token": "4", "logprob": -0.1}] * 600},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "Bay 7", "raw": nested(40)}]},
    ]
    made = await append(api, [{"role": "assistant", "content": parts, "tool_calls": [call]}])
    left_out = [one["pointer"] for one in made["warnings"] if one["code"] == "not_kept"]
    assert sorted(left_out) == [
        f"/messages/0/{place}"
        for place in ("content/0/logprobs", "content/1/content", "tool_calls/0/function/arguments")
    ]
    kept = (await messages(api))[0]
    assert kept["content"] == [
        {"type": "output_text", "text": "41 crates"},
        {"type": "tool_result", "tool_use_id": "t"},
    ]
    assert kept["tool_calls"] == [call | {"function": {"name": "store"}}]


async def test_the_unknown_fields_of_a_message_are_no_more_than_the_keys_of_an_object(api: httpx.AsyncClient) -> None:
    made = await append(api, [{"role": "user", "content": "41 crates", **WIDE}])
    (warning,) = made["warnings"]
    assert (warning["code"], warning["pointer"]) == ("not_kept", "/messages/0")
    assert not WIDE.keys() & (await messages(api))[0].keys()


@pytest.mark.parametrize(
    "sent",
    [
        {"role": "assistant", "content": None, "tool_calls": [WIDE]},
        {"role": "user", **WIDE},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "artifact": "x" * 300_000}]},
        {"role": "assistant", "thinking_blocks": "x" * 300_000},
        {"role": "user", "content": [{"type": "opaque", "blob": "x" * 300_000}]},
        {"role": "tool", "result": "A" * 300_000},
        {"role": "user", "content": [{"type": "odd", "deep": nested(40)}]},
    ],
)
async def test_a_message_of_which_nothing_can_be_kept_loses_no_turn(api: httpx.AsyncClient, sent: Json) -> None:
    made = await append(api, [*said("before"), sent, *said("after")])
    assert "not_kept" in [one["code"] for one in made["warnings"]]
    kept = await messages(api)
    assert [one["seq"] for one in kept] == [1, 2, 3]
    assert len(str(kept[1])) < 1000


@pytest.mark.parametrize(
    "field", ["metadata", "provider_specific_fields", "annotations", "tool_calls", "content", "result"]
)
async def test_what_is_opaque_comes_back_whole(api: httpx.AsyncClient, field: str) -> None:
    holder = {"type": "compaction", "id": "c", "encrypted_content": BLOB, "json": '{"a": "b c"}' * 4_000}
    if field == "result":
        del holder["json"]  # a long text of a result is cut
    value: Any = [holder] if field in ("annotations", "tool_calls", "content") else holder
    if field == "content":
        value = [TEXT, {"type": "reasoning", "compaction": holder}]
    sent = {"role": "tool" if field == "result" else "assistant", "content": "Done.", field: value}
    await append(api, [sent])
    assert (await messages(api))[0][field] == value


async def test_the_texts_of_nested_parts_are_cut_together(api: httpx.AsyncClient) -> None:
    long = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "word " * 8_000}]}
    made = await append(api, [{"role": "user", "content": [long, long]}])
    assert [one["pointer"] for one in made["warnings"]] == [f"/messages/0/content/{n}/content/0/text" for n in (0, 1)]
    texts = [part["content"][0]["text"] for part in (await messages(api))[0]["content"]]
    assert sum(map(len, texts)) <= 32_000
