"""The retriever: finds documents of any searched collection for a query.

    retriever = Retriever(store, scope, embedder, MEMORIES)
    result = await retriever.find(RetrievalQuery("Where do I live?", partitions, where, now_ms, k=10))

`Retriever._find` has the steps in their order:

1. read the scope: its size, its speakers, the names of each entity ("Bob" and "Robert")
2. analyse the query (`query.py`), and embed it
3. search the store: columns of all documents of the scope, with a mask of those that match (`_search`)
4. settle the query: which of its words count in this scope (`query.py`)
5. rank by features (`ranking.py`)
6. look for repetitions among the first hits (`repetition.py`); if there are any, leave one document of each and rank
   again
7. order the first hits among themselves, with what their texts tell, and make probabilities (`ranking.py`)
8. rerank the first hits, where a second stage is set
9. read the documents of the hits
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Generic, Literal, NamedTuple, NotRequired, Protocol

import numpy as np
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import shown
from app.core.tracing import span
from app.core.work import SEARCH_UNITS, SEARCHED_PER_UNIT, charge, taken_by
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.embedding.reranking import RerankingFailed, SecondStage, best_first
from app.errors import EmbeddingUnavailable, SearchIndexUnavailable
from app.metrics import SEARCH_SECONDS
from app.retrieval.calibration import QueryEvidence, asks_of, evidence_of
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve
from app.retrieval.features import MINUTE_MS, importance_at, plain_memories, term_weights
from app.retrieval.model_weights import LIKE_A_MEMORY, OF_KIND, ModelWeights, weights_for
from app.retrieval.query import (
    AnalysedQuery,
    SettledQuery,
    adapted_to_model,
    along,
    analyse_off_loop,
    find_corrections,
    leading_part,
    looked_for,
    negation_of,
    settle,
    towards_what_is_denied,
    with_names,
)
from app.retrieval.ranking import (
    NO_ORDER,
    Explanation,
    FirstHits,
    Ranked,
    SearchMode,
    as_short,
    by_features,
    different_matches,
    explained,
    finish,
    first_hits,
    same_subject,
    top,
    turned,
)
from app.retrieval.repetition import (
    COMPARED,
    ROUNDS,
    Repetition,
    merged,
    repetitions_among,
    repetitions_of_hits,
    said_once,
    suspects,
)
from app.retrieval.time_expressions import TimeInterval, names_no_subject
from app.storage.protocol import Fetched, Store
from app.storage.records import damage_warnings
from app.storage.schema import Collection, Filter, R
from app.storage.scope import Partition, Scope
from app.storage.search import Bools, Columns, Floats, Ints, Memo, NameSource, ScopeOverview, SearchQuery
from app.storage.text import HAS_EVENT_TIME, IS_QUESTION


@shown
class SearchWarning(TypedDict):
    """What an answer goes without."""

    code: Annotated[
        str,
        Field(
            description="`embedding_unavailable`: the search went by words alone. `reranker_unavailable`: the hits are "
            "in the order of the first stage. `search_index_unavailable`: the index of a large scope could not be "
            "used, and all its records were compared. `record_damaged`: a stored record cannot be read and is left out."
        ),
    ]
    detail: str


@shown
class TookMs(TypedDict):
    embed: float
    search: float
    rerank: Annotated[
        NotRequired[float | None],
        Field(default=None, description="Of the second stage; absent where there was none."),
    ]
    total: float


@shown
class HowSearched(TypedDict):
    """What every answer of a search has beside its items."""

    mode_used: Annotated[
        SearchMode,
        Field(
            description="`text` where the search was to be hybrid and the embedding model did not answer: then a "
            "score is that of the words alone (BM25)."
        ),
    ]
    warnings: Annotated[
        list[SearchWarning], Field(description="What the search went without; empty where it lacked nothing.")
    ]
    asks: Annotated[
        float | None,
        Field(
            description="The probability that the query asks for anything that memory may have: near 0 for "
            '"thanks, see you tomorrow!", however high the scores are. null where nothing tells: in the modes `vector` '
            "and `text`, with a model that has no numbers for it, and where nothing is stored."
        ),
    ]
    took_ms: TookMs


ReplacementKind = TypeAliasType("ReplacementKind", Literal["memory", "fact"])


@shown
class Replacement(TypedDict):
    """A later statement that replaces a memory, as a language model has judged."""

    kind: ReplacementKind
    id: str
    quote: Annotated[str, Field(description="What it says instead.")]
    replaced: Annotated[str, Field(description="What the memory says that no longer holds.")]
    said_at: Annotated[str, Field(description="When the later statement was made.")]


BY_WORDS_ALONE: SearchWarning = {
    "code": EmbeddingUnavailable.code,
    "detail": "The embedding model does not answer. This search went by words alone, not by meaning.",
}
"""Warning of a hybrid search that had no vector of the query."""

RERANKER_UNAVAILABLE = "reranker_unavailable"
"""Code of the warning of a search whose hits are in the order of the first stage, since reranking failed."""

READ_AT_ONCE = 500
"""So many documents are read together for `RetrievalQuery.keep`, a filter that the store cannot decide."""

HitMask = Callable[[Columns, Floats], Bools]
"""Takes the columns and each document's current importance, and returns a mask of shape (n,)."""


