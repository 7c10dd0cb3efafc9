"""Several workers on one address and one store: kept, replaced and drained by their supervisor."""

import fcntl
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.serve import LOOK_SECONDS
from app.core.tuning import USUAL
from app.settings import Settings
from tests.support.command import Run
from tests.support.server import PLAIN, SERVE, Server, recalld, serving
from tests.support.tuned import tuned

OWNER = {"agent_id": "a", "user_id": "u"}
PATIENCE_SECONDS = 120
QUIET = {"RECALLD_LIMITS_REQUESTS_PER_SECOND": "0", "RECALLD_JOBS_ENABLED": "false"}
"""No limit, and no job that merges what these tests store: the texts are near-duplicates."""


def store_of(settings: Settings) -> dict[str, str]:
    """What a process is told of the store of the test."""
    mongodb = settings.mongodb
    named = {"RECALLD_STORE": settings.store.get_secret_value(), "RECALLD_MONGODB_DATABASE": mongodb.database}
    return {**named, "RECALLD_MONGODB_DEADLINE_SECONDS": str(mongodb.deadline_seconds)}


@contextmanager
def served(data: Path, workers: int = 2, command: Sequence[str] = SERVE, **given: str) -> Iterator[Server]:
    """A service whose workers are all ready."""
    with serving(data, command, RECALLD_WORKERS=str(workers), **{**QUIET, **given}) as server:
        until(lambda: all_ready(server, workers))
        yield server


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def ask(server: Server, method: str = "GET", path: str = "/readyz", **how: Any) -> httpx.Response:
    """On a connection of its own."""
    return httpx.request(method, f"{str(server.client.base_url).rstrip('/')}{path}", timeout=60, **PLAIN, **how)


def all_ready(server: Server, workers: int) -> bool:
    answer = ask(server)
    return answer.status_code == 200 and answer.json()["checks"]["workers"] == f"{workers} of {workers} are ready"


def running(server: Server) -> dict[int, int]:
    """The number of each worker that lives, by process id."""
    found: dict[int, int] = {}
    for line in server.log():
        if line["message"] == "a worker starts":
            found[line["pid"]] = line["number"]
        elif line["message"] in ("a worker has ended", "a worker died", "a worker could not start"):
            found.pop(line["pid"], None)
    return found


def counted(server: Server, route: str) -> float:
    text = ask(server, path="/metrics").text
    found = re.findall(rf'recalld_http_requests_total{{[^}}]*route="{re.escape(route)}"[^}}]*}} (\S+)', text)
    return sum(map(float, found))


def job_runs(server: Server, kind: str) -> float:
    """How often the workers together have run a job of this kind, with any outcome."""
    text = ask(server, path="/metrics").text
    return sum(map(float, re.findall(rf'recalld_job_runs_total{{kind="{kind}",[^}}]*}} (\S+)', text)))


class Load:
    """Clients that write and read all the time, each on a connection that it keeps."""

    def __init__(self, server: Server, clients: int = 16) -> None:
        self._server, self._clients = server, clients
        self.answers: Counter[Any] = Counter()
        self.made: set[str] = set()
        self.told: set[int] = set()
        """Clients that had an answer which ends its connection."""
        self._over = threading.Event()

    def __enter__(self) -> "Load":
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(self._clients)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        turn = 0
        with httpx.Client(base_url=self._server.client.base_url, timeout=60) as client:
            while not self._over.is_set():
                turn += 1
                body = {**OWNER, "user_id": f"u{number}", "content": f"note {number} {turn}", "deduplicate": False}
                try:
                    made = client.post("/v1/memories", json=body)
                    self.answers[made.status_code] += 1
                    if made.status_code == 201:
                        self.made.add(made.json()["memory_id"])
                    read = client.get(f"/v1/memories?user_id=u{number}&limit=1")
                    self.answers[read.status_code] += 1
                    if "close" in (made.headers.get("connection"), read.headers.get("connection")):
                        self.told.add(number)
                except httpx.TransportError as error:
                    self.answers[type(error).__name__] += 1


def stored(server: Server) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = ask(server, path="/v1/memories", params={"limit": 100, **({"cursor": cursor} if cursor else {})}).json()
        found |= {item["memory_id"] for item in page["items"]}
        if (cursor := page["next_cursor"]) is None:
            return found


def answering(server: Server) -> set[int]:
    """Numbers of the workers that have answered requests."""
    return {line["worker"] for line in server.log() if line["message"] == "request"}


