"""The retriever: finds documents of any searched collection for a query."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple, Protocol

import numpy as np

from app.core.tracing import span
from app.core.work import SEARCH_UNITS, SEARCHED_PER_UNIT, charge, taken_by
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.embedding.reranking import RerankingFailed, SecondStage, best_first
from app.errors import EmbeddingUnavailable, SearchIndexUnavailable
from app.metrics import SEARCH_SECONDS
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve
from app.retrieval.features import importance_at, term_weights
from app.retrieval.first_hits import NO_ORDER
from app.retrieval.model_weights import ModelWeights, weights_for
from app.retrieval.polarity import towards_what_is_denied
from app.retrieval.query_analysis import QueryText, analysed, corrected, read_by, settle, with_names
from app.retrieval.query_evidence import QueryEvidence, evidence_of
from app.retrieval.ranking import Explanation, Mode, Ranked, as_short, different_matches, explained, rank, top
from app.retrieval.repetition import COMPARED, ROUNDS, joined, leave_one, repeated, same_statements, suspects
from app.retrieval.time_expressions import TimeInterval, names_no_subject
from app.storage.protocol import Fetched, Store
from app.storage.schema import Collection, Doc, Filter
from app.storage.scope import Partition, Scope
from app.storage.search import Bools, Columns, Floats, Memo, NameSource, ScopeFacts, SearchQuery
from app.storage.text import IS_QUESTION

BY_WORDS_ALONE: Doc = {
    "code": EmbeddingUnavailable.code,
    "detail": "The embedding model does not answer. This search went by words alone, not by meaning.",
}
"""Warning of a hybrid search that had no vector of the query."""

FIRST_ORDER_STANDS = "reranker_unavailable"
"""Code of the warning of a search that could not be reranked."""

NARROWED_AT_ONCE = 500
"""Documents that are read together for a filter that the store cannot decide."""

HitMask = Callable[[Columns, Floats], Bools]
"""Takes the columns and each document's current importance, and returns a mask of shape (n,)."""


class DecaySource(Protocol):
    """Provides the decay of a scope's memories, from the settings of their agents."""

    async def of_all(self, agents: Sequence[str | None], columns: Columns) -> DecayCurve:
        """Returns one decay curve for all documents, with arrays where the agents' settings differ."""
        ...


@dataclass(slots=True)  # not frozen: a frozen one takes five times as long to create
class RetrievalQuery:
    """The input of the retriever.

    `where` filters in the store. `mask` narrows the result of `where` before anything is ranked or cut to `k`.
    """

    query: str
    pairs: tuple[Partition, ...]
    where: Filter
    now_ms: int
    k: int
    mode: Mode = "hybrid"
    mask: HitMask | None = None
    keep: Callable[[Doc], bool] | None = None
    """Narrows the result of `where` as well, by what only a document itself says. What `where` lets through is read."""
    decays: DecaySource | None = None
    explain: bool = False
    by_cosine: bool = False
    """True if the mask reads cosines. The query is then embedded in every mode."""
    least_importance: float = 0.0
    """The least importance that the mask lets through. The store leaves out documents that never had it."""
    min_score: float = 0.0
    """Minimum score of the hits of a hybrid search.

    A value above 0 requires the vector: without it the score is no probability.
    """
    vector_seconds: float | None = None
    """Maximum wait of a hybrid search for the query's vector. None: as long as the embedder takes."""
    rerank_seconds: float | None = None
    """Maximum wait of a hybrid search for the second stage. None: the limit in the settings."""
    interval: TimeInterval | None = None
    """The time interval that the query names. The times in the scope settle which of two readings is meant."""
    known_at: str | None = None
    """Names are one entity's as it was known then; None: now."""
    partners: bool = False
    """Fetches each hit's partner: the answer to a question, or the question before an answer."""
    evidence: bool = False
    """Reads what the scope has of the query."""
    once: Literal["ever", "each day"] | None = None
    """Whether texts that say the same are one hit: all of them, or those of a day. None, and where the query names a
    time: each is a hit."""


