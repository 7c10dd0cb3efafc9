"""Composes a prompt: reads the intent, runs all sources at the same time, packs by worth within the budget."""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from functools import partial
from hashlib import blake2b
from typing import Any

from app.context import packing
from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.expectation import LEAST_DOCUMENTS, Asked, asks, stop_rule
from app.context.marking import MARKED, mark, mark_doubts, values_of
from app.context.packing import PackedPrompt, Packer, Price, Section, StopRule, TokenBound
from app.context.packing_weights import packing_weights_for
from app.context.schemas import ContextRequest, Intent
from app.context.sources import SOURCES
from app.context.sources.frozen import CHANGING, NEWER, RULES, began
from app.context.sources.session import WINDOW_SOURCE, told_by_lines, without_lines
from app.core import prompt_text
from app.core.clock import parse_rfc3339, rfc3339
from app.core.tracing import span
from app.core.work import CONTEXT_UNITS, charge, in_parts, off_loop
from app.errors import NotFound, RecalldError, Unavailable
from app.facts.replaced import ReplacedValue
from app.memories.agents import AGENTS
from app.resources import Resources
from app.retrieval.query_evidence import QueryEvidence
from app.retrieval.time_expressions import TimeInterval, interval_of
from app.storage.schema import Doc
from app.storage.scope import Scope

ANSWERS = 0.2
"""Minimum score, a probability, of a section that answers a query."""
_BOOSTS: Mapping[Intent, Mapping[str, float]] = {
    "general": {},
    "recall": {"memories": 1.25, "facts": 1.25},
    "execute": {"procedures": 1.5, "experience": 1.25, "episodes": 1.25},
}


def infer(best: Mapping[str, float], *, has_task: bool) -> Intent:
    """Returns the intent. `best`: the highest score of each section.

    It is execute if a procedure answers best or a task is named, recall if another kind of memory answers, else
    general.
    """
    found = {name: score for name, score in best.items() if score >= ANSWERS}
    if has_task or (found and max(found, key=lambda name: found[name]) == "procedures"):
        return "execute"
    return "recall" if found else "general"


def boosts(intent: Intent) -> dict[str, float]:
    """Returns the factors of an intent by section."""
    return dict(_BOOSTS[intent])


COMPARED = frozenset({"instructions", "profile", "summary", "messages", "memories", "facts"})
"""Sections whose texts are compared by sentence, so that none repeats what others say. Actions that say the
same happened on different days."""
MIN_SCORE = 0.001
"""Least score of what competes for a place in a context, unless a request says (decision 13)."""
DEFAULT_BUDGET = 4000
BUDGET_SHARE = 0.25
"""Default budget as a share of a registered agent's `max_context_tokens`."""
LINE_TOKENS = 8
"""Estimated tokens of a line beside its text."""
CHARS_PER_TOKEN = 4

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Gathered:
    """The candidates of one source."""

    source: ContextSource
    request: SourceRequest
    items: list[Candidate] = field(default_factory=list)
    seconds: float = 0.0
    failed: bool = False
    mark: str = ""
    """Stands before the numbers that cite its items."""
    _sizes: dict[int, tuple[Candidate, int]] = field(default_factory=dict)
    """Tokens by the identity of an item, which is held so that no other one has it later."""

    def tokens(self, item: Candidate) -> int:
        """Returns the tokens of an item's line, or of its message. Each item is rendered and counted once: packing
        asks three times, and the answer once more."""
        if (known := self._sizes.get(id(item))) is not None:
            return known[1]
        size = price(self.request.body, self.source, self.mark)(item)
        self._sizes[id(item)] = item, size
        return size

    @property
    def faults(self) -> list[RecalldError]:
        """Errors of the source."""
        return self.request.faults


