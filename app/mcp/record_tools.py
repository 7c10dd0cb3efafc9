"""The MCP tools. Each makes one or a few calls of the REST API: for memories, contexts, facts, conversations, profiles,
actions, procedures and tasks.
"""

from collections.abc import Iterator

from app.core.schemas import OWNED, Json
from app.mcp import schemas as args
from app.mcp.transport import Fenced, ToolError, ToolRequest, changed, filled, given, matched, query, segment, warned
from app.memories.records import speaker_of
from app.profiles.schemas import Profile

_PAGES = 10
"""The limit of API calls of one list: a user may have thousands of memories of other agents."""


async def remember(call: ToolRequest, body: args.RememberArguments) -> Json:
    """Stores a memory."""
    fields = given(body, "shared") | ({"agent_id": None} if body.shared else {})
    result = await call.write("/v1/memories", fields)
    similar = [{name: memory[name] for name in ("memory_id", "content")} for memory in result.body["similar"]]
    answer = {"memory_id": result.body["memory_id"], "new": result.status == 201}
    if result.body["status"] == "disputed":
        answer |= {name: result.body[name] for name in ("status", "contradicts")}
    return {**answer, "similar": similar} if similar else answer


async def recall(call: ToolRequest, body: args.RecallArguments) -> Json:
    """Searches memories."""
    if body.limit is not None and "top_k" in body.model_fields_set and body.limit != body.top_k:
        raise ToolError("/limit: means the same as top_k: give one of them.")
    fields = given(body, "limit") | {"top_k": body.limit or body.top_k}
    answer = (await call("POST", "/v1/memories/search", fields)).body
    mode = answer["mode_used"]
    items = [_for_model(item["memory"]) | matched(item["score"], mode) for item in answer["items"]]
    return {"items": items, **warned(answer)}


def _for_model(memory: Json) -> Json:
    """Returns the fields of a memory that help a model."""
    shown = {
        "memory_id": memory["memory_id"],
        "content": memory["content"],
        "memory_type": memory["memory_type"],
        "when": (memory["event_at"] or memory["created_at"])[:16] + "Z",
    }
    speaker = speaker_of(memory["source"])
    return {**shown, **({"speaker": speaker} if speaker else {}), **filled(memory, "key", "context", "tags")}


async def list_memories(call: ToolRequest, body: args.ListMemories) -> Json:
    """Lists memories, newest first. For an agent with a user these are the ones that recall searches about the user:
    the agent's own and the shared ones, which the API lists only together with those of the user's other agents."""
    if body.agent_id is None and body.user_id is None:
        raise ToolError(OWNED)
    both = body.agent_id is not None and body.user_id is not None
    where = given(body, "limit", "cursor") | ({"agent_id": None} if both else {})
    items, cursor = list[Json](), body.cursor
    for _ in range(_PAGES):
        page = (await call("GET", "/v1/memories" + query(**where, limit=body.limit - len(items), cursor=cursor))).body
        items += [
            _for_model(memory) for memory in page["items"] if not both or memory["agent_id"] in (None, body.agent_id)
        ]
        cursor = page["next_cursor"]
        if cursor is None or len(items) == body.limit:
            break
    return {"items": items, **({} if cursor is None else {"next_cursor": cursor})}


async def get_memory(call: ToolRequest, body: args.GetMemory) -> Json:
    """Returns one memory."""
    return _whole((await call("GET", f"/v1/memories/{segment(body.memory_id)}")).body)


async def update_memory(call: ToolRequest, body: args.UpdateMemory) -> Json:
    """Changes the given fields of a memory."""
    fields = changed(body, "memory_id")
    return _whole((await call("PATCH", f"/v1/memories/{segment(body.memory_id)}", fields)).body)


def _whole(memory: Json) -> Json:
    """Returns all that a model may want to know of a memory."""
    owners = {name: memory[name] for name in ("agent_id", "user_id")}
    more = filled(memory, "importance", "pinned", "metadata", "valid_from", "valid_until", "expires_at")
    became = filled(memory, "status", "supersedes", "superseded_by", "contradicts", "updated_at")
    source = memory["source"] | {"speaker": speaker_of(memory["source"])}
    origin = {name: value for name, value in source.items() if value and name != "api_key_id"}
    return {**_for_model(memory), **owners, **more, **became, "source": origin}


async def memory_feedback(call: ToolRequest, body: args.MemoryFeedback) -> Json:
    """Records feedback on memories."""
    verdicts = dict.fromkeys(body.helpful, True)
    for number, memory_id in enumerate(body.misleading):
        if verdicts.get(memory_id):
            raise ToolError(f"/misleading/{number}: {memory_id} is among the helpful ones, too.")
        verdicts[memory_id] = False
    found_by = {} if body.query is None else {"query": body.query}
    items = [{"memory_id": memory_id, "helpful": helpful, **found_by} for memory_id, helpful in verdicts.items()]
    if not items:
        raise ToolError("Name memories that helped or misled, by the memory_ids that recall gave.")
    given = (await call.write("/v1/memories/feedback", {"items": items})).body["items"]
    answer: Json = {"counted": [feedback["memory_id"] for feedback in given if feedback["applied"]]}
    for feedback in given:
        if not feedback["applied"]:
            answer.setdefault(feedback["reason"], []).append(feedback["memory_id"])
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
                raise ToolError(f"Forgotten: {done}. {memory_id}: {error.detail}", code=error.code) from error
            missing.append(memory_id)
        else:
            forgotten.append(memory_id)
    return {"forgotten": forgotten, **({"not_found": missing} if missing else {})}


