"""Calls of every operation by those who may see nothing of it, with ids, cursors and idempotency keys of others.

Tenants hold the same users, sessions and tasks, each with a canary of its own in every text. Strangers are a key of a
tenant with nothing, and keys inside those tenants that are bound to another user or agent. No answer may hold a canary,
what belongs to others must answer as what does not exist, and what they hold must stay as it is.
"""

import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.conftest import Service
from tests.support.contract import Contract, Operation
from tests.support.lives import Life

Json = dict[str, Any]

AGENT = "clerk-17"
"""No word that an answer has anyway: it is looked for in answers."""
USERS = ("ada", "bob")
GENERATED = ("mem_", "msg_", "fact_", "proc_", "act_", "op_", "ckpt_")
OPEN = {"livez", "readyz", "metrics"}


@dataclass
class Found:
    """What came of the calls."""

    calls: int = 0
    statuses: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    leaks: list[str] = field(default_factory=list)

    @property
    def five_hundreds(self) -> int:
        return sum(number for counts in self.statuses.values() for status, number in counts.items() if status == 500)


class Strangers:
    """`await Strangers.among(service, tenants)`, then `await strangers.call(number)`."""

    def __init__(self, service: Service, seed: int) -> None:
        self._service, self._random = service, random.Random(seed)
        self._contract = Contract(service.app)
        self._operations = [op for op in self._contract.operations() if op.name not in OPEN]
        self._keys: list[dict[str, str]] = []
        self._bound: list[dict[str, str]] = []
        self._owners: dict[str, dict[str, str]] = {}
        self._canaries: list[bytes] = []
        self._ids: list[str] = []
        self._cursors: list[str] = []
        self._tenants: dict[str, str] = {}
        self._made: set[tuple[str, str]] = set()
        self.found = Found()

    @classmethod
    async def among(cls, service: Service, tenants: int, seed: int = 0) -> "Strangers":
        made = cls(service, seed)
        for number in range(tenants):
            await made._settle(f"tenant{number}", f"canary{number}x7f3a9c")
        every = "read,write,admin"
        for tenant in made._owners:
            bound = [await service.key(tenant, verbs=every, users=["nobody"])]
            bound += [await service.key(tenant, verbs=every, agents=["nobody"], users=["nobody"])]
            made._tenants |= {key["Authorization"]: tenant for key in bound}
            made._bound += bound
        made._keys = [await service.key("empty", verbs=every), *made._bound]
        return made

    async def _settle(self, tenant: str, canary: str) -> None:
        headers = self._owners[tenant] = await self._service.key(tenant, verbs="read,write,admin")
        self._canaries.append(canary.encode())
        for user in USERS:
            await Life(self._service.client, user, headers, mark=canary, agent=AGENT).lived()
        ids: list[Any] = []
        for line in await self._held(tenant):
            ids += [value for name, value in line["record"].items() if name.endswith("_id")]
        self._ids += [one for one in ids if isinstance(one, str) and "canary" not in one]
        for path in ("/v1/memories", "/v1/sessions", "/v1/facts", "/v1/actions", "/v1/operations", "/v1/audit"):
            page = (await self._service.client.get(path, params={"limit": 1}, headers=headers)).json()
            self._cursors += [page["next_cursor"]] if page.get("next_cursor") else []
        self._ids = sorted({*self._ids, *USERS})

    async def _held(self, tenant: str) -> list[Json]:
        lines: list[Json] = []
        for user in USERS:
            told = await self._service.client.get(f"/v1/users/{user}/export", headers=self._owners[tenant])
            lines += [line for text in told.text.splitlines() if (line := json.loads(text))["type"] == "record"]
        return lines

    async def held(self) -> dict[str, list[Json]]:
        """All that the tenants hold, but for background work."""
        found = {tenant: await self._held(tenant) for tenant in self._owners}
        return {t: [one for one in lines if one["collection"] != "operations"] for t, lines in found.items()}

    async def run(self, calls: int) -> Found:
        """Each operation once, then by each key, then at random."""
        every = [(op, key) for op in self._operations for key in self._keys]
        self._random.shuffle(every)
        once = {op.name: (op, key) for op, key in every}
        first = [*once.values(), *every]
        for number in range(calls):
            op, key = first[number] if number < len(first) else self._any()
            await self._call(op, key)
        return self.found

    def _any(self) -> tuple[Operation, dict[str, str]]:
        return self._random.choice(self._operations), self._random.choice(self._keys)

    async def _call(self, op: Operation, key: dict[str, str]) -> None:
        named = {name: self._an_id(name) for name in self._path_names(op)}
        query = {p["name"]: self._value(p["name"], p["schema"]) for p in op.parameters("query") if self._toss(0.4)}
        headers = dict(key)
        if op.method == "POST" and self._toss(0.5):
            headers["Idempotency-Key"] = f"{self._random.choice(USERS)}-{self._random.randrange(200)}"
        body = self._body(op)
        answer = await self._send(op, named, query, headers, body)
        if key not in self._bound:
            return
        tenant = self._tenants[key["Authorization"]]
        if named and not any((tenant, one) in self._made for one in named.values()):
            await self._compare(op, named, query, key, body)
        if answer.is_success and op.method == "POST":  # a session or a task may now be the strangers' own, by that id
            chosen = [body.get(name) for name in ("session_id", "task_id")] if isinstance(body, dict) else []
            self._made |= {(tenant, one) for one in (*named.values(), *chosen) if isinstance(one, str)}

    async def _compare(self, op: Operation, named: dict[str, str], query: Json, key: dict[str, str], body: Any) -> None:
        """What is refused where there is nothing is refused in the same words where there is something of others."""
        nothing = {name: self._free(one) for name, one in named.items()}
        there, free = [await self._send(op, ids, query, key, body) for ids in (named, nothing)]
        if free.is_error and _alike(there, named) != _alike(free, nothing):
            told = f"{there.status_code} is not {free.status_code}: {there.text[:200]}"
            self.found.leaks.append(f"{op.name} {named} {body}: {told}")

    def _free(self, one: str) -> str:
        """An id of the same form that nobody has."""
        if one.isdigit():
            return one
        generated = one.startswith(GENERATED)
        fresh = self._random.getrandbits(128)  # never the same twice: a call may make a session of it
        return f"{one.partition('_')[0]}_{fresh:032x}" if generated else f"free-{fresh}"

    async def _send(
        self, op: Operation, named: dict[str, str], query: Json, headers: dict[str, str], body: Any
    ) -> httpx.Response:
        path = op.path.format(**named)
        sent: Json = (
            {"content": b"A file.", "headers": {"content-type": "text/plain"} | headers} if op.takes_file else {}
        )
        sent = sent or {"headers": headers, "json": body}
        answer = await self._service.client.request(op.method, path, params=query, **sent)
        self.found.calls += 1
        self.found.statuses[op.name][answer.status_code] += 1
        for canary in self._canaries:
            if canary in answer.content:
                self.found.leaks.append(f"{op.name} {path} {query}: {canary.decode()}")
        return answer

    def _path_names(self, op: Operation) -> list[str]:
        return [p["name"] for p in op.parameters("path")]

    def _an_id(self, name: str) -> str:
        if name in ("index", "seq"):
            return str(self._random.randrange(3))
        if name == "user_id":
            return self._random.choice(USERS)
        kind = {"issue_id": "mem_", "operation_id": "op_", "memory_id": "mem_", "fact_id": "fact_"}.get(name)
        kind = kind or {"procedure_id": "proc_", "action_id": "act_"}.get(name)
        fitting = [one for one in self._ids if kind is None or one.startswith(kind)]
        if name == "session_id":
            fitting = [one for one in self._ids if one.startswith(("chat-", "new-", "left-"))]
        if name == "task_id":
            fitting = [one for one in self._ids if one.startswith("work-")]
        return self._random.choice(fitting if self._toss(0.9) else self._ids)

    def _value(self, name: str, schema: Json) -> Any:
        if name == "cursor":
            return self._random.choice(self._cursors)
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if schema.get("type") == "integer":
            return self._random.choice([1, 2, 10])
        if schema.get("type") == "boolean":
            return self._random.choice(["true", "false"])
        if schema.get("format") == "date-time":
            return "2026-06-01T12:00:00Z"
        return self._owner(name)

    def _owner(self, name: str) -> str:
        if name == "agent_id":
            return self._random.choice([AGENT, "nobody"])
        if name == "user_id":
            return self._random.choice([*USERS, "nobody"])
        return self._random.choice(self._ids)

    def _body(self, op: Operation) -> Any:
        """The document's own example, with the owners and ids of others in it."""
        if op.body is None:
            return None
        examples = self._contract.resolve(op.body).get("examples", [{}])
        return self._changed(self._random.choice(examples))

    def _changed(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self._changed(one) for one in tree]
        if not isinstance(tree, dict):
            return tree
        changed = {name: self._changed(value) for name, value in tree.items()}
        for name in ("agent_id", "user_id", "session_id", "task_id", "memory_ids", "supersedes"):
            if name in changed and self._toss(0.8):
                one = self._owner(name)
                changed[name] = [one] if isinstance(changed[name], list) else one
        return changed

    def _toss(self, chance: float) -> bool:
        return self._random.random() < chance


def _alike(answer: httpx.Response, named: dict[str, str]) -> tuple[int, Any]:
    """Without the ids that were asked for, which an answer may repeat."""
    text = answer.text
    for name, value in named.items():
        text = text if value.isdigit() else text.replace(value, name)
    lines = "ndjson" in answer.headers.get("content-type", "")
    body = json.loads(text) if text and not lines else text
    return answer.status_code, {**body, "request_id": "", "took_ms": 0} if isinstance(body, dict) else body
