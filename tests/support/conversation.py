"""A conversation in which every operation answers at least once."""

from typing import Any

import httpx

from tests.support import more_talk
from tests.support.contract import Contract, Operation

OWNER: dict[str, Any] = {"agent_id": "support", "user_id": "ada"}


class Talk:
    """Calls operations by their id and holds every answer against what the operation declares."""

    def __init__(self, api: httpx.AsyncClient, contract: Contract) -> None:
        self._api, self._contract = api, contract
        self._operations = {op.name: op for op in contract.operations()}
        self.answers: dict[str, Any] = {}
        """The first answer of each schema, by its name."""
        self.faults: list[str] = []
        self.statuses: set[tuple[str, int]] = set()

    async def __call__(
        self, name: str, status: int = 200, /, *, body: Any = None, headers: dict[str, str] | None = None, **values: Any
    ) -> Any:
        operation = self._operations[name]
        path = operation.path.format(**values)
        query = {key: value for key, value in values.items() if f"{{{key}}}" not in operation.path}
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        response = await self._api.request(operation.method, path, params=query, headers=headers, **sent)
        self.statuses.add((name, response.status_code))
        if response.status_code != status:
            self.faults.append(f"{name}: {response.status_code} instead of {status}: {response.text[:300]}")
        if fault := self._contract.check(operation, response):
            self.faults.append(f"{name} {response.status_code}: {fault}")
        self._keep(operation, response)
        return (
            response.json()
            if response.headers.get("content-type", "").endswith(("/json", "problem+json"))
            else response.text
        )

    def _keep(self, operation: Operation, response: httpx.Response) -> None:
        declared = operation.spec["responses"].get(str(response.status_code), {})
        schema = declared.get("content", {}).get("application/json", {}).get("schema", {})
        if "$ref" in schema:
            body = response.json()
            hidden = {"key": "rk_0123456789abcdef_" + "x" * 43} if str(body.get("key")).startswith("rk_") else {}
            self.answers.setdefault(schema["$ref"].rpartition("/")[2], body | hidden)


async def whole_conversation(talk: Talk) -> None:
    await _session(talk)
    await _memories(talk)
    for part in (
        more_talk.documents,
        more_talk.tasks,
        more_talk.actions,
        more_talk.procedures,
        more_talk.facts,
        more_talk.contexts,
        more_talk.people,
        more_talk.agents,
        more_talk.background,
        more_talk.findings,
    ):
        await part(talk)
    for name in ("livez", "readyz", "metrics"):
        await talk(name)
    await talk("delete_session", 204, session_id="chat-1")
    await talk("get_session", 404, session_id="chat-1")
    await more_talk.erasing(talk)
    await more_talk.administering(talk)


