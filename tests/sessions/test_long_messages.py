"""What a message holds is kept: text of any part, and the beginning and end of what is too long."""

import base64
import hashlib
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sessions.long_messages import fitted
from app.sessions.schemas import shortened
from tests.support.memories import problem
from tests.support.sessions import OWNER, Json, append, memories, messages, said

pytestmark = pytest.mark.anyio

LIMIT = 32_000
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 400
DATA = base64.b64encode(PNG).decode()
REFERENCE = {"type": "image/png", "size": len(PNG), "sha256": hashlib.sha256(PNG).hexdigest()}
LONG = "begin " + "x" * 50_000 + " end"


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize(
    "content", ["", " \n\t", [{"type": "text", "text": ""}], [{"type": "input_text", "text": " "}]]
)
async def test_a_message_that_says_nothing_is_refused_at_its_content(
    api: httpx.AsyncClient, role: str, content: Any
) -> None:
    sent = {**OWNER, "messages": [*said("fine"), {"role": role, "content": content}]}
    refused = await api.post("/v1/sessions/s/messages", json=sent)
    problem(refused, 422, "invalid", "/messages/1/content")
    assert refused.json()["errors"][0]["detail"].startswith(("is empty", "is required"))
    problem(await api.post("/v1/memories/extract", json=sent), 422, "invalid", "/messages/1/content")
    problem(await api.get("/v1/sessions/s"), 404)


async def test_what_has_no_text_but_something_else_is_kept(api: httpx.AsyncClient) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    sent: list[Json] = [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "", "tool_call_id": "c"},
        {"role": "system", "content": ""},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
        {"role": "assistant", "content": "", "refusal": "No."},
    ]
    made = await append(api, sent)
    for one, kept in zip(sent, made["items"], strict=True):
        assert {name: kept[name] for name in one} == one
    assert [memory["content"] for memory in await memories(api)] == ["No."]
    assert [(one["code"], one["pointer"]) for one in made["warnings"]] == [("no_text", "/messages/3/content/0")]


async def test_the_text_of_any_text_part_is_text_and_thoughts_are_not(api: httpx.AsyncClient) -> None:
    thought = [{"type": "reasoning_text", "text": "Hm."}, {"type": "thinking", "thinking": "Hm.", "text": "Hm."}]
    await append(
        api,
        [
            {"role": "user", "content": [{"type": "input_text", "text": "I moved to Oslo."}]},
            {"role": "assistant", "content": [*thought, {"type": "output_text", "text": "Noted.", "annotations": []}]},
            {"role": "user", "content": [{"type": "refined_text", "text": "Of a kind to come."}]},
        ],
    )
    assert [memory["content"] for memory in await memories(api)] == ["I moved to Oslo.", "Noted.", "Of a kind to come."]


async def test_a_long_tool_result_is_kept_by_its_beginning_and_end(api: httpx.AsyncClient) -> None:
    sent: list[Json] = [
        *said("Look it up."),
        {"role": "tool", "content": LONG, "tool_call_id": "c", "result": {"rows": [LONG, 1], "mime": "text/plain"}},
        {"role": "user", "content": [{"type": "text", "text": LONG}, {"type": "input_text", "text": "short"}]},
    ]
    made = await append(api, sent)
    pointers = ["/messages/1/content", "/messages/1/result/rows/0", "/messages/2/content/0/text"]
    assert [(warning["code"], warning["pointer"]) for warning in made["warnings"]] == [
        ("text_shortened", pointer) for pointer in pointers
    ]
    first, result, parts = await messages(api)
    assert first["content"] == "Look it up."
    for text in (result["content"], result["result"]["rows"][0]):
        assert len(text) <= LIMIT
        assert text.startswith("begin x")
        assert text.endswith("x end")
        assert "18,058 characters left out" in text
    assert (result["result"]["rows"][1], result["result"]["mime"], result["tool_call_id"]) == (1, "text/plain", "c")
    assert parts["content"][1]["text"] == "short"
    (_, long) = await memories(api)
    assert long["content"].startswith("begin x")
    assert long["content"].endswith("x end\nshort")
    assert len(long["content"]) <= LIMIT


