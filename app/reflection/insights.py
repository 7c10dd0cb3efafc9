"""Insights: what several memories of one agent and user show together. Clusters are found by the stored vectors, a
language model says what a cluster shows, and its quotes and numbers have to stand in the memories."""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import orjson

from app.core import prompt_text
from app.core.clock import rfc3339
from app.core.language import STOP_WORDS, is_unspaced, words
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.findings.schemas import FindingRecord, Proposal
from app.findings.service import FindingRepository, MemoryEvidence, new_finding, of_memory
from app.jobs.queue import handled, skipping
from app.jobs.runner import Run
from app.learning import prompts
from app.learning.checks import Quote, find_quote, numbers_said
from app.learning.dependencies import Tools
from app.learning.derivations import DERIVATIONS, DerivationRecord, derivation, id_of
from app.learning.learning_run import NO_LLM
from app.llm.base import LLM, Budget
from app.memories.repository import Embeddings, of_partition, text_to_index
from app.memories.schemas import FINDABLE, MEMORIES, MemoryRecord
from app.reflection.finders import is_usable, readable, speaks_of
from app.retrieval.model_weights import weights_for
from app.storage.changes import CommitConflict, IndexEntry
from app.storage.repository import Repository
from app.storage.schema import Eq, both
from app.storage.scope import Partition, Scope
from app.storage.search import SearchQuery
from app.storage.text import TermIds, terms

log = logging.getLogger(__name__)

PROMPT = "insight"
KIND: Literal["insight"] = "insight"
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

    records: tuple[MemoryEvidence, ...]

    @property
    def derivation_id(self) -> str:
        """An id that is the same for the same memories with the same texts, and the same prompt."""
        return id_of(sorted([record.id, record.fingerprint] for record in self.records), KIND, prompts.load(PROMPT).id)

    def lines(self) -> list[prompts.TranscriptLine]:
        """Returns the memories as the model is shown them, numbered from 1."""
        return [
            prompts.TranscriptLine(
                at, "user", None, record.said_at, strip_served(record.text).strip()[:MEMORY_CHARACTERS]
            )
            for at, record in enumerate(self.records, start=1)
        ]


class Cited(NamedTuple):
    """A memory with the words of it that show an insight."""

    record: MemoryEvidence
    quote: Quote


@dataclass(slots=True)
class InsightReport:
    """What a run asked and stored. `failed`: why a model that is there was not asked to the end."""

    clusters: int = 0
    asked: int = 0
    findings: list[FindingRecord] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    skipped: str | None = None
    failed: LLMUnavailable | LLMBudgetSpent | None = None
    spent: dict[str, int] | None = None

    def shown(self) -> Json:
        """Returns the report as the operation's result has it."""
        if self.skipped is not None:
            return {"status": "skipped", "reason": self.skipped, "clusters": self.clusters}
        ended = {"status": "done"} if self.failed is None else {"status": "failed", "reason": self.failed.detail}
        return {
            **ended,
            "clusters": self.clusters,
            "asked": self.asked,
            "found": len(self.findings),
            "left": self.clusters - self.asked,
            "dropped": dict(self.dropped),
            "llm": self.spent,
        }


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
        clusters = [(of, cluster) for of in owners for cluster in await self.clusters(scope, of, focus)]
        report.clusters = len(clusters)
        if dry_run:
            report.skipped = DRY_RUN
            return report
        budget = self._llm.budget(self._tools.allowance(run.tenant))
        for of, cluster in clusters[: self._calls]:
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
        where = both(of_partition(agent, of.user), *readable(now))
        latest = handled(MEMORIES, await memories.find(where, limit=4 * SEEDS), lambda memory: _is_seed(memory, now))
        seeds = [memory for memory, may_be_shown in latest if may_be_shown][:SEEDS]
        if not seeds:
            return []
        entries = await Embeddings(self._tools.embedder).entries([text_to_index(seed) for seed in seeds])
        around = [await self._around(scope, of, seed, entry, now) for seed, entry in zip(seeds, entries, strict=True)]
        earlier, used, clusters = await self._earlier(scope, of), set[str](), list[Cluster]()
        for near in sorted(around, key=lambda near: -sum(cosine for _, cosine in near)):
            records = [of_memory(memory) for memory, _ in near if memory["memory_id"] not in used][:MOST_MEMORIES]
            new = sum(record.id not in earlier for record in records)
            is_of_focus = any(speaks_of(record, focus) for record in records)
            if len(records) < LEAST_MEMORIES or new < LEAST_NEW or not is_of_focus:
                continue
            used |= {record.id for record in records}
            cluster = Cluster(tuple(sorted(records, key=lambda record: (record.said_at, record.id))))
            if await self._tools.store.get(DERIVATIONS, scope.tenant, cluster.derivation_id) is None:
                clusters.append(cluster)
        return clusters

    async def _around(
        self, scope: Scope, of: Partition, seed: MemoryRecord, entry: IndexEntry, now: str
    ) -> list[tuple[MemoryRecord, float]]:
        """Returns a memory and those nearest to it, with their cosines. Of those that say the same one is there."""
        if entry.vector is None:
            return []
        where, store = both(FINDABLE, *readable(now)), self._tools.store
        query = SearchQuery(
            scope.tenant, (of,), where, entry.vector, entry.model, _NO_TERMS, candidates=True, first_windows=True
        )
        columns = await store.search(MEMORIES, query)
        related = weights_for(entry.model).related
        near = np.flatnonzero(columns.matched & columns.has_vector & (columns.cosine >= related))
        near = near[np.argsort(-columns.cosine[near], kind="stable")][: 4 * MOST_MEMORIES]
        fetched = await store.fetch(MEMORIES, scope.tenant, columns.rows[near]) if len(near) else []
        memories, hashes = [(seed, 1.0)], {seed["content_hash"]}
        for neighbour, cosine in zip(fetched, columns.cosine[near].tolist(), strict=True):
            if neighbour is None or cosine >= SAME_COSINE or neighbour.doc.get("content_hash") in hashes:
                continue
            memory = neighbour.doc
            with skipping(MEMORIES, memory.get("memory_id")):
                if scope.sees(memory) and _is_seed(memory, now):
                    memories.append((memory, cosine))
                    hashes.add(memory["content_hash"])
        return memories[: 2 * MOST_MEMORIES]

    async def _earlier(self, scope: Scope, of: Partition) -> set[str]:
        """Returns the ids of the memories that insights of this partition cite, whatever became of them."""
        where = both(of_partition(_agent(of), of.user), Eq("kind", KIND))
        insights = await FindingRepository(self._tools.store, scope).find(where, limit=MOST_EARLIER)
        return {evidence["id"] for insight in insights for evidence in insight["evidence"]}

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
            answer = await self._llm.reply(prompt.text, data, prompts.FoundInsight, budget)
        except LLMReplyInvalid:
            pass
        else:
            text, cited = strip_served(answer.insight or "").strip(), cited_of(cluster, answer)
            reason = refused(text, cited) or ""
            if not reason:
                model = self._llm.model_for(prompts.FoundInsight)
                finding = _finding(of, text, cited, model, prompt.id, rfc3339(self._tools.clock.now()))
        if reason:
            report.dropped[reason] += 1
        store, findings = self._tools.store, FindingRepository(self._tools.store, scope)
        owner: DerivationRecord = {"agent_id": _agent(of), "user_id": of.user}
        by = run.lease.job.operation_id
        note = await derivation(store, run.tenant, [], cluster.derivation_id, owner, by, run.clock.now())
        # a finding of the same sources that is there stays as it is
        new = [] if finding is None or await findings.find_one(finding["finding_id"]) else [finding]
        with suppress(CommitConflict):  # another worker has asked
            await run.commit([*map(findings.insert, new), note])
            report.findings += new


