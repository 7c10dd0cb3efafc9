"""One protocol of extractors, the loop that runs them, and the rules of what may be stored of a model's answer."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from app.core.clock import rfc3339
from app.core.served_text import strip_served
from app.errors import Forbidden, LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.facts.schemas import FactCreate
from app.jobs.runner import Run
from app.learning import prompts
from app.learning.dependencies import Report, Tools
from app.learning.derivations import DERIVATIONS, DerivationPlan, commit_noted
from app.learning.prompts import LearnedExperience, LearnedFact, LearnedMemory, LearnedProfile, TranscriptLine
from app.llm.base import LLM, Budget
from app.memories.repository import same_pair
from app.memories.schemas import MemoryCreate
from app.profiles.merge import LESSONS, merge_experience
from app.profiles.schemas import AGENTS
from app.storage.changes import Change
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Scope

DroppedCounts = Counter[str]
"""Counts of dropped items by reason."""


def memories(
    learned: Sequence[LearnedMemory],
    known: Mapping[str, Doc],
    lines: Sequence[TranscriptLine],
    said: Mapping[int, Doc],
    owner: Mapping[str, str | None],
    dropped: DroppedCounts,
) -> list[tuple[MemoryCreate, Doc]]:
    """Returns each memory to store for `owner`, with further fields of its source.

    Its trust is at most that of the messages that it cites (`said` maps message numbers to memories). A memory that
    cites no message is dropped. `known` are the memories that the model was shown: superseding another id, a record of
    another partition or a pinned memory is dropped. If one of them has more trust than the new memory, the new one is
    stored as disputed (`memories/create.py`).
    """
    seqs = {line.seq: line for line in lines}
    taken: set[str] = set()
    result: list[tuple[MemoryCreate, Doc]] = []
    for one in learned:
        content = strip_served(one.content).strip()
        if not content:
            dropped["empty"] += 1
            continue
        cited = sorted({*one.message_seqs} & seqs.keys())
        if invented := {*one.message_seqs} - {*cited}:
            dropped["invented_messages"] += len(invented)
        if not cited:
            dropped["unfounded"] += 1
            continue
        trust = _trust(cited, seqs, said)
        retired = _retired(one, known, {**owner, "trust": trust}, taken, dropped)
        taken |= {*retired}
        body = MemoryCreate(
            agent_id=owner["agent_id"],
            user_id=owner["user_id"],
            content=content,
            context=one.context,
            memory_type=one.memory_type,
            importance=round(one.importance, 3),
            trust=trust,
            event_at=seqs[cited[-1]].at,
            supersedes=retired,
        )
        result.append((body, {"memory_ids": [said[seq]["memory_id"] for seq in cited if seq in said]}))
    return result


def _trust(cited: Sequence[int], lines: Mapping[int, TranscriptLine], said: Mapping[int, Doc]) -> float:
    """Returns the lowest trust of the cited messages: of the memory made of a message, or else by its role."""
    return min(float(said[seq]["trust"]) if seq in said else lines[seq].trust for seq in cited)


def _retired(
    one: LearnedMemory, known: Mapping[str, Doc], new: Mapping[str, Any], taken: set[str], dropped: DroppedCounts
) -> list[str]:
    retired: list[str] = []
    for memory_id in dict.fromkeys(one.superseded_ids):
        doc = known.get(memory_id)
        if doc is None:
            dropped["invented_ids"] += 1
        elif not same_pair(doc, new):
            dropped["of_another_scope"] += 1
        elif memory_id in taken:
            dropped["retired_twice"] += 1
        elif doc["pinned"] and doc["trust"] <= new["trust"]:
            dropped["protected"] += 1
        else:
            retired.append(memory_id)
    return retired


def facts(
    learned: Sequence[LearnedFact],
    lines: Sequence[TranscriptLine],
    said: Mapping[int, Doc],
    owner: Mapping[str, str | None],
    dropped: DroppedCounts,
) -> list[tuple[FactCreate, list[str]]]:
    """Returns each fact to assert, with the memories of the messages that state it. Facts that cite no message are
    dropped. A fact without a time is valid from its first message on."""
    seqs = {line.seq: line for line in lines}
    result: list[tuple[FactCreate, list[str]]] = []
    for one in learned:
        cited = sorted({*one.message_seqs} & seqs.keys())
        if not cited:
            dropped["unfounded"] += 1
            continue
        try:
            body = FactCreate(
                agent_id=owner["agent_id"],
                user_id=owner["user_id"],
                subject=one.subject,
                predicate=one.predicate,
                object=one.object,
                cardinality=one.cardinality,
                trust=_trust(cited, seqs, said),
                valid_from=one.valid_from or seqs[cited[0]].at,
            )
        except ValidationError:
            dropped["invalid"] += 1
            continue
        result.append((body, [said[seq]["memory_id"] for seq in cited if seq in said]))
    return result


def profile_patch(learned: LearnedProfile, profile: Doc) -> Doc:
    """Returns the fields to add and replace. A model never clears a field: null means that there is nothing new."""
    scalars = {name: getattr(learned, name) for name in ("name", "age", "home", "occupation")}
    patch: dict[str, Any] = {name: value for name, value in scalars.items() if value not in (None, profile[name])}
    for name in ("interests", "conversation_preferences"):
        if found := getattr(learned, name):
            patch[name] = found
    if learned.preferences:
        patch["preferences"] = {each.name: each.value for each in learned.preferences}
    return patch


def lessons(learned: LearnedExperience) -> Doc:
    """Returns the lessons by list, without empty lists."""
    return {name: texts for name, texts in learned.model_dump().items() if texts}


log = logging.getLogger(__name__)


class Skipped(Exception):
    """The extractor has nothing to do. The message gives the reason."""


class LearningSource(Protocol):
    """Records of one agent and user, which extractors read."""

    @property
    def size(self) -> int:
        """The number of records."""
        ...

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """Returns the id of the derivation of this extractor from this source."""
        ...

    def described(self) -> Doc:
        """Returns owner and source, as fields of the derivation."""
        ...

    def unchanged(self) -> list[Change]:
        """Returns changes that conflict if the source is no longer what the model was shown."""
        ...


S = TypeVar("S", bound=LearningSource)
S_contra = TypeVar("S_contra", bound=LearningSource, contravariant=True)


class Extractor(Protocol[S_contra]):
    """Asks the model once about a source and plans changes by rules.

    The plan reads anew whenever it runs, so it can run again after a conflict without asking the model again.
    """

    @property
    def name(self) -> str: ...

    @property
    def prompt(self) -> str:
        """The name of the prompt's file."""
        ...

    async def learn(self, tools: Tools, source: S_contra, llm: LLM, budget: Budget) -> DerivationPlan:
        """Asks the model and returns the plan. Raises `Skipped`, or what the model's client raises."""
        ...


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
            for extractor in extractors(source):
                await self._learn(extractor, source, llm, budget)
            if self.report.failed:
                break
            done += source.size
            await done_with(source, done)
        return done

    async def _learn(self, extractor: Extractor[S], source: S, llm: LLM, budget: Budget) -> None:
        async def planned() -> DerivationPlan:
            return await extractor.learn(self.tools, source, llm, budget)

        derivation_id = source.derivation_id(extractor.name, prompts.load(extractor.prompt).id)
        await self.derive(extractor.name, derivation_id, source, planned)

    def _report_noted(self, name: str, noted: Doc) -> None:
        own = self.run.lease.job.operation_id
        if own is not None and noted["operation_id"] == own:
            self.report.add(name, noted["result"], by_earlier_try=True)
        elif noted["undone"]:
            self.report.skip(name, "it was learned before, and that was undone")
        else:
            self.report.skip(name, "another operation has learned it before")

    async def derive(
        self, name: str, derivation_id: str, source: LearningSource, planned: Callable[[], Awaitable[DerivationPlan]]
    ) -> None:
        """Commits the plan that `planned` returns with its derivation, unless that derivation exists. Errors of the
        model go into the report. What an earlier try of the same operation has committed counts as its result."""
        noted = await self.tools.store.get(DERIVATIONS, self.run.tenant, derivation_id)
        if noted is not None:
            self._report_noted(name, noted)
            return
        try:
            plan = _guarded(await planned(), source)
            result = await commit_noted(self.run, plan, derivation_id, source.described())
        except Skipped as why:
            self.report.skip(name, str(why))
        except Forbidden as error:
            self.report.skip(name, error.detail)
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as error:
            log.warning("a part was not learned", extra={"part": name, "code": error.code})
            self.report.fail(name, error.detail)
        else:
            self.report.add(name, result or {})