NOTHING_PACKED = PackedPrompt({}, {}, 0, ())
STABLE_MARK = "S"
STABLE_SHARE = Fraction(7, 20)
"""Most of the budget that what stays the same may take."""
VOLATILE_ALWAYS = Fraction(4, 5)
"""Share of what changes for the task in hand and what is newer. More than in the default layout, where rules, profile
and turns are in that share, too."""
LATEST = "9999"
"""Later than any time."""


@dataclass(slots=True)
class Frozen:
    """What was known when the conversation began, with the rules of now, and what is known now. `since`: when it
    began."""

    since: str
    then: list[Gathered]
    present: list[Gathered]
    changed: Gathered | None = None

    def newer(self, stable: PackedPrompt) -> list[Candidate]:
        """Returns what became known since, and what of the shown entries no longer holds."""
        past = {one.source.section: one for one in self.then if not one.failed}
        new, ended = list[Candidate](), list[Candidate]()
        for now in self.present:
            name = now.source.section
            if now.failed or name not in past:
                continue
            then, present = {_told(item) for item in past[name].items}, {_told(item) for item in now.items}
            new += [item for item in now.items if _told(item) not in then]
            if name in ENDING:
                gone = [item for item in stable.chosen.get(name, ()) if _told(item) not in present]
                ended += [
                    replace(item, id=f"ended:{item.id}", prefix=f"no longer: {item.prefix}", same=frozenset())
                    for item in gone
                ]
        return [*new, *ended]


ENDING = frozenset({"profile", "facts"})
"""Sections whose entries end. A lesson that was removed, and a summary, are shown no more at once."""


def _told(item: Candidate) -> str:
    return f"{item.prefix}{item.text if item.type == 'fact' else item.unmarked}"


@dataclass(frozen=True, slots=True)
class PackedParts:
    """The parts of a prompt in their order. The default layout has the last one alone."""

    stable: PackedPrompt
    turns: PackedPrompt
    volatile: PackedPrompt

    @property
    def total(self) -> int:
        """Tokens of all parts."""
        return self.stable.total + self.turns.total + self.volatile.total

    @property
    def chosen(self) -> Iterator[Candidate]:
        """All items of the prompt."""
        for part in (self.stable, self.turns, self.volatile):
            for items in part.chosen.values():
                yield from items

    @property
    def dropped(self) -> Iterator[tuple[Candidate, str]]:
        """All items that were left out of a part, each with the reason."""
        for part in (self.stable, self.turns, self.volatile):
            yield from part.dropped


@dataclass(frozen=True, slots=True)
class Rendered:
    """A part of the prompt as text, the turns that become messages of their own, and its manifest."""

    text: str
    turns: list[Candidate]
    sections: list[Doc]


