"""The parts of a task: allowed changes of status, limits of size, and the entries of a task in a prompt."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import orjson

from app.core import prompt_text
from app.core.schemas import JsonObject
from app.tasks.schemas import Evidence, Note, Step, StepStatus, TaskRecord, TaskStatus

E = TypeVar("E")

MOVES: Mapping[TaskStatus, tuple[TaskStatus, ...]] = {
    "pending": ("in_progress", "completed", "failed", "cancelled"),
    "in_progress": ("completed", "failed", "cancelled"),
    "failed": ("in_progress",),
    "completed": (),
    "cancelled": (),
}
ENDED: frozenset[TaskStatus] = frozenset({"completed", "failed", "cancelled"})
MAX_EVIDENCE = 500
"""The limit of evidence pieces of one task."""


def may_move(old: TaskStatus, new: TaskStatus) -> bool:
    """Returns True if a task may change from one status to the other."""
    return old == new or new in MOVES[old]


def most_keys(value: Any) -> int:
    """Returns the number of keys of the largest object in a value."""
    if isinstance(value, dict):
        return max(len(value), *(most_keys(inner) for inner in value.values()), 0)
    return max((most_keys(inner) for inner in value), default=0) if isinstance(value, list) else 0


def bound(scratchpad: Sequence[Note], max_tokens: int) -> tuple[list[Note], list[Note]]:
    """Splits notes into those that fit into `max_tokens` and those that are dropped. Notes that could never fit are
    dropped first, then those of the lowest priority, then the oldest. Without priorities the oldest are dropped first.
    """
    sizes = [note["tokens"] for note in scratchpad]
    return _split(scratchpad, sizes, [note["priority"] for note in scratchpad], max_tokens)


def bound_evidence(evidence: Sequence[Evidence], max_tokens: int) -> tuple[list[Evidence], list[Evidence]]:
    """Splits evidence into the pieces that fit into `max_tokens` and `MAX_EVIDENCE`, and those that are dropped: pieces
    that could never fit first, then the oldest."""
    sizes = [piece["tokens"] for piece in evidence]
    fitting, dropped = _split(evidence, sizes, [0.0] * len(evidence), max_tokens)
    over = max(0, len(fitting) - MAX_EVIDENCE)
    return fitting[over:], [*dropped, *fitting[:over]]


def _split(
    parts: Sequence[E], sizes: Sequence[int], priorities: Sequence[float], max_tokens: int
) -> tuple[list[E], list[E]]:
    least_first = sorted(range(len(parts)), key=lambda at: (sizes[at] <= max_tokens, priorities[at], at))
    total, dropped = sum(sizes), list[int]()
    while total > max_tokens:
        dropped.append(least_first[len(dropped)])
        total -= sizes[dropped[-1]]
    leaving = set(dropped)
    return [part for at, part in enumerate(parts) if at not in leaving], [parts[at] for at in dropped]


def new_evidence(source: str, content: str) -> Evidence:
    """Returns a piece of evidence with its token count."""
    return {"source": source, "content": content, "tokens": prompt_text.count(f"{source}: {content}")}


def completed_steps(plan: Sequence[Step]) -> int:
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


class NumberedStep(NamedTuple):
    """A step of a plan with its place in it, from 0."""

    place: int
    step: Step


def entries(task: TaskRecord) -> list[Entry]:
    """Returns the entries of a task in order of use, the current step first."""
    plan = [NumberedStep(place, step) for place, step in enumerate(task["plan"])]
    in_hand = _of_status(plan, "in_progress") or _of_status(plan, "pending")[:1]
    coming = _coming(plan, in_hand)
    failed = list(_steps(reversed(_of_status(plan, "failed")), "failed"))
    completed = list(_steps(reversed(_of_status(plan, "completed")), "result"))
    results = [entry for entry in completed if plan[entry.index or 0].step["result"] is not None][:LAST_RESULTS]
    shown = {entry.index for entry in results}
    return [
        *(_step(place, step, "in_hand") for place, step in in_hand[:1]),
        Entry("goal", None, f"goal [{task['status']}]: {task['goal']}", "goal"),
        *_completed_line(plan),
        *(_step(place, step, "in_hand") for place, step in in_hand[1:]),
        *failed[:FAILED_STEPS],
        *coming[:NEXT_STEPS],
        *_context(task["context"]),
        *_questions(task["open_questions"]),
        *_notes(task["scratchpad"]),
        *results,
        *coming[NEXT_STEPS:],
        *failed[FAILED_STEPS:],
        *_evidence(task),
        *(entry for entry in completed if entry.index not in shown),
    ]


def _of_status(plan: Sequence[NumberedStep], status: StepStatus) -> list[NumberedStep]:
    return [numbered for numbered in plan if numbered.step["status"] == status]


def _coming(plan: Sequence[NumberedStep], in_hand: Sequence[NumberedStep]) -> list[Entry]:
    """Returns the pending steps: those after the current step, then those skipped over before it."""
    current = in_hand[0].place if in_hand else 0
    pending = [numbered for numbered in _of_status(plan, "pending") if not in_hand or numbered.place != current]
    pending.sort(key=lambda numbered: numbered.place < current)
    return [_step(place, step, "next") for place, step in pending]


def _steps(steps: Iterable[NumberedStep], group: EntryGroup) -> Iterator[Entry]:
    """Yields steps with their results, which share a limit of `ALL_RESULTS` tokens."""
    left = ALL_RESULTS
    for place, step in steps:
        bare = _step(place, {**step, "result": None}, group)
        if step["result"] is None:
            yield bare
        elif left < LEAST_CUT:
            yield replace(bare, text=f"{bare.text} → …")
        else:
            result = cut_text(_plain(step["result"]), min(left, LONG_VALUE))
            left -= prompt_text.count(result)
            yield replace(bare, text=f"{bare.text} → {result}")


def _step(index: int, step: Step, group: EntryGroup) -> Entry:
    params = " " + orjson.dumps(step["params"]).decode() if step["params"] else ""
    result = "" if step["result"] is None else f" → {cut_text(_plain(step['result']), LONG_VALUE)}"
    return Entry("step", index, f"step {step['step']} [{step['status']}]: {step['action']}{params}{result}", group)


def _completed_line(plan: Sequence[NumberedStep]) -> Iterator[Entry]:
    """Yields a summary such as `completed: 12 of 40 steps: 1–12; skipped: 14`, by the numbers that the caller gave."""
    completed = [step["step"] for _, step in _of_status(plan, "completed")]
    skipped = [step["step"] for _, step in _of_status(plan, "skipped")]
    parts = []
    if completed:
        parts.append(f"completed: {len(completed)} of {len(plan)} steps: {_ranges(completed)}")
    if skipped:
        parts.append(f"skipped: {_ranges(skipped)}")
    if parts:
        yield Entry("completed", None, "; ".join(parts), "completed")


def _ranges(numbers: Sequence[int]) -> str:
    """Returns ranges such as `1–12, 14`, of which the last `RANGES` are shown."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    shown = [f"{start}" if start == end else f"{start}–{end}" for start, end in ranges[-RANGES:]]
    return ", ".join(shown if len(ranges) <= RANGES else ["…", *shown])


def _context(context: JsonObject) -> Iterator[Entry]:
    for at, (key, value) in enumerate(context.items()):
        name = key if key.isidentifier() else orjson.dumps(key).decode()
        yield Entry("context", at, cut_text(f"context {name}: {_plain(value)}", LONG_VALUE), "context")


def _questions(questions: Sequence[str]) -> Iterator[Entry]:
    for at, question in enumerate(questions):
        yield Entry("question", at, cut_text(f"open question: {question}", LONG_VALUE), "question")


def _notes(scratchpad: Sequence[Note]) -> Iterator[Entry]:
    for at, note in sorted(enumerate(scratchpad), key=lambda placed: (-placed[1]["priority"], -placed[0])):
        yield Entry("note", at, f"note ({note['priority']:g}): {note['content']}", "note", note["tokens"])


def _evidence(task: TaskRecord) -> Iterator[Entry]:
    """Yields evidence, the newest first."""
    for at, piece in reversed(list(enumerate(task["evidence"]))):
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
