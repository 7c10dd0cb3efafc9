"""The MCP tools: each makes one or a few calls of the REST API. Behind them stand the tools as one connection may call
them, whose owners it may fix.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError

from app.api.errors import at_fault
from app.api.strict import DECODER, faults_of
from app.auth.keys import Principal
from app.core import schemas as core
from app.core.prompt_text import map_strings, unquote
from app.core.work import characters, off_loop
from app.errors import BadRequest, Forbidden, invalid, shortened
from app.mcp import schemas as args
from app.mcp.transport import (
    Api,
    Fenced,
    Result,
    Tool,
    ToolError,
    ToolRequest,
    changed,
    filled,
    given,
    matched,
    query,
    segment,
    warned,
)
from app.memories.repository import speaker_of
from app.profiles.users import Profile

_PAGES = 10
"""The limit of API calls of one list: a user may have thousands of memories of other agents."""


F = TypeVar("F", bound=Callable[..., Any])
TOOLS: dict[str, Tool[Any]] = {}
"""By name, in the order in which they are listed."""


def tool(title: str, *, reads: bool = False, destroys: bool = False, idempotent: bool = False) -> Callable[[F], F]:
    """Makes a function a tool of its name. Its docstring is the description that a model reads."""

    def register(run: F) -> F:
        name, wanted, about = run.__name__, run.__annotations__["body"], " ".join(str(run.__doc__).split())
        TOOLS[name] = Tool(name, title, about, wanted, run, reads, destroys, idempotent or reads)
        return run

    return register


@tool("Remember", idempotent=True)
async def remember(call: ToolRequest, body: args.RememberArguments) -> core.Json:
    """Store one lasting fact, preference or lesson; no small talk, no secrets. An equal memory is not stored twice. To
    correct one, give its memory_id in supersedes."""
    fields = given(body, "shared") | ({"agent_id": None} if body.shared else {})
    result = await call.write("/v1/memories", fields)
    similar = [{name: memory[name] for name in ("memory_id", "content")} for memory in result.body["similar"]]
    answer = {"memory_id": result.body["memory_id"], "new": result.status == 201}
    if result.body["status"] == "disputed":
        answer |= {name: result.body[name] for name in ("status", "contradicts")}
    return {**answer, "similar": similar} if similar else answer


@tool("Recall", reads=True)
async def recall(call: ToolRequest, body: args.RecallArguments) -> core.Json:
    """Search long-term memory by meaning, names and words. Use it before answering what may depend on earlier
    conversations. Gives memories with memory_id and match, best first; a weak match seldom answers."""
    if body.limit is not None and "top_k" in body.model_fields_set and body.limit != body.top_k:
        raise ToolError("/limit: means the same as top_k: give one of them.")
    fields = given(body, "limit") | {"top_k": body.limit or body.top_k}
    answer = (await call("POST", "/v1/memories/search", fields)).body
    mode = answer["mode_used"]
    items = [_for_model(item["memory"]) | matched(item["score"], mode) for item in answer["items"]]
    return {"items": items, **warned(answer)}


def _for_model(memory: core.Json) -> core.Json:
    """Returns the fields of a memory that help a model."""
    shown = {
        "memory_id": memory["memory_id"],
        "content": memory["content"],
        "memory_type": memory["memory_type"],
        "when": (memory["event_at"] or memory["created_at"])[:16] + "Z",
    }
    speaker = speaker_of(memory["source"])
    more = filled(memory, "key", "context", "tags", "due_at", "rrule")
    return {**shown, **({"speaker": speaker} if speaker else {}), **more}


@tool("Get context", reads=True)
async def get_context(call: ToolRequest, body: args.GetContext) -> str:
    """All that bears on a message, within a budget: profile, facts, procedures, memories, actions, task, messages. For
    the start of a conversation or task; recall is for one question."""
    result = await call("POST", "/v1/context", {**given(body), "citations": "numbers"})
    lines = [result.body["text"] or "Nothing that is remembered bears on this."]
    lines += [f"(Not read: {error['section']}: {error['detail']})" for error in result.body["errors"]]
    lines += [f"({warning['detail']})" for warning in result.body["warnings"]]
    return "\n".join(lines)


@tool("Log an action")
async def log_action(call: ToolRequest, body: args.LogAction) -> core.Json:
    """Record what you did and how it ended, once per task or tool call that matters, so that later runs learn from
    it."""
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


@tool("Find a procedure", reads=True)
async def find_procedure(call: ToolRequest, body: args.FindProcedure) -> core.Json:
    """Look up how something is done here, with steps and how often they worked. Use it before a task of more than one
    step."""
    answer = await call("POST", "/v1/procedures/search", given(body))
    names = ("procedure_id", "name", "trigger", "preconditions", "steps", "notes")
    items = []
    for item in answer.body["items"]:
        shown = {name: item["procedure"][name] for name in names if item["procedure"][name]}
        items.append(shown | {"track_record": item["track_record"], **warned(item)})
    return {"items": items, **warned(answer.body)}


@tool("Update a task")
async def update_task(call: ToolRequest, body: args.UpdateTask) -> core.Json:
    """Keep the state of long work outside the conversation: begin a task, set its plan, mark a step, note something,
    end it. Answers the task's working memory; with task_id alone it only reads it."""
    # several calls of the API: if one fails, the error says which were done
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


