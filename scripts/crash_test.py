"""Kills the service (SIGKILL) at random moments under concurrent writes, starts it again, and looks for what is gone.

    python scripts/crash_test.py --rounds 50            # exit code 0: nothing lost, torn or double, search as before
    python scripts/crash_test.py --rounds 3 --plant-fault   # exit code 0: losses WERE found in a service that lies
    python scripts/crash_test.py --store mongodb://...      # on MongoDB, in a database of its own

The planted fault is a writer that acknowledges before its group's COMMIT. A kill takes the process, not the machine:
that an fsync reaches the disk is SQLite's `synchronous=FULL` and the disk's honesty, which no such script can test.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from pymongo import MongoClient

ROOT = Path(__file__).resolve().parents[1]
NOW = "2030-01-01T00:00:00.000Z"
AGENT, TALKER = "keeper", "talker"
SETTLED = "settled"
LEASE_SECONDS = 125
DOCTOR_EVERY = 5
WORDS = "tea coffee roses a garden Boston music mountains the sea in May 2023 a red bicycle bread rain".split()
QUERIES = ("who likes tea?", "roses in the garden", "what happened in May 2023?", "music from Boston", "rain and bread")


# --- What was sent, and what was acknowledged -------------------------------------------------------------------------


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
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    details: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ready_seconds: list[float] = field(default_factory=list)
    ready_cpu_seconds: list[float] = field(default_factory=list)

    def fault(self, kind: str, detail: str) -> None:
        self.faults[kind] += 1
        if len(self.details) < 20:
            self.details.append(f"{kind}: {detail}")

    def as_dict(self) -> dict[str, Any]:
        kinds = ("lost", "torn", "duplicate", "search differs", "doctor", "error answer", "slow start")
        return {
            "rounds": self.rounds,
            **{f"acknowledged {name}": number for name, number in sorted(self.counts.items())},
            **{kind: self.faults[kind] for kind in kinds},
            "ready again, median s": round(sorted(self.ready_seconds)[len(self.ready_seconds) // 2], 3),
            "ready again, max s": round(max(self.ready_seconds), 3),
            "of that on a CPU, max s": round(max(self.ready_cpu_seconds), 3),
        }


# --- The service ------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self, directory: Path, *, planted: bool, store: Mapping[str, str]) -> None:
        self.planted, self.shared = planted, bool(store)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.address = f"http://127.0.0.1:{self.port}"
        self._log = directory / "server.log"
        self._serve = [str(Path(__file__).resolve()), "--serve-planted"] if planted else ["-m", "app.cli", "serve"]
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RECALLD_DATA_DIR": str(directory / "data"),
            "RECALLD_HOST": "127.0.0.1",
            "RECALLD_PORT": str(self.port),
            "RECALLD_LOG_LEVEL": "warning",
            **store,
        }
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, client: httpx.AsyncClient) -> float:
        """Seconds until it says that it is ready."""
        started = time.perf_counter()
        process = self._spawn()
        while time.perf_counter() - started < 60 and process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/readyz")).status_code == 200:
                    return time.perf_counter() - started
            await asyncio.sleep(0.01)
        self.kill()
        raise RuntimeError(f"the service did not start:\n{self._log.read_text()[-2000:]}")

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = [sys.executable, *self._serve]
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)
        return self._process

    def cpu_seconds(self) -> float:
        """What the process has used until now, all threads; 0 where there is no /proc. Tells a busy machine from us."""
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def doctor(self) -> str | None:
        """What it complains of."""
        command = [sys.executable, "-m", "app.cli", "doctor"]
        done = subprocess.run(command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else done.stdout + done.stderr


def serve_planted() -> None:
    """The service with a writer that lies: it acknowledges first, and commits a moment later."""
    import uvicorn  # noqa: PLC0415 (only this process needs the service's modules)

    from app.lifespan import COLLECTIONS, RealParts  # noqa: PLC0415
    from app.main import create_app  # noqa: PLC0415
    from app.settings import Settings  # noqa: PLC0415
    from app.storage.sqlite import changes  # noqa: PLC0415
    from app.storage.sqlite.schema import connect  # noqa: PLC0415
    from app.storage.sqlite.store import EmbeddedStore  # noqa: PLC0415
    from app.storage.sqlite.writer import Waiting, WriterThread  # noqa: PLC0415

    class HastyWriter(WriterThread):
        def commit_group(self, group: Sequence[Waiting]) -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            for waiting in group:
                waiting.outcome = self._attempt(waiting.work)
            self.acknowledge(group)
            time.sleep(0.1)
            self._connection.execute("COMMIT")

    class HastyStore(EmbeddedStore):
        def _start_writer(self) -> WriterThread:
            return HastyWriter(connect(self._path, self._busy_timeout_ms), changes.execute, self._observe_commit)

    class HastyParts(RealParts):
        async def store(self, settings: Settings, dim: int) -> EmbeddedStore:
            return await HastyStore.open(settings.data_dir, COLLECTIONS, dim=dim)

    settings = Settings()
    uvicorn.run(create_app(settings, HastyParts()), host=settings.host, port=settings.port, log_level="warning")


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
        server.kill()
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


async def send(client: httpx.AsyncClient, one: Memory | Batch) -> httpx.Response:
    headers = {} if one.key is None else {"Idempotency-Key": one.key}
    return await client.post(one.path, json=one.body(), headers=headers)


async def send_again(client: httpx.AsyncClient, ledger: Ledger, report: Report, *, shared: bool) -> int:
    """Retries what was never answered, as a client would. How many are still held up by requests that died.

    By a claim of their key, or in a store that outlives the service by a transaction, which it gives up in a minute.
    """
    claimed = 0
    for one in ledger.unsettled():
        response = await send(client, one)
        if response.is_success:
            one.note(response.json())
            report.counts["retries after a kill"] += 1
        elif response.json().get("code") in ("idempotency_in_progress", "store_unavailable" if shared else None):
            claimed += 1
        else:
            report.fault("error answer", f"retry: {response.status_code} {response.text[:200]}")
    return claimed


# --- Looking for what is gone -----------------------------------------------------------------------------------------


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


# --- Search, before and after -----------------------------------------------------------------------------------------

Answers = dict[str, list[Any]]


async def answers(client: httpx.AsyncClient, users: Sequence[str]) -> Answers:
    return {user: [await search(client, user, query) for query in QUERIES] for user in users}


async def search(client: httpx.AsyncClient, user: str, query: str) -> Any:
    body = {"query": query, "user_id": user, "now": NOW, "record_access": False, "explain": True, "top_k": 20}
    response = await client.post("/v1/memories/search", json=body)
    response.raise_for_status()
    return response.json()["items"]


async def settle(client: httpx.AsyncClient) -> None:
    """Adds to the settled scope, with searches in between: its copy in memory grows by increments."""
    for _ in range(2):
        (await send(client, Memory(SETTLED, None))).raise_for_status()
        await search(client, SETTLED, QUERIES[0])
        (await send(client, Batch(SETTLED, "settled-talk", "messages", 2, None))).raise_for_status()
        await search(client, SETTLED, QUERIES[1])


# --- The rounds -------------------------------------------------------------------------------------------------------


class CrashTest:
    def __init__(
        self, server: Server, client: httpx.AsyncClient, rounds: int, max_ready: float, longest: float
    ) -> None:
        self._server, self._client, self._max_ready, self._longest = server, client, max_ready, longest
        self._ledgers = [Ledger(f"round-{i}") for i in range(rounds)]
        self.report = Report(rounds)
        self._checker = Checker(client, self.report)

    async def run(self, *, wait_for_leases: bool) -> Report:
        before: Answers = {}
        for i, ledger in enumerate(self._ledgers):
            await self._start(before)
            if i:
                await self._send_again(self._ledgers[i - 1])
                await self._checker.check(self._ledgers[i - 1])
            await settle(self._client)
            before = await answers(self._client, [SETTLED, *([self._ledgers[i - 1].user] if i else [])])
            writers = Writers(self._client, ledger, self.report)
            revealing = self._server.planted or random.random() < 0.5
            after = random.uniform(0.02, self._longest)
            await writers.run_until_killed(self._server, after, at_an_acknowledgement=revealing)
            if i % DOCTOR_EVERY == 0:
                self._doctor()
        await self._start(before)
        await self._settle_all(wait_for_leases=wait_for_leases)
        for ledger in self._ledgers:
            await self._checker.check(ledger)
        self._server.kill()
        self._doctor()
        return self.report

    async def _start(self, before: Answers) -> None:
        seconds = await self._server.start(self._client)
        self.report.ready_seconds.append(seconds)
        self.report.ready_cpu_seconds.append(self._server.cpu_seconds())
        if seconds > self._max_ready:
            self.report.fault("slow start", f"{seconds:.2f} s")
        after = await answers(self._client, list(before))
        for user, answer in before.items():
            if after[user] != answer:
                self.report.fault("search differs", f"in the scope of {user}")

    async def _send_again(self, ledger: Ledger) -> int:
        return await send_again(self._client, ledger, self.report, shared=self._server.shared)

    async def _settle_all(self, *, wait_for_leases: bool) -> None:
        """A request that died keeps its key claimed until its lease ends: only then does a retry go through."""
        deadline = time.monotonic() + (LEASE_SECONDS if wait_for_leases else 0)
        while claimed := sum([await self._send_again(ledger) for ledger in self._ledgers]):
            if time.monotonic() > deadline:
                if wait_for_leases:
                    self.report.fault("error answer", f"{claimed} keys stay claimed")
                return
            await asyncio.sleep(5)

    def _doctor(self) -> None:
        complaint = None if self._server.planted else self._server.doctor()
        if complaint is not None:
            self.report.fault("doctor", complaint[:500])


@contextlib.contextmanager
def own_database(uri: str | None) -> Iterator[dict[str, str]]:
    """Settings of the service. What is written goes with them."""
    if uri is None:
        yield {}
        return
    name = f"recalld_crash_{uuid4().hex[:12]}"
    try:
        yield {"RECALLD_STORE": uri, "RECALLD_MONGODB_DATABASE": name}
    finally:
        with MongoClient[dict[str, Any]](uri) as client:
            client.drop_database(name)


async def run(options: argparse.Namespace) -> Report:
    with own_database(options.store) as store, tempfile.TemporaryDirectory(prefix="recalld-crash-") as directory:
        server = Server(Path(directory), planted=options.plant_fault, store=store)
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as client:
            try:
                test = CrashTest(server, client, options.rounds, options.max_ready, options.longest)
                return await test.run(wait_for_leases=options.wait_for_leases)
            finally:
                server.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--max-ready", type=float, default=3.0, help="seconds in which it must be ready again")
    parser.add_argument("--longest", type=float, default=1.5, help="seconds of writes until the latest kill")
    parser.add_argument("--seed", type=int, help="of the random moments and operations")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--plant-fault", action="store_true", help="test this test: the service acknowledges too early")
    parser.add_argument(
        "--wait-for-leases",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="at the end, wait until the idempotency keys of requests that died are free, and retry those",
    )
    parser.add_argument("--store", metavar="URI", help="of MongoDB, instead of the embedded store")
    parser.add_argument("--serve-planted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_planted:
        serve_planted()
        return 0
    if options.store and options.plant_fault:
        parser.error("the planted fault is one of the embedded store (tests/faults has MongoDB's)")
    random.seed(options.seed)
    report = asyncio.run(run(options))
    show(report, as_json=options.json)
    if options.plant_fault:
        return 0 if report.faults["lost"] else 1
    return 1 if report.faults else 0


def show(report: Report, *, as_json: bool) -> None:
    figures = report.as_dict()
    if as_json:
        print(json.dumps({**figures, "details": report.details}, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:<34} {value:>10}")
    for detail in report.details:
        print(f"  {detail}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