class DecaySource(Protocol):
    """Provides the decay of a scope's memories, from the settings of their agents."""

    async def of_all(self, agents: Sequence[str | None], columns: Columns) -> DecayCurve:
        """Returns one decay curve for all documents, with arrays where the agents' settings differ."""
        ...


@dataclass(slots=True)  # not frozen: a frozen dataclass takes five times as long to create
class RetrievalQuery(Generic[R]):
    """The input of the retriever.

    Three filters decide which documents match, before anything is ranked or cut to `k`: `where` is asked of the store,
    `mask` of what is computed for the search (importance, cosines), and `keep` of the whole document.
    """

    query: str
    partitions: tuple[Partition, ...]
    where: Filter
    now_ms: int
    k: int
    mode: SearchMode = "hybrid"
    mask: HitMask | None = None
    keep: Callable[[R], bool] | None = None
    """Takes a document. Every document that passes `where` and `mask` is read for it."""
    decays: DecaySource | None = None
    explain: bool = False
    by_cosine: bool = False
    """True if the mask reads cosines. The query is then embedded in every mode."""
    least_importance: float = 0.0
    """The minimum importance of the mask. The store may leave out documents that never had so much."""
    min_score: float = 0.0
    """Minimum score of the hits of a hybrid search.

    A value above 0 requires the vector: without it the score is no probability.
    """
    vector_seconds: float | None = None
    """Maximum wait of a hybrid search for the query's vector. None: as long as the embedder takes."""
    rerank_seconds: float | None = None
    """Maximum wait of a hybrid search for the second stage. None: the limit in the settings."""
    interval: TimeInterval | None = None
    """The time interval that the query names. If it can be read in two ways, the times of the documents decide."""
    known_at: str | None = None
    """The time (RFC 3339) as of whose knowledge two names are of the same entity; None: now."""
    partners: bool = False
    """Fetches each hit's partner: the answer to a question, or the question before an answer."""
    evidence: bool = False
    """Fills the fields `evidence` and `weights` of the result."""
    merge_repetitions: Literal["always", "within a day"] | None = None
    """Whether texts that say the same are one hit: `always`, or if they are `within a day`. With None, and if the query
    names a time, each of them is a hit."""


class Hit(NamedTuple, Generic[R]):
    """A record that was found, with its score and, if the query asks for them, its partner and its explanation."""

    doc: R
    derived: Memo
    """Results that were computed from the record."""
    score: float
    partner: R | None = None
    """The answer to a question, or the question before an answer."""
    explanation: Explanation | None = None
    """The features of which the score is made."""
    replaced_by: Sequence[Replacement] = ()
    """The later statements that replace what the record says."""
    repeated: Repetition | None = None
    """How often it was said; None: once."""
    others: Sequence[R] = ()
    """The records that say the same, for which this hit stands."""


@dataclass(frozen=True, slots=True)
class RetrievalResult(Generic[R]):
    """The output of the retriever."""

    hits: list[Hit[R]]
    took_ms: TookMs
    """The milliseconds of the steps: `embed` (the query's vector), `rerank` if there was a second stage, `search`
    (everything else), and `total`."""
    mode_used: SearchMode = "hybrid"
    warnings: list[SearchWarning] = field(default_factory=list)
    weights: Mapping[int, float] = field(default_factory=dict)
    """BM25 weight of each query term in the scope, by term id, if the query asked for `evidence`. Rare terms weigh
    more."""
    interval: TimeInterval | None = None
    """The time interval of the query, in the reading that was taken."""
    evidence: QueryEvidence | None = None
    """How much of the query the scope has, if the query asked for it."""
    asks: float | None = None
    """The probability that the query asks for anything that memory may have; None: nothing tells."""

    def how(self) -> HowSearched:
        """Returns the fields that every search response has beside its items."""
        asks = None if self.asks is None else round(self.asks, 3)
        warnings = [*self.warnings, *damage_warnings()]
        return {"mode_used": self.mode_used, "warnings": warnings, "asks": asks, "took_ms": self.took_ms}


