"""What the query wants, as far as what was found tells it, and how the prompt is laid out: which sections it has,
within which bounds, inside which frame, and when packing ends. No word of the query is read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.context import rendering
from app.context.gathering import GatheredSection
from app.context.packing import Packer, Packing, Section, TokenBound
from app.context.schemas import ContextRequest, Intent
from app.context.source import DOCUMENT_PART, SMALL_RECORDS, Candidate, min_score_of, part_of
from app.core import prompt_text
from app.retrieval.calibration import QueryEvidence

ANSWERS = 0.2
"""Minimum score of a section that counts for the intent. `Tuning.unsure_below` is another limit, below which "nothing
surely answers". By default it has the same value; who changes that setting changes no intent."""


def intent_of(best: Mapping[str, float], *, has_task: bool) -> Intent:
    """Returns the intent. `best`: the highest score of each section.

    It is execute if a procedure answers best or a task is named, recall if another kind of memory answers, else
    general.
    """
    answering = {name: score for name, score in best.items() if score >= ANSWERS}
    if has_task or (answering and max(answering, key=lambda name: answering[name]) == "procedures"):
        return "execute"
    return "recall" if answering else "general"


def best_scores(sections: Sequence[GatheredSection], *, asks_anything: bool) -> dict[str, float]:
    """Returns the highest score of each section, 0 of one without scores, and of each where the query asks for
    nothing: what fits "thanks!" best is what would help if it asked."""
    return {
        section.name: max((item.score or 0.0 for item in section.items if asks_anything), default=0.0)
        for section in sections
    }


def is_unsure(sections: Sequence[GatheredSection], best: Mapping[str, float], below: float) -> bool:
    """Returns whether no entry surely answers: all sections that compete were read, and all their scores are below
    the limit."""
    competing = [section for section in sections if not section.source.fixed]
    if any(section.error is not None for section in competing):
        return False
    return max((best[section.name] for section in competing), default=1.0) < below


def evidence_in(sections: Sequence[GatheredSection]) -> list[QueryEvidence]:
    """Returns what each searched collection has of the query."""
    return [section.result.query_evidence for section in sections if section.result.query_evidence is not None]


# --- The layout -------------------------------------------------------------------------------------------------------

SMALL_TOKENS = 300
"""A scope of at most `SMALL_RECORDS` whose entries take no more tokens is given whole, as far as the budget holds."""
NOT_ASKED_TOKENS, UNSURE_TOKENS = 150, 300
"""Most tokens of what competes for a query that asks for nothing, and for one that nothing surely answers."""


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What is to be packed, beside the sections."""

    body: ContextRequest
    budget: int
    intent: Intent
    unsure: bool
    """Whether nothing surely answers."""
    asks_anything: bool
    """Whether the query asks for anything."""
    small: bool = False
    """Whether so little is stored that all of it is given."""

    @property
    def min_score(self) -> float:
        """The least score of what competes."""
        return 0.0 if self.small and self.body.min_score is None else min_score_of(self.body)

    @property
    def most_competing_tokens(self) -> int | None:
        """The most tokens of what competes; None: what the budget has room for."""
        if self.body.fill or self.small or (self.asks_anything and not self.unsure):
            return None
        return UNSURE_TOKENS if self.asks_anything else NOT_ASKED_TOKENS

    @property
    def frame_tokens(self) -> int:
        """Tokens of the lines from `<recalld_context>` to the first entry, and of `</recalld_context>`. With the format
        `messages` and a `memory_role` but `user`, the block is a message of its own, whose tokens are added."""
        message = rendering.MESSAGE_TOKENS if self.body.format == "messages" and self.body.memory_role != "user" else 0
        return prompt_text.count(rendering.OPENING) + prompt_text.count(rendering.CLOSING) + message


@dataclass(frozen=True, slots=True)
class PackedContext:
    """A context, as it was packed from these sections. `line_above` stands above them."""

    packing: Packing
    sections: Sequence[GatheredSection]
    line_above: str

    @property
    def items(self) -> Iterator[Candidate]:
        """The packed items of all sections."""
        for items in self.packing.chosen.values():
            yield from items


def pack(plan: PromptPlan, sections: Sequence[GatheredSection]) -> PackedContext:
    """Packs all sections."""
    bounded = [bounded_section(plan, section) for section in sections]
    competing = {section.name for section in bounded if not section.fixed}

    def packing_under(line_above: str) -> Packing:
        frame = plan.frame_tokens + prompt_text.count(line_above)
        return Packer(
            bounded, plan.budget, frame, plan.min_score, plan.most_competing_tokens, fill=plan.body.fill
        ).pack()

    line_above = rendering.UNSURE if plan.unsure and plan.asks_anything else ""
    packing = packing_under(line_above)
    if line_above and competing.isdisjoint(packing.chosen):  # "the nearest entries follow", and none does
        line_above, packing = "", packing_under("")
    return PackedContext(packing, sections, line_above)


def is_small(sections: Sequence[GatheredSection]) -> bool:
    """Returns whether all that competes is to be given, because it is so little, but for the parts of documents: a
    manual does not take the allergy out of the prompt. `gather_memories` drops nothing for its score while this is
    still possible (`may_be_small`)."""
    competing = [section for section in sections if not section.source.fixed]
    found = {item.id: (section, item) for section in competing for item in section.items}
    items = [(section, item) for section, item in found.values() if item.type != DOCUMENT_PART]
    records = sum(evidence.count for evidence in evidence_in(sections))
    if records > SMALL_RECORDS or len(items) > SMALL_RECORDS:
        return False
    headings = {item.heading.key: rendering.heading_tokens(item) for _, item in items if item.heading is not None}
    tokens = sum(section.tokens(item) for section, item in items)
    return tokens + sum(headings.values()) <= SMALL_TOKENS


def bounded_section(plan: PromptPlan, section: GatheredSection) -> Section:
    """Returns what packing reads of a section, with its bounds."""
    source, bounds = section.source, plan.body.sections.get(section.source.section)
    max_tokens: TokenBound | None = None if source.share is None else part_of(plan.budget, source.share)
    if max_tokens is not None and source.max_tokens is not None:
        max_tokens = min(max_tokens, source.max_tokens)
    if bounds is not None and (bounds.share is not None or bounds.tokens is not None):
        max_tokens = bounds.tokens if bounds.share is None else part_of(plan.budget, bounds.share)
    are_messages = source.holds_turns and plan.body.format == "messages"
    items = section.items
    # all memories and facts are given, because they are few, and no part of a manual surely answers: without a score
    # `ranked` passes over such parts. They are dropped for their `score`, for which `explain` shows null
    if plan.small and (plan.unsure or not plan.asks_anything):
        items = [replace(item, score=None) if item.type == DOCUMENT_PART else item for item in items]
    return Section(
        source.section,
        items,
        section.tokens,
        rendering.heading_tokens,
        0 if are_messages else prompt_text.count(rendering.title(source.title)),
        source.limit_in(plan.body),
        max_tokens,
        fixed=source.fixed,
        framed=not are_messages,
        boost=source.boosts.get(plan.intent, 1.0),
    )
