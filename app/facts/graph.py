"""The graph of facts: a fact whose object is an entity is an edge. Only the facts are stored."""

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Literal, TypeVar, cast

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core import schemas as core
from app.core.clock import Clock, rfc3339
from app.errors import invalid
from app.facts.aliases import AliasMap, AliasRepository
from app.facts.repository import FactRepository, View, along, of_partitions
from app.facts.schemas import FACTS, Cardinality, FactName, FactRecord, key_of
from app.storage.repository import open_cursor, seal_cursor
from app.storage.schema import After, Eq, Filter, In, both, matches, value_at
from app.storage.scope import Partition

# --- Requests and answers ---------------------------------------------------------------------------------------------

Bound = TypeAliasType("Bound", Literal["nodes", "edges", "time"])
PathBound = TypeAliasType("PathBound", Literal["nodes", "edges", "time", "paths"])
StepDirection = TypeAliasType("StepDirection", Literal["out", "in"])


@core.shown
class Entity(TypedDict):
    name: Annotated[str, Field(description="As the latest fact has it.")]
    key: Annotated[str, Field(description="What it is compared by.")]
    degree: Annotated[core.Count, Field(description="Facts that begin or end at it.")]


@core.shown
class EntityList(TypedDict):
    """Those with the most facts first."""

    items: list[Entity]
    next_cursor: core.NextCursor
    total: core.Count
    truncated: Annotated[
        Bound | None, Field(description="The bound that was met: then these are of the facts known last.")
    ]


@core.shown
class Node(TypedDict):
    name: str
    key: str
    depth: Annotated[core.Count, Field(description="Hops from the entity that was asked for.")]


@core.shown
class Edge(TypedDict):
    fact_id: str
    subject: Annotated[str, Field(description="As the fact has it: an entity may have other names.")]
    subject_key: Annotated[str, Field(description="The key of the entity.")]
    predicate: str
    object: str
    object_key: str
    depth: Annotated[core.Count, Field(description="The hop that found it.")]
    cardinality: Cardinality
    confidence: float
    trust: float
    valid_from: str | None
    valid_until: str | None
    known_from: str
    known_until: str | None


@core.shown
class Neighbors(TypedDict):
    entity: str
    key: Annotated[str, Field(description="What it is compared by.")]
    nodes: Annotated[list[Node], Field(description="Without the entity itself; the nearest first.")]
    edges: Annotated[list[Edge], Field(description="Both ways; the nearest first.")]
    truncated: Annotated[Bound | None, Field(description="The bound that was met, or null: then nothing is left out.")]
    took_ms: float


class GraphStep(core.Schema):
    predicate: FactName
    direction: StepDirection = Field(
        "out", description="`out`: from the subject to the object. `in`: from the object back to the subject."
    )


PathStep = TypeAliasType("PathStep", FactName | GraphStep)


class GraphQuery(core.Owned):
    model_config = core.example(
        {"user_id": "ada", "start": "time-out", "path": [{"predicate": "had", "direction": "in"}, "uses"]}
    )

    start: FactName = Field(description="The name of the entity to begin at.")
    path: Annotated[list[PathStep], Field(min_length=1, max_length=5)] = Field(
        description="The predicates to go along, in order; a text is a step with the direction `out`."
    )
    include_shared: core.Flag = True
    as_of: core.Timestamp | None = Field(None, description="True at that time; default: now.")
    known_at: core.Timestamp | None = Field(None, description="As it was known then; default: now.")
    limit: Annotated[int, Field(strict=True, ge=1, le=1000), core.WHOLE] = Field(
        100, description="The most entities that are returned."
    )


@core.shown
class ReachedNode(TypedDict):
    name: str
    key: str


@core.shown
class PathFact(TypedDict):
    fact_id: str
    subject: str
    predicate: str
    object: str
    confidence: float
    trust: float
    valid_from: str | None
    valid_until: str | None


@core.shown
class GraphPath(TypedDict):
    node: Annotated[str, Field(description="The key of the entity at its end.")]
    facts: Annotated[list[PathFact], Field(description="One for each step.")]


@core.shown
class GraphAnswer(TypedDict):
    nodes: Annotated[list[ReachedNode], Field(description="The entities at the end of the path, by key.")]
    paths: Annotated[list[GraphPath], Field(description="The facts that lead to each of them.")]
    truncated: Annotated[
        PathBound | None, Field(description="The bound that was met first, or null: then nothing is left out.")
    ]
    took_ms: float


# --- Walking ----------------------------------------------------------------------------------------------------------

