"""Writers that go on while the store is away, and a book of what was answered."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from tests.support.ledger import Batch, Checker, Ledger, Memory, Report, send

PAUSE = 0.02
TRIES = 3
RETRIES_CLAIMED = 200
IN_PROGRESS = "idempotency_in_progress"


@dataclass
class Book:
    """What the service answered while things went wrong."""

    ledger: Ledger
    report: Report = field(default_factory=Report)
    refused: int = 0

    @property
    def acknowledged(self) -> int:
        return sum(self.report.counts.values())

    def figures(self) -> dict[str, Any]:
        return {
            **self.report.counts,
            **self.report.faults,
            "refused": self.refused,
        }


class Load:
    """Memories, their changes and deletions, and appends; some under an idempotency key and then tried again."""

    def __init__(self, client: httpx.AsyncClient, user: str, writers: int = 8) -> None:
        self._client, self._writers = client, writers
        self.book = Book(Ledger(user))
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for number in range(self._writers):
            work = self._remember if number % 2 else self._talk
            self._tasks.append(asyncio.create_task(work(number)))

    async def end(self) -> Book:
        """When what is under way is answered."""
        self._ended.set()
        await asyncio.gather(*self._tasks)
        return self.book

    async def _remember(self, number: int) -> None:
        while not self._ended.is_set():
            memory = Memory(self.book.ledger.user, _key())
            self.book.ledger.memories.append(memory)
            if await self._deliver("memories", memory) and random.random() < 0.5:
                await self._change(memory)
            await asyncio.sleep(PAUSE)

    async def _talk(self, number: int) -> None:
        talk = number % 4  # two writers to a session
        session, memorize = f"{self.book.ledger.user}-{talk}", "none" if talk else "messages"
        while not self._ended.is_set():
            batch = Batch(self.book.ledger.user, session, memorize, random.randint(1, 3), _key())
            self.book.ledger.batches.append(batch)
            await self._deliver("message batches", batch)
            await asyncio.sleep(PAUSE)

    async def _deliver(self, what: str, one: Memory | Batch) -> bool:
        """One that has a key is tried again, as its client would; one that has none must not be."""
        for _ in range(TRIES if one.key else 1):
            answer = await self._asked(send(self._client, one))
            if answer is not None and answer.is_success:
                self.book.report.counts[what] += 1
                one.note(answer.json())
                return True
        return False

    async def _change(self, memory: Memory) -> None:
        path = f"/v1/memories/{memory.memory_id}"
        if random.random() < 0.3:
            memory.delete_sent = True
            answer = await self._asked(self._client.delete(path))
            memory.delete_acked = answer is not None and answer.is_success
            return
        memory.patches_sent = 1
        answer = await self._asked(self._client.patch(path, json={"metadata": {"n": 1}}))
        memory.patches_acked = int(answer is not None and answer.is_success)

    async def _asked(self, request: Any) -> httpx.Response | None:
        try:
            answer: httpx.Response = await request
        except httpx.TransportError as fault:
            self.book.report.fault("error answer", f"none: {type(fault).__name__}")
            return None
        if not answer.is_success:
            self._refused(answer)
        return answer

    def _refused(self, answer: httpx.Response) -> None:
        """Nothing but: come again later. A key whose request was cut off stays claimed for a while."""
        self.book.refused += 1
        code = answer.json().get("code")
        expected = (503, "store_unavailable"), (409, IN_PROGRESS)
        if (answer.status_code, code) not in expected or "retry-after" not in answer.headers:
            self.book.report.fault("error answer", f"{answer.status_code} {answer.text[:200]}")


def _key() -> str | None:
    return uuid4().hex if random.random() < 0.5 else None


async def retry_unanswered(client: httpx.AsyncClient, book: Book) -> None:
    """Tries again what has a key and no answer, until it has one. A store that answers late on a busy machine is asked
    again, as a client asks again after a 503."""
    for _ in range(RETRIES_CLAIMED):
        claimed = 0
        for one in book.ledger.unsettled():
            answer = await send(client, one)
            if answer.is_success:
                one.note(answer.json())
            elif answer.status_code == 503 or (answer.status_code == 409 and answer.json()["code"] == IN_PROGRESS):
                claimed += 1
            else:
                book.report.fault("error answer", f"retry: {answer.status_code} {answer.text[:200]}")
        if not claimed:
            return
        await asyncio.sleep(0.2)
    book.report.fault("error answer", "keys stay claimed or are refused")


async def check(client: httpx.AsyncClient, book: Book) -> Report:
    """Compares what is there with what was answered."""
    await Checker(client, book.report).check(book.ledger)
    return book.report
