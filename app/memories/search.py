"""The search of memories: it reads the request, has the retriever find, puts what holds now first, and writes the
answer as JSON."""

from collections.abc import Callable, Sequence
from functools import partial

import orjson

from app.core.clock import Clock, from_ms, parse_rfc3339, rfc3339, to_ms
from app.core.work import MOST_ENCODED, characters, in_turn
from app.errors import Forbidden, invalid
from app.memories.decays import Decays
from app.memories.schemas import MEMORIES, MemoryRecord, render, rounded
from app.memories.search_filters import computed_mask, search_filter, small_talk_filter
from app.memories.search_schemas import SearchRequest, Understood, UnderstoodTime
from app.resources import AccessLog, HitOrder
from app.retrieval.decay import fading_one_by_one
from app.retrieval.query_analysis import leading_part
from app.retrieval.retriever import Hit, HowSearched, RetrievalQuery, Retriever
from app.retrieval.time_expressions import TimeInterval, interval_of
from app.storage.protocol import Store
from app.storage.scope import Partition, Scope, Viewpoint


class HowUnderstood(HowSearched):
    """What the response says beside its items, if it says what was read out of the query."""

    understood: Understood


class MemoryFragment:
    """A memory serialized once, except for its importance.

    `head` + the importance, rounded to nine digits, + `}` is the JSON of `render(memory, importance)`.
    """

    __slots__ = ("_anchor_ms", "_base", "_pinned", "agent_id", "head")

    def __init__(self, memory: MemoryRecord) -> None:
        self.agent_id = memory["agent_id"]
        self._base, self._anchor_ms, self._pinned = (
            float(memory["base_importance"]),
            to_ms(memory["anchored_at"]),
            memory["pinned"],
        )
        others = render(memory, 0)
        del others["importance"]
        self.head = orjson.dumps(others)[:-1] + b',"importance":'

    def importance(self, faded: Callable[[float, int], float]) -> float:
        """Returns the current importance, rounded. `faded`: the result of `fading_one_by_one` for the agent's decay."""
        return rounded(self._base if self._pinned else faded(self._base, self._anchor_ms))


MOST_PAIRS, MOST_MEMORIES = 1_000, 100_000
"""Of a search over everyone, which loads them all."""


