"""Renders the experience prompt: blocks of what an agent has learned and of what it knows of a user.

Stored text is data: it cannot close its block, pose as another lesson, or contain a special token.
"""

from collections.abc import Sequence
from typing import Any

from app.core import tokens
from app.core.prompt_fencing import EXPERIENCE, KNOWN_OF_USER, LEARNED, OF_USER, entry, json_line
from app.profiles.merge import LESSONS
from app.profiles.schemas import status_of
from app.storage.schema import Doc


def compose(
    experience: Doc | None, profile: Doc | None, memories: Sequence[Doc], max_tokens: int | None
) -> tuple[str, int]:
    """Returns the text and its tokens, never more than `max_tokens`. Memories are given most important first. If the
    budget is short, the last of them are left out first, then the least seen lessons."""
    lessons = _lessons(experience)
    parts = [_profile(profile), *lessons, *(_memory(memory) for memory in memories)]

    def render(count: int) -> str:
        taken = parts[:count]
        if not any(taken):
            return ""
        return _blocks(taken[:1], taken[1 : 1 + len(lessons)], taken[1 + len(lessons) :])

    text, size, _ = tokens.most_that_fit(parts, render, max_tokens)
    return text, size


def _blocks(profile: Sequence[str], lessons: Sequence[str], memories: Sequence[str]) -> str:
    blocks = []
    if lessons:
        blocks.append(_block(EXPERIENCE, "\n".join([LEARNED, *lessons])))
    inner = [*(_block("user_profile", text) for text in profile if text)]
    if memories:
        inner.append(_block("memories", "\n".join(memories)))
    if inner:
        blocks.append(_block(OF_USER, "\n".join([KNOWN_OF_USER, *inner])))
    return "\n\n".join(blocks)


def _block(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"


def _lessons(experience: Doc | None) -> list[str]:
    if experience is None:
        return []
    known = experience["procedural_knowledge"]
    lines = [_lesson("procedural_knowledge", known)] if known else []
    found = [(lesson["seen"], name, lesson["text"]) for name in LESSONS for lesson in experience[name]]
    return lines + [_lesson(name, text) for _, name, text in sorted(found, key=lambda one: -one[0])]


def _lesson(name: str, text: str) -> str:
    return entry(f"{name}: ", text).removesuffix("\n")


def _profile(profile: Doc | None) -> str:
    filled = {name: value for name, value in (profile or {}).items() if value not in (None, [], {})}
    return json_line(filled) if filled else ""


def _memory(memory: Doc) -> str:
    shown: dict[str, Any] = {"id": memory["memory_id"], "category": memory["memory_type"], "content": memory["content"]}
    if memory["context"]:
        shown["context"] = memory["context"]
    if status := status_of(memory):
        shown["status"] = status
    return json_line(shown)
