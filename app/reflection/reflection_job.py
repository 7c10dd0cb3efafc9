"""The reflection job: finds what cannot both hold and what is past, for each agent and user.

`FINDERS` find what has structure. Where there is a language model, it judges pairs of texts and says what several
memories show together. The job stores findings. With the policy `auto` it applies insights, each in a commit of its own
that can be undone. A finding is stored once, so another run changes nothing.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from app.core.clock import parse_rfc3339, rfc3339
from app.errors import Conflict as Refused
from app.errors import Forbidden
from app.facts.schemas import FACTS
from app.findings.schemas import FINDINGS, FindingRecord
from app.findings.service import FindingRepository
from app.jobs import queue
from app.jobs.runner import Done, Run, has_looked, news
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationRecord, DerivationResult, commit_noted, id_of, undo_of
from app.llm.base import LLM
from app.memories.repository import of_partition
from app.memories.schemas import MEMORIES
from app.reflection import finders
from app.reflection.insights import InsightFinder
from app.reflection.judge import JUDGED_PAIRS, WAITING, Judge, unjudged
from app.reflection.service import Applier
from app.storage.changes import Change, CommitConflict
from app.storage.repository import anything, having, pages
from app.storage.schema import Collection, Eq, Filter, both
from app.storage.scope import SYSTEM, Partition, PartitionOwner, Scope

PAGE = 500
SHOWN = 100
"""The number of findings whose ids a result lists."""
MAX_PAUSE_SECONDS = 1.0
"""The limit of the rest after the records of one agent and user were compared."""


@dataclass(slots=True)
class _Report:
    """What a run has found so far."""

    most: int
    dry_run: bool
    ids: list[str] = field(default_factory=list)
    applied: int = 0

    @property
    def room(self) -> int:
        """How many findings the run may still make."""
        return max(0, self.most - len(self.ids))

    def add(self, findings: Sequence[FindingRecord]) -> None:
        self.ids += [finding["finding_id"] for finding in findings]


class ReflectionJobs:
    """Runs reflection jobs. `llm`: judges pairs, and says what several memories show together."""

    def __init__(self, tools: Tools, llm: LLM | None = None) -> None:
        self._tools, self._policy = tools, tools.settings.reflection.policy
        self._llm = llm if self._tools.tuning.pairs_per_run else None
        self._insights = InsightFinder(tools, llm)

    async def handle(self, run: Run) -> Done:
        """Runs a job for a tenant or for one agent or user; a scheduled run starts operations for those that need
        one."""
        if run.tenant == SYSTEM:
            return await self._dispatch(run)
        scope, payload = Scope.of_bindings(run.tenant, run.payload), run.payload
        partition = payload.get("partition")
        wanted = having(payload, "agent_id", "user_id")
        if partition:
            wanted = of_partition(partition["agent_id"], partition["user_id"])
        dry_run = bool(payload.get("dry_run"))
        report = _Report(self._tools.tuning.findings_per_run, dry_run)
        owners = await self._owners(run.tenant, both(wanted, scope.writable()))
        insights = await self._insights.run(run, scope, _partitions(owners), payload.get("focus"), dry_run=dry_run)
        judge = None
        if self._llm is not None:
            budget = self._llm.budget(self._tools.allowance(run.tenant))
            judge = Judge(self._llm, budget, self._tools.tuning.pairs_per_run)
        for number, owner in enumerate(owners, start=1):
            await self._look_at(run, scope, owner, judge, report)
            await run.progress(number, len(owners))
        for finding in insights.findings:
            report.add([finding])
            report.applied += await self._apply(run, scope, finding)
        settled = 0 if dry_run else await self._settle(run, scope, wanted)
        if insights.failed and not run.lease.last_attempt:
            raise insights.failed
        undo = None if dry_run else await undo_of(run, self._tools)
        judged = {} if judge is None else {"judge": judge.judgement.result(), "llm": judge.spent}
        counts = {"found": len(report.ids), "applied": report.applied, "settled": settled}
        result = {"dry_run": dry_run, **counts, **judged, "items": report.ids[:SHOWN], "insights": insights.shown()}
        return Done(result, undo, "partial" if insights.failed else "succeeded")

    async def _look_at(
        self, run: Run, scope: Scope, owner: PartitionOwner, judge: Judge | None, report: _Report
    ) -> None:
        """Looks for findings in one partition, and stores them."""
        focus = run.payload.get("focus")
        look = await finders.look_at(self._tools, scope, owner)
        new, pairs = await self.new_findings(look, focus)
        single = [finding for finding in new if len(finding["evidence"]) == 1]
        await self._keep(run, look, [finding for finding in new if len(finding["evidence"]) != 1], report)
        if judge is not None and pairs:
            if report.dry_run:
                judge.judgement.counts["to_judge"] += len(await unjudged(look, pairs))
            else:
                report.add(await judge.ask(run, look, pairs, report.room))
        await self._keep(run, look, await finders.alone(look, single), report)

    # --- Finding ------------------------------------------------------------------------------------------------------

    async def new_findings(
        self, look: finders.PartitionView, focus: str | None = None
    ) -> tuple[list[FindingRecord], list[finders.CandidatePair]]:
        """Returns the findings of a partition that are not stored yet, the surest first, and the pairs that only a
        language model can judge, the nearest first. Only reads. A text that cannot be read is skipped."""
        try:
            return await self._compared(look, focus)
        except Exception as error:
            if not queue.of_content(error):
                raise
        return await self._compared(await finders.without_unread(look), focus)

    async def _compared(
        self, look: finders.PartitionView, focus: str | None
    ) -> tuple[list[FindingRecord], list[finders.CandidatePair]]:
        started = time.perf_counter()
        findings = [finding for finder in finders.FINDERS for finding in await finder(look)]
        pairs = [] if self._llm is None else await finders.near_pairs(look, findings)
        # a first run over a large store goes on for minutes: it leaves half of the time to requests
        await asyncio.sleep(min(time.perf_counter() - started, MAX_PAUSE_SECONDS))
        touching = [finding for finding in findings if finders.touches(finding, look, focus)]
        of_focus = [
            pair for pair in pairs if finders.speaks_of(pair.earlier, focus) or finders.speaks_of(pair.later, focus)
        ]
        return await finders.unknown(look, touching), of_focus

    # --- Storing and applying -----------------------------------------------------------------------------------------

    async def _keep(
        self, run: Run, look: finders.PartitionView, findings: Sequence[FindingRecord], report: _Report
    ) -> None:
        """Stores findings as far as there is room. They wait for somebody."""
        repository = FindingRepository(self._tools.store, look.scope)
        for finding in findings[: report.room]:
            report.add([finding])
            if not report.dry_run:
                with suppress(CommitConflict):  # another worker has found it
                    await run.commit([repository.insert(finding)])

    async def _apply(self, run: Run, scope: Scope, finding: FindingRecord) -> bool:
        """Applies an insight if the policy says so. Returns whether it was applied."""
        if self._policy != "auto":
            return False
        findings, applier = FindingRepository(self._tools.store, scope), Applier(self._tools, scope)
        finding_id = finding["finding_id"]

        async def plan() -> tuple[DerivationResult, list[Change]]:
            stored = await findings.get(finding_id)
            if stored["status"] != "open" or stored["operation_id"] is not None:
                raise Refused()
            now = rfc3339(self._tools.clock.now())
            settled = findings.settle(stored, "accepted", "policy", now, run.lease.job.operation_id)
            return {"finding": finding_id}, [*await applier.changes(stored), settled]

        owner: DerivationRecord = {"agent_id": finding["agent_id"], "user_id": finding["user_id"]}
        try:
            return await commit_noted(run, plan, id_of([finding_id], "policy"), owner) is not None
        except (Refused, Forbidden):
            return False  # it waits for somebody who may

    async def _settle(self, run: Run, scope: Scope, wanted: Filter) -> int:
        """Settles open findings whose evidence was changed, deleted or settled elsewhere."""
        findings, now = FindingRepository(self._tools.store, scope), rfc3339(self._tools.clock.now())
        open_findings, settled = await findings.open_of(both(wanted, scope.writable())), 0
        for finding, shown in zip(open_findings, await findings.render(open_findings, now), strict=True):
            if shown["status"] == "settled":
                with suppress(CommitConflict):
                    await run.commit([findings.settle(finding, "settled", "reflection", now)])
                    settled += 1
        return settled

    # --- Scheduled runs -----------------------------------------------------------------------------------------------

    async def has_work(self) -> bool:
        """Returns True if a scheduled run may find something: records are new, or findings are open. Only reads."""
        if self._policy == "off":
            return False
        schedule = await self._tools.store.get(queue.SCHEDULES, SYSTEM, queue.REFLECTION)
        created, aged = news(schedule), self._aged_since(schedule)
        wanted: list[tuple[Collection, Filter]] = [(MEMORIES, created), (FACTS, created), (MEMORIES, aged)]
        if self._llm is not None:
            wanted.append((JUDGED_PAIRS, Eq("verdict", WAITING)))
        return await anything(self._tools.store, wanted)

    def _aged_since(self, schedule: queue.ScheduleRecord | None) -> Filter:
        """Filters memories that may have become unconfirmed since the previous run."""
        since = None if schedule is None else schedule.get("looked_at")
        earlier = None if since is None else parse_rfc3339(since)
        return finders.crossed(earlier, self._tools.clock.now(), finders.UNCONFIRMED_DAYS)

    async def _dispatch(self, run: Run) -> Done:
        """Starts an operation for each partition with something new to find or to settle."""
        begun = self._tools.clock.now()
        schedule = await run.store.get(queue.SCHEDULES, SYSTEM, queue.REFLECTION)
        started = 0
        owners = dict.fromkeys(await self._owners(None, news(schedule), self._aged_since(schedule)))
        if self._llm is not None:
            # the partitions with pairs for which an earlier run had no call left
            find = partial(self._tools.store.find, JUDGED_PAIRS, None, Eq("verdict", WAITING))
            async for page in pages(find, JUDGED_PAIRS, PAGE):
                owners |= {PartitionOwner(pair["tenant_id"], pair["agent_id"], pair["user_id"]): None for pair in page}
        for owner in owners:
            scope = Scope(owner.tenant)
            look = await finders.look_at(self._tools, scope, owner)
            new, pairs = await self.new_findings(look)
            waits = bool(new) or bool(await unjudged(look, pairs))
            if waits or await self._insights.wanted(scope, *_partitions([owner])):
                of = {"agent_id": owner.agent, "user_id": owner.user}
                _, changes = queue.start(
                    scope, queue.REFLECTION, {"dry_run": False, "partition": of}, self._tools.clock.now(), **of
                )
                await run.commit(changes)
                started += 1
        with suppress(CommitConflict):
            await run.commit([has_looked(queue.REFLECTION, begun)])
        return Done({"operations": started})

    async def _owners(self, tenant: str | None, where: Filter, memories: Filter | None = None) -> list[PartitionOwner]:
        """Returns the partitions with memories, facts or open findings that match, or with `memories` that do."""
        searched: list[tuple[Collection, Filter]] = [
            (MEMORIES, where),
            (FACTS, where),
            (FINDINGS, both(where, Eq("status", "open"))),
            *([] if memories is None else [(MEMORIES, memories)]),
        ]
        store, owners = self._tools.store, dict[PartitionOwner, None]()
        for of in await store.accounting.stored() if tenant is None else [tenant]:
            for collection, wanted in searched:  # counted by the engine: a first run has a million memories to look at
                counts = await store.tally(collection, of, ("agent_id", "user_id"), wanted)
                owners |= {PartitionOwner(of, agent, user): None for agent, user in counts}
        return list(owners)


def _partitions(owners: Sequence[PartitionOwner]) -> list[Partition]:
    return [Partition(owner.agent, owner.user) for owner in owners]
