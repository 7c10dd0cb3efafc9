"""A language model that says what a test lets it say, behind a real HTTP server."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.chat import completion
from tests.support.scripted import Reply, ScriptedServer, scripted_server

Json = dict[str, Any]

NOTHING: dict[str, Json] = {
    "Statements": {"statements": []},
    "LearnedExperience": {"lessons": []},
    "DayText": {"text": "They worked."},
    "FoundFacts": {"facts": []},
    "FoundProcedures": {"procedures": []},
    "RevisedSteps": {"revised_steps": []},
    "JudgedPairs": {"pairs": []},
    "MergedFact": {"value": None},
    "FoundInsight": {"sources": [], "insight": None},
    "SecondLook": {"unsupported": []},
}
STATED: Json = {"subject": "user", "kind": "preference", "certainty": "stated", "holds": "now"}
"""What a statement says of itself, unless a test says otherwise."""
LESSON: Json = {"about": "work", "certainty": "stated", "holds": "now"}


PARTS = {
    "statements": "Statements",
    "lessons": "LearnedExperience",
    "procedures": "FoundProcedures",
}
"""The shape of each part of an answer to one call for several parts."""


class Model:
    """Answers each shape with what was set for it; a callable is given the data that the model was shown.

    A test may say in short what was learned: `memories` and `facts` are statements by `message_seqs`, `profile` is a
    patch, and lessons stand by list. The model quotes then: the message of that number, or the first one that contains
    the value.
    """

    def __init__(self) -> None:
        self.says: dict[str, Json | Callable[[Json], Json]] = {}
        self.asked: list[tuple[str, str, Json]] = []  # shape, instructions, data; a call for several parts is several
        self.calls = 0
        self.server: ScriptedServer

    def answer(self, reply: Reply, body: Json) -> bytes:
        self.calls += 1
        asked = body["response_format"]["json_schema"]
        data, end = json.JSONDecoder().raw_decode(body["messages"][1]["content"])
        instructions = body["messages"][1]["content"][end:].strip()
        given: Json = {}
        for shape in _shapes(asked, data):
            self.asked.append((shape, instructions, data))
            said = self._said(shape, data)
            if shape == "Statements":
                short = {name: self._said(name, data) for name in ("memories", "profile", "facts")}
                said = {"statements": _statements(short, data), **said}
            given |= NOTHING[shape] | (_lessons(said, data) if shape == "LearnedExperience" else said)
        return completion(json.dumps(given))

    def _said(self, name: str, data: Json) -> Json:
        said = self.says.get(name, {})
        return said(data) if callable(said) else said

    def shown(self, shape: str) -> list[Json]:
        return [data for name, _, data in self.asked if name == shape]


def _shapes(asked: Json, data: Json) -> list[str]:
    if asked["name"] != "Learned":
        return [asked["name"]]
    named = {**PARTS, "facts": "FoundFacts"} if "episodes" in data else PARTS
    return [shape for name, shape in named.items() if name in asked["schema"]["properties"]]


def _lines(data: Json) -> list[tuple[int, str, str]]:
    lines = [(line["seq"], line["role"], line["text"]) for line in data.get("conversation", ())]
    lines += [(one["number"], "user", one["content"]) for one in data.get("episodes", ())]
    return lines or [(0, "user", "")]


def _statements(short: Json, data: Json) -> list[Any]:
    """The statements of what a test says in short. A fact is told in its own words."""
    lines = _lines(data)
    facts = short["facts"].get("facts", ())
    told = [{"text": "{subject} {predicate} {object}".format(**one).replace("_", " "), **one} for one in facts]
    profile = [item | {"quote": _of(item["object"], lines)} for item in _items(short["profile"])]
    items = [*short["memories"].get("memories", ()), *profile, *told]
    return [STATED | _replacing(_cited(one, lines), data) if isinstance(one, dict) else one for one in items]


def _lessons(said: Json, data: Json) -> Json:
    lines, lessons = _lines(data), said.get("lessons")
    if lessons is None:
        found = [(kind, text) for kind, texts in said.items() for text in texts]
        lessons = [{"quote": _of(text, lines), "kind": kind, "text": text} for kind, text in found]
    if not isinstance(lessons, list):
        return {"lessons": lessons}
    return {"lessons": [LESSON | one if isinstance(one, dict) else one for one in lessons]}


def _cited(one: Json, lines: list[tuple[int, str, str]]) -> Json:
    if "message_seqs" not in one:
        return one
    texts = {seq: text for seq, _, text in lines}
    cited = [texts[seq] for seq in one["message_seqs"] if seq in texts]
    said = [text for _, role, text in lines if role == "user"] if not one["message_seqs"] else []
    return {"quote": [*cited, *said, ""][0][:2000]} | {
        name: value for name, value in one.items() if name != "message_seqs"
    }


def _replacing(one: Json, data: Json) -> Json:
    """The memory; what it supersedes by id is replaced whole."""
    known = {each["memory_id"]: each["content"] for each in data.get("known_memories", ())}
    replaced = [{"memory_id": key, "words": known.get(key, "?"), "left": ""} for key in one.get("superseded_ids", ())]
    rest = {name: value for name, value in one.items() if name != "superseded_ids"}
    return {"replaces": replaced, **rest}


def _items(patch: Json) -> list[Json]:
    lists = {"interests": "interest", "conversation_preferences": "conversation_preference"}
    items: list[Json] = []
    for name, value in patch.items():
        field = lists.get(name, "preference" if name == "preferences" else name)
        values = value if isinstance(value, list) else [value] if value is not None else []
        for each in values:
            named = each if isinstance(each, dict) else {"name": None, "value": str(each)}
            text = f"Of the user, {field}: {named['value']}"
            items.append({"profile_field": field, "predicate": named["name"], "object": named["value"], "text": text})
    return items


def _of(value: str, lines: list[tuple[int, str, str]]) -> str:
    said = [text for _, role, text in lines if role == "user"] or [lines[0][2]]
    return next((text for text in said if value.casefold() in text.casefold()), said[0])[:2000]


@contextmanager
def scripted_model() -> Iterator[Model]:
    model = Model()
    with scripted_server(model.answer) as server:
        model.server = server
        yield model