def test_all_serve_one_store_and_what_one_counts_each_tells(tmp_path: Path, settings: Settings) -> None:
    with served(tmp_path / "data", 3, **store_of(settings)) as server:
        with ExitStack() as stack:
            clients = [stack.enter_context(httpx.Client(base_url=server.client.base_url)) for _ in range(9)]
            bodies = [{**OWNER, "content": f"note {number}", "deduplicate": False} for number in range(36)]
            made = [clients[at % 9].post("/v1/memories", json=body, timeout=60) for at, body in enumerate(bodies)]
            assert {answer.status_code for answer in made} == {201}
            ids = {answer.json()["memory_id"] for answer in made}
            assert len(ids) == 36, "workers draw ids of their own"
            for client in clients:
                page = client.get("/v1/memories", params={"limit": 100}, timeout=60).json()
                assert {item["memory_id"] for item in page["items"]} == ids
        assert counted(server, "/v1/memories") == 36 + 9
        assert 'recalld_worker_ready{worker="3"} 1.0' in ask(server, path="/metrics").text
        latency = {row["method"]: row for row in ask(server, path="/v1/stats").json()["latency"]}
        assert latency["POST"]["requests"] == 36
        until(lambda: ask(server).status_code == 200 and answering(server) == {1, 2, 3})
        assert all("worker" not in line for line in server.log() if line["logger"] == "app.cli.serve")
        assert server.stop() == 0
        assert running(server) == {}
        assert "Recalld serves" in server.printed()
        assert server.printed().count("Recalld serves") == 1


def test_a_worker_that_is_killed_comes_back_and_the_others_serve(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        for _ in range(4):
            assert ask(server, path="/v1/memories").status_code == 200
        until(lambda: counted(server, "/v1/memories") == 4)  # a request is counted just after its answer was sent
        before = running(server)
        victim = next(iter(before))
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in running(server))
        for _ in range(4):
            assert ask(server, path="/v1/memories").status_code == 200
        until(lambda: all_ready(server, 2))
        after = running(server)
        assert len(after) == 2
        assert after.keys() != before.keys()
        until(lambda: counted(server, "/v1/memories") >= 8)
        assert counted(server, "/v1/memories") == 8, "its counts are kept"
        (died,) = [line for line in server.log() if line["message"] == "a worker died"]
        assert (died["pid"], died["exit_code"], died["level"]) == (victim, -signal.SIGKILL, "error")
        assert server.stop() == 0


def test_a_worker_that_stands_still_is_killed_and_replaced(tmp_path: Path) -> None:
    assert USUAL.silent_seconds + LOOK_SECONDS < 15
    with served(tmp_path / "data") as server:
        body = {**OWNER, "content": "The bridge opens at nine."}
        memory_id = ask(server, "POST", "/v1/memories", json=body).json()["memory_id"]
        before = running(server)
        still = next(iter(before))
        os.kill(still, signal.SIGSTOP)
        until(lambda: still not in running(server))
        (killed,) = [line for line in server.log() if line["message"] == "a worker is killed: it does not answer"]
        assert killed["number"] == before[still]
        until(lambda: all_ready(server, 2))
        assert len(running(server)) == 2
        assert {ask(server, path=f"/v1/memories/{memory_id}").status_code for _ in range(4)} == {200}
        assert server.stop() == 0


def test_a_worker_whose_event_loop_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    with served(tmp_path / "data", command=tuned("tests.support.hanging", silent_seconds=10)) as server:
        assert ask(server, "POST", "/v1/memories", json={**OWNER, "content": "Ada climbs."}).status_code == 201
        before = running(server)
        with pytest.raises(httpx.RemoteProtocolError):
            ask(server, "POST", "/v1/memories/search", json={**OWNER, "query": "hang"})
        until(lambda: len(running(server).keys() - before.keys()) == 1)  # until then all are ready, the hung one, too
        until(lambda: all_ready(server, 2))
        assert len(running(server)) == 2
        assert len(running(server).keys() & before.keys()) == 1
        assert server.stop() == 0


