"""The parts of a task: how they are changed, and which states follow which."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import orjson

from app.core import tokens
from app.storage.schema import Doc

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


EntryKind = Literal["goal", "completed", "step", "context", "question", "note", "evidence"]
EntryGroup = Literal[
    "goal", "completed", "in_hand", "failed", "next", "context", "question", "note", "result", "evidence"
]
READING_ORDER: tuple[EntryGroup, ...] = get_args(EntryGroup)

CUT_MARK = " … (cut)"
LEAST_CUT = 12
"""Tokens. A shorter piece of a long entry says nothing: it is left out."""
LONG_VALUE = 1000
"""Tokens of one value of the context, one question or one result in a prompt. Stored values stay whole."""
ALL_RESULTS = 2000
"""Tokens of the results of all completed steps together, and of all failed ones."""
NEXT_STEPS, FAILED_STEPS, LAST_RESULTS = 5, 3, 5
"""So many come before the context and the notes; the others come after them."""
RANGES = 8
LONG_WORD = 16
"""Characters. Hardly any text has more for each token: of a long one, so much of the start is read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that the prompt can say of a task. `index`: its place in its list, from 0."""

    kind: EntryKind
    index: int | None
    text: str
    """As it was stored: not escaped. It begins with a word of ours."""
    group: EntryGroup
    stored_tokens: int = 0
    """As they were counted when it was stored. 0: nobody counted."""


def characters(task: Doc) -> int:
    """About how much text `describe` reads."""
    listed = (*task["scratchpad"], *task["evidence"])
    others = orjson.dumps([task["plan"], task["context"], task.get("open_questions", ())])
    return len(others) + sum(len(one["content"]) for one in listed)


def entries(task: Doc) -> list[Entry]:
    """In the order of use: the step in hand first."""
    plan = list(enumerate(task["plan"]))
    in_hand = _in_hand(plan)
    coming = _coming(plan, in_hand)
    failed = list(_steps(reversed([one for one in plan if one[1]["status"] == "failed"]), "failed"))
    completed = list(_steps(reversed([one for one in plan if one[1]["status"] == "completed"]), "result"))
    results = [one for one in completed if plan[one.index or 0][1]["result"] is not None][:LAST_RESULTS]
    shown = {one.index for one in results}
    return [
        *(_step(index, step, "in_hand") for index, step in in_hand[:1]),
        Entry("goal", None, f"goal [{task['status']}]: {task['goal']}", "goal"),
        *_completed_line(plan),
        *(_step(index, step, "in_hand") for index, step in in_hand[1:]),
        *failed[:FAILED_STEPS],
        *coming[:NEXT_STEPS],
        *_context(task["context"]),
        *_questions(task.get("open_questions", ())),
        *_notes(task["scratchpad"]),
        *results,
        *coming[NEXT_STEPS:],
        *failed[FAILED_STEPS:],
        *_evidence(task),
        *(one for one in completed if one.index not in shown),
    ]


Numbered = tuple[int, Mapping[str, Any]]


def _in_hand(plan: Sequence[Numbered]) -> list[Numbered]:
    """The steps in progress, else the first that is pending."""
    running = [one for one in plan if one[1]["status"] == "in_progress"]
    return running or [one for one in plan if one[1]["status"] == "pending"][:1]


def _coming(plan: Sequence[Numbered], in_hand: Sequence[Numbered]) -> list[Entry]:
    """Pending steps: those after the step in hand, then those that were passed over before it."""
    at = in_hand[0][0] if in_hand else 0
    pending = [one for one in plan if one[1]["status"] == "pending" and (not in_hand or one[0] != at)]
    pending.sort(key=lambda one: one[0] < at)
    return [_step(index, step, "next") for index, step in pending]


def _steps(steps: Iterable[Numbered], group: EntryGroup) -> Iterator[Entry]:
    """With their results, which take `ALL_RESULTS` tokens together at most."""
    left = ALL_RESULTS
    for index, step in steps:
        bare = _step(index, {**step, "result": None}, group)
        if step["result"] is None:
            yield bare
        elif left < LEAST_CUT:
            yield replace(bare, text=f"{bare.text} → …")
        else:
            result = cut_text(_plain(step["result"]), min(left, LONG_VALUE))
            left -= tokens.count(result)
            yield replace(bare, text=f"{bare.text} → {result}")


def _step(index: int, step: Mapping[str, Any], group: EntryGroup) -> Entry:
    params = " " + orjson.dumps(step["params"]).decode() if step["params"] else ""
    result = "" if step["result"] is None else f" → {cut_text(_plain(step['result']), LONG_VALUE)}"
    return Entry("step", index, f"step {index} [{step['status']}]: {step['action']}{params}{result}", group)


def _completed_line(plan: Sequence[Numbered]) -> Iterator[Entry]:
    """`completed: 12 of 40 steps: 0–11; skipped: 14`."""
    done, skipped = ([at for at, step in plan if step["status"] == status] for status in ("completed", "skipped"))
    parts = []
    if done:
        parts.append(f"completed: {len(done)} of {len(plan)} steps: {_ranges(done)}")
    if skipped:
        parts.append(f"skipped: {_ranges(skipped)}")
    if parts:
        yield Entry("completed", None, "; ".join(parts), "completed")


def _ranges(places: Sequence[int]) -> str:
    """`0–11, 13`: the last `RANGES` ranges of ascending numbers."""
    found: list[tuple[int, int]] = []
    for at in places:
        if found and found[-1][1] == at - 1:
            found[-1] = found[-1][0], at
        else:
            found.append((at, at))
    shown = [f"{start}" if start == end else f"{start}–{end}" for start, end in found[-RANGES:]]
    return ", ".join(shown if len(found) <= RANGES else ["…", *shown])


def _context(context: Mapping[str, Any]) -> Iterator[Entry]:
    for at, (key, value) in enumerate(context.items()):
        name = key if key.isidentifier() else orjson.dumps(key).decode()
        yield Entry("context", at, cut_text(f"context {name}: {_plain(value)}", LONG_VALUE), "context")


def _questions(questions: Sequence[str]) -> Iterator[Entry]:
    for at, question in enumerate(questions):
        yield Entry("question", at, cut_text(f"open question: {question}", LONG_VALUE), "question")


def _notes(scratchpad: Sequence[Doc]) -> Iterator[Entry]:
    for at, note in sorted(enumerate(scratchpad), key=lambda one: (-one[1]["priority"], -one[0])):
        yield Entry("note", at, f"note ({note['priority']:g}): {note['content']}", "note", note.get("tokens", 0))


def _evidence(task: Doc) -> Iterator[Entry]:
    """The newest first. Earlier versions stored evidence without a bound: what is over it is not shown."""
    kept, _ = bound_evidence(task["evidence"], task["max_tokens"])
    for at, piece in reversed(list(enumerate(kept))):
        yield Entry("evidence", at, f"evidence ({piece['source']}): {piece['content']}", "evidence", piece["tokens"])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def cut_text(text: str, limit: int) -> str:
    """The start of the text in about `limit` tokens, with a mark where it is cut."""
    head = text[: limit * LONG_WORD]
    if head == text and tokens.truncate(text, limit) == text:
        return text
    return tokens.truncate(head, limit - mark_tokens()).rstrip() + CUT_MARK


def mark_tokens() -> int:
    return tokens.count(CUT_MARK + "\n")
