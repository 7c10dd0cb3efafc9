"""How much memory the service's own process holds."""

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.server import Server, serving

MOST = 242 << 20
"""It takes 231 to 236 MiB with the locked packages: the embedding's working memory, of which the C library keeps some,
depends on which texts are embedded together. A second copy of the model's file adds 22 MiB and fails.
`scripts/benchmark memory` measures a whole load."""
OWNER = {"agent_id": "guide", "user_id": "ada"}


MOST_OF_A_WORKER = 49 << 20
"""What a worker shares with no other process after some searches: 43 to 44 MiB. A tokenizer of its own adds 7, tables
of times and late modules 12, routes more than 20."""


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) * 1_024


def resident_bytes(server: Server) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1_024


def settled_bytes(server: Server) -> int:
    """Once it has given back what its start left behind, or after 20 s."""
    deadline = time.monotonic() + 20
    while (held := resident_bytes(server)) >= MOST and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_started_service_that_has_been_used_stays_within_its_memory(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        items = [{**OWNER, "content": f"On day {day} Ada walked {day} miles along the river."} for day in range(100)]
        server.client.post("/v1/memories/batch", json={"items": items}).raise_for_status()
        for day in range(20):
            asked = {**OWNER, "query": f"How far did she walk on day {day}?"}
            server.client.post("/v1/memories/search", json=asked).raise_for_status()
        # counts tokens, so it waits until the vocabulary is read
        server.client.post("/v1/context", json={**OWNER, "query": "walks"}).raise_for_status()
        assert settled_bytes(server) < MOST


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="private memory is read from /proc")
def test_workers_share_what_their_supervisor_has_loaded(tmp_path: Path) -> None:
    with serving(tmp_path / "data", RECALLD_WORKERS="2") as server:
        deadline = time.monotonic() + 60
        while "2 of 2" not in server.client.get("/readyz").text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        body = {**OWNER, "query": "How far did she walk on 3 May?"}
        with ExitStack() as stack:  # connections that are open together are spread evenly
            for _ in range(4):
                client = stack.enter_context(httpx.Client(base_url=server.client.base_url, timeout=60))
                client.post("/v1/memories/search", json=body).raise_for_status()
        pid = server.process.pid
        workers = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        time.sleep(3)  # what the start left behind is given back
        assert len(workers) == 2
        assert all(private_bytes(worker) < MOST_OF_A_WORKER for worker in workers)