class ContextService:
    """Assembles contexts for one caller."""

    def __init__(self, resources: Resources, scope: Scope, sources: Sequence[ContextSource] = SOURCES) -> None:
        self._resources, self._scope, self._sources = resources, scope, sources

    async def assemble(self, body: ContextRequest) -> Doc:
        """Returns the response of `POST /v1/context`.

        Raises NotFound if the task does not exist, and Unavailable if no source could be read.
        """
        started = time.perf_counter()
        charge(CONTEXT_UNITS)
        budget = body.token_budget or await self._budget(body.agent_id)
        cached = body.layout == "cached"
        sources = [one for one in (_volatile(self._sources) if cached else self._sources) if self._is_asked(one, body)]
        now = self._resources.clock.now() if body.now is None else parse_rfc3339(body.now)
        interval = await interval_of(body.query, now, body.timezone)
        frozen, gathered = await asyncio.gather(
            self._frozen(body, now, budget) if cached else _nothing(),
            asyncio.gather(*(self._gather(source, body, now, interval, budget) for source in sources)),
        )
        for one in gathered:
            if one.failed and isinstance(one.faults[0], NotFound):
                raise one.faults[0]
        if gathered and all(one.failed for one in gathered):
            raise _why(gathered)
        await self._mark(gathered)
        if frozen is not None:
            await self._mark(frozen.then[::-1])  # the last is read as of the beginning, the rules as of now
        best: dict[str, float] = {
            one.source.section: max((item.score or 0.0 for item in one.items), default=0.0) for one in gathered
        }
        intent = infer(best, has_task=body.task_id is not None) if body.intent == "auto" else body.intent
        characters = sum(len(item.text) for one in gathered for item in one.items)
        unsure = self._unsure(gathered, best)
        self._choose_lines(body, gathered, unsure)
        with span("context packing", {"recalld.context.budget": budget, "recalld.context.intent": intent}) as opened:
            if frozen is None:
                parts = await off_loop(characters, self._pack, body, gathered, budget, intent, unsure)
            else:
                parts = await off_loop(characters, self._pack_cached, body, frozen, gathered, budget, intent, unsure)
            opened.set({"recalld.context.tokens": parts.total})
        if body.now is None:
            self._note_accesses(parts, frozen)
        read = [*([] if frozen is None else frozen.then), *gathered]
        return {
            "intent": intent,
            **self._answer(body, parts, gathered, frozen, unsure=unsure),
            "budget": budget,
            "errors": [
                {"section": one.source.section, "code": error.code, "detail": error.detail}
                for one in read
                for error in one.faults
            ],
            "warnings": _warnings(read, parts.chosen),
            "took_ms": {
                **{one.source.section: round(one.seconds * 1000, 3) for one in read},
                "total": round((time.perf_counter() - started) * 1000, 3),
            },
        }

    def _is_asked(self, source: ContextSource, body: ContextRequest) -> bool:
        return source.section not in body.exclude and self._limit(source, body) > 0

    async def _frozen(self, body: ContextRequest, now: datetime, budget: int) -> Frozen:
        """Reads what was known when the conversation began, and what of it is known now."""
        since = await began(SourceRequest(body, self._scope, self._resources, now, 0))
        known_at = body.known_at if body.now is not None else min(rfc3339(since), body.known_at or LATEST)
        present = body.model_copy(update={"query": ""})
        then = present.model_copy(update={"as_of": body.as_of or rfc3339(since), "known_at": known_at})
        sources = [one for one in CHANGING if self._is_asked(one, body)]
        found = await asyncio.gather(
            *(self._gather(one, then, since, None, budget) for one in sources),
            *(self._gather(one, present, now, None, budget) for one in sources),
            *(self._gather(one, body, now, None, budget) for one in (RULES,) if self._is_asked(one, body)),
        )
        past, today, rules = found[: len(sources)], found[len(sources) : 2 * len(sources)], found[2 * len(sources) :]
        for one in (*past, *rules):
            one.mark = STABLE_MARK
        return Frozen(rfc3339(since), [*rules, *past], list(today))

    def _limit(self, source: ContextSource, body: ContextRequest) -> int:
        bounds = body.sections.get(source.section)
        return source.default_limit if bounds is None or bounds.limit is None else bounds.limit

    async def _budget(self, agent_id: str) -> int:
        agent = await self._resources.store.get(AGENTS, self._scope.tenant, agent_id)
        if agent is None or not self._scope.sees(agent):
            return DEFAULT_BUDGET
        return max(1, int(BUDGET_SHARE * agent["settings"]["max_context_tokens"]))

    async def _gather(
        self,
        source: ContextSource,
        body: ContextRequest,
        now: datetime,
        interval: TimeInterval | None,
        budget: int,
    ) -> Gathered:
        started = time.perf_counter()
        request = SourceRequest(
            body, self._scope, self._resources, now, self._limit(source, body), interval, budget=budget
        )
        result = Gathered(source, request)
        error: RecalldError | None = None
        try:
            with span(f"context {source.section}") as open_span:
                async with asyncio.timeout(self._resources.tuning.section_seconds):
                    result.items = await source.gather(result.request)
                open_span.set({"recalld.context.candidates": len(result.items)})
        except TimeoutError:
            error = Unavailable(f"Not read within {self._resources.tuning.section_seconds:g} s.")
        except RecalldError as raised:
            error = raised
        except Exception:
            log.exception("a section was not read", extra={"section": source.section})
            error = RecalldError()
        if error is not None:
            result.failed = True
            result.faults.insert(0, error)
        result.seconds = time.perf_counter() - started
        return result

    async def _mark(self, gathered: Sequence[Gathered]) -> None:
        """Marks the texts that state a value of a fact that was replaced, and what findings of a judge name. If the
        facts cannot be read, no value is marked, and a warning says so."""
        items = [item for one in gathered if one.source.section in MARKED for item in one.items]
        if not items:
            return
        doubts = [doubt for one in gathered for doubt in one.request.doubts]
        request = gathered[0].request
        facts = [fact for one in gathered for fact in one.request.facts]
        values: list[ReplacedValue] = []
        try:
            async with asyncio.timeout(self._resources.tuning.section_seconds):
                values = await values_of(request, facts, items)
        except (RecalldError, TimeoutError):
            request.warnings.append({"code": "values_unmarked", "detail": "Earlier values of facts are not marked."})
        names = [*(name for one in gathered for name in one.request.names), *filter(None, [request.body.user_id])]
        for one in gathered:
            if one.source.section in MARKED and (values or doubts):
                marked = await in_parts(one.items, lambda item: mark([item], values, names)[0], _length)
                one.items = await off_loop(sum(map(_length, marked)), mark_doubts, marked, doubts)

    def _unsure(self, gathered: Sequence[Gathered], best: dict[str, float]) -> bool:
        """Returns whether all searched sections were read and none of their scores reaches `unsure_below`."""
        searched = [one for one in gathered if one.source.share is None]
        if any(one.failed for one in searched):
            return False
        scores = [best[one.source.section] for one in searched]
        return max(scores, default=1.0) < self._resources.tuning.unsure_below

    def _choose_lines(self, body: ContextRequest, gathered: Sequence[Gathered], unsure: bool) -> None:
        """Leaves out the lines of the last sessions if the query asks for something that is found."""
        chosen = told_by_lines if unsure or not self._asks(body, gathered) else without_lines
        for one in gathered:
            if any(item.recalls for item in one.items):
                one.items = chosen(one.items)

    def _asks(self, body: ContextRequest, gathered: Sequence[Gathered]) -> bool:
        """Returns whether the query asks for anything, as far as anybody knows."""
        weights = packing_weights_for(self._resources.embedder.name)
        evidence = _evidence(gathered)
        if weights is None or not evidence:
            return True
        scores = [item.score or 0.0 for one in gathered if one.source.share is None for item in one.items]
        return asks(Asked(body.query, evidence, scores, _is_dated(gathered)), weights)

    # --- Packing ------------------------------------------------------------------------------------------------------

    def _pack(
        self, body: ContextRequest, gathered: Sequence[Gathered], budget: int, intent: Intent, unsure: bool
    ) -> PackedParts:
        frame = prompt_text.count(packing.OPENING) + prompt_text.count(packing.CLOSING)
        if unsure:
            frame += prompt_text.count(packing.UNSURE)
        if body.format == "messages":
            frame += packing.MESSAGE_TOKENS
        sections = [self._section(body, one, budget, boosts(intent)) for one in gathered]
        packed = Packer(sections, budget, frame, self._floor(body), self._stop(body, gathered)).pack(_about)
        return PackedParts(NOTHING_PACKED, NOTHING_PACKED, packed)

    def _stop(
        self, body: ContextRequest, gathered: Sequence[Gathered], told: Sequence[Candidate] = ()
    ) -> StopRule | None:
        """Returns the rule by which packing ends before the budget is full; None: no numbers are fitted for the
        embedding model, or so little is stored that nothing is to be chosen. `told`: what stands in the prompt
        already."""
        if body.fill:
            return None
        weights = packing_weights_for(self._resources.embedder.name)
        evidence = _evidence(gathered)
        if weights is None or sum(one.count for one in evidence) < LEAST_DOCUMENTS:
            return None
        told_share = _told_share(gathered, told)
        return partial(stop_rule, body.query, evidence, weights, dated=_is_dated(gathered), told=told_share)

    def _floor(self, body: ContextRequest) -> float:
        return MIN_SCORE if body.min_score is None else body.min_score

    def _pack_cached(
        self,
        body: ContextRequest,
        frozen: Frozen,
        gathered: Sequence[Gathered],
        budget: int,
        intent: Intent,
        unsure: bool,
    ) -> PackedParts:
        """Packs first what stays the same, within a part of the budget that nothing else changes, then the turns, and
        what the query needs into the room that is left. That repeats neither."""
        frame = prompt_text.count(packing.OPENING) + prompt_text.count(packing.CLOSING)
        frame += packing.MESSAGE_TOKENS if body.format == "messages" else 0
        then = [self._section(body, one, budget, {}) for one in frozen.then]
        head = frame + prompt_text.count(packing.FROZEN)
        stable = Packer(then, int(STABLE_SHARE * budget), head, 0.0, always=Fraction(1)).pack(_about)
        told = [item for items in stable.chosen.values() for item in items]
        room, turns = budget - stable.total, NOTHING_PACKED
        for one in gathered:
            if one.source.turns and body.format == "messages":
                section = replace(self._section(body, one, budget, {}), max_tokens=None)
                turns = Packer([section], room, 0, 0.0, always=Fraction(1)).pack(_about)
                told += [item for items in turns.chosen.values() for item in items]
            elif one.source.turns:  # the caller has them
                told += one.items
        asked = [one for one in gathered if not one.source.turns]
        if frozen.present and self._is_asked(NEWER, body):
            frozen.changed = Gathered(NEWER, frozen.present[0].request, frozen.newer(stable))
            asked.insert(0, frozen.changed)
        sections = [self._section(body, one, budget, boosts(intent)) for one in asked]
        frame += prompt_text.count(packing.UNSURE) if unsure else 0
        stop = self._stop(body, gathered, told)
        packer = Packer(sections, room - turns.total, frame, self._floor(body), stop, always=VOLATILE_ALWAYS, told=told)
        rest = packer.pack(_about)
        return PackedParts(stable, turns, rest)

    def _section(self, body: ContextRequest, one: Gathered, budget: int, boost: dict[str, float]) -> Section:
        source, bounds = one.source, body.sections.get(one.source.section)
        limit: TokenBound | None = None if source.share is None else Fraction(source.share) * budget
        if bounds is not None and (bounds.share is not None or bounds.tokens is not None):
            limit = Fraction(bounds.share) * budget if bounds.share is not None else bounds.tokens
        turns = source.turns and body.format == "messages"
        return Section(
            source.section,
            one.items,
            one.tokens,
            lambda item: 0 if item.heading is None else packing.heading_tokens(item.heading),
            0 if turns else prompt_text.count(packing.title(source.title)),
            self._limit(source, body),
            limit,
            always=source.share is not None,
            framed=not turns,
            compared=source.section in COMPARED,
            boost=boost.get(source.section, 1.0),
        )

    def _note_accesses(self, parts: PackedParts, frozen: Frozen | None) -> None:
        """Counts what is packed as accessed; what stays the same, once since the conversation began."""
        for part, since in ((parts.volatile, None), (parts.stable, None if frozen is None else frozen.since)):
            found = [item.memory_id for items in part.chosen.values() for item in items if item.memory_id is not None]
            if found:
                self._resources.accesses.note(self._scope.tenant, list(dict.fromkeys(found)), since)

    # --- The response -------------------------------------------------------------------------------------------------

    def _answer(
        self,
        body: ContextRequest,
        parts: PackedParts,
        gathered: Sequence[Gathered],
        frozen: Frozen | None,
        *,
        unsure: bool,
    ) -> Doc:
        read = [*gathered, *(() if frozen is None or frozen.changed is None else (frozen.changed,))]
        volatile = _rendered(body, parts.volatile, read, packing.UNSURE if unsure else "")
        turns = _rendered(body, parts.turns, read)
        stable = Rendered("", [], []) if frozen is None else _rendered(body, parts.stable, frozen.then, packing.FROZEN)
        answer = {
            "messages": self._messages(body, stable, turns, volatile) if body.format == "messages" else [],
            "text": stable.text + volatile.text,
            "tokens": parts.total,
            "query_tokens": prompt_text.count(body.query),
            "system_prompt_tokens": prompt_text.count(body.system_prompt or ""),
            "sections": [*stable.sections, *turns.sections, *volatile.sections],
            "dropped": _dropped(parts, gathered),
        }
        if frozen is not None:
            tag = blake2b(stable.text.encode(), digest_size=16).hexdigest()
            text = None if body.stable_etag == tag else stable.text
            answer["stable"] = {
                "text": text,
                "tokens": parts.stable.total,
                "etag": tag,
                "sections": stable.sections,
            }
            answer["volatile"] = {
                "text": volatile.text,
                "tokens": parts.volatile.total,
                "sections": volatile.sections,
            }
        return answer

    def _messages(
        self, body: ContextRequest, stable: Rendered, turns: Rendered, volatile: Rendered
    ) -> list[dict[str, Any]]:
        """Returns the messages in order: in the default layout all that is remembered before the turns, in the cached
        one what the query needs behind them."""
        system = [{"role": "system", "content": body.system_prompt}] if body.system_prompt else []
        remembered, needed = (
            [{"role": body.memory_role, "content": part.text}] if part.text else [] for part in (stable, volatile)
        )
        said = [message for item in (*turns.turns, *volatile.turns) for message in packing.turns(item)]
        asked = [{"role": "user", "content": body.query}]
        if body.layout == "cached":
            return [*system, *remembered, *said, *needed, *asked]
        return [*system, *needed, *said, *asked]


