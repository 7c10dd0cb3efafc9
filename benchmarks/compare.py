"""The same requests to services that differ in one thing, in turn: what that thing costs.

    scripts/benchmark compare changes                               # no change log; one
    scripts/benchmark compare commit                                # a bare route that makes one commit; the service
    scripts/benchmark compare tracing                               # off; a sampler that keeps nothing; every span sent
    scripts/benchmark compare revision --beside FOLDER              # another checkout of the project; this one
    .venv-encryption/bin/python -m benchmarks compare encryption    # a plain store; an encrypted one

Every service has a store of its own with as many memories, and runs no background work. Memories, messages and
questions are what people wrote: lives, or the public chats that `--texts` names; each is a user's. Calls take turns,
request by request, over kept-alive connections; a row has the p50 of each service and its ratio to the first one's.

`revision` also counts what a request costs: milliseconds of a core, with one caller and with `CALLERS` at once, in all
and by stage (`benchmarks/stages.py`). A busy machine does not hide that.
"""

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import stages
from benchmarks.evaluation import sets
from benchmarks.evaluation.sets import World
from benchmarks.harness import (
    ROOT,
    Call,
    Connection,
    Row,
    Section,
    Server,
    alternate,
    bare,
    environment,
    folder,
    recalld,
    serving,
)
from benchmarks.lives import LIVES

OWNER = {"agent_id": "bench", "user_id": "0"}
LISTED = "/v1/memories?agent_id=bench&user_id=0&limit="
TEXT = "the red bicycle is in the garden"
BATCH, MANY, CALLERS, BLOCKS = 250, 100, 16, 4
NOW = "2030-01-01T00:00:00Z"
"""With a time of its own a context records no access, as the searches beside it record none."""
TARGETS = {"changes": 1.1, "commit": 1.5}
"""Highest ratio of a write."""
APPEND, PATCH, MEMORY = "append a message", "patch a task's context", "add a memory"
WRITES = (APPEND, f"append {MANY} messages", PATCH, MEMORY)

Opened = tuple[AbstractContextManager[Server], Path]
"""A service that starts with the block, and its data directory."""


def opened(options: argparse.Namespace, stack: ExitStack) -> dict[str, Opened]:
    """The services by name. What the others are compared with comes first."""

    def service(**settings: str) -> Opened:
        data = stack.enter_context(folder())
        return recalld(data, jobs=False, **settings), Path(data)

    def counted(checkout: Path) -> Opened:
        data = Path(stack.enter_context(folder()))
        command = (stages.__file__, str(data / STAGES_FILE), "serve", "--port")
        return serving(lambda port: (*command, str(port)), environment(data, jobs=False), checkout), data

    def plain() -> Opened:
        data = stack.enter_context(folder())
        return bare(data), Path(data)

    if options.what == "changes":
        return {"no log": service(RECALLD_CHANGES_RETENTION_HOURS="0"), "log": service()}
    if options.what == "commit":
        return {"bare": plain(), "service": service()}
    if options.what == "encryption":
        return {"plain": service(), "encrypted": service(RECALLD_STORE_KEY=secrets.token_hex(32))}
    if options.what == "revision":
        return {"other": counted(options.beside), "this": counted(ROOT)}
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": stack.enter_context(plain()[0]).url}
    sampled = {**collector, "OTEL_TRACES_SAMPLER": "always_off"}
    return {"off": service(), "sampled out": service(**sampled), "sent": service(**collector)}


def calls_of_bare(to: Connection) -> dict[str, Call]:
    note = {**OWNER, "subject": "bicycle", "predicate": "is", "object": TEXT}
    return dict.fromkeys((APPEND, PATCH), lambda _: to.ask("POST", "/notes", note))


