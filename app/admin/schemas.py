"""Request and response models of keys and the audit trail."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.core.schemas import WHOLE, Count, Identifier, Schema, example

Verb = Literal["read", "write", "admin"]
RateLimitField = Annotated[
    float, Field(strict=True, ge=0, le=1_000_000, description="0: no limit; null: as the setting says.")
]
Lifetime = Annotated[int, Field(strict=True, ge=1, le=10 * 366 * 86_400, description="In seconds."), WHOLE]
KeyId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", examples=["0123456789abcdef"])]


class KeyCreate(Schema):
    model_config = example({"name": "support bot", "verbs": ["read", "write"], "agents": ["support"]})

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]
    verbs: Annotated[list[Verb], Field(min_length=1, description="Among those of the key that asks.")]
    agents: list[Identifier] = Field([], description="Binds the key to these agents; none: not bound.")
    users: list[Identifier] = Field([], description="Binds the key to these users; none: not bound.")
    expires_in: Lifetime | None = None
    requests_per_second: RateLimitField | None = None


class KeyRotate(Schema):
    model_config = example({"overlap_seconds": 86400})

    overlap_seconds: Annotated[int, Field(strict=True, ge=0, le=90 * 86_400), WHOLE] = Field(
        86_400, description="How long the old key goes on; never longer than it would have."
    )
    expires_in: Lifetime | None = Field(None, description="Of the new key, in seconds; null: as long as the old one's.")


class ApiKey(Schema):
    """A key without its secret."""

    id: KeyId
    tenant: str
    name: str
    verbs: list[Verb]
    agents: list[str]
    users: list[str]
    requests_per_second: float | None
    expires_at: str | None
    revoked_at: str | None
    replaces: str | None = Field(description="The key that this one was made in place of.")
    replaced_by: str | None
    version: Count
    created_at: str
    updated_at: str


class CreatedKey(ApiKey):
    """A new key."""

    key: str | None = Field(description="The whole key, this once: null where the answer comes again.")


class AuditEntry(Schema):
    """Who did what to which records of whom, when; never what is in them."""

    audit_id: str
    key_id: str = Field(description="Of the API key; `anonymous`, `unauthenticated` or `cli` where there was none.")
    action: str = Field(description="The operation's id in this document.", examples=["create_memory"])
    user_id: str | None
    user_hash: str | None = Field(description="In place of the id of a user who was erased.")
    records: list[str] = Field(description="Ids, at most 1,000.")
    changes: dict[str, dict[str, Any]] = Field(description="Counts by collection and kind.")
    created_at: str