@dataclass(slots=True)
class _RankedScope(Generic[R]):
    """The documents of a scope, ranked."""

    columns: Columns
    query: SettledQuery
    interval: TimeInterval | None
    ranked: Ranked
    best: list[int]
    """Indices of the hits, best first."""
    findable: Bools
    """Mask of the documents that matched, including those for which another document of a repetition stands."""
    repetitions: list[list[int]]
    """Lists of indices of documents that say the same. The first document of a list stands for all."""
    documents: Mapping[int, Fetched[R]]
    """The documents that were read so far, by index."""


@dataclass(slots=True)
class _FinalOrder(Generic[R]):
    """The hits after the second stage, as indices."""

    order: list[int]
    """Best first."""
    score_sources: list[int]
    """For each place, the index of the document whose score is shown there.

    The second stage changes the order of the documents but not the scores of the places. The scores therefore stay
    probabilities that fall from hit to hit.
    """
    documents: Mapping[int, Fetched[R]]
    """The documents that were read so far, by index."""
    reranked: Mapping[int, float] = field(default_factory=dict)
    """The reranker's own score, by index."""
    seconds: float | None = None
    """Duration of the second stage; None if there was none."""
    warnings: Sequence[SearchWarning] = ()


class Retriever(Generic[R]):
    """Searches one collection within one scope."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        embedder: Embedder,
        collection: Collection[R],
        second_stage: SecondStage | None = None,
        names: NameSource | None = None,
    ) -> None:
        """Creates a retriever. `second_stage` reranks the first hits of hybrid searches. `names` knows the names of
        entities: a query for "Bob" finds documents about "Robert", too."""
        self._store, self._scope, self._embedder, self._collection = store, scope, embedder, collection
        self._second_stage, self._names = second_stage, names

    async def find(self, wanted: RetrievalQuery[R]) -> RetrievalResult[R]:
        """Returns the hits, best first, and the time that each step took.

        If the query of a hybrid search cannot be embedded, the search falls back to mode `text` and adds a warning.
        Raises EmbeddingUnavailable instead if the mode is `vector`, if the mask reads cosines, or if `min_score` is
        set: no filter is relaxed.
        """
        name = self._collection.name
        attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": name}
        with span(f"retrieval {name}", attributes) as open_span:
            result = await self._find(wanted)
            open_span.set(
                {
                    "recalld.search.mode": wanted.mode,
                    "recalld.search.k": wanted.k,
                    "recalld.search.mode_used": result.mode_used,
                    "recalld.search.hits": len(result.hits),
                }
            )
            return result

    async def _find(self, wanted: RetrievalQuery[R]) -> RetrievalResult[R]:
        started = time.perf_counter()
        wanted.query = leading_part(wanted.query)
        # one after the other: in a store that answers from memory, gathering both costs more than either of them
        overview = await self._store.scope_overview(self._collection, self._scope.tenant, wanted.partitions)
        names: Sequence[Sequence[str]] = ()
        if self._names is not None and overview.count:
            names = await self._names.groups(self._scope, wanted.partitions, wanted.known_at)
        charge(SEARCH_UNITS + overview.count / SEARCHED_PER_UNIT)
        if not overview.count:
            interval = None if wanted.interval is None else replace(wanted.interval, empty=True)
            return RetrievalResult([], _took(started, 0.0, None), wanted.mode, interval=interval)

        with span("search analysis"):
            query = adapted_to_model(self._embedder.name, await analyse_off_loop(wanted.query, overview.speakers))
            if names:
                query = with_names(query, wanted.query, names)
        embedding = time.perf_counter()
        with span("search embedding"):
            vector = await self._vector(wanted, query)
        embedding = time.perf_counter() - embedding
        mode, warnings = wanted.mode, list[SearchWarning]()
        if vector is None and mode == "hybrid":
            mode, warnings = "text", [BY_WORDS_ALONE]

        second_stage = self._second_stage if mode == "hybrid" else None
        ranked_k = wanted.k if second_stage is None else max(wanted.k, second_stage.depth(wanted.k))
        fitted = weights_for(self._embedder.name)
        if not self._collection.spec.later_replaces:
            calibration = replace(fitted.calibration, of_kind=OF_KIND.get(self._collection.name, LIKE_A_MEMORY))
            fitted = replace(fitted, weights=replace(fitted.weights, first_plain=NO_ORDER), calibration=calibration)
        ranked = await self._search_and_rank(wanted, mode, query, vector, overview, ranked_k, fitted)
        columns = ranked.columns
        if second_stage is None:
            final: _FinalOrder[R] = _FinalOrder(ranked.best, ranked.best, ranked.documents)
        else:
            final = await self._reranked(second_stage, wanted, ranked)
        warnings += final.warnings
        if columns.degraded is not None:
            warnings.append({"code": SearchIndexUnavailable.code, "detail": columns.degraded})
        hits = await self._hits(wanted, ranked, final, fitted)
        took = _took(started, embedding, final.seconds)
        SEARCH_SECONDS.observe(took["search"] / 1_000)  # of an empty scope there is no search
        return RetrievalResult(
            hits,
            took,
            mode,
            warnings,
            _word_weights(columns, ranked.query) if wanted.evidence else {},
            ranked.interval,
            evidence_of(columns, ranked.query, fitted.asks) if wanted.evidence else None,
            asks_of(columns, ranked.query, ranked.ranked.query_features, fitted.asks),
        )

    async def _vector(self, wanted: RetrievalQuery, query: AnalysedQuery) -> Vectors | None:
        """Returns the query's vector, or None if there is none and the search can do without it.

        The vector of a negated query ("What does she not eat?") is moved towards what is denied in a hybrid search, but
        not where the mask reads cosines. Raises EmbeddingUnavailable if the search needs the vector.
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

    async def _search_and_rank(
        self,
        wanted: RetrievalQuery[R],
        mode: SearchMode,
        query: AnalysedQuery,
        vector: Vectors | None,
        overview: ScopeOverview,
        k: int,
        fitted: ModelWeights,
    ) -> _RankedScope[R]:
        """Searches, settles the query and ranks. An engine that returns only candidates is asked for more if too many
        of these say the same."""
        spare = 0
        while True:
            columns, corrections, decay = await self._search(wanted, mode, query, vector, overview, spare)
            columns, interval = with_plans(columns, wanted.now_ms, wanted.interval)
            subject = True
            if interval is None or not interval.empty:
                subject = not names_no_subject(wanted.query, "" if interval is None else interval.words)
            columns, settled = settle(columns, query, corrections, subject=subject)
            if vector is not None:
                settled.along = along(vector, self._embedder.name)
                settled.negation = negation_of(vector, self._embedder.name)
            with span("search ranking", {"recalld.search.candidates": len(columns.rows)}):
                ranked = await self._rank_scope(wanted, mode, columns, settled, decay, interval, k, fitted)
            surplus = sum(len(repetition) - 1 for repetition in ranked.repetitions)
            if columns.complete or surplus <= spare or different_matches(ranked.columns, mode) >= wanted.k:
                return ranked
            spare = surplus

    async def _rank_scope(
        self,
        wanted: RetrievalQuery[R],
        mode: SearchMode,
        columns: Columns,
        query: SettledQuery,
        decay: DecayCurve,
        interval: TimeInterval | None,
        k: int,
        fitted: ModelWeights,
    ) -> _RankedScope[R]:
        """Ranks, reads the first hits, and ranks again without repetitions of other documents. At most `ROUNDS` times
        what comes in their place is read, too. What the texts tell of the first hits goes into their order."""
        # a prompt compares the sentences of all its entries later, so that its search need not read 250 documents
        compared = COMPARED if wanted.merge_repetitions == "within a day" else max(COMPARED, 2 * k)
        comparing = wanted.merge_repetitions is not None and wanted.interval is None and self._collection.spec.said_with
        rounds = ROUNDS if comparing else 0
        findable, repetitions, known = columns.matched, list[list[int]](), set[int]()
        documents: Mapping[int, Fetched[R]] = {}
        times = () if interval is None else interval.readings
        while True:
            ranked = _by_features(wanted, mode, columns, query, decay, times, k, fitted)
            without = set[int]()
            first = top(ranked, columns, compared) if rounds else []
            while rounds and not known.issuperset(first):
                new, documents = await self._repetitions(wanted, columns, first, known, documents)
                known.update(first)
                if not new:
                    break
                # of "Likes oat milk in coffee" and "likes oat milk in her coffee." only the newest stays
                repetitions, rounds = merged(columns, repetitions, new), rounds - 1
                without.update(columns.content[[index for _, *others in repetitions for index in others]].tolist())
                first = top(ranked, columns, compared, without)
            if not without:
                break
            columns = said_once(columns, repetitions)
        if mode == "hybrid":
            hits = first_hits(columns, query, ranked.score, ranked.order, fitted.weights, ranked.other_parts)
            if hits.replaced or hits.alike:
                documents = await self._compare(wanted, columns, ranked, hits, documents)
            finish(ranked, columns, query, hits, wanted.now_ms, fitted.weights, times, fitted.calibration)
        return _RankedScope(columns, query, interval, ranked, top(ranked, columns, k), findable, repetitions, documents)

    async def _search(
        self,
        wanted: RetrievalQuery[R],
        mode: SearchMode,
        query: AnalysedQuery,
        vector: Vectors | None,
        overview: ScopeOverview,
        spare: int,
    ) -> tuple[Columns, Mapping[int, int], DecayCurve]:
        """Returns the columns of a search that was deep enough for `k + spare` hits; the corrections of typing errors,
        as the id of the term that was looked for by the id of the query's term, which the scope does not have; and the
        decay of the documents."""
        search_query = SearchQuery(
            self._scope.tenant,
            wanted.partitions,
            wanted.where,
            vector,
            self._embedder.name,
            query.terms,
            spelled=query.spelled,
            least_importance=wanted.least_importance,
            overview=overview,
        )
        corrections: Mapping[int, int] = {}
        passing: dict[int, bool] = {}
        while True:
            columns = await self._store.search(self._collection, search_query)
            if columns.close and not corrections and (corrections := find_corrections(columns, query)):
                search_query.terms, search_query.spelled = looked_for(query, corrections), {}
                continue
            decay = DEFAULT_DECAY
            if wanted.decays is not None:
                decay = await wanted.decays.of_all(overview.agents, columns)
            if wanted.mask is not None:
                mask = wanted.mask(columns, importance_at(columns, wanted.now_ms, decay))
                columns = replace(columns, matched=columns.matched & mask)
            if wanted.keep is not None:
                rows = columns.rows[columns.matched]
                passing |= await self._passing(rows[~np.isin(rows, [*passing])], wanted.keep)
                matched = columns.matched.copy()
                matched[columns.matched] = [passing[row] for row in rows.tolist()]
                columns = replace(columns, matched=matched)
            if columns.complete or different_matches(columns, mode) >= wanted.k + spare:
                return columns, corrections, decay
            search_query.depth += 1

    async def _passing(self, rows: Ints, keep: Callable[[R], bool]) -> dict[int, bool]:
        """Returns for each row whether its document passes the filter `keep`."""
        passing: dict[int, bool] = {}
        for start in range(0, len(rows), READ_AT_ONCE):
            part = rows[start : start + READ_AT_ONCE]
            fetched = await self._store.fetch(self._collection, self._scope.tenant, part)
            passes = await taken_by(lambda document: document is not None and keep(document.doc), fetched)
            passing |= zip(part.tolist(), passes, strict=True)
        return passing

    async def _repetitions(
        self,
        wanted: RetrievalQuery[R],
        columns: Columns,
        first: Sequence[int],
        known: set[int],
        documents: Mapping[int, Fetched[R]],
    ) -> tuple[list[list[int]], Mapping[int, Fetched[R]]]:
        """Returns lists of documents of `first` that say the same, the newest first, and `documents` with the documents
        that were read to compare them. `known`: those that were compared with each other before."""
        spec = self._collection.spec
        groups = suspects(columns, first, of_days=wanted.merge_repetitions == "within a day")
        groups = [group for group in groups if not known.issuperset(group)]
        if not groups:
            return [], documents
        suspected = [index for group in groups for index in group]
        documents = await self._documents(columns, [*suspected, *first[: wanted.k]], documents)  # one reading for both
        texts = {
            index: (spec.text(documents[index].doc), [documents[index].doc.get(name) for name in spec.said_with])
            for index in suspected
            if index in documents
        }
        return repetitions_among(columns, groups, texts), documents

    async def _compare(
        self,
        wanted: RetrievalQuery[R],
        columns: Columns,
        ranked: Ranked,
        first: FirstHits,
        documents: Mapping[int, Fetched[R]],
    ) -> Mapping[int, Fetched[R]]:
        """Notes what the texts of the first hits tell: which ones later ones replace, and which have the words of the
        query the other way round. Returns `documents` with those that were read for it."""
        indices = [index for pair in (*first.replaced, *first.alike) for index in pair]
        documents = await self._documents(
            columns, [*indices, *ranked.order[: wanted.k].tolist()], documents
        )  # one reading for both
        texts = {index: self._collection.spec.text(documents[index].doc) for index in indices if index in documents}
        first.replaced = [
            (earlier, later)
            for earlier, later in first.replaced
            if earlier in texts and later in texts and same_subject(texts[earlier], texts[later], wanted.query)
        ]
        first.turned = [
            index
            for group in first.alike
            for index in turned({index: texts[index] for index in group if index in texts}, wanted.query)
        ]
        return documents

    async def _reranked(self, stage: SecondStage, wanted: RetrievalQuery[R], ranked: _RankedScope[R]) -> _FinalOrder[R]:
        """Reorders the first hits by the reranker.

        The reranker receives only texts that the caller may see.
        """
        started = time.perf_counter()
        best, depth = ranked.best, stage.depth(wanted.k)
        documents = await self._documents(ranked.columns, best[:depth], ranked.documents)
        placed = [index for index in best[:depth] if index in documents]
        if len(placed) < 2:
            return _FinalOrder(best, best, documents)
        texts = [self._collection.spec.text(documents[index].doc) for index in placed]
        try:
            with span("search reranking", {"recalld.search.candidates": len(texts)}):
                scores = await stage.scores(wanted.query, texts, wanted.rerank_seconds)
        except RerankingFailed as error:
            detail = f"{error} The hits are in the order of the first stage."
            warning: SearchWarning = {"code": RERANKER_UNAVAILABLE, "detail": detail}
            return _FinalOrder(best, best, documents, seconds=time.perf_counter() - started, warnings=[warning])
        return _FinalOrder(
            [*(placed[place] for place in best_first(scores)), *best[depth:]],
            [*placed, *best[depth:]],
            documents,
            dict(zip(placed, scores, strict=True)),
            time.perf_counter() - started,
        )

    async def _hits(
        self, wanted: RetrievalQuery[R], scope: _RankedScope[R], final: _FinalOrder[R], fitted: ModelWeights
    ) -> list[Hit[R]]:
        """Returns the hits with their documents and with the partners and explanations that the query asks for."""
        columns, ranked, id_field = scope.columns, scope.ranked, self._collection.id_field
        scores = as_short(ranked.score.take(final.score_sources[: wanted.k]))
        if wanted.min_score > 0:
            scores = [score for score in scores if score >= wanted.min_score]  # the first few, since scores fall
        best = final.order[: len(scores)]
        partners = _partners(columns, scope.findable, best) if wanted.partners else {}
        repetitions = {}
        if wanted.merge_repetitions is not None:
            repetitions = repetitions_of_hits(columns, scope.findable, best, scope.repetitions)
        repeating: list[int] = []  # an explanation names the documents that say the same
        if wanted.explain:
            repeating = [index for repetition in repetitions.values() for index in repetition.others]
        documents = await self._documents(columns, [*best, *partners.values(), *repeating], final.documents)
        others = {index: [documents[other].doc for other in rest] for index, *rest in scope.repetitions}
        hits = list[Hit[R]]()
        for index, score in zip(best, scores, strict=True):
            document = documents.get(index)
            if document is None:  # deleted since, or the caller may not see it
                continue
            partner = documents.get(partners.get(index, -1))
            explanation = None
            if wanted.explain:
                explanation = explained(ranked, columns, scope.query, fitted.weights, index, final.reranked.get(index))
            repeated = None
            if index in repetitions:
                repeated = repetitions[index].shown(documents, id_field if wanted.explain else None)
            hits.append(
                Hit(
                    document.doc,
                    document.derived,
                    score,
                    None if partner is None else partner.doc,
                    explanation,
                    repeated=repeated,
                    others=others.get(index, ()),
                )
            )
        return hits

    async def _documents(
        self, columns: Columns, indices: Sequence[int], already_read: Mapping[int, Fetched[R]]
    ) -> Mapping[int, Fetched[R]]:
        """Returns `already_read` and the documents of `indices`, by index. A document that was deleted since the
        search, or that the caller may not see, is missing."""
        missing = [index for index in dict.fromkeys(indices) if index not in already_read]
        if not missing:
            return already_read
        fetched = await self._store.fetch(self._collection, self._scope.tenant, columns.rows.take(missing))
        new = {
            index: document
            for index, document in zip(missing, fetched, strict=True)
            if document is not None and self._scope.sees(document.doc)
        }
        return {**already_read, **new}