def fill(to: Connection, worlds: Sequence[World], memories: int) -> None:
    """Stores the texts of the worlds, each as a user's."""
    for number, world in enumerate(worlds):
        owner = {**OWNER, "user_id": str(number)}
        contents = [text for text in world.contents if text.strip()][: memories // len(worlds)]
        for start in range(0, len(contents), BATCH):
            items = [{**owner, "content": text, "deduplicate": False} for text in contents[start : start + BATCH]]
            to.ask("POST", "/v1/memories/batch", {"items": items})
    to.ask("POST", "/v1/tasks", {"task_id": "bench", **OWNER, "goal": "measure", "context": {"step": 0}})


def calls(to: Connection, worlds: Sequence[World]) -> dict[str, Call]:
    """What a service is asked."""
    ids = [item["memory_id"] for item in json.loads(to.ask("GET", f"{LISTED}100"))["items"]]
    asked = [
        {"agent_id": "bench", "user_id": str(number), "query": question.query}
        for number, world in enumerate(worlds)
        for question in world.questions
    ]
    said = [text for world in worlds for text in world.contents if text.strip()]
    known = [{**question, "record_access": False} for question in asked[:16]]
    contexts = [{**question, "session_id": "of-1", "now": NOW} for question in asked[:16]]

    def append(count: int, at: int) -> bytes:
        messages = [{"role": "user", "content": said[(at + place) % len(said)]} for place in range(count)]
        return to.ask("POST", f"/v1/sessions/of-{count}/messages", {**OWNER, "memorize": "none", "messages": messages})

    def search_new(at: int) -> bytes:
        question = asked[at % len(asked)]
        query = f"{question['query']} {at}"  # is asked once
        return to.ask("POST", "/v1/memories/search", {**question, "query": query, "record_access": False})

    def context(budget: int, at: int) -> bytes:
        return to.ask("POST", "/v1/context", {**contexts[at % 16], "token_budget": budget})

    return {
        APPEND: partial(append, 1),
        f"append {MANY} messages": partial(append, MANY),
        PATCH: lambda at: to.ask("PATCH", "/v1/tasks/bench/context", {"step": at + 1}),
        MEMORY: lambda at: to.ask("POST", "/v1/memories", {**OWNER, "content": f"{said[at % len(said)]} ({at})"}),
        "read a memory": lambda at: to.ask("GET", f"/v1/memories/{ids[at % len(ids)]}"),
        "list 20 memories": lambda _: to.ask("GET", f"{LISTED}20"),
        "list 100 memories": lambda _: to.ask("GET", f"{LISTED}100"),
        "context of 600 tokens": partial(context, 600),
        "context of 2,000 tokens": partial(context, 2_000),
        "search, its query known": lambda at: to.ask("POST", "/v1/memories/search", known[at % 16]),
        "search, its query new": search_new,
    }


STAGES_FILE = "stages.json"


def cost(server: Server, written: Path, asked: Sequence[Call], first: int, requests: int) -> Counter[str]:
    """Makes requests from `first` on, one caller for each of `asked`. Returns seconds of a core by stage."""
    numbers = iter(range(first, first + requests))
    for begins in (True, False):
        os.kill(server.pid, signal.SIGUSR1)
        if begins:
            with ThreadPoolExecutor(len(asked)) as callers:
                list(callers.map(lambda call: [call(at) for at in numbers], asked))
    while not written.exists():
        time.sleep(0.01)
    spent = Counter[str](json.loads(written.read_text()))
    written.unlink()
    return spent


def costs(
    servers: Mapping[str, tuple[Server, Path]], asked: Mapping[str, Sequence[Mapping[str, Call]]], requests: int
) -> Iterator[Section]:
    """A table for one caller and one for `CALLERS`. The services take turns, in `BLOCKS` of requests."""
    for callers in (1, CALLERS):
        rows = list[Row]()
        for call in next(iter(asked.values()))[0]:
            spent = {name: Counter[str]() for name in servers}
            for block in range(1, BLOCKS + 1):
                for name, (server, written) in servers.items():
                    made = [each[call] for each in asked[name][:callers]]
                    # numbers that no block before had, so that a new query is new
                    spent[name] += cost(server, written, made, (block + BLOCKS * callers) * 10_000, requests)
            (first, base), *_ = spent.items()
            for name, seconds in spent.items():
                ms = {stage: round(1000 * took / requests / BLOCKS, 3) for stage, took in seconds.items()}
                row: Row = {"call": f"{call}, {name}", "ms of a core": round(sum(ms.values()), 2)}
                ratio = {} if name == first else {"×": round(seconds.total() / base.total(), 2)}
                rows.append(row | ratio | {stage: ms.get(stage, 0) for stage in (*stages.STAGES, "rest")})
        yield Section(f"cost of a request, {callers} at once", rows)


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
    parser.add_argument("--memories", type=int, default=1_000, help="of all users together")
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument(
        "--texts", type=Path, nargs="+", default=[LIVES / "test"], help="lives, or files of public chats"
    )
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="the checkout that `revision` compares with")


def run(options: argparse.Namespace) -> Iterator[Section]:
    if options.what == "revision" and options.beside is None:
        sys.exit("revision: name the other checkout by --beside FOLDER.")
    worlds = [world for path in options.texts for world in sets.load(path)][: options.users]
    with ExitStack() as stack:
        asked: dict[str, Call] = {}
        servers, sampled = dict[str, tuple[Server, Path]](), dict[str, list[dict[str, Call]]]()
        for name, (service, data) in opened(options, stack).items():
            server = stack.enter_context(service)
            to = Connection(server.url)
            if name != "bare":
                fill(to, worlds, options.memories)
            own = calls_of_bare(to) if name == "bare" else calls(to, worlds)
            asked |= {f"{name}/{call}": ask for call, ask in own.items()}
            if options.what == "revision":
                servers[name] = server, data / STAGES_FILE
                sampled[name] = [calls(Connection(server.url), worlds) for _ in range(CALLERS)]
        times = asyncio.run(alternate(asked, options.requests))
        by_service: dict[str, dict[str, list[float]]] = {}
        for key, taken in times.items():
            name, _, call = key.partition("/")
            by_service.setdefault(name, {})[call] = taken
        rows, met = compared(by_service, TARGETS.get(options.what))
        yield Section(options.what, rows, met)
        if servers:
            yield from costs(servers, sampled, options.requests // BLOCKS)
