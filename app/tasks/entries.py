"""The parts of a task: allowed changes of status, limits of size, and the entries of a task in a prompt."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import orjson

from app.core import prompt_text
from app.storage.schema import Doc

MOVES: Mapping[str, tuple[str, ...]] = {
    "pending": ("in_progress", "completed", "failed", "cancelled"),
    "in_progress": ("completed", "failed", "cancelled"),
    "failed": ("in_progress",),
    "completed": (),
    "cancelled": (),
}
ENDED = frozenset({"completed", "failed", "cancelled"})
MAX_EVIDENCE = 500
"""The limit of evidence pieces of one task."""


def may_move(old: str, new: str) -> bool:
    """Returns True if a task may change from one status to the other."""
    return old == new or new in MOVES[old]


def most_keys(value: Any) -> int:
    """Returns the number of keys of the largest object in a value."""
    if isinstance(value, dict):
        return max(len(value), *(most_keys(inner) for inner in value.values()), 0)
    return max((most_keys(inner) for inner in value), default=0) if isinstance(value, list) else 0


def bound(scratchpad: Sequence[Doc], max_tokens: int) -> tuple[list[Doc], list[Doc]]:
    """Splits notes into those that fit into `max_tokens` and those that are dropped. Notes that could never fit are
    dropped first, then those of the lowest priority, then the oldest. Without priorities the oldest are dropped first.
    """
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
    """Splits evidence into the pieces that fit into `max_tokens` and `MAX_EVIDENCE`, and those that are dropped: pieces
    that could never fit first, then the oldest."""
    kept, gone = bound([_counted(piece) for piece in evidence], max_tokens)
    over = max(0, len(kept) - MAX_EVIDENCE)
    return kept[over:], [*gone, *kept[:over]]


def _counted(piece: Doc) -> Doc:
    """Adds the token count, which new pieces and pieces of earlier versions lack."""
    return (
        piece if "tokens" in piece else piece | {"tokens": prompt_text.count(f"{piece['source']}: {piece['content']}")}
    )


def completed_steps(plan: Sequence[Mapping[str, Any]]) -> int:
    """Returns the number of completed steps of a plan."""
    return sum(step["status"] == "completed" for step in plan)


EntryKind = Literal["goal", "completed", "step", "context", "question", "note", "evidence"]
EntryGroup = Literal[
    "goal", "completed", "in_hand", "failed", "next", "context", "question", "note", "result", "evidence"
]
READING_ORDER: tuple[EntryGroup, ...] = get_args(EntryGroup)

CUT_MARK = " … (cut)"
LEAST_CUT = 12
"""In tokens. A shorter part of a long entry is not useful and is left out."""
LONG_VALUE = 1000
"""The limit in tokens for one context value, question or result in a prompt. Stored values are not cut."""
ALL_RESULTS = 2000
"""The limit in tokens for the results of all completed steps together, and for those of all failed steps."""
NEXT_STEPS, FAILED_STEPS, LAST_RESULTS = 5, 3, 5
"""The numbers of steps that come before the context and the notes in order of use; further steps come after them."""
RANGES = 8
"""The number of ranges that a list of step numbers shows."""
LONG_WORD = 16
"""In characters. Hardly any text has more characters for each token, so this limits how much of a long text is read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a task's prompt text. `index` is the position in its list, from 0."""

    kind: EntryKind
    index: int | None
    text: str
    """The text as stored, not escaped, after a label of ours."""
    group: EntryGroup
    stored_tokens: int = 0
    """The token count from the time of storing; 0 if it was not counted."""


def characters(task: Doc) -> int:
    """Returns roughly how many characters `describe` reads."""
    listed = (*task["scratchpad"], *task["evidence"])
    others = orjson.dumps([task["plan"], task["context"], task.get("open_questions", ())])
    return len(others) + sum(len(one["content"]) for one in listed)


def entries(task: Doc) -> list[Entry]:
    """Returns the entries of a task in order of use, the current step first."""
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
    """Returns the steps in progress, or else the first pending one."""
    running = [one for one in plan if one[1]["status"] == "in_progress"]
    return running or [one for one in plan if one[1]["status"] == "pending"][:1]


def _coming(plan: Sequence[Numbered], in_hand: Sequence[Numbered]) -> list[Entry]:
    """Returns the pending steps: those after the current step, then those skipped over before it."""
    at = in_hand[0][0] if in_hand else 0
    pending = [one for one in plan if one[1]["status"] == "pending" and (not in_hand or one[0] != at)]
    pending.sort(key=lambda one: one[0] < at)
    return [_step(index, step, "next") for index, step in pending]


def _steps(steps: Iterable[Numbered], group: EntryGroup) -> Iterator[Entry]:
    """Yields steps with their results, which share a limit of `ALL_RESULTS` tokens."""
    left = ALL_RESULTS
    for index, step in steps:
        bare = _step(index, {**step, "result": None}, group)
        if step["result"] is None:
            yield bare
        elif left < LEAST_CUT:
            yield replace(bare, text=f"{bare.text} → …")
        else:
            result = cut_text(_plain(step["result"]), min(left, LONG_VALUE))
            left -= prompt_text.count(result)
            yield replace(bare, text=f"{bare.text} → {result}")


def _step(index: int, step: Mapping[str, Any], group: EntryGroup) -> Entry:
    params = " " + orjson.dumps(step["params"]).decode() if step["params"] else ""
    result = "" if step["result"] is None else f" → {cut_text(_plain(step['result']), LONG_VALUE)}"
    return Entry("step", index, f"step {step['step']} [{step['status']}]: {step['action']}{params}{result}", group)


def _completed_line(plan: Sequence[Numbered]) -> Iterator[Entry]:
    """Yields a summary such as `completed: 12 of 40 steps: 1–12; skipped: 14`, by the numbers that the caller gave."""
    done, skipped = (
        [step["step"] for _, step in plan if step["status"] == status] for status in ("completed", "skipped")
    )
    parts = []
    if done:
        parts.append(f"completed: {len(done)} of {len(plan)} steps: {_ranges(done)}")
    if skipped:
        parts.append(f"skipped: {_ranges(skipped)}")
    if parts:
        yield Entry("completed", None, "; ".join(parts), "completed")


def _ranges(numbers: Sequence[int]) -> str:
    """Returns ranges such as `1–12, 14`, of which the last `RANGES` are shown."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
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
    """Yields evidence, the newest first. Pieces over the limit, which earlier versions did not enforce,
    are not shown."""
    kept, _ = bound_evidence(task["evidence"], task["max_tokens"])
    for at, piece in reversed(list(enumerate(kept))):
        yield Entry("evidence", at, f"evidence ({piece['source']}): {piece['content']}", "evidence", piece["tokens"])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def cut_text(text: str, limit: int) -> str:
    """Returns the start of the text in about `limit` tokens, with a mark where it is cut."""
    head = text[: limit * LONG_WORD]
    if head == text and prompt_text.truncate(text, limit) == text:
        return text
    return prompt_text.truncate(head, limit - mark_tokens()).rstrip() + CUT_MARK


def mark_tokens() -> int:
    """Returns the number of tokens of the cut mark and a line break."""
    return prompt_text.count(CUT_MARK + "\n")
