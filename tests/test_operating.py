"""The process: health, metrics, logs, start and stop."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from app.api.connections import ConnectionLimits, guarded
from app.cli.serve import DrainingServer
from app.core.tuning import Tuning
from app.embedding.embedder import Embedder
from app.main import create_app
from app.settings import Settings
from tests.conftest import Service, TestParts, body_of
from tests.support.command import Run
from tests.support.contract import Contract
from tests.support.server import Server, recalld, serving
from tests.support.tuned import tuned

CANARY = "zanzibar-canary-7391"
OWNER = {"agent_id": "a", "user_id": "u"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("serve") / "data") as running:
        yield running


def memory(text: str = "Ada prefers tea", **fields: Any) -> dict[str, Any]:
    return {**OWNER, "content": text, **fields}


# --- Start ------------------------------------------------------------------------------------------------------------


def test_it_says_where_it_is_and_what_to_try(server: Server) -> None:
    printed = server.printed()
    address = str(server.client.base_url).rstrip("/")
    assert f"Recalld serves {address}." in printed
    curls = re.findall(r"curl -s (\S+) .*?-d '(.*?)'", printed, re.DOTALL)
    assert len(curls) == 2
    answers = [httpx.post(url, content=body, headers={"content-type": "application/json"}) for url, body in curls]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[1].json()["items"][0]["memory"]["content"] == "Ada prefers tea to coffee"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_once_there_are_keys_what_to_try_has_one_and_an_address_that_can_be_called(
    tmp_path: Path, run: Run, workers: str
) -> None:
    made = run("keys", "create", "--no-admin", "--tenant", "default", "--name", "n", "--json")
    key = json.loads(made.stdout)["key"]
    with serving(tmp_path / "data", RECALLD_HOST="0.0.0.0", RECALLD_WORKERS=workers) as server:
        printed = server.printed()
        tried = printed.split("curl ")[1:]
        assert len(tried) == 2
        for command, status in zip(tried, (201, 200), strict=True):
            assert '-H "Authorization: Bearer $RECALLD_KEY"' in command
            url, body = re.findall(r"-s (http://127\.0\.0\.1:\S+) .*?-d '(.*?)'", command, re.DOTALL)[0]
            headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
            assert httpx.post(url, content=body, headers=headers).status_code == status


def test_a_setting_that_is_not_known_is_warned_of_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RECALLD_AUTHH=off\nOTHER=1\n")
    given = {"RECALLD_PROT": "9", "RECALLD_EMBEDING_MODEL": CANARY, "RECALLD_ZZZZZZ": CANARY, "RECALLD_KEY": "rk_x_y"}
    with serving(tmp_path / "data", **given) as server:
        wanted = [
            "RECALLD_AUTHH in .env is no setting: did you mean RECALLD_AUTH?",
            "RECALLD_EMBEDING_MODEL is no setting: did you mean RECALLD_EMBEDDING_MODEL?",
            "RECALLD_PROT is no setting: did you mean RECALLD_PORT?",
            "RECALLD_ZZZZZZ is no setting: `recalld serve --help` lists them all.",
        ]
        warned = [line["message"] for line in server.log() if "is no setting" in line["message"]]
        assert sorted(warned) == wanted
        assert {line["level"] for line in server.log() if "is no setting" in line["message"]} == {"warning"}
        assert [line for line in server.printed().splitlines() if "is no setting" in line] == warned
        assert CANARY not in server.log_text() + server.printed(), "a value may be a secret"


def test_a_start_with_known_settings_warns_of_none(server: Server) -> None:
    assert "is no setting" not in server.log_text() + server.printed()


LIBRARIES = "apsw, fastapi, httpx, numpy, onnxruntime, pydantic_settings, tokenizers, typer, uvicorn"


def test_a_second_start_is_quick(tmp_path: Path) -> None:
    """Beside an import of its libraries: a busy machine slows both."""
    with serving(tmp_path / "data") as first:
        assert first.stop() == 0
    with serving(tmp_path / "data") as second:
        started = second.cpu_to_ready
    before = os.times()
    subprocess.run([sys.executable, "-c", f"import {LIBRARIES}"], check=True)
    after = os.times()
    imported = after.children_user + after.children_system - before.children_user - before.children_system
    assert started < 4 * imported


def test_nothing_is_written_outside_the_data_directory(tmp_path: Path) -> None:
    """Libraries that keep a device id or a cache in the home would."""
    home = tmp_path / "home"
    home.mkdir()
    with serving(tmp_path / "data", HOME=str(home), XDG_CACHE_HOME=str(home / ".cache")) as server:
        server.client.post("/v1/memories", json={"agent_id": "a", "user_id": "ada", "content": "Ada likes tea"})
    assert list(home.rglob("*")) == []


def test_it_refuses_an_open_address_without_a_key(tmp_path: Path, run: Run) -> None:
    refused = recalld(tmp_path / "data", "serve", RECALLD_HOST="0.0.0.0")
    assert refused.returncode == 1
    sentence = refused.stderr.splitlines()[-1]
    assert sentence.startswith("recalld: No API key was ever made")
    assert "recalld keys create" in sentence
    assert "Traceback" not in refused.stderr
    made = run("keys", "create", "--no-admin", "--tenant", "t", "--name", "first")
    assert made.returncode == 0
    with serving(tmp_path / "data", RECALLD_HOST="0.0.0.0") as open_:
        answer = open_.client.get("/v1/memories")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        key = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert open_.client.get("/v1/memories", headers=key).status_code == 200
        assert open_.client.get("/readyz").status_code == 200


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_store_that_is_lost_is_not_served_and_the_way_out_works(tmp_path: Path, run: Run, command: str) -> None:
    data = tmp_path / "data"
    assert run("keys", "create", "--no-admin", "--tenant", "default", "--name", "first").returncode == 0
    for lost in data.glob("recalld.db*"):
        lost.unlink()
    refused = recalld(data, command)
    assert refused.returncode == 1
    sentence = refused.stderr.splitlines()[-1]
    assert sentence.startswith("recalld: API keys were made for this store, but it holds none")
    assert "recalld restore" in sentence
    assert "recalld keys create" in sentence
    assert "Traceback" not in refused.stderr
    again = run("keys", "create", "--no-admin", "--tenant", "default", "--name", "again", "--verbs", "read")
    with serving(data) as server:
        assert server.client.get("/v1/memories").status_code == 401
        key = {"Authorization": f"Bearer {again.stdout.strip()}"}
        assert server.client.get("/v1/memories", headers=key).json()["items"] == []


@pytest.mark.parametrize(
    ("host", "shown", "family"),
    [("127.0.0.1", "127.0.0.1", socket.AF_INET), ("::1", "[::1]", socket.AF_INET6)],
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_said_before_anything_is_loaded(
    tmp_path: Path, host: str, shown: str, family: socket.AddressFamily, workers: str
) -> None:
    with socket.create_server((host, 0), family=family) as taken:
        port = str(taken.getsockname()[1])
        given = {"RECALLD_HOST": host, "RECALLD_PORT": port, "RECALLD_WORKERS": workers}
        refused = recalld(tmp_path / "data", "serve", **given, RECALLD_EMBEDDING_MODEL="./nope")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"recalld: Cannot listen on {shown}:{port}: another program has this port, perhaps an earlier start of "
        "Recalld. Choose another port with --port or RECALLD_PORT.\n"
    )
    assert not (tmp_path / "data").exists()


def test_the_demo_says_that_its_port_is_taken_before_it_writes_its_story(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = recalld(tmp_path / "data", "demo", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 1
    assert refused.stderr.startswith("recalld: Cannot listen on 127.0.0.1")
    assert "Choose another port with --port" in refused.stderr


def test_a_host_that_this_machine_has_not_is_a_sentence(tmp_path: Path) -> None:
    for host in ("192.0.2.1", "nowhere.invalid"):
        refused = recalld(tmp_path / "data", "serve", RECALLD_HOST=host, RECALLD_PORT="0")
        assert refused.stderr.startswith(f"recalld: Cannot listen on {host}:0: this machine has no such address")
        assert "--host or RECALLD_HOST" in refused.stderr


def test_a_model_or_a_directory_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for settings in ({"RECALLD_EMBEDDING_MODEL": "./nope"}, {"RECALLD_DATA_DIR": str(tmp_path / "file" / "x")}):
        refused = recalld(tmp_path / "data", "serve", **settings)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1].startswith("recalld: ")
        assert "Traceback" not in refused.stderr


# --- Health -----------------------------------------------------------------------------------------------------------


def test_alive_and_ready(server: Server) -> None:
    assert server.client.get("/livez").json() == {"status": "alive"}
    ready = server.client.get("/readyz").json()
    assert (ready["status"], ready["store"]) == ("ready", "embedded")


@pytest.mark.anyio
async def test_not_ready_without_its_store(service: Service) -> None:
    await service.resources.store.close()
    response = await service.client.get("/readyz")
    assert response.status_code == 503
    assert body_of(response)["code"] == "store_unavailable"
    assert response.headers["retry-after"]
    assert Contract(service.app).problem(response) is None
    assert (await service.client.get("/livez")).status_code == 200


@pytest.mark.anyio
async def test_not_ready_without_its_model_or_while_it_drains(service: Service) -> None:
    embedder: Embedder = service.resources.embedder
    await embedder.close()
    response = await service.client.get("/readyz")
    assert (response.status_code, body_of(response)["code"]) == (503, "embedding_unavailable")
    service.resources.lifecycle.draining = True
    response = await service.client.get("/readyz")
    assert (response.status_code, body_of(response)["code"]) == (503, "draining")
    assert (await service.client.get("/livez")).status_code == 200


@pytest.mark.anyio
async def test_the_usual_names_of_health_answer_as_readiness_does(service: Service) -> None:
    """Load balancers and platforms ask `/health` or `/healthz` unless they are told otherwise."""
    document = Contract(service.app).document
    for name in ("/health", "/healthz"):
        assert name not in document["paths"], "one route, one name in generated clients"
        answer = await service.client.get(name, headers={"Sec-Fetch-Site": "cross-site"})
        assert (answer.status_code, answer.json()) == (200, (await service.client.get("/readyz")).json())
        assert (await service.client.head(name)).status_code == 200
        assert (await service.client.post(name)).status_code == 405
    await service.key()
    assert (await service.client.get("/health")).status_code == 200, "it needs no key"
    service.resources.lifecycle.draining = True
    for name in ("/health", "/healthz"):
        answer = await service.client.get(name)
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")
        assert Contract(service.app).problem(answer) is None


@pytest.mark.parametrize(
    "sent",
    [b"FOO!! / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: abc\r\n\r\n", b"\x16\x03\x01\x00\xa5\r\n\r\n"],
)
def test_what_is_no_http_is_a_problem_too(server: Server, sent: bytes) -> None:
    url = server.client.base_url
    with socket.create_connection((url.host, url.port or 80), timeout=10) as line:
        line.sendall(sent)
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "http/1.1 400 bad request"
    assert {"content-type: application/problem+json", f"content-length: {len(body)}", "connection: close"} <= set(lines)
    found = json.loads(body)
    assert (found["status"], found["code"]) == (400, "malformed_request")
    assert f"x-request-id: {found['request_id']}" in lines


# --- Metrics ----------------------------------------------------------------------------------------------------------


def test_metrics_are_by_route_and_hold_no_ids(server: Server) -> None:
    made = server.client.post("/v1/memories", json=memory("for the metrics")).json()
    server.client.get(f"/v1/memories/{made['memory_id']}")
    server.client.get("/v1/memories/mem_nothere")
    server.client.get(f"/nowhere/{CANARY}")
    server.client.put("/v1/memories")
    server.client.post("/v1/memories/search", json={**OWNER, "query": "metrics"})
    text = server.client.get("/metrics").text
    ours = [line for line in text.splitlines() if line.startswith("recalld_")]
    assert any('method="GET",route="/v1/memories/{memory_id}",status="200"' in line for line in ours)
    assert any('route="/v1/memories/{memory_id}",status="404"' in line for line in ours)
    assert any('method="PUT",route="/v1/memories",status="405"' in line for line in ours)
    assert any('route="unmatched",status="404"' in line for line in ours)
    for name in ("http_request_seconds", "embedding_batch_seconds", "search_seconds", "store_commit_seconds"):
        assert any(line.startswith(f"recalld_{name}_count") and not line.endswith(" 0.0") for line in ours), name
    assert any(line.startswith('recalld_records_written_total{collection="agent_memories"}') for line in ours)
    assert {"recalld_jobs_queued", "recalld_embedding_queue_texts"} <= {line.partition(" ")[0] for line in ours}
    for private in (made["memory_id"], "mem_", CANARY):
        assert private not in text


# --- Logs -------------------------------------------------------------------------------------------------------------


def test_logs_are_json_with_request_ids_and_without_anything_private(tmp_path: Path, run: Run) -> None:
    made = run("keys", "create", "--no-admin", "--tenant", "t", "--name", CANARY)
    key = made.stdout.strip()
    secret = key.split("_", 2)[2]  # the secret itself may hold underscores
    with serving(tmp_path / "data", RECALLD_LOG_LEVEL="debug") as server:
        headers = {"Authorization": f"Bearer {key}", "x-request-id": "seen-in-the-log"}
        post = server.client.post
        assert post("/v1/memories", json=memory(CANARY), headers=headers).status_code == 201
        assert post("/v1/memories/search", json={**OWNER, "query": CANARY}, headers=headers).status_code == 200
        assert post("/v1/memories", json=memory(CANARY, trust=CANARY), headers=headers).status_code == 422
        assert post("/v1/memories", content=f'{{"content": "{CANARY}', headers=headers).status_code == 415
        json_type = {**headers, "content-type": "application/json"}
        assert post("/v1/memories", content=f'{{"content": "{CANARY}', headers=json_type).status_code == 400
        assert post("/v1/memories", json=memory(CANARY), headers={"x-api-key": f"rk_x_{secret}"}).status_code == 401
        assert server.client.get(f"/v1/memories?tag={CANARY}", headers=headers).status_code == 200
        assert server.client.get(f"/{CANARY}").status_code == 404
        assert server.stop() == 0
        requests = [line for line in server.log() if line["message"] == "request"]
        assert len(requests) == 8
        assert all(line["request_id"] and line["route"] and line["took_ms"] >= 0 for line in requests)
        assert requests[0] | {"took_ms": 0, "time": ""} == {
            "time": "",
            "level": "info",
            "logger": "recalld.request",
            "message": "request",
            "request_id": "seen-in-the-log",
            "method": "POST",
            "route": "/v1/memories",
            "status": 201,
            "took_ms": 0,
        }
        assert CANARY not in server.log_text()
        assert secret not in server.log_text()


# --- Stop -------------------------------------------------------------------------------------------------------------


def test_sigterm_lets_a_request_finish_and_keeps_what_was_acknowledged(tmp_path: Path, run: Run) -> None:
    with serving(tmp_path / "data", command=tuned(drain_delay_seconds=3)) as server:
        texts = [f"note {i} " + "about boats and tea and winter " * 30 for i in range(24)]
        batch = {"items": [memory(text, deduplicate=False) for text in texts]}
        answers: list[httpx.Response] = []

        def send() -> None:
            answers.append(server.client.post("/v1/memories/batch", json=batch))

        slow = threading.Thread(target=send)
        slow.start()
        while "recalld_http_requests_in_progress 2.0" not in server.client.get("/metrics").text:
            if not slow.is_alive():  # on a busy machine it may end between two looks
                assert len(answers) < 20
                slow = threading.Thread(target=send)
                slow.start()
        server.terminate()
        codes = _codes_until_gone(server)
        slow.join()
        assert server.process.wait(90) == 0
        assert {answer.status_code for answer in answers} == {201}
        assert "draining" in codes
    made = [item["memory_id"] for answer in answers for item in answer.json()["items"]]
    assert len(made) == len(texts) * len(answers)
    with serving(tmp_path / "data") as again:
        for memory_id in made:
            assert again.client.get(f"/v1/memories/{memory_id}").status_code == 200
    doctor = run("doctor")
    assert doctor.returncode == 0, doctor.stdout


def _codes_until_gone(server: Server) -> list[str]:
    """What /readyz says while the service goes."""
    codes: list[str] = []
    with httpx.Client(base_url=server.client.base_url) as client:
        while server.process.poll() is None:
            try:
                codes.append(str(client.get("/readyz").json().get("code")))
            except httpx.TransportError:
                return codes
            time.sleep(0.05)
    return codes


def test_a_second_sigterm_does_not_wait(tmp_path: Path) -> None:
    with serving(tmp_path / "data", command=tuned(drain_delay_seconds=5)) as server:
        server.terminate()
        while server.client.get("/readyz").json()["code"] != "draining":
            pass
        assert server.stop() == 0


@pytest.mark.anyio
async def test_the_first_sigterm_drains_and_the_second_stops() -> None:
    lifecycle = SimpleNamespace(draining=False)
    config = uvicorn.Config(FastAPI(), http=guarded(ConnectionLimits(by_address=8)))
    config.load()
    server = DrainingServer(config, Tuning(drain_delay_seconds=3600))
    server.lifespan = SimpleNamespace(state={"resources": SimpleNamespace(lifecycle=lifecycle)})
    server.handle_exit(signal.SIGTERM, None)
    assert (lifecycle.draining, server.should_exit) == (True, False)
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit


def test_nothing_happens_at_import(tmp_path: Path, parts: TestParts) -> None:
    create_app(Settings(data_dir=tmp_path / "data", _env_file=None), parts)
    assert not (tmp_path / "data").exists()