def _rendered(body: ContextRequest, packed: PackedPrompt, gathered: Sequence[Gathered], before: str = "") -> Rendered:
    """Returns a part of the prompt as text, the turns that become messages, and the manifest. `before`: a line above
    the sections."""
    sources: dict[str, ContextSource] = {one.source.section: one.source for one in gathered}
    sizes: dict[str, Price] = {one.source.section: one.tokens for one in gathered}
    mark = next((one.mark for one in gathered), "")
    chosen = {name: _as_read(sources[name], items) for name, items in packed.chosen.items()}
    numbers: dict[str, str] = {}
    for items in chosen.values():
        for item in items:
            numbers.setdefault(item.id, f"{mark}{len(numbers) + 1}")
    citation = _citation(body, numbers, mark)
    apart = {name for name in chosen if body.format == "messages" and sources[name].turns}
    texts = [
        packing.section(sources[name].title, items, citation) for name, items in chosen.items() if name not in apart
    ]
    sections = [
        {
            "name": name,
            "tokens": packed.tokens[name],
            "items": [
                {
                    "id": item.id,
                    "type": item.type,
                    "citation": citation(item),
                    "score": item.score,
                    "links": list(item.links),
                    "tokens": sizes[name](item),
                }
                for item in items
            ],
        }
        for name, items in chosen.items()
    ]
    return Rendered(packing.block(texts, before), [item for name in apart for item in chosen[name]], sections)


