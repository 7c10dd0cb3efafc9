"""What is asked of the graph."""

import time
from dataclasses import dataclass

from app.clock import Clock, rfc3339
from app.errors import invalid
from app.facts.models import key_of
from app.facts.query import View
from app.facts.repository import FactRepository
from app.graph.schemas import Edge
from app.graph.walk import Graph
from app.storage.collection import After, Doc
from app.storage.filters import Eq
from app.storage.repository import open_cursor, seal_cursor


@dataclass(frozen=True, slots=True)
class Sight:
    """Whose graph, and in which times: None is now."""

    agent_id: str | None
    user_id: str | None
    include_shared: bool
    as_of: str | None
    known_at: str | None


class GraphService:
    def __init__(self, facts: FactRepository, clock: Clock) -> None:
        self._facts, self._clock = facts, clock

    async def entities(self, sight: Sight, prefix: str, limit: int, cursor: str | None) -> Doc:
        mark = repr((self._facts.scope.tenant, "entities", sight, key_of(prefix)))
        after = None if cursor is None else open_cursor(cursor, mark)
        found, truncated = await self._graph(sight).entities(key_of(prefix))
        places = sorted((-one.degree, key) for key, one in found.items())
        if after is not None:
            places = [place for place in places if place > (after.value, after.id)]
        items = [{"name": found[key].name, "key": key, "degree": -least} for least, key in places[:limit]]
        following = seal_cursor(After(*places[limit - 1]), mark) if len(places) > limit else None
        return {"items": items, "next_cursor": following, "total": len(found), "truncated": truncated}

    async def neighbors(self, sight: Sight, name: str, depth: int, predicate: str | None, max_nodes: int) -> Doc:
        started = time.perf_counter()
        walk = await self._graph(sight, predicate).walk([key_of(name)], depth, max_nodes=max_nodes)
        return {
            "entity": name,
            "nodes": [{"name": one.name, "key": one.key, "depth": one.depth} for one in walk.nodes.values()],
            "edges": [_edge(hop, fact) for hop, fact in walk.edges.values()],
            "truncated": walk.truncated,
            "took_ms": round((time.perf_counter() - started) * 1000, 3),
        }

    def _graph(self, sight: Sight, predicate: str | None = None) -> Graph:
        if sight.agent_id is None and sight.user_id is None:
            raise invalid("/query/user_id", "agent_id, user_id or both are required")
        pairs = self._facts.scope.pairs(sight.agent_id, sight.user_id, sight.include_shared)
        view = View(sight.as_of or rfc3339(self._clock.now()), sight.known_at)
        return Graph(self._facts, pairs, view, None if predicate is None else Eq("predicate_key", key_of(predicate)))


_SHOWN = tuple(name for name in Edge.model_fields if name != "depth")


def _edge(hop: int, fact: Doc) -> Doc:
    return {"depth": hop, **{name: fact[name] for name in _SHOWN}}
