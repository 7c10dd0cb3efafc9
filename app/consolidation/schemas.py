"""Learning on the wire."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from app.memories.schemas import MemoryCreated
from app.schemas import Count, Identifier, Schema
from app.sessions.schemas import MessageIn


class ExtractRequest(Schema):
    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "agent_id": "films",
                    "user_id": "user-456",
                    "messages": [{"role": "user", "content": "I prefer action movies."}],
                }
            ]
        }
    }

    messages: Annotated[list[MessageIn], Field(min_length=1, description="As they were said, at most 500.")]
    agent_id: Identifier | None = None
    user_id: Identifier | None = None

    @model_validator(mode="after")
    def _owned(self) -> Self:
        if self.agent_id is None and self.user_id is None:
            raise ValueError("agent_id, user_id or both are required")
        return self


class Spent(Schema):
    calls: Count
    tokens: Count


class Extracted(Schema):
    items: list[MemoryCreated] = Field(description="Memories that were made, or found to be there already.")
    created: Count
    superseded: Count
    dropped: dict[str, Count] = Field(description="What the model said and was not taken, by reason.")
    llm: Spent