async def get_context(call: ToolRequest, body: args.GetContext) -> str:
    """Returns the context for a message as text, with warnings at its end."""
    result = await call("POST", "/v1/context", {**given(body), "citations": "numbers"})
    lines = [result.body["text"] or "Nothing that is remembered bears on this."]
    lines += [f"(Not read: {error['section']}: {error['detail']})" for error in result.body["errors"]]
    lines += [f"({warning['detail']})" for warning in result.body["warnings"]]
    return "\n".join(lines)


async def assert_fact(call: ToolRequest, body: args.AssertFact) -> Json:
    """Stores a fact. Facts that it contradicts are bounded, split or replaced."""
    fields = given(body, "many", "shared", "valid_from") | ({"agent_id": None} if body.shared else {})
    if "valid_from" in body.model_fields_set:
        fields["valid_from"] = body.valid_from
    result = await call.write("/v1/facts", fields | ({"cardinality": "many"} if body.many else {}))
    answer = {"new": result.status == 201} | _fact(result.body) | filled(result.body, "disputes")
    ended = list[Json]()
    for old in result.body["superseded"]:
        shown = filled(old, "fact_id", "object", "valid_from", "valid_until")
        if (again := old["keep_both"]) is not None:  # as arguments of this tool
            arguments = {name: again[name] for name in args.AssertFact.model_fields if name in again}
            shown["keep_both"] = arguments | {"many": True} | ({} if "agent_id" in again else {"shared": True})
        ended.append(shown)
    return {**answer, "superseded": ended} if ended else answer


async def find_facts(call: ToolRequest, body: args.FindFacts) -> Json:
    """Searches facts as of a time."""
    answer = (await call("POST", "/v1/facts/search", given(body))).body
    items = [_fact(item["fact"]) | matched(item["score"], answer["mode_used"]) for item in answer["items"]]
    return {"items": items, **warned(answer)}


def _fact(fact: Json) -> Json:
    shown = {name: fact[name] for name in ("fact_id", "subject", "predicate", "object")}
    status = {} if fact["status"] == "active" else {"status": fact["status"]}
    return {**shown, **filled(fact, "valid_from", "valid_until", "known_from", "known_until"), **status}


async def append_messages(call: ToolRequest, body: args.AppendMessages) -> Json:
    """Appends messages to a conversation, which begins with its first message."""
    messages = [given(message) for message in body.messages]
    fields = given(body, "session_id", "messages") | {"messages": messages}
    made = (await call.write(f"/v1/sessions/{segment(body.session_id)}/messages", fields)).body
    return (
        {"session_id": made["session_id"], "seqs": [message["seq"] for message in made["items"]]}
        | filled(made, "memory_ids")
        | warned(made)
    )


async def get_profile(call: ToolRequest, body: args.GetProfile) -> Json:
    """Returns a user's profile. It is empty if nobody has written one."""
    try:
        profile: Json = (await call("GET", f"/v1/users/{segment(body.user_id)}/profile")).body
    except ToolError as error:
        if error.code != "not_found":
            raise
        return {
            **Profile().model_dump(),
            "user_id": body.user_id,
            "version": None,
            "created_at": None,
            "updated_at": None,
        }
    return profile


async def update_profile(call: ToolRequest, body: args.UpdateProfile) -> Json:
    """Adds to a user's profile."""
    path = f"/v1/users/{segment(body.user_id)}/profile"
    result: Json = (await call("PATCH", path, changed(body, "user_id"))).body
    return result


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
    answer = await call("POST", "/v1/procedures/search", given(body))
    names = ("procedure_id", "name", "trigger", "preconditions", "steps", "notes")
    items = []
    for item in answer.body["items"]:
        shown = {name: item["procedure"][name] for name in names if item["procedure"][name]}
        items.append(shown | {"track_record": item["track_record"], **warned(item)})
    return {"items": items, **warned(answer.body)}


async def update_task(call: ToolRequest, body: args.UpdateTask) -> Json:
    """Creates or changes a task with several API calls. If one fails, the error says which were done."""
    task_id, done = body.task_id, []
    if task_id is None:
        if body.goal is None:
            raise ToolError("/goal: a new task needs a goal; give task_id to go on with one that is there.")
        fields = given(body, "task_id", "plan", "step", "step_status", "step_result", "note", "status")
        begun = {**fields, "status": "in_progress", "plan": _plan(body)}
        task_id = (await call.write("/v1/tasks", begun)).body["task_id"]
        done.append(f"task {task_id} begun")
    path = f"/v1/tasks/{segment(task_id)}"
    for what, method, below, change in _changes(body):
        try:
            at = path + below
            if what == "step":  # a model names the number that it has read, and the API the place
                at += f"/{_place(body.step, (await call('GET', path)).body['plan'])}"
            await (call.write(at, change, f":{what}") if method == "POST" else call(method, at, change))
        except ToolError as error:
            if done:
                raise ToolError(f"Done: {', '.join(done)}. Not done: {what} and what follows it: {error}") from error
            raise
        done.append(what)
    task = (await call("GET", path)).body
    state = (await call("GET", f"{path}/working-memory")).body["text"]
    context = {"context": task["context"]} if task["context"] else {}
    return {"task_id": task_id, "status": task["status"], "working_memory": Fenced(state), **context}


def _place(number: int | None, plan: list[Json]) -> int:
    """Returns the place from 0 of the step with this number, which is the one that the working memory shows."""
    numbers = [step["step"] for step in plan]
    if number not in numbers:
        raise ToolError(
            f"/step: the plan has no step {number}; its steps are {', '.join(map(str, numbers)) or 'none'}."
        )
    return numbers.index(number)


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
        yield "step", "PATCH", "/plan", {name: value for name, value in step.items() if value is not None}
    if body.note is not None:
        yield "note", "POST", "/scratchpad", {"content": body.note}
    if body.status is not None:
        yield "status", "PATCH", "", {"status": body.status}
