"""Entities as requests and responses show them: their aliases, and the graph of their facts."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import WHOLE, Count, Flag, Identifier, NextCursor, Owned, Schema, Timestamp, example, shown
from app.facts.conflict_resolution import Cardinality
from app.facts.schemas import FactName

Bound = TypeAliasType("Bound", Literal["nodes", "edges", "time"])
AliasStatus = TypeAliasType("AliasStatus", Literal["active", "proposed", "dismissed"])
AliasListStatus = TypeAliasType("AliasListStatus", Literal["active", "proposed", "dismissed", "any"])
AliasRule = TypeAliasType("AliasRule", Literal["stated", "title", "contains"])


class AliasesCreate(Owned):
    model_config = example({"user_id": "ada", "aliases": ["Ada"]})

    agent_id: Identifier | None = Field(None, description="For the facts of this agent; null: of every agent.")
    user_id: Identifier | None = Field(None, description="For the facts of this user; null: of all the agent's users.")
    aliases: Annotated[list[FactName], Field(min_length=1, max_length=20)] = Field(
        description="Other names of the entity. Compared without regard to case, width and spaces."
    )


class EntityAlias(Schema):
    agent_id: str | None
    user_id: str | None
    name: str = Field(description="The name that it was declared for.")
    alias: str
    status: AliasStatus = Field(description="`active` joins the names; `proposed` and `dismissed` do not.")
    rule: AliasRule = Field(
        description="`stated`: a caller declared it. `title`: one is the other with titles. `contains`: one is the "
        "first or last word of the other, and of no other name."
    )
    created_at: str | None = Field(description="Null for a proposal: it is not stored.")


class AliasList(Schema):
    entity: str = Field(description="The name that stands for the entity.")
    names: list[str] = Field(description="All its names, that one first.")
    items: list[EntityAlias]
    next_cursor: str | None = Field(None, description="Always null: this is all.")
    truncated: Bound | None = Field(
        None, description="The bound that the search for proposals met: then there may be more."
    )


class Contending(Schema):
    predicate: str
    fact_ids: list[str] = Field(description="Facts that cannot be true at the same time of one entity.")


class AliasesChanged(AliasList):
    operation_id: str | None = Field(description="To undo it; null: nothing has changed.")
    contends: list[Contending] = Field(
        description="What is now said twice of the entity. It stays as it is until the next fact, or until a fact is "
        "retracted."
    )


StepDirection = TypeAliasType("StepDirection", Literal["out", "in"])
PathBound = TypeAliasType("PathBound", Literal["nodes", "edges", "time", "paths"])


@shown
class Entity(TypedDict):
    name: Annotated[str, Field(description="As the latest fact has it.")]
    key: Annotated[str, Field(description="What it is compared by.")]
    degree: Annotated[Count, Field(description="Facts that begin or end at it.")]


@shown
class EntityList(TypedDict):
    """Those with the most facts first."""

    items: list[Entity]
    next_cursor: NextCursor
    total: Count
    truncated: Annotated[
        Bound | None, Field(description="The bound that was met: then these are of the facts known last.")
    ]


class Node(Schema):
    name: str
    key: str
    depth: Count = Field(description="Hops from the entity that was asked for.")


class Edge(Schema):
    fact_id: str
    subject: str = Field(description="As the fact has it: an entity may have other names.")
    subject_key: str = Field(description="The key of the entity.")
    predicate: str
    object: str
    object_key: str
    depth: Count = Field(description="The hop that found it.")
    cardinality: Cardinality
    confidence: float
    trust: float
    valid_from: str | None
    valid_until: str | None
    known_from: str
    known_until: str | None


class Neighbors(Schema):
    entity: str
    key: str = Field(description="What it is compared by.")
    nodes: list[Node] = Field(description="Without the entity itself; the nearest first.")
    edges: list[Edge] = Field(description="Both ways; the nearest first.")
    truncated: Bound | None = Field(description="The bound that was met, or null: then nothing is left out.")
    took_ms: float


class GraphStep(Schema):
    predicate: FactName
    direction: StepDirection = Field(
        "out", description="`out`: from the subject to the object. `in`: from the object back to the subject."
    )


PathStep = TypeAliasType("PathStep", FactName | GraphStep)


class GraphQuery(Owned):
    model_config = example(
        {"user_id": "ada", "start": "time-out", "path": [{"predicate": "had", "direction": "in"}, "uses"]}
    )

    start: FactName = Field(description="The name of the entity to begin at.")
    path: Annotated[list[PathStep], Field(min_length=1, max_length=5)] = Field(
        description="The predicates to go along, in order; a text is a step with the direction `out`."
    )
    include_shared: Flag = True
    as_of: Timestamp | None = Field(None, description="True at that time; default: now.")
    known_at: Timestamp | None = Field(None, description="As it was known then; default: now.")
    limit: Annotated[int, Field(strict=True, ge=1, le=1000), WHOLE] = Field(
        100, description="The most entities that are returned."
    )


class ReachedNode(Schema):
    name: str
    key: str


class PathFact(Schema):
    fact_id: str
    subject: str
    predicate: str
    object: str
    confidence: float
    trust: float
    valid_from: str | None
    valid_until: str | None


class GraphPath(Schema):
    node: str = Field(description="The key of the entity at its end.")
    facts: list[PathFact] = Field(description="One for each step.")


class GraphAnswer(Schema):
    nodes: list[ReachedNode] = Field(description="The entities at the end of the path, by key.")
    paths: list[GraphPath] = Field(description="The facts that lead to each of them.")
    truncated: PathBound | None = Field(description="The bound that was met first, or null: then nothing is left out.")
    took_ms: float
