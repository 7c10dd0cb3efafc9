"""Renders a task as prompt text within a token budget. Pure functions.

Both `/working-memory` and the section of the context use `entries` and `select`.

The current step comes first. If the budget is too small for all entries, a first round limits each entry and each group
to a quarter, so that long results or a long plan leave room for context and notes. A second round fills the rest in
order of use. The text is in reading order, one line for each entry.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.core import prompt_text
from app.core.prompt_text import entry as prompt_entry
from app.tasks.entries import CUT_MARK, LEAST_CUT, READING_ORDER, Entry, EntryGroup, cut_text, entries, mark_tokens
from app.tasks.schemas import TaskRecord

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
    return _Selection(listed, budget).run()


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


class _Selection:
    """One selection of lines within a budget."""

    def __init__(self, listed: Sequence[Entry], budget: int) -> None:
        self._listed, self._budget, self._left = listed, budget, budget
        self._taken: dict[int, PromptLine] = {}
        self._lines: dict[int, PromptLine] = {}

    def run(self) -> list[PromptLine]:
        """Returns the chosen lines in order of use."""
        self._take_first()
        self._fill(_part(self._budget))
        self._fill(self._budget)
        return [self._taken[at] for at in sorted(self._taken)]

    @property
    def _first(self) -> range:
        """The indices of the current step, if there is one, and of the goal."""
        return range(next(at for at, entry in enumerate(self._listed) if entry.kind == "goal") + 1)

    def _take_first(self) -> None:
        """Takes the current step and the goal, cut if necessary. A quarter of the budget is reserved for the goal."""
        *in_hand, goal = self._first
        reserved = min(_line(self._listed[goal]).tokens, self._budget // 4)
        for at in in_hand:
            self._take(at, _cut(self._listed[at], self._left - reserved))
        self._take(goal, _cut(self._listed[goal], self._left))

    def _fill(self, most: int) -> None:
        """Takes the entries that fit, with at most `most` tokens for each group."""
        spent: Counter[EntryGroup] = Counter()
        for at, entry in enumerate(self._listed):
            room = min(self._left, most - spent[entry.group])
            if at in self._taken or at in self._first or room <= 0:
                continue
            if at not in self._lines:
                self._lines[at] = _line(shorten(entry, self._budget))
            line = self._lines[at]
            if line.tokens <= room:
                spent[entry.group] += line.tokens
                self._take(at, line)

    def _take(self, at: int, line: PromptLine | None) -> None:
        if line is not None:
            self._taken[at] = line
            self._left -= line.tokens


def _line(entry: Entry) -> PromptLine:
    text = prompt_entry("", entry.text)
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
