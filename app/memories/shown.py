"""A memory of a search's answer, as JSON that is made once and then differs by its importance alone."""

import orjson

from app.clock import to_ms
from app.memories.schemas import render
from app.memories.strength import Decay, importance
from app.storage.collection import Doc


class Shown:
    def __init__(self, doc: Doc) -> None:
        self.agent_id: str | None = doc["agent_id"]
        self._base, self._anchor_ms, self._pinned = doc["base_importance"], to_ms(doc["anchored_at"]), doc["pinned"]
        others = render(doc, 0)
        del others["importance"]
        self._start = orjson.dumps(others)[:-1] + b',"importance":'

    def importance_at(self, now_ms: int, decay: Decay) -> float:
        return importance(self._base, self._anchor_ms, now_ms, self._pinned, decay)

    def json(self, importance: float) -> orjson.Fragment:
        """The same as `render(doc, importance)`."""
        return orjson.Fragment(b"%s%r}" % (self._start, round(importance, 9)))
