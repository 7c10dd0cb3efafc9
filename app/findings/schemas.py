"""Findings as they are stored, and as responses show them."""

from typing import Annotated, Literal

from pydantic import Field, GetPydanticSchema
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import JsonObject, Share, shown
from app.memories.schemas import EvidenceName, MemoryTypeIn, Source
from app.storage.schema import Collection, OwnedRecord

FindingKind = TypeAliasType(
    "FindingKind", Literal["contradiction", "stale", "insight", "failing_procedure", "merge", "alias"]
)
FindingStatus = TypeAliasType("FindingStatus", Literal["open", "accepted", "dismissed", "settled"])
FindingListStatus = TypeAliasType("FindingListStatus", Literal["open", "accepted", "dismissed", "settled", "any"])
EvidenceKind = TypeAliasType("EvidenceKind", Literal["memory", "fact", "procedure", "action"])
ProposedAction = TypeAliasType("ProposedAction", Literal["supersede", "end", "store", "revise", "none"])


@shown
class RecordName(TypedDict):
    """The name of a record: its kind and its id."""

    kind: EvidenceKind
    id: Annotated[str, Field(description="The id of the record.")]


class QuotedMemory(TypedDict):
    """A memory that an insight cites, with its words."""

    id: str
    quote: str


class ProposalDetails(TypedDict, total=False):
    """What a proposal needs besides the records that it names. `supersede`: `aspect` and `subject`, and of a judge
    `model` and `prompt_version`. `end`: `valid_until`. `store`: `content` to `quotes`. `revise`: `status`."""

    aspect: str
    subject: str
    model: str
    prompt_version: str
    valid_until: str
    content: str
    memory_type: MemoryTypeIn
    quotes: list[QuotedMemory]
    status: Literal["archived"]


@shown
class Proposal(TypedDict):
    """What accepting the finding does."""

    action: Annotated[
        ProposedAction,
        Field(
            description="`supersede`: `keep` replaces `retire`; of a memory that says other things, too, only what is "
            "replaced goes. `end`: `retire` stops being valid. `store`: a memory of `details` is stored. `revise`: a "
            "procedure gets `details`. `none`: nothing changes."
        ),
    ]
    keep: Annotated[RecordName | None, Field(default=None)]
    retire: Annotated[list[RecordName], Field(default=[])]
    details: Annotated[ProposalDetails, Field(default={}), GetPydanticSchema(lambda _, handler: handler(JsonObject))]


@shown
class FindingEvidence(RecordName):
    text: Annotated[
        str | None,
        Field(
            description="What it says; null if it is gone or was changed. What a decided finding retired is neither."
        ),
    ]
    said_at: Annotated[str | None, Field(description="When it was said, or else stored.")]
    trust: Annotated[float | None, Field(default=None, description="How far it is believed.")]
    source: Annotated[
        Source | None, Field(default=None, description="Of a memory or fact: where it comes from; else null.")
    ]
    quote: Annotated[
        str | None,
        Field(default=None, description="The words of it that the finding is about; null if it is about all of it."),
    ]
    shortened: Annotated[
        str | None,
        Field(
            default=None,
            description="What accepting the finding makes of it, if the finding retires it: its text without `quote`. "
            "Null if it says nothing else.",
        ),
    ]


@shown
class ReflectionFinding(TypedDict):
    finding_id: str
    agent_id: str | None
    user_id: str | None
    kind: FindingKind
    status: Annotated[FindingStatus, Field(description="`settled`: its evidence is gone, or was settled elsewhere.")]
    reason: Annotated[str, Field(description="Why it was found.")]
    evidence: list[FindingEvidence]
    proposal: Proposal
    confidence: Annotated[Share, Field(description="How sure the rule or the model is.")]
    trust: Annotated[Share, Field(description="The least trust of the evidence.")]
    operation_id: Annotated[str | None, Field(description="The operation that applied it; it can be undone.")]
    settled_by: Annotated[str | None, Field(description="The API key that settled it, or `policy` or `reflection`.")]
    settled_at: str | None
    version: int
    created_at: str
    updated_at: str


class FindingRecord(OwnedRecord, total=False):
    """A document of the collection `findings`."""

    finding_id: str
    kind: FindingKind
    status: FindingStatus
    reason: str
    evidence: list[EvidenceName]
    proposal: Proposal
    confidence: float
    trust: float
    operation_id: str | None
    settled_by: str | None
    settled_at: str | None


FINDINGS: Collection[FindingRecord] = Collection(
    name="findings",
    kind="finding",
    id_field="finding_id",
    fields={"agent_id": "text", "user_id": "text", "kind": "text", "status": "text", "created_at": "time"},
    indexes=(("user_id", "status"), ("agent_id",), ("status",)),
    selective=("user_id",),
    opaque=("proposal",),
)
"""What reflection found and did not settle by itself, and what became of it.

The id is a hash of the owners, the kind and the evidence, so the same finding is never stored twice, whatever became of
it. A finding names its evidence and stores no text of it: texts are read with the finding, so none outlives its record.
"""


def evidence_names(finding: FindingRecord) -> list[tuple[str, str]]:
    """Returns (kind, id) of each piece of evidence."""
    return [(evidence["kind"], evidence["id"]) for evidence in finding["evidence"]]


def is_doubt(finding: FindingRecord) -> bool:
    """Returns whether a finding says what is uncertain: a judge has found that two records cannot both hold, or two
    facts are in conflict."""
    evidence = finding["evidence"]
    if finding["kind"] not in ("contradiction", "stale") or len(evidence) != 2:
        return False
    return "model" in finding["proposal"]["details"] or all(named["kind"] == "fact" for named in evidence)