def cited_of(cluster: Cluster, answer: prompts.FoundInsight) -> list[Cited]:
    """Returns the memories that an answer cites, each with the first quote of it that stands in it word for word."""
    lines, cited = cluster.lines(), dict[int, Cited]()
    sources: Sequence[prompts.InsightSource | None] = answer.sources
    for source in sources:
        if source is None or not 1 <= source.number <= len(lines) or source.number in cited:
            continue
        quote = find_quote(source.quote, [lines[source.number - 1]])
        if quote is not None:
            cited[source.number] = Cited(cluster.records[source.number - 1], quote)
    return [cited[number] for number in sorted(cited)]


def refused(text: str, cited: Sequence[Cited]) -> str | None:
    """Returns why an insight is not taken: `nothing_found`, `too_few_sources`, `not_said` (a number stands in no
    source), `said_already` (one source has all of its words) or `only_lists` (each part of it stands in one)."""
    if not text:
        return "nothing_found"
    if len(cited) < CITED:
        return "too_few_sources"
    sources = [citation.quote.line for citation in cited]
    shown = numbers_said(text, sources)
    if shown.worded or not shown.stands:
        return "not_said"
    said = [{*terms(source.text)} for source in sources]
    units = [text] if is_unspaced(text) else [word for word in words(text) if word not in STOP_WORDS]
    parts = _parts([{*terms(unit)} for unit in units], said)
    if parts is None:
        return None
    return "said_already" if parts == 1 else "only_lists"


MOST_JOINING = 1
"""Words of an insight before each of its parts that stand in no source: "She" or "und"."""


def _parts(insight: Sequence[set[str]], sources: Sequence[set[str]]) -> int | None:
    """Returns of how many runs of words that each stand in one source an insight is made; None if it says something of
    its own. "Likes tea, plays the violin" is two of "Ada likes tea" and "Ada plays the violin"."""
    count, at = 0, 0
    while at < len(insight):
        best = at
        for start in range(at, min(at + MOST_JOINING, len(insight) - 1) + 1):
            for source in sources:
                end = start
                while end < len(insight) and insight[end] <= source:
                    end += 1
                best = max(best, end if end > start else at)
        if best == at or count == len(sources):
            return None
        count, at = count + 1, best
    return count


def _finding(of: Partition, text: str, cited: Sequence[Cited], model: str, prompt_id: str, now: str) -> FindingRecord:
    proposal: Proposal = {
        "action": "store",
        "keep": None,
        "retire": [],
        "details": {
            "content": text,
            "memory_type": "learned",
            "quotes": [{"id": citation.record.id, "quote": citation.quote.text} for citation in cited],
            "model": model,
            "prompt_version": prompt_id,
        },
    }
    records, reason = [citation.record for citation in cited], f"{len(cited)} memories show it together."
    return new_finding(_agent(of), of.user, KIND, reason, records, proposal, SURE, now)


def _is_seed(memory: MemoryRecord, now: str) -> bool:
    """Returns whether a memory can be shown to the model. Raises where it cannot be read."""
    text_to_index(memory).indexed()
    return is_usable(memory, now) and bool(memory["content"])


def _agent(of: Partition) -> str | None:
    return of.agent if isinstance(of.agent, str) else None
