"""Packing: chooses the items of a prompt and renders them. Pure functions of items, prices and a budget.

1. Sections that are always there share at most `ALWAYS` of the budget. Each may take up to its own `max_tokens`; if
   together they want more than there is, their parts shrink alike. Within its part a section takes its items in order.
2. All other items compete for the rest of the budget, whatever their section: by worth, which is the score for each
   token. The packer takes them in that order and stops at the first that does not fit. A larger budget therefore
   contains every item that a smaller one contains, if the sections that are always there contain the same in both.
   Unused tokens of their parts are not given away. Their number depends on where a budget happens to cut, so a larger
   budget could leave less for the rest.

3. A stop rule may end packing earlier. It reads the items in the order of packing, and not the budget, so a prompt that
   is packed by one is the beginning of the one that is filled. A section's bound that is a share of the budget may move
   the end.

The budget is never exceeded. Of items that say the same only one is packed: of those that share an element of `same`;
and no competing item is packed of which every sentence stands in the prompt already, said on its day or later. Parts
are exact fractions, because rounding could make the rest of a larger budget smaller by a token.

The tokens of the rendered pieces add up exactly to those of the whole. Each piece ends with a line break, and none
begins with white space or a slash. The tokenizer splits a text before it merges, and between such pieces it always
splits. Numbers of up to three digits are one token each. Content is one list entry: its line breaks are indented, so
that no line of it can pass for a title or another entry, and delimiters in it are escaped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

import orjson

from app.context.candidates import Candidate, Heading, compared_sentences, sentences_said
from app.core import prompt_text
from app.core.prompt_text import (
    CONTEXT,
    CONTEXT_FROZEN,
    CONTEXT_OPENING,
    CONTEXT_UNSURE,
    entry,
    escape,
    escape_json,
    escape_strings,
)
from app.storage.text import content_hash

ALWAYS = Fraction(3, 5)
"""Share of the budget for all sections that are always there."""

ALWAYS_HOLDS = "9999-12-31"
"""Stands for the day of an item that has none."""

Price = Callable[[Candidate], int]
"""Returns the exact tokens of an item's line, or of its heading."""
StopRule = Callable[[Sequence[Candidate]], Callable[[int, int, int], bool]]
"""Takes the competing items in the order of packing. Returns what says whether it is enough before item `at`, with the
tokens of those before and its own."""
TokenBound = int | Fraction
"""A number of tokens; a part of the budget is a fraction."""


@dataclass(frozen=True, slots=True)
class Section:
    """Items of one section, best first, and their prices in tokens.

    `max_tokens`: maximum tokens, or None. `limit`: maximum items. `always`: its items do not compete, because its place
    does not depend on the query. `framed`: it stands inside the frame, whose tokens count once.
    """

    name: str
    items: Sequence[Candidate]
    price: Price
    heading_price: Price
    title_tokens: int
    limit: int
    max_tokens: TokenBound | None = None
    always: bool = False
    framed: bool = True
    compared: bool = False
    """Whether its texts are compared by sentence with those of other sections that are."""
    boost: float = 1.0
    """Factor of the intent for the worth of the section's items."""


@dataclass(frozen=True, slots=True)
class PackedPrompt:
    """The result of packing.

    `chosen`: the items of each section that has some, in the order of the sections. `tokens`: tokens of each of these
    sections, title and headings included. `total`: tokens of all, with the frame. `dropped`: (item, reason).
    """

    chosen: Mapping[str, Sequence[Candidate]]
    tokens: Mapping[str, int]
    total: int
    dropped: Sequence[tuple[Candidate, str]]


@dataclass(slots=True)
class _State:
    """What one section contains so far."""

    section: Section
    taken: list[Candidate] = field(default_factory=list)
    headings: set[str] = field(default_factory=set)
    tokens: int = 0
    reasons: dict[str, str] = field(default_factory=dict)
    _asked: tuple[Candidate, int] | None = None
    """The item whose cost was asked for last, and that cost: packing asks four times."""

    def cost(self, item: Candidate) -> int:
        """Returns the tokens that the item adds, with title and heading if they are new."""
        if self._asked is None or self._asked[0] is not item:
            title = 0 if self.taken else self.section.title_tokens
            new = item.heading is not None and item.heading.key not in self.headings
            self._asked = item, title + (self.section.heading_price(item) if new else 0) + self.section.price(item)
        return self._asked[1]

    def add(self, item: Candidate) -> None:
        self.tokens += self.cost(item)
        self._asked = None
        self.taken.append(item)
        if item.heading is not None:
            self.headings.add(item.heading.key)