def _place(number: int | None, plan: list[core.Json]) -> int:
    """Returns the place from 0 of the step with this number, which is the one that the working memory shows."""
    numbers = [step["step"] for step in plan]
    if number not in numbers:
        raise ToolError(
            f"/step: the plan has no step {number}; its steps are {', '.join(map(str, numbers)) or 'none'}."
        )
    return numbers.index(number)


def _plan(body: args.UpdateTask) -> list[core.Json]:
    return [{"action": action} for action in body.plan or []]


def _changes(body: args.UpdateTask) -> Iterator[tuple[str, str, str, core.Json]]:
    """Yields (name, method, path below the task, body) of each change. The task's status comes last, since it may end
    the task."""
    if body.task_id is not None:
        if changed_fields := {
            name: value for name in ("goal", "due_at", "surface_at") if (value := getattr(body, name))
        }:
            yield "goal", "PATCH", "", changed_fields
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


@tool("Memory feedback", idempotent=True)
async def memory_feedback(call: ToolRequest, body: args.MemoryFeedback) -> core.Json:
    """After answering: say which recalled memories helped and which misled, so that later searches rank better."""
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
    answer: core.Json = {"counted": [feedback["memory_id"] for feedback in given if feedback["applied"]]}
    for feedback in given:
        if not feedback["applied"]:
            answer.setdefault(feedback["reason"], []).append(feedback["memory_id"])
    return answer


@tool("List memories", reads=True)
async def list_memories(call: ToolRequest, body: args.ListMemories) -> core.Json:
    """Page through what is remembered, newest first. For a question use recall."""
    # for an agent with a user these are the ones that recall searches about the user: the agent's own and the shared
    # ones, which the API lists only together with those of the user's other agents
    if body.agent_id is None and body.user_id is None:
        raise ToolError(core.OWNED)
    both = body.agent_id is not None and body.user_id is not None
    where = given(body, "limit", "cursor") | ({"agent_id": None} if both else {})
    items, cursor = list[core.Json](), body.cursor
    for _ in range(_PAGES):
        page = (await call("GET", "/v1/memories" + query(**where, limit=body.limit - len(items), cursor=cursor))).body
        items += [
            _for_model(memory) for memory in page["items"] if not both or memory["agent_id"] in (None, body.agent_id)
        ]
        cursor = page["next_cursor"]
        if cursor is None or len(items) == body.limit:
            break
    return {"items": items, **({} if cursor is None else {"next_cursor": cursor})}


