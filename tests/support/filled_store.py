"""Some records of every kind, written by the API."""

from typing import Any

import httpx

OWNER: dict[str, Any] = {"agent_id": "support", "user_id": "ada"}


async def fill(api: httpx.AsyncClient) -> None:
    """Writes some records of every kind, and changes and deletes some, so that there are gaps and versions."""

    async def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = await api.request(method, path, json=body, headers=headers)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    await call("POST", "/v1/agents", {"agent_id": "support", "name": "Support", "settings": {"decay": {"factor": 0.9}}})
    await call("PATCH", "/v1/agents/support/experience", {"heuristics": ["Ask for the order number first."]})
    await call("POST", "/v1/sessions", {"session_id": "chat-1", **OWNER})
    said = ["I moved to Boston last month.", "I am allergic to peanuts.", "My brother Ben keeps bees in Quincy.", "Hm."]
    words = {"messages": [{"role": "user", "name": "Ada", "content": text} for text in said]}
    await call("POST", "/v1/sessions/chat-1/messages", words, **{"Idempotency-Key": "append-1"})
    call_made = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    more = [
        {"role": "assistant", "tool_calls": [call_made]},
        {"role": "tool", "tool_call_id": "c1", "result": {"a": 1}},
    ]
    await call("POST", "/v1/sessions/chat-1/messages", {"messages": more})
    await call("PATCH", "/v1/sessions/chat-1/messages/1", {"content": "I moved to Boston in May."})
    await call("DELETE", "/v1/sessions/chat-1/messages/4")
    await call("PATCH", "/v1/sessions/chat-1", {"summary": "Ada moved to Boston.", "metadata": {"a.b": {"$c": None}}})
    await _memories(call)
    await _facts(call)
    await _deeds(call)
    ada = {"name": "Ada", "interests": ["climbing"], "custom": {"a.b": {"$c": 1}}}
    await call("PUT", "/v1/users/ada/profile", ada)
    await call("POST", "/v1/users/ada/interactions", {"summary": "Asked about an invoice", "outcome": "answered"})
    await call("POST", "/v1/users/ada/issues", {"description": "Cannot log in since the update"})
    await call("POST", "/v1/users/ada/solutions", {"problem": "Cannot log in", "fix": "Cleared the cache"})


async def _memories(call: Any) -> None:
    memory = {**OWNER, "memory_type": "preference", "tags": ["food"]}
    await call(
        "POST", "/v1/memories", {**memory, "content": "Ada does not eat peanuts", "metadata": {"a.b": [1, None]}}
    )
    home = {**OWNER, "key": "home"}
    await call("POST", "/v1/memories", {**home, "content": "Lives in New York"})
    await call("POST", "/v1/memories", {**home, "content": "Lives in Boston"})
    await call("POST", "/v1/memories", {**home, "content": "Lives in Rome", "trust": 0.4})
    harbours = " ".join(f"In the {n} harbour {w}." for n, w in _HARBOURS)
    made = await call("POST", "/v1/memories", {**OWNER, "content": f"The log of the voyage. {harbours * 6}"})
    await call("PATCH", f"/v1/memories/{made['memory_id']}", {"importance": 0.9, "pinned": True})
    gone = await call("POST", "/v1/memories", {**OWNER, "content": "Something that was deleted again"})
    await call("DELETE", f"/v1/memories/{gone['memory_id']}")
    await call("POST", "/v1/memories", {"agent_id": "support", "content": "Shop hours are nine to five"})


_HARBOURS = (
    ("first", "the crew took water and bread on board"),
    ("second", "a pilot showed them the channel between the rocks"),
    ("third", "the anchor chain broke, and a fishing boat towed them out"),
)


async def _facts(call: Any) -> None:
    home = {**OWNER, "subject": "Ada", "predicate": "lives_in"}
    await call("POST", "/v1/facts", {**home, "object": "New York", "valid_from": "2019-01-01T00:00:00Z"})
    await call("POST", "/v1/facts", {**home, "object": "Boston", "valid_from": "2026-05-01T00:00:00Z"})
    await call("POST", "/v1/facts", {**home, "object": "Paris", "trust": 0.3})
    knows = {**OWNER, "subject": "Ada", "predicate": "knows", "cardinality": "many"}
    await call("POST", "/v1/facts/batch", {"items": [{**knows, "object": name} for name in ("Ben", "Cleo")]})
    await call("POST", "/v1/graph/entities/Ada Lovelace/aliases", {**OWNER, "aliases": ["Ada", "Countess"]})


async def _deeds(call: Any) -> None:
    steps = [{"action": "search", "params": {"a.b": {"$c": None}}}, {"action": "read"}]
    await call("POST", "/v1/tasks", {"task_id": "compare", **OWNER, "goal": "Compare stores", "plan": steps})
    await call("PATCH", "/v1/tasks/compare", {"status": "in_progress"})
    await call("POST", "/v1/tasks/compare/checkpoints", {"label": "halfway"})
    await call("POST", "/v1/tasks/compare/scratchpad", {"content": "Recall matters most", "priority": 2.0})
    action = {**OWNER, "action_type": "refund", "outcome": "success", "entities": ["order-17"]}
    made = await call("POST", "/v1/actions", {**action, "content": "Refunded order 17: the parcel was lost"})
    await call("PATCH", f"/v1/actions/{made['action_id']}/feedback", {"user_rating": 5})
    await call("POST", "/v1/actions/batch", {"items": [{**action, "outcome": "failure"}, {**action, "outcome": None}]})
    refund = {**OWNER, "name": "Refund a lost parcel", "trigger": "A parcel never arrived", "steps": ["Look", "Refund"]}
    way = await call("POST", "/v1/procedures", refund)
    path = f"/v1/procedures/{way['procedure_id']}"
    await call("POST", f"{path}/outcomes", {"success": False, "note": "The carrier answers after nine"})
    await call("PATCH", path, {"steps": ["Look", "Ask", "Refund"]})