MAX_EDGES = 2_000
"""The limit of edges that one walk reads and returns."""
MAX_SCANNED = 20_000
"""The limit of facts that a list of entities reads."""
SECONDS = 1.0
"""The time limit of a walk or a list of entities."""
KEYS_AT_ONCE = 100
EDGES_AT_ONCE = 500
MAX_FRONTIER = 1_000
"""The limit of entities that one step of a chain goes on from."""
PATHS_A_NODE = 10
"""The limit of paths that are returned for one entity."""
NO_ALIASES = AliasMap()
T = TypeVar("T")


@dataclass(slots=True)
class Walk:
    """The nodes that a walk reached by distance, and each edge with the hop that found it. `truncated` is the first
    limit that it met."""

    max_nodes: int
    aliases: AliasMap
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[str, tuple[int, FactRecord]] = field(default_factory=dict)
    truncated: Bound | None = None

    def bounded(self, by: Bound) -> None:
        """Records the limit that ended the walk, unless it met one before."""
        self.truncated = self.truncated or by

    def take(self, hop: int, edge: FactRecord, begun: Collection[str]) -> list[str]:
        """Adds an edge. Returns the keys of the entities that it reaches for the first time."""
        ends = {edge["subject_key"]: edge["subject"], edge["object_key"]: edge["object"]}
        fresh = [key for key in ends if key not in begun and key not in self.nodes]
        if edge["fact_id"] in self.edges:
            return []
        if len(self.edges) >= MAX_EDGES or len(self.nodes) + len(fresh) > self.max_nodes:
            self.bounded("edges" if len(self.edges) >= MAX_EDGES else "nodes")
            return []
        self.edges[edge["fact_id"]] = hop, edge
        self.nodes |= {key: {"name": self.aliases.name(key) or ends[key], "key": key, "depth": hop} for key in fresh}
        return fresh