async def _session(talk: Talk) -> None:
    session = {"session_id": "chat-1", **OWNER}
    await talk("create_session", 201, body=session)
    await talk("create_session", 409, body=session)
    once = {"Idempotency-Key": "append-1"}
    words = {"messages": [{"role": "user", "name": "Ada", "content": "I moved to Boston last week."}]}
    await talk("append_messages", 201, session_id="chat-1", body=words, headers=once)
    await talk("append_messages", 201, session_id="chat-1", body=words, headers=once)
    await talk("append_messages", 422, session_id="chat-1", body={"messages": []}, headers=once)
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    parts = [{"type": "text", "text": "And now?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    more = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "result": {"sky": None}},
        {"role": "user", "content": parts, "metadata": {"a.b": {"$c": ""}}},
    ]
    await talk("append_messages", 201, session_id="chat-1", body={"messages": more})
    await talk("list_messages", session_id="chat-1", limit=2)
    await talk("list_messages", session_id="chat-1", last=3, max_tokens=1000)
    await talk("get_session_context", session_id="chat-1")
    await talk("get_session_stats", session_id="chat-1")
    await talk("update_message", session_id="chat-1", seq=1, body={"content": "I moved to Boston last month."})
    await talk("update_message", 422, session_id="chat-1", seq=1, body={"content": None})
    await talk("update_message", 404, session_id="chat-1", seq=99, body={"content": "x"})
    await talk("delete_message", 204, session_id="chat-1", seq=2)
    await talk("delete_message", 404, session_id="chat-1", seq=2)
    await talk("list_messages", session_id="chat-1")
    await talk("get_session", session_id="chat-1")
    await talk("update_session", session_id="chat-1", body={"summary": "Ada moved to Boston."})
    await talk("update_session", 412, session_id="chat-1", body={"summary": None}, headers={"If-Match": '"99"'})
    await talk("list_sessions", **OWNER)
    await talk("list_sessions", metadata='{"channel": "mail"}')
    await talk("summarize_session", 202, session_id="chat-1")
    await talk("summarize_session", 404, session_id="none")
    await talk("end_session", 202, session_id="chat-1")
    await talk("extract_memories", 201, body={**OWNER, "messages": [{"role": "user", "content": "I prefer tea."}]})
    await talk("append_messages", 409, session_id="chat-1", body=words)
    await talk("reopen_session", session_id="chat-1")
    await talk("reopen_session", 404, session_id="none")
    await talk("clear_messages", session_id="chat-1")


async def _memories(talk: Talk) -> None:
    memory = {**OWNER, "content": "Prefers short answers", "memory_type": "preference", "tags": ["style"]}
    made = await talk("create_memory", 201, body=memory)
    await talk("create_memory", 200, body=memory)
    await talk("create_memory", 201, body={**memory, "content": "Prefers short answers."})
    named: dict[str, Any] = {"memory_id": made["memory_id"]}
    await talk("get_memory", **named)
    await talk("update_memory", **named, body={"importance": 0.9, "metadata": {"a.b": [1, {"$c": None}]}})
    await talk("update_memory", 412, **named, body={"importance": 0.1}, headers={"If-Match": '"1"'})
    await talk("get_memory_history", **named)
    await talk("get_related_memories", **named)
    await talk("get_related_memories", 404, memory_id="mem_none")
    reminder = {"due_at": "2030-01-07T08:00:00Z", "rrule": "FREQ=WEEKLY;BYDAY=MO"}
    bins = await talk("create_memory", 201, body={**OWNER, "content": "Put the bins out", **reminder})
    await talk("update_memory", memory_id=bins["memory_id"], body={"done_at": "2030-01-07T08:30:00Z"})
    await talk("list_upcoming", **OWNER, until="2031-01-01T00:00:00Z")
    await talk("list_upcoming", 422)
    source = {"session_id": "chat-1", "message_seq": 1, "note": "said in passing"}
    home = {**OWNER, "content": "Lives in Boston", "key": "home", "source": source}
    await talk("create_memories", 201, body={"items": [home]})
    await talk("list_memories", **OWNER, limit=1)
    await talk("list_memories", metadata='{"a.b": [1, {"$c": null}]}')
    await talk("list_memories", 422, metadata="mail")
    await talk("search_memories", body={**OWNER, "query": "How do they like answers?", "top_k": 2})
    await talk("search_memories", body={**OWNER, "query": "Where does Ada live?", "explain": True})
    await talk("search_memories", body={**OWNER, "query": "Where does Ada live?", "fields": ["content"]})
    await talk("search_memories", 422, body={**OWNER, "query": "Where does Ada live?", "fields": ["contents"]})
    await talk("search_memories", body={"user_id": "nobody", "query": "anything"})
    await talk("search_memories", 422, body={"query": "of whom?"})
    items = [
        {**named, "helpful": True, "query": "How do they like answers?"},
        {"memory_id": "mem_none", "helpful": True},
    ]
    await talk("give_memory_feedback", body={"items": items})
    await talk("give_memory_feedback", 422, body={"items": []})
    home = {**OWNER, "content": "Lives in Rome", "key": "home", "trust": 0.4}
    disputed = {"memory_id": (await talk("create_memory", 201, body=home))["memory_id"]}
    await talk("resolve_memory", 422, **disputed, body={"keep": "mem_none"})
    await talk("resolve_memory", **disputed, body={"keep": disputed["memory_id"]})
    await talk("resolve_memory", 409, **disputed, body={"keep": "both"})
    await talk("delete_memory", 204, **disputed)
    await talk("delete_memory", 204, **named, predecessors="delete")
    await talk("get_memory", 404, **named)
    await talk("delete_memories", **OWNER)
