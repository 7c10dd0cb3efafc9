"""The same requests to services that differ in one thing, in turn: what that thing costs.

    scripts/benchmark compare changes                               # no change log; one
    scripts/benchmark compare commit                                # a bare route that makes one commit; the service
    scripts/benchmark compare tracing                               # off; a sampler that keeps nothing; every span sent
    scripts/benchmark compare revision --beside FOLDER              # another checkout of the project; this one
    .venv-encryption/bin/python -m benchmarks compare encryption    # a plain store; an encrypted one

Every service has a store of its own with as many memories, and runs no background work. Calls take turns, request by
request, over kept-alive connections; a row has the p50 of each service and its ratio to the first one's.
"""

import argparse
import asyncio
import json
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.data import Texts
from benchmarks.harness import ROOT, Call, Connection, Row, Section, Server, alternate, bare, folder, recalld

OWNER = {"agent_id": "bench", "user_id": "u"}
LISTED = "/v1/memories?limit=100&agent_id=bench&user_id=u"
TEXT = "the red bicycle is in the garden"
BATCH, MANY = 250, 100
NOW = "2030-01-01T00:00:00Z"
"""With a time of its own a context records no access, as the searches beside it record none."""
TARGETS = {"changes": 1.1, "commit": 1.5}
"""Highest ratio of a write."""
APPEND, PATCH, MEMORY = "append a message", "patch a task's context", "add a memory"
WRITES = (APPEND, f"append {MANY} messages", PATCH, MEMORY)

Opened = AbstractContextManager[Server]


def opened(options: argparse.Namespace, stack: ExitStack) -> dict[str, Opened]:
    """The services by name. What the others are compared with comes first."""

    def service(checkout: Path = ROOT, /, **settings: str) -> Opened:
        return recalld(stack.enter_context(folder()), checkout, jobs=False, **settings)

    def plain() -> Opened:
        return bare(stack.enter_context(folder()))

    if options.what == "changes":
        return {"no log": service(RECALLD_CHANGES_RETENTION_HOURS="0"), "log": service()}
    if options.what == "commit":
        return {"bare": plain(), "service": service()}
    if options.what == "encryption":
        return {"plain": service(), "encrypted": service(RECALLD_STORE_KEY=secrets.token_hex(32))}
    if options.what == "revision":
        return {"other": service(options.beside), "this": service()}
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": stack.enter_context(plain()).url}
    sampled = {**collector, "OTEL_TRACES_SAMPLER": "always_off"}
    return {"off": service(), "sampled out": service(**sampled), "sent": service(**collector)}


def calls_of_bare(to: Connection) -> dict[str, Call]:
    note = {**OWNER, "subject": "bicycle", "predicate": "is", "object": TEXT}
    return dict.fromkeys((APPEND, PATCH), lambda _: to.ask("POST", "/notes", note))


def calls(to: Connection, memories: int) -> dict[str, Call]:
    """Fills the service, and returns what it is asked."""
    texts = Texts(5)
    for _ in range(0, memories, BATCH):
        items = [{**OWNER, "content": texts.memory(), "deduplicate": False} for _ in range(BATCH)]
        to.ask("POST", "/v1/memories/batch", {"items": items})
    to.ask("POST", "/v1/memories", {**OWNER, "content": TEXT})
    to.ask("POST", "/v1/tasks", {"task_id": "bench", **OWNER, "goal": "measure", "context": {"step": 0}})
    ids = [item["memory_id"] for item in json.loads(to.ask("GET", LISTED))["items"]]
    questions = [{**OWNER, "query": texts.question(at), "record_access": False} for at in range(16)]

    contexts = [{**OWNER, "query": body["query"], "session_id": "of-1", "now": NOW} for body in questions]

    def append(count: int, _: int) -> bytes:
        said = {**OWNER, "memorize": "none", "messages": [{"role": "user", "content": TEXT}] * count}
        return to.ask("POST", f"/v1/sessions/of-{count}/messages", said)

    return {
        APPEND: partial(append, 1),
        f"append {MANY} messages": partial(append, MANY),
        PATCH: lambda at: to.ask("PATCH", "/v1/tasks/bench/context", {"step": at + 1}),
        MEMORY: lambda at: to.ask("POST", "/v1/memories", {**OWNER, "content": f"{TEXT}, number {at}"}),
        "read a memory": lambda at: to.ask("GET", f"/v1/memories/{ids[at % len(ids)]}"),
        "list 100 memories": lambda _: to.ask("GET", LISTED),
        "context, its query known": lambda at: to.ask("POST", "/v1/context", contexts[at % len(contexts)]),
        "search, its query known": lambda at: to.ask("POST", "/v1/memories/search", questions[at % len(questions)]),
    }


def compared(times: Mapping[str, Mapping[str, list[float]]], limit: float | None) -> tuple[list[Row], bool]:
    """`times`: of each service, by call. A row for each call that all services have."""
    (base, first), *others = times.items()
    rows, met = list[Row](), True
    for call in first:
        if all(call in taken for _, taken in others):
            row: Row = {"call": call, f"{base}, p50 ms": round(median(first[call]), 2)}
            for name, taken in others:
                p50 = median(taken[call])
                ratio = round(p50 / median(first[call]), 2)
                row |= {f"{name}, p50 ms": round(p50, 2), f"{name} ×": ratio}
                if limit is not None and call in WRITES:
                    row["target"] = limit
                    met &= ratio <= limit
            rows.append(row)
    return rows, met


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("changes", "commit", "encryption", "revision", "tracing"))
    parser.add_argument("--memories", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="the checkout that `revision` compares with")


def run(options: argparse.Namespace) -> Iterator[Section]:
    if options.what == "revision" and options.beside is None:
        sys.exit("revision: name the other checkout by --beside FOLDER.")
    with ExitStack() as stack:
        asked: dict[str, Call] = {}
        for name, server in opened(options, stack).items():
            to = Connection(stack.enter_context(server).url)
            own = calls_of_bare(to) if name == "bare" else calls(to, options.memories)
            asked |= {f"{name}/{call}": ask for call, ask in own.items()}
        times = asyncio.run(alternate(asked, options.requests))
    by_service: dict[str, dict[str, list[float]]] = {}
    for key, taken in times.items():
        name, _, call = key.partition("/")
        by_service.setdefault(name, {})[call] = taken
    rows, met = compared(by_service, TARGETS.get(options.what))
    yield Section(options.what, rows, met)
