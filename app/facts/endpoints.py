"""HTTP endpoints of facts, and of the graph that facts with an entity as object form."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field

from app.api.errors import BODY, problems
from app.api.strict import AfterSeq, Answer, BeforeSeq, Cursor, InListing, Limit, RecordQuery, StrictRoute, answer, etag
from app.auth.dependencies import get_caller
from app.core.schemas import Identifier, Page, Timestamp
from app.facts import schemas
from app.facts.alias_service import AliasesChanged, AliasesCreate, AliasList, AliasListStatus, AliasService
from app.facts.graph import EntityList, GraphAnswer, GraphQuery, GraphService, Neighbors, Sight
from app.facts.repository import FactRepository
from app.facts.service import FactService, queued
from app.jobs.queue import Operation
from app.memories.repository import Embeddings
from app.storage.scope import Partition
from app.writes.executor import InPrecondition, Writer, WriteResult


async def fact_service(request: Request) -> FactService:
    resources, principal = get_caller(request)
    retriever = resources.retriever(principal.scope, schemas.FACTS)
    return FactService(
        FactRepository(resources.store, principal.scope), Embeddings(resources.embedder), retriever, resources.clock
    )


FactServiceDep = Annotated[FactService, Depends(fact_service)]


router = APIRouter(prefix="/v1/facts", tags=["facts"], route_class=StrictRoute)

FactId = Annotated[Identifier, Path(examples=["fact_01a2003d395076f9a13acea58faaf745"])]
Named = Annotated[str, Field(min_length=1, max_length=schemas.MAX_NAME)]


class FactQuery(RecordQuery):
    """The filters of a list of facts in the query string."""

    subject: Named | None = None
    predicate: Named | None = None
    object: Named | None = None
    object_type: schemas.ObjectType | None = None
    session_id: Identifier | None = Field(None, description="Its source names this session.")
    after_seq: AfterSeq = None
    before_seq: BeforeSeq = None
    as_of: Timestamp | None = Field(None, description="True at that time; default: now.")
    known_at: Timestamp | None = Field(None, description="As it was known then; default: now.")
    timeline: bool = Field(False, description="Whatever the time at which it is true.")
    status: schemas.FactListStatus = Field(
        "active", description="Of the time `known_at`: what was known, disputed, or had gone by then."
    )


@router.post("/search", responses=problems(*BODY), openapi_extra={"x-verb": "read"})
async def search_facts(body: schemas.FactSearch, facts: FactServiceDep) -> Answer[schemas.FactSearchResult]:
    """Find facts by meaning and words, true at `as_of` as far as it was known at `known_at`."""
    return answer(await facts.search(body))


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": schemas.AssertedFact, "description": "The fact that says it already"},
        202: {"model": Operation, "description": "With `on_conflict: merge`: the operation that asserts it"},
        **problems(409, 412, *BODY),
    },
)
async def assert_fact(
    body: schemas.FactCreate, facts: FactServiceDep, write: Writer, precondition: InPrecondition, request: Request
) -> Answer[schemas.AssertedFact]:
    """Say that something is true. What it contradicts is bounded, split or replaced, never overwritten; it is stored as
    disputed where what it contradicts has more trust. `on_conflict: merge` needs a language model: without one 409
    `llm_not_configured`."""
    if body.on_conflict == "merge":
        resources, principal = get_caller(request)

        async def plan() -> WriteResult:
            return queued(principal.scope, body, precondition, resources.llm, resources.clock.now())

        return await write(plan)
    return await write(lambda: facts.assert_one(body, precondition))


@router.post("/batch", status_code=201, responses=problems(409, 412, *BODY))
async def assert_facts(
    body: schemas.FactBatch, facts: FactServiceDep, write: Writer, precondition: InPrecondition
) -> Answer[schemas.FactBatchAsserted]:
    """Assert up to 500 facts, in their order: all of them, or none. They become known at the same moment."""
    return await write(lambda: facts.assert_all(body.items, precondition))


@router.get("", responses=problems())
async def list_facts(
    facts: FactServiceDep, query: Annotated[FactQuery, Query()], listing: InListing
) -> Answer[Page[schemas.Fact]]:
    """List the facts that have exactly the owner fields named: what is true now, or was at another time."""
    return answer(await facts.page(query.asked(schemas.FACT_FIELDS), listing))


@router.get("/{fact_id}", responses=problems(404))
async def get_fact(fact_id: FactId, facts: FactServiceDep) -> Answer[schemas.Fact]:
    """Get one fact, whatever became of it."""
    fact = await facts.get(fact_id)
    return answer(fact, {"ETag": etag(fact)})


@router.delete("/{fact_id}", status_code=204, response_class=Response, responses=problems(404, 409, 412))
async def delete_fact(fact_id: FactId, facts: FactServiceDep, write: Writer, precondition: InPrecondition) -> Response:
    """Remove an assertion and its history as if it had never been made. What had given way to it comes back, and a
    dispute with it is over. For what was wrong there is `retract`."""
    return await write(lambda: facts.delete(fact_id, precondition))


@router.get("/{fact_id}/history", responses=problems(404))
async def get_fact_history(fact_id: FactId, facts: FactServiceDep, listing: InListing) -> Answer[Page[schemas.Fact]]:
    """List all that was ever stated of the same assertion, today's facts included."""
    return answer(await facts.history(fact_id, listing))


