"""What is known of an entity, and memories related to a memory, as responses show them."""

from typing import Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app.actions.schemas import Action
from app.core.schemas import Count, Schema
from app.facts.alias_schemas import Bound, EntityAlias
from app.facts.schemas import Fact
from app.memories.schemas import Memory
from app.memories.search_schemas import SearchWarning

RelatedReason = TypeAliasType(
    "RelatedReason",
    Literal[
        "supersedes",
        "superseded_by",
        "contradicts",
        "made_from",
        "shared_entity",
        "similar",
        "same_session",
    ],
)


class KnownFacts(Schema):
    items: list[Fact] = Field(description="Those known last first.")
    truncated: bool = Field(description="True if there are more than `limit`.")


class NeighborCount(Schema):
    count: Count = Field(description="Entities that a fact links with this one.")
    truncated: Bound | None = Field(description="The bound that was met: then there are more.")


class Mention(Schema):
    memory: Memory
    names: list[str] = Field(description="The names of the entity that stand in its text.")


class Mentions(Schema):
    items: list[Mention] = Field(description="The latest first.")
    truncated: bool = Field(description="True if there are more than `limit`, or than 500 to look at.")


class EntityActions(Schema):
    items: list[Action] = Field(description="Actions that name it among their entities; the latest first.")
    truncated: bool


class EntityPage(Schema):
    name: str = Field(description="The name that stands for the entity.")
    key: str = Field(description="What it is compared by.")
    names: list[str] = Field(description="All its names, that one first.")
    aliases: list[EntityAlias]
    facts: KnownFacts = Field(description="What is true of it, as subject or object.")
    earlier: KnownFacts = Field(description="What was true of it and is no longer.")
    neighbors: NeighborCount
    memories: Mentions
    actions: EntityActions
    first_seen: str | None = Field(description="When a fact, memory or action of these first named it.")
    last_seen: str | None


class RelatedBecause(Schema):
    reason: RelatedReason
    score: float | None = Field(description="Of `similar`: the cosine of both texts.")
    names: list[str] = Field(description="Of `shared_entity`: the entities that both mention.")


class RelatedMemory(Schema):
    memory: Memory
    reasons: list[RelatedBecause] = Field(description="At least one.")


class RelatedMemories(Schema):
    items: list[RelatedMemory] = Field(
        description="First those that replace, contradict or were made of each other, then by number of reasons and "
        "similarity."
    )
    next_cursor: str | None = Field(None, description="Always null: this is all.")
    warnings: list[SearchWarning]
