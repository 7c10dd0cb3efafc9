"""What Recalld knows of a user, as LangChain's retriever."""

from typing import Any, Self, cast

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from pydantic import Field, model_validator
from recalld_client import AsyncUserMemory, Hit, UserMemory, models


class RecalldRetriever(BaseRetriever):
    """Finds the memories that help with a query, best first.

    memory: `Recalld().user("ada", agent="support")`. async_memory: the same of `AsyncRecalld`, for `ainvoke`; without
    it `ainvoke` runs in a thread. k: how many documents at most, 1 to 100; one call takes `invoke(query, k=1)`, too.
    options: fields of a search, such as
    `{"tags": ["project"]}` or `{"min_score": 0.2}`.

    A document has the memory's content, its id, and as metadata what the memory's own metadata has, and beside that
    `score` (the probability that it helps, 0 to 1), `memory_type`, `tags`, `created_at` and `event_at`.

    Raises Problem and Unreachable of the client, TypeError where the memory that a method needs was not given.
    """

    memory: UserMemory | None = None
    async_memory: AsyncUserMemory | None = None
    k: int = Field(default=5, ge=1, le=100)
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_a_memory(self) -> Self:
        if self.memory is None and self.async_memory is None:
            raise ValueError("Give memory=, async_memory= or both.")
        return self

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain's signature
        k: int | None = None,
    ) -> list[Document]:
        if self.memory is None:
            raise TypeError("`invoke` needs memory=, a user of Recalld; with async_memory= alone use `ainvoke`.")
        return [_document(hit) for hit in self.memory.search(query, limit=k or self.k, **self._options())]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        if self.async_memory is None:
            return await run_in_executor(
                None, self._get_relevant_documents, query, run_manager=run_manager.get_sync(), k=k
            )
        return [_document(hit) for hit in await self.async_memory.search(query, limit=k or self.k, **self._options())]

    def _options(self) -> models.SearchOptions:
        return cast(models.SearchOptions, self.options)  # pydantic cannot check a TypedDict of Python 3.11


def _document(hit: Hit) -> Document:
    memory = hit["memory"]
    about = {name: memory.get(name) for name in ("memory_type", "tags", "created_at", "event_at")}
    metadata = {**about, "score": hit["score"], **memory["metadata"]}
    return Document(id=memory["memory_id"], page_content=memory["content"], metadata=metadata)