@tool("What is coming", reads=True)
async def list_upcoming(call: ToolRequest, body: args.ListUpcoming) -> core.Json:
    """Plans, what is due, and what ceases to hold, the soonest first."""
    page = (await call("GET", "/v1/upcoming" + query(**given(body)))).body
    items = list[core.Json]()
    for item in page["items"]:
        record = {"memory": _for_model, "fact": _fact, "task": _due_task}
        shown = next(show(item[name]) for name, show in record.items() if item[name])
        items.append({"at": item["at"][:16] + "Z", "kind": item["kind"]} | shown)
    return {"items": items, **filled(page, "next_cursor")}


def _due_task(task: core.Json) -> core.Json:
    return {name: task[name] for name in ("task_id", "goal", "status")}


@tool("Get a memory", reads=True)
async def get_memory(call: ToolRequest, body: args.GetMemory) -> core.Json:
    """Read one memory in full, with its source and status."""
    return _whole((await call("GET", f"/v1/memories/{segment(body.memory_id)}")).body)


@tool("Update a memory", idempotent=True)
async def update_memory(call: ToolRequest, body: args.UpdateMemory) -> core.Json:
    """Fix a memory that was stored wrongly; only the fields given change. If the world changed, use remember with
    supersedes."""
    fields = changed(body, "memory_id")
    return _whole((await call("PATCH", f"/v1/memories/{segment(body.memory_id)}", fields)).body)


def _whole(memory: core.Json) -> core.Json:
    """Returns all that a model may want to know of a memory."""
    owners = {name: memory[name] for name in ("agent_id", "user_id")}
    more = filled(memory, "importance", "pinned", "metadata", "event_at_precision", "surface_at", "done_at")
    more |= filled(memory, "valid_from", "valid_until", "expires_at")
    became = filled(memory, "status", "supersedes", "superseded_by", "contradicts", "updated_at")
    source = memory["source"] | {"speaker": speaker_of(memory["source"])}
    origin = {name: value for name, value in source.items() if value and name != "api_key_id"}
    return {**_for_model(memory), **owners, **more, **became, "source": origin}


@tool("Forget", destroys=True, idempotent=True)
async def forget(call: ToolRequest, body: args.Forget) -> core.Json:
    """Delete memories for good, by the memory_ids that recall gave, with the ones that they superseded. Only when the
    user asks; to correct one, use remember with supersedes."""
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


@tool("Assert a fact", idempotent=True)
async def assert_fact(call: ToolRequest, body: args.AssertFact) -> core.Json:
    """Record subject, predicate and object with the time when it is true, such as who lives or works where. It ends the
    earlier fact that it contradicts."""
    fields = given(body, "many", "shared", "valid_from") | ({"agent_id": None} if body.shared else {})
    if "valid_from" in body.model_fields_set:
        fields["valid_from"] = body.valid_from
    result = await call.write("/v1/facts", fields | ({"cardinality": "many"} if body.many else {}))
    answer = {"new": result.status == 201} | _fact(result.body) | filled(result.body, "disputes")
    ended = list[core.Json]()
    for old in result.body["superseded"]:
        shown = filled(old, "fact_id", "object", "valid_from", "valid_until")
        if (again := old["keep_both"]) is not None:  # as arguments of this tool
            arguments = {name: again[name] for name in args.AssertFact.model_fields if name in again}
            shown["keep_both"] = arguments | {"many": True} | ({} if "agent_id" in again else {"shared": True})
        ended.append(shown)
    return {**answer, "superseded": ended} if ended else answer


@tool("Find facts", reads=True)
async def find_facts(call: ToolRequest, body: args.FindFacts) -> core.Json:
    """Ask facts: what is true now, was true at a time (as_of), or was known at one (known_at)."""
    answer = (await call("POST", "/v1/facts/search", given(body))).body
    items = [_fact(item["fact"]) | matched(item["score"], answer["mode_used"]) for item in answer["items"]]
    return {"items": items, **warned(answer)}


