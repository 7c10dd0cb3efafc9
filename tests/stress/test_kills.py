"""The service is killed (SIGKILL) at random moments under concurrent writes, started again, and asked for all of it.

A kill takes the process, not the machine: that an fsync reaches the disk is SQLite's `synchronous=FULL` and the disk's
honesty, which no test of ours can see.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.settings import Settings
from tests.stress.size import is_full, size
from tests.support.ledger import Batch, Checker, Ledger, Memory, Report, send
from tests.support.server import SERVE, Server, recalld, serving

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

ROUNDS = size(2, 200)
LONGEST_SECONDS = 6 if is_full() else 2
"""Of writes, until the latest kill."""
LEASE_SECONDS = 125
NOW = "2030-01-01T00:00:00.000Z"
SETTLED = "settled"
HASTY = ("-m", "tests.support.serve", "hasty")
QUERIES = ("who likes tea?", "roses in the garden", "what happened in May 2023?", "music from Boston", "rain and bread")


# --- Writing until the lights go out ----------------------------------------------------------------------------------


class Writers:
    def __init__(self, client: httpx.AsyncClient, ledger: Ledger, report: Report) -> None:
        self._client, self._ledger, self._report = client, ledger, report
        self._acknowledged = asyncio.Event()

    async def run_until_killed(self, server: Server, after: float, *, at_an_acknowledgement: bool) -> None:
        talks = [(f"{self._ledger.user}-{i}", "messages" if i == 0 else "none") for i in range(3)]
        running = [asyncio.create_task(self._remember()) for _ in range(6)]
        running += [asyncio.create_task(self._talk(*talks[i % 3])) for i in range(6)]
        await asyncio.sleep(after)
        if at_an_acknowledgement:
            self._acknowledged.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._acknowledged.wait(), 2)
        server.process.kill()
        server.process.wait()
        await asyncio.gather(*running)

    async def _remember(self) -> None:
        with contextlib.suppress(httpx.TransportError):
            while True:
                memory = Memory(self._ledger.user, _key())
                self._ledger.memories.append(memory)
                await self._send("memories", memory)
                if memory.acked and random.random() < 0.5:
                    await self._change(memory)

    async def _change(self, memory: Memory) -> None:
        if random.random() < 0.3:
            memory.delete_sent = True
            response = await self._client.delete(f"/v1/memories/{memory.memory_id}")
            memory.delete_acked = self._judge("deletions", response)
            return
        memory.patches_sent += 1
        patch = {"metadata": {"n": memory.patches_sent}}
        if self._judge("changes", await self._client.patch(f"/v1/memories/{memory.memory_id}", json=patch)):
            memory.patches_acked = memory.patches_sent

    async def _talk(self, session: str, memorize: str) -> None:
        with contextlib.suppress(httpx.TransportError):
            while True:
                size = random.randint(1, 2 if memorize == "messages" else 8)
                batch = Batch(self._ledger.user, session, memorize, size, _key())
                self._ledger.batches.append(batch)
                await self._send("message batches", batch)

    async def _send(self, what: str, one: Memory | Batch) -> None:
        response = await send(self._client, one)
        if self._judge(what, response):
            one.note(response.json())

    def _judge(self, what: str, response: httpx.Response) -> bool:
        if response.is_success:
            self._report.counts[what] += 1
            self._acknowledged.set()
            return True
        self._report.fault("error answer", f"{response.status_code} {response.text[:200]}")
        return False


def _key() -> str | None:
    return uuid4().hex if random.random() < 0.4 else None


# --- Search, before and after -----------------------------------------------------------------------------------------

Answers = dict[str, list[Any]]


async def answers(client: httpx.AsyncClient, users: Sequence[str]) -> Answers:
    return {user: [await search(client, user, query) for query in QUERIES] for user in users}


async def search(client: httpx.AsyncClient, user: str, query: str) -> Any:
    body = {"query": query, "user_id": user, "now": NOW, "record_access": False, "explain": True, "top_k": 20}
    response = await client.post("/v1/memories/search", json=body)
    response.raise_for_status()
    return response.json()["items"]


async def grow_settled_scope(client: httpx.AsyncClient) -> None:
    """Adds to the settled scope, with searches in between: its copy in memory grows by increments."""
    for _ in range(2):
        (await send(client, Memory(SETTLED, None))).raise_for_status()
        await search(client, SETTLED, QUERIES[0])
        (await send(client, Batch(SETTLED, "settled-talk", "messages", 2, None))).raise_for_status()
        await search(client, SETTLED, QUERIES[1])


# --- The rounds -------------------------------------------------------------------------------------------------------


class Rounds:
    """Each has a user of its own. `command` is what serves."""

    def __init__(self, data: Path, command: Sequence[str], settings: dict[str, str]) -> None:
        self._data, self._command, self._settings = data, command, settings
        self._before: Answers = {}
        self.report = Report()

    async def run(self, ledgers: Sequence[Ledger]) -> Report:
        for number, ledger in enumerate(ledgers):
            await self._round(ledger, ledgers[number - 1] if number else None)
        with serving(self._data, self._command, **self._settings) as server:
            async with self._client(server) as client:
                await self._compare(client)
                await self._settle_all(client, ledgers)
                for ledger in ledgers:
                    await Checker(client, self.report).check(ledger)
        return self.report

    def _client(self, server: Server) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=server.client.base_url, timeout=60)

    async def _round(self, ledger: Ledger, last: Ledger | None) -> None:
        with serving(self._data, self._command, **self._settings) as server:
            async with self._client(server) as client:
                await self._compare(client)
                if last is not None:
                    await self._send_again(client, last)
                    await Checker(client, self.report).check(last)
                await grow_settled_scope(client)
                self._before = await answers(client, [SETTLED, *([last.user] if last else [])])
                planted = self._command is not SERVE
                after = random.uniform(0.02, LONGEST_SECONDS)
                writers = Writers(client, ledger, self.report)
                await writers.run_until_killed(server, after, at_an_acknowledgement=planted or random.random() < 0.5)

    async def _compare(self, client: httpx.AsyncClient) -> None:
        after = await answers(client, list(self._before))
        for user, answer in self._before.items():
            if after[user] != answer:
                self.report.fault("search differs", f"in the scope of {user}")

    async def _send_again(self, client: httpx.AsyncClient, ledger: Ledger) -> int:
        """Tries again what was never answered, as a client would. How many are still held up by requests that died: by
        a claim of their key, or in a store that outlives the service by a transaction, which it gives up in a minute.
        """
        held_up = {"idempotency_in_progress", "store_unavailable" if "RECALLD_STORE" in self._settings else ""}
        claimed = 0
        for one in ledger.unsettled():
            response = await send(client, one)
            if response.is_success:
                one.note(response.json())
            elif response.json().get("code") in held_up:
                claimed += 1
            else:
                self.report.fault("error answer", f"retry: {response.status_code} {response.text[:200]}")
        return claimed

    async def _settle_all(self, client: httpx.AsyncClient, ledgers: Sequence[Ledger]) -> None:
        """A request that died keeps its key claimed until its lease ends: the full run waits for that."""
        ends = time.monotonic() + (LEASE_SECONDS if is_full() else 0)
        while claimed := sum([await self._send_again(client, ledger) for ledger in ledgers]):
            if time.monotonic() > ends:
                if is_full():
                    self.report.fault("error answer", f"{claimed} keys stay claimed")
                return
            await asyncio.sleep(5)


def environment(settings: Settings) -> dict[str, str]:
    if settings.store.get_secret_value() == "embedded":
        return {}
    return {
        "RECALLD_STORE": settings.store.get_secret_value(),
        "RECALLD_MONGODB_DATABASE": settings.mongodb.database,
    }


@pytest.mark.parametrize("engine", ["embedded", "mongodb"] if is_full() else ["embedded"])
async def test_a_killed_service_loses_nothing_that_it_acknowledged(settings: Settings) -> None:
    given = environment(settings)
    report = await Rounds(settings.data_dir, SERVE, given).run([Ledger(f"round-{at}") for at in range(ROUNDS)])
    assert not report.faults, report.details
    assert report.counts["memories"] > 0
    assert report.counts["message batches"] > 0
    doctor = recalld(settings.data_dir, "doctor", **given)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


async def test_a_service_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    report = await Rounds(tmp_path / "data", HASTY, {}).run([Ledger("round-0")])
    assert report.faults["lost"] > 0, report.details
