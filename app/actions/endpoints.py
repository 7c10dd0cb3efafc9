"""HTTP endpoints for episodic memory: actions of agents and their outcomes."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field

from app.actions import schemas
from app.actions.service import ActionService
from app.api.errors import BODY, problems
from app.api.strict import Answer, InListing, RecordQuery, StrictRoute, answer, etag
from app.auth.dependencies import get_caller
from app.core.clock import zone_named
from app.core.schemas import Identifier, Page, Timestamp
from app.errors import invalid
from app.memories.repository import Embeddings
from app.storage.repository import Repository
from app.writes.executor import InPrecondition, Writer


async def action_service(request: Request) -> ActionService:
    resources, principal = get_caller(request)
    actions = Repository(resources.store, principal.scope, schemas.ACTIONS)
    retriever = resources.retriever(principal.scope, schemas.ACTIONS)
    return ActionService(
        actions,
        Embeddings(resources.embedder),
        retriever,
        resources.clock,
        timedelta(days=resources.settings.retention.action_days),
        learns=resources.llm is not None,
    )


Actions = Annotated[ActionService, Depends(action_service)]


router = APIRouter(prefix="/v1/actions", tags=["actions"], route_class=StrictRoute)

ActionId = Annotated[Identifier, Path(examples=["act_01a2003d395076f9a13acea58faaf745"])]
Word = Annotated[str, Field(min_length=1, max_length=128)]


class ActionQuery(RecordQuery):
    """The filters of a list of actions in the query string."""

    session_id: Identifier | None = None
    task_id: Identifier | None = None
    event_type: Word | None = None
    action_type: Word | None = None
    outcome: schemas.Outcome | None = None
    entity: Word | None = None
    tag: Word | None = None
    since: Timestamp | None = None
    until: Timestamp | None = Field(None, description="That moment excluded.")


@router.post("", status_code=201, responses=problems(409, 412, *BODY))
async def log_action(
    body: schemas.ActionCreate, actions: Actions, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Action]:
    """Log what an agent did: one episode for a task or intent, not one for each message."""
    return await write(lambda: actions.log_one(body, precondition))


@router.post("/batch", status_code=201, responses=problems(409, 412, *BODY))
async def log_actions(
    body: schemas.ActionBatch, actions: Actions, write: Writer, precondition: InPrecondition
) -> Answer[schemas.ActionBatchCreated]:
    """Log up to 500 actions: all of them, or none."""
    return await write(lambda: actions.log(body.items, precondition))


@router.post("/search", responses=problems(*BODY), openapi_extra={"x-verb": "read"})
async def search_actions(body: schemas.ActionSearch, actions: Actions) -> Answer[schemas.ActionSearchResult]:
    """Find similar past actions, by meaning and words."""
    return answer(await actions.search(body))


@router.get("", responses=problems())
async def list_actions(
    actions: Actions, query: Annotated[ActionQuery, Query()], listing: InListing
) -> Answer[Page[schemas.Action]]:
    """List the actions by the time they happened, newest first."""
    return answer(await actions.page(query.asked(schemas.ACTION_FIELDS), listing))


@router.get("/stats", responses=problems())
async def get_action_stats(
    actions: Actions,
    agent_id: Annotated[Identifier, Query()],
    user_id: Annotated[Identifier | None, Query()] = None,
    action_type: Word | None = None,
    window_days: Annotated[int, Query(ge=1, le=3650)] = 30,
    group_by: Annotated[schemas.GroupBy | None, Query()] = None,
    tz: Annotated[str, Query(max_length=64, description="For `group_by=day`.")] = "UTC",
) -> Answer[schemas.Stats]:
    """Count how often an agent succeeds and how long it takes, with 95 % Wilson intervals. Days that were rolled up
    count, too: as whole days in UTC, with percentiles of durations within 2 %."""
    try:
        zone = zone_named(tz)
    except ValueError as error:
        raise invalid("/query/tz", str(error)) from None
    where: schemas.ActionFilters = {"agent_id": agent_id, "user_id": user_id, "action_type": action_type}
    return answer(await actions.stats(where, window_days, group_by, zone))


@router.get("/{action_id}", responses=problems(404))
async def get_action(action_id: ActionId, actions: Actions) -> Answer[schemas.Action]:
    """Get one action. The memory that stands for it answers once it was rolled up and purged (`rolled_up_into`)."""
    action = await actions.get(action_id)
    return answer(action, {"ETag": etag(action)})


@router.patch("/{action_id}/feedback", responses=problems(404, 409, 412, *BODY))
async def give_feedback(
    action_id: ActionId, body: schemas.Feedback, actions: Actions, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Action]:
    """Say how an action was: what is absent stays, null clears."""
    return await write(lambda: actions.feedback(action_id, body, precondition))
