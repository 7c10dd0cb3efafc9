"""Aliases of entities as requests and responses show them."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app.core.schemas import Identifier, Owned, Schema, example
from app.facts.schemas import Bound, FactName

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