@router.post("/{fact_id}/retract", responses=problems(404, 409, 412))
async def retract_fact(
    fact_id: FactId, facts: FactServiceDep, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Fact]:
    """Take back what should not have been said: from now on we do not know it. That we did stays on record."""
    return await write(lambda: facts.retract(fact_id, precondition))


async def graph_service(request: Request) -> GraphService:
    resources, principal = get_caller(request)
    return GraphService(FactRepository(resources.store, principal.scope), resources.clock)


async def sight(
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
    include_shared: Annotated[
        bool, Query(description="With both ids: also what the agent knows for all, and all agents of the user.")
    ] = True,
    as_of: Annotated[Timestamp | None, Query(description="True at that time; default: now.")] = None,
    known_at: Annotated[Timestamp | None, Query(description="As it was known then; default: now.")] = None,
) -> Sight:
    """Returns the owner and the times of a graph request."""
    return Sight(agent_id, user_id, include_shared, as_of, known_at)


async def alias_service(request: Request) -> AliasService:
    resources, principal = get_caller(request)
    facts = FactRepository(resources.store, principal.scope)
    undo_days = resources.settings.retention.archive_days
    return AliasService(facts, GraphService(facts, resources.clock), resources.clock, undo_days)


InAliases = Annotated[AliasService, Depends(alias_service)]
InGraph = Annotated[GraphService, Depends(graph_service)]
InSight = Annotated[Sight, Depends(sight)]


graph_router = APIRouter(prefix="/v1/graph", tags=["graph"], route_class=StrictRoute)

EntityName = Annotated[str, Path(min_length=1, max_length=schemas.MAX_NAME, examples=["Ada"])]


@graph_router.get("/entities", responses=problems())
async def list_entities(
    graph: InGraph,
    sight: InSight,
    prefix: Annotated[str, Query(max_length=schemas.MAX_NAME, description="Of the name, as it is compared.")] = "",
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Answer[EntityList]:
    """List whom and what the facts are about. `agent_id`, `user_id` or both are required, and widened as in a
    search."""
    return answer(await graph.entities(sight, prefix, limit, cursor))


@graph_router.get("/entities/{name:name}/neighbors", responses=problems(404))
async def get_neighbors(
    name: EntityName,
    graph: InGraph,
    sight: InSight,
    depth: Annotated[int, Query(ge=1, le=3)] = 1,
    predicate: Annotated[str | None, Query(min_length=1, max_length=schemas.MAX_NAME)] = None,
    max_nodes: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Answer[Neighbors]:
    """Get what an entity is linked with, in up to three hops, both ways, by facts true at that time."""
    return answer(await graph.neighbors(sight, name, depth, predicate, max_nodes))


@graph_router.get("/entities/{name:name}/aliases", responses=problems(404))
async def list_aliases(
    name: EntityName,
    aliases: InAliases,
    sight: InSight,
    status: Annotated[
        AliasListStatus, Query(description="`proposed`: what rules find in the names of facts.")
    ] = "active",
) -> Answer[AliasList]:
    """List the other names of an entity, and those that may be."""
    return answer(await aliases.listed(name, sight, status))


@graph_router.post(
    "/entities/{name:name}/aliases",
    status_code=201,
    responses={
        200: {"model": AliasesChanged, "description": "They are aliases already"},
        **problems(409, 412, *BODY),
    },
)
async def declare_aliases(
    name: EntityName, body: AliasesCreate, aliases: InAliases, write: Writer
) -> Answer[AliasesChanged]:
    """Say that names mean the same entity. Facts keep their names; what is asserted from now on is compared with the
    facts of all of them. The operation can be undone."""
    return await write(lambda: aliases.declare(name, body))


@graph_router.delete("/entities/{name:name}/aliases", responses=problems(404, 409, 412))
async def dismiss_alias(
    name: EntityName,
    aliases: InAliases,
    write: Writer,
    alias: Annotated[str, Query(min_length=1, max_length=schemas.MAX_NAME, description="The name that is another's.")],
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
) -> Answer[AliasesChanged]:
    """Say that two names are not the same entity. The alias or proposal is dismissed: no rule makes or proposes it
    again. The operation can be undone."""
    return await write(lambda: aliases.dismiss(name, alias, Partition(agent_id, user_id)))


@graph_router.post("/query", responses=problems(*BODY), openapi_extra={"x-verb": "read"})
async def query_graph(body: GraphQuery, graph: InGraph) -> Answer[GraphAnswer]:
    """Where a chain of predicates leads from an entity: the tools (`uses`) of the projects that had time-outs."""
    return answer(await graph.query(body))