@dataclass(slots=True)
class Chain:
    """Where a chain of predicates leads. For each step: the entities it reaches, each with the facts that lead there
    and the entities from which they do. `names` has a name for each key."""

    aliases: AliasMap
    steps: list[dict[str, list[tuple[str, FactRecord]]]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    truncated: PathBound | None = None

    def bounded(self, by: PathBound) -> None:
        """Records the limit that was met, unless another was met before."""
        self.truncated = self.truncated or by

    def take(self, facts: Sequence[FactRecord], direction: StepDirection) -> list[str]:
        """Adds a step. Returns the keys of the entities that it reaches, in order."""
        reached: dict[str, list[tuple[str, FactRecord]]] = {}
        for fact in facts:
            begin, end, name = fact["subject_key"], fact["object_key"], fact["object"]
            if direction == "in":
                begin, end, name = end, begin, fact["subject"]
            reached.setdefault(end, []).append((begin, fact))
            self.names.setdefault(end, self.aliases.name(end) or name)
        self.steps.append(reached)
        return sorted(reached)

    def paths(self, key: str, step: int = -1) -> Iterator[tuple[FactRecord, ...]]:
        """Yields the paths to an entity of a step, the last one if none is named."""
        at = len(self.steps) + step if step < 0 else step
        for before, fact in self.steps[at][key]:
            for head in self.paths(before, at - 1) if at else ((),):
                yield (*head, fact)


@dataclass(slots=True)
class EntityNode:
    """An entity and the number of its edges."""

    name: str
    degree: int = 0


class Graph:
    """The edges of some partitions in a temporal view. Raises what the store raises."""

    def __init__(
        self,
        facts: FactRepository,
        partitions: Sequence[Partition],
        view: View,
        more: Filter | None = None,
        aliases: AliasMap = NO_ALIASES,
        known: Sequence[FactRecord] | None = None,
    ) -> None:
        """`known`: all facts of the view, where somebody has them already: `facts_at` then reads none."""
        self._facts, self.aliases = facts, aliases
        self._known = known and sorted(known, key=lambda fact: (value_at(fact, FACTS.order), fact["fact_id"]))[::-1]
        self._facts_of = [both(of_partition, view.believed(), more) for of_partition in of_partitions(partitions)]
        self._scopes = [both(scope, Eq("object_type", "entity")) for scope in self._facts_of]

    async def walk(self, keys: Collection[str], depth: int, *, max_nodes: int, seconds: float = SECONDS) -> Walk:
        """Walks from the entities with these keys along edges in both directions, hop by hop. At a limit, returns what
        was read so far."""
        walk, deadline = Walk(max_nodes, self.aliases), time.perf_counter() + seconds
        keys = {self.aliases.root(key) for key in keys}
        frontier = sorted(keys)
        for hop in range(1, depth + 1):
            reached: list[str] = []
            for at in range(0, len(frontier), KEYS_AT_ONCE):
                if time.perf_counter() > deadline:
                    walk.bounded("time")
                    return walk
                for edge in await self._edges_at(frontier[at : at + KEYS_AT_ONCE], walk):
                    reached += walk.take(hop, edge, keys)
            frontier = sorted(reached)
        return walk

    async def _edges_at(self, keys: Sequence[str], walk: Walk) -> list[FactRecord]:
        """Returns the edges that begin or end at these entities, the latest known first."""
        named = tuple(self.aliases.widened(keys))
        sides = [In("subject_key", named), In("object_key", named)]
        filters = [both(scope, side) for scope in self._scopes for side in sides]
        parts = await asyncio.gather(*(self._facts.find(where, limit=EDGES_AT_ONCE) for where in filters))
        if any(len(part) == EDGES_AT_ONCE for part in parts):
            walk.bounded("edges")
        return [self.aliases.resolved(edge) for part in parts for edge in part]

    async def facts_at(self, keys: Sequence[str], most: int) -> dict[str, list[FactRecord]]:
        """Returns the facts of each of these entities, those with a literal as object included: of each side and scope
        the latest known `most`."""
        named = tuple(self.aliases.widened(keys))
        filters = [both(scope, In("subject_key", named)) for scope in self._facts_of]
        filters += [both(scope, In("object_key", named)) for scope in self._scopes]
        if self._known is None:
            parts = await asyncio.gather(*(self._facts.find(where, limit=most) for where in filters))
        else:
            near = [fact for fact in self._known if fact["subject_key"] in named or fact["object_key"] in named]
            parts = [[fact for fact in near if matches(fact, where)][:most] for where in filters]
        facts = {fact["fact_id"]: self.aliases.resolved(fact) for part in parts for fact in part}
        at_entity: dict[str, list[FactRecord]] = {key: [] for key in keys}
        for fact in facts.values():
            for end in {fact["subject_key"], fact["object_key"]} & at_entity.keys():
                at_entity[end].append(fact)
        return at_entity

    async def chain(self, key: str, path: Sequence[GraphStep], seconds: float = SECONDS) -> Chain:
        """Goes from an entity along a chain of predicates. At a limit, returns where the facts lead that were read so
        far."""
        chain, deadline = Chain(self.aliases), time.perf_counter() + seconds
        frontier, read = [self.aliases.root(key)], 0
        for step in path:
            side = "subject_key" if step.direction == "out" else "object_key"
            facts: list[FactRecord] = []
            for at in range(0, len(frontier), KEYS_AT_ONCE):
                if time.perf_counter() > deadline:
                    chain.bounded("time")
                    break
                keys = In(side, tuple(self.aliases.widened(frontier[at : at + KEYS_AT_ONCE])))
                facts += await self._read(both(along(step.predicate), keys), MAX_EDGES - read - len(facts), chain)
            read += len(facts)
            frontier = chain.take(facts, step.direction)
            if len(frontier) > MAX_FRONTIER:
                chain.bounded("nodes")
                frontier = frontier[:MAX_FRONTIER]
        return chain

    async def _read(self, where: Filter, most: int, chain: Chain) -> list[FactRecord]:
        """Returns up to `most` edges that match, of each scope the latest known first."""
        filters = [both(scope, where) for scope in self._scopes]
        parts = await asyncio.gather(*(self._facts.find(narrowed, limit=most + 1) for narrowed in filters))
        facts = [self.aliases.resolved(fact) for part in parts for fact in part]
        if len(facts) > most:
            chain.bounded("edges")
        return facts[:most]

    async def entities(self, prefix: str) -> tuple[dict[str, EntityNode], Bound | None]:
        """Returns entities by key, with the number of edges at each, and the limit that was met. If there are too many
        facts, those known last are counted."""
        deadline, read = time.perf_counter() + SECONDS, 0
        entities: dict[str, EntityNode] = {}
        for scope in self._scopes:
            place = None
            while edges := await self._facts.find(scope, after=place, limit=EDGES_AT_ONCE):
                for edge in edges:
                    self._count(edge, prefix, entities)
                if len(edges) < EDGES_AT_ONCE:
                    break
                read, place = read + len(edges), self._facts.collection.after(edges[-1])
                if read >= MAX_SCANNED or time.perf_counter() > deadline:
                    return entities, "edges" if read >= MAX_SCANNED else "time"
                await asyncio.sleep(0)  # other requests run between batches
        return entities, None

    def _count(self, edge: FactRecord, prefix: str, entities: dict[str, EntityNode]) -> None:
        edge = self.aliases.resolved(edge)
        for key, name in {edge["subject_key"]: edge["subject"], edge["object_key"]: edge["object"]}.items():
            if any(member.startswith(prefix) for member in self.aliases.keys(key)):
                entities.setdefault(key, EntityNode(self.aliases.name(key) or name)).degree += 1


@dataclass(frozen=True, slots=True)
class Sight:
    """The owner of a graph, and its valid time and known time; None is now."""

    agent_id: str | None
    user_id: str | None
    include_shared: bool
    as_of: str | None
    known_at: str | None


class GraphService:
    """Lists entities and walks the graph, within the caller's scope."""

    def __init__(self, facts: FactRepository, clock: Clock) -> None:
        self._facts, self._clock = facts, clock

    async def entities(self, sight: Sight, prefix: str, limit: int, cursor: str | None) -> EntityList:
        """Returns a page of entities, those with the most facts first."""
        request = repr((self._facts.scope.tenant, "entities", sight, key_of(prefix)))
        after = None if cursor is None else open_cursor(cursor, request, int)
        entities, truncated = await (await self.graph(sight)).entities(key_of(prefix))
        places = sorted((-entity.degree, key) for key, entity in entities.items())
        if after is not None:
            places = [place for place in places if place > (after.value, after.id)]
        items: list[Entity] = [
            {"name": entities[key].name, "key": key, "degree": -least} for least, key in places[:limit]
        ]
        following = seal_cursor(After(*places[limit - 1]), request) if len(places) > limit else None
        return {"items": items, "next_cursor": following, "total": len(entities), "truncated": truncated}

    async def neighbors(self, sight: Sight, name: str, depth: int, predicate: str | None, max_nodes: int) -> Neighbors:
        """Returns the nodes and edges within `depth` hops of an entity."""
        started = time.perf_counter()
        graph = await self.graph(sight, predicate)
        walk = await graph.walk([key_of(name)], depth, max_nodes=max_nodes)
        return {
            "entity": name,
            "key": graph.aliases.root(key_of(name)),
            "nodes": [*walk.nodes.values()],
            "edges": [{"depth": hop, **_fields_of(fact, Edge)} for hop, fact in walk.edges.values()],
            "truncated": walk.truncated,
            "took_ms": round((time.perf_counter() - started) * 1000, 3),
        }

    async def query(self, body: GraphQuery) -> GraphAnswer:
        """Returns the entities at the end of a chain of predicates, and the facts that lead to each."""
        started = time.perf_counter()
        sight = Sight(body.agent_id, body.user_id, body.include_shared, body.as_of, body.known_at)
        steps = [GraphStep(predicate=step) if isinstance(step, str) else step for step in body.path]
        chain = await (await self.graph(sight)).chain(key_of(body.start), steps)
        keys = sorted(chain.steps[-1])
        if len(keys) > body.limit:
            chain.bounded("nodes")
        paths: list[GraphPath] = []
        for key in keys[: body.limit]:
            to_key = list(islice(chain.paths(key), PATHS_A_NODE + 1))
            if len(to_key) > PATHS_A_NODE:
                chain.bounded("paths")
            paths += (
                {"node": key, "facts": [_fields_of(fact, PathFact) for fact in path]} for path in to_key[:PATHS_A_NODE]
            )
        return {
            "nodes": [{"name": chain.names[key], "key": key} for key in keys[: body.limit]],
            "paths": paths,
            "truncated": chain.truncated,
            "took_ms": round((time.perf_counter() - started) * 1000, 3),
        }

    async def graph(self, sight: Sight, predicate: str | None = None) -> Graph:
        """Returns the graph of a request, narrowed to one predicate if it is given."""
        if sight.agent_id is None and sight.user_id is None:
            raise invalid("/query/user_id", "agent_id, user_id or both are required")
        partitions = self._facts.scope.partitions(sight.agent_id, sight.user_id, sight.include_shared)
        view = View(sight.as_of or rfc3339(self._clock.now()), sight.known_at)
        every = self._facts.scope.partitions(sight.agent_id, sight.user_id, include_shared=True)
        aliases = await AliasRepository(self._facts.store, self._facts.scope).of_partitions(every, sight.known_at)
        return Graph(self._facts, partitions, view, None if predicate is None else along(predicate), aliases)


def _fields_of(fact: FactRecord, shape: type[T]) -> T:
    """Returns the fields of a fact that the shape has. What a damaged fact lacks is left out."""
    return cast(T, {name: value_at(fact, name) for name in shape.__annotations__ if name in fact})
