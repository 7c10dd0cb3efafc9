"""The whole service, in a process of its own, with its model on a server that goes away and comes back."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from app.jobs.queue import EMBED_PENDING
from tests.support.scripted import Reply, scripted_server
from tests.support.server import serving
from tests.support.tuned import tuned

KEY = "sk-very-secret-0123456789"
SCOPE = {"agent_id": "a", "user_id": "u"}


def remember(client: httpx.Client, content: str) -> Any:
    answer = client.post("/v1/memories", json={**SCOPE, "content": content})
    assert answer.status_code == 201, answer.text
    return answer.json()


def searched(client: httpx.Client, query: str) -> Any:
    answer = client.post("/v1/memories/search", json={**SCOPE, "query": query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def found(client: httpx.Client, query: str) -> httpx.Response:
    return client.post("/v1/memories/search", json={**SCOPE, "query": query, "mode": "vector"})


def test_it_serves_fails_and_recovers_with_its_server(tmp_path: Path) -> None:
    with scripted_server() as model:
        settings = {
            "RECALLD_EMBEDDING_MODEL": "openai:m",
            "RECALLD_EMBEDDING_BASE_URL": model.url,
            "RECALLD_EMBEDDING_API_KEY": KEY,
            "RECALLD_LOG_LEVEL": "debug",
        }
        with serving(
            tmp_path / "data", command=tuned(job_seconds={EMBED_PENDING: 1}, embedding_seconds=1), **settings
        ) as server:
            made = remember(server.client, "she likes tea")
            assert made["embedding"] == {"model": "m:openai-4", "dim": 4, "status": "ready"}
            assert found(server.client, "tea?").json()["items"][0]["memory"]["memory_id"] == made["memory_id"]

            model.then(*[Reply(503, {"Retry-After": "2"})] * 2)
            late = remember(server.client, "she dislikes coffee")
            assert late["embedding"]["status"] == "pending"
            refused = found(server.client, "coffee?")
            assert (refused.status_code, refused.json()["code"]) == (503, "embedding_unavailable")
            assert refused.headers["retry-after"] in ("1", "2")

            deadline = time.monotonic() + 90
            path = f"/v1/memories/{late['memory_id']}"
            while server.client.get(path).json()["embedding"]["status"] != "ready":
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert len(found(server.client, "coffee?").json()["items"]) == 2
            assert server.stop() == 0
            assert KEY not in server.log_text() + server.printed()
            assert "dislikes" not in server.log_text()
        assert {one.headers["authorization"] for one in model.seen} == {f"Bearer {KEY}"}


def test_many_searches_wait_for_a_hung_server_once_and_are_answered_by_words(tmp_path: Path) -> None:
    with scripted_server() as model:
        settings = {
            "RECALLD_EMBEDDING_MODEL": "openai:m",
            "RECALLD_EMBEDDING_BASE_URL": model.url,
            "RECALLD_JOBS_ENABLED": "false",
        }
        with serving(tmp_path / "data", command=tuned(embedding_seconds=3), **settings) as server:
            remember(server.client, "she likes tea")
            before = len(model.seen)
            model.then(*[Reply(delay=60)] * 100)
            queries = [f"does she like tea, {at}?" for at in range(8)]
            with ThreadPoolExecutor(len(queries)) as threads:
                answers = list(threads.map(partial(searched, server.client), queries))
            assert {answer["mode_used"] for answer in answers} == {"text"}
            assert all(answer["warnings"] and len(answer["items"]) == 1 for answer in answers)
            assert len(model.seen) - before <= 2  # of 8: the others failed at once, in the pause that the first opened
