"""What was sent to a service and what it acknowledged, and a look at whether all of that is there: once, and whole."""

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

AGENT, TALKER = "keeper", "talker"
WORDS = "tea coffee roses a garden Boston music mountains the sea in May 2023 a red bicycle bread rain".split()


@dataclass
class Memory:
    user: str
    key: str | None
    token: str = field(default_factory=lambda: uuid4().hex)
    acked: bool = False
    memory_id: str = ""
    patches_sent: int = 0
    patches_acked: int = 0
    delete_sent: bool = False
    delete_acked: bool = False

    @property
    def path(self) -> str:
        return "/v1/memories"

    def body(self) -> dict[str, Any]:
        return {"agent_id": AGENT, "user_id": self.user, "content": f"{self.token} likes {self._words()}"}

    def _words(self) -> str:
        return " ".join(random.Random(self.token).sample(WORDS, 4))

    def note(self, answer: Any) -> None:
        self.acked, self.memory_id = True, answer["memory_id"]


@dataclass
class Batch:
    """Messages that were appended together."""

    user: str
    session: str
    memorize: str
    size: int
    key: str | None
    token: str = field(default_factory=lambda: uuid4().hex)
    acked: bool = False
    seqs: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.session}/messages"

    def texts(self) -> list[str]:
        return [f"{self.token} {i} {WORDS[i % len(WORDS)]}" for i in range(self.size)]

    def body(self) -> dict[str, Any]:
        messages = [{"role": "user", "name": "Ann", "content": text} for text in self.texts()]
        return {"agent_id": TALKER, "user_id": self.user, "memorize": self.memorize, "messages": messages}

    def note(self, answer: Any) -> None:
        self.acked, self.seqs = True, tuple(item["seq"] for item in answer["items"])


@dataclass
class Ledger:
    """Of one round; each round has a user of its own."""

    user: str
    memories: list[Memory] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    def unsettled(self) -> list[Memory | Batch]:
        """Sent under an idempotency key, and never answered."""
        sent: list[Memory | Batch] = [*self.memories, *self.batches]
        return [one for one in sent if one.key is not None and not one.acked]


@dataclass
class Report:
    """`faults`: lost, torn, duplicate, search differs, error answer."""

    faults: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def fault(self, kind: str, detail: str) -> None:
        self.faults[kind] += 1
        if len(self.details) < 20:
            self.details.append(f"{kind}: {detail}")


async def send(client: httpx.AsyncClient, one: Memory | Batch) -> httpx.Response:
    headers = {} if one.key is None else {"Idempotency-Key": one.key}
    return await client.post(one.path, json=one.body(), headers=headers)


async def every(client: httpx.AsyncClient, path: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
    """All items of a list, page by page."""
    cursor = None
    while True:
        page = await client.get(path, params={**query, "limit": 100, **({"cursor": cursor} if cursor else {})})
        page.raise_for_status()
        body = page.json()
        for item in body["items"]:
            yield item
        cursor = body["next_cursor"]
        if cursor is None:
            return


class Checker:
    def __init__(self, client: httpx.AsyncClient, report: Report) -> None:
        self._client, self._report = client, report

    async def check(self, ledger: Ledger) -> None:
        await self._memories(ledger)
        talk = defaultdict(list)
        for batch in ledger.batches:
            talk[batch.session].append(batch)
        for session, batches in talk.items():
            await self._session(session, batches)

    async def _memories(self, ledger: Ledger) -> None:
        stored = defaultdict(list)
        async for doc in every(self._client, "/v1/memories", agent_id=AGENT, user_id=ledger.user):
            stored[doc["content"].split()[0]].append(doc)
        for memory in ledger.memories:
            self._memory(memory, stored.pop(memory.token, []))
        for token in stored:
            self._report.fault("torn", f"memory {token} was never sent")

    def _memory(self, memory: Memory, found: list[dict[str, Any]]) -> None:
        if len(found) > 1:
            self._report.fault("duplicate", f"memory {memory.token} is there {len(found)} times")
        if not found:
            if memory.acked and not memory.delete_sent:
                self._report.fault("lost", f"memory {memory.memory_id}")
            return
        doc = found[0]
        if memory.delete_acked:
            self._report.fault("lost", f"the deletion of memory {memory.memory_id}")
        if doc["content"] != memory.body()["content"] or doc["embedding"]["status"] != "ready":
            self._report.fault("torn", f"memory {doc['memory_id']}")
        applied = doc["metadata"].get("n", 0)
        if not memory.patches_acked <= applied <= memory.patches_sent:
            self._report.fault("lost", f"a change of memory {memory.memory_id}")
        if doc["version"] != 1 + applied:
            self._report.fault(
                "torn", f"memory {doc['memory_id']} is at version {doc['version']} after {applied} changes"
            )

    async def _session(self, session: str, batches: Sequence[Batch]) -> None:
        head = await self._client.get(f"/v1/sessions/{session}")
        messages = [m async for m in every(self._client, f"/v1/sessions/{session}/messages")] if head.is_success else []
        if [m["seq"] for m in messages] != list(range(1, len(messages) + 1)):
            self._report.fault("torn", f"session {session} has gaps: {[m['seq'] for m in messages]}")
        if head.is_success and head.json()["message_count"] != len(messages):
            self._report.fault("torn", f"session {session} counts {head.json()['message_count']} of {len(messages)}")
        said = defaultdict(list)
        for message in messages:
            said[message["content"].split()[0]].append(message)
        for batch in batches:
            self._batch(batch, said.pop(batch.token, []))
        for token in said:
            self._report.fault("torn", f"message {token} was never sent")
        if batches[0].memorize == "messages":
            await self._remembered(batches[0], messages)

    def _batch(self, batch: Batch, found: list[dict[str, Any]]) -> None:
        texts = [message["content"] for message in found]
        if not texts and batch.acked:
            self._report.fault("lost", f"{batch.size} messages of {batch.session}")
        if len(texts) > batch.size:
            self._report.fault("duplicate", f"messages of batch {batch.token}: {len(texts)} for {batch.size}")
        elif texts and texts != batch.texts():
            self._report.fault("torn", f"batch {batch.token} has {len(texts)} of {batch.size} messages")
        elif texts and batch.acked and tuple(message["seq"] for message in found) != batch.seqs:
            self._report.fault("torn", f"batch {batch.token} was acknowledged under other numbers")

    async def _remembered(self, batch: Batch, messages: list[dict[str, Any]]) -> None:
        """Each message of a session that is remembered has its memory, once."""
        query = {"agent_id": TALKER, "user_id": batch.user, "session_id": batch.session}
        memories = [doc async for doc in every(self._client, "/v1/memories", **query)]
        wanted = Counter((message["seq"], message["content"]) for message in messages)
        there = Counter((doc["source"]["message_seq"], doc["content"]) for doc in memories)
        for what in wanted - there:
            self._report.fault("torn", f"message {what[0]} of {batch.session} has no memory")
        for what in there - wanted:
            kind = "duplicate" if wanted[what] else "torn"
            self._report.fault(kind, f"memory of message {what[0]} of {batch.session}")
