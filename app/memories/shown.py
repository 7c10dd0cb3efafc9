"""A memory of a search's answer, as JSON that is made once and then differs by its importance alone."""

from collections.abc import Callable

import orjson

from app.clock import to_ms
from app.memories.schemas import render, rounded
from app.storage.collection import Doc


class Shown:
    """`head` + the importance, rounded to nine digits, + `}` is `render(doc, importance)`."""

    __slots__ = ("_anchor_ms", "_base", "_pinned", "agent_id", "head")

    def __init__(self, doc: Doc) -> None:
        self.agent_id: str | None = doc["agent_id"]
        self._base, self._anchor_ms, self._pinned = (
            float(doc["base_importance"]),
            to_ms(doc["anchored_at"]),
            doc["pinned"],
        )
        others = render(doc, 0)
        del others["importance"]
        self.head = orjson.dumps(others)[:-1] + b',"importance":'

    def importance(self, faded: Callable[[float, int], float]) -> float:
        """`faded`: `fading_one_by_one` by the agent's decay."""
        return rounded(self._base if self._pinned else faded(self._base, self._anchor_ms))
