"""Renders a task as prompt text within a token budget. Pure functions.

`/working-memory` and the section of the context make the same story of it: `entries` lists what a task has in order of
use, such as `step 3 [in_progress]: search {"topic":"recall"}`, and `select` chooses what fits.

The current step comes first. If the budget is too small for all entries, a first round limits each entry and each group
to a quarter, so that long results or a long plan leave room for context and notes. A second round fills the rest in
order of use. The text is in reading order, one line for each entry.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import orjson

from app.core import prompt_text
from app.core.schemas import JsonObject
from app.tasks.schemas import Note, Step, StepStatus, TaskRecord

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
        *(
            Entry("question", at, cut_text(f"open question: {question}", LONG_VALUE), "question")
            for at, question in enumerate(task["open_questions"])
        ),
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


LEAST_PART = 40
"""The number of tokens that an entry or a group may always take in the first round, even with a small budget."""


@dataclass(frozen=True, slots=True)
class PromptLine:
    """An entry as it appears in the prompt. `text` is escaped and ends with a line break; `tokens` is
    its token count."""

    entry: Entry
    text: str
    tokens: int


def describe(task: TaskRecord, max_tokens: int | None) -> tuple[str, int]:
    """Returns the task as prompt text and its tokens, at most `max_tokens`."""
    listed = entries(task)
    chosen = [_line(entry) for entry in listed] if max_tokens is None else select(listed, max_tokens)
    rank = {group: at for at, group in enumerate(READING_ORDER)}
    chosen.sort(key=lambda line: rank[line.entry.group])
    return "".join(line.text for line in chosen), sum(line.tokens for line in chosen)


def select(listed: Sequence[Entry], budget: int) -> list[PromptLine]:
    """Returns the lines that fit into `budget` tokens, in order of use, which is the order of `listed`.

    A larger budget never shows less of the current step. If all entries fit, none is cut.
    """
    if not _far_over(listed, budget):
        lines = [_line(entry) for entry in listed]
        if sum(line.tokens for line in lines) <= budget:
            return lines
    taken, left = dict[int, PromptLine](), budget
    # the current step, if there is one, and the goal, cut if necessary: a quarter of the budget is kept for the goal
    goal = next(at for at, entry in enumerate(listed) if entry.kind == "goal")
    reserved = min(_line(listed[goal]).tokens, budget // 4)
    for at in range(goal + 1):
        cut = _cut(listed[at], left if at == goal else left - reserved)
        if cut is not None:
            taken[at] = cut
            left -= cut.tokens
    # then what fits: first with at most a share for each group, then all
    shortened = dict[int, PromptLine]()
    for most in (_part(budget), budget):
        spent: Counter[EntryGroup] = Counter()
        for at, entry in enumerate(listed[goal + 1 :], goal + 1):
            room = min(left, most - spent[entry.group])
            if at in taken or room <= 0:
                continue
            if at not in shortened:
                shortened[at] = _line(shorten(entry, budget))
            line = shortened[at]
            if line.tokens <= room:
                spent[entry.group] += line.tokens
                taken[at] = line
                left -= line.tokens
    return [taken[at] for at in sorted(taken)]


def _far_over(listed: Sequence[Entry], budget: int) -> bool:
    """Returns True if the entries clearly exceed the budget, without counting their tokens."""
    stored = sum(entry.stored_tokens for entry in listed)
    return stored > 2 * budget or sum(len(entry.text) for entry in listed) > budget * prompt_text.LONGEST_TOKEN


def shorten(entry: Entry, budget: int) -> Entry:
    """Cuts an entry to about the share of `budget` tokens that the first round gives to one entry.

    Notes and evidence have stored token counts, so they are cut in proportion and not counted again.
    """
    part, stored = _part(budget) * 7 // 8, entry.stored_tokens  # the rest is for label, mark and indents
    if not stored:
        return replace(entry, text=cut_text(entry.text, part))
    if stored <= part:
        return entry
    return replace(entry, text=entry.text[: len(entry.text) * part // stored].rstrip() + CUT_MARK)


def _part(budget: int) -> int:
    return max(LEAST_PART, budget // 4)


def _line(entry: Entry) -> PromptLine:
    text = prompt_text.entry("", entry.text)
    return PromptLine(entry, text, prompt_text.count(text))


def _cut(entry: Entry, limit: int) -> PromptLine | None:
    """Cuts an entry to `limit` tokens, with a mark where it is cut. Returns None if too little of it would remain.

    Cuts the escaped text rather than the stored one, so that the limit is used up and a higher limit never shows less.
    """
    whole = _line(entry)
    if whole.tokens <= limit:
        return whole
    mark = mark_tokens()
    for room in range(limit - mark, LEAST_CUT - mark - 1, -1):
        text = prompt_text.truncate(whole.text, room).rstrip() + CUT_MARK + "\n"
        size = prompt_text.count(text)
        if size <= limit:  # almost always true at once: the mark begins with a space, where tokens split
            return PromptLine(replace(entry, text=cut_text(entry.text, limit)), text, size)
    return None