class Packer:
    """Packs one prompt.

    `frame_tokens`: tokens of the frame around all framed sections. `floor`: minimum score of competing items. `stop`:
    says when enough of them is packed; None: when the budget is full. `always`: share of the budget for all sections
    that are always there. `told`: items that stand in the prompt already, outside of what is packed.
    """

    def __init__(  # noqa: PLR0913 (a prompt's parts)
        self,
        sections: Sequence[Section],
        budget: int,
        frame_tokens: int,
        floor: float,
        stop: StopRule | None = None,
        *,
        always: Fraction = ALWAYS,
        told: Iterable[Candidate] = (),
    ) -> None:
        self._floor, self._stop = floor, stop
        self._enough: Sequence[Candidate] = ()
        self._states = {one.name: _State(one) for one in sections}
        self._budget, self._frame_tokens, self._always = budget, frame_tokens, always
        self._left: TokenBound = budget
        self._framed = False
        self._said: set[str] = set()
        self._last_said: dict[int, str] = {}
        """The latest day of each sentence in the prompt. What holds whenever it is read is later than any day."""
        self._ids: set[str] = set()
        self._read: tuple[Candidate, frozenset[int]] | None = None
        """The item that was compared last, and its sentences."""
        for item in told:
            self._tell(item)

    def pack(self, tokens: Price) -> PackedPrompt:
        """Returns the packed prompt.

        `tokens` estimates an item's tokens; the exact count follows when its turn comes.
        """
        always = [state for state in self._states.values() if state.section.always]
        parts = shares(
            [self._wanted(state) for state in always], max(0, self._budget - self._frame_tokens) * self._always
        )
        for state, part in zip(always, parts, strict=True):
            for item in state.section.items:
                self._take(state, item, part)
        left = self._budget - sum(parts) - (self._frame_tokens if self._framed else 0)
        self._left = floor(left)  # of what costs whole tokens as much fits, and integers are faster
        self._compete(by_worth([one.section for one in self._states.values()], tokens, self._floor))
        chosen = {name: state for name, state in self._states.items() if state.taken}
        sizes = {name: state.tokens for name, state in chosen.items()}
        total = sum(sizes.values()) + (self._frame_tokens if self._framed else 0)
        return PackedPrompt({name: state.taken for name, state in chosen.items()}, sizes, total, list(self._dropped()))

    def _compete(self, ordered: Sequence[tuple[str, Candidate]]) -> None:
        """Takes competing items until one does not fit, or until there is enough of them. What the turns say, too,
        counts as taken, but the first that they do not say goes in, unless there is enough before all of them."""
        items = [item for _, item in ordered]
        is_enough = None if self._stop is None else self._stop(items)
        tokens, is_begun = 0, False
        for at, (name, whole) in enumerate(ordered):
            state, item = self._states[name], self._unsaid(whole)
            cost = state.cost(item)
            if is_enough is not None and (is_begun or at == 0) and is_enough(at, tokens, cost):
                self._enough = items[at:]
                return
            reason = self._take(state, item, None)
            if reason == "budget":
                return
            if item is not whole:
                state.reasons.setdefault(whole.id, "duplicate")
            is_begun |= reason is None
            tokens += cost if reason in {None, "duplicate"} else 0

    def _wanted(self, state: _State) -> TokenBound:
        """Returns the tokens that a section would take on its own."""
        section, alone = state.section, _State(state.section)
        for item in section.items[: section.limit]:
            if section.max_tokens is not None and alone.tokens >= section.max_tokens:
                break
            alone.add(item)
        return alone.tokens if section.max_tokens is None else min(alone.tokens, section.max_tokens)

    def _take(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> str | None:
        """Takes the item and returns None, or returns the reason against it.

        `max_tokens`: limit of the section with this item. None: the section's own limit.
        """
        reason = self._reason(state, item, max_tokens)
        if reason is not None:
            state.reasons.setdefault(item.id, reason)
            return reason
        self._left -= state.cost(item) + self._frame(state)
        self._framed |= state.section.framed
        state.add(item)
        self._said |= item.same
        if state.section.compared or item.compared:
            self._compare(item)
        self._ids.add(item.id)
        return None

    def _tell(self, item: Candidate) -> None:
        self._said |= item.same
        self._compare(item)

    def _compare(self, item: Candidate) -> None:
        for sentence in self._sentences(item):
            self._last_said[sentence] = max(self._last_said.get(sentence, ""), item.day or ALWAYS_HOLDS)

    def _sentences(self, item: Candidate) -> frozenset[int]:
        if self._read is None or self._read[0] is not item:
            self._read = item, compared_sentences(item)
        return self._read[1]

    def _frame(self, state: _State) -> int:
        return self._frame_tokens if state.section.framed and not self._framed else 0

    def _reason(self, state: _State, item: Candidate, max_tokens: TokenBound | None) -> str | None:
        if item.id in self._ids or self._said & item.same or self._repeats(state, item):
            return "duplicate"
        if len(state.taken) >= state.section.limit:
            return "limit"
        cost = state.cost(item)
        if cost + self._frame(state) > self._left:
            return "budget"
        bound = state.section.max_tokens if max_tokens is None else max_tokens
        return "section_budget" if bound is not None and state.tokens + cost > bound else None

    def _repeats(self, state: _State, item: Candidate) -> bool:
        """Returns whether the prompt has each sentence of an item, said on its day or later. What was said again later
        is no repetition: beside "I live in Bergen" of June, "I live in Oslo" of July is not that of May.

        Of items that are always there, only lines of earlier sessions and interactions are left out for it."""
        if state.section.always and not (item.recalls or item.compared):
            return False
        if not (state.section.compared or item.compared):
            return False
        return self._stands(self._sentences(item), item.day)

    def _is_said(self, sentence: str, day: str) -> bool:
        """Returns whether the prompt has a sentence, or an entry that says the same, such as "name: Ada"."""
        return f"text:{content_hash(sentence)}" in self._said or self._stands(sentences_said(sentence), day)

    def _stands(self, said: frozenset[int], day: str) -> bool:
        """Returns whether the prompt has each of these sentences, said on this day or later."""
        last = self._last_said
        return bool(said) and all(one in last and last[one] >= day for one in said)

    def _unsaid(self, item: Candidate) -> Candidate:
        """Returns the item; of a chain, of which the prompt has the first or the last facts, what is left of it: beside
        "Emil attends Fernhill Primary" of a memory, "Fernhill Primary opens at 08:20"."""
        if item.part is None:
            return item
        new = [at for at, each in enumerate(item.states) if not self._is_said(each, item.day)]
        if not new or (new[0] == 0 and new[-1] == len(item.states) - 1):
            return item
        return item.part(new[0], new[-1] + 1)

    def _dropped(self) -> Iterator[tuple[Candidate, str]]:
        """Yields each dropped item once. An item of its own comes before the same turn as another item's partner."""
        seen = set(self._ids)
        for state in self._states.values():
            partners = (item.partner for item in state.section.items if item.partner is not None)
            for item in (*state.section.items, *partners):
                if item.id not in seen:
                    seen.add(item.id)
                    yield item, state.reasons.get(item.id) or self._untried(item)

    def _untried(self, item: Candidate) -> str:
        """Returns why an item was not tried: it is below the floor, or behind the first one that did not fit, or
        there was enough before it."""
        if item.score is None or item.score < self._floor:
            return "score"
        if self._said & item.same:
            return "duplicate"
        return "enough" if self._enough else "budget"


def shares(wanted: Sequence[TokenBound], pool: TokenBound) -> list[Fraction]:
    """Divides the pool: each gets what it wants, or an equal part of what is left by those that want less.

    The sum never exceeds the pool. With a larger pool no part is smaller ("water-filling", max-min fairness).
    """
    parts = [Fraction(0)] * len(wanted)
    left = Fraction(pool)
    for rank, index in enumerate(sorted(range(len(wanted)), key=lambda at: wanted[at])):
        parts[index] = min(Fraction(wanted[index]), left / (len(wanted) - rank))
        left -= parts[index]
    return parts


def by_worth(sections: Iterable[Section], tokens: Price, floor: float) -> list[tuple[str, Candidate]]:
    """Returns (section, item) of all competing items whose score reaches the floor, by falling worth.

    Worth is score × boost ÷ tokens; of equal worth the higher score comes first. A partner competes with its own part
    of the score. `tokens` estimates an item's tokens.
    """
    found = [
        (-item.score * section.boost / max(1, tokens(item)), -item.score, order, section.name, item)
        for section in sections
        if not section.always
        for order, item in enumerate(with_partners(section.items))
        if item.score is not None and item.score >= floor
    ]
    return [(name, item) for *_, name, item in sorted(found, key=lambda one: one[:3])]


def with_partners(items: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yields each item, followed by its partner if it has one."""
    for item in items:
        yield item
        if item.partner is not None:
            yield item.partner


OPENING = CONTEXT_OPENING
UNSURE = CONTEXT_UNSURE
FROZEN = CONTEXT_FROZEN
CLOSING = f"</{CONTEXT}>\n"
MESSAGE_TOKENS = 4
"""Tokens that a chat model's template adds to each message: a role and separators."""
TURNS = frozenset({"user", "assistant"})
"""Roles whose messages are rendered as turns."""

Citation = Callable[[Candidate], str | None]
"""Returns the citation of an item, or None if items are not cited."""


def title(text: str) -> str:
    """Returns the title line of a section."""
    return f"## {text}\n"


def heading(date: str, conversation: int | None) -> str:
    """Returns a heading line, such as `### 2026-05-08, conversation 2`.

    The caller's id of the session is never shown.
    """
    return f"### {date}\n" if conversation is None else f"### {date}, conversation {conversation}\n"


def line(item: Candidate, citation: str | None) -> str:
    """Returns an entry, such as `- [3] Ann: I moved to Boston.`"""
    return entry("- " if citation is None else f"- [{citation}] ", f"{item.prefix}{item.text}")


def turns(item: Candidate) -> list[dict[str, Any]]:
    """Returns the chat messages of an item, as the model gets them.

    A tool call is followed by its results. Any other text that neither user nor assistant said is fenced as data; no
    user's text can create such a fence. Stored text never gets a role with authority.
    """
    if item.turns:
        return [_paired(message) for message in item.turns]
    if item.role in TURNS:
        return [{"role": item.role, "content": escape(item.text)}]
    return [{"role": "user", "content": f"<{CONTEXT}>\n{entry(f'{item.role}: ', item.text)}{CLOSING}"}]


def _paired(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    escaped = {**message, "content": None if content is None else escape(content)}
    if "tool_calls" in message:
        escaped["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    if "tool_call_id" in message:
        escaped["tool_call_id"] = escape(message["tool_call_id"])
    return escaped


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Returns a tool call with escaped strings.

    The arguments are escaped as JSON, because chat templates decode them.
    """
    escaped: dict[str, Any] = escape_strings(call)
    function = call.get("function")
    if function is not None:
        escaped["function"]["arguments"] = escape_json(function["arguments"])
    return escaped


def turn_tokens(item: Candidate) -> int:
    """Returns the tokens of an item's messages, with what the template adds."""
    return sum(map(_message_tokens, turns(item)))


def _message_tokens(message: dict[str, Any]) -> int:
    calls = message.get("tool_calls")
    more = 0 if calls is None else prompt_text.count(orjson.dumps(calls).decode())
    return prompt_text.count(message["content"] or "") + more + MESSAGE_TOKENS


def heading_tokens(one: Heading) -> int:
    """Returns the tokens of a heading. They do not depend on its number."""
    return prompt_text.count(heading(one.date, 1 if one.conversation else None))


def ordered(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns the items in reading order: by time and grouped by heading; items without heading keep their order."""
    begun: dict[str, tuple[str, int]] = {}
    for item in items:
        if item.heading is not None:
            begun[item.heading.key] = min(begun.get(item.heading.key, item.place), item.place)

    def place(item: Candidate) -> tuple[tuple[str, int], str, tuple[str, int]]:
        key = "" if item.heading is None else item.heading.key
        return begun.get(key, ("", 0)), key, item.place

    return sorted(items, key=place) if begun else list(items)


def section(name: str, items: Sequence[Candidate], citation: Citation) -> str:
    """Returns a title, and the items' lines under their headings."""
    numbers: dict[str, int] = {}
    lines, above = [title(name)], None
    for item in items:
        if item.heading is not None and item.heading.key != above:
            above = item.heading.key
            lines.append(_heading(item.heading, numbers))
        lines.append(line(item, citation(item)))
    return "".join(lines)


def _heading(one: Heading, numbers: dict[str, int]) -> str:
    if not one.conversation:
        return heading(one.date, None)
    return heading(one.date, numbers.setdefault(one.key, len(numbers) + 1))


def block(sections: Sequence[str], before: str = "") -> str:
    """Returns the sections inside the frame, or an empty string if there are none.

    `before`: a line above the sections.
    """
    return OPENING + before + "".join(sections) + CLOSING if sections else ""
