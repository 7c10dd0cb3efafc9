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
    "LearnedProfile": {
        "name": None,
        "age": None,
        "home": None,
        "occupation": None,
        "interests": [],
        "conversation_preferences": [],
        "preferences": [],
    },
    "LearnedFacts": {"facts": []},
    "LearnedExperience": {
        "common_scenarios": [],
        "effective_strategies": [],
        "known_pitfalls": [],
        "tool_patterns": [],
        "heuristics": [],
        "user_feedback": [],
        "improvement_areas": [],
    },
    "DayText": {"text": "They worked."},
    "FoundFacts": {"facts": []},
    "FoundProcedures": {"procedures": []},
    "Summary": {"summary": "They talked."},
}


class Model:
    """Answers each shape with what was set for it; a callable is given the data that the model was shown."""

    def __init__(self) -> None:
        self.says: dict[str, Json | Callable[[Json], Json]] = {}
        self.asked: list[tuple[str, str, Json]] = []  # shape, instructions, data
        self.server: ScriptedServer

    def answer(self, reply: Reply, body: Json) -> bytes:
        shape = body["response_format"]["json_schema"]["name"]
        data = json.loads(body["messages"][1]["content"])
        self.asked.append((shape, body["messages"][0]["content"], data))
        said = self.says.get(shape, {})
        given = said(data) if callable(said) else said
        return completion(json.dumps(NOTHING[shape] | given))

    def shown(self, shape: str) -> list[Json]:
        return [data for name, _, data in self.asked if name == shape]


@contextmanager
def scripted_model() -> Iterator[Model]:
    model = Model()
    with scripted_server(model.answer) as server:
        model.server = server
        yield model
