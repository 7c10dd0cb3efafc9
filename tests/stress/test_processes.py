"""The service as a process: ended under load again and again, and under load for long."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stress.size import is_full, size
from tests.support.server import Server, serving

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

WRITERS = 8
HANGS_SECONDS = 90
WARM_UP = 0.25
"""Of a soak: what is measured from then on."""
MOST_GROWTH, MOST_WAL, MOST_SLOWER = 1.05, 64 << 20, 1.2
QUIET = {"RECALLD_LOG_LEVEL": "error", "RECALLD_LIMITS_REQUESTS_PER_SECOND": "0"}


async def test_sigterm_under_writes_loses_nothing_and_cuts_no_answer_short(tmp_path: Path) -> None:
    data, acknowledged, counts = tmp_path / "data", set[str](), Counter[str]()
    for _ in range(size(2, 50)):
        await ended_under_load(data, acknowledged, counts)
    assert acknowledged
    assert acknowledged <= await stored(data)
    assert not any(counts[name] for name in ("truncated", "5xx but 503", "bad exits")), counts
    with serving(data, **QUIET) as server:  # the check, checked
        server.client.delete(f"/v1/memories/{next(iter(acknowledged))}")
    assert len(acknowledged - await stored(data)) == 1


async def ended_under_load(data: Path, acknowledged: set[str], counts: Counter[str]) -> None:
    server = await asyncio.to_thread(Server, data, QUIET)
    stop = asyncio.Event()
    async with httpx.AsyncClient(base_url=server.client.base_url, timeout=30) as client:
        writers = [asyncio.create_task(writes(client, stop, acknowledged, counts)) for _ in range(WRITERS)]
        await asyncio.sleep(random.uniform(0.3, 1.5))
        server.terminate()
        code = await asyncio.to_thread(server.process.wait, HANGS_SECONDS)
        stop.set()
        await asyncio.gather(*writers)
    server.client.close()
    counts["bad exits"] += code != 0


async def writes(client: httpx.AsyncClient, stop: asyncio.Event, acknowledged: set[str], counts: Counter[str]) -> None:
    while not stop.is_set():
        body = {"agent_id": "a", "user_id": f"u{random.randrange(20)}", "content": f"written {random.random()}"}
        try:
            answer = await client.post("/v1/memories", json=body)
            if answer.status_code == 201:
                acknowledged.add(answer.json()["memory_id"])
            elif answer.status_code != 503:
                counts["5xx but 503"] += answer.status_code >= 500
        except httpx.RemoteProtocolError as fault:
            counts["truncated" if "incomplete" in str(fault) else "unanswered"] += 1
        except (httpx.TransportError, ValueError) as fault:
            counts["truncated" if isinstance(fault, ValueError) else "refused"] += 1
            await asyncio.sleep(0.05)


async def stored(data: Path) -> set[str]:
    found: set[str] = set()
    server = await asyncio.to_thread(Server, data, QUIET)
    async with httpx.AsyncClient(base_url=server.client.base_url, timeout=30) as client:
        cursor = None
        while True:
            params = {"limit": 100, **({"cursor": cursor} if cursor else {})}
            page = (await client.get("/v1/memories", params=params)).json()
            found |= {item["memory_id"] for item in page["items"]}
            if (cursor := page["next_cursor"]) is None:
                break
    await asyncio.to_thread(server.stop)
    return found


async def test_a_long_mixed_load_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    """The short form only asks for answers and a small log: memory and times mean something after minutes."""
    data, seconds = tmp_path / "data", size(20, 1_200)
    with serving(data, **QUIET) as server:
        load = Soak(server, data, seconds)
        await load.run()
    figures = load.figures()
    assert load.faults({**figures, "RSS growth": MOST_GROWTH + 1}) != []
    if is_full():
        assert load.faults(figures) == [], figures
    else:
        assert figures["5xx"] == 0, figures
        assert figures["WAL MiB"] <= MOST_WAL / 2**20, figures


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Soak:
    def __init__(self, server: Server, data: Path, seconds: int) -> None:
        self._server, self._data, self._seconds = server, data, seconds
        self._samples: list[tuple[float, int, int, int]] = []
        self._times: list[tuple[float, str, float]] = []
        self._statuses: Counter[int] = Counter()

    async def run(self) -> None:
        self._started = time.perf_counter()
        async with httpx.AsyncClient(base_url=self._server.client.base_url, timeout=30) as client:
            workers = [asyncio.create_task(self._work(client, number)) for number in range(WRITERS)]
            while not self._over():
                self._samples.append((self._now(), self._rss(), self._handles(), self._wal()))
                await asyncio.sleep(1)
            await asyncio.gather(*workers)

    def _now(self) -> float:
        return time.perf_counter() - self._started

    def _over(self) -> bool:
        return self._now() >= self._seconds

    def _rss(self) -> int:
        return int(Path(f"/proc/{self._server.process.pid}/statm").read_text().split()[1]) * 4096

    def _handles(self) -> int:
        return len(list(Path(f"/proc/{self._server.process.pid}/fd").iterdir()))

    def _wal(self) -> int:
        wal = self._data / "recalld.db-wal"
        return wal.stat().st_size if wal.exists() else 0

    async def _work(self, client: httpx.AsyncClient, number: int) -> None:
        """Users come and go, so that what is stored stays about as much."""
        turn = 0
        while not self._over():
            user = f"u{number}-{turn // 60 % 3}"
            owner, turn = {"agent_id": "a", "user_id": user}, turn + 1
            text = f"{user} likes tea number {turn % 97}"
            said = {**owner, "messages": [{"role": "user", "content": text}]}
            await self._timed(client, "bare", "GET", "/livez")
            await self._timed(client, "write", "POST", "/v1/memories", {**owner, "content": text})
            await self._timed(client, "write", "POST", f"/v1/sessions/{user}/messages", said)
            for query in ("what does the user like?", f"tea number {turn % 97}"):
                await self._timed(client, "search", "POST", "/v1/memories/search", {**owner, "query": query})
            await self._timed(client, "context", "POST", "/v1/context", {**owner, "query": "what to drink?"})
            if turn % 60 == 0:
                gone = f"u{number}-{(turn // 60 + 1) % 3}"
                await self._timed(client, "write", "DELETE", f"/v1/memories?user_id={gone}")
                await self._timed(client, "write", "DELETE", f"/v1/sessions/{gone}")

    async def _timed(self, client: httpx.AsyncClient, kind: str, method: str, path: str, body: Any = None) -> None:
        started = time.perf_counter()
        answer = await client.request(method, path, json=body)
        self._times.append((self._now(), kind, time.perf_counter() - started))
        self._statuses[answer.status_code] += 1

    def figures(self) -> dict[str, Any]:
        warm = [sample for sample in self._samples if sample[0] >= WARM_UP * self._seconds] or self._samples
        tenth = max(1, len(warm) // 10)
        before, after = (sum(s[1] for s in part) / len(part) for part in (warm[:tenth], warm[-tenth:]))
        return {
            "requests": len(self._times),
            "5xx": sum(number for status, number in self._statuses.items() if status >= 500),
            "RSS growth": round(after / before, 3),
            "RSS MiB": round(after / 2**20),
            "handles first": warm[0][2],
            "handles last": warm[-1][2],
            "WAL MiB": round(max(sample[3] for sample in self._samples) / 2**20, 1),
            "p99 last / first": round(self._slower(), 2),
        }

    def _slower(self) -> float:
        """Search p99 over the bare route's, in the last quarter, over the same in the first after the warm-up."""
        return self._ratio(0.75, 1.01) / self._ratio(WARM_UP, 0.5)

    def _ratio(self, begin: float, end: float) -> float:
        took: dict[str, list[float]] = {"bare": [], "search": []}
        for at, kind, seconds in self._times:
            if kind in took and begin * self._seconds <= at < end * self._seconds:
                took[kind].append(seconds)
        return quantile(took["search"], 0.99) / max(1e-6, quantile(took["bare"], 0.99))

    def faults(self, figures: dict[str, Any]) -> list[str]:
        limits = {"5xx": 0, "RSS growth": MOST_GROWTH, "WAL MiB": MOST_WAL / 2**20, "p99 last / first": MOST_SLOWER}
        found = [f"{name}: {figures[name]} > {most}" for name, most in limits.items() if figures[name] > most]
        if figures["handles last"] > figures["handles first"] + 5:
            found.append("handles grow")
        return found
