"""Insights: what several memories of one agent and user show together. Clusters are found by the stored vectors, a
language model says what a cluster shows, and its quotes and numbers have to stand in the memories."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import orjson

from app.core import prompt_text
from app.core.clock import rfc3339
from app.core.language import STOP_WORDS, words
from app.core.served_text import strip_served
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.findings.service import EvidenceRecord, FindingRepository, new_finding, of_memory
from app.jobs.runner import Run
from app.jobs.skipping import handled, skipping
from app.learning import prompts
from app.learning.checks import Quote, find, numbers_said
from app.learning.dependencies import NO_LLM, Tools
from app.learning.derivations import DERIVATIONS, derivation, id_of
from app.learning.prompts import FoundInsight, InsightSource, TranscriptLine
from app.llm.base import LLM, Budget
from app.memories.embedding import Embeddings
from app.memories.models import MEMORIES, NO_SMALL_TALK
from app.memories.records import passage
from app.memories.repository import of_pair
from app.reflection.finders import is_usable, readable, speaks_of
from app.retrieval.model_weights import weights_for
from app.storage.changes import CommitConflict, IndexEntry
from app.storage.repository import Repository
from app.storage.schema import Doc, Eq, both
from app.storage.scope import Partition, Scope
from app.storage.search import SearchQuery
from app.storage.text import TermIds

log = logging.getLogger(__name__)

KIND = PROMPT = "insight"
SAME_COSINE = 0.95
"""Memories that are more similar say the same: only one of them is shown to the model."""
SEEDS = 30
"""The number of memories of a partition, the latest ones, around which a run looks for clusters."""
LEAST_MEMORIES, MOST_MEMORIES = 3, 8
"""The limits of memories of a cluster."""
LEAST_NEW = 2
"""A cluster with fewer memories that no earlier insight cites is not asked about."""
CITED = 2
"""An insight cites at least so many memories."""
SURE = 0.75
"""Confidence of an insight."""
MOST_EARLIER = 500
MEMORY_CHARACTERS = 1_000
DRY_RUN = "a dry run asks no model"
_NO_TERMS: TermIds = np.empty(0, np.uint32)


class Cluster(NamedTuple):
    """Related memories of one partition, oldest first."""

    records: tuple[EvidenceRecord, ...]

    @property
    def derivation_id(self) -> str:
        """An id that is the same for the same memories with the same texts, and the same prompt."""
        return id_of(sorted([one.id, one.mark] for one in self.records), KIND, prompts.load(PROMPT).id)

    def lines(self) -> list[TranscriptLine]:
        """Returns the memories as the model is shown them, numbered from 1."""
        texts = [strip_served(one.text).strip()[:MEMORY_CHARACTERS] for one in self.records]
        shown = zip(self.records, texts, strict=True)
        return [TranscriptLine(at, "user", None, one.said_at, text) for at, (one, text) in enumerate(shown, start=1)]


class Cited(NamedTuple):
    """A memory with the words of it that show an insight."""

    record: EvidenceRecord
    quote: Quote


@dataclass(slots=True)
class InsightReport:
    """What a run asked and stored. `failed`: why a model that is there was not asked to the end."""

    clusters: int = 0
    asked: int = 0
    found: list[Doc] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    skipped: str | None = None
    failed: LLMUnavailable | LLMBudgetSpent | None = None
    spent: Doc | None = None

    def shown(self) -> Doc:
        """Returns the report as the operation's result has it."""
        if self.skipped is not None:
            return {"status": "skipped", "reason": self.skipped, "clusters": self.clusters}
        counts = {"clusters": self.clusters, "asked": self.asked, "found": len(self.found)}
        counts |= {"left": self.clusters - self.asked}
        ended = {"status": "done"} if self.failed is None else {"status": "failed", "reason": self.failed.detail}
        return {**ended, **counts, "dropped": dict(self.dropped), "llm": self.spent}


