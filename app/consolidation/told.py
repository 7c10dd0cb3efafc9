"""What an operation tells of its parts. Pure."""

from typing import Any

from app.errors import RecalldError
from app.storage.collection import Doc

NO_LLM = "no language model is configured"


class Unfinished(RecalldError):
    """Some parts failed: the job comes again for them alone."""


class Told:
    """What came of each part, over all stretches of the conversation."""

    def __init__(self) -> None:
        self.parts: dict[str, Doc] = {}
        self.failed: dict[str, str] = {}
        self.done = False

    def add(self, name: str, result: Doc) -> None:
        self.done = True
        part = self.parts.setdefault(name, {})
        part["status"] = "done"
        for key, value in result.items():
            part[key] = _sum(part.get(key), value)

    def skip(self, name: str, why: str) -> None:
        self.parts.setdefault(name, {"status": "skipped", "reason": why})

    def fail(self, name: str, why: str) -> None:
        self.failed[name] = why
        self.parts[name] = {**self.parts.get(name, {}), "status": "failed", "reason": why}


def _sum(old: Any, new: Any) -> Any:
    """Counts and lists grow; a text is the last one."""
    if old is None or isinstance(new, str):
        return new
    if isinstance(new, dict):
        return {key: _sum(old.get(key), new.get(key, 0)) for key in {**old, **new}}
    return old + new
