"""The reflection job: finds what cannot both hold and what is past, for each agent and user.

It stores findings. With the policy `auto` it applies those that time and trust decide, each in a commit of its own that
can be undone. A finding is stored once, so another run changes nothing.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from app.core.clock import parse_rfc3339, rfc3339
from app.core.process import in_turn
from app.errors import Conflict as Refused
from app.errors import Forbidden
from app.facts.schemas import FACTS
from app.findings.evidence import EvidenceRecord, of_fact, of_memory, of_profile
from app.findings.repository import FindingRepository, new_finding
from app.findings.schemas import FINDINGS
from app.jobs import queue
from app.jobs.models import REFLECTION, SCHEDULES
from app.jobs.runner import Done, Run
from app.learning.dependencies import Tools
from app.learning.derivations import commit_noted, id_of, undo_of
from app.learning.words import fold
from app.llm.base import LLM
from app.memories.models import MEMORIES, SMALL_TALK
from app.memories.repository import of_pair, true_at
from app.profiles.reader import ProfileReader
from app.reflection.applying import Applier
from app.reflection.comparing import Contradiction, conflicts
from app.reflection.insights import KIND as INSIGHT
from app.reflection.insights import InsightFinder
from app.reflection.plans import PastPlan, plans
from app.reflection.sentences import sentences
from app.reflection.unconfirmed import crossed, unconfirmed
from app.storage.changes import Change, CommitConflict, Update
from app.storage.filters import Absent, Eq, Filter, Not, Or, Range, both
from app.storage.repository import Repository, anything, pages, unexpired
from app.storage.schema import Doc
from app.storage.scope import SYSTEM, Partition, Scope

MOST_MEMORIES = 2_000
"""The limit of memories, and of facts, that a run compares in one partition, the latest ones."""
PAGE = 500
SURE = 0.8
"""The least confidence of a finding that is applied by itself."""
SHOWN = 100
"""The number of findings whose ids a result lists."""
OVERLAP = timedelta(minutes=10)
SINGLE_VALUES = ("home", "occupation")


class Owner(NamedTuple):
    """The owners of a partition, with their tenant."""

    tenant: str
    agent: str | None
    user: str | None


MAX_PAUSE_SECONDS = 1.0
"""The limit of the rest after the records of one agent and user were compared."""


class ReflectionJobs:
    """Runs reflection jobs. `llm`: says what several memories show together."""

    def __init__(self, tools: Tools, llm: LLM | None = None) -> None:
        self._tools, self._settings = tools, tools.settings.reflection
        self._insights = InsightFinder(tools, llm)

    async def handle(self, run: Run) -> Done:
        """Runs a job for a tenant or for one agent or user; a scheduled run starts operations for those that need
        one."""
        if run.tenant == SYSTEM:
            return await self._dispatch(run)
        scope, payload = Scope.of_bindings(run.tenant, run.payload), run.payload
        wanted = _named(payload)
        dry_run = bool(payload.get("dry_run"))
        counts = {"found": 0, "applied": 0, "settled": 0}
        ids = list[str]()
        owners = await self._owners(run.tenant, both(wanted, scope.writable()))
        insights = await self._insights.run(run, scope, _partitions(owners), payload.get("focus"), dry_run=dry_run)
        for number, owner in enumerate(owners, start=1):
            new = await self.found(scope, owner, payload.get("focus"))
            room = self._settings.findings_per_run - counts["found"]
            for finding, conflict in new[:room]:
                counts["found"] += 1
                ids.append(finding["finding_id"])
                if not dry_run:
                    await self._store(run, scope, finding)
                    counts["applied"] += await self._apply(run, scope, finding, conflict)
            await run.progress(number, len(owners))
        for finding in insights.found:
            counts["found"] += 1
            ids.append(finding["finding_id"])
            counts["applied"] += await self._apply(run, scope, finding, None)
        if not dry_run:
            counts["settled"] = await self._settle(run, scope, wanted)
        if insights.failed and not run.lease.last_attempt:
            raise insights.failed
        undo = None if dry_run else await undo_of(run, self._tools.settings.retention.archive_days)
        result = {"dry_run": dry_run, **counts, "items": ids[:SHOWN], "insights": insights.shown()}
        return Done(result, undo, "partial" if insights.failed else "succeeded")

    # --- Finding ------------------------------------------------------------------------------------------------------

    async def found(
        self, scope: Scope, owner: Owner, focus: str | None = None
    ) -> list[tuple[Doc, Contradiction | None]]:
        """Returns the findings of a partition that are not stored yet, the surest first. Only reads."""
        now = self._tools.clock.now()
        records, names = await self._records(scope, owner)
        started = time.perf_counter()
        compared = await in_turn(lambda: [*conflicts(records, names), *plans(records, now)])
        # a first run over a large store goes on for minutes: it leaves half of the time to requests
        await asyncio.sleep(min(time.perf_counter() - started, MAX_PAUSE_SECONDS))
        docs = [
            (_finding(owner, one, rfc3339(now)), one if isinstance(one, Contradiction) else None)
            for one in compared
            if _of_owner(one, owner) and _touches(one, focus)
        ]
        days = self._settings.unconfirmed_days
        aged = await in_turn(lambda: list(unconfirmed(records, now, days)))
        docs += [(_aged(owner, one, days, rfc3339(now)), None) for one in aged if _is_about(one, owner, focus)]
        by_id = {doc["finding_id"]: (doc, one) for doc, one in docs}
        known = await FindingRepository(self._tools.store, scope).get_many(list(by_id))
        new = [pair for finding_id, pair in by_id.items() if finding_id not in known]
        return sorted(new, key=lambda pair: -pair[0]["confidence"])

    async def _records(self, scope: Scope, owner: Owner) -> tuple[list[EvidenceRecord], frozenset[str]]:
        """Returns the records that one prompt for this agent and user may show, and the names of the user."""
        store, now = self._tools.store, rfc3339(self._tools.clock.now())
        of = of_pair(owner.agent, owner.user)
        if owner.agent is not None and owner.user is not None:
            of = Or((of, of_pair(None, owner.user)))
        plain = [Not(Eq("memory_type", kind)) for kind in ("instruction", "summary", "issue", "solution", "learned")]
        memories = await Repository(store, scope, MEMORIES).find(
            both(of, Eq("status", "active"), *plain, unexpired(now)), limit=MOST_MEMORIES
        )
        facts = await Repository(store, scope, FACTS).find(
            both(of, Eq("standing", "held"), Absent("known_until"), *true_at(now)), limit=MOST_MEMORIES
        )
        records = [of_memory(doc) for doc in memories if _said_by_user(doc) and _valid(doc, now)]
        records += [of_fact(doc) for doc in facts]
        user = None if owner.user is None else await ProfileReader(store, scope, self._tools.clock).find(owner.user)
        if user is not None:  # what facts state is among the facts
            fields = [name for name in SINGLE_VALUES if user.profile.get(name) and name not in user.facts]
            records += [of_profile(user.record, name) for name in fields]
        named = None if user is None else user.profile.get("name")
        names = {fold(str(name)) for name in (owner.user, named) if name}
        return records, frozenset(names | {name.split()[0] for name in names if name.split()})

    # --- Storing and applying -----------------------------------------------------------------------------------------

    async def _store(self, run: Run, scope: Scope, finding: Doc) -> None:
        with suppress(CommitConflict):  # another worker has found it
            await run.commit([FindingRepository(self._tools.store, scope).insert(finding)])

    async def _apply(self, run: Run, scope: Scope, finding: Doc, conflict: Contradiction | None) -> bool:
        """Applies a finding if the policy says so and time and trust decide. Returns whether it was applied."""
        decided = finding["kind"] == INSIGHT if conflict is None else _decided(conflict)
        if self._settings.policy != "auto" or not decided:
            return False
        findings, applier = FindingRepository(self._tools.store, scope), Applier(self._tools, scope)
        finding_id = finding["finding_id"]

        async def plan() -> tuple[Doc, list[Change]]:
            stored = await findings.get(finding_id)
            if stored["status"] != "open" or stored["operation_id"] is not None:
                raise Refused()
            now = rfc3339(self._tools.clock.now())
            settled = findings.settle(stored, "accepted", "policy", now, run.lease.job.operation_id)
            return {"finding": finding_id}, [*await applier.changes(stored), settled]

        owner = {"agent_id": finding["agent_id"], "user_id": finding["user_id"]}
        try:
            return await commit_noted(run, plan, id_of([finding_id], "policy"), owner) is not None
        except (Refused, Forbidden):
            return False  # it waits for somebody who may

    async def _settle(self, run: Run, scope: Scope, wanted: Filter) -> int:
        """Settles open findings whose evidence was changed, deleted or settled elsewhere."""
        findings, now = FindingRepository(self._tools.store, scope), rfc3339(self._tools.clock.now())
        docs, settled = await findings.open_of(both(wanted, scope.writable())), 0
        for doc, shown in zip(docs, await findings.render(docs, now), strict=True):
            if shown["status"] == "settled":
                with suppress(CommitConflict):
                    await run.commit([findings.settle(doc, "settled", "reflection", now)])
                    settled += 1
        return settled

    # --- Scheduled runs -----------------------------------------------------------------------------------------------

    async def has_work(self) -> bool:
        """Returns True if a scheduled run may find something: records are new, or findings are open. Only reads."""
        if self._settings.policy == "off":
            return False
        schedule = await self._tools.store.get(SCHEDULES, SYSTEM, REFLECTION)
        news, aged = _news(schedule), self._aged_since(schedule)
        return await anything(self._tools.store, [(MEMORIES, news), (FACTS, news), (MEMORIES, aged)])

    def _aged_since(self, schedule: Doc | None) -> Filter:
        """Filters memories that may have become unconfirmed since the previous run."""
        since = (schedule or {}).get("looked_at")
        earlier = None if since is None else parse_rfc3339(since)
        return crossed(earlier, self._tools.clock.now(), self._settings.unconfirmed_days)

    async def _dispatch(self, run: Run) -> Done:
        """Starts an operation for each partition with something new to find or to settle."""
        looked_at = self._tools.clock.now()
        schedule = await run.store.get(SCHEDULES, SYSTEM, REFLECTION)
        started = 0
        for owner in await self._owners(None, _news(schedule), self._aged_since(schedule)):
            scope = Scope(owner.tenant)
            if await self.found(scope, owner) or await self._insights.wanted(scope, *_partitions([owner])):
                of = {"agent_id": owner.agent, "user_id": owner.user}
                _, changes = queue.start(
                    scope, REFLECTION, {"dry_run": False, "pair": of}, self._tools.clock.now(), **of
                )
                await run.commit(changes)
                started += 1
        seen = {"looked_at": rfc3339(looked_at - OVERLAP)}
        with suppress(CommitConflict):  # a schedule that was deleted starts anew
            await run.commit([Update(SCHEDULES, SYSTEM, REFLECTION, set=seen)])
        return Done({"operations": started})

    async def _owners(self, tenant: str | None, where: Filter, memories: Filter | None = None) -> list[Owner]:
        """Returns the partitions with memories, facts or open findings that match, or with `memories` that do."""
        found: dict[Owner, None] = {}
        searched = [(MEMORIES, where), (FACTS, where), (FINDINGS, both(where, Eq("status", "open")))]
        for collection, wanted in [*searched, *([] if memories is None else [(MEMORIES, memories)])]:
            async for docs in pages(partial(self._tools.store.find, collection, tenant, wanted), collection, PAGE):
                found |= {Owner(doc["tenant_id"], doc["agent_id"], doc["user_id"]): None for doc in docs}
        return list(found)


def _finding(owner: Owner, one: Contradiction | PastPlan, now: str) -> Doc:
    if isinstance(one, PastPlan):
        named = {"kind": "memory", "id": one.record.id}
        proposal: Doc = {"action": "end", "keep": None, "retire": [named], "details": {"valid_until": one.until}}
        reason = "Its time is past, and nothing was heard of it."
        return new_finding(owner.agent, owner.user, "stale", reason, [one.record], proposal, 0.6, now)
    keep, retire = ({"kind": each.kind, "id": each.id} for each in (one.keep, one.retire))
    details = {"aspect": one.aspect}
    proposal = {"action": "supersede", "keep": keep, "retire": [retire], "details": details}
    kind = "stale" if one.changed and one.keep is one.later else "contradiction"
    evidence = [one.earlier, one.later]
    return new_finding(owner.agent, owner.user, kind, one.reason, evidence, proposal, one.confidence, now)


def _aged(owner: Owner, one: EvidenceRecord, days: float, now: str) -> Doc:
    named = {"kind": one.kind, "id": one.id}
    proposal: Doc = {"action": "end", "keep": None, "retire": [named], "details": {"valid_until": now}}
    reason = f"It was learned with little trust, and nothing has confirmed it for {days:g} days."
    return new_finding(owner.agent, owner.user, "stale", reason, [one], proposal, 0.5, now)


def _decided(conflict: Contradiction) -> bool:
    """Returns whether a conflict is settled without a person: both are plain memories of the same owner, which say
    nothing else, and the earlier one is not pinned."""
    both_memories = conflict.keep.kind == conflict.retire.kind == "memory"
    if not both_memories or not conflict.decided or conflict.confidence < SURE:
        return False
    keep, retire = conflict.keep.doc, conflict.retire.doc
    same_owner = (keep["agent_id"], keep["user_id"]) == (retire["agent_id"], retire["user_id"])
    plain = retire["memory_type"] != "message" and not retire["pinned"] and not retire.get("kept_apart", False)
    return same_owner and plain and sum(1 for _ in sentences(retire["content"])) == 1


def _of_owner(one: Contradiction | PastPlan, owner: Owner) -> bool:
    """Returns whether a finding belongs to this partition: one of its records does, or its profile is involved."""
    records = [one.record] if isinstance(one, PastPlan) else [one.earlier, one.later]
    return any((record.agent_id, record.user_id) == (owner.agent, owner.user) for record in records)


def _touches(one: Contradiction | PastPlan, focus: str | None) -> bool:
    """Returns whether a finding has a word of the focus."""
    return _speak_of([one.record] if isinstance(one, PastPlan) else [one.earlier, one.later], focus)


def _is_about(one: EvidenceRecord, owner: Owner, focus: str | None) -> bool:
    return (one.agent_id, one.user_id) == (owner.agent, owner.user) and _speak_of([one], focus)


def _speak_of(records: Sequence[EvidenceRecord], focus: str | None) -> bool:
    if focus is None:
        return True
    said = {token.word for record in records for sentence in sentences(record.text) for token in sentence.tokens}
    return bool(said & {token.word for sentence in sentences(focus) for token in sentence.tokens})


def _partitions(owners: Sequence[Owner]) -> list[Partition]:
    return [Partition(owner.agent, owner.user) for owner in owners]


def _said_by_user(doc: Doc) -> bool:
    if doc["standing"] == SMALL_TALK:
        return False
    return doc["memory_type"] != "message" or doc["source"]["role"] in (None, "user")


def _valid(doc: Doc, now: str) -> bool:
    return (doc["valid_until"] is None or doc["valid_until"] > now) and (doc["valid_from"] or "") <= now


def _named(payload: Doc) -> Filter:
    if pair := payload.get("pair"):
        return of_pair(pair["agent_id"], pair["user_id"])
    return both(*(Eq(name, payload[name]) for name in ("agent_id", "user_id") if payload.get(name) is not None))


def _news(schedule: Doc | None) -> Filter:
    """Filters records created since the previous run."""
    since = (schedule or {}).get("looked_at")
    return both(Range("created_at", ge=since)) if since is not None else both()


__all__: Sequence[str] = ["ReflectionJobs"]
