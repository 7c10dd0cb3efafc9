"""The change feed while services are killed: several processes write to one store, and one of them is killed (SIGKILL)
again and again. A reader follows by a stream and resumes by its last id. Nothing is lost, doubled or out of order.
"""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.settings import Settings
from tests.stress.size import is_full, size
from tests.support.server import SERVE, Server

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

CHANGES = size(3_000, 100_000)
ON_MONGODB = 10
"""How many times fewer changes there."""
KILLS = 5 if is_full() else 2
SESSIONS = 6
BATCH = 50
URL = "/v1/changes"
QUIET = {
    "RECALLD_JOBS_ENABLED": "false",
    "RECALLD_LIMITS_REQUESTS_PER_SECOND": "0",
    "RECALLD_LIMITS_COST_PER_SECOND": "0",
    "RECALLD_LOG_LEVEL": "warning",
}

# --- The judge --------------------------------------------------------------------------------------------------------

Change = Mapping[str, Any]


@dataclass
class Written:
    """What was acknowledged, and what the store has in the end."""

    acknowledged: set[str] = field(default_factory=set)
    """The ids of messages."""
    versions: Counter[str] = field(default_factory=Counter)
    """The highest acknowledged version of each session."""
    stored: dict[str, list[str]] = field(default_factory=dict)
    """The ids of the messages of each session, in their order."""
    final: dict[str, int] = field(default_factory=dict)
    """The version of each session."""


def faults(feed: Sequence[Change], written: Written) -> Counter[str]:
    """What is wrong with a feed from its beginning: what is lost, doubled or swapped of messages and of versions of
    sessions, and messages that never were."""
    found: Counter[str] = Counter()
    told = [one["id"] for one in feed if one["kind"] == "message"]
    place = {one: at for at, one in enumerate(told)}
    stored = {one for ids in written.stored.values() for one in ids}
    found["doubled"] += len(told) - len(place)
    found["lost"] += len((stored | written.acknowledged) - place.keys())
    found["invented"] += len(place.keys() - stored)
    for ids in written.stored.values():
        places = [place[one] for one in ids if one in place]
        found["swapped"] += sum(later < earlier for earlier, later in pairwise(places))
    for session, final in written.final.items():
        versions = [one["version"] for one in feed if one["kind"] == "session" and one["id"] == session]
        there = Counter(versions)
        found["doubled"] += sum(number - 1 for number in there.values())
        found["lost"] += len(set(range(1, max(final, written.versions[session]) + 1)) - there.keys())
        found["swapped"] += sum(later < earlier for earlier, later in pairwise(versions))
    return +found


def _sample() -> tuple[list[Change], Written]:
    ids = [f"m{at}" for at in range(6)]
    feed: list[Change] = [{"kind": "session", "id": "s", "version": 1}]
    for at, one in enumerate(ids):
        feed += [{"kind": "message", "id": one, "version": None}, {"kind": "session", "id": "s", "version": at + 2}]
    return feed, Written(set(ids), Counter({"s": 7}), {"s": ids}, {"s": 7})


def _swapped(feed: list[Change], at: int) -> list[Change]:
    return [*feed[:at], feed[at + 2], feed[at + 1], feed[at], *feed[at + 3 :]]


