"""Files of a user."""

import json
from collections.abc import AsyncIterator

from recalld_client import _generated as models
from recalld_client._async.pages import items
from recalld_client._generated import AsyncOperations


class AsyncUserDocuments:
    """Files that one agent has of one user. `AsyncUserMemory.documents` makes it."""

    def __init__(self, client: AsyncOperations, user_id: str, agent_id: str) -> None:
        self.client, self.user_id, self.agent_id = client, user_id, agent_id

    async def add(
        self, name: str, content: bytes | str, *, media_type: str | None = None, metadata: models.Json | None = None
    ) -> models.DocumentAccepted:
        """Sends a file, for example ("manual.pdf", Path("manual.pdf").read_bytes()); the same name replaces it.

        Without `media_type` the ending of the name says what it is. The answer is the operation that reads the file.
        Raises Problem.
        """
        return await self.client.create_document(
            content.encode() if isinstance(content, str) else content,
            media_type or "application/octet-stream",
            name=name,
            agent_id=self.agent_id,
            user_id=self.user_id,
            metadata=None if metadata is None else json.dumps(metadata),
        )

    async def get(self, document_id: str) -> models.Document:
        """A document: whether it was read, and how many passages it has. Raises Problem, 404 if there is none."""
        return await self.client.get_document(document_id)

    async def operation(self, document: models.DocumentAccepted | models.Document) -> models.Operation:
        """The operation that reads the file, as it is now. Raises Problem."""
        return await self.client.get_operation(document["operation_id"])

    def all(self, name: str | None = None) -> AsyncIterator[models.Document]:
        """All documents, or the one of this name; newest first, fetched page by page."""
        return items(self.client.list_documents, agent_id=self.agent_id, user_id=self.user_id, name=name)

    def __aiter__(self) -> AsyncIterator[models.Document]:
        return self.all()

    async def delete(self, document_id: str) -> None:
        """Deletes a document and its passages. Raises Problem, 404 if there is none."""
        await self.client.delete_document(document_id)
