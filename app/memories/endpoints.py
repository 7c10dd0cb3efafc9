"""HTTP endpoints of memories. The dependencies of the features that read memories are here, too."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field, TypeAdapter

from app.api.errors import BODY, problems
from app.api.strict import (
    AfterSeq,
    Answer,
    BeforeSeq,
    InListing,
    RecordQuery,
    StrictRoute,
    answer,
    etag,
    texts_in_query,
)
from app.audit.trail import Actor
from app.auth.dependencies import get_caller
from app.core.metadata_filter import RecordFields
from app.core.schemas import Identifier, Page, Timestamp
from app.memories import schemas, search
from app.memories.repository import Embeddings, MemoryRepository
from app.memories.search import (
    MEMORY_FIELDS,
    MemoryFilters,
    MemoryListStatus,
    SearchRequest,
    SearchResult,
    TagsMatch,
)
from app.memories.service import FeedbackService, MemoryService
from app.writes.executor import InCreationPrecondition, InPrecondition, Writer


async def memory_service(request: Request) -> MemoryService:
    """Creates the memory service of the request's caller."""
    resources, principal = get_caller(request)
    memories = MemoryRepository(resources.store, principal.scope)
    return MemoryService(memories, Embeddings(resources.embedder), resources.clock)


async def feedback_service(request: Request) -> FeedbackService:
    """Creates the feedback service of the request's caller."""
    resources, principal = get_caller(request)
    memories = MemoryRepository(resources.store, principal.scope)
    return FeedbackService(memories, resources.clock, principal.lineage)


MemoryServiceDep = Annotated[MemoryService, Depends(memory_service)]
FeedbackServiceDep = Annotated[FeedbackService, Depends(feedback_service)]


router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)

MemoryId = Annotated[Identifier, Path(examples=["mem_01a2003d395076f9a13acea58faaf745"])]


_TAGS: TypeAdapter[list[str]] = TypeAdapter(Annotated[schemas.Tags, Field(min_length=1)])
TagList = Annotated[str | None, Field(max_length=8_192)]


class MemoryQuery(RecordQuery):
    """The filters in the query string of lists and deletions of memories: `?pinned=true&tags=["alpha"]`."""

    memory_type: schemas.MemoryType | None = None
    session_id: Identifier | None = Field(None, description="Made from messages of this session.")
    after_seq: AfterSeq = None
    before_seq: BeforeSeq = None
    origin: schemas.Origin | None = Field(None, description="How it was made, as `source.origin` says.")
    key: str | None = Field(None, min_length=1, max_length=256)
    key_prefix: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None, description="Its key begins so."
    )
    tag: str | None = Field(None, min_length=1, max_length=128)
    pinned: bool | None = None
    since: Timestamp | None = Field(None, description="Created at or after.")
    until: Timestamp | None = Field(None, description="Created before.")
    tags: TagList = Field(None, description='Has these tags: a JSON list, as `["alpha", "beta"]`.')
    tags_match: TagsMatch = Field("any", description="`any`: has at least one of `tags`. `all`: has each of them.")
    exclude_tags: TagList = Field(None, description='Has none of these tags: a JSON list, as `["alpha"]`.')

    def asked(self, fields: RecordFields) -> MemoryFilters:
        """Returns the values by name, as every list does, with the lists that `tags` and `exclude_tags` hold. Raises
        Invalid."""
        filters: MemoryFilters = super().asked(fields)
        filters["tags"] = texts_in_query("tags", self.tags, _TAGS)
        filters["exclude_tags"] = texts_in_query("exclude_tags", self.exclude_tags, _TAGS)
        return filters


InQuery = Annotated[MemoryQuery, Query()]