PLANTED: dict[str, tuple[Callable[[list[Change]], list[Change]], str]] = {
    "a lost message": (lambda feed: feed[:1] + feed[2:], "lost"),
    "the last message lost": (lambda feed: feed[:-2] + feed[-1:], "lost"),
    "a lost version": (lambda feed: feed[:2] + feed[3:], "lost"),
    "a doubled message": (lambda feed: feed[:2] + feed[1:], "doubled"),
    "a doubled version": (lambda feed: feed[:3] + feed[2:], "doubled"),
    "two messages swapped": (lambda feed: _swapped(feed, 1), "swapped"),
    "two versions swapped": (lambda feed: _swapped(feed, 2), "swapped"),
    "an invented message": (lambda feed: [*feed, {"kind": "message", "id": "x", "version": None}], "invented"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_judge_finds_what_is_planted(planted: str) -> None:
    feed, written = _sample()
    assert not faults(feed, written)
    spoil, name = PLANTED[planted]
    assert faults(spoil(feed), written)[name] > 0


# --- Services, writers and a reader -----------------------------------------------------------------------------------


class Services:
    """Two processes on one store. Each has a name of its own for the directory, since a server's output lies beside."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        data.mkdir(parents=True, exist_ok=True)
        second = data.with_name(f"{data.name}-two")
        second.symlink_to(data, target_is_directory=True)
        self._folders, self._settings = (data, second), settings
        self.servers = [self._start(at) for at in range(2)]

    def _start(self, at: int) -> Server:
        return Server(self._folders[at], self._settings, SERVE)

    async def kill_one(self) -> None:
        at = random.randrange(2)
        self.servers[at].process.kill()
        self.servers[at].process.wait()
        self.servers[at].client.close()
        self.servers[at] = await asyncio.to_thread(self._start, at)

    def address(self, at: int) -> str:
        return str(self.servers[at % 2].client.base_url)

    def end(self) -> None:
        for server in self.servers:
            server.process.kill()
            server.process.wait()
            server.client.close()


class Run:
    """Writes until there are enough changes, kills meanwhile, and reads all along."""

    def __init__(self, services: Services, wanted: int) -> None:
        self._services, self._wanted = services, wanted
        self.written, self.streamed = Written(), list[Change]()
        self.resumed, self.kills = 0, 0
        self._sent, self._cursor = 0, ""
        self.seconds = 0.0

    async def carry_out(self) -> list[Change]:
        """Returns the feed, as pages tell it in the end."""
        started = time.perf_counter()
        reader = asyncio.create_task(self._follow())
        killer = asyncio.create_task(self._kill())
        await asyncio.gather(*(self._write(f"s{number}") for number in range(SESSIONS)))
        await killer
        self.seconds = time.perf_counter() - started
        async with httpx.AsyncClient(base_url=self._services.address(0), timeout=60) as client:
            await self._look(client)
            feed = await self._pages(client)
        async with asyncio.timeout(120):
            while len(self.streamed) < len(feed):  # noqa: ASYNC110 (a service tells it)
                await asyncio.sleep(0.1)
        reader.cancel()
        await asyncio.wait((reader,))
        return feed

    async def _kill(self) -> None:
        for number in range(KILLS):
            until = self._wanted * (number + random.uniform(0.2, 0.8)) / KILLS
            while self._sent < until:  # noqa: ASYNC110 (a service tells it)
                await asyncio.sleep(0.01)
            await self._services.kill_one()
            self.kills += 1

    async def _write(self, session: str) -> None:
        at = random.randrange(2)
        client = httpx.AsyncClient(timeout=60)
        version = 0
        while self._sent < self._wanted or self.kills < KILLS:
            at += random.random() < 0.1
            count = random.randint(1, BATCH)
            said = [{"role": "user", "content": f"{session} says {n}"} for n in range(count)]
            body = {"agent_id": "a", "user_id": session, "memorize": "none", "messages": said}
            where = f"{self._services.address(at)}/v1/sessions/{session}"
            try:
                made = await client.post(f"{where}/messages", json=body)
                self._judge(made)
                self.written.acknowledged |= {one["message_id"] for one in made.json()["items"]}
                changed = await client.patch(where, json={"metadata": {"n": self._sent}})
                self._judge(changed)
                version = changed.json()["version"]
            except httpx.TransportError:
                at += 1
                continue
            self.written.versions[session] = max(version, self.written.versions[session])
            self._sent += count + 1
        await client.aclose()

    def _judge(self, answer: httpx.Response) -> None:
        assert answer.is_success, f"{answer.status_code} {answer.text[:300]}"

    async def _follow(self) -> None:
        """Reads the stream of one service after the other."""
        at = 0
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": self._cursor} if self._cursor else {})}
            with contextlib.suppress(httpx.TransportError):
                async with (
                    httpx.AsyncClient(base_url=self._services.address(at), timeout=30) as client,
                    client.stream("GET", URL, headers=headers) as answer,
                ):
                    assert answer.status_code == 200
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            change = json.loads(line.removeprefix("data: "))
                            self.streamed.append(change)
                            self._cursor = change["cursor"]
            at, self.resumed = at + 1, self.resumed + 1
            await asyncio.sleep(0.05)

    async def _look(self, client: httpx.AsyncClient) -> None:
        for session in (f"s{number}" for number in range(SESSIONS)):
            where, after, ids = f"/v1/sessions/{session}", 0, list[str]()
            while True:
                params = {"after_seq": after, "limit": 100}
                items = (await client.get(f"{where}/messages", params=params)).raise_for_status().json()["items"]
                if not items:
                    break
                ids += [one["message_id"] for one in items]
                after = items[-1]["seq"]
            self.written.stored[session] = ids
            self.written.final[session] = (await client.get(where)).raise_for_status().json()["version"]

    async def _pages(self, client: httpx.AsyncClient) -> list[Change]:
        feed: list[Change] = []
        params: dict[str, Any] = {"limit": 1000}
        while True:
            page = (await client.get(URL, params=params)).raise_for_status().json()
            feed += page["items"]
            if page["next_cursor"] is None:
                return feed
            params["after"] = page["next_cursor"]


def environment(settings: Settings) -> dict[str, str]:
    if settings.store.get_secret_value() == "embedded":
        return QUIET
    store = {
        "RECALLD_STORE": settings.store.get_secret_value(),
        "RECALLD_MONGODB_DATABASE": settings.mongodb.database,
        "RECALLD_MONGODB_DEADLINE_SECONDS": "60",
    }
    return QUIET | store


@pytest.mark.parametrize("engine", ["embedded", "mongodb"] if is_full() else ["embedded"])
async def test_nothing_is_lost_doubled_or_swapped_however_services_die(settings: Settings) -> None:
    given = environment(settings)
    services = Services(settings.data_dir, given)
    try:
        run = Run(services, CHANGES // (ON_MONGODB if "RECALLD_STORE" in given else 1))
        feed = await run.carry_out()
    finally:
        services.end()
    figures = f"{len(feed)} changes, {run.kills} kills, {run.resumed} resumptions, {run.seconds:.0f} s of writing"
    print(figures)
    assert len(feed) >= CHANGES // (ON_MONGODB if "RECALLD_STORE" in given else 1)
    assert not faults(feed, run.written), figures
    assert [one["cursor"] for one in run.streamed] == [one["cursor"] for one in feed], figures