class Hit(NamedTuple):
    """A found document with its score and, if asked for, its partner and what the score is made of."""

    doc: Doc
    derived: Memo
    score: float
    partner: Doc | None = None
    explanation: Explanation | None = None
    replaced_by: Sequence[Doc] = ()
    """The later statements that replace it, as responses show them."""
    repeated: Doc | None = None
    """How often it was said, as responses show it; None: once."""
    others: Sequence[Doc] = ()
    """The near-equal documents that it stands for."""


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The output of the retriever."""

    hits: list[Hit]
    took_ms: Doc
    mode_used: Mode = "hybrid"
    warnings: list[Doc] = field(default_factory=list)
    """Degradations of this search, as {code, detail}."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """BM25 weight of each query term in the scope, by term id. Rare terms weigh more."""
    interval: TimeInterval | None = None
    """The time interval that counted."""
    evidence: QueryEvidence | None = None
    """What the scope has of the query, if the search asked for it."""

    def how(self) -> Doc:
        """Returns the fields that every search response has beside its items."""
        return {"mode_used": self.mode_used, "warnings": self.warnings, "took_ms": self.took_ms}


@dataclass(slots=True)
class _Chosen:
    """The hits to return, as indices, best first."""

    order: list[int]
    scores: list[int]
    """For each place, the index of the document whose score is shown there.

    The second stage changes the order of the documents but not the scores of the places. The scores therefore stay
    probabilities that fall from hit to hit.
    """
    documents: Mapping[int, Fetched] = field(default_factory=dict)
    """Documents that the second stage has already read, by index."""
    reranked: Mapping[int, float] = field(default_factory=dict)
    """The reranker's own score, by index."""
    seconds: float | None = None
    """Duration of the second stage; None if there was none."""
    warnings: list[Doc] = field(default_factory=list)
    interval: TimeInterval | None = None
    evidence: QueryEvidence | None = None


@dataclass(slots=True)
class _Ranking:
    """A ranked scope. `best`: the indices of the hits. `statements`: documents that say the same, the one that is shown
    first. `findable`: what matched, with the others of these. `documents`: what was read of them."""

    columns: Columns
    query: QueryText
    interval: TimeInterval | None
    ranked: Ranked
    best: list[int]
    findable: Bools
    statements: list[list[int]]
    documents: Mapping[int, Fetched]


