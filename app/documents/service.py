"""Documents: a file is stored in parts as it arrives, and a job makes memories of its passages."""

import base64
from collections.abc import AsyncIterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from app.audit.trail import Actor, audit_entries
from app.core.clock import Clock, new_id, rfc3339
from app.core.schemas import JsonObject, Page
from app.core.work import in_turn
from app.documents import schemas
from app.errors import TooLarge, UnsupportedMediaType, invalid
from app.jobs import queue
from app.memories.repository import MemoryRepository, of_partition
from app.memories.schemas import MemoryRecord
from app.storage.changes import Change, DeleteWhere, Insert, Update, WithinQuota
from app.storage.protocol import Store
from app.storage.repository import Listing, Repository, having
from app.storage.schema import Eq, both
from app.storage.scope import Scope
from app.writes.executor import Precondition, WriteResult

PART_BYTES = 512 << 10
REMOVED_AT_ONCE = 200


class Upload(NamedTuple):
    """A file that was stored in parts."""

    id: str
    size: int
    digest: bytes


class PassageRepository(MemoryRepository):
    """The passages of documents, which only their document changes."""

    def require_write(self, doc: MemoryRecord) -> None:
        """Raises Forbidden if the document is of others."""
        Repository.require_write(self, doc)


def render(document: schemas.DocumentRecord) -> schemas.Document:
    return schemas.DOCUMENTS.as_record(schemas.DOCUMENTS.public(document))


class DocumentService:
    """The documents that a caller may see."""

    def __init__(self, store: Store, scope: Scope, clock: Clock, quota: WithinQuota | None = None) -> None:
        self._store, self._scope, self._clock = store, scope, clock
        self._quota = [] if quota is None else [quota]
        self._documents = Repository(store, scope, schemas.DOCUMENTS)

    async def receive(self, agent: str | None, user: str | None, media_type: str, body: AsyncIterator[bytes]) -> Upload:
        """Stores a file as it arrives. Raises UnsupportedMediaType,
        TooLarge, QuotaExceeded, Invalid and Forbidden; nothing of the file is left then."""
        self._scope.require_write(agent, user)
        if agent is None and user is None:
            raise invalid("/query/user_id", "agent_id, user_id or both are required")
        if media_type not in schemas.MEDIA_TYPES:
            raise UnsupportedMediaType(
                f"Send the Content-Type {', '.join(schemas.MEDIA_TYPES)}, not {media_type[:64] or 'nothing'}; "
                f"or give `name` an ending: {', '.join(f'.{ending}' for ending in schemas.ENDINGS)}."
            )
        upload_id, size, seq, waiting, digest = new_id("upload"), 0, 0, bytearray(), blake2b(digest_size=16)

        async def store() -> None:
            part: schemas.PartRecord = {
                "tenant_id": self._scope.tenant,
                "part_id": new_id("part"),
                "upload_id": upload_id,
                "agent_id": agent,
                "user_id": user,
                "seq": seq,
                "data": await in_turn(lambda: base64.b64encode(waiting).decode()),
                "created_at": rfc3339(self._clock.now()),
            }
            await self._store.commit([Insert(schemas.PARTS, part), *self._quota])
            waiting.clear()

        try:
            async for piece in body:
                size += len(piece)
                digest.update(piece)
                if size > schemas.MAX_BYTES:
                    raise TooLarge(f"The file is larger than {schemas.MAX_BYTES} bytes.")
                waiting += piece
                if len(waiting) >= PART_BYTES:
                    await store()
                    seq += 1
            if not size:
                raise invalid("", "the body must be the file, and it is empty")
            if waiting:
                await store()
        except BaseException:
            await self.drop(upload_id)
            raise
        return Upload(upload_id, size, digest.digest())

    async def drop(self, upload_id: str) -> None:
        """Deletes the parts of an upload."""
        await self._store.commit([DeleteWhere(schemas.PARTS, self._scope.tenant, Eq("upload_id", upload_id))])

    async def create(
        self,
        name: str,
        agent: str | None,
        user: str | None,
        media_type: str,
        charset: str | None,
        metadata: JsonObject,
        upload: Upload,
    ) -> WriteResult[schemas.DocumentAccepted]:
        """Queues the reading of a stored file, as a new document or as the next version of the one with this name."""
        now, upload_id = self._clock.now(), upload.id
        known = await self._documents.find(both(of_partition(agent, user), Eq("name", name)), limit=1)
        document_id = known[0]["document_id"] if known else new_id("doc")
        payload = {"document_id": document_id, "upload_id": upload_id, "agent_id": agent, "user_id": user}
        operation, queued = queue.start(self._scope, queue.DOCUMENT, payload, now, agent_id=agent, user_id=user)
        fields: schemas.DocumentRecord = {
            "media_type": media_type,
            "charset": charset or "",
            "bytes": upload.size,
            "metadata": metadata,
            "status": "processing",
            "error": None,
            "operation_id": operation["operation_id"],
            "upload_id": upload_id,
        }
        changes: list[Change]
        if known:
            changes = [self._documents.update(known[0], fields, now=rfc3339(now))]
            changes.append(DeleteWhere(schemas.PARTS, self._scope.tenant, Eq("upload_id", known[0]["upload_id"])))
        else:
            document: schemas.DocumentRecord = {
                "tenant_id": self._scope.tenant,
                "document_id": document_id,
                "agent_id": agent,
                "user_id": user,
                "name": name,
                **fields,
                "passages": 0,
                "pages": None,
                "empty_pages": None,
                "secrets": None,
                "version": 1,
                "created_at": rfc3339(now),
                "updated_at": rfc3339(now),
            }
            changes = [self._documents.insert(document)]
        return WriteResult({**operation, "document_id": document_id}, [*changes, *queued], 202)

    async def page(self, filters: Mapping[str, str | None], listing: Listing) -> Page[schemas.Document]:
        """Returns a page of the documents whose fields equal the filters. None: any value."""
        return await self._documents.listed(
            having(filters, *filters), listing, render, schemas.Document, request=filters
        )

    async def get(self, document_id: str) -> schemas.Document:
        """Returns a document. Raises NotFound."""
        return render(await self._documents.get(document_id))

    async def delete(self, document_id: str, actor: Actor, precondition: Precondition) -> WriteResult[None]:
        """Deletes the passages of a document in steps, then the document. After an error the same call continues."""
        document = await self._documents.get(document_id)
        self._documents.require_write(document)
        precondition.check(document)
        tenant, memories = self._scope.tenant, PassageRepository(self._store, self._scope)
        # a job that reads it stops at its next commit
        await self._store.commit([Update(schemas.DOCUMENTS, tenant, document_id, set={"upload_id": new_id("upload")})])
        find = partial(memories.find, Eq("document_id", document_id), limit=REMOVED_AT_ONCE)
        while passages := await find():
            removal = memories.remove(passages)
            await self._store.commit([*removal, *audit_entries(actor, removal, rfc3339(self._clock.now()))])
        parts = DeleteWhere(schemas.PARTS, tenant, Eq("upload_id", document["upload_id"]))
        return WriteResult(None, [parts, self._documents.delete(document)], 204)
