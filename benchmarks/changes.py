"""What the change log costs: writes of a service that logs changes, beside one that does not, in turns in one run."""

import argparse
import asyncio
from collections.abc import Iterator

from benchmarks.harness import Call, Connection, Section, alternate, folder, ratio_rows, recalld

TARGET = 1.1
"""Highest p50 as a multiple of the service without a log."""
OWNER = {"agent_id": "bench", "user_id": "u"}
TEXT = "the red bicycle is in the garden"
MANY = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=300)


def _said(count: int) -> dict[str, object]:
    return {**OWNER, "memorize": "none", "messages": [{"role": "user", "content": TEXT}] * count}


def _calls(to: Connection) -> dict[str, Call]:
    to.ask("POST", "/v1/tasks", {"task_id": "bench", **OWNER, "goal": "measure", "context": {"step": 0}})
    return {
        "append": lambda _: to.ask("POST", "/v1/sessions/one/messages", _said(1)),
        f"append of {MANY}": lambda _: to.ask("POST", "/v1/sessions/many/messages", _said(MANY)),
        "context patch": lambda at: to.ask("PATCH", "/v1/tasks/bench/context", {"step": at + 1}),
        "memory": lambda at: to.ask("POST", "/v1/memories", {**OWNER, "content": f"{TEXT}, number {at}"}),
    }


def run(options: argparse.Namespace) -> Iterator[Section]:
    with (
        folder() as path,
        recalld(f"{path}/logs", jobs=False) as logs,
        recalld(f"{path}/plain", jobs=False, RECALLD_CHANGES_RETENTION_HOURS="0") as plain,
    ):
        calls: dict[str, Call] = {}
        for name, server in (("", plain), (", logged", logs)):
            calls |= {f"{call}{name}": made for call, made in _calls(Connection(server.url)).items()}
        times = asyncio.run(alternate(calls, options.requests))
    bases = {name: name.removesuffix(", logged") for name in times if name.endswith(", logged")}
    rows, met = ratio_rows(times, bases, dict.fromkeys(bases, TARGET))
    yield Section("changes", rows, met)
