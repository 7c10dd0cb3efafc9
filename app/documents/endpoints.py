"""HTTP endpoints of documents."""

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.errors import BODY, problems
from app.api.strict import Answer, InListing, StrictRequest, StrictRoute, answer, etag, object_in_query
from app.audit.trail import Actor
from app.auth.dependencies import get_caller, header
from app.core.schemas import Identifier, Page
from app.documents import schemas
from app.documents.service import DocumentService
from app.errors import UnsupportedMediaType
from app.writes.executor import InPrecondition, Writer, quota_of


async def document_service(request: Request) -> DocumentService:
    resources, principal = get_caller(request)
    quota = quota_of(resources.settings.quotas, principal.scope.tenant)
    return DocumentService(resources.store, principal.scope, resources.clock, quota)


Documents = Annotated[DocumentService, Depends(document_service)]


router = APIRouter(prefix="/v1/documents", tags=["documents"], route_class=StrictRoute)

FILES = {router.prefix: schemas.MAX_BYTES}
"""Paths that take a file, with the bytes that it may have."""
DocumentId = Annotated[Identifier, Path(examples=["doc_01a2003d395076f9a13acea58faaf745"])]
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]{1,40})")
_FILE = {
    "requestBody": {
        "description": "The file as it is, at most 10 MB. Content-Type is one of "
        + ", ".join(schemas.MEDIA_TYPES)
        + "; or "
        "application/octet-stream where the ending of `name` says it (`.md`, `.txt`, `.html`, `.pdf`). Text is UTF-8, "
        "unless it says otherwise: `text/plain; charset=iso-8859-1`.",
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("", status_code=202, responses=problems(409, 412, *BODY), openapi_extra=_FILE)
async def create_document(
    request: StrictRequest,
    documents: Documents,
    write: Writer,
    name: Annotated[schemas.DocumentName, Query(description="Of the same owner: this file replaces the one before.")],
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
    metadata: Annotated[
        str | None, Query(max_length=8_192, description='A JSON object, as `{"topic": "billing"}`.')
    ] = None,
) -> Answer[schemas.DocumentAccepted]:
    """Remember a file: Markdown, text, HTML or PDF. Its passages become memories of the type `document`.

    The answer is the operation that reads it. A file under the same name and owner replaces the one before; passages
    that are in both keep their ids."""
    about = {} if metadata is None else object_in_query("metadata", metadata)
    sent = (header(request, b"content-type") or "").lower()
    media_type, charset = sent.partition(";")[0].strip(), _CHARSET.search(sent)
    if media_type in schemas.UNNAMED:
        media_type = schemas.ENDINGS.get(name.rpartition(".")[2].lower(), media_type)
    if charset is not None and media_type.startswith("text/"):  # `file -bi` says of a PDF `charset=binary`
        try:
            "a".encode(charset[1])
        except (LookupError, UnicodeError):  # `hex` and `zlib` are names of codecs, but of no text
            raise UnsupportedMediaType(
                f"Send a charset that is an encoding of text, such as utf-8 or iso-8859-1, not {charset[1]}."
            ) from None
    upload = await documents.receive(agent_id, user_id, media_type, request.stream())
    accepted = None
    try:
        if request.secrets != "off":
            request.screen({"metadata": about})
        accepted = await write(
            lambda: documents.create(name, agent_id, user_id, media_type, charset and charset[1], about, upload),
            file=upload.digest,
        )
    finally:
        if accepted is None or "Idempotency-Replayed" in accepted.headers:
            await documents.drop(upload.id)
    return accepted


@router.get("", responses=problems())
async def list_documents(
    documents: Documents,
    listing: InListing,
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
    name: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
) -> Answer[Page[schemas.Document]]:
    """List the documents, newest first."""
    return answer(await documents.page({"agent_id": agent_id, "user_id": user_id, "name": name}, listing))


@router.get("/{document_id}", responses=problems(404))
async def get_document(document_id: DocumentId, documents: Documents) -> Answer[schemas.Document]:
    """Get a document: whether it was read, and how many passages it has."""
    document = await documents.get(document_id)
    return answer(document, {"ETag": etag(document)})


@router.delete("/{document_id}", status_code=204, response_class=Response, responses=problems(404, 412))
async def delete_document(
    document_id: DocumentId, request: Request, documents: Documents, write: Writer, precondition: InPrecondition
) -> Response:
    """Delete a document and its passages."""
    principal = get_caller(request)[1]
    actor = Actor(principal.scope.tenant, principal.key_id, "delete_document")
    return await write(lambda: documents.delete(document_id, actor, precondition))
