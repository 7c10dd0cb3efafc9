"""Appending a message and patching a task's context, beside a bare route that makes one small durable commit.

The three take turns, request by request, in one run.
"""

import argparse
import asyncio
from collections.abc import Iterator

from benchmarks.harness import Connection, Section, alternate, bare, folder, ratio_rows, recalld

TARGET = 1.5
"""Highest p50 as a multiple of the bare route's."""
OWNER = {"agent_id": "bench", "user_id": "u"}
TEXT = "the red bicycle is in the garden"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=500)


def run(options: argparse.Namespace) -> Iterator[Section]:
    messages = {**OWNER, "memorize": "none", "messages": [{"role": "user", "content": TEXT}]}
    note = {**OWNER, "subject": "bicycle", "predicate": "is", "object": TEXT}
    with folder() as path, recalld(f"{path}/ours", jobs=False) as server, bare(f"{path}/bare") as plain:
        ours, other = Connection(server.url), Connection(plain.url)
        ours.ask("POST", "/v1/tasks", {"task_id": "bench", **OWNER, "goal": "measure", "context": {"step": 0}})
        calls = {
            "bare commit": lambda _: other.ask("POST", "/notes", note),
            "append": lambda _: ours.ask("POST", "/v1/sessions/bench/messages", messages),
            "context patch": lambda number: ours.ask("PATCH", "/v1/tasks/bench/context", {"step": number + 1}),
        }
        times = asyncio.run(alternate(calls, options.requests))
    compared = ("append", "context patch")
    rows, met = ratio_rows(times, dict.fromkeys(compared, "bare commit"), dict.fromkeys(compared, TARGET))
    yield Section("commits", rows, met)
