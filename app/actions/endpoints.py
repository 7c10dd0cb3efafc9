"""Episodic memory over HTTP: what agents did, and what came of it."""

from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Path, Query, Response

from app.actions import schemas
from app.actions.dependencies import Actions
from app.clock import zone_named
from app.errors import invalid
from app.http.listing import InListing, answer
from app.http.responses import BODY, problems
from app.http.route import StrictRoute
from app.idempotency.dependencies import InPrecondition, InWrite
from app.idempotency.precondition import etag
from app.schemas import Identifier, Page, Timestamp

router = APIRouter(prefix="/v1/actions", tags=["actions"], route_class=StrictRoute)

ActionId = Annotated[Identifier, Path(examples=["act_01a2003d395076f9a13acea58faaf745"])]
Word = Annotated[str | None, Query(min_length=1, max_length=128)]


async def asked(  # noqa: PLR0913 (query parameters)
    agent_id: Annotated[Identifier | None, Query()] = None,
    user_id: Annotated[Identifier | None, Query()] = None,
    session_id: Annotated[Identifier | None, Query()] = None,
    task_id: Annotated[Identifier | None, Query()] = None,
    event_type: Word = None,
    action_type: Word = None,
    outcome: Annotated[schemas.Outcome | None, Query()] = None,
    entity: Word = None,
    tag: Word = None,
    since: Annotated[Timestamp | None, Query()] = None,
    until: Annotated[Timestamp | None, Query(description="That moment excluded.")] = None,
) -> dict[str, Any]:
    return dict(locals())


async def zone(tz: Annotated[str, Query(max_length=64, description="For `group_by=day`.")] = "UTC") -> ZoneInfo:
    try:
        return zone_named(tz)
    except ValueError as fault:
        raise invalid("/query/tz", str(fault)) from None


@router.post("", status_code=201, response_model=schemas.Action, responses=problems(409, 412, *BODY))
async def log_action(
    body: schemas.ActionCreate, actions: Actions, write: InWrite, if_match: InPrecondition
) -> Response:
    """Log what an agent did: one episode for a task or intent, not one for each message."""
    return await write(lambda: actions.log_one(body, if_match))


@router.post("/batch", status_code=201, response_model=schemas.ActionBatchCreated, responses=problems(409, 412, *BODY))
async def log_actions(
    body: schemas.ActionBatch, actions: Actions, write: InWrite, if_match: InPrecondition
) -> Response:
    """Log up to 500 actions: all of them, or none."""
    return await write(lambda: actions.log(body.items, if_match))


@router.post(
    "/search", response_model=schemas.ActionSearchResult, responses=problems(*BODY), openapi_extra={"x-verb": "read"}
)
async def search_actions(body: schemas.ActionSearch, actions: Actions) -> Response:
    """Similar past actions, by meaning and words."""
    return answer(await actions.search(body))


@router.get("", response_model=Page[schemas.Action], responses=problems())
async def list_actions(
    actions: Actions, where: Annotated[dict[str, Any], Depends(asked)], listing: InListing
) -> Response:
    """Actions by the time they happened, newest first."""
    return answer(await actions.page(where, listing))


@router.get("/stats", response_model=schemas.Stats, responses=problems())
async def get_action_stats(  # noqa: PLR0913 (query parameters)
    actions: Actions,
    where_zone: Annotated[ZoneInfo, Depends(zone)],
    agent_id: Annotated[Identifier, Query()],
    user_id: Annotated[Identifier | None, Query()] = None,
    action_type: Word = None,
    window_days: Annotated[int, Query(ge=1, le=3650)] = 30,
    group_by: Annotated[schemas.GroupBy | None, Query()] = None,
) -> Response:
    """How often an agent succeeds and how long it takes, with 95 % Wilson intervals."""
    named = {"agent_id": agent_id, "user_id": user_id, "action_type": action_type}
    return answer(await actions.stats(named, window_days, group_by, where_zone))


@router.get("/{action_id}", response_model=schemas.Action, responses=problems(404))
async def get_action(action_id: ActionId, actions: Actions) -> Response:
    """One action."""
    action = await actions.get(action_id)
    return answer(action, {"ETag": etag(action)})


@router.patch("/{action_id}/feedback", response_model=schemas.Action, responses=problems(404, 409, 412, *BODY))
async def give_feedback(
    action_id: ActionId, body: schemas.Feedback, actions: Actions, write: InWrite, if_match: InPrecondition
) -> Response:
    """Say how it was: what is absent stays, null clears."""
    return await write(lambda: actions.feedback(action_id, body, if_match))
