"""The retriever: finds documents of any searched collection for a query.

    retriever = Retriever(store, scope, embedder, MEMORIES)
    result = await retriever.find(RetrievalRequest("Where do I live?", partitions, where, now_ms, k=10))

`scope` is what the caller may see. The query names the partitions of it that are searched: those of the agent "support"
and its user "ann", say. The documents in them are called the searched documents.

The steps, in the order of the data:

1. read the overview of the partitions: how many documents they have, their speakers, the names of each entity ("Bob"
   and "Robert")
2. analyse the query (`query.py`), and embed it
3. search the store: columns of all searched documents, with a mask of those that match
4. settle the query among the searched documents: which reading of its time counts (`time_expressions.py`), and which of
   its words (`query.py`)
5. rank by features (`ranking.py`)
6. look for repetitions among the best `COMPARED` (`first_hits.py`); if there are any, leave one document of each and
   rank again
7. order the first hits, `FIRST` turns and `FIRST` plain memories, among themselves, with what their texts tell
   (`first_hits.py`), and make probabilities (`calibration.py`)
8. rerank the best, as many as the second stage takes (`SecondStage.count`), where one is set
9. read the documents of the hits
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, Generic, Literal, NamedTuple, NotRequired, Protocol

import numpy as np
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.clock import from_ms
from app.core.schemas import Timestamp, shown
from app.core.tracing import span
from app.core.work import SEARCH_UNITS, SEARCHED_PER_UNIT, charge, taken_by
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.embedding.reranking import RerankingFailed, SecondStage, best_first
from app.errors import EmbeddingUnavailable, SearchIndexUnavailable
from app.metrics import SEARCH_SECONDS
from app.retrieval.calibration import QueryEvidence, asks_of, evidence_of, probabilities
from app.retrieval.decay import DEFAULT_DECAY, DecayCurve
from app.retrieval.first_hits import (
    COMPARED,
    NO_ORDER,
    ROUNDS,
    compare_texts,
    first_hits,
    merged,
    order_first_hits,
    repetitions_among,
    repetitions_of_hits,
    said_once,
    suspects,
)
from app.retrieval.model_weights import OF_COLLECTION, weights_for
from app.retrieval.query import (
    AnalysedQuery,
    SettledQuery,
    analyse_off_loop,
    find_corrections,
    leading_part,
    looked_for,
    settle,
    towards_what_is_denied,
    with_names,
)
from app.retrieval.ranking import (
    Explanation,
    Ranked,
    SearchMode,
    as_short,
    by_features,
    explained,
    importance_at,
    top,
    word_weights,
)
from app.retrieval.time_expressions import (
    TimeInterval,
    is_over,
    named_days,
    names_subject,
    settle_time,
    with_named_days,
)
from app.storage.protocol import Fetched, Store
from app.storage.records import damage_warnings
from app.storage.schema import Collection, Filter, R
from app.storage.scope import Partition, Scope
from app.storage.search import Bools, Columns, Floats, Ints, Memo, NameSource, Overview, SearchQuery
from app.storage.text import IS_QUESTION, TermIds


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

MOST_NAMED = 20
"""Others that `explain` names."""
READ_AT_ONCE = 500
"""So many documents are read together for `RetrievalRequest.keep`, a filter that the store cannot decide."""

HitMask = Callable[[Columns, Floats], Bools]
"""Takes the columns and each document's current importance, and returns a mask of shape (n,)."""


class DecaySource(Protocol):
    """Provides the decay of the searched memories, from the settings of their agents."""

    async def of_all(self, agents: Sequence[str | None], columns: Columns) -> DecayCurve:
        """Returns one decay curve for all documents, with arrays where the agents' settings differ."""
        ...


@shown
class Repetition(TypedDict):
    """How often a memory was said: the texts that it stands for are equal, or differ in stop words, case and marks
    alone."""

    count: Annotated[int, Field(description="The texts that say it, this one included.")]
    since: Annotated[
        Timestamp,
        Field(
            description="The time of the first: `event_at`, else `due_at`, `source.said_at`, `created_at`; of what "
            "lies ahead, when it was told."
        ),
    ]
    ids: Annotated[
        NotRequired[list[str]],
        Field(default=[], description="With `explain`: the others, the newest 20. Else absent."),
    ]


