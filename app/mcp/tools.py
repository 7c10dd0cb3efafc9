"""The eight MCP tools. Each makes one or a few calls of the REST API."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app.core.schemas import Json, Schema
from app.mcp import schemas as args
from app.mcp.transport import Api, ApiAnswer, ToolError, checked, segment

Result = Json | str
"""The result of a tool: an object, or text for a prompt."""
A = TypeVar("A", bound=Schema)

IDEMPOTENCY_KEY = "idempotency-key"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The API as a tool calls it. `key` is the idempotency key of the caller, if there is one."""

    api: Api
    key: str | None = None

    async def __call__(self, method: str, path: str, body: Any = None, headers: Json | None = None) -> ApiAnswer:
        """Calls the API. Raises ToolError."""
        return checked(await self.api(method, path, body, headers))

    async def write(self, path: str, body: Json, step: str = "") -> ApiAnswer:
        """Sends a POST with the idempotency key. `step` distinguishes several POSTs of one tool call."""
        return await self("POST", path, body, {} if self.key is None else {IDEMPOTENCY_KEY: self.key + step})


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """The declaration of a tool. `reads`, `destroys` and `idempotent` are hints for clients."""

    name: str
    title: str
    description: str
    arguments: type[A]
    run: Callable[[ToolRequest, A], Awaitable[Result]]
    reads: bool = False
    destroys: bool = False
    idempotent: bool = False


def _given(body: Schema, *left_out: str) -> Json:
    return body.model_dump(exclude_none=True, exclude=set(left_out))


async def remember(call: ToolRequest, body: args.RememberArguments) -> Json:
    """Stores a memory."""
    fields = _given(body, "shared") | ({"agent_id": None} if body.shared else {})
    result = await call.write("/v1/memories", fields)
    similar = [{name: one[name] for name in ("memory_id", "content")} for one in result.body["similar"]]
    answer = {"memory_id": result.body["memory_id"], "new": result.status == 201}
    if result.body["status"] == "disputed":
        answer |= {name: result.body[name] for name in ("status", "contradicts")}
    return {**answer, "similar": similar} if similar else answer


async def recall(call: ToolRequest, body: args.RecallArguments) -> Json:
    """Searches memories."""
    found = await call("POST", "/v1/memories/search", _given(body))
    return {"items": [_shown(item["memory"], item["score"]) for item in found.body["items"]], **_warned(found.body)}


def _warned(body: Json) -> Json:
    """Returns warnings, such as that only words were searched. Empty fields are omitted to save tokens."""
    warnings = [warning["detail"] for warning in body["warnings"]]
    return {"warnings": warnings} if warnings else {}


def _shown(memory: Json, score: float) -> Json:
    """Returns the fields of a memory that help a model. Empty fields are omitted to save tokens."""
    shown = {
        "memory_id": memory["memory_id"],
        "content": memory["content"],
        "memory_type": memory["memory_type"],
        "when": (memory["event_at"] or memory["created_at"])[:16] + "Z",
        "score": round(score, 3),
    }
    more = {"speaker": memory["source"]["speaker"], **{name: memory[name] for name in ("key", "context", "tags")}}
    return shown | {name: value for name, value in more.items() if value}


async def get_context(call: ToolRequest, body: args.GetContext) -> str:
    """Returns the context for a message as text, with warnings at its end."""
    result = await call("POST", "/v1/context", {**_given(body), "citations": "numbers"})
    lines = [result.body["text"] or "Nothing that is remembered bears on this."]
    lines += [f"(Not read: {error['section']}: {error['detail']})" for error in result.body["errors"]]
    lines += [f"({warning['detail']})" for warning in result.body["warnings"]]
    return "\n".join(lines)


