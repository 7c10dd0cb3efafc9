"""Answers of a chat server, as the scripted server gives them."""

import json
from typing import Any

from tests.support.scripted import Reply


def completion(content: str | None, *, finish: str = "stop", refusal: str | None = None, tokens: int = 50) -> bytes:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "choices": [choice], "usage": {"total_tokens": tokens}}
    ).encode()


def says(content: Any, **given: Any) -> Reply:
    """A model's answer: text as it is, anything else as JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    return Reply(body=completion(text, **given))


def silent(reply: Reply, asked: dict[str, Any]) -> bytes:
    """Past the script's end nothing useful is said."""
    return completion("{}")