def with_plans(columns: Columns, now_ms: int, interval: TimeInterval | None) -> tuple[Columns, TimeInterval | None]:
    """Returns the columns in which what lies ahead has the time when it was told, so that no plan counts as the newest,
    and the reading of the interval that counts.

    What lasts, such as a day, has the beginning and end of the day in the query's zone.
    """
    told, starts, ends = columns.told, columns.time, columns.ends
    if told is None or ends is None:
        nothing = np.zeros(len(starts), np.bool_)
        return columns, None if interval is None else interval.settled(starts, starts, columns.matched, nothing)
    minute = now_ms - now_ms % MINUTE_MS + MINUTE_MS

    def known_since() -> Ints:
        ahead = starts > minute
        return np.where(ahead, told, starts) if ahead.any() else starts

    time = columns.derived.get("known since", (starts, told, minute), known_since)  # the same array for a minute
    if interval is not None:
        shift = np.where(ends > starts, interval.offset, 0)
        starts, ends = starts - shift, ends - shift
        own = plain_memories(columns) & (columns.flags & HAS_EVENT_TIME != 0)
        interval = interval.settled(starts, ends, columns.matched, own)
    return replace(columns, time=time, starts=starts, ends=ends), interval


def _by_features(
    wanted: RetrievalQuery,
    mode: SearchMode,
    columns: Columns,
    query: SettledQuery,
    decay: DecayCurve,
    times: Sequence[tuple[int, int]],
    k: int,
    fitted: ModelWeights,
) -> Ranked:
    """Returns the ranking by features, of at least `k` documents with distinct contents."""
    enough = max(8 * k, 2 * COMPARED)
    ranking = partial(by_features, columns, query, mode, wanted.now_ms, fitted.weights, decay, intervals=times)
    ranked = ranking(at_least=enough)
    if len(ranked.order) >= enough and len(top(ranked, columns, k)) < k:  # too many of the first have equal contents
        return ranking()
    return ranked


