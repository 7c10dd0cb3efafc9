"""The body of a request to reflect."""

from typing import Annotated

from pydantic import Field, StringConstraints

from app.core.schemas import Flag, Identifier, Schema, example


class ReflectRequest(Schema):
    model_config = example({"agent_id": "support", "user_id": "ada", "dry_run": True})

    agent_id: Identifier | None = Field(None, description="Only what is of this agent.")
    user_id: Identifier | None = Field(None, description="Only what is of this user.")
    focus: Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"\S")] | None = Field(
        None, description="Only findings that have one of these words."
    )
    dry_run: Flag = Field(False, description="Only say how much would be found.")
