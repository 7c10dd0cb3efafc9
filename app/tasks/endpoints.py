"""HTTP endpoints for working memory: tasks with plan, context, scratchpad, evidence and checkpoints."""

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response

from app.api.errors import BODY, problems
from app.api.strict import Answer, InListing, RecordQuery, StrictRoute, answer, etag
from app.auth.dependencies import get_caller
from app.core.schemas import MAX_SEQ, Identifier, Object, Page
from app.tasks import schemas
from app.tasks.service import TaskRepository, TaskService
from app.writes.executor import InPrecondition, Writer


async def task_service(request: Request) -> TaskService:
    resources, principal = get_caller(request)
    tasks = TaskRepository(resources.store, principal.scope)
    return TaskService(tasks, resources.settings.limits, resources.clock, learns=resources.llm is not None)


Tasks = Annotated[TaskService, Depends(task_service)]


router = APIRouter(prefix="/v1/tasks", tags=["tasks"], route_class=StrictRoute)

TaskId = Annotated[Identifier, Path(examples=["task_01a2003d395076f9a13acea58faaf745"])]
Index = Annotated[int, Path(ge=0, le=10_000, description="From 0.")]
_NO_LABEL, _LATEST = schemas.CheckpointIn(), schemas.Restore()
WRITES = problems(404, 409, 412, *BODY)


@router.post("", status_code=201, responses=problems(404, 409, 412, *BODY))
async def create_task(
    body: schemas.TaskCreate, tasks: Tasks, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Task]:
    """Begin a task."""
    return await write(lambda: tasks.create(body, precondition))


class TaskQuery(RecordQuery):
    """The filters of a list of tasks in the query string."""

    session_id: Identifier | None = None
    status: schemas.TaskStatus | None = None


@router.get("", responses=problems())
async def list_tasks(
    tasks: Tasks,
    listing: InListing,
    query: Annotated[TaskQuery, Query()],
) -> Answer[Page[schemas.Task]]:
    """List the tasks, newest first."""
    return answer(await tasks.page(query.asked(schemas.TASK_FIELDS), listing))


@router.get("/{task_id}", responses=problems(404))
async def get_task(task_id: TaskId, tasks: Tasks) -> Answer[schemas.Task]:
    """Get a task with all its state."""
    task = await tasks.get(task_id)
    return answer(task, {"ETag": etag(task)})


@router.patch("/{task_id}", responses=WRITES)
async def update_task(
    task_id: TaskId, body: schemas.TaskPatch, tasks: Tasks, write: Writer, precondition: InPrecondition
) -> Answer[schemas.TaskPatched]:
    """Change a task. Status goes pending → in_progress → completed, failed or cancelled; pending → completed, failed or
    cancelled; failed → in_progress. Any other move is 409 `illegal_transition`: `detail` names the allowed ones.

    Where the end of a task starts learning from its session, `operation_id` is its operation."""
    return await write(lambda: tasks.patch(task_id, body, precondition))


@router.delete("/{task_id}", status_code=204, response_class=Response, responses=problems(404, 412))
async def delete_task(task_id: TaskId, tasks: Tasks, write: Writer, precondition: InPrecondition) -> Response:
    """Delete a task and its checkpoints."""
    return await write(lambda: tasks.delete(task_id, precondition))


@router.patch("/{task_id}/context", responses=WRITES)
async def update_task_context(
    task_id: TaskId,
    body: Annotated[Object, Body(examples=[{"current_focus": "performance", "draft": None}])],
    tasks: Tasks,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[schemas.Task]:
    """Merge into the context (JSON merge patch, RFC 7396): null removes a key. Keys are data, never paths."""
    return await write(lambda: tasks.patch_context(task_id, body, precondition))


@router.put("/{task_id}/plan", responses=WRITES)
async def put_task_plan(
    task_id: TaskId, body: schemas.Plan, tasks: Tasks, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Task]:
    """Replace a task's plan."""
    return await write(lambda: tasks.put_plan(task_id, body.plan, precondition))


@router.patch("/{task_id}/plan/{index}", responses=WRITES)
async def update_task_step(
    task_id: TaskId, index: Index, body: schemas.StepPatch, tasks: Tasks, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Task]:
    """Set a step's status and result. The result is stored whole; prompt text may cut it.

    With `checkpoint_every`, a checkpoint is kept on the way."""
    return await write(lambda: tasks.patch_step(task_id, index, body, precondition))


@router.post("/{task_id}/scratchpad", status_code=201, responses=WRITES)
async def add_task_note(
    task_id: TaskId, body: schemas.NoteIn, tasks: Tasks, write: Writer, precondition: InPrecondition
) -> Answer[schemas.Jotted]:
    """Jot down a note. Past `max_tokens` the notes of lowest priority go, then the oldest; the answer says which."""
    return await write(lambda: tasks.jot(task_id, body, precondition))


@router.post("/{task_id}/evidence", status_code=201, responses=WRITES)
async def add_task_evidence(
    task_id: TaskId, body: schemas.EvidenceIn, tasks: Tasks, write: Writer, precondition: InPrecondition
) -> Answer[schemas.EvidenceAdded]:
    """Add a piece of evidence. Past `max_tokens` the oldest pieces go; `evicted` says which."""
    return await write(lambda: tasks.add_evidence(task_id, body, precondition))


@router.get("/{task_id}/working-memory", responses=problems(404))
async def get_working_memory(
    task_id: TaskId, tasks: Tasks, max_tokens: Annotated[int | None, Query(ge=0, le=10_000_000)] = None
) -> Answer[schemas.WorkingMemory]:
    """Get the task as text for a prompt, within a token budget. The step in hand comes first, then goal, next steps,
    context, open questions, notes, last results and evidence, as far as there is room. Long entries are cut with a
    mark."""
    return answer(await tasks.working_memory(task_id, max_tokens))


@router.post("/{task_id}/checkpoints", status_code=201, responses=WRITES)
async def create_checkpoint(
    task_id: TaskId, tasks: Tasks, write: Writer, precondition: InPrecondition, body: schemas.CheckpointIn = _NO_LABEL
) -> Answer[schemas.Checkpoint]:
    """Keep the task's state as it is now."""
    return await write(lambda: tasks.checkpoint(task_id, body.label, precondition))


@router.get("/{task_id}/checkpoints", responses=problems(404))
async def list_checkpoints(task_id: TaskId, tasks: Tasks, listing: InListing) -> Answer[Page[schemas.Checkpoint]]:
    """List the checkpoints of a task, newest first."""
    return answer(await tasks.checkpoints(task_id, listing))


@router.get("/{task_id}/checkpoints/{seq}", responses=problems(404))
async def get_checkpoint(
    task_id: TaskId, seq: Annotated[int, Path(ge=-1, le=MAX_SEQ, description="-1: the latest.")], tasks: Tasks
) -> Answer[schemas.Checkpoint]:
    """Get one checkpoint."""
    return answer(await tasks.get_checkpoint(task_id, seq))


@router.post("/{task_id}/restore", responses=WRITES)
async def restore_task(
    task_id: TaskId, tasks: Tasks, write: Writer, precondition: InPrecondition, body: schemas.Restore = _LATEST
) -> Answer[schemas.Task]:
    """Bring a checkpoint's state back, in one write; the restore and what was there before are kept as checkpoints. A
    task that is completed or cancelled needs `reopen: true`."""
    return await write(lambda: tasks.restore(task_id, body, precondition))
