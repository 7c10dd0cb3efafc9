"""The MCP tools of contexts, facts, conversations and profiles."""

from app.core.schemas import Json
from app.mcp import schemas as args
from app.mcp.calls import ToolRequest, changed, filled, given, matched, warned
from app.mcp.transport import ToolError, segment
from app.profiles.schemas import ListedUser


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
    return {"new": result.status == 201} | _fact(result.body) | filled(result.body, "supersedes", "disputes")


async def find_facts(call: ToolRequest, body: args.FindFacts) -> Json:
    """Searches facts as of a time."""
    found = (await call("POST", "/v1/facts/search", given(body))).body
    items = [_fact(item["fact"]) | matched(item["score"], found["mode_used"]) for item in found["items"]]
    return {"items": items, **warned(found)}


def _fact(fact: Json) -> Json:
    shown = {name: fact[name] for name in ("fact_id", "subject", "predicate", "object")}
    status = {} if fact["status"] == "active" else {"status": fact["status"]}
    return {**shown, **filled(fact, "valid_from", "valid_until", "known_from", "known_until"), **status}


async def append_messages(call: ToolRequest, body: args.AppendMessages) -> Json:
    """Appends messages to a conversation, which begins with its first message."""
    messages = [given(message) for message in body.messages]
    fields = given(body, "session_id", "messages") | {"messages": messages}
    made = (await call.write(f"/v1/sessions/{segment(body.session_id)}/messages", fields)).body
    return {"session_id": made["session_id"], "seqs": [one["seq"] for one in made["items"]]} | filled(
        made, "memory_ids"
    )


async def get_profile(call: ToolRequest, body: args.GetProfile) -> Json:
    """Returns a user's profile. It is empty if nobody has written one."""
    try:
        found: Json = (await call("GET", f"/v1/users/{segment(body.user_id)}/profile")).body
    except ToolError as error:
        if error.code != "not_found":
            raise
        empty = ListedUser(user_id=body.user_id, version=None, created_at=None, updated_at=None)
        return empty.model_dump()
    return found


async def update_profile(call: ToolRequest, body: args.UpdateProfile) -> Json:
    """Adds to a user's profile."""
    path = f"/v1/users/{segment(body.user_id)}/profile"
    result: Json = (await call("PATCH", path, changed(body, "user_id"))).body
    return result
