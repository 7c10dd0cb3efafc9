"""The MCP tools of memories. Each makes one or a few calls of the REST API."""

from app.core.schemas import OWNED, Json
from app.mcp import schemas as args
from app.mcp.calls import ToolRequest, changed, filled, given, matched, query, warned
from app.mcp.transport import ToolError, segment

_PAGES = 10
"""The limit of API calls of one list: a user may have thousands of memories of other agents."""


async def remember(call: ToolRequest, body: args.RememberArguments) -> Json:
    """Stores a memory."""
    fields = given(body, "shared") | ({"agent_id": None} if body.shared else {})
    result = await call.write("/v1/memories", fields)
    similar = [{name: one[name] for name in ("memory_id", "content")} for one in result.body["similar"]]
    answer = {"memory_id": result.body["memory_id"], "new": result.status == 201}
    if result.body["status"] == "disputed":
        answer |= {name: result.body[name] for name in ("status", "contradicts")}
    return {**answer, "similar": similar} if similar else answer


async def recall(call: ToolRequest, body: args.RecallArguments) -> Json:
    """Searches memories."""
    found = (await call("POST", "/v1/memories/search", given(body))).body
    mode = found["mode_used"]
    items = [_shown(item["memory"]) | matched(item["score"], mode) for item in found["items"]]
    return {"items": items, **warned(found)}


def _shown(memory: Json) -> Json:
    """Returns the fields of a memory that help a model."""
    shown = {
        "memory_id": memory["memory_id"],
        "content": memory["content"],
        "memory_type": memory["memory_type"],
        "when": (memory["event_at"] or memory["created_at"])[:16] + "Z",
    }
    speaker = filled(memory["source"], "speaker")
    return {**shown, **speaker, **filled(memory, "key", "context", "tags")}


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
        items += [_shown(one) for one in page["items"] if not both or one["agent_id"] in (None, body.agent_id)]
        cursor = page["next_cursor"]
        if cursor is None or len(items) == body.limit:
            break
    return {"items": items, **({} if cursor is None else {"next_cursor": cursor})}


async def get_memory(call: ToolRequest, body: args.GetMemory) -> Json:
    """Returns one memory."""
    return _whole((await call("GET", f"/v1/memories/{segment(body.memory_id)}")).body)


async def update_memory(call: ToolRequest, body: args.UpdateMemory) -> Json:
    """Changes the given fields of a memory."""
    path = f"/v1/memories/{segment(body.memory_id)}"
    return _whole((await call("PATCH", path, changed(body, "memory_id"))).body)


def _whole(memory: Json) -> Json:
    """Returns all that a model may want to know of a memory."""
    owners = {name: memory[name] for name in ("agent_id", "user_id")}
    more = filled(memory, "importance", "pinned", "metadata", "valid_from", "valid_until", "expires_at")
    became = filled(memory, "status", "supersedes", "superseded_by", "contradicts", "updated_at")
    origin = {name: value for name, value in memory["source"].items() if value and name != "api_key_id"}
    return {**_shown(memory), **owners, **more, **became, "source": origin}


async def memory_feedback(call: ToolRequest, body: args.MemoryFeedback) -> Json:
    """Records feedback on memories."""
    said = dict.fromkeys(body.helpful, True)
    for number, memory_id in enumerate(body.misleading):
        if said.get(memory_id):
            raise ToolError(f"/misleading/{number}: {memory_id} is among the helpful ones, too.")
        said[memory_id] = False
    asked = {} if body.query is None else {"query": body.query}
    items = [{"memory_id": memory_id, "helpful": helpful, **asked} for memory_id, helpful in said.items()]
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