def _guarded(plan: DerivationPlan, source: LearningSource) -> DerivationPlan:
    """Returns a plan whose changes conflict if the source was changed meanwhile."""

    async def guarded() -> tuple[Doc, list[Change]]:
        result, changes = await plan()
        return result, [*changes, *source.unchanged()]

    return guarded


# --- Experience -------------------------------------------------------------------------------------------------------


async def registered_agent(tools: Tools, scope: Scope, agent_id: str | None) -> Doc:
    """Returns an agent that lessons can be learned for. Raises Skipped if it is not registered, and Forbidden if the
    scope may not write for all of its users."""
    agent = None if agent_id is None else await Repository(tools.store, scope, AGENTS).find_one(agent_id)
    if agent is None:
        raise Skipped("the agent is not registered")
    scope.require_write(agent["agent_id"], None)
    return agent


def known_lessons(agent: Doc) -> dict[str, list[str]]:
    """Returns the texts of the lessons by list."""
    return {name: [lesson["text"] for lesson in agent["experience"][name]] for name in LESSONS}


async def learned_experience(
    tools: Tools, scope: Scope, agent_id: str, learned: LearnedExperience, source: Doc, names: Sequence[str]
) -> tuple[Doc, list[Change]]:
    """Returns a result for the report and the changes that add lessons to an agent's experience. Lessons that contain
    one of `names` are not learned."""
    agents = Repository(tools.store, scope, AGENTS)
    old = await agents.find_one(agent_id)
    experience = None if old is None else merge_experience(old["experience"], lessons(learned), source, names)
    if old is None or experience is None or experience == old["experience"]:
        return {"learned": 0}, []
    grown = sum(len(experience[name]) - len(old["experience"][name]) for name in LESSONS)
    return {"learned": grown}, [agents.update(old, {"experience": experience}, now=rfc3339(tools.clock.now()))]
