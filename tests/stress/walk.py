"""A random walk over memories, sessions and tasks of one user, beside dictionaries that say what must be there."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.conftest import Service

WORDS = "tea coffee roses garden Boston music mountains sea bicycle bread rain".split()


class Walk:
    """`forgets`: the model is wrong on purpose, and each deletion must show."""

    def __init__(self, service: Service, seed: int, *, forgets: bool = False) -> None:
        self._api, self._random, self._forgets = service.client, random.Random(seed), forgets
        self._owner = {"agent_id": "walker", "user_id": f"u{seed}"}
        self._session, self._task = f"s{seed}", f"t{seed}"
        self._memories: dict[str, str] = {}
        self._said: list[str] = []
        self._context: dict[str, Any] = {}
        self._kept: dict[int, dict[str, Any]] = {}
        self.faults: list[str] = []

    async def run(self, steps: int) -> list[str]:
        await self._call("POST", "/v1/tasks", {"task_id": self._task, **self._owner, "goal": "walk"})
        every: list[Callable[[], Awaitable[None]]] = [
            *(self._remember, self._change, self._forget, self._search, self._say, self._read),
            *(self._note, self._keep, self._restore, self._list),
        ]
        for _ in range(steps):
            await self._random.choice(every)()
        return self.faults

    async def _call(self, method: str, path: str, body: Any = None, expect: int | None = None, **params: Any) -> Any:
        answer = await self._api.request(method, path, json=body, params=params)
        if answer.status_code != expect if expect else not answer.is_success:
            self.faults.append(f"{method} {path}: {answer.status_code} {answer.text[:120]}")
            return {}
        return answer.json() if answer.content else {}

    def _same(self, what: str, found: Any, expected: Any) -> None:
        if found != expected:
            self.faults.append(f"{self._owner['user_id']} {what}: {str(found)[:150]} instead of {str(expected)[:150]}")

    def _text(self) -> str:
        return f"{' '.join(self._random.sample(WORDS, 3))} {self._random.randrange(10**9)}"

    async def _remember(self) -> None:
        text = self._text()
        made = await self._call("POST", "/v1/memories", {**self._owner, "content": text}, 201)
        self._memories[made["memory_id"]] = text

    async def _change(self) -> None:
        if self._memories:
            memory_id, text = self._random.choice(list(self._memories)), self._text()
            await self._call("PATCH", f"/v1/memories/{memory_id}", {"content": text})
            self._memories[memory_id] = text

    async def _forget(self) -> None:
        if self._memories:
            memory_id = self._random.choice(list(self._memories))
            await self._call("DELETE", f"/v1/memories/{memory_id}", expect=204)
            await self._call("GET", f"/v1/memories/{memory_id}", expect=404)
            if not self._forgets:
                del self._memories[memory_id]

    async def _search(self) -> None:
        found = await self._call("POST", "/v1/memories/search", {**self._owner, "query": "tea", "top_k": 100})
        contents = [item["memory"]["content"] for item in found["items"]]
        self._same("search", sorted(contents), sorted([*self._memories.values(), *self._said])[:100])

    async def _list(self) -> None:
        page = await self._call("GET", "/v1/memories", user_id=self._owner["user_id"], limit=100, order="asc")
        found = {item["memory_id"]: item["content"] for item in page["items"] if item["memory_type"] != "message"}
        self._same("list", found, self._memories)

    async def _say(self) -> None:
        texts = [self._text() for _ in range(self._random.randint(1, 3))]
        body = {**self._owner, "messages": [{"role": "user", "content": text} for text in texts]}
        made = await self._call("POST", f"/v1/sessions/{self._session}/messages", body, 201)
        first = len(self._said) + 1
        self._same("seq", [message["seq"] for message in made["items"]], [first + at for at in range(len(texts))])
        self._said += texts

    async def _read(self) -> None:
        if self._said:
            page = await self._call("GET", f"/v1/sessions/{self._session}/messages", limit=100)
            self._same("messages", [message["content"] for message in page["items"]], self._said)

    async def _note(self) -> None:
        key, value = self._random.choice(["a.b", "$c", "", "d"]), self._random.choice([1, None, "x", [1], {"e": 2.5}])
        await self._call("PATCH", f"/v1/tasks/{self._task}/context", {key: value})
        self._context = {k: v for k, v in {**self._context, key: value}.items() if v is not None}
        task = await self._call("GET", f"/v1/tasks/{self._task}")
        self._same("context", task["context"], self._context)

    async def _keep(self) -> None:
        made = await self._call("POST", f"/v1/tasks/{self._task}/checkpoints", {}, 201)
        self._kept[made["seq"]] = dict(self._context)

    async def _restore(self) -> None:
        if self._kept:
            seq = self._random.choice(list(self._kept))
            await self._call("POST", f"/v1/tasks/{self._task}/restore", {"seq": seq})
            self._context = dict(self._kept[seq])
            task = await self._call("GET", f"/v1/tasks/{self._task}")
            self._same("restored", task["context"], self._context)
