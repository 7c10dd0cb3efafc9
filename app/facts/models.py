"""The stored shape of facts and of their groups. `schemas.py` declares their collections."""

from typing import Literal

from typing_extensions import TypeAliasType

from app.facts.conflict_resolution import Cardinality
from app.memories.schemas import Source
from app.storage.schema import OwnedRecord

ObjectType = TypeAliasType("ObjectType", Literal["entity", "literal"])
FactStatus = TypeAliasType("FactStatus", Literal["active", "superseded", "retracted", "disputed"])


class FactRecord(OwnedRecord, total=False):
    """A document of the collection `facts`. `FACTS` explains its internal fields.

    A draft of a fact has the same fields, without those that a span of time and the conflict rules give it.
    """

    fact_id: str
    lineage_id: str
    group_id: str
    subject: str
    subject_key: str
    predicate: str
    predicate_key: str
    object: str
    object_key: str
    object_type: ObjectType
    content_hash: int
    confidence: float
    trust: float
    cardinality: Cardinality
    standing: Literal["held", "disputed"]
    status: FactStatus
    valid_from: str | None
    valid_until: str | None
    known_from: str
    known_until: str | None
    start_assumed: bool
    supersedes: list[str]
    superseded_by: list[str]
    disputes: list[str]
    source: Source
    pending: bool


class FactGroupRecord(OwnedRecord, total=False):
    """A document of the collection `fact_groups`. `FACT_GROUPS` explains its fields."""

    group_id: str
    predicate: str
    predicate_key: str
    known: str
    usual: Cardinality
