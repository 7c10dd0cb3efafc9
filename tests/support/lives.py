"""A user of whom everything is known, with a mark in every text: the user's id, as a rule, which is in every id that a
caller may choose."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import httpx

Json = dict[str, Any]
KEYS = count()


class Life:
    """`mark` is the canary: once the user is erased it is nowhere."""

    def __init__(
        self,
        api: httpx.AsyncClient,
        user: str,
        headers: dict[str, str] | None = None,
        mark: str | None = None,
        agent: str = "a",
    ) -> None:
        self._api, self.user, self._headers, self.mark = api, user, headers or {}, mark or user
        self.owner: Json = {"agent_id": agent, "user_id": user}

    async def call(self, method: str, path: str, body: Json | None = None, expect: int = 0) -> Any:
        key = {"Idempotency-Key": f"{self.user}-{next(KEYS)}"} if method == "POST" else {}
        answer = await self._api.request(method, path, json=body, headers={**self._headers, **key})
        assert answer.is_success if not expect else answer.status_code == expect, (method, path, answer.text)
        return answer.json() if answer.content else None

    async def lived(self) -> None:
        for part in (
            self._profile,
            self._talks,
            self._memories,
            self._documents,
            self._tasks,
            self._actions,
            self._facts,
            self._ways,
        ):
            await part()

    async def _profile(self) -> None:
        user, me = self.mark, f"/v1/users/{self.user}"
        await self.call("PUT", f"{me}/profile", {"name": user, "custom": {user: {"a.b": user}}, "interests": [user]})
        await self.call("PATCH", f"{me}/profile", {"home": f"house of {user}"})
        await self.call("POST", f"{me}/interactions", {"summary": f"{user} asked", "outcome": user})
        issue = await self.call("POST", f"{me}/issues", {"description": f"{user} cannot log in"})
        await self.call("PATCH", f"{me}/issues/{issue['issue_id']}", {"status": "resolved"})
        for _ in range(2):
            await self.call("POST", f"{me}/solutions", {"problem": f"{user} again", "fix": f"helped {user}"})

    async def _talks(self) -> None:
        user = self.mark
        said = [{"role": "user", "name": user, "content": f"I am {user}, {word}"} for word in ("hello", "good day")]
        call = {"id": user, "type": "function", "function": {"name": user, "arguments": user}}
        heard = {"role": "assistant", "content": None, "tool_calls": [call]}
        for session in (f"chat-{self.user}", f"left-{self.user}", f"new-{self.user}"):
            body = {**self.owner, "messages": [*said, heard]}
            await self.call("POST", f"/v1/sessions/{session}/messages", body)
        await self.call("DELETE", f"/v1/sessions/left-{self.user}")
        await self.call(
            "PATCH", f"/v1/sessions/chat-{self.user}", {"summary": f"{user} said hello", "metadata": {user: user}}
        )
        await self.call("POST", f"/v1/sessions/chat-{self.user}/end")
        await self.call("DELETE", f"/v1/sessions/new-{self.user}/messages")
        await self.call("PATCH", f"/v1/sessions/chat-{self.user}/messages/1", {"content": f"I am {user}, indeed"})
        await self.call("DELETE", f"/v1/sessions/chat-{self.user}/messages/2")

    async def _memories(self) -> None:
        user = self.mark
        about: Json = {**self.owner, "tags": [user], "metadata": {user: user}, "context": f"when {user} asks"}
        made = await self.call(
            "POST", "/v1/memories", {**about, "content": f"{user} likes tea", "key": f"drink-{self.user}"}
        )
        await self.call(
            "PATCH", f"/v1/memories/{made['memory_id']}", {"content": f"{user} likes coffee " + "x" * 9_000}
        )
        await self.call("PATCH", f"/v1/memories/{made['memory_id']}", {"content": f"{user} likes water"})
        items = [{**about, "content": f"{user} number {number}" + "y" * 40 * number} for number in range(30)]
        made = await self.call("POST", "/v1/memories/batch", {"items": items})
        helped = [
            {"memory_id": one["memory_id"], "helpful": True, "query": f"what of {user}?"} for one in made["items"]
        ]
        await self.call("POST", "/v1/memories/feedback", {"items": helped[2:5]})
        await self.call("DELETE", f"/v1/memories/{made['items'][3]['memory_id']}")
        await self.call("POST", "/v1/memories", {"user_id": self.user, "content": f"everybody's {user}"})
        policy = {"older_than_days": 0, "types": ["fact"]}
        await self.call("POST", "/v1/memories/forget", {**self.owner, "policy": policy, "dry_run": False}, 202)

    async def _documents(self) -> None:
        answer = await self._api.post(
            "/v1/documents",
            params={"name": f"{self.mark}.md", **self.owner, "metadata": json.dumps({self.mark: self.mark})},
            content=f"# {self.mark}\nThe manual of {self.mark}.",
            headers={"content-type": "text/markdown", **self._headers},
        )
        assert answer.status_code == 202, answer.text

    async def _tasks(self) -> None:
        user, task = self.mark, f"/v1/tasks/work-{self.user}"
        plan = [{"action": user, "params": {user: user}}]
        body = {
            "task_id": f"work-{self.user}",
            **self.owner,
            "goal": f"for {user}",
            "plan": plan,
            "metadata": {"w": user},
        }
        await self.call("POST", "/v1/tasks", body)
        await self.call("PATCH", f"{task}/context", {user: f"context of {user}"})
        await self.call("POST", f"{task}/scratchpad", {"content": f"note of {user}"})
        await self.call("POST", f"{task}/evidence", {"source": user, "content": f"evidence of {user}"})
        await self.call("POST", f"{task}/checkpoints", {"label": user})
        await self.call("POST", f"{task}/restore", {"seq": -1})

    async def _actions(self) -> None:
        user = self.mark
        call = {"tool": user, "input": {user: user}, "output": user}
        body = {**self.owner, "action_type": "refund", "action": call, "entities": [user], "content": f"for {user}"}
        made = await self.call("POST", "/v1/actions", body)
        await self.call("PATCH", f"/v1/actions/{made['action_id']}/feedback", {"correction": f"{user} says no"})
        await self.call("POST", "/v1/actions/batch", {"items": [body, body]})

    async def _facts(self) -> None:
        about = {**self.owner, "subject": self.mark, "predicate": "lives_in"}
        told = [
            await self.call("POST", "/v1/facts", {**about, "object": f"{place} of {self.mark}"})
            for place in ("Boston", "New York", "Rome")
        ]
        await self.call("POST", f"/v1/facts/{told[-1]['fact_id']}/retract")
        names = f"/v1/graph/entities/{self.mark}/aliases"
        await self.call("POST", names, {**self.owner, "aliases": [f"Countess {self.mark}", f"{self.mark} Lovelace"]})
        where = f"agent_id={self.owner['agent_id']}&user_id={self.user}&alias=Countess {self.mark}"
        await self.call("DELETE", f"{names}?{where}")

    async def _ways(self) -> None:
        user = self.mark
        body = {**self.owner, "name": f"serve {user}", "trigger": f"{user} comes", "steps": [f"greet {user}"]}
        way = f"/v1/procedures/{(await self.call('POST', '/v1/procedures', body))['procedure_id']}"
        await self.call("POST", f"{way}/outcomes", {"success": False, "note": f"{user} left"})
        await self.call("PATCH", way, {"steps": [f"greet {user} twice"]})


def bytes_with(directory: Path, canary: str) -> dict[str, int]:
    """File → how often the canary's bytes are in it."""
    needle = canary.encode()
    found = {str(file.relative_to(directory)): file.read_bytes().count(needle) for file in directory.rglob("*.*")}
    return {name: times for name, times in found.items() if times}
