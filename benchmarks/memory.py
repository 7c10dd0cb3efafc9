"""How much memory the service's process holds: after its start, after a load, and after a pause.

    scripts/benchmark memory --memories 10000

Memories are added over HTTP, 500 a request, and embedded by the service's model. Every search has a text of its own.
Figures are MB (a million bytes) from Linux's /proc/PID/smaps_rollup, after the service has read its vocabulary:
`resident` is VmRSS; `anonymous` is the process's own; the rest is mapped files (libraries), which processes share.
"""

import argparse
import time
from collections.abc import Iterator

from benchmarks.data import Texts, owner
from benchmarks.harness import Connection, Row, Section, folder, megabytes, recalld

FIELDS = {"resident": "Rss", "proportional": "Pss", "anonymous": "Anonymous"}
BATCH = 500
SETTLE_SECONDS = 5
"""The vocabulary is read half a second after the start, and takes as long."""
TARGETS = {"start": 190, "load": 260}
"""Highest resident MB that are wanted."""


def measured(pid: int, after: str) -> Row:
    found = megabytes(pid, *FIELDS.values())
    return {"MB after": after, **dict(zip(FIELDS, found, strict=True)), "target": TARGETS.get(after)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--searches", type=int, default=1_000)
    parser.add_argument("--pause", type=float, default=60, help="seconds")


def run(options: argparse.Namespace) -> Iterator[Section]:
    texts, queries = Texts(7), Texts(11)
    items = [{**owner(at % options.users), "content": texts.memory()} for at in range(options.memories)]
    with folder() as path, recalld(path) as server:
        api = Connection(server.url)
        time.sleep(SETTLE_SECONDS)
        rows = [measured(server.pid, "start")]
        for at in range(0, len(items), BATCH):
            api.ask("POST", "/v1/memories/batch", {"items": items[at : at + BATCH]})
        for at in range(options.searches):
            api.ask("POST", "/v1/memories/search", {**owner(at % options.users), "query": queries.question(at)})
        rows.append(measured(server.pid, "load"))
        time.sleep(options.pause)
        rows.append(measured(server.pid, "pause"))
    met = all(row["resident"] <= row["target"] for row in rows if row["target"])
    yield Section(f"{options.memories:,} memories, {options.searches:,} searches", rows, met)