class Retriever:
    """Searches one collection within one scope."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        embedder: Embedder,
        collection: Collection,
        second_stage: SecondStage | None = None,
        names: NameSource | None = None,
    ) -> None:
        """Creates a retriever. `second_stage` reranks the first hits of hybrid searches. `names` has the names that
        stand for the same: what the query calls by one of them is found by each."""
        self._store, self._scope, self._embedder, self._collection = store, scope, embedder, collection
        self._second_stage, self._names = second_stage, names

    async def find(self, wanted: RetrievalQuery) -> RetrievalResult:
        """Returns the hits, best first, and the time that each step took.

        If the query of a hybrid search cannot be embedded, the search falls back to mode `text` and adds a warning.
        Raises EmbeddingUnavailable instead if the mode is `vector`, if the mask reads cosines, or if `min_score` is
        set: no filter is relaxed.
        """
        name = self._collection.name
        attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": name}
        with span(f"retrieval {name}", attributes) as open_span:
            found = await self._find(wanted)
            given = {"recalld.search.mode": wanted.mode, "recalld.search.k": wanted.k}
            open_span.set(
                {**given, "recalld.search.mode_used": found.mode_used, "recalld.search.hits": len(found.hits)}
            )
            return found

    async def _find(self, wanted: RetrievalQuery) -> RetrievalResult:
        started = time.perf_counter()
        facts, names = await self._known(wanted)
        charge(SEARCH_UNITS + facts.count / SEARCHED_PER_UNIT)
        hits: list[Hit] = []
        weights: Mapping[int, float] = {}
        reranking: float | None = None
        interval = None if wanted.interval is None else replace(wanted.interval, empty=True)
        evidence: QueryEvidence | None = None
        mode, warnings = wanted.mode, list[Doc]()
        embedded = time.perf_counter()
        if facts.count:
            with span("search analysis"):
                query = read_by(self._embedder.name, await analysed(wanted.query, facts.speakers))
                query = with_names(query, wanted.query, names) if names else query
            with span("search embedding"):
                vector = await self._vector(wanted, query)
            if vector is None and mode == "hybrid":
                mode, warnings = "text", [BY_WORDS_ALONE]
            embedded = time.perf_counter()
            hits, weights, chosen = await self._hits(wanted, mode, query, vector, facts)
            interval, evidence = chosen.interval, chosen.evidence
            reranking, warnings = chosen.seconds, [*warnings, *chosen.warnings]
        ended = time.perf_counter()
        searching = ended - embedded - (reranking or 0)
        SEARCH_SECONDS.observe(searching)
        took = {"embed": embedded - started, "search": searching, "total": ended - started}
        if reranking is not None:
            took["rerank"] = reranking
        rounded = {name: int(seconds * 1e6) / 1e3 for name, seconds in took.items()}
        return RetrievalResult(hits, rounded, mode, warnings, weights, interval, evidence)

    async def _known(self, wanted: RetrievalQuery) -> tuple[ScopeFacts, Sequence[Sequence[str]]]:
        """Returns the facts about the scope, and the names of each entity that has several there."""
        # one after the other: to wait for both at once costs more than either in a store that answers from memory
        facts = await self._store.scope_facts(self._collection, self._scope.tenant, wanted.pairs)
        if self._names is None or not facts.count:
            return facts, ()
        return facts, await self._names.groups(self._scope, wanted.pairs, wanted.known_at)

    async def _vector(self, wanted: RetrievalQuery, query: QueryText) -> Vectors | None:
        """Returns the query's vector, or None if the search can do without. That of a hybrid search lies nearer to what
        is denied if the query is negated; where cosines are asked for, they are the query's own.

        Raises EmbeddingUnavailable if it cannot.
        """
        if wanted.mode == "text" and not wanted.by_cosine:
            return None
        if wanted.mode != "hybrid" or wanted.by_cosine:
            return await self._embedder.embed_query(query.stripped)
        try:
            async with asyncio.timeout(None if wanted.min_score > 0 else wanted.vector_seconds):
                vector = await self._embedder.embed_query(query.stripped)
        except (EmbeddingUnavailable, TimeoutError):
            if wanted.min_score > 0:
                raise
            return None
        return towards_what_is_denied(vector, self._embedder.name)

    async def _columns(
        self,
        wanted: RetrievalQuery,
        mode: Mode,
        query: QueryText,
        vector: Vectors | None,
        facts: ScopeFacts,
        spare: int = 0,
    ) -> tuple[Columns, QueryText, DecayCurve]:
        """Returns the columns of a search that was deep enough for `k` hits and `spare` ones, and the query as it was
        looked for: a word that the scope does not have may be replaced by one that it has."""
        tenant = self._scope.tenant
        search_query = SearchQuery(
            tenant,
            wanted.pairs,
            wanted.where,
            vector,
            self._embedder.name,
            query.terms,
            spelled=query.spelled,
            least_importance=wanted.least_importance,
            facts=facts,
        )
        kept: dict[int, bool] = {}
        while True:
            columns = await self._store.search(self._collection, search_query)
            if columns.close and (better := corrected(columns, query)) is not query:
                query, search_query.terms, search_query.spelled = better, better.terms, {}
                continue
            decay = DEFAULT_DECAY if wanted.decays is None else await wanted.decays.of_all(facts.agents, columns)
            if wanted.mask is not None:
                columns.matched[:] &= wanted.mask(columns, importance_at(columns, wanted.now_ms, decay))
            if wanted.keep is not None:
                await self._narrow(columns, wanted.keep, kept)
            if columns.complete or different_matches(columns, mode) >= wanted.k + spare:
                return columns, settle(columns, query), decay
            search_query.depth += 1

    async def _narrow(self, columns: Columns, keep: Callable[[Doc], bool], kept: dict[int, bool]) -> None:
        """Narrows the matches to the documents that `keep` takes. `kept` says which are known to be taken, by row."""
        matching = np.flatnonzero(columns.matched)
        rows = columns.rows[matching]
        missing = np.array([row for row in rows.tolist() if row not in kept], np.int64)
        for start in range(0, len(missing), NARROWED_AT_ONCE):
            part = missing[start : start + NARROWED_AT_ONCE]
            found = await self._store.fetch(self._collection, self._scope.tenant, part)
            taken = await taken_by(lambda one: one is not None and keep(one.doc), found)
            kept |= zip(part.tolist(), taken, strict=True)
        columns.matched[matching] = [kept[row] for row in rows.tolist()]

    async def _ranking(  # noqa: PLR0913 (what a ranking depends on)
        self,
        wanted: RetrievalQuery,
        mode: Mode,
        asked: QueryText,
        vector: Vectors | None,
        facts: ScopeFacts,
        k: int,
        fitted: ModelWeights,
    ) -> "_Ranking":
        """Searches and ranks, without what no search finds, and with one of the documents that say the same."""
        # a prompt compares the sentences of all that goes into it, so that its search need not read 250 documents
        spare, compared = 0, COMPARED if wanted.once == "each day" else max(COMPARED, 2 * k)
        while True:
            columns, query, decay = await self._columns(wanted, mode, asked, vector, facts, spare)
            interval = None if wanted.interval is None else wanted.interval.settled(columns.time, columns.matched)
            if interval is None or not interval.empty:
                query = replace(
                    query, subject=not names_no_subject(wanted.query, "" if interval is None else interval.words)
                )
            with span("search ranking", {"recalld.search.candidates": len(columns.rows)}):
                ranking = partial(_ranked, columns, query, mode, decay, wanted, interval, k, fitted)
                findable, documents, statements = columns.matched.copy(), dict[int, Fetched](), list[list[int]]()
                ranked, best = await self._ranked_findable(ranking, columns, findable, compared)
                for _ in range(ROUNDS):
                    again = await self._said_again(wanted, columns, top(ranked, columns, compared), documents)
                    if not again:
                        break
                    statements = joined(columns, statements, again)
                    leave_one(columns, statements)
                    ranked, best = await self._ranked_findable(ranking, columns, findable, compared)
            repetitions = sum(len(one) - 1 for one in statements)
            if columns.complete or repetitions <= spare or different_matches(columns, mode) >= wanted.k:
                return _Ranking(columns, query, interval, ranked, best, findable, statements, documents)
            spare = repetitions

    async def _ranked_findable(
        self, ranking: Callable[[], tuple[Ranked, list[int]]], columns: Columns, findable: Bools, compared: int
    ) -> tuple[Ranked, list[int]]:
        """Ranks until none of the first `compared` documents is one that no search finds; those leave `findable`."""
        ranked, best = ranking()
        while left_out := await self._left_out(columns, top(ranked, columns, compared)):
            columns.matched[left_out] = findable[left_out] = False
            ranked, best = ranking()
        return ranked, best

    async def _hits(
        self, wanted: RetrievalQuery, mode: Mode, query: QueryText, vector: Vectors | None, facts: ScopeFacts
    ) -> tuple[list[Hit], Mapping[int, float], _Chosen]:
        stage = self._second_stage if mode == "hybrid" else None
        k = wanted.k if stage is None else max(wanted.k, stage.depth(wanted.k))
        fitted = weights_for(self._embedder.name)
        if not self._collection.spec.later_replaces:
            fitted = replace(fitted, weights=replace(fitted.weights, first_plain=NO_ORDER))
        found = await self._ranking(wanted, mode, query, vector, facts, k, fitted)
        columns, query, ranked = found.columns, found.query, found.ranked
        chosen = (
            _Chosen(found.best, found.best)
            if stage is None
            else await self._reranked(stage, wanted, columns, found.best)
        )
        chosen.interval = found.interval
        if wanted.evidence:
            chosen.evidence = evidence_of(columns, has_vector=vector is not None)
        if columns.degraded is not None:
            chosen.warnings.append({"code": SearchIndexUnavailable.code, "detail": columns.degraded})
        scores = as_short(ranked.score.take(chosen.scores[: wanted.k]))
        best = chosen.order[: _at_least(scores, wanted.min_score)]
        beside = _partners(columns, found.findable, best) if wanted.partners else {}
        again = {} if wanted.once is None else repeated(columns, found.findable, best, found.statements)
        named = [index for one in again.values() for index in one.others] if wanted.explain else []
        documents = await self._documents(
            columns, [*best, *beside.values(), *named], {**found.documents, **chosen.documents}
        )
        others = {index: [documents[one].doc for one in rest] for index, *rest in found.statements}
        hits = [
            Hit(
                one.doc,
                one.derived,
                score,
                partner.doc if (partner := documents.get(beside.get(index, -1))) else None,
                explained(ranked, columns, query, fitted.weights, index, chosen.reranked.get(index))
                if wanted.explain
                else None,
                repeated=again[index].shown(documents, self._collection.id_field if wanted.explain else None)
                if index in again
                else None,
                others=others.get(index, ()),
            )
            for index, score in zip(best, scores[: len(best)], strict=True)
            if (one := documents.get(index))
        ]
        return hits, _weights(columns, query) if wanted.partners else {}, chosen

    async def _said_again(
        self, wanted: RetrievalQuery, columns: Columns, best: Sequence[int], documents: dict[int, Fetched]
    ) -> list[list[int]]:
        """Returns those of the best documents that say the same, the newest first, and adds to `documents` what was
        read. Empty where texts are not compared."""
        spec = self._collection.spec
        if wanted.once is None or wanted.interval is not None or not spec.said_with:
            return []
        groups = suspects(columns, best, of_days=wanted.once == "each day")
        if not groups:
            return []
        documents |= await self._documents(columns, [index for group in groups for index in group], documents)
        texts = {
            index: (spec.text(one.doc), [one.doc.get(name) for name in spec.said_with])
            for index, one in documents.items()
        }
        return same_statements(columns, groups, texts)

    async def _left_out(self, columns: Columns, best: Sequence[int]) -> list[int]:
        """Returns the indices of documents that no search finds (`SearchSchema.left_out`)."""
        spec = self._collection.spec
        if spec.left_out is None:
            return []
        asked = [index for index in best if columns.flags[index] & spec.may_be_left_out == spec.may_be_left_out]
        documents = await self._documents(columns, asked, {})
        return [index for index, one in documents.items() if spec.left_out(one.doc)]

    async def _documents(
        self, columns: Columns, indices: Sequence[int], known: Mapping[int, Fetched]
    ) -> dict[int, Fetched]:
        """Returns the documents that still exist and that the caller may see, by index."""
        missing = [index for index in dict.fromkeys(indices) if index not in known]
        if not missing:
            return dict(known)
        found = await self._store.fetch(self._collection, self._scope.tenant, columns.rows.take(missing))
        pairs = zip(missing, found, strict=True)
        return {**known, **{index: one for index, one in pairs if one is not None and self._scope.sees(one.doc)}}

    async def _reranked(self, stage: SecondStage, wanted: RetrievalQuery, columns: Columns, best: list[int]) -> _Chosen:
        """Reorders the first part of `best` by the reranker.

        The reranker receives only texts that the caller may see.
        """
        started = time.perf_counter()
        candidates, rest = best[: stage.depth(wanted.k)], best[stage.depth(wanted.k) :]
        documents = await self._documents(columns, candidates, {})
        placed = [index for index in candidates if index in documents]
        if len(placed) < 2:
            return _Chosen(best, best, documents)
        texts = [self._collection.spec.text(documents[index].doc) for index in placed]
        try:
            with span("search reranking", {"recalld.search.candidates": len(texts)}):
                scores = await stage.scores(wanted.query, texts, wanted.rerank_seconds)
        except RerankingFailed as error:
            detail = f"{error} The hits are in the order of the first stage."
            warning: Doc = {"code": FIRST_ORDER_STANDS, "detail": detail}
            return _Chosen(best, best, documents, seconds=time.perf_counter() - started, warnings=[warning])
        order = [placed[place] for place in best_first(scores)]
        return _Chosen(
            [*order, *rest],
            [*placed, *rest],
            documents,
            dict(zip(placed, scores, strict=True)),
            time.perf_counter() - started,
        )


def _ranked(  # noqa: PLR0913 (what a ranking depends on)
    columns: Columns,
    query: QueryText,
    mode: Mode,
    decay: DecayCurve,
    wanted: RetrievalQuery,
    interval: TimeInterval | None,
    k: int,
    fitted: ModelWeights,
) -> tuple[Ranked, list[int]]:
    """Returns the ranking and the best `k` documents with distinct contents."""
    first = max(8 * k, 2 * COMPARED)
    ranking = partial(
        rank,
        columns,
        query,
        mode,
        wanted.now_ms,
        fitted.weights,
        decay,
        interval=None if interval is None else (interval.start, interval.end),
        calibration=fitted.calibration,
    )
    ranked = ranking(first=first)
    best = top(ranked, columns, k)
    if len(best) < k and len(ranked.order) >= first:  # too many documents have equal content
        ranked = ranking()
        best = top(ranked, columns, k)
    return ranked, best


def _at_least(scores: Sequence[float], least: float) -> int:
    """Returns how many of the falling `scores` are at least `least`."""
    return len(scores) if least <= 0 else sum(score >= least for score in scores)


def _partners(columns: Columns, findable: Bools, best: Sequence[int]) -> dict[int, int]:
    """Returns the index of each hit's partner, by the hit's index, for hits that have one."""
    found: dict[int, int] = {}
    questions = columns.flags & IS_QUESTION != 0
    for index in best:
        before, after = int(columns.previous[index]), int(columns.following[index])
        partner = after if questions[index] else before if before >= 0 and questions[before] else -1
        if partner >= 0 and findable[partner]:
            found[index] = partner
    return found


def _weights(columns: Columns, query: QueryText) -> dict[int, float]:
    """Returns the weight of each word of the query, of itself: an identifier's parts, without the identifier."""
    weights, _ = term_weights(columns)
    of_words = weights[:, 0] if columns.emphasis is None else weights[:, 0] / columns.emphasis
    found = zip(query.terms.tolist(), of_words.tolist(), strict=True)
    return {term: weight for term, weight in found if term not in query.wholes}
