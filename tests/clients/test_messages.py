"""What a program sent to a model and got, as messages of a session."""

from types import SimpleNamespace
from typing import Any

import pytest
from recalld_client import _openai_messages

ASKED: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "hm", "signature": "x"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "text", "text": "I looked."},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    {"type": "mcp_tool_use", "id": "s2", "name": "notes", "server_name": "n", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "s2", "content": "none"},
    {"type": "text", "text": "It is tea."},
]


@pytest.mark.parametrize("blocks", [ASKED, ASKED[:-1], ASKED[2:]])
def test_what_ran_at_the_provider_was_not_said(blocks: list[dict[str, Any]]) -> None:
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    answer = _openai_messages.anthropic_answer(SimpleNamespace(content=blocks))
    assert answer == [{"role": "assistant", "content": "\n".join(texts)}]


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": part} for part in texts]


def streamed(blocks: list[dict[str, Any]]) -> list[Any]:
    events = _openai_messages.AnthropicEvents()
    for index, block in enumerate(blocks):
        begun = {**block, "text": ""} if block["type"] == "text" else block
        events.add(SimpleNamespace(type="content_block_start", index=index, content_block=begun))
        if block["type"] == "text":
            delta = SimpleNamespace(type="text_delta", text=block["text"])
            events.add(SimpleNamespace(type="content_block_delta", index=index, delta=delta))
    return events.answer()


def test_texts_of_a_model_that_were_cut_for_citations_are_one() -> None:
    cited = [*ASKED[:-1], *text("The capital is ", "Paris", ".")]
    said = [{"role": "assistant", "content": "I looked.\nThe capital is Paris."}]
    assert _openai_messages.anthropic_answer(SimpleNamespace(content=cited)) == said
    assert streamed(cited) == said
    asked = {"messages": [{"role": "user", "content": text("Buy:", "milk")}]}
    assert _openai_messages.anthropic_turn(asked).query == "Buy:\nmilk"
    assert _openai_messages.chat_turn(asked).query == "Buy:\nmilk"