@dataclass(slots=True)  # not frozen: a frozen dataclass takes five times as long to create
class RetrievalRequest(Generic[R]):
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
    """Fills the fields `evidence` and `word_weights` of the result."""
    merge_repetitions: Literal["always", "within a day"] | None = None
    """Whether texts that say the same in other words are one hit: `always`, or if they are `within a day`. With None,
    and if the query names a time, each of them is a hit. Equal contents always are one."""


class Hit(NamedTuple, Generic[R]):
    """A record that was found, with its score and, if the request asks for them, its partner and its explanation."""

    doc: R
    memo: Memo
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
    """The records that say the same in other words, for which this hit stands. Those of equal content are not read."""


@dataclass(frozen=True, slots=True)
class RetrievalResult(Generic[R]):
    """The output of the retriever."""

    hits: list[Hit[R]]
    took_ms: TookMs
    """The milliseconds of the steps: `embed` (the query's vector), `rerank` if there was a second stage, `search`
    (everything else), and `total`."""
    mode_used: SearchMode = "hybrid"
    warnings: list[SearchWarning] = field(default_factory=list)
    word_weights: Mapping[int, float] = field(default_factory=dict)
    """BM25 weight of each query term among the searched documents, by term id, if the request asked for `evidence`.
    Rare terms weigh more."""
    interval: TimeInterval | None = None
    """The time interval of the query, in the reading that was taken."""
    evidence: QueryEvidence | None = None
    """How much of the query the searched documents have, if the request asked for it."""
    asks: float | None = None
    """The probability that the query asks for anything that memory may have; None: nothing tells."""

    def how(self) -> HowSearched:
        """Returns the fields that every search response has beside its items."""
        asks = None if self.asks is None else round(self.asks, 3)
        warnings = [*self.warnings, *damage_warnings()]
        return {"mode_used": self.mode_used, "warnings": warnings, "asks": asks, "took_ms": self.took_ms}


@dataclass(slots=True)
class _Outcome(Generic[R]):
    """What a search has come to so far: the ranking of the searched documents, the hits, and what was read of them."""

    columns: Columns
    settled: SettledQuery
    interval: TimeInterval | None
    """The time interval of the query, in the reading that counts."""
    ranked: Ranked
    best: list[int]
    """Indices of the documents that become hits, best first."""
    scored_as: list[int]
    """For each place, the index of the document whose score is shown there.

    The second stage changes the order of the documents but not the scores of the places. The scores therefore stay
    probabilities that fall from hit to hit.
    """
    matched_before: Bools
    """Mask of the documents that matched before `said_once`: with those for which another document stands."""
    repetitions: list[list[int]]
    """Lists of indices of documents that say the same. The first document of a list stands for all."""
    documents: dict[int, Fetched[R]]
    """The documents that were read so far, by index."""
    reranked: Mapping[int, float] = field(default_factory=dict)
    """The score of the second stage, by index."""
    rerank_took: float | None = None
    """How many seconds the second stage took; None: there was none."""