@pytest.mark.parametrize(
    ("part", "place"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}", "detail": "low"}},
            "image_url/url",
        ),
        ({"type": "input_image", "image_url": f"data:image/png;base64,{DATA}", "detail": "auto"}, "image_url"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}, "source/data"),
        ({"type": "image", "data": DATA, "mimeType": "image/png"}, "data"),
        (
            {"type": "file", "file": {"filename": "a.png", "file_data": f"data:image/png;base64,{DATA}"}},
            "file/file_data",
        ),
    ],
)
async def test_a_large_inline_file_becomes_its_reference(api: httpx.AsyncClient, part: Json, place: str) -> None:
    sent = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}
    result = {"role": "tool", "content": "", "tool_call_id": "c", "result": {"content": [part]}}
    made = await append(api, [sent, result])
    assert [warning["code"] for warning in made["warnings"]] == ["file_not_kept", "no_text", "file_not_kept"]
    assert made["warnings"][0]["pointer"] == f"/messages/0/content/1/{place}"
    first, second = await messages(api)
    expected = json.loads(json.dumps(part))
    *outer, last = place.split("/")
    holder = expected
    for name in outer:
        holder = holder[name]
    holder[last] = REFERENCE
    assert first["content"] == [sent["content"][0], expected]
    assert second["result"] == {"content": [expected]}


async def test_data_of_an_unnamed_type_in_a_part_are_a_file_and_in_a_result_stay_whole(api: httpx.AsyncClient) -> None:
    audio = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
    await append(api, [{"role": "user", "content": [audio]}, {"role": "tool", "content": "", "result": {"data": DATA}}])
    first, second = await messages(api)
    assert first["content"][0]["input_audio"] == {
        "data": {**REFERENCE, "type": "application/octet-stream"},
        "format": "wav",
    }
    assert second["result"]["data"] == DATA


async def test_small_inline_files_stay_as_they_are(api: httpx.AsyncClient) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    made = await append(api, [{"role": "user", "content": [part]}])
    assert made["items"][0]["content"] == [part]
    assert [warning["code"] for warning in made["warnings"]] == ["no_text"]


async def test_long_arguments_stay_json(api: httpx.AsyncClient) -> None:
    arguments = json.dumps({"path": "a.txt", "text": LONG})
    call_ = {"id": "c", "type": "function", "function": {"name": "write", "arguments": arguments}}
    made = await append(api, [{"role": "assistant", "content": "", "tool_calls": [call_]}])
    kept = json.loads(made["items"][0]["tool_calls"][0]["function"]["arguments"])
    assert kept["path"] == "a.txt"
    assert kept["text"].startswith("begin")
    assert kept["text"].endswith("end")
    assert len(made["warnings"]) == 1


async def test_other_texts_of_the_body_are_refused_as_ever(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "messages": said("x"), "metadata": {"a": "y" * (LIMIT + 1)}}
    problem(await api.post("/v1/sessions/s/messages", json=body), 422, "invalid", "/metadata/a")
    body = {**OWNER, "messages": [{"role": "user", "content": "x", "metadata": {"k" * (LIMIT + 1): 1}}]}
    problem(await api.post("/v1/sessions/s/messages", json=body), 422, "invalid", "/messages/0/metadata")
    body = {**OWNER, "messages": said("a\x00" + LONG)}
    problem(await api.post("/v1/sessions/s/messages", json=body), 422, "invalid", "/messages/0/content")


@given(st.lists(st.integers(0, 400), max_size=8).map(lambda sizes: ["x" * size for size in sizes]), st.integers(0, 500))
def test_texts_are_cut_no_more_than_needed(texts: list[str], limit: int) -> None:
    cut = fitted(texts, limit)
    assert sum(map(len, cut)) <= limit
    if sum(map(len, texts)) <= limit:
        assert cut == texts
    for text in texts:
        assert len(shortened(text, limit)) <= limit
