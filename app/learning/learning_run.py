"""The protocol of extractors, the loop that runs them, and the report of a run.

For each chunk of a source: one call for all parts (one more for what tools gave back, which no other part sees), one
second look at all items, which may only remove some, and then the plans.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from app.core import prompt_text
from app.core.schemas import Json
from app.core.work import off_loop
from app.errors import Forbidden, LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable, RecalldError
from app.jobs.queue import skipping
from app.jobs.runner import Run
from app.learning import prompts
from app.learning.dependencies import Tools
from app.learning.derivations import DERIVATIONS, DerivationPlan, DerivationRecord, DerivationResult, commit_noted
from app.learning.extraction import UNSUPPORTED
from app.llm.base import LLM, Budget, ReplyShape
from app.storage.changes import Change
from app.storage.schema import Collection

log = logging.getLogger(__name__)


NO_LLM = "no language model is configured"
SMALL_TALK_ONLY = "the messages are small talk"


class Unfinished(RecalldError):
    """Some parts failed. The job is retried for these parts only."""


class Report:
    """The outcome of each part of a learning job, over all chunks of the conversation."""

    def __init__(self) -> None:
        self.parts: dict[str, Json] = {}
        self.failed: dict[str, str] = {}
        self.unreachable: LLMUnavailable | LLMBudgetSpent | None = None
        """Why no further part can be asked for in this run."""
        self.advanced = False
        """Whether this try has learned any part."""
        self.noted: set[str] = set()
        """The ids of the derivations whose results are counted."""

    def add(self, name: str, result: DerivationResult, *, by_earlier_try: bool = False) -> None:
        """Adds the result of a part: counts and lists accumulate. What an earlier try of the job had done is no
        progress of this one."""
        self.advanced = self.advanced or not by_earlier_try
        part = self.parts.setdefault(name, {})
        part["status"] = "done"
        part.pop("reason", None)
        for key, value in result.items():
            part[key] = _sum(part.get(key), value)

    @property
    def waits(self) -> bool:
        """True if the parts that failed can go on at a known time, on which they wait."""
        return self.unreachable is not None and self.unreachable.until is not None

    def unfinished(self) -> "Unfinished":
        """Returns the error with which a job ends that is to run again for the parts that failed."""
        error = Unfinished("; ".join(f"{name}: {why}" for name, why in self.failed.items()))
        error.until = None if self.unreachable is None else self.unreachable.until
        return error

    def skip(self, name: str, why: str) -> None:
        """Notes that a part was skipped, unless it has an outcome."""
        self.parts.setdefault(name, {"status": "skipped", "reason": why})

    def fail(self, name: str, why: str) -> None:
        """Notes that a part failed."""
        self.failed[name] = why
        self.parts[name] = {**self.parts.get(name, {}), "status": "failed", "reason": why}


def _sum(old: Any, new: Any) -> Any:
    """Adds up counts and lists; of texts the last one is kept."""
    if old is None or isinstance(new, str):
        return new
    if isinstance(new, dict):
        return {key: _sum(old.get(key), new.get(key, 0)) for key in {**old, **new}}
    return old + new


class Skipped(Exception):
    """The extractor has nothing to do. The message gives the reason."""


class LearningSource(Protocol):
    """Records of one agent and user, which extractors read."""

    @property
    def size(self) -> int:
        """The number of records."""

    @property
    def prompt(self) -> str:
        """The name of the prompt that comes first, as `conversation`: those of the parts follow it."""

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """Returns the id of the derivation of this extractor from this source."""

    @property
    def record(self) -> tuple[Collection, str]:
        """The record that an operation names where the content of the source cannot be handled."""

    def described(self) -> DerivationRecord:
        """Returns owner and source, as fields of the derivation."""

    def unchanged(self) -> list[Change]:
        """Returns changes that conflict if the source is no longer what the model was shown."""

    def data(self, known: Json) -> str:
        """Returns the records, and further data, as JSON for the model."""


S = TypeVar("S", bound=LearningSource)
S_contra = TypeVar("S_contra", bound=LearningSource, contravariant=True)


@dataclass(frozen=True, slots=True)
class PartRequest:
    """What one part shows the model besides the source. `context` is for the extractor's own plan."""

    known: Json = field(default_factory=dict)
    wishes: str | None = None
    """Instructions that the agent's owner adds."""
    context: Any = None
    apart: bool = False
    """The part is asked for in a call of its own, because the others must not see what it is shown."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer to one part: `reply` has the part's shape. `looked`: the second look removed from it what no
    quote supports."""

    reply: Any
    request: PartRequest
    model: str
    looked: bool = False