def _fact(fact: core.Json) -> core.Json:
    shown = {name: fact[name] for name in ("fact_id", "subject", "predicate", "object")}
    status = {} if fact["status"] == "active" else {"status": fact["status"]}
    return {**shown, **filled(fact, "valid_from", "valid_until", "known_from", "known_until"), **status}


@tool("Append messages")
async def append_messages(call: ToolRequest, body: args.AppendMessages) -> core.Json:
    """Keep the wording of a conversation, in order. Its messages become memories."""
    messages = [given(message) for message in body.messages]
    fields = given(body, "session_id", "messages") | {"messages": messages}
    made = (await call.write(f"/v1/sessions/{segment(body.session_id)}/messages", fields)).body
    return (
        {"session_id": made["session_id"], "seqs": [message["seq"] for message in made["items"]]}
        | filled(made, "memory_ids")
        | warned(made)
    )


@tool("Get the profile", reads=True)
async def get_profile(call: ToolRequest, body: args.GetProfile) -> core.Json:
    """What is known of the user for good: name, home, interests, preferences."""
    try:
        profile: core.Json = (await call("GET", f"/v1/users/{segment(body.user_id)}/profile")).body
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


@tool("Update the profile", idempotent=True)
async def update_profile(call: ToolRequest, body: args.UpdateProfile) -> core.Json:
    """Add to the user's profile: lists grow, the rest is overwritten, null clears."""
    path = f"/v1/users/{segment(body.user_id)}/profile"
    result: core.Json = (await call("PATCH", path, changed(body, "user_id"))).body
    return result


CORE = ("remember", "recall", "get_context", "get_memory", "forget")
"""The tools that a connection lists unless it asks for all. A model reads the list at every turn."""


def wants_all(tools: str | None, pointer: str) -> bool:
    """Returns whether a connection asks for all tools to be listed. Raises Invalid."""
    if tools not in (None, "all"):
        raise invalid(pointer, f'must be "all", or left out for {", ".join(CORE)}; it is "{shortened(tools)}"')
    return tools == "all"


