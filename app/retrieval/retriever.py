"""The retriever: finds documents of any searched collection for a query."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from app.core.tracing import span
from app.core.work import SEARCH_UNITS, SEARCHED_PER_UNIT, charge
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.embedding.reranking import RerankingFailed, SecondStage, best_first
from app.errors import EmbeddingUnavailable
from app.metrics import SEARCH_SECONDS
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve
from app.retrieval.features import importance_at, term_weights
from app.retrieval.model_weights import ModelWeights, weights_for
from app.retrieval.query_analysis import QueryText, analysed, read_by
from app.retrieval.ranking import Explanation, Mode, Ranked, as_short, explained, rank, top
from app.retrieval.time_expressions import TimeInterval
from app.storage.protocol import Fetched, Store
from app.storage.schema import Collection, Doc, Filter
from app.storage.search import Bools, Columns, Floats, Memo, Partition, Scope, ScopeFacts, SearchQuery
from app.storage.text import IS_QUESTION

BY_WORDS_ALONE: Doc = {
    "code": EmbeddingUnavailable.code,
    "detail": "The embedding model does not answer. This search went by words alone, not by meaning.",
}
"""Warning of a hybrid search that had no vector of the query."""

FIRST_ORDER_STANDS = "reranker_unavailable"
"""Code of the warning of a search that could not be reranked."""

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
    decays: DecaySource | None = None
    explain: bool = False
    by_cosine: bool = False
    """True if the mask reads cosines. The query is then embedded in every mode."""
    min_score: float = 0.0
    """Minimum score of the hits of a hybrid search.

    A value above 0 requires the vector: without it the score is no probability.
    """
    vector_seconds: float | None = None
    """Maximum wait of a hybrid search for the query's vector. None: as long as the embedder takes."""
    rerank_seconds: float | None = None
    """Maximum wait of a hybrid search for the second stage. None: the limit in the settings."""
    interval: TimeInterval | None = None
    """The time interval that the query names."""
    partners: bool = False
    """Fetches each hit's partner: the answer to a question, or the question before an answer."""


class Hit(NamedTuple):
    """A found document with its score and, if asked for, its partner and what the score is made of."""

    doc: Doc
    derived: Memo
    score: float
    partner: Doc | None = None
    explanation: Explanation | None = None


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


class Retriever:
    """Searches one collection within one scope."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        embedder: Embedder,
        collection: Collection,
        second_stage: SecondStage | None = None,
    ) -> None:
        """Creates a retriever. `second_stage` reranks the first hits of hybrid searches."""
        self._store, self._scope, self._embedder, self._collection = store, scope, embedder, collection
        self._second_stage = second_stage

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
        facts = await self._store.scope_facts(self._collection, self._scope.tenant, wanted.pairs)
        charge(SEARCH_UNITS + facts.count / SEARCHED_PER_UNIT)
        hits: list[Hit] = []
        weights: Mapping[int, float] = {}
        reranking: float | None = None
        mode, warnings = wanted.mode, list[Doc]()
        embedded = time.perf_counter()
        if facts.count:
            with span("search analysis"):
                query = read_by(self._embedder.name, await analysed(wanted.query, facts.speakers))
            with span("search embedding"):
                vector = await self._vector(wanted, query)
            if vector is None and mode == "hybrid":
                mode, warnings = "text", [BY_WORDS_ALONE]
            embedded = time.perf_counter()
            hits, weights, chosen = await self._hits(wanted, mode, query, vector, facts)
            reranking, warnings = chosen.seconds, [*warnings, *chosen.warnings]
        ended = time.perf_counter()
        searching = ended - embedded - (reranking or 0)
        SEARCH_SECONDS.observe(searching)
        took = {"embed": embedded - started, "search": searching, "total": ended - started}
        if reranking is not None:
            took["rerank"] = reranking
        return RetrievalResult(
            hits, {name: int(seconds * 1e6) / 1e3 for name, seconds in took.items()}, mode, warnings, weights
        )

    async def _vector(self, wanted: RetrievalQuery, query: QueryText) -> Vectors | None:
        """Returns the query's vector, or None if the search can do without.

        Raises EmbeddingUnavailable if it cannot.
        """
        if wanted.mode == "text" and not wanted.by_cosine:
            return None
        if wanted.mode != "hybrid" or wanted.by_cosine or wanted.min_score > 0:
            return await self._embedder.embed_query(query.stripped)
        try:
            async with asyncio.timeout(wanted.vector_seconds):
                return await self._embedder.embed_query(query.stripped)
        except (EmbeddingUnavailable, TimeoutError):
            return None

    async def _hits(
        self, wanted: RetrievalQuery, mode: Mode, query: QueryText, vector: Vectors | None, facts: ScopeFacts
    ) -> tuple[list[Hit], Mapping[int, float], _Chosen]:
        tenant = self._scope.tenant
        search_query = SearchQuery(tenant, wanted.pairs, wanted.where, vector, self._embedder.name, query.terms)
        columns = await self._store.search(self._collection, search_query)
        decay = DEFAULT_DECAY if wanted.decays is None else await wanted.decays.of_all(facts.agents, columns)
        if wanted.mask is not None:
            columns.matched[:] &= wanted.mask(columns, importance_at(columns, wanted.now_ms, decay))
        stage = self._second_stage if mode == "hybrid" else None
        k = wanted.k if stage is None else max(wanted.k, stage.depth(wanted.k))
        fitted = weights_for(self._embedder.name)
        with span("search ranking", {"recalld.search.candidates": len(columns.rows)}):
            ranked, best = _ranked(columns, query, mode, decay, wanted, k, fitted)
        chosen = _Chosen(best, best) if stage is None else await self._reranked(stage, wanted, columns, best)
        scores = as_short(ranked.score.take(chosen.scores[: wanted.k]))
        best = chosen.order[: _at_least(scores, wanted.min_score)]
        beside = _partners(columns, best) if wanted.partners else {}
        documents = await self._documents(columns, [*best, *beside.values()], chosen.documents)
        hits = [
            Hit(
                one.doc,
                one.derived,
                score,
                partner.doc if (partner := documents.get(beside.get(index, -1))) else None,
                explained(ranked, columns, query, fitted.weights, index, chosen.reranked.get(index))
                if wanted.explain
                else None,
            )
            for index, score in zip(best, scores[: len(best)], strict=True)
            if (one := documents.get(index))
        ]
        return hits, _weights(columns, query) if wanted.partners else {}, chosen

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
    k: int,
    fitted: ModelWeights,
) -> tuple[Ranked, list[int]]:
    """Returns the ranking and the best `k` documents with distinct contents."""
    interval = None if wanted.interval is None else (wanted.interval.start, wanted.interval.end)
    first = 8 * k
    ranking = partial(
        rank,
        columns,
        query,
        mode,
        wanted.now_ms,
        fitted.weights,
        decay,
        interval=interval,
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


def _partners(columns: Columns, best: Sequence[int]) -> dict[int, int]:
    """Returns the index of each hit's partner, by the hit's index, for hits that have one."""
    found: dict[int, int] = {}
    questions = columns.flags & IS_QUESTION != 0
    for index in best:
        before, after = int(columns.previous[index]), int(columns.following[index])
        partner = after if questions[index] else before if before >= 0 and questions[before] else -1
        if partner >= 0 and columns.matched[partner]:
            found[index] = partner
    return found


def _weights(columns: Columns, query: QueryText) -> dict[int, float]:
    weights, _ = term_weights(columns)
    return dict(zip(query.terms.tolist(), weights[:, 0].tolist(), strict=True))