class Extractor(Protocol[S_contra]):
    """Says what to ask the model about a source, and plans changes by rules from its answer."""

    @property
    def names(self) -> Sequence[str]:
        """What is made of the answer, in order: each has a derivation and a place in the report."""

    @property
    def prompt(self) -> str:
        """The name of the prompt's file."""

    @property
    def shape(self) -> type[ReplyShape]:
        """The shape of the answer. Field names of different parts differ."""

    async def request(self, tools: Tools, source: S_contra, /) -> PartRequest:
        """Returns what the model is shown. Raises `Skipped` if the part has nothing to ask, or Forbidden."""

    def may_be_stored(self, source: S_contra, answer: ModelAnswer, item: Any, /) -> bool:
        """Returns whether an item may be stored, as far as code can see it alone. The second look is for these."""

    def plans(self, tools: Tools, source: S_contra, /, answer: ModelAnswer) -> Mapping[str, DerivationPlan]:
        """Returns the plan for each of `names`. It reads again whenever it runs, so it can run again after a
        conflict without asking the model again."""


Part = tuple[Extractor[S], PartRequest]
"""What is asked for. What is made of its answer are the parts of the report: its extractor's `names`."""
PartAnswer = tuple[Extractor[S], ModelAnswer]


async def ask(source: S, parts: Sequence[Part[S]], llm: LLM, budget: Budget) -> Any:
    """Asks the model once for all parts and returns an answer that has the shape of each of them. Known data that has
    no room in the model's context is left out.

    Raises what the model's client raises.
    """
    parts = sorted(parts, key=_place)
    sections = [prompts.load(part.prompt).with_wishes(request.wishes) for part, request in parts]
    instructions = "\n\n".join([prompts.load(source.prompt).text, *sections])
    known: Json = {}
    for _, request in parts:
        known |= request.known
    shape = _shape(parts)
    room = llm.prompt_tokens - prompts.SHAPE_TOKENS - prompt_text.count(f"{source.data({})}{instructions}")
    return await llm.reply(instructions, source.data(prompts.fitting(known, room)), shape, budget)


NOT_SHOWN = {"importance", "always", "replaces", "kind", "cardinality", "procedure_id"}
"""Fields of an item that say nothing a quote could support."""


async def looked_at(source: S, answers: Sequence[PartAnswer[S]], llm: LLM, budget: Budget) -> list[PartAnswer[S]]:
    """Asks the model which items their quotes do not support, and returns the answers without them. Without an item
    nothing is asked.

    The request begins as that of the answers did: with the conversation. Raises what the model's client raises.
    """
    places = await off_loop(len(source.data({})), lambda: list(_to_look_at(source, answers)))
    if places:
        items: list[Json] = []
        for number, (_, answer, name, at) in enumerate(places, start=1):
            item = getattr(answer.reply, name)[at]
            items.append({"number": number, "part": name, **item.model_dump(exclude=NOT_SHOWN)})
        known = {name: value for _, answer in answers for name, value in answer.request.known.items() if name in SEEN}
        instructions = prompts.load("second_look").text
        taken = prompt_text.count(f"{source.data({'items': items})}{instructions}") + prompts.SHAPE_TOKENS
        shown = source.data({**prompts.fitting(known, llm.prompt_tokens - taken), "items": items})
        look = await llm.reply(instructions, shown, prompts.SecondLook, budget)
        for objection in look.unsupported:
            if 1 <= objection.number <= len(places):
                _, answer, name, at = places[objection.number - 1]
                getattr(answer.reply, name)[at] = UNSUPPORTED
    return [(part, replace(answer, looked=True)) for part, answer in answers]


def _to_look_at(source: S, answers: Sequence[PartAnswer[S]]) -> Iterator[tuple[Extractor[S], ModelAnswer, str, int]]:
    """Yields the places of the items that may be stored: part, answer, the name of the list, and the index in it."""
    for part, answer in answers:
        for name in part.shape.model_fields:
            for at, item in enumerate(getattr(answer.reply, name) or ()):
                if item is not None and part.may_be_stored(source, answer, item):
                    yield part, answer, name, at


SEEN = ("tool_calls",)
"""What the second look sees besides the items, because they may be drawn from it."""


