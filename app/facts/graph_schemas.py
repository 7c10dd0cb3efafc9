"""Request and response models of the graph."""

from typing import Literal

from pydantic import Field

from app.core.schemas import Count, Page, Schema
from app.facts.conflict_resolution import Cardinality

Bound = Literal["nodes", "edges", "time"]


class Entity(Schema):
    name: str = Field(description="As the latest fact has it.")
    key: str = Field(description="What it is compared by.")
    degree: Count = Field(description="Facts that begin or end at it.")


class EntityList(Page[Entity]):
    """Those with the most facts first."""

    total: Count
    truncated: Bound | None = Field(description="The bound that was met: then these are of the facts known last.")


class Node(Schema):
    name: str
    key: str
    depth: Count = Field(description="Hops from the entity that was asked for.")


class Edge(Schema):
    fact_id: str
    subject: str
    predicate: str
    object: str
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
    nodes: list[Node] = Field(description="Without the entity itself; the nearest first.")
    edges: list[Edge] = Field(description="Both ways; the nearest first.")
    truncated: Bound | None = Field(description="The bound that was met, or null: then nothing is left out.")
    took_ms: float
