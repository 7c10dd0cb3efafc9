"""Documents and the parts of an upload as they are stored, and as answers show documents."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from typing_extensions import TypeAliasType, TypedDict

from app.core.schemas import Count, Object, shown
from app.documents.extract import HTML, MARKDOWN, PDF, TEXT
from app.jobs.queue import Operation
from app.storage.schema import Collection, OwnedRecord, Unique

MEDIA_TYPES = (MARKDOWN, TEXT, HTML, PDF)
UNNAMED = ("application/octet-stream", "")
"""Of a file whose name says what it is, by one of these endings."""
ENDINGS = {"md": MARKDOWN, "markdown": MARKDOWN, "txt": TEXT, "html": HTML, "htm": HTML, "pdf": PDF}
MAX_BYTES = 10 << 20
"""Of a file."""

DocumentName = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"\S")]
DocumentStatus = TypeAliasType("DocumentStatus", Literal["processing", "ready", "failed"])


@shown
class Document(TypedDict, total=False):
    document_id: str
    agent_id: str | None
    user_id: str | None
    name: str
    media_type: str
    bytes: Count
    metadata: Annotated[Object, Field(description="Each passage has it, too.")]
    status: Annotated[
        DocumentStatus,
        Field(description="`failed`: the file could not be read. The passages of the version before it stay."),
    ]
    error: str | None
    passages: Annotated[Count, Field(description="Memories of the type `document`.")]
    pages: Annotated[Count | None, Field(description="Of a PDF.")]
    empty_pages: Annotated[Count | None, Field(description="Pages of a PDF without text, such as scanned ones.")]
    secrets: Annotated[Count | None, Field(description="Secrets found in its text, such as keys and card numbers.")]
    operation_id: Annotated[str, Field(description="The operation that reads the file.")]
    version: Annotated[int, Field(description="Counts the uploads under this name.")]
    created_at: str
    updated_at: str


@shown
class DocumentAccepted(Operation, total=False):
    document_id: str


class DocumentRecord(Document, OwnedRecord, total=False):
    """A document of the collection `documents`. `upload_id` names the parts of the newest upload, `charset` is that of
    its Content-Type, empty if that names none."""

    upload_id: str
    charset: str


DOCUMENTS: Collection[DocumentRecord] = Collection(
    name="documents",
    kind="document",
    counted=True,
    id_field="document_id",
    fields={"agent_id": "text", "user_id": "text", "name": "text", "created_at": "time"},
    unique=(Unique("name", ("agent_id", "user_id", "name")),),
    indexes=(("user_id",), ("agent_id",)),
    opaque=("metadata",),
    internal=frozenset({"upload_id", "charset"}),
)


class PartRecord(OwnedRecord, total=False):
    """A document of the collection `document_parts`: half a megabyte of a file in base64. It is deleted when the file
    has been read."""

    part_id: str
    upload_id: str
    seq: int
    data: str


PARTS: Collection[PartRecord] = Collection(
    name="document_parts",
    id_field="part_id",
    fields={"agent_id": "text", "user_id": "text", "upload_id": "text", "seq": "number"},
    order="seq",
    indexes=(("upload_id",), ("user_id",)),
    audited=False,
    counted=True,
    only_bytes=True,
)