def _took(started: float, embedding: float, reranking: float | None) -> TookMs:
    """Returns the milliseconds of each step. `embedding`, `reranking`: the seconds of these two steps."""

    def ms(seconds: float) -> float:
        return int(seconds * 1e6) / 1e3

    total = time.perf_counter() - started
    took: TookMs = {
        "embed": ms(embedding),
        "search": ms(total - embedding - (reranking or 0)),
        "total": ms(total),
    }
    if reranking is not None:
        took["rerank"] = ms(reranking)
    return took


def _partners(columns: Columns, findable: Bools, best: Sequence[int]) -> dict[int, int]:
    """Returns the indices of the partners of hits, by the hit's index: after a question the next turn, before another
    turn the question, if there is one."""
    partners: dict[int, int] = {}
    questions = columns.flags & IS_QUESTION != 0
    for index in best:
        before, after = int(columns.previous[index]), int(columns.following[index])
        partner = after if questions[index] else before if before >= 0 and questions[before] else -1
        if partner >= 0 and findable[partner]:
            partners[index] = partner
    return partners


def _word_weights(columns: Columns, query: SettledQuery) -> dict[int, float]:
    """Returns the weight of each word of the query, without its emphasis. Of an identifier the parts have one, "lh" and
    "1234", and the term of the whole, "lh1234", has none."""
    weights, _ = term_weights(columns)
    of_words = weights[:, 0] if columns.emphasis is None else weights[:, 0] / columns.emphasis
    by_term = zip(query.terms.tolist(), of_words.tolist(), strict=True)
    return {term: weight for term, weight in by_term if term not in query.identifiers}
