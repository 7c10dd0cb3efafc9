"""Findings as they are stored, and as responses show them."""

from typing import Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app.core.schemas import Object, Schema, Share
from app.storage.schema import Collection, Doc

FINDINGS = Collection(
    name="findings",
    kind="finding",
    id_field="finding_id",
    fields={"agent_id": "text", "user_id": "text", "kind": "text", "status": "text", "created_at": "time"},
    indexes=(("user_id", "status"), ("agent_id",), ("status",)),
    opaque=("proposal",),
)
"""What reflection found and did not settle by itself, and what became of it.

The id is a hash of the owners, the kind and the evidence, so the same finding is never stored twice, whatever became of
it. A finding names its evidence and stores no text of it: texts are read with the finding, so none outlives its record.
"""

FindingKind = TypeAliasType(
    "FindingKind", Literal["contradiction", "stale", "insight", "failing_procedure", "merge", "alias"]
)
FindingStatus = TypeAliasType("FindingStatus", Literal["open", "accepted", "dismissed", "settled"])
FindingListStatus = TypeAliasType("FindingListStatus", Literal["open", "accepted", "dismissed", "settled", "any"])
EvidenceKind = TypeAliasType("EvidenceKind", Literal["memory", "fact", "profile", "procedure", "action"])
ProposedAction = TypeAliasType("ProposedAction", Literal["supersede", "end", "store", "revise", "none"])


class RecordName(Schema):
    """The name of a record: its kind and its id."""

    kind: EvidenceKind
    id: str = Field(description="The id of the record; of a profile, the name of its field.")


class FindingEvidence(RecordName):
    text: str | None = Field(description="What it says; null if it is gone.")
    said_at: str | None = Field(description="When it was said, or else stored.")
    trust: float | None = Field(None, description="How far it is believed.")


class Proposal(Schema):
    """What accepting the finding does."""

    action: ProposedAction = Field(
        description="`supersede`: `keep` replaces `retire`. `end`: `retire` stops being valid. `store`: a memory of "
        "`details` is stored. `revise`: a procedure gets `details`. `none`: nothing changes."
    )
    keep: RecordName | None = None
    retire: list[RecordName] = []
    details: Object = {}


class ReflectionFinding(Schema):
    finding_id: str
    agent_id: str | None
    user_id: str | None
    kind: FindingKind
    status: FindingStatus = Field(description="`settled`: its evidence is gone, or was settled elsewhere.")
    reason: str = Field(description="Why it was found.")
    evidence: list[FindingEvidence]
    proposal: Proposal
    confidence: Share = Field(description="How sure the rule or the model is.")
    trust: Share = Field(description="The least trust of the evidence.")
    operation_id: str | None = Field(description="The operation that applied it; it can be undone.")
    settled_by: str | None = Field(description="The API key that settled it, or `policy` or `reflection`.")
    settled_at: str | None
    version: int
    created_at: str
    updated_at: str


def evidence_names(finding: Doc) -> list[tuple[str, str]]:
    """Returns (kind, id) of each piece of evidence."""
    return [(one["kind"], one["id"]) for one in finding["evidence"]]


def no_proposal() -> dict[str, Any]:
    """Returns a proposal that changes nothing."""
    return {"action": "none", "keep": None, "retire": [], "details": {}}
