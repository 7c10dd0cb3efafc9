"""`/v1/context` over HTTP beside the search that is a part of it, the query's embedding cached.

    scripts/benchmark context --shape 10000:100

Each user has a profile, a session with 20 messages (which are memories, too), a task in progress and 30 logged actions,
so that every source of the context has something. Blocks of searches and of contexts take turns.
"""

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks import data
from benchmarks.data import Shape, Texts
from benchmarks.harness import Connection, Section, folder, recalld
from benchmarks.load import Client, Load, encoded

WARM_UP = 64
TARGET = 4.0
"""Highest p50 as a multiple of the search's."""


def furnish(api: Connection, number: int, texts: Texts) -> None:
    """Stores what the sources beside `memories` read."""
    owner, session = data.owner(number), f"session-of-{number}"
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": texts.memory()} for at in range(20)]
    steps = [{"action": texts.sentence(6)} for _ in range(6)]
    actions = [{**owner, "action_type": "call", "content": texts.memory(), "outcome": "success"} for _ in range(30)]
    task = {**owner, "session_id": session, "goal": texts.sentence(10), "plan": steps, "task_id": f"task-{number}"}
    profile = {"name": "Ada", "home": "Boston", "interests": [texts.sentence(3) for _ in range(6)]}
    api.ask("POST", f"/v1/sessions/{session}/messages", {**owner, "messages": messages})
    api.ask("POST", "/v1/tasks", {**task, "status": "in_progress"})
    api.ask("POST", "/v1/actions/batch", {"items": actions})
    api.ask("PUT", f"/v1/users/{owner['user_id']}/profile", profile)


def _context(body: dict[str, Any]) -> dict[str, Any]:
    """`now` keeps it from being recorded as an access; the searches beside it are not recorded, either."""
    number = body["user_id"].rpartition("-")[2]
    asked = {name: body[name] for name in ("query", "agent_id", "user_id")}
    return {**asked, "session_id": f"session-of-{number}", "intent": "recall", "now": "2026-12-01T00:00:00Z"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", type=Shape.read, default=Shape(10_000, 100), metavar="MEMORIES:USERS")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--users", type=int, default=20, help="users that are asked for")
    parser.add_argument("--block", type=int, default=300, help="requests of a block")


def run(options: argparse.Namespace) -> Iterator[Section]:
    shape, texts = options.shape, Texts(23)
    users = min(options.users, shape.users)
    with folder() as directory, Client() as client:
        data.build(directory, shape)
        with recalld(directory, jobs=False) as server:
            for number in range(users):
                furnish(Connection(server.url), number, texts)
            asked = data.queries(Shape(shape.each * users, users), 256, distinct=32)
            loads = {
                "search": ("/v1/memories/search", [encoded(body) for body in asked]),
                "context": ("/v1/context", [encoded(_context(body)) for body in asked]),
            }
            for path, bodies in loads.values():
                client.run(Load(server.port, path, bodies, 1, WARM_UP + len(bodies)))
            p50: dict[str, list[float]] = {name: [] for name in loads}
            for _ in range(options.repeat):
                for name, (path, bodies) in loads.items():
                    p50[name].append(client.run(Load(server.port, path, bodies, 1, options.block)).p50 * 1000)
            answer = client.post(server.port, "/v1/context", _context(asked[0]))
    rows: list[dict[str, Any]] = [{"request": name, "p50 ms": round(median(found), 2)} for name, found in p50.items()]
    ratio = median(context / search for search, context in zip(*p50.values(), strict=True))
    rows[1] |= {"× search": round(ratio, 2), "target": TARGET, "tokens": answer["tokens"]}
    rows[1] |= {section["name"]: len(section["items"]) for section in answer["sections"]}
    yield Section(str(shape), rows, ratio <= TARGET)
