"""Request and response models of learning."""

from typing import Annotated

from pydantic import Field

from app.core.schemas import Count, Owned, Schema, example
from app.memories.schemas import MemoryCreated
from app.sessions.schemas import MessageIn


class ExtractRequest(Owned):
    model_config = example(
        {
            "agent_id": "films",
            "user_id": "user-456",
            "messages": [{"role": "user", "content": "I prefer action movies."}],
        }
    )

    messages: Annotated[list[MessageIn], Field(min_length=1, description="As they were said, at most 500.")]


class Spent(Schema):
    calls: Count
    tokens: Count


class Extracted(Schema):
    items: list[MemoryCreated] = Field(description="Memories that were made, or found to be there already.")
    created: Count
    superseded: Count
    disputed: Count = Field(description="Memories that contradict ones of more trust, or pinned ones.")
    dropped: dict[str, Count] = Field(description="What the model said and was not taken, by reason.")
    llm: Spent