def test_a_body_of_great_depth_is_refused_and_ends_no_worker(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        before = running(server)
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            deep = opening * 100_000 + b"1" + closing * 100_000
            for body in (deep, b'{"agent_id":"a","content":"x","metadata":' + deep + b"}", opening * 500_000):
                headers = {"content-type": "application/json"}
                answer = ask(server, "POST", "/v1/memories", content=body, headers=headers)
                assert 400 <= answer.status_code < 500, answer.text
                assert answer.json()["code"] == "invalid", answer.text
        assert running(server) == before
        assert server.stop() == 0


def test_each_job_runs_once_in_one_of_the_workers(tmp_path: Path, settings: Settings) -> None:
    users = [f"u{number}" for number in range(12)]
    given = {**store_of(settings), "RECALLD_JOBS_ENABLED": "true"}
    with served(tmp_path / "data", 3, **given) as server:
        for user in users:
            body = {"agent_id": "a", "user_id": user, "content": f"The bridge of {user} opens at nine."}
            assert ask(server, "POST", "/v1/memories", json=body).status_code == 201
        before = job_runs(server, "consolidation")
        queued = [
            ask(server, "POST", "/v1/jobs/consolidation/run", json={"agent_id": "a", "user_id": user}) for user in users
        ]
        operations = [answer.json()["operation_id"] for answer in queued]
        assert len({*operations}) == len(users)

        def states() -> list[str]:
            return [ask(server, path=f"/v1/operations/{one}").json()["status"] for one in operations]

        until(lambda: {*states()} == {"succeeded"})
        until(lambda: job_runs(server, "consolidation") >= before + len(users))
        assert job_runs(server, "consolidation") == before + len(users)
        assert server.stop() == 0


def test_a_restart_refuses_and_loses_no_request(tmp_path: Path, settings: Settings) -> None:
    with served(tmp_path / "data", 2, **store_of(settings)) as server:
        before = running(server)
        with Load(server) as load:
            until(lambda: load.answers[201] > 10)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: not running(server).keys() & before.keys() and all_ready(server, 2))
            done = load.answers[201]
            until(lambda: load.answers[201] > done + 10)
        assert set(load.answers) == {200, 201}, load.answers
        assert load.told == set(range(16)), "each client is told that its connection ends"
        assert load.made <= stored(server)
        ready = 0
        for line in server.log():  # a new one is ready before an old one ends
            ready += (line["message"] == "a worker is ready") - (line["message"] == "a worker has ended")
            assert line["message"] != "a worker has ended" or ready >= 2
        assert len(running(server)) == 2
        assert server.stop() == 0


def test_a_single_process_outlives_a_restart_of_workers(tmp_path: Path) -> None:
    with serving(tmp_path / "data", **QUIET, RECALLD_WORKERS="1") as server:
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "SIGHUP does nothing" in server.log_text())
        assert ask(server, path="/v1/memories").status_code == 200
        assert server.stop() == 0


