"""The rules of a task's state, pure: status moves, the bounded scratchpad, the working-memory text."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app import tokens
from app.storage.collection import Doc

MOVES: Mapping[str, frozenset[str]] = {
    "pending": frozenset({"in_progress"}),
    "in_progress": frozenset({"completed", "failed", "cancelled"}),
    "failed": frozenset({"in_progress"}),
    "completed": frozenset(),
    "cancelled": frozenset(),
}
ENDED = frozenset({"completed", "failed", "cancelled"})


def may_move(old: str, new: str) -> bool:
    return old == new or new in MOVES[old]


def most_keys(value: Any) -> int:
    """Keys of its largest object."""
    if isinstance(value, dict):
        return max(len(value), *(most_keys(inner) for inner in value.values()), 0)
    return max((most_keys(inner) for inner in value), default=0) if isinstance(value, list) else 0


def bound(scratchpad: Sequence[Doc], max_tokens: int) -> tuple[list[Doc], list[Doc]]:
    """The notes that stay within `max_tokens`, and those that go: what could never fit, then lowest priority first,
    then oldest."""
    least_first = sorted(
        range(len(scratchpad)),
        key=lambda at: (scratchpad[at]["tokens"] <= max_tokens, scratchpad[at]["priority"], at),
    )
    total = sum(one["tokens"] for one in scratchpad)
    gone: list[int] = []
    while total > max_tokens:
        gone.append(least_first[len(gone)])
        total -= scratchpad[gone[-1]]["tokens"]
    leaving = set(gone)
    return [one for at, one in enumerate(scratchpad) if at not in leaving], [scratchpad[at] for at in gone]


def completed_steps(plan: Sequence[Mapping[str, Any]]) -> int:
    return sum(step["status"] == "completed" for step in plan)


def describe(task: Doc, max_tokens: int | None) -> tuple[str, int]:
    """The task as prompt text and its tokens, never more than `max_tokens`."""
    found = [text for _, _, text in lines(task)]
    text, size, _ = tokens.most_that_fit(found, lambda count: "\n".join(found[:count]), max_tokens)
    return text, size


def lines(task: Doc) -> list[tuple[str, int | None, str]]:
    """(kind, index, text): goal and steps first, then notes by priority, then evidence, the newest first."""
    notes = sorted(enumerate(task["scratchpad"]), key=lambda at: (-at[1]["priority"], -at[0]))
    evidence = list(enumerate(task["evidence"]))[::-1]
    return [
        ("goal", None, f"goal: {task['goal']}"),
        ("status", None, f"status: {task['status']}"),
        *(("step", index, _step(index, step)) for index, step in enumerate(task["plan"])),
        *(("note", index, f"note ({note['priority']:g}): {note['content']}") for index, note in notes),
        *(("evidence", index, f"evidence ({one['source']}): {one['content']}") for index, one in evidence),
    ]


def _step(index: int, step: Mapping[str, Any]) -> str:
    params = orjson.dumps(step["params"]).decode() if step["params"] else ""
    result = "" if step["result"] is None else f" → {_plain(step['result'])}"
    return f"step {index} [{step['status']}]: {step['action']} {params}".rstrip() + result


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