async def log_action(call: ToolRequest, body: args.LogAction) -> Json:
    """Logs an action and, if it followed a procedure, records the procedure's outcome."""
    if body.procedure_id is not None and body.outcome is None:
        raise ToolError("/outcome: is needed where a procedure was followed.")
    called = ("tool", "input", "output", "duration_ms")
    action = {name: value for name in called if (value := getattr(body, name)) is not None}
    result = await call.write("/v1/actions", {**_given(body, *called, "procedure_id"), "action": action})
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
    found = await call("POST", "/v1/procedures/search", _given(body))
    names = ("procedure_id", "name", "trigger", "preconditions", "steps", "notes")
    items = []
    for item in found.body["items"]:
        shown = {name: item["procedure"][name] for name in names if item["procedure"][name]}
        items.append(shown | {"track_record": item["track_record"], **_warned(item)})
    return {"items": items, **_warned(found.body)}


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
    fields = _given(body, "task_id", "plan", "step", "step_status", "step_result", "note", "status")
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


async def memory_feedback(call: ToolRequest, body: args.MemoryFeedback) -> Json:
    """Records feedback on memories."""
    said = dict.fromkeys(body.helpful, True)
    for number, memory_id in enumerate(body.misleading):
        if said.get(memory_id):
            raise ToolError(f"/misleading/{number}: {memory_id} is among the helpful ones, too.")
        said[memory_id] = False
    query = {} if body.query is None else {"query": body.query}
    items = [{"memory_id": memory_id, "helpful": helpful, **query} for memory_id, helpful in said.items()]
    if not items:
        raise ToolError("Name memories that helped or misled, by the memory_ids that recall gave.")
    given = (await call.write("/v1/memories/feedback", {"items": items})).body["items"]
    answer: Json = {"counted": [one["memory_id"] for one in given if one["applied"]]}
    for one in given:
        if not one["applied"]:
            answer.setdefault(one["reason"], []).append(one["memory_id"])
    return answer


async def forget(call: ToolRequest, body: args.Forget) -> Json:
    """Deletes memories with their predecessors."""
    forgotten, missing = list[str](), list[str]()
    for memory_id in dict.fromkeys(body.memory_ids):
        try:
            await call("DELETE", f"/v1/memories/{segment(memory_id)}?predecessors=delete")
        except ToolError as error:
            if error.code != "not_found":
                done = ", ".join(forgotten) or "none"
                raise ToolError(f"Forgotten: {done}. {memory_id}: {error}", code=error.code) from error
            missing.append(memory_id)
        else:
            forgotten.append(memory_id)
    return {"forgotten": forgotten, **({"not_found": missing} if missing else {})}


TOOLS: dict[str, Tool[Any]] = {
    tool.name: tool
    for tool in (
        Tool(
            "remember",
            "Remember",
            "Store one lasting thing: a fact, a preference, an instruction, a lesson. Not small talk, not secrets. "
            "An equal memory is not stored twice. To correct one, give its memory_id in supersedes.",
            args.RememberArguments,
            remember,
            idempotent=True,
        ),
        Tool(
            "recall",
            "Recall",
            "Search long-term memory by meaning, names and words; best first. Use it before answering what may depend "
            "on earlier conversations.",
            args.RecallArguments,
            recall,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "get_context",
            "Get context",
            "All that bears on a message, as one text within a token budget: profile, facts, procedures, memories, "
            "past actions, task and recent messages. Use it at the start of a conversation or task; recall is for one "
            "question.",
            args.GetContext,
            get_context,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "log_action",
            "Log an action",
            "Record what you did and how it ended, once per task or tool call that matters, so that later runs learn "
            "from it.",
            args.LogAction,
            log_action,
        ),
        Tool(
            "find_procedure",
            "Find a procedure",
            "Look up how something is done here, with steps and how often they worked. Use it before a task of more "
            "than one step.",
            args.FindProcedure,
            find_procedure,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "update_task",
            "Update a task",
            "Keep the state of long work outside the conversation: begin a task, set its plan, mark a step, note "
            "something, end it. Answers the task's working memory; with task_id alone it only reads it.",
            args.UpdateTask,
            update_task,
        ),
        Tool(
            "memory_feedback",
            "Memory feedback",
            "After answering: say which recalled memories helped and which misled, so that later searches rank better.",
            args.MemoryFeedback,
            memory_feedback,
            idempotent=True,
        ),
        Tool(
            "forget",
            "Forget",
            "Delete memories for good, by the memory_ids that recall gave, with the ones that they superseded. Only "
            "when the user asks for it; to correct one, use remember with supersedes.",
            args.Forget,
            forget,
            destroys=True,
            idempotent=True,
        ),
    )
}
