"""A language model that says what a test lets it say, behind a real HTTP server."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.chat import completion
from tests.support.scripted import Reply, ScriptedServer, scripted_server

Json = dict[str, Any]

NOTHING: dict[str, Json] = {
    "LearnedMemories": {"memories": []},
    "LearnedProfile": {"profile": []},
    "LearnedFacts": {"facts": []},
    "LearnedExperience": {"lessons": []},
    "DayText": {"text": "They worked."},
    "FoundFacts": {"facts": []},
    "FoundProcedures": {"procedures": []},
    "RevisedSteps": {"revised_steps": []},
    "JudgedPairs": {"pairs": []},
    "Summary": {"summary": "They talked."},
    "MergedFact": {"value": None},
    "FoundInsight": {"sources": [], "insight": None},
    "SecondLook": {"unsupported": []},
}
STATED: Json = {"about": "user", "whom": None, "certainty": "stated", "holds": "now"}
"""What an item says of itself, unless a test says otherwise. A lesson is about nobody."""


PARTS = {
    "memories": "LearnedMemories",
    "profile": "LearnedProfile",
    "facts": "LearnedFacts",
    "lessons": "LearnedExperience",
    "procedures": "FoundProcedures",
    "summary": "Summary",
}
"""The shape of each part of an answer to one call for several parts."""


class Model:
    """Answers each shape with what was set for it; a callable is given the data that the model was shown.

    A test may say what was learned in short: memories and facts by `message_seqs`, the profile as a patch, lessons by
    list. The model quotes then: the message of that number, or the first one that contains the value.
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
            said = self.says.get(shape, {})
            given |= NOTHING[shape] | _stated(shape, _quoted(shape, said(data) if callable(said) else said, data))
        return completion(json.dumps(given))

    def shown(self, shape: str) -> list[Json]:
        return [data for name, _, data in self.asked if name == shape]


def _shapes(asked: Json, data: Json) -> list[str]:
    if asked["name"] != "Learned":
        return [asked["name"]]
    named = {**PARTS, "facts": "FoundFacts"} if "episodes" in data else PARTS
    return [shape for name, shape in named.items() if name in asked["schema"]["properties"]]


def _stated(shape: str, said: Json) -> Json:
    """The answer with the fields of its items that a test left out."""
    names = {"LearnedMemories": "memories", "LearnedFacts": "facts", "LearnedProfile": "profile"}
    fields = STATED if shape in names else STATED | {"about": "nobody"}
    name = names.get(shape, "lessons" if shape == "LearnedExperience" else None)
    if name is None or not isinstance(said.get(name), list):
        return said
    return said | {name: [fields | item if isinstance(item, dict) else item for item in said[name]]}


def _quoted(shape: str, said: Json, data: Json) -> Json:
    lines = [(line["seq"], line["role"], line["text"]) for line in data.get("conversation", ())]
    lines += [(one["number"], "user", one["content"]) for one in data.get("episodes", ())]
    lines = lines or [(0, "user", "")]
    if shape == "LearnedMemories" and "memories" in said:
        return {"memories": [_replacing(_cited(one, lines), data) for one in said["memories"]]}
    if shape == "LearnedFacts" and isinstance(said.get("facts"), list):
        return {"facts": [_cited(one, lines) for one in said["facts"]]}
    if shape == "LearnedProfile" and "profile" not in said:
        return {"profile": [item | {"quote": _of(item["value"], lines)} for item in _items(said)]}
    if shape == "LearnedExperience" and "lessons" not in said:
        found = [(kind, text) for kind, texts in said.items() for text in texts]
        return {"lessons": [{"quote": _of(text, lines), "kind": kind, "text": text} for kind, text in found]}
    return said


def _cited(one: Json, lines: list[tuple[int, str, str]]) -> Json:
    if "message_seqs" not in one:
        return one
    texts = {seq: text for seq, _, text in lines}
    cited = [texts[seq] for seq in one["message_seqs"] if seq in texts]
    return {"quote": cited[0][:2000] if cited else ""} | {
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
        if name in lists:
            items += [{"field": lists[name], "topic": None, "value": each} for each in value]
        elif name == "preferences":
            items += [{"field": "preference", "topic": each["name"], "value": each["value"]} for each in value]
        elif value is not None:
            items.append({"field": name, "topic": None, "value": str(value)})
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