class InsightFinder:
    """Finds insights of partitions. Without a language model it only says so."""

    def __init__(self, tools: Tools, llm: LLM | None) -> None:
        self._tools, self._llm = tools, llm
        self._calls = tools.tuning.insight_calls

    async def wanted(self, scope: Scope, of: Partition) -> bool:
        """Returns True if there is a model and a cluster that it was not asked about. Only reads."""
        return self._llm is not None and bool(await self.clusters(scope, of))

    async def run(
        self, run: Run, scope: Scope, owners: Sequence[Partition], focus: str | None, *, dry_run: bool
    ) -> InsightReport:
        """Asks the model about the clusters of partitions, as far as the calls of a run go, and stores what is found.
        Each cluster is noted together with what came of it, so that it is asked about once."""
        report = InsightReport()
        if self._llm is None:
            report.skipped = NO_LLM
            return report
        found = [(of, one) for of in owners for one in await self.clusters(scope, of, focus)]
        report.clusters = len(found)
        if dry_run:
            report.skipped = DRY_RUN
            return report
        budget = self._llm.budget(self._tools.allowance(run.tenant))
        for of, cluster in found[: self._calls]:
            try:
                await self._ask(run, scope, of, cluster, budget, report)
            except (LLMUnavailable, LLMBudgetSpent) as error:
                log.warning("an insight was not asked for", extra={"code": error.code})
                over = isinstance(error, LLMBudgetSpent) and error.until is None  # of this run: the next one goes on
                report.failed = None if over else error
                break
            report.asked += 1
        report.spent = budget.spent
        return report

    # --- Clusters -----------------------------------------------------------------------------------------------------

    async def clusters(self, scope: Scope, of: Partition, focus: str | None = None) -> list[Cluster]:
        """Returns clusters that the model was not asked about, the closest first. No memory is in two. `focus`: only
        those that have a word of it. Only reads.

        A cluster is a memory with those nearest to it, by the vectors of their beginnings.
        """
        agent, now = _agent(of), rfc3339(self._tools.clock.now())
        memories = Repository(self._tools.store, scope, MEMORIES)
        where = both(of_pair(agent, of.user), *readable(now))
        latest = handled(MEMORIES, await memories.find(where, limit=4 * SEEDS), lambda doc: _is_seed(doc, now))
        seeds = [doc for doc, usable in latest if usable][:SEEDS]
        if not seeds:
            return []
        entries = await Embeddings(self._tools.embedder).entries([passage(doc) for doc in seeds])
        around = [await self._around(scope, of, *each, now) for each in zip(seeds, entries, strict=True)]
        earlier, used, found = await self._earlier(scope, of), set[str](), list[Cluster]()
        for near in sorted(around, key=lambda one: -sum(cosine for _, cosine in one)):
            records = [of_memory(doc) for doc, _ in near if doc["memory_id"] not in used][:MOST_MEMORIES]
            new = sum(one.id not in earlier for one in records)
            if len(records) < LEAST_MEMORIES or new < LEAST_NEW or not any(speaks_of(one, focus) for one in records):
                continue
            used |= {one.id for one in records}
            cluster = Cluster(tuple(sorted(records, key=lambda one: (one.said_at, one.id))))
            if await self._tools.store.get(DERIVATIONS, scope.tenant, cluster.derivation_id) is None:
                found.append(cluster)
        return found

    async def _around(
        self, scope: Scope, of: Partition, seed: Doc, entry: IndexEntry, now: str
    ) -> list[tuple[Doc, float]]:
        """Returns a memory and those nearest to it, with their cosines. Of those that say the same one is there."""
        if entry.vector is None:
            return []
        where, store = both(NO_SMALL_TALK, *readable(now)), self._tools.store
        query = SearchQuery(scope.tenant, (of,), where, entry.vector, entry.model, _NO_TERMS, first_windows=True)
        columns = await store.search(MEMORIES, query)
        related = weights_for(entry.model).related
        near = np.flatnonzero(columns.matched & columns.has_vector & (columns.cosine >= related))
        near = near[np.argsort(-columns.cosine[near], kind="stable")][: 4 * MOST_MEMORIES]
        fetched = await store.fetch(MEMORIES, scope.tenant, columns.rows[near]) if len(near) else []
        found, said = [(seed, 1.0)], {seed["content_hash"]}
        for one, cosine in zip(fetched, columns.cosine[near].tolist(), strict=True):
            if one is None or cosine >= SAME_COSINE or one.doc.get("content_hash") in said:
                continue
            with skipping(MEMORIES, one.doc.get("memory_id")):
                if scope.sees(one.doc) and _is_seed(one.doc, now):
                    found.append((one.doc, cosine))
                    said.add(one.doc["content_hash"])
        return found[: 2 * MOST_MEMORIES]

    async def _earlier(self, scope: Scope, of: Partition) -> set[str]:
        """Returns the ids of the memories that insights of this partition cite, whatever became of them."""
        where = both(of_pair(_agent(of), of.user), Eq("kind", KIND))
        docs = await FindingRepository(self._tools.store, scope).find(where, limit=MOST_EARLIER)
        return {one["id"] for doc in docs for one in doc["evidence"]}

    # --- Asking -------------------------------------------------------------------------------------------------------

    async def _ask(
        self, run: Run, scope: Scope, of: Partition, cluster: Cluster, budget: Budget, report: InsightReport
    ) -> None:
        """Asks the model about one cluster, and stores the finding, if there is one, with a note of the cluster."""
        assert self._llm is not None
        prompt, lines = prompts.load(PROMPT), cluster.lines()
        room = self._llm.prompt_tokens - prompts.SHAPE_TOKENS - prompt_text.count(prompt.text)
        memories = [{"number": line.seq, "said_at": line.at, "text": line.text} for line in lines]
        data = orjson.dumps(prompts.fitting({"memories": memories}, room)).decode()
        finding, reason = None, "invalid"
        try:
            answer = await self._llm.reply(prompt.text, data, FoundInsight, budget)
        except LLMReplyInvalid:
            pass
        else:
            text, cited = strip_served(answer.insight or "").strip(), cited_of(cluster, answer)
            reason = refused(text, cited) or ""
            if not reason:
                learned = {"model": self._llm.model_for(FoundInsight), "prompt_version": prompt.id}
                finding = _finding(of, text, cited, learned, rfc3339(self._tools.clock.now()))
        if reason:
            report.dropped[reason] += 1
        report.found += await self._store(run, scope, of, cluster, finding)

    async def _store(self, run: Run, scope: Scope, of: Partition, cluster: Cluster, finding: Doc | None) -> list[Doc]:
        """Returns the finding if it is new. One of the same sources that is there stays as it is."""
        store, findings = self._tools.store, FindingRepository(self._tools.store, scope)
        owner, by = {"agent_id": _agent(of), "user_id": of.user}, run.lease.job.operation_id
        note = await derivation(store, run.tenant, [], cluster.derivation_id, owner, by, run.clock.now())
        new = [] if finding is None or await findings.find_one(finding["finding_id"]) else [finding]
        try:
            await run.commit([*map(findings.insert, new), note])
        except CommitConflict:  # another worker has asked
            return []
        return new


