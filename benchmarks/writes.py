"""Bulk loads, message appends and single adds beside the embedding that they need.

    scripts/benchmark writes --parts load add

The embedder alone runs in a process of its own with the service's settings, on the same texts, in turn. A single add is
searched for at once, and must be found.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from statistics import median
from typing import Any

from app.embedding.embedder import Embedder
from app.embedding.factory import open_embedder
from app.settings import Settings
from benchmarks import data
from benchmarks.data import NAMES, Shape, Texts
from benchmarks.harness import Row, Section, folder, percentile, recalld
from benchmarks.load import Client, Load, encoded

MEMORIES = "/v1/memories"
LOADS = (("batch", 50, 1), ("batch", 50, 4), ("batch", 500, 1), ("messages", 50, 1), ("messages", 50, 4))
"""Kind, items in a request, callers."""
STORED = (100, 1_000, 10_000)
"""Memories that the user of the single adds has already."""
WARM_UP = 3


class EmbedderAlone:
    """Use as a context: its process lives as long."""

    def __enter__(self) -> "EmbedderAlone":
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        self.seconds(["warm up"], 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def seconds(self, texts: Sequence[str], at_once: int) -> float:
        """Time to embed `texts`, so many in a call, one call after another."""
        return self._pool.submit(_embed, list(texts), at_once).result()


@cache
def _runner() -> tuple[asyncio.Runner, Embedder]:
    chosen, runner = Settings().embedding, asyncio.Runner()
    opened = open_embedder(chosen.model)
    return runner, runner.run(opened)


def _embed(texts: list[str], at_once: int) -> float:
    runner, embedder = _runner()
    start = time.perf_counter()
    for at in range(0, len(texts), at_once):
        runner.run(embedder.embed_texts(texts[at : at + at_once]))
    return time.perf_counter() - start


def load(client: Client, repeat: int, block: int) -> Iterator[Row]:
    """Texts a second of the embedder alone and of the service."""
    texts = Texts(17)
    with folder() as directory, recalld(directory) as server, EmbedderAlone() as alone:
        for kind, size, callers in LOADS:
            rates = []
            for again in range(repeat):
                mine = [texts.memory() for _ in range(block)]
                path, bodies = _requests(kind, size, f"{kind}-{size}-{callers}-{again}", mine)
                embedding = alone.seconds(mine, size)
                job = Load(server.port, path, bodies, min(callers, len(bodies)), len(bodies))
                rates.append((block / embedding, block / client.run(job).elapsed))
            yield {
                "bulk load": kind,
                "in a request": size,
                "callers": callers,
                "embedder alone per s": round(median(theirs for theirs, _ in rates), 1),
                "service per s": round(median(ours for _, ours in rates), 1),
                "share": round(median(ours / theirs for theirs, ours in rates), 3),
            }


def _requests(kind: str, size: int, name: str, texts: Sequence[str]) -> tuple[str, list[bytes]]:
    """Path and bodies."""
    owner = {"agent_id": data.AGENT, "user_id": f"loader-{name}"}
    pieces = [texts[at : at + size] for at in range(0, len(texts), size)]
    if kind == "batch":
        batches: list[Any] = [{"items": [{**owner, "content": text} for text in piece]} for piece in pieces]
        return f"{MEMORIES}/batch", [encoded(batch) for batch in batches]
    roles = ("user", "assistant")
    turns = (
        [{"role": roles[at % 2], "name": NAMES[at % 2], "content": text} for at, text in enumerate(piece)]
        for piece in pieces
    )
    return f"/v1/sessions/{name}/messages", [encoded({**owner, "messages": messages}) for messages in turns]


def add(client: Client, stored: int, count: int) -> Row:
    """Single adds of a user who has `stored` memories."""
    texts, pairs = Texts(19), []
    with folder() as directory:
        data.build(directory, Shape(stored, 1))
        with recalld(directory) as server, EmbedderAlone() as alone:
            for _ in range(WARM_UP + count):
                text = texts.memory()
                embedding = alone.seconds([text], 1)
                body = encoded({**data.owner(0), "content": text})
                taken = client.run(Load(server.port, MEMORIES, [body], 1, 1)).latencies[0]
                pairs.append((embedding * 1000, taken * 1000))
                _require_found(client, server.port, text)
    alone_ms, ours_ms = zip(*pairs[WARM_UP:], strict=True)
    beyond = [ours - embedding for embedding, ours in pairs[WARM_UP:]]
    return {
        "memories of the user": stored,
        "embedder alone p50 ms": round(median(alone_ms), 2),
        "add p50 ms": round(median(ours_ms), 2),
        "beyond p50 ms": round(median(beyond), 2),
        "beyond p95 ms": round(percentile(beyond, 95), 2),
    }


def _require_found(client: Client, port: int, text: str) -> None:
    body = {**data.owner(0), "query": text, "mode": "text", "top_k": 3, "record_access": False}
    found = client.post(port, f"{MEMORIES}/search", body)
    if text not in [item["memory"]["content"] for item in found["items"]]:
        raise RuntimeError(f"The service acknowledged this memory and did not find it: {text}")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=("load", "add"), default=("load", "add"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--block", type=int, default=500, help="texts of a bulk load")
    parser.add_argument("--adds", type=int, default=60, help="single adds of a repetition")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with Client() as client:
        if "load" in options.parts:
            yield Section("bulk loads", list(load(client, options.repeat, options.block)))
        if "add" in options.parts:
            count = options.repeat * options.adds
            yield Section("single adds", [add(client, stored, count) for stored in STORED])
