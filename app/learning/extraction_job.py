"""Extraction that takes longer than its request may: the answer is an operation, and a job ends it."""

import asyncio
from collections.abc import Awaitable, Callable

from app.audit.tombstones import ErasureKey, Tombstones
from app.jobs.runner import Done, Run
from app.learning.dependencies import Tools
from app.learning.derivations import commit_planned
from app.learning.service import ExtractRequest, Learning
from app.llm.base import LLM
from app.storage.changes import Change
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.writes.executor import WriteHandler, WriteResult

ExtractionTask = asyncio.Task[WriteHandler]
"""The model reads the messages. The result stores what it found."""

_HANDED_OVER: dict[str, ExtractionTask] = {}
"""Readings of this process that outlasted their requests, by operation. Their jobs wait for them, so that the model is
not asked twice. A job that runs in another process asks again."""


class TimedExtraction:
    """One request to extract memories, which is answered within `seconds`."""

    def __init__(self, learning: Learning, body: ExtractRequest, seconds: float) -> None:
        self._learning, self._body, self._seconds = learning, body, seconds
        self._reading: ExtractionTask | None = None
        self._operation_id = ""
        self.job_id: str | None = None
        """The job that ends the extraction; None if it ended within the request."""

    async def plan(self) -> WriteResult:
        """Returns what was found, or 202 with an operation. After a conflict it runs again without asking again. Raises
        what the model's client raises."""
        if self._reading is None:
            self._learning.check(self._body)
            self._reading = self._learning.start(self._body)
        done, _ = await asyncio.wait([self._reading], timeout=self._seconds)
        if done:
            return await self._reading.result()()
        outcome = self._learning.hand_over(self._body)
        self.job_id, self._operation_id = outcome.job_id, outcome.operation_id
        _HANDED_OVER[outcome.operation_id] = self._reading
        return outcome.result

    def stop(self) -> None:
        """Stops the reading of a request that failed."""
        if self._reading is not None:
            self._reading.cancel()
            _HANDED_OVER.pop(self._operation_id, None)


class ExtractionJobs:
    """Ends extractions that outlasted their requests."""

    def __init__(self, tools: Tools, llm: LLM | None) -> None:
        self._tools, self._llm = tools, llm

    async def handle(self, run: Run) -> Done:
        """Stores what the model finds. The result is that of the request. Raises what the model's client raises."""
        reading = _HANDED_OVER.pop(str(run.lease.job.operation_id), None)
        store = await self._found(run, reading)
        result = await commit_planned(run, _as_plan(store))
        return Done(result)

    async def _found(self, run: Run, reading: ExtractionTask | None) -> WriteHandler:
        if reading is None:
            scope = Scope.of_bindings(run.tenant, run.payload)
            tombstones = Tombstones(run.store, run.tenant, ErasureKey.of(self._tools.settings))
            learning = Learning(self._tools, self._llm, scope, tombstones)
            reading = learning.start(ExtractRequest.model_validate(run.payload["body"]), run.payload["begun"])
        return await reading  # a job that is cancelled cancels the reading


def _as_plan(store: WriteHandler) -> Callable[[], Awaitable[tuple[Doc, list[Change]]]]:
    async def plan() -> tuple[Doc, list[Change]]:
        found = await store()
        return found.body, list(found.changes)

    return plan
