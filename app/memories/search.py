"""Searches of memories: the shapes of requests and responses, and the search, which renders its response as JSON."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import orjson
from pydantic import AfterValidator, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic_core.core_schema import CoreSchema
from typing_extensions import TypeAliasType

from app.core.characters import says_nothing
from app.core.clock import Clock, from_ms, parse_rfc3339, rfc3339, to_ms
from app.core.schemas import (
    COUNT_OF_HITS,
    Flag,
    Identifier,
    Owned,
    Schema,
    Share,
    Timestamp,
    TimeZone,
    TopK,
    example,
)
from app.memories.decays import Decays
from app.memories.models import NO_SMALL_TALK, SMALL_TALK
from app.memories.narrowing import Narrowed, Narrowing
from app.memories.schemas import Memory, MemoryStatus, MemoryText, MemoryType, SearchMode, render, rounded
from app.resources import AccessLog
from app.retrieval.decay import fading_one_by_one
from app.retrieval.retriever import Hit, RetrievalQuery, Retriever
from app.retrieval.time_expressions import TimeInterval, interval_of
from app.storage.repository import unexpired
from app.storage.schema import Absent, And, Doc, Eq, Filter, In, Or, Range, both
from app.storage.scope import Scope, Viewpoint
from app.storage.search import Bools, Columns, Floats
from app.storage.text import content_hash


def _known_field(name: str) -> str:
    if name in Memory.model_fields:
        return name
    nearest = get_close_matches(name[:64], Memory.model_fields, 1, 0)[0]
    raise ValueError(f"a memory has no such field: did you mean `{nearest}`?")


MemoryField = TypeAliasType(
    "MemoryField",
    Annotated[str, AfterValidator(_known_field), Field(json_schema_extra={"enum": [*Memory.model_fields]})],
)


class FoundMemory(Memory):
    """A memory. If the request names `fields`, it has these and its id."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        result = handler(core)
        handler.resolve_ref_schema(result)["required"] = ["memory_id"]
        return result


class SearchRequest(Owned, Narrowed):
    model_config = example({"query": "how do they like answers?", "agent_id": "support", "user_id": "user-456"})
    elsewhere = COUNT_OF_HITS

    query: MemoryText
    include_shared: Flag = Field(
        True, description="With both ids: also what the agent knows for all, and all agents of the user."
    )
    session_id: Identifier | None = None
    memory_types: Annotated[list[MemoryType], Field(min_length=1)] | None = None
    min_importance: Share | None = Field(
        None, description="Least importance at the moment; default: the agent's setting."
    )
    min_score: Share | None = Field(
        None,
        description="Least score. Only with `mode: hybrid`, whose score is a probability; with another mode 422. "
        "503 where the embedding model does not answer.",
    )
    min_trust: Share | None = None
    since: Timestamp | None = Field(None, description="By event_at, else created_at.")
    until: Timestamp | None = Field(None, description="That moment excluded.")
    status: MemoryStatus = "active"
    as_of: Timestamp | None = Field(None, description="True at that time; default: now.")
    now: Timestamp | None = Field(
        None,
        description="The time that fading and expiry are reckoned at, and that times in the query are relative to. "
        "What happened later (`event_at`, else `created_at`) is hidden.",
    )
    timezone: TimeZone | None = None
    top_k: TopK = 10
    mode: SearchMode = "hybrid"
    min_similarity: float | None = Field(None, strict=True, ge=-1, le=1, description="Least cosine.")
    explain: Flag = False
    record_access: Flag = True
    fields: Annotated[list[MemoryField], Field(min_length=1)] | None = Field(
        None, description="Only these fields of each memory come, beside `memory_id`. Default: all."
    )

    @model_validator(mode="after")
    def _scored(self) -> Self:
        if self.min_score is not None and self.mode != "hybrid":
            raise ValueError("min_score needs mode hybrid: the scores of other modes are no probabilities")
        return self


Scores = TypeAliasType("Scores", dict[str, float])


ReplacementKind = TypeAliasType("ReplacementKind", Literal["memory", "fact"])


class Replacement(Schema):
    """A later statement that replaces a memory, as a language model has judged."""

    kind: ReplacementKind
    id: str
    quote: str = Field(description="What it says instead.")
    replaced: str = Field(description="What the memory says that no longer holds.")
    said_at: str = Field(description="When the later statement was made.")


class Repetition(Schema):
    """How often a memory was said: the texts that it stands for are equal, or differ in stop words, case and marks
    alone."""

    count: int = Field(description="The texts that say it, this one included.")
    since: Timestamp = Field(description="The time of the first (`event_at`, else `created_at`).")
    ids: list[str] = Field([], description="With `explain`: the others, the newest 20. Else absent.")