def cited_of(cluster: Cluster, answer: FoundInsight) -> list[Cited]:
    """Returns the memories that an answer cites, each with the first quote of it that stands in it word for word."""
    lines, found = cluster.lines(), dict[int, Cited]()
    sources: Sequence[InsightSource | None] = answer.sources
    for one in sources:
        if one is None or not 1 <= one.number <= len(lines) or one.number in found:
            continue
        quote = find(one.quote, [lines[one.number - 1]])
        if quote is not None:
            found[one.number] = Cited(cluster.records[one.number - 1], quote)
    return [found[number] for number in sorted(found)]


def refused(text: str, cited: Sequence[Cited]) -> str | None:
    """Returns why an insight is not taken: `nothing_found`, `too_few_sources`, `not_said` (a number stands in no
    source) or `said_already` (one source has all of its words)."""
    if not text:
        return "nothing_found"
    if len(cited) < CITED:
        return "too_few_sources"
    sources = [one.quote.line for one in cited]
    shown = numbers_said(text, sources)
    if shown.worded or not shown.stands:
        return "not_said"
    told = {*words(text)} - STOP_WORDS
    return "said_already" if any(told <= {*words(source.text)} for source in sources) else None


def _finding(of: Partition, text: str, cited: Sequence[Cited], learned: Doc, now: str) -> Doc:
    records = [one.record for one in cited]
    quotes = [{"id": one.record.id, "quote": one.quote.text} for one in cited]
    details = {"content": text, "memory_type": "learned", "quotes": quotes, **learned}
    proposal: Doc = {"action": "store", "keep": None, "retire": [], "details": details}
    reason = f"{len(records)} memories show it together."
    return new_finding(_agent(of), of.user, KIND, reason, records, proposal, SURE, now)


def _is_seed(doc: Doc, now: str) -> bool:
    """Returns whether a memory can be shown to the model. Raises where it cannot be read."""
    passage(doc).indexed()
    return bool(is_usable(doc, now) and of_memory(doc).text)


def _agent(of: Partition) -> str | None:
    return of.agent if isinstance(of.agent, str) else None
