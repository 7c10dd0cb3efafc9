"""Lays out a prompt: which sections it has, within which bounds, inside which frame, and when packing ends.

The default layout is one part. `cached_layout.py` makes three of it, for a model's prompt cache.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.context import rendering
from app.context.candidates import Candidate
from app.context.expectation import LEAST_DOCUMENTS
from app.context.gathering import Gathered
from app.context.intent import evidence_in
from app.context.packing import PackedPrompt, Packer, Section, TokenBound
from app.context.packing_weights import PackingWeights
from app.context.schemas import ContextRequest, Intent
from app.context.source import part_of
from app.context.stop_rule import StopRule
from app.core import prompt_text

MIN_SCORE = 0.001
"""Least score of what competes for a place in a context, unless a request says (decision 13)."""
LINE_TOKENS = 8
"""Estimated tokens of a line beside its text."""
CHARS_PER_TOKEN = 4
NOTHING_PACKED = PackedPrompt({}, {}, 0, ())


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What is to be packed, beside the sections."""

    body: ContextRequest
    budget: int
    intent: Intent
    unsure: bool
    """Whether a line says that no entry surely answers."""
    weights: PackingWeights | None
    """The fitted numbers of the stop rule; None: none are fitted for the embedding model."""
    asks: float = 1.0
    """The probability that the query asks for anything, by which all scores are multiplied."""

    @property
    def floor(self) -> float:
        """The least score of what competes. What fills the budget for "thanks!" is what would help if it asked."""
        return MIN_SCORE * self.asks if self.body.min_score is None else self.body.min_score

    @property
    def frame_tokens(self) -> int:
        """Tokens of the delimiters, and of the message that they make."""
        message = rendering.MESSAGE_TOKENS if self.body.format == "messages" else 0
        return prompt_text.count(rendering.OPENING) + prompt_text.count(rendering.CLOSING) + message


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of a prompt, as it was packed from these sections. `line_above` stands above them."""

    packed: PackedPrompt = NOTHING_PACKED
    sections: Sequence[Gathered] = ()
    line_above: str = ""

    @property
    def chosen(self) -> Iterator[Candidate]:
        """The packed items."""
        for items in self.packed.chosen.values():
            yield from items


@dataclass(frozen=True, slots=True)
class PackedParts:
    """The parts of a prompt in their order. The default layout has the last one alone."""

    stable: PromptPart
    turns: PromptPart
    volatile: PromptPart

    def __iter__(self) -> Iterator[PromptPart]:
        return iter((self.stable, self.turns, self.volatile))

    @property
    def total(self) -> int:
        """Tokens of all parts."""
        return sum(part.packed.total for part in self)

    @property
    def chosen(self) -> Iterator[Candidate]:
        """All items of the prompt."""
        for part in self:
            yield from part.chosen


def pack_default(plan: PromptPlan, gathered: Sequence[Gathered]) -> PackedParts:
    """Packs all sections into one part."""
    line_above = rendering.UNSURE if plan.unsure else ""
    frame = plan.frame_tokens + prompt_text.count(line_above)
    sections = [section_of(plan, section) for section in gathered]
    packed = Packer(sections, plan.budget, frame, plan.floor, stop_rule_of(plan, gathered)).pack(about_tokens)
    return PackedParts(PromptPart(), PromptPart(), PromptPart(packed, gathered, line_above))


def section_of(plan: PromptPlan, gathered: Gathered) -> Section:
    """Returns a section with its bounds."""
    source, bounds = gathered.source, plan.body.sections.get(gathered.source.section)
    max_tokens: TokenBound | None = None if source.share is None else part_of(plan.budget, source.share)
    if bounds is not None and (bounds.share is not None or bounds.tokens is not None):
        max_tokens = bounds.tokens if bounds.share is None else part_of(plan.budget, bounds.share)
    are_messages = source.holds_turns and plan.body.format == "messages"
    return Section(
        source.section,
        gathered.items,
        gathered.tokens,
        rendering.heading_tokens,
        0 if are_messages else prompt_text.count(rendering.title(source.title)),
        source.limit_in(plan.body),
        max_tokens,
        always=not source.competes,
        framed=not are_messages,
        compared=source.compared,
        boost=source.boosts.get(plan.intent, 1.0),
    )


def stop_rule_of(
    plan: PromptPlan, gathered: Sequence[Gathered], already_in_prompt: Sequence[Candidate] = ()
) -> StopRule | None:
    """Returns the rule by which packing ends before the budget is full; None: no numbers are fitted for the embedding
    model, or so little is stored that nothing is to be chosen. `already_in_prompt`: what other parts say."""
    if plan.body.fill:
        return None
    evidence = evidence_in(gathered)
    if plan.weights is None or sum(collection.count for collection in evidence) < LEAST_DOCUMENTS:
        return None
    keys = frozenset[str]().union(*(item.comparison.keys for item in already_in_prompt))
    competing = [item for section in gathered if section.source.competes for item in section.items]
    whole = sum(item.score or 0.0 for item in competing)
    in_prompt = sum(item.score or 0.0 for item in competing if keys & item.comparison.keys)
    return StopRule(evidence, plan.weights, cached_share=in_prompt / whole if whole else 0.0)


def about_tokens(item: Candidate) -> int:
    """Estimates the tokens of an item's line. The exact count follows when the item's turn comes."""
    return LINE_TOKENS + len(item.text) // CHARS_PER_TOKEN