class MemorySearch:
    """Searches memories for one caller. `order_hits` puts what holds now before what it replaced."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        retriever: Retriever[MemoryRecord],
        decays: Decays,
        accesses: AccessLog,
        clock: Clock,
        order_hits: HitOrder,
    ) -> None:
        self._store, self._scope, self._retriever, self._decays = store, scope, retriever, decays
        self._accesses, self._clock, self._order_hits = accesses, clock, order_hits

    async def search(self, body: SearchRequest) -> bytes:
        """Returns the response as JSON: items best first, how they were ranked, and the time that each step took."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        now_ms = to_ms(now)
        least = body.min_importance
        if least is None:
            least = await self._decays.least_importance(body.agent_id)
        named_time = await interval_of(leading_part(body.query), now, body.timezone)
        wanted = search_filter(body, rfc3339(now)).and_also(small_talk_filter(body))
        pairs = await self._partitions(body)
        retrieved = await self._retriever.find(
            RetrievalQuery(
                query=body.query,
                pairs=pairs,
                where=wanted.where,
                keep=wanted.keep,
                now_ms=now_ms,
                k=body.top_k,
                mode=body.mode,
                mask=partial(computed_mask, body, least) if least > 0 or body.min_similarity is not None else None,
                least_importance=least,
                decays=self._decays,
                explain=body.explain,
                by_cosine=body.min_similarity is not None,
                min_score=body.min_score or 0.0,
                interval=named_time,
                merge_repetitions="always",
            )
        )
        hits: Sequence[Hit[MemoryRecord]] = retrieved.hits
        if retrieved.mode_used == "hybrid" and body.status == "active" and named_time is None:
            viewpoint = Viewpoint(pairs, body.user_id, body.as_of or rfc3339(now), rfc3339(now))
            hits = await self._order_hits(self._store, self._scope, viewpoint, hits)
        if body.record_access and hits:
            self._accesses.note(self._scope.tenant, [hit.doc["memory_id"] for hit in hits])

        # {"items": [{"memory": …, "score": 0.4}, …], "mode_used": …}
        memories = await (self._in_full(hits, now_ms) if body.fields is None else self._fields(hits, now_ms, body))
        scores = _as_json([hit.score for hit in hits])  # few digits each (`as_short` of the ranking)
        items = list[bytes]()
        for hit, memory, score in zip(hits, memories, scores, strict=True):
            replaced = b',"replaced_by":' + orjson.dumps(hit.replaced_by) if hit.replaced_by else b""
            repeated = b',"repeated":' + orjson.dumps(hit.repeated) if hit.repeated else b""
            why = b"" if hit.explanation is None else b"," + orjson.dumps(hit.explanation)[1:-1]
            items.append(b'{"memory":%b,"score":%b%b%b%b}' % (memory, score, replaced, repeated, why))
        answer: HowSearched | HowUnderstood = retrieved.how()
        interval = retrieved.interval
        if body.explain or (interval is not None and interval.empty):
            answer = {**answer, "understood": {"time": None if interval is None else _time_understood(interval)}}
        return b'{"items":[%b],%b' % (b",".join(items), orjson.dumps(answer)[1:])

    async def _partitions(self, body: SearchRequest) -> tuple[Partition, ...]:
        """Returns the partitions to search. Raises Forbidden, and Invalid if there are too many for everyone."""
        if not body.everyone:
            return self._scope.partitions(body.agent_id, body.user_id, body.include_shared)
        if self._scope.agents is not None or self._scope.users is not None:
            raise Forbidden("A key that is bound to agents or users does not search everyone's memory.")
        # by owners, such as 812 of ("support", "ada")
        tallied = await self._store.tally(MEMORIES, self._scope.tenant, ("agent_id", "user_id"))
        if len(tallied) > MOST_PAIRS or sum(tallied.values()) > MOST_MEMORIES:
            raise invalid(
                "/everyone",
                f"goes over {MOST_PAIRS:,} pairs of agent and user and {MOST_MEMORIES:,} memories at most; there are "
                f"{len(tallied):,} and {sum(tallied.values()):,}: name a user_id or an agent_id",
            )
        return tuple(Partition(agent, user) for agent, user in tallied)

    async def _in_full(self, hits: Sequence[Hit[MemoryRecord]], now_ms: int) -> list[bytes]:
        """Returns the memories as JSON."""

        def shown() -> list[MemoryFragment]:
            return [hit.derived.once("shown", MemoryFragment, hit.doc) for hit in hits]

        size = characters(
            [[hit.doc["content"], hit.doc["context"], hit.doc["metadata"]] for hit in hits], most=MOST_ENCODED
        )
        fragments = await in_turn(shown) if size > MOST_ENCODED else shown()
        agents = {fragment.agent_id for fragment in fragments}
        faded = {agent: fading_one_by_one(now_ms, await self._decays.of(agent)) for agent in agents}
        importance = _as_json([fragment.importance(faded[fragment.agent_id]) for fragment in fragments])
        return [fragment.head + number + b"}" for fragment, number in zip(fragments, importance, strict=True)]

    async def _fields(self, hits: Sequence[Hit[MemoryRecord]], now_ms: int, body: SearchRequest) -> list[bytes]:
        """Returns the fields of the memories that the request names as JSON, with the ids."""
        named = {"memory_id", *(body.fields or ())}
        memories = [await self._decays.render_at(hit.doc, now_ms) for hit in hits]
        return [orjson.dumps({name: value for name, value in memory.items() if name in named}) for memory in memories]


def _time_understood(interval: TimeInterval) -> UnderstoodTime:
    return {
        "from": from_ms(interval.start),
        "until": from_ms(interval.end),
        "words": interval.words,
        "empty": interval.empty,
    }


def _as_json(numbers: list[float]) -> list[bytes]:
    """Returns each number as JSON. Serializing all together takes a fifth of the time."""
    return orjson.dumps(numbers)[1:-1].split(b",")[: len(numbers)]  # of no number, `[]`, a split gives one empty part
