"""The rules of a task's state, pure: status moves, the bounds of the scratchpad and of the evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

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
MAX_EVIDENCE = 500
"""Pieces of one task."""


def may_move(old: str, new: str) -> bool:
    return old == new or new in MOVES[old]


def most_keys(value: Any) -> int:
    """Keys of its largest object."""
    if isinstance(value, dict):
        return max(len(value), *(most_keys(inner) for inner in value.values()), 0)
    return max((most_keys(inner) for inner in value), default=0) if isinstance(value, list) else 0


def bound(scratchpad: Sequence[Doc], max_tokens: int) -> tuple[list[Doc], list[Doc]]:
    """The notes that stay within `max_tokens`, and those that go: what could never fit, then lowest priority first,
    then oldest. Entries without a priority are all alike: the oldest go first."""
    least_first = sorted(
        range(len(scratchpad)),
        key=lambda at: (scratchpad[at]["tokens"] <= max_tokens, scratchpad[at].get("priority", 0.0), at),
    )
    total = sum(one["tokens"] for one in scratchpad)
    gone: list[int] = []
    while total > max_tokens:
        gone.append(least_first[len(gone)])
        total -= scratchpad[gone[-1]]["tokens"]
    leaving = set(gone)
    return [one for at, one in enumerate(scratchpad) if at not in leaving], [scratchpad[at] for at in gone]


def bound_evidence(evidence: Sequence[Doc], max_tokens: int) -> tuple[list[Doc], list[Doc]]:
    """The pieces that stay within `max_tokens` and `MAX_EVIDENCE`, and those that go: what could never fit, then the
    oldest first."""
    kept, gone = bound([_counted(piece) for piece in evidence], max_tokens)
    over = max(0, len(kept) - MAX_EVIDENCE)
    return kept[over:], [*gone, *kept[:over]]


def _counted(piece: Doc) -> Doc:
    """A new piece has no tokens yet, nor have those that earlier versions stored."""
    return piece if "tokens" in piece else piece | {"tokens": tokens.count(f"{piece['source']}: {piece['content']}")}


def completed_steps(plan: Sequence[Mapping[str, Any]]) -> int:
    return sum(step["status"] == "completed" for step in plan)