def test_a_restart_takes_new_settings_and_one_that_fails_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("RECALLD_DOCS=open\n")
    with served(tmp_path / "data") as server:
        assert ask(server, path="/openapi.json").status_code == 200
        before = running(server)
        file.write_text("RECALLD_DOCS=off\nRECALLD_EMBEDDING_MODEL=./nope\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "the restart is given up" in server.log_text().replace("\\", ""))
        assert running(server).keys() >= before.keys()
        assert all_ready(server, 2)
        assert ask(server, path="/openapi.json").status_code == 200
        file.write_text("RECALLD_DOCS=off\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: not running(server).keys() & before.keys())
        assert {ask(server, path="/openapi.json").status_code for _ in range(6)} == {404}
        assert server.stop() == 0


def test_sigterm_drains_all_and_keeps_what_was_acknowledged(tmp_path: Path, settings: Settings, run: Run) -> None:
    given = store_of(settings)
    with served(tmp_path / "data", 2, command=tuned(drain_delay_seconds=3), **given) as server:
        texts = [f"note {i} " + "about boats and tea and winter " * 30 for i in range(24)]
        batch = {"items": [{**OWNER, "content": text, "deduplicate": False} for text in texts]}
        with ThreadPoolExecutor(2) as pool:
            under_way = [pool.submit(ask, server, "POST", "/v1/memories/batch", json=batch) for _ in range(2)]
            until(lambda: "recalld_http_requests_in_progress 3.0" in ask(server, path="/metrics").text)
            server.terminate()
            codes: list[str] = []
            while server.process.poll() is None:
                try:
                    codes.append(str(ask(server).json().get("code")))
                except httpx.TransportError:
                    break
                time.sleep(0.05)
            answers = [one.result() for one in under_way]
        assert {one.status_code for one in answers} == {201}
        made = {item["memory_id"] for one in answers for item in one.json()["items"]}
        assert server.process.wait(90) == 0
        assert "draining" in codes
    with serving(tmp_path / "data", **QUIET, **given) as again:
        assert len(made) == 2 * len(texts)
        assert stored(again) == made
    assert run("doctor", **given).returncode == 0


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        pids = list(running(server))
        server.process.kill()
        server.process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        with pytest.raises(httpx.TransportError):
            ask(server)


# --- Starts that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [("--workers", "2"), ()])
def test_a_service_that_cannot_start_says_why(tmp_path: Path, how: tuple[str, ...]) -> None:
    given = {"RECALLD_WORKERS": "" if how else "2", "RECALLD_EMBEDDING_MODEL": "./nope"}
    refused = recalld(tmp_path / "data", "serve", *how, **{name: value for name, value in given.items() if value})
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("recalld: ")
    assert "nope" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_number_of_workers_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    refused = recalld(tmp_path / "data", "serve", RECALLD_WORKERS="many")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("recalld: RECALLD_WORKERS is 'many': ")
    assert "from 1 to 64, or `auto`" in refused.stderr


def test_workers_that_fail_again_and_again_end_the_service(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        (tmp_path / ".env").write_text("RECALLD_EMBEDDING_MODEL=./nope\n")
        os.kill(next(iter(running(server))), signal.SIGKILL)
        assert server.process.wait(PATIENCE_SECONDS) == 1
        lines = server.log_text().splitlines()
        assert lines[-1].startswith("recalld: A worker could not start 5 times in a row (exit code 1)")
        assert sum("a worker could not start" in line for line in lines) == 5


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_each_worker_counts_requests_and_wrong_keys_for_itself(tmp_path: Path, run: Run) -> None:
    key = run("keys", "create", "--no-admin", "--tenant", "t", "--name", "first").stdout.strip()
    limits = {"RECALLD_LIMITS_REQUESTS_PER_SECOND": "0.01", "RECALLD_LIMITS_WRONG_KEYS": "3"}
    with served(tmp_path / "data", 2, tuned(wrong_keys_seconds=3600), **limits) as server, ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(base_url=server.client.base_url, timeout=60)) for _ in range(8)]
        asked = [client.get("/v1/memories", headers={"x-api-key": "rk_x"}).status_code for client in 3 * clients]
        assert asked.count(401) == 2 * 3, "eight connections reach both workers"
        assert asked.count(429) == 24 - 2 * 3
        asked = [client.get("/v1/memories", headers={"x-api-key": key}).status_code for client in clients]
        assert (asked.count(200), asked.count(429)) == (2, 6), "a burst of one request in each worker"


def test_each_worker_counts_the_connections_of_an_address_for_itself(tmp_path: Path) -> None:
    with served(tmp_path / "data", 2, RECALLD_CONNECTIONS_BY_ADDRESS="8") as server:
        server.client.close()
        at = server.client.base_url.host, server.client.base_url.port or 80
        with ExitStack() as stack:
            held = [stack.enter_context(socket.create_connection(at)) for _ in range(32)]
            until(lambda: sum(map(is_open, held)) <= 2 * 8)
            answered = [one for one in held if is_open(one) and is_answered(one)]
            assert answered, "there is room for as many as may be"


def is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return bool(one.recv(1, socket.MSG_PEEK)) and not one.recv(4096).startswith(b"HTTP/1.1 503")
    except BlockingIOError:
        return True
    except OSError:
        return False


def is_answered(one: socket.socket) -> bool:
    one.settimeout(60)
    one.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
    return one.recv(4096).startswith(b"HTTP/1.1 200")


def folder_of(pid: int) -> Path | None:
    """The folder of a service's workers, which its processes hold open."""
    links = (link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists())
    return next((link for link in links if link.name.startswith("recalld-workers-")), None)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux")
def test_what_a_killed_supervisor_left_in_memory_is_removed_at_the_next_start(tmp_path: Path) -> None:
    with served(tmp_path / "one") as killed, served(tmp_path / "two") as other:
        left, used = folder_of(killed.process.pid), folder_of(other.process.pid)
        assert left is not None
        assert used is not None
        opened = os.open(left, os.O_RDONLY)
        os.kill(killed.process.pid, signal.SIGKILL)
        killed.process.wait()
        fcntl.flock(opened, fcntl.LOCK_EX)  # the last worker has ended; while it is held no other test's service looks
        assert left.is_dir()
        os.close(opened)
        with served(tmp_path / "one") as again:
            assert not left.exists()
            assert used.is_dir(), "it is in use"
            assert folder_of(again.process.pid) not in (None, left, used)
