"""Runs extractors: each asks the model about a source, and its plan is committed together with a derivation.

A source is a part of a conversation or a batch of episodes. The derivation keeps an extractor from learning from the
same source twice: its id is a hash of the source, the extractor and the version of its prompt.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from app.errors import Forbidden, LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.jobs.runner import Run
from app.learning import prompts
from app.learning.dependencies import Report, Tools
from app.learning.derivations import DERIVATIONS, DerivationPlan, commit_noted
from app.llm.base import LLM, Budget
from app.storage.schema import Doc

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

    async def derive(
        self, name: str, derivation_id: str, source: LearningSource, planned: Callable[[], Awaitable[DerivationPlan]]
    ) -> None:
        """Commits the plan that `planned` returns with its derivation, unless that derivation exists. Errors of the
        model go into the report."""
        if await self.tools.store.get(DERIVATIONS, self.run.tenant, derivation_id) is not None:
            self.report.skip(name, "learned before")
            return
        try:
            result = await commit_noted(self.run, await planned(), derivation_id, source.described())
        except Skipped as why:
            self.report.skip(name, str(why))
        except Forbidden as error:
            self.report.skip(name, error.detail)
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as error:
            log.warning("a part was not learned", extra={"part": name, "code": error.code})
            self.report.fail(name, error.detail)
        else:
            self.report.add(name, result or {})