def _evidence(gathered: Sequence[Gathered]) -> list[QueryEvidence]:
    """Returns what each searched collection has of the query."""
    return [each for one in gathered for each in one.request.evidence]


def _is_dated(gathered: Sequence[Gathered]) -> bool:
    """Returns whether the query names a time."""
    return any(one.request.interval is not None for one in gathered)


def _told_share(gathered: Sequence[Gathered], told: Sequence[Candidate]) -> float:
    """Returns which part of the scores of all competing items those have that are told already."""
    said = frozenset[str]().union(*(item.same for item in told))
    scores = [
        (item.score or 0.0, bool(said & item.same))
        for one in gathered
        if one.source.share is None
        for item in one.items
    ]
    whole = sum(score for score, _ in scores)
    return sum(score for score, is_told in scores if is_told) / whole if whole else 0.0


def _volatile(sources: Sequence[ContextSource]) -> list[ContextSource]:
    """Returns the sources of what may change with each query. Rules stand in what stays the same."""
    others = [one for one in sources if one.section != "instructions"]
    return [WINDOW_SOURCE if one.turns else one for one in others]


async def _nothing() -> None:
    return None


def _as_read(source: ContextSource, items: Sequence[Candidate]) -> list[Candidate]:
    """Returns the packed items of a section in the order in which the text shows them."""
    if source.newest_first:
        return list(items)[::-1]
    if source.latest_first:
        return sorted(items, key=lambda item: (item.heading is None, item.place), reverse=True)
    if source.oldest_first:
        return sorted(items, key=lambda item: (item.heading is not None, item.place, item.id))
    return packing.ordered(items)


