"""The MCP tools of an agent's work: actions, procedures and tasks."""

from collections.abc import Iterator

from app.core.schemas import Json
from app.mcp import schemas as args
from app.mcp.calls import ToolRequest, given, warned
from app.mcp.transport import ToolError, segment


async def log_action(call: ToolRequest, body: args.LogAction) -> Json:
    """Logs an action and, if it followed a procedure, records the procedure's outcome."""
    if body.procedure_id is not None and body.outcome is None:
        raise ToolError("/outcome: is needed where a procedure was followed.")
    called = ("tool", "input", "output", "duration_ms")
    action = {name: value for name in called if (value := getattr(body, name)) is not None}
    result = await call.write("/v1/actions", {**given(body, *called, "procedure_id"), "action": action})
    action_id: str = result.body["action_id"]
    if body.procedure_id is not None:
        came = {"success": body.outcome == "success", "action_id": action_id, "task_id": body.task_id}
        try:
            await call.write(f"/v1/procedures/{segment(body.procedure_id)}/outcomes", came, ":outcome")
        except ToolError as error:
            raise ToolError(f"Logged as {action_id}. Not counted: {error.detail}", code=error.code) from error
    return {"action_id": action_id}


async def find_procedure(call: ToolRequest, body: args.FindProcedure) -> Json:
    """Searches procedures."""
    found = await call("POST", "/v1/procedures/search", given(body))
    names = ("procedure_id", "name", "trigger", "preconditions", "steps", "notes")
    items = []
    for item in found.body["items"]:
        shown = {name: item["procedure"][name] for name in names if item["procedure"][name]}
        items.append(shown | {"track_record": item["track_record"], **warned(item)})
    return {"items": items, **warned(found.body)}


async def update_task(call: ToolRequest, body: args.UpdateTask) -> Json:
    """Creates or changes a task with several API calls. If one fails, the error says which were done."""
    task_id, done = body.task_id, []
    if task_id is None:
        task_id = (await call.write("/v1/tasks", _new_task(body))).body["task_id"]
        done.append(f"task {task_id} begun")
    path = f"/v1/tasks/{segment(task_id)}"
    for what, method, below, change in _changes(body):
        try:
            await (
                call.write(path + below, change, f":{what}") if method == "POST" else call(method, path + below, change)
            )
        except ToolError as error:
            if done:
                raise ToolError(f"Done: {', '.join(done)}. Not done: {what} and what follows it: {error}") from error
            raise
        done.append(what)
    task = (await call("GET", path)).body
    state = (await call("GET", f"{path}/working-memory")).body["text"]
    context = {"context": task["context"]} if task["context"] else {}
    return {"task_id": task_id, "status": task["status"], "working_memory": state, **context}


def _new_task(body: args.UpdateTask) -> Json:
    if body.goal is None:
        raise ToolError("/goal: a new task needs a goal; give task_id to go on with one that is there.")
    fields = given(body, "task_id", "plan", "step", "step_status", "step_result", "note", "status")
    return {**fields, "status": "in_progress", "plan": _plan(body)}


def _plan(body: args.UpdateTask) -> list[Json]:
    return [{"action": action} for action in body.plan or []]


def _changes(body: args.UpdateTask) -> Iterator[tuple[str, str, str, Json]]:
    """Yields (name, method, path below the task, body) of each change. The task's status comes last, since it may end
    the task."""
    if body.task_id is not None:
        if body.goal is not None:
            yield "goal", "PATCH", "", {"goal": body.goal}
        if body.plan is not None:
            yield "plan", "PUT", "/plan", {"plan": _plan(body)}
        if body.context is not None:
            yield "context", "PATCH", "/context", body.context
    if body.step is not None:
        step = {"status": body.step_status, "result": body.step_result}
        yield "step", "PATCH", f"/plan/{body.step}", {name: value for name, value in step.items() if value is not None}
    if body.note is not None:
        yield "note", "POST", "/scratchpad", {"content": body.note}
    if body.status is not None:
        yield "status", "PATCH", "", {"status": body.status}
