"""How the prompt is laid out: which sections it has, within which bounds, inside which frame, and when packing ends.
What the query wants follows from what the sections found, and no word of the query is read for it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from app.context import rendering
from app.context.packing import BoundedSection, Packer, Packing
from app.context.schemas import ContextRequest, Intent
from app.context.source import (
    DOCUMENT_PART,
    SMALL_RECORDS,
    Candidate,
    ContextSource,
    SourceRequest,
    SourceResult,
    min_score_of,
    part_of,
)
from app.core import prompt_text
from app.errors import RecalldError
from app.retrieval.calibration import asks_for_anything


@dataclass(frozen=True, slots=True)
class GatheredSection:
    """A section with what its source returned."""

    source: ContextSource
    request: SourceRequest
    result: SourceResult
    error: RecalldError | None = None
    """Why nothing was read."""
    seconds: float = 0.0
    _tokens: dict[int, tuple[Candidate, int]] = field(default_factory=dict, init=False, compare=False)
    """Tokens by the identity of an item, which is held so that no other one has it later."""

    @property
    def name(self) -> str:
        """The name of the section."""
        return self.source.section

    @property
    def items(self) -> Sequence[Candidate]:
        """The candidates, best first."""
        return self.result.items

    def tokens(self, item: Candidate) -> int:
        """Returns the tokens of an item's line, or of its messages. Each item is rendered and counted once, though
        packing needs them several times, and the answer once more."""
        counted = self._tokens.get(id(item))
        if counted is None:
            counted = item, rendering.item_tokens(self.request.body, self.source, item)
            self._tokens[id(item)] = counted
        return counted[1]


# --- What the query wants ---------------------------------------------------------------------------------------------

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


SMALL_TOKENS = 300
"""A scope of at most `SMALL_RECORDS` whose entries take no more tokens is given whole, as far as the budget holds."""


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """What the query wants of the prompt."""

    body: ContextRequest
    budget: int
    intent: Intent
    unsure: bool
    """Whether nothing surely answers."""
    asks_anything: bool
    """Whether the query asks for anything that memory may have; "thanks!" does not."""
    small: bool = False
    """Whether so little is stored that all of it is given."""


def plan_of(request: SourceRequest, sections: Sequence[GatheredSection]) -> PromptPlan:
    """Returns what the query wants, by the scores of what was found and by what the searched documents have of it."""
    body, results = request.body, [section.result for section in sections]
    evidence = [result.query_evidence for result in results if result.query_evidence is not None]
    asks_anything = asks_for_anything(evidence)
    # 0 where the query asks for nothing: what fits "thanks!" best is what would help if it asked
    best = {
        section.name: max((item.score or 0.0 for item in section.items if asks_anything), default=0.0)
        for section in sections
    }
    competing = [one for one in sections if not one.source.fixed]
    least = request.resources.tuning.unsure_below
    # what is from then answers "What happened yesterday?", and a section that could not be read may have what answers
    of_time = request.interval is not None and not all(of_collection.subject for of_collection in evidence)
    unsure = bool(competing) and not of_time and all(one.error is None and best[one.name] < least for one in competing)
    intent = intent_of(best, has_task=body.task_id is not None) if body.intent == "auto" else body.intent
    small = _is_small(competing, sum(of_collection.count for of_collection in evidence))
    return PromptPlan(body, request.budget, intent, unsure, asks_anything, small)


def _is_small(competing: Sequence[GatheredSection], records: int) -> bool:
    """Returns whether all that competes is to be given, because it is so little, but for the parts of documents: a
    manual does not take the allergy out of the prompt. `gather_memories` drops nothing for its score while this is
    still possible (`may_be_small`). `records`: how many the searched collections have."""
    found = {item.id: (section, item) for section in competing for item in section.items}
    items = [(section, item) for section, item in found.values() if item.type != DOCUMENT_PART]
    if records > SMALL_RECORDS or len(items) > SMALL_RECORDS:  # lessons are in none that is searched
        return False
    headings = {item.heading.key: rendering.heading_tokens(item) for _, item in items if item.heading is not None}
    tokens = sum(section.tokens(item) for section, item in items)
    return tokens + sum(headings.values()) <= SMALL_TOKENS


# --- The layout -------------------------------------------------------------------------------------------------------

NOT_ASKED_TOKENS, UNSURE_TOKENS = 150, 300
"""Most tokens of what competes for a query that asks for nothing, and for one that nothing surely answers."""


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
    """Packs all sections, inside the frame of `<recalld_context>`."""
    body = plan.body
    bounded = [bounded_section(plan, section) for section in sections]
    min_score = 0.0 if plan.small and body.min_score is None else min_score_of(body)
    most_competing_tokens: int | None = None  # what the budget has room for
    if not body.fill and not plan.small and (plan.unsure or not plan.asks_anything):
        most_competing_tokens = UNSURE_TOKENS if plan.asks_anything else NOT_ASKED_TOKENS
    frame_tokens = prompt_text.count(rendering.OPENING) + prompt_text.count(rendering.CLOSING)
    if body.format == "messages" and body.memory_role != "user":  # the frame is a message of its own
        frame_tokens += rendering.MESSAGE_TOKENS

    def packing_under(line_above: str) -> Packing:
        frame = frame_tokens + prompt_text.count(line_above)
        return Packer(bounded, plan.budget, frame, min_score, most_competing_tokens, fill=body.fill).pack()

    line_above = rendering.UNSURE if plan.unsure and plan.asks_anything else ""
    packing = packing_under(line_above)
    # "the nearest entries follow", and none does
    if line_above and not any(section.name in packing.chosen for section in bounded if not section.fixed):
        line_above, packing = "", packing_under("")
    return PackedContext(packing, sections, line_above)


def bounded_section(plan: PromptPlan, section: GatheredSection) -> BoundedSection:
    """Returns what packing reads of a section, with its bounds."""
    source, body, items = section.source, plan.body, section.items
    usual = None if source.share is None else part_of(plan.budget, source.share)
    if usual is not None and source.max_tokens is not None:
        usual = min(usual, Fraction(source.max_tokens))
    are_messages = source.holds_turns and body.format == "messages"
    # all memories and facts are given, because they are few, and no part of a manual surely answers: without a score
    # `ranked` passes over such parts. They are dropped for their `score`, for which `explain` shows null
    if plan.small and (plan.unsure or not plan.asks_anything):
        items = [replace(item, score=None) if item.type == DOCUMENT_PART else item for item in items]
    return BoundedSection(
        source.section,
        items,
        section.tokens,
        rendering.heading_tokens,
        title_tokens=0 if are_messages else prompt_text.count(rendering.title(source.title)),
        limit=source.limit_in(body),
        max_tokens=source.max_tokens_in(body, plan.budget, usual),
        fixed=source.fixed,
        framed=not are_messages,
        boost=source.boosts.get(plan.intent, 1.0),
    )