@dataclass(frozen=True, slots=True)
class LearningRun:
    """One run of a learning job. The report collects the outcome of each extractor."""

    tools: Tools
    run: Run
    report: Report

    async def learn_from(
        self,
        sources: AsyncIterator[S],
        extractors: Callable[[S], Sequence[Extractor[S]]],
        done_with: Callable[[S, int], Awaitable[None]],
        llm: LLM,
        budget: Budget,
    ) -> int:
        """Runs the extractors on one source after the other. Returns the number of records that were learned from.

        If an extractor fails, earlier results stay and the loop ends. `done_with` (source, records so far) is not
        called for that source, so another run takes it up again.
        """
        done = 0
        async for source in sources:
            with skipping(*source.record):
                parts = [
                    part
                    for extractor in extractors(source)
                    if (part := await self._part(extractor, source)) is not None
                ]
                await self._learn(source, parts, llm, budget)
            if self.report.failed:
                break
            done += source.size
            await done_with(source, done)
        return done

    async def _part(self, extractor: Extractor[S], source: S) -> Part[S] | None:
        """Returns the part to ask for, or None if it was learned before or is skipped; nothing is asked for it then."""
        noted = [await self._noted(name, _id(source, extractor, name)) for name in extractor.names]
        if all(noted):
            return None
        why = ""
        with skipping(*source.record):
            try:
                return extractor, await extractor.request(self.tools, source)
            except (Skipped, Forbidden) as reason:
                why = str(reason)
            for name in extractor.names:
                self.report.skip(name, why)
        return None

    async def _learn(self, source: S, parts: Sequence[Part[S]], llm: LLM, budget: Budget) -> None:
        """Asks for the parts, looks at the answers for a second time, and commits what is left. If the second look
        fails, its parts fail, and nothing that was not looked at is stored."""
        answers: list[PartAnswer[S]] = []
        for apart in (False, True):
            answers += await self._asked(source, [part for part in parts if part[1].apart == apart], llm, budget)
        if self.tools.settings.llm.verify:
            try:
                answers = await looked_at(source, answers, llm, budget)
            except (LLMReplyInvalid, LLMUnavailable, LLMBudgetSpent) as error:
                self._failed([(extractor, answer.request) for extractor, answer in answers], error)
                return
        for extractor, answer in answers:
            for name, plan in extractor.plans(self.tools, source, answer).items():
                await self.derive(name, _id(source, extractor, name), source, plan)

    async def _asked(self, source: S, parts: Sequence[Part[S]], llm: LLM, budget: Budget) -> list[PartAnswer[S]]:
        """Asks for all parts in one call. If that answer cannot be used, each part is asked for by itself, until the
        server is gone or the budget is spent. Returns the answers that can be used."""
        if not parts or self.report.unreachable:
            self._failed(parts, self.report.unreachable)
            return []
        try:
            reply = await ask(source, parts, llm, budget)
        except LLMReplyInvalid as error:
            if len(parts) == 1:
                self._failed(parts, error)
                return []
            return [answer for part in parts for answer in await self._asked(source, [part], llm, budget)]
        except (LLMUnavailable, LLMBudgetSpent) as error:
            self._failed(parts, error)
            return []
        model = llm.model_for(_shape(parts))
        return [(extractor, ModelAnswer(reply, request, model)) for extractor, request in parts]

    def _failed(
        self, parts: Sequence[Part[S]], error: LLMUnavailable | LLMReplyInvalid | LLMBudgetSpent | None
    ) -> None:
        if isinstance(error, LLMUnavailable | LLMBudgetSpent):
            self.report.unreachable = error
        for extractor, _ in parts:
            assert error is not None
            log.warning("a part was not learned", extra={"part": extractor.prompt, "code": error.code})
            for name in extractor.names:
                self.report.fail(name, error.detail)

    async def _noted(self, name: str, derivation_id: str) -> bool:
        """Returns whether the derivation exists. What an earlier try of the same operation committed counts as its
        result."""
        if derivation_id in self.report.noted:
            return True
        note = await self.tools.store.get(DERIVATIONS, self.run.tenant, derivation_id)
        if note is None:
            return False
        self.report.noted.add(derivation_id)
        own = self.run.lease.job.operation_id
        if own is not None and note["operation_id"] == own:
            self.report.add(name, note["result"], by_earlier_try=True)
        elif note["undone"]:
            self.report.skip(name, "it was learned before, and that was undone")
        else:
            self.report.skip(name, "another operation has learned it before")
        return True

    async def derive(self, name: str, derivation_id: str, source: LearningSource, plan: DerivationPlan) -> None:
        """Commits a plan with its derivation, unless that derivation exists."""
        if await self._noted(name, derivation_id):
            return
        with skipping(*source.record):
            try:
                result = await commit_noted(self.run, _guarded(plan, source), derivation_id, source.described())
            except (Skipped, Forbidden) as why:
                self.report.skip(name, str(why))
            else:
                self.report.add(name, result or {})
            return
        self.report.skip(name, "what was learned cannot be handled")


def _place(part: Part[S]) -> int:
    """Returns the place of a part in a request. Parts without a place keep their order behind the others."""
    order = prompts.ASKED_IN_ORDER
    return order.index(part[0].prompt) if part[0].prompt in order else len(order)


def _shape(parts: Sequence[Part[S]]) -> type[ReplyShape]:
    return prompts.together(tuple(part.shape for part, _ in parts))


def _id(source: S, extractor: Extractor[S], name: str) -> str:
    return source.derivation_id(name, prompts.load(extractor.prompt).id)


def _guarded(plan: DerivationPlan, source: LearningSource) -> DerivationPlan:
    """Returns a plan whose changes conflict if the source was changed meanwhile."""

    async def guarded() -> tuple[DerivationResult, list[Change]]:
        result, changes = await plan()
        return result, [*changes, *source.unchanged()]

    return guarded