class Found(Schema):
    memory: FoundMemory
    score: float = Field(
        description="`hybrid`: the probability, 0 to 1, that the memory helps to answer the query. `vector`: the "
        "cosine. `text`: BM25."
    )
    replaced_by: list[Replacement] = Field(
        [],
        description="The later statements that replace what the memory says. The memory is active, and stands behind "
        "those of them that were found. Absent where there are none.",
    )
    repeated: Repetition | None = Field(
        None, description="That it was said several times; absent where it was said once. The newest stands for all."
    )
    scores: Scores | None = Field(None, description="With `explain`: what the score is made of.")
    contributions: Scores | None = Field(
        None,
        description="With `explain`: the log-odds that each feature adds in a hybrid search, more is better. `kind`: "
        "what the kind of memory adds. Their sum orders the hits. Features that add nothing are left out.",
    )


class TookMs(Schema):
    embed: float
    search: float
    rerank: float | None = Field(None, description="Of the second stage; absent where there was none.")
    total: float


class SearchWarning(Schema):
    """What an answer goes without."""

    code: str = Field(
        description="`embedding_unavailable`: the search went by words alone. `reranker_unavailable`: the hits are in "
        "the order of the first stage. `search_index_unavailable`: the index of a large scope could not be used, and "
        "all its records were compared."
    )
    detail: str


class HowSearched(Schema):
    mode_used: SearchMode = Field(
        description="`text` where the search was to be hybrid and the embedding model did not answer: then a score is "
        "that of the words alone (BM25)."
    )
    warnings: list[SearchWarning] = Field(description="What the search went without; empty where it lacked nothing.")
    took_ms: TookMs


class UnderstoodTime(Schema):
    """The interval of time that a query speaks of. Memories from then rank higher; none is left out."""

    model_config = ConfigDict(populate_by_name=True)

    from_: str = Field(alias="from")
    until: str = Field(description="That moment excluded.")
    words: str = Field(description="The part of the query that says so.", examples=["last month"])
    empty: bool = Field(description="True if no memory that could be found is from then.")


class Understood(Schema):
    time: UnderstoodTime | None = Field(description="Null where the query speaks of no time.")


class SearchResult(HowSearched):
    items: list[Found]
    understood: Understood | None = Field(
        None,
        description="What was read out of the query: with `explain`, or where nothing is from the time that it names.",
    )


HitOrder: TypeAlias = Callable[[Scope, Viewpoint, Sequence[Hit]], Awaitable[list[Hit]]]
"""Orders hits by what holds, from a viewpoint within a scope."""


class MemoryFragment:
    """A memory serialized once, except for its importance.

    `head` + the importance, rounded to nine digits, + `}` is the JSON of `render(doc, importance)`.
    """

    __slots__ = ("_anchor_ms", "_base", "_pinned", "agent_id", "head")

    def __init__(self, doc: Doc) -> None:
        self.agent_id: str | None = doc["agent_id"]
        self._base, self._anchor_ms, self._pinned = (
            float(doc["base_importance"]),
            to_ms(doc["anchored_at"]),
            doc["pinned"],
        )
        others = render(doc, 0)
        del others["importance"]
        self.head = orjson.dumps(others)[:-1] + b',"importance":'

    def importance(self, faded: Callable[[float, int], float]) -> float:
        """Returns the current importance, rounded. `faded`: the result of `fading_one_by_one` for the agent's decay."""
        return rounded(self._base if self._pinned else faded(self._base, self._anchor_ms))


