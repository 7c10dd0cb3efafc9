"""`recalld reembed`, as it is called; killed and called again."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

from app.actions.schemas import ACTIONS
from app.core.clock import new_id
from app.embedding.embedder import Embedder
from app.embedding.onnx import TAUGHT, load_packaged
from app.lifespan import RealParts, open_store
from app.memories.repository import new_memory
from app.memories.schemas import MEMORIES, EmbeddingInfo, MemoryRecord
from app.settings import Settings
from app.storage.changes import Change, IndexEntry, Insert
from app.storage.index.record_codec import model_id
from app.storage.protocol import Store
from app.storage.text import content_hash, index_text
from tests.cli.conftest import Run
from tests.conftest import TestParts, TurnedClock, running
from tests.support.scripted import DIM, Reply, ScriptedServer, scripted_server
from tests.support.server import environment

T = TypeVar("T")

NEW = "m:openai-4"
ANOTHER = "all-MiniLM-L6-v2:onnx-int8-8199be6f"
MANY = 40  # more than are committed at once
NOW = "2026-06-01T00:00:00.000Z"


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


def on_store(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    async def run() -> T:
        store = await open_store(settings, dim=1)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def fill(settings: Settings, texts: list[str], actions: int = 0) -> None:
    """Memories of several users, and actions, with vectors of a model that is not here."""
    done: list[Change] = [action(f"action {number}") for number in range(actions)]
    on_store(settings, lambda store: store.commit([*(memory(text, len(text) % 7) for text in texts), *done]))


def entry(text: str, model: str = "old", dim: int = 24) -> IndexEntry:
    vector = np.random.default_rng(len(text)).standard_normal(dim).astype(np.float32)
    return IndexEntry(index_text(text), vector / np.float32(np.linalg.norm(vector)), model)


def memory(text: str, user: int, model: str = "old", dim: int = 24) -> Insert:
    fields = {"content": text, "importance": 0.5, "memory_type": "fact", "agent_id": "a", "user_id": f"u{user}"}
    doc: MemoryRecord = {"tenant_id": "default", **new_memory(MEMORIES.as_record(fields), {}, NOW, unique=False)}
    embedding: EmbeddingInfo = {"model": model, "dim": dim, "status": "ready"}
    return Insert(MEMORIES, doc | {"embedding": embedding}, entry(text, model, dim))


def action(text: str) -> Insert:
    own = {"action_id": new_id("act"), "agent_id": "a", "content": text, "content_hash": content_hash(text)}
    return Insert(
        ACTIONS, {"tenant_id": "default", **own, "timestamp": NOW, "created_at": NOW, "version": 1}, entry(text)
    )


def moved(settings: Settings) -> int:
    """How many memories have a vector of the new model."""

    async def count(store: Store) -> int:
        return (await store.reembedding.counts(MEMORIES, model_id(NEW, DIM), DIM)).of_model

    return on_store(settings, count)


def store_of(settings: Settings) -> dict[str, str]:
    return {
        "RECALLD_DATA_DIR": str(settings.data_dir),
        "RECALLD_STORE": settings.store.get_secret_value(),
        "RECALLD_MONGODB_DATABASE": settings.mongodb.database,
        "RECALLD_MONGODB_DEADLINE_SECONDS": "30",
    }


def given(settings: Settings, model: ScriptedServer) -> dict[str, str]:
    return {**store_of(settings), "RECALLD_EMBEDDING_BASE_URL": model.url}


def test_a_move_that_was_killed_goes_on_where_it_was(run: Run, settings: Settings, model: ScriptedServer) -> None:
    fill(settings, [f"memory {number}" for number in range(MANY)], actions=2)
    model.then(*[Reply()] * 2, *[Reply(delay=60)] * 5)  # its dimension and the memories' texts, and no more
    command = [sys.executable, "-m", "app.cli", "reembed", "--model", "openai:m"]
    own = environment(settings.data_dir, **given(settings, model))
    process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    # MongoDB would keep what a transaction that was killed has touched, for a minute
    least = 1 if settings.store.get_secret_value() == "embedded" else MANY
    while moved(settings) < least:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = moved(settings)
    assert done >= least

    model.script.clear()
    asked = len(model.seen)
    ended = run("reembed", "--model", "openai:m", "--json", **given(settings, model))
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["ok"], report["model"], report["dim"]) == (True, NEW, DIM)
    same = {"pending": 0, "left": 0}
    assert [row for row in report["collections"] if row["records"]] == [
        {"collection": "agent_memories", "records": MANY, "vectors": MANY, **same, "kept": MANY},
        {"collection": "action_logs", "records": 2, "vectors": 2, **same, "kept": 2},
    ]
    assert report["embedded"] == MANY + 2 - done
    texts = [text for one in model.seen[asked + 1 :] for text in one.body["input"]]
    assert len(texts) == len(set(texts)) == MANY + 2 - done, "what was done is not asked for again"
    assert "RECALLD_EMBEDDING_MODEL=openai:m" in ended.stderr


def test_what_the_model_refuses_is_counted_and_fails_the_command(
    run: Run, settings: Settings, model: ScriptedServer
) -> None:
    fill(settings, ["tea", "coffee", "poison"])
    model.refused = "poison"
    ended = run("reembed", "--model", "openai:m", "--drop-old", **given(settings, model))
    assert ended.returncode == 1
    assert "1 records have no vector of m:openai-4" in ended.stderr
    (row,) = [line.split() for line in ended.stdout.splitlines() if line.startswith("agent_memories")]
    assert row[1:] == ["3", "2", "0", "1", "2"], "nothing was dropped"
    model.refused = None
    ended = run("reembed", "--drop-old", RECALLD_EMBEDDING_MODEL="openai:m", **given(settings, model))
    assert ended.returncode == 0, ended.stderr
    (row,) = [line.split() for line in ended.stdout.splitlines() if line.startswith("agent_memories")]
    assert row[1:] == ["3", "3", "0", "0", "0"]
    assert "1 records embedded" in ended.stdout
    assert ended.stderr.strip() == ""


def test_a_model_that_is_away_is_a_sentence(run: Run, settings: Settings, model: ScriptedServer) -> None:
    fill(settings, ["tea"])
    model.then(Reply(), *[Reply(401)] * 9)
    ended = run("reembed", "--model", "openai:m", **given(settings, model))
    assert ended.returncode == 1
    assert "answered 401" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert run("reembed", "--model", "./nothing", **given(settings, model)).returncode == 1


def test_an_empty_store_is_moved_at_once(run: Run, settings: Settings, model: ScriptedServer) -> None:
    fill(settings, [])
    report: Any = json.loads(run("reembed", "--json", "--model", "openai:m", **given(settings, model)).stdout)
    assert report["ok"]
    assert report["embedded"] == 0


class Opening(TestParts):
    """Parts that open the model of the settings."""

    async def embedder(self, settings: Settings) -> Embedder:
        return await RealParts.embedder(self, settings)


def test_a_store_of_another_model_is_found_by_words_until_it_is_moved(
    run: Run, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    parts = TestParts(load_packaged(TAUGHT), TurnedClock())
    on_store(settings, lambda store: store.commit([memory("Ada drinks green tea", 1, ANOTHER, 384)]))

    def found(mode: str, query: str) -> list[str]:
        async def search() -> list[str]:
            async with running(settings, parts) as service:
                body = {"agent_id": "a", "user_id": "u1", "query": query, "mode": mode}
                answer = await service.client.post("/v1/memories/search", json=body)
                assert answer.status_code == 200, answer.text
                return [item["memory"]["content"] for item in answer.json()["items"]]

        return asyncio.run(search())

    def checked() -> tuple[int, str]:
        ended = run("doctor", "--json", **store_of(settings))
        (finding,) = [each for each in json.loads(ended.stdout)["findings"] if each["name"] == "embedding model"]
        assert finding["ok"] == (ended.returncode == 0)
        return ended.returncode, finding["detail"]

    assert found("hybrid", "green tea") == ["Ada drinks green tea"]
    assert "the store has vectors of another embedding model" in caplog.text
    assert found("vector", "a hot drink") == []
    code, detail = checked()
    assert (code, detail.split(":")[0]) == (1, "1 records have a vector of another model than recalld-minilm-1")
    assert "recalld reembed" in detail

    report = json.loads(run("reembed", "--json", **store_of(settings)).stdout)
    assert (report["ok"], report["embedded"]) == (True, 1)
    caplog.clear()
    assert found("vector", "a hot drink") == ["Ada drinks green tea"]
    assert "another embedding model" not in caplog.text
    assert checked() == (0, TAUGHT.name)