MAX_ERRORS = 5
"""The limit of argument errors in one message."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Whom:
    """The agent and user of a connection. Tools do not take the ones that it fixes as arguments."""

    agent_id: str | None = None
    user_id: str | None = None

    @property
    def fixed(self) -> frozenset[str]:
        """The names of the fixed owners."""
        return frozenset(self.values())

    def values(self) -> core.Json:
        """Returns the fixed owners by name."""
        named = {"agent_id": self.agent_id, "user_id": self.user_id}
        return {name: value for name, value in named.items() if value is not None}


def connected(principal: Principal, given: Whom, pointer: str, *, rules: bool = False) -> tuple[Principal, Whom]:
    """Returns the principal and owners of a connection: the owners it asks for, or else the only ones that its key is
    bound to. A connection for a user has the rights of a key bound to that user. `rules`: the model may write rules
    (`RECALLD_MCP_INSTRUCTIONS`). Raises Invalid or Forbidden."""
    named = given.values()
    principal = replace(principal, scope=replace(principal.scope, rules=principal.scope.rules and rules))
    for name, bound in (("agent_id", principal.scope.agents), ("user_id", principal.scope.users)):
        if name not in named:
            if bound is not None and len(bound) == 1:
                (named[name],) = bound
            continue
        try:
            named[name] = core.identifier(named[name])
        except ValueError as error:
            raise invalid(pointer.format(name), str(error)) from None
        if bound is not None and named[name] not in bound:
            raise Forbidden(f"This key is bound to others than this {name}.")
    whom = Whom(**named)
    if whom.user_id is not None:
        principal = replace(principal, scope=replace(principal.scope, users=frozenset({whom.user_id})))
    return principal, whom


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a connection. Any can be called; `every`: all are listed, not only the core."""

    api: Api
    whom: Whom = Whom()
    instructions: bool = False
    every: bool = False

    async def call(self, name: str, arguments: core.Json, key: str | None = None) -> Result:
        """Runs a tool. Raises ToolError, and KeyError for an unknown tool."""
        tool = TOOLS[name]
        body = await off_loop(characters(arguments), self._read, tool.arguments, arguments)
        request = ToolRequest(self.api, key)
        try:
            result = await tool.run(request, body)
            return {**result, "warnings": request.warnings} if request.warnings and isinstance(result, dict) else result
        except ToolError:
            raise
        except Exception as error:
            log.exception("tool failed", extra={"tool": name})
            raise ToolError("Something went wrong in the service; its log says what.", code="internal_error") from error

    def _read(self, wanted: type[core.Schema], arguments: core.Json) -> core.Schema:
        faults = [
            f"{fault.pointer or '/'}: {fault.detail}" for fault in islice(faults_of(arguments, _WIDTHS), MAX_ERRORS)
        ]
        if faults:
            raise ToolError("The arguments are not valid.", errors=tuple(faults))
        arguments = map_strings(arguments, unquote)
        for name, value in self.whom.values().items():
            if (given := arguments.get(name)) not in args.ABSENT and not _is_id(given, value):
                raise ToolError(f"/{name}: this connection is for {value} only: leave it out.", code="forbidden")
        ours = {name: value for name, value in self.whom.values().items() if name in wanted.model_fields}
        try:
            return _validated(wanted, {**arguments, **ours})
        except ValidationError as error:
            found = error.errors(include_url=False)[:MAX_ERRORS]
            fields = [at_fault(fault, fault["loc"], arguments, wanted, "argument") for fault in found]
            faults = [f"{field.pointer or '/'}: {field.detail}" for field in fields]
            raise ToolError("The arguments are not valid.", errors=tuple(faults)) from error

    async def profile(self, user_id: str) -> core.Json:
        """Returns a user's profile, which may be empty. Raises ToolError."""
        if self.whom.user_id not in (None, user_id):
            raise ToolError("There is no such record.", code="not_found")
        return await get_profile(ToolRequest(self.api), args.GetProfile(user_id=user_id))


_WIDTHS = replace(core.BODY_LIMITS, text_chars=sys.maxsize)
"""Of objects and lists, before they are read: 150,000 unknown arguments would be as many errors. Texts have their limit
without the entities that they are quoted with."""


def _validated(wanted: type[core.Schema], arguments: core.Json) -> core.Schema:
    """Returns the arguments. Several clients send lists, objects and numbers as JSON in a string (`"[1, 2]"`): such a
    string is parsed once, where no string is wanted. Raises ValidationError."""
    try:
        return wanted.model_validate(arguments)
    except ValidationError as error:
        parsed = arguments
        for fault in error.errors(include_url=False):
            if isinstance(fault["input"], str) and fault["type"].endswith("_type") and fault["type"] != "string_type":
                parsed = _parsed_at(parsed, fault["loc"])
        if parsed is arguments:
            raise
        return wanted.model_validate(parsed)


def _parsed_at(value: Any, place: Sequence[int | str]) -> Any:
    """Returns the value with the JSON in the string at a place parsed. Nothing that is not JSON changes. Raises
    ToolError if a key occurs twice in an object."""
    if isinstance(value, str):
        try:
            return DECODER.decode(value)
        except BadRequest as error:
            raise ToolError(error.detail, code=error.code) from error
        except (ValueError, RecursionError):
            return value
    if not place or not isinstance(value, list | dict):
        return value
    name, *rest = place
    if isinstance(value, dict):
        return {**value, name: _parsed_at(value[name], rest)} if name in value else value
    return [_parsed_at(item, rest) if at == name else item for at, item in enumerate(value)]


def _is_id(given: Any, fixed: str) -> bool:
    """Returns whether an argument is the id that the connection fixes, in any spelling."""
    try:
        return isinstance(given, str) and core.identifier(given) == fixed
    except ValueError:
        return False
