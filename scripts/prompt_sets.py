"""The files of evaluate_prompts.py have one of three shapes, and are read into one.

- LoCoMo as its makers publish it: a list of conversations, read by evaluate_locomo.py.
- A set of messages or of facts: {"name", "conversations": [{"id", "kind": "messages" | "facts", "items",
  "questions"}]}; an item of messages is {"id", "session", "role", "content", "timestamp"}, of facts {"id", "content",
  "timestamp"}; a question is {"query", "evidence": [item ids], "after": the number of items known when it is asked,
  "kind"}.
- Stories of our own, tests/data/prompt_stories.json: {"worlds": [{"id", "language", "part": "dev" | "held_out",
  "memories", "procedures", "profile", "cases": [{"kind", "queries", "must": [texts that the prompt has to hold]}]}]};
  memories, procedures and profile are bodies of the API without their owner.

A question without evidence is left out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from scripts import evaluate_locomo

TEXT_LIMIT = 32_000
"""Characters that the service takes for one text; a longer item is cut there."""


@dataclass(frozen=True, slots=True)
class Item:
    """A message of a session, or a plain fact (`session` None)."""

    content: str
    time: datetime
    session: str | None = None
    role: str = "user"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    query: str
    evidence: tuple[str, ...]
    """Contents that the prompt should hold."""
    after: int
    """Items known when it is asked."""
    group: str
    """Row of the table."""
    kind: str


@dataclass(frozen=True, slots=True)
class Call:
    """A request that prepares a world; `path` may name {user_id}, `owned` bodies are sent with their owner."""

    method: str
    path: str
    body: dict[str, Any]
    owned: bool = True


@dataclass(frozen=True, slots=True)
class World:
    """One user's memories, and what is asked about them."""

    name: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]
    setup: tuple[Call, ...] = ()

    @property
    def contents(self) -> list[str]:
        stored = (text for call in self.setup for entry in call.body.get("items", ()) if (text := entry.get("content")))
        return [*(item.content for item in self.items), *stored]


def load(path: Path, part: str = "dev") -> list[World]:
    """`part` (dev, held_out or all) selects worlds of stories; the other shapes have no parts."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(raw, list):
        return [_locomo(conversation) for conversation in evaluate_locomo.load(path)]
    if "worlds" in raw:
        return [_story(world) for world in raw["worlds"] if part in ("all", world["part"])]
    return [_conversation(raw["name"], conversation) for conversation in raw["conversations"]]


def _locomo(conversation: evaluate_locomo.Conversation) -> World:
    first = conversation.speakers[0]
    text = {turn.place: turn.text for turn in conversation.turns}
    items = tuple(
        Item(turn.text, turn.time, str(turn.place[0]), "user" if turn.speaker == first else "assistant", turn.speaker)
        for turn in conversation.turns
    )
    questions = tuple(
        Question(
            question.text,
            tuple(text[place] for place in sorted(question.evidence)),
            len(items),
            "LoCoMo",
            evaluate_locomo.CATEGORIES[question.category],
        )
        for question in conversation.questions
    )
    return World(conversation.name, items, questions)


def _conversation(group: str, raw: dict[str, Any]) -> World:
    items = tuple(
        Item(
            item["content"][:TEXT_LIMIT],
            datetime.fromisoformat(item["timestamp"]),
            item["session"] if raw["kind"] == "messages" else None,
            item.get("role", "user"),
        )
        for item in raw["items"]
    )
    content = {item["id"]: known.content for item, known in zip(raw["items"], items, strict=True)}
    questions = tuple(
        Question(
            asked["query"],
            tuple(dict.fromkeys(content[name] for name in asked["evidence"])),
            asked.get("after", len(items)),
            group,
            asked["kind"],
        )
        for asked in raw["questions"]
        if asked["evidence"]
    )
    return World(raw["id"], items, questions)


def _story(raw: dict[str, Any]) -> World:
    calls = [Call("POST", "/v1/memories/batch", {"items": raw["memories"]})]
    calls += [Call("POST", "/v1/procedures", body) for body in raw.get("procedures", ())]
    if profile := raw.get("profile"):
        calls.append(Call("PUT", "/v1/users/{user_id}/profile", profile, owned=False))
    questions = tuple(
        Question(query, tuple(case["must"]), 0, case["kind"], raw["language"])
        for case in raw["cases"]
        for query in case["queries"]
    )
    return World(raw["id"], (), questions, tuple(calls))


def fewer(worlds: Sequence[World], conversations: int | None, questions: int | None) -> list[World]:
    """The first `conversations`, and of each as many questions, spread evenly over all of its questions."""
    chosen = worlds[:conversations]
    return [World(world.name, world.items, _spread(world.questions, questions), world.setup) for world in chosen]


def _spread(questions: tuple[Question, ...], wanted: int | None) -> tuple[Question, ...]:
    if wanted is None or wanted >= len(questions):
        return questions
    return tuple(questions[at * len(questions) // wanted] for at in range(wanted))