def _length(item: Candidate) -> int:
    return len(item.text)


def _about(item: Candidate) -> int:
    """Estimates the tokens of an item's line. The exact count follows when the item's turn comes."""
    return LINE_TOKENS + len(item.text) // CHARS_PER_TOKEN


def _citation(body: ContextRequest, numbers: dict[str, str], mark: str = "") -> packing.Citation:
    """Returns the function that cites items.

    Before packing every number is `1`, because each number takes one token.
    """
    if body.citations == "none":
        return lambda item: None
    if body.citations == "ids":
        return lambda item: prompt_text.as_label(item.id)
    return lambda item: numbers.get(item.id, f"{mark}1")


def price(body: ContextRequest, source: ContextSource, mark: str = "") -> Price:
    """Returns the function that counts the tokens of an item's line, or of its message.

    Lines are short and often the same, so counts are cached.
    """
    if source.turns and body.format == "messages":
        return packing.turn_tokens
    citation = _citation(body, {}, mark)
    return lambda item: prompt_text.count(packing.line(item, citation(item)))


def _dropped(parts: PackedParts, gathered: Sequence[Gathered]) -> list[Doc]:
    """Returns the dropped items, hidden ones last. An item that two sections found is listed once."""
    packed_ids = {item.id for item in parts.chosen}
    found = {item.id: reason for item, reason in parts.dropped if item.id not in packed_ids}
    hidden = {each: "importance" for one in gathered for each in one.request.hidden if each not in packed_ids}
    return [{"id": each, "reason": reason} for each, reason in {**hidden, **found}.items()]


def _warnings(gathered: Sequence[Gathered], chosen: Iterable[Candidate]) -> list[Doc]:
    """Returns the warnings of all sections, without repetitions."""
    found = [warning for one in gathered for warning in one.request.warnings]
    packed_ids = {item.id for item in chosen}
    for one in gathered:
        if one.source.section == "instructions":
            found += [
                {"code": "instruction_left_out", "detail": f"{item.id} does not fit: give a larger token_budget."}
                for item in one.items
                if item.id not in packed_ids
            ]
    return [warning for at, warning in enumerate(found) if warning not in found[:at]]


def _why(gathered: Sequence[Gathered]) -> RecalldError:
    """Returns the error of a context without any section.

    It is a client error if every source reports one, else Unavailable.
    """
    error = gathered[0].faults[0]
    if all(one.faults[0].status < Unavailable.status for one in gathered) and error.status < RecalldError.status:
        return error
    return Unavailable(f"No section could be read: {error.detail}", retry_after=1)