@router.post("/search", responses=problems(*BODY), openapi_extra={"x-verb": "read"})
async def search_memories(body: SearchRequest, request: Request) -> Answer[SearchResult]:
    """Find what matters for a query, best first. What has just been remembered is found."""
    resources, principal = get_caller(request)
    if body.everyone:
        principal.require("admin")
    return Answer(await search.search_memories(body, resources, principal.scope))  # JSON already


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": schemas.MemoryCreated, "description": "The memory that is there already, or had that key"},
        **problems(409, 412, *BODY),
    },
)
async def create_memory(
    body: schemas.MemoryCreate, memories: MemoryServiceDep, write: Writer, precondition: InCreationPrecondition
) -> Answer[schemas.MemoryCreated]:
    """Remember one thing. 201 when it is new; 200 with the memory that is equal, or has its `key`. A memory of less
    trust than one that it would replace is stored as `disputed`, without its key and out of search."""
    return await write(lambda: memories.create(body, precondition))


@router.post("/batch", status_code=201, responses=problems(409, 412, *BODY))
async def create_memories(
    body: schemas.MemoryBatch, memories: MemoryServiceDep, write: Writer, precondition: InPrecondition
) -> Answer[schemas.MemoryBatchCreated]:
    """Remember up to 500 things: all of them, or none."""
    return await write(lambda: memories.create_batch(body.items, precondition))


@router.post("/feedback", responses=problems(409, 412, *BODY))
async def give_memory_feedback(
    body: schemas.FeedbackRequest, feedback: FeedbackServiceDep, write: Writer, precondition: InPrecondition
) -> Answer[schemas.FeedbackResult]:
    """Say which memories helped to answer and which misled. One that helped gains 0.05 of importance and fades anew;
    one that misled loses 0.1. Each counts once for a memory, API key and UTC day. Each item is applied on its own, and
    its answer says why where it was not. The version of a memory stays."""
    return await write(lambda: feedback.give(body.items, precondition))


@router.get("", responses=problems())
async def list_memories(
    memories: MemoryServiceDep,
    query: InQuery,
    listing: InListing,
    status: Annotated[MemoryListStatus, Query()] = "active",
) -> Answer[Page[schemas.Memory]]:
    """List the memories that have exactly the owner fields named; shared ones are not added."""
    return answer(await memories.page_as_json({**query.asked(MEMORY_FIELDS), "status": status}, listing))


@router.delete("", responses=problems(412))
async def delete_memories(
    request: Request,
    memories: MemoryServiceDep,
    query: InQuery,
    status: Annotated[MemoryListStatus, Query()] = "any",
) -> Answer[schemas.Deleted]:
    """Delete all memories that match, with their history. `agent_id`, `user_id` or both are required."""
    _, principal = get_caller(request)
    actor = Actor(principal.scope.tenant, principal.key_id, "delete_memories")
    return answer({"deleted": await memories.delete_some({**query.asked(MEMORY_FIELDS), "status": status}, actor)})


@router.get("/{memory_id}", responses=problems(404))
async def get_memory(memory_id: MemoryId, memories: MemoryServiceDep) -> Answer[schemas.Memory]:
    """Get one memory. Reading it so is no access: it fades on."""
    memory = await memories.get(memory_id)
    return answer(memory, {"ETag": etag(memory)})


@router.patch("/{memory_id}", responses=problems(404, 409, 412, *BODY))
async def update_memory(
    memory_id: MemoryId,
    body: schemas.MemoryPatch,
    memories: MemoryServiceDep,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[schemas.Memory]:
    """Change a memory: what is absent stays, null clears. The version that goes is kept as history."""
    return await write(lambda: memories.patch(memory_id, body, precondition))


@router.delete("/{memory_id}", status_code=204, response_class=Response, responses=problems(404, 412))
async def delete_memory(
    memory_id: MemoryId,
    memories: MemoryServiceDep,
    write: Writer,
    precondition: InPrecondition,
    predecessors: Annotated[
        schemas.Predecessors,
        Query(description="`restore`: the memories that it superseded become active again. `delete`: they go, too."),
    ] = "restore",
) -> Response:
    """Delete a memory, its vector and its history. Duplicates that consolidation merged into it do not come back."""
    return await write(lambda: memories.delete(memory_id, predecessors, precondition))


@router.get("/{memory_id}/history", responses=problems(404))
async def get_memory_history(
    memory_id: MemoryId, memories: MemoryServiceDep, listing: InListing
) -> Answer[Page[schemas.HistoryEntry]]:
    """List the earlier versions of a memory, each as it was when it left."""
    return answer(await memories.history(memory_id, listing))