class MemorySearch:
    """Searches memories for one caller. `order` puts what holds now before what it replaced."""

    def __init__(
        self, lookup: Retriever, scope: Scope, decays: Decays, accesses: AccessLog, clock: Clock, order: HitOrder
    ) -> None:
        self._lookup, self._scope, self._decays = lookup, scope, decays
        self._accesses, self._clock, self._order = accesses, clock, order

    async def search(self, body: SearchRequest) -> bytes:
        """Returns the response as JSON: items best first, how they were ranked, and the time that each step took."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        now_ms = to_ms(now)
        least = body.min_importance
        if least is None:
            least = await self._decays.least_importance(body.agent_id)
        interval = await interval_of(body.query, now, body.timezone)
        where, keep = search_filter(body, rfc3339(now))
        pairs = self._scope.pairs(body.agent_id, body.user_id, body.include_shared)
        retrieved = await self._lookup.find(
            RetrievalQuery(
                query=body.query,
                pairs=pairs,
                where=both(where, _leaves_out(body)),
                keep=keep,
                now_ms=now_ms,
                k=body.top_k,
                mode=body.mode,
                mask=partial(_mask, body, least) if least > 0 or body.min_similarity is not None else None,
                least_importance=least,
                decays=self._decays,
                explain=body.explain,
                by_cosine=body.min_similarity is not None,
                min_score=body.min_score or 0.0,
                interval=interval,
                once="ever",
            )
        )
        hits = _asked_for(body, retrieved.hits)
        if body.mode == "hybrid" and body.status == "active" and interval is None:
            asked = Viewpoint(pairs, body.user_id, body.as_of or rfc3339(now), rfc3339(now))
            hits = await self._order(self._scope, asked, hits)
        if body.record_access and hits:
            self._accesses.note(self._scope.tenant, [hit.doc["memory_id"] for hit in hits])
        memories = await (self._whole(hits, now_ms) if body.fields is None else self._slim(hits, now_ms, body))
        scores = _written([hit.score for hit in hits])
        pieces = [b'{"items":[']
        for hit, memory, score in zip(hits, memories, scores, strict=True):
            why = b"" if hit.explanation is None else b"," + orjson.dumps(hit.explanation)[1:-1]
            replaced = b',"replaced_by":' + orjson.dumps(hit.replaced_by) if hit.replaced_by else b""
            again = b',"repeated":' + orjson.dumps(hit.repeated) if hit.repeated else b""
            pieces += b'{"memory":', memory, b',"score":', score, replaced, again, why, b"},"
        if memories:
            pieces[-1] = b"}"
        interval = retrieved.interval
        told = body.explain or (interval is not None and interval.empty)
        understood = {"understood": _understood(interval)} if told else {}
        pieces += b"],", orjson.dumps(retrieved.how() | understood)[1:]
        return b"".join(pieces)

    async def _whole(self, hits: Sequence[Hit], now_ms: int) -> list[bytes]:
        """Returns the memories as JSON."""
        shown = [hit.derived.once("shown", MemoryFragment, hit.doc) for hit in hits]
        agents = {one.agent_id for one in shown}
        faded = {agent: fading_one_by_one(now_ms, await self._decays.of(agent)) for agent in agents}
        importance = _written([one.importance(faded[one.agent_id]) for one in shown])
        return [one.head + strength + b"}" for one, strength in zip(shown, importance, strict=True)]

    async def _slim(self, hits: Sequence[Hit], now_ms: int, body: SearchRequest) -> list[bytes]:
        """Returns the fields of the memories that the request names as JSON, with the ids."""
        named = {"memory_id", *(body.fields or ())}
        shown = [await self._decays.render_now(hit.doc, now_ms) for hit in hits]
        return [orjson.dumps({name: value for name, value in one.items() if name in named}) for one in shown]


def _understood(interval: TimeInterval | None) -> Doc:
    if interval is None:
        return {"time": None}
    times = {"from": from_ms(interval.start), "until": from_ms(interval.end)}
    return {"time": {**times, "words": interval.words, "empty": interval.empty}}


def _written(numbers: list[float]) -> list[bytes]:
    """Returns each number as JSON. Serializing all together takes a fifth of the time."""
    return orjson.dumps(numbers)[1:-1].split(b",")[: len(numbers)]


def _mask(body: SearchRequest, least: float, columns: Columns, importance: Floats) -> Bools:
    """Returns the mask for filters on computed values. `least`: minimum current importance."""
    mask = np.ones(len(columns.rows), np.bool_)
    if least > 0:
        mask &= importance >= least
    if body.min_similarity is not None:
        mask &= columns.has_vector & (columns.cosine >= body.min_similarity)
    return mask


_NO_START, _NO_END = Absent("valid_from"), Absent("valid_until")


def true_at(moment: str) -> tuple[Filter, Filter]:
    """Returns filters for records that are valid at `moment`.

    Validity intervals include their start and exclude their end.
    """
    return Or((_NO_START, Range("valid_from", le=moment))), Or((_NO_END, Range("valid_until", gt=moment)))


def search_filter(body: SearchRequest, now: str) -> Narrowing:
    """Returns the filter of a request, at the time `now`."""
    moment = now if body.as_of is None else body.as_of
    where, keep = body.narrowing()
    return Narrowing(both(_of_status(body.status), unexpired(now), *true_at(moment), where, *_narrowed(body)), keep)


def _leaves_out(body: SearchRequest) -> Filter | None:
    """Returns the filter that leaves out small talk, or None if the request names the session or is small talk."""
    return None if body.session_id is not None or says_nothing(body.query) else NO_SMALL_TALK


def _asked_for(body: SearchRequest, hits: Sequence[Hit]) -> Sequence[Hit]:
    """Returns the hits without small talk in other words than those of the query."""
    if body.session_id is not None or not any(hit.doc.get("standing") == SMALL_TALK for hit in hits):
        return hits
    same = content_hash(body.query)
    return [hit for hit in hits if hit.doc.get("standing") != SMALL_TALK or hit.doc["content_hash"] == same]


@lru_cache(maxsize=8)
def _of_status(status: str) -> Filter:
    return Eq("status", status)


def _narrowed(body: SearchRequest) -> Iterator[Filter]:
    """Yields the filters that most requests do not use."""
    if body.memory_types is not None:
        yield In("memory_type", tuple(body.memory_types))
    if body.session_id is not None:
        yield Eq("source.session_id", body.session_id)
    if body.min_trust is not None:
        yield Range("trust", ge=body.min_trust)
    if body.since is not None or body.until is not None:
        yield _happened(ge=body.since, lt=body.until)
    if body.now is not None:
        yield _happened(le=body.now)


def _happened(**bounds: str | None) -> Filter:
    """Returns a filter on `event_at`, or on `created_at` for memories without one."""
    return Or((Range("event_at", **bounds), And((Absent("event_at"), Range("created_at", **bounds)))))