class Retriever(Generic[R]):
    """Searches one collection for one caller, whose `scope` says what the caller may see."""

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
        self._fitted = weights_for(embedder.name)
        if not collection.spec.later_replaces:  # of facts, actions and procedures no later one replaces an earlier one
            self._fitted = replace(self._fitted, weights=replace(self._fitted.weights, first_plain=NO_ORDER))
        # of "action_logs" and "procedures" fewer help than of memories with the same log-odds
        if (of_collection := OF_COLLECTION.get(collection.name)) is not None:
            calibration = replace(self._fitted.calibration, of_collection=of_collection)
            self._fitted = replace(self._fitted, calibration=calibration)

    async def find(self, request: RetrievalRequest[R]) -> RetrievalResult[R]:
        """Returns the hits, best first, and the time that each step took.

        If the query of a hybrid search cannot be embedded, the search falls back to mode `text` and adds a warning.
        Raises EmbeddingUnavailable instead if the mode is `vector`, if the mask reads cosines, or if `min_score` is
        set: no filter is relaxed.
        """
        name = self._collection.name
        attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": name}
        with span(f"retrieval {name}", attributes) as open_span:
            result = await self._find(request)
            open_span.set(
                {
                    "recalld.search.mode": request.mode,
                    "recalld.search.k": request.k,
                    "recalld.search.mode_used": result.mode_used,
                    "recalld.search.hits": len(result.hits),
                }
            )
            return result

    async def _find(self, request: RetrievalRequest[R]) -> RetrievalResult[R]:
        started = time.perf_counter()
        if (part := leading_part(request.query)) is not request.query:  # of a transcript the last turn
            request = replace(request, query=part)  # the caller read its `interval` from the same part
        # one after the other: in a store that answers from memory, gathering both costs more than either of them
        overview = await self._store.overview(self._collection, self._scope.tenant, request.partitions)
        names: Sequence[Sequence[str]] = ()
        if self._names is not None and overview.count:
            names = await self._names.groups(self._scope, request.partitions, request.known_at)
        charge(SEARCH_UNITS + overview.count / SEARCHED_PER_UNIT)
        took: TookMs
        if not overview.count:
            took = {"embed": 0.0, "search": (total := _ms(time.perf_counter() - started)), "total": total}
            interval = None if request.interval is None else replace(request.interval, empty=True)
            return RetrievalResult([], took, request.mode, interval=interval)

        with span("search analysis"):
            analysed = await analyse_off_loop(request.query, overview.speakers)
            if names:
                analysed = with_names(analysed, request.query, names)
        began = time.perf_counter()
        with span("search embedding"):
            vector = await self._vector(request, analysed)
        embed_seconds = time.perf_counter() - began
        warnings: list[SearchWarning] = []
        if vector is None and request.mode == "hybrid":
            request, warnings = replace(request, mode="text"), [BY_WORDS_ALONE]
        outcome = await self._search(request, analysed, vector, overview)
        columns, settled = outcome.columns, outcome.settled
        if (stage := self._stage(request)) is not None:
            warnings += await self._rerank(stage, request, outcome)
        if columns.degraded is not None:
            warnings.append({"code": SearchIndexUnavailable.code, "detail": columns.degraded})
        hits = await self._hits(request, outcome)
        total = time.perf_counter() - started
        search_seconds = total - embed_seconds - (outcome.rerank_took or 0.0)
        took = {"embed": _ms(embed_seconds), "search": _ms(search_seconds), "total": _ms(total)}
        if outcome.rerank_took is not None:
            took["rerank"] = _ms(outcome.rerank_took)
        SEARCH_SECONDS.observe(took["search"] / 1_000)  # where nothing is stored there is no search
        return RetrievalResult(
            hits,
            took,
            mode_used=request.mode,
            warnings=warnings,
            word_weights=word_weights(columns, settled) if request.evidence else {},
            interval=outcome.interval,
            evidence=evidence_of(columns, settled, self._fitted.asks) if request.evidence else None,
            asks=asks_of(columns, settled, outcome.ranked.query_features, self._fitted.asks),
        )

    def _stage(self, request: RetrievalRequest[R]) -> SecondStage | None:
        return self._second_stage if request.mode == "hybrid" else None

    async def _vector(self, request: RetrievalRequest, analysed: AnalysedQuery) -> Vectors | None:
        """Returns the query's vector, or None if there is none and the search can do without it.

        The vector of a negated query ("What does she not eat?") is moved towards what is denied in a hybrid search, but
        not where the mask reads cosines. Raises EmbeddingUnavailable if the search needs the vector.
        """
        if request.mode == "text" and not request.by_cosine:
            return None
        if request.mode != "hybrid" or request.by_cosine:
            return await self._embedder.embed_query(analysed.stripped)
        try:
            seconds = None if request.min_score > 0 else request.vector_seconds
            async with nullcontext() if seconds is None else asyncio.timeout(seconds):
                vector = await self._embedder.embed_query(analysed.stripped)
        except (EmbeddingUnavailable, TimeoutError):
            if request.min_score > 0:
                raise
            return None
        return towards_what_is_denied(vector, self._embedder.name)

    async def _search(
        self,
        request: RetrievalRequest[R],
        analysed: AnalysedQuery,
        vector: Vectors | None,
        overview: Overview,
    ) -> _Outcome[R]:
        """Searches, settles the query and ranks. If the query mistypes words, the store is searched once more, for what
        they stand for. An engine that returns only candidates is asked for more if too few of them match, or too many
        say the same."""
        days = named_days(request.interval)
        day_terms = np.array([term for _, _, term in days], np.uint32)

        def with_days(terms: TermIds) -> TermIds:
            return np.union1d(terms, day_terms) if days else terms

        store_query = SearchQuery(
            self._scope.tenant,
            request.partitions,
            request.where,
            vector,
            self._embedder.name,
            with_days(analysed.terms),
            candidates=True,
            interval=None if request.interval is None else request.interval.span,
            spelled=analysed.spelled,
            least_importance=request.least_importance,
            overview=overview,
        )
        corrections: Mapping[int, int] = {}
        passing: dict[int, bool] = {}  # {17: True, 18: False}: whether `keep` takes the document of a row
        keep = request.keep
        while True:
            columns = await self._store.search(self._collection, store_query)
            columns = with_named_days(columns, store_query.terms, looked_for(analysed, corrections), days)
            if columns.close and not corrections and (corrections := find_corrections(columns, analysed)):
                store_query.terms, store_query.spelled = with_days(looked_for(analysed, corrections)), {}
                continue
            decay = DEFAULT_DECAY
            if request.decays is not None:
                decay = await request.decays.of_all(overview.agents, columns)
            if request.mask is not None:
                columns.matched = columns.matched & request.mask(columns, importance_at(columns, request.now_ms, decay))
            if keep is not None:
                rows = columns.rows[columns.matched].tolist()
                unread = [row for row in rows if row not in passing]
                for start in range(0, len(unread), READ_AT_ONCE):
                    part = unread[start : start + READ_AT_ONCE]
                    fetched = await self._store.fetch(self._collection, self._scope.tenant, np.array(part, np.int64))
                    passes = await taken_by(lambda document: document is not None and keep(document.doc), fetched)
                    passing |= zip(part, passes, strict=True)
                matched = columns.matched.copy()
                matched[columns.matched] = [passing[row] for row in rows]
                columns.matched = matched
            columns, interval = settle_time(columns, request.now_ms, request.interval)
            # "What happened yesterday?" names no subject; if nothing is from then, its words and its vector count
            words = "" if interval is None else interval.words
            subject = (interval is not None and interval.empty) or names_subject(request.query, words)
            columns, settled = settle(columns, analysed, corrections, vector, self._embedder.name, subject=subject)
            with span("search ranking", {"recalld.search.candidates": len(columns.rows)}):
                outcome = await self._rank(request, columns, settled, decay, interval)
            if columns.complete or len(outcome.best) >= request.k:
                return outcome
            store_query.depth += 1

    async def _rank(
        self,
        request: RetrievalRequest[R],
        columns: Columns,
        settled: SettledQuery,
        decay: DecayCurve,
        interval: TimeInterval | None,
    ) -> _Outcome[R]:
        """Ranks, reads the best that may say the same, and ranks again without repetitions of other documents. At most
        `ROUNDS` times what comes in their place is read, too. What the texts tell of the first hits goes into their
        order."""
        spec, fitted = self._collection.spec, self._fitted
        # of a second stage's 50 texts the last may become the first: so many are ranked, also for ten hits
        ranked_k = request.k if (stage := self._stage(request)) is None else max(request.k, stage.count(request.k))
        documents: dict[int, Fetched[R]] = {}
        # a search for 20 compares 40, twice as many. Where a prompt asks ("within a day") 24 are enough, also of 124
        # hits (100 memories and 24 to spare): it compares the sentences of all its entries later
        most_compared = COMPARED if request.merge_repetitions == "within a day" else max(COMPARED, 2 * ranked_k)
        rounds = ROUNDS if request.merge_repetitions is not None and request.interval is None and spec.said_with else 0
        matched_before, compared, left_out_contents = columns.matched, set[int](), set[int]()
        repetitions: list[list[int]] = []
        several_users = len({partition.user for partition in request.partitions} - {None}) > 1
        if several_users:  # equal texts of two users are two hits: those of one are compared by their documents, below
            columns = columns.having(content=np.arange(len(columns.rows)))
        readings = () if interval is None else interval.readings

        def rank(columns: Columns) -> Ranked:
            mode, now_ms, weights = request.mode, request.now_ms, fitted.weights
            return by_features(columns, settled, mode, now_ms, weights, decay, readings, k=ranked_k)

        while True:  # each pass ranks once; the loop inside compares until nothing new takes the place of repetitions
            ranked = rank(columns)
            left_out_contents.clear()  # what an earlier ranking left out no longer matches (`said_once`)
            to_compare = top(ranked.order, columns, most_compared) if rounds else []
            # Of the best, [9, 7, 4], 4 is "Likes oat milk in coffee" and 9, which is newer, "likes oat milk in her
            # coffee.": 9 stands for 4, and [9, 7, 2] are compared next. `compared`: those of any round, {9, 7, 4}
            while rounds and not compared.issuperset(to_compare):
                groups = suspects(columns, to_compare, of_days=request.merge_repetitions == "within a day")
                groups = [group for group in groups if not compared.issuperset(group)]
                compared.update(to_compare)
                if not groups:
                    break
                suspected = [index for group in groups for index in group]
                await self._read(columns, [*suspected, *to_compare[: request.k]], documents)  # one reading for both
                new = repetitions_among(columns, groups, documents, spec)  # [[9, 4], …]: both say the same, 9 is newer
                if not new:
                    break
                # [[9, 4]] and [[12, 9]] become [[12, 9, 4]]; only a round that found some is counted
                repetitions, rounds = merged(columns, repetitions, new), rounds - 1
                others = [index for _, *rest in repetitions for index in rest]
                left_out_contents.update(columns.content[others].tolist())
                to_compare = top(ranked.order, columns, most_compared, left_out_contents)  # with those in their place
            if not left_out_contents:  # no repetition was found among its first: this ranking stands
                break
            columns = said_once(columns, repetitions)
        if settled.subject and settled.order != "latest" and "latest" in ranked.other_parts:
            # asked where I live now, "I used to live in Trier" is the oldest; asked for the latest, times alone count
            compared_in_time = ranked.other_parts["latest"].nonzero()[0].tolist()
            await self._read(columns, [*compared_in_time, *ranked.order[: request.k].tolist()], documents)
            read = [index for index in compared_in_time if index in documents]
            if over := [index for index in read if is_over(spec.text(documents[index].doc))]:
                settled.over = over
                ranked = rank(columns)
        if ranked.query_features is not None:
            first = first_hits(ranked, columns, settled, fitted.weights, several_users=several_users)
            if indices := [index for group in (*first.may_replace, *first.alike) for index in group]:
                await self._read(columns, [*indices, *ranked.order[: request.k].tolist()], documents)
            texts = {index: spec.text(documents[index].doc) for index in indices if index in documents}
            replaced, reversed_words = compare_texts(first, texts, request.query)
            order_first_hits(ranked, columns, first, fitted.weights, replaced, reversed_words)
            # asked in May about October, nothing has happened then yet: only a time that is over can be missed
            when = ranked.other_parts["when"] if readings and readings[0][1] <= request.now_ms else None
            ranked.score = probabilities(
                columns, settled, ranked.score, ranked.query_features, fitted.calibration, when
            )
        best = top(ranked.order, columns, ranked_k)
        scored_as = best  # until a second stage moves some
        return _Outcome(columns, settled, interval, ranked, best, scored_as, matched_before, repetitions, documents)

    async def _rerank(
        self, stage: SecondStage, request: RetrievalRequest[R], outcome: _Outcome[R]
    ) -> Sequence[SearchWarning]:
        """Reorders the best by the reranker, `SecondStage.count` of them. Returns a warning if it fails.

        The reranker receives only texts that the caller may see.
        """
        started, count = time.perf_counter(), stage.count(request.k)
        first, rest = outcome.best[:count], outcome.best[count:]
        await self._read(outcome.columns, first, outcome.documents)
        placed = [index for index in first if index in outcome.documents]
        if len(placed) < 2:
            return ()
        texts = [self._collection.spec.text(outcome.documents[index].doc) for index in placed]
        try:
            with span("search reranking", {"recalld.search.candidates": len(texts)}):
                scores = await stage.scores(request.query, texts, request.rerank_seconds)
        except RerankingFailed as error:
            outcome.rerank_took = time.perf_counter() - started
            detail = f"{error} The hits are in the order of the first stage."
            return [{"code": RERANKER_UNAVAILABLE, "detail": detail}]
        outcome.best, outcome.scored_as = [*(placed[place] for place in best_first(scores)), *rest], [*placed, *rest]
        outcome.reranked, outcome.rerank_took = dict(zip(placed, scores, strict=True)), time.perf_counter() - started
        return ()

    async def _hits(self, request: RetrievalRequest[R], outcome: _Outcome[R]) -> list[Hit[R]]:
        """Returns the hits with their documents and with the partners and explanations that the request asks for."""
        columns, documents, matched_before = outcome.columns, outcome.documents, outcome.matched_before
        scores = as_short(outcome.ranked.score.take(outcome.scored_as[: request.k]))
        if request.min_score > 0:
            scores = [score for score in scores if score >= request.min_score]  # the first few, since scores fall
        best = outcome.best[: len(scores)]
        # {4: 5, 9: 8}: after a question the next turn, before another turn the question, if there is one
        partners: dict[int, int] = {}
        if request.partners:
            is_question = columns.flags & IS_QUESTION != 0
            for index in best:
                before, after = int(columns.previous[index]), int(columns.following[index])
                partner = after if is_question[index] else before if before >= 0 and is_question[before] else -1
                if partner >= 0 and matched_before[partner]:
                    partners[index] = partner
        repeated_by: dict[int, Ints] = {}  # {4: [9, 7]}: the documents 9 and 7 repeat hit 4
        if request.merge_repetitions is not None:
            repeated_by = repetitions_of_hits(columns, matched_before, best, outcome.repetitions)
        to_name = [others[:MOST_NAMED].tolist() if request.explain else [] for others in repeated_by.values()]
        await self._read(columns, [*best, *partners.values(), *chain.from_iterable(to_name)], documents)
        # {4: [the record of 9]}: what was compared is read. 7 is equal to 4, and need not be read
        same_in_other_words = {index: [documents[other].doc for other in rest] for index, *rest in outcome.repetitions}
        hits: list[Hit[R]] = []
        for index, score in zip(best, scores, strict=True):
            document, partner_document = documents.get(index), documents.get(partners.get(index, -1))
            if document is None:  # deleted since, or the caller may not see it
                continue
            explanation = repeated = None
            if request.explain:
                reranked = outcome.reranked.get(index)
                explanation = explained(outcome.ranked, columns, outcome.settled, self._fitted.weights, index, reranked)
            if (repeating := repeated_by.get(index)) is not None:
                since = min(int(columns.time[index]), int(columns.time[repeating[-1]]))
                repeated = Repetition(count=len(repeating) + 1, since=from_ms(since))
                if request.explain:  # it names the documents that say the same
                    named = [documents[other].doc for other in repeating[:MOST_NAMED].tolist() if other in documents]
                    repeated["ids"] = [doc[self._collection.id_field] for doc in named]
            hits.append(
                Hit(
                    document.doc,
                    document.memo,
                    score,
                    None if partner_document is None else partner_document.doc,
                    explanation,
                    repeated=repeated,
                    others=same_in_other_words.get(index, ()),
                )
            )
        return hits

    async def _read(self, columns: Columns, indices: Sequence[int], documents: dict[int, Fetched[R]]) -> None:
        """Adds the documents of `indices` to those that were read before. One that was deleted since the search, or
        that the caller may not see, is missing."""
        missing = [index for index in dict.fromkeys(indices) if index not in documents]
        if missing:
            fetched = await self._store.fetch(self._collection, self._scope.tenant, columns.rows.take(missing))
            documents |= {
                index: document
                for index, document in zip(missing, fetched, strict=True)
                if document is not None and self._scope.sees(document.doc)
            }


def _ms(seconds: float) -> float:
    """Returns milliseconds with three digits."""
    return int(seconds * 1e6) / 1e3
