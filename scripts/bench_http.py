"""What a search, a bulk load and a single add cost over HTTP, beside a bare route of the same framework.

python scripts/bench_http.py [--shape MEMORIES:USERS …] [--parts search load add] [--repeat 5] [--json FILE]

Each figure is a median over repetitions; in each, a block of requests to the bare route and one to the service take
turns, so that whatever else the machine does meets both. Stores are filled straight in the engine, with random vectors.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app.embedding.factory import load_model
from scripts import bench_data as data
from scripts import bench_writes as writes
from scripts.bench_client import Client, Load, Timing, encoded
from scripts.bench_data import Shape
from scripts.bench_servers import bare, recalld

SEARCH = "/v1/memories/search"
SHAPES = ("1000:100", "10000:100", "1000:1", "100000:100", "10000:1")
READING = {("cached", 1): 300, ("cached", 16): 1000, ("live", 1): 50, ("live", 16): 160}
NOTING = {("access", 1): 300}
"""Kind of query and how many at once → requests a block. Accesses are written down up to a second later, so these
blocks come when the others are done: else they would be measured in those."""
TEXTS = 32
TARGETS = {100: (3.0, 4), 1_000: (4.5, 6), 10_000: (11.0, 13)}
"""Memories a user → most p50, and least share of the throughput at 16 (one in …), of the bare route's; cached."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One block of each."""

    bare: Timing
    ours: Timing


def search(client: Client, shape: Shape, repeat: int) -> dict[str, Any]:
    model = load_model("minilm-int8")
    with data.directory() as directory, ExitStack() as stack:
        asyncio.run(data.fill(directory, shape, model.dim, model.name))
        port = stack.enter_context(recalld(directory))
        asked = [{**body, "record_access": False} for body in data.queries(shape, 512, distinct=TEXTS)]
        noted = [{**body, "record_access": True} for body in asked]
        cached, access = [encoded(body) for body in asked], [encoded(body) for body in noted]
        first = _first_searches(client, port, shape, asked[0])
        size = round(median(len(a) for a in client.run(Load(port, SEARCH, cached, 1, 512), keep=True).answers))
        ports = stack.enter_context(bare(size)), port
        live = iter(_live(shape, repeat))
        bodies = {"cached": lambda: cached, "access": lambda: access, "live": lambda: next(live)}
        pairs: dict[tuple[str, int], list[Pair]] = {which: [] for which in READING | NOTING}
        for blocks, _ in itertools.product((READING, NOTING), range(repeat)):
            for (kind, connections), requests in blocks.items():
                pairs[kind, connections].append(_pair(client, ports, bodies[kind](), connections, requests))
    rows = [{"kind": kind, "connections": at_once, **_row(found)} for (kind, at_once), found in pairs.items()]
    return {"shape": str(shape), "memories_a_user": shape.each, "bytes": size, "first_ms": first, "rows": rows}


def _first_searches(client: Client, port: int, shape: Shape, body: dict[str, Any]) -> float:
    """p50 of the first search of each user (of many), whose memories must be read from the disk; ms."""
    numbers = range(min(shape.users, 64))
    client.post(port, SEARCH, {**body, "user_id": "nobody", "agent_id": None} | data.owner(0))
    bodies = [encoded(body | data.owner(number)) for number in numbers]
    if len(bodies) == 1:
        return 0.0
    return client.run(Load(port, SEARCH, bodies[1:], 1, len(bodies) - 1)).p50 * 1000


def _live(shape: Shape, repeat: int) -> list[list[bytes]]:
    """Bodies of blocks with live embedding: no two texts are the same."""
    sizes = [requests for (kind, _), requests in READING.items() if kind == "live"] * repeat
    made = data.queries(shape, sum(sizes), distinct=sum(sizes), seed=13)
    asked = iter([encoded({**body, "record_access": False}) for body in made])
    return [[next(asked) for _ in range(size)] for size in sizes]


def _pair(client: Client, ports: tuple[int, int], bodies: Sequence[bytes], connections: int, requests: int) -> Pair:
    done = [client.run(Load(port, SEARCH, bodies, connections, requests)) for port in ports]
    return Pair(*done)


def _row(pairs: Sequence[Pair]) -> dict[str, float]:
    row = {
        "bare_p50_ms": median(p.bare.p50 for p in pairs) * 1000,
        "p50_ms": median(p.ours.p50 for p in pairs) * 1000,
        "p95_ms": median(p.ours.p95 for p in pairs) * 1000,
        "beyond_embedding_ms": median(p.ours.beyond_embedding for p in pairs) * 1000,
        "times_bare": median(p.ours.p50 / p.bare.p50 for p in pairs),
        "bare_per_second": median(p.bare.rate for p in pairs),
        "per_second": median(p.ours.rate for p in pairs),
        "bare_rate_over_ours": median(p.bare.rate / p.ours.rate for p in pairs),
    }
    return {name: round(value, 3) for name, value in row.items()}


def show(result: dict[str, Any]) -> None:
    print(
        f"\n### {result['shape']} ({result['memories_a_user']:,} a user, answers of {result['bytes']:,} bytes"
        + (f", a user's first search {result['first_ms']:.1f} ms)" if result["first_ms"] else ")")
    )
    print(
        "\n| query | at once | p50 ms | p95 ms | less embedding | bare p50 ms | × bare | per s | bare per s | one in |"
    )
    print("|---|" + "--:|" * 9)
    for row in result["rows"]:
        print(
            f"| {row['kind']} | {row['connections']} | {row['p50_ms']:.2f} | {row['p95_ms']:.2f} "
            f"| {row['beyond_embedding_ms']:.2f} | {row['bare_p50_ms']:.2f} | {row['times_bare']:.1f} "
            f"| {row['per_second']:.0f} | {row['bare_per_second']:.0f} | {row['bare_rate_over_ours']:.1f} |"
        )
    if (target := TARGETS.get(result["memories_a_user"])) is not None:
        lone, busy = result["rows"][0]["times_bare"], result["rows"][1]["bare_rate_over_ours"]
        print(f"\ncached: {lone:.1f} × (target {target[0]}), one in {busy:.1f} (target {target[1]})", flush=True)


def _shape(text: str) -> Shape:
    memories, _, users = text.partition(":")
    return Shape(int(memories), int(users or 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", type=_shape, default=[_shape(text) for text in SHAPES])
    parser.add_argument("--parts", nargs="+", choices=("search", "load", "add"), default=("search", "load", "add"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    results: dict[str, Any] = {"machine": machine, "search": []}
    print(f"Python {machine['python']}, {machine['cores']} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with Client() as client:
        if "search" in options.parts:
            for shape in options.shape:
                results["search"].append(search(client, shape, options.repeat))
                show(results["search"][-1])
        if "load" in options.parts:
            results["load"] = writes.load(client, options.repeat)
        if "add" in options.parts:
            results["add"] = writes.add(client, options.repeat)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
