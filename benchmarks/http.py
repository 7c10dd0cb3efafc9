"""A search over HTTP beside a bare route of the same framework that answers as many bytes.

    scripts/benchmark http --shape 1000:1 10000:100

Each figure is a median over repetitions. In each, a block of requests to the bare route and one to the service take
turns. Stores are filled straight in the engine (benchmarks/data.py). `cached`: 32 texts whose vectors are known;
`access`: the same, and accesses are recorded; `live`: every text is new and is embedded.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from statistics import median

from benchmarks import data
from benchmarks.data import Shape
from benchmarks.harness import Row, Section, bare, folder, recalld
from benchmarks.load import Client, Load, Timing, encoded

SEARCH = "/v1/memories/search"
SHAPES = ("1000:100", "10000:100", "1000:1", "100000:100", "10000:1")
READING = {("cached", 1): 300, ("cached", 16): 1000, ("live", 1): 50, ("live", 16): 160}
NOTING = {("access", 1): 300}
"""Kind of query and how many at once → requests a block. Accesses are stored up to a second later, so these blocks come
after the others, which would otherwise be measured beside that."""
TEXTS = 32
TARGETS = {100: (3.0, 4), 1_000: (4.5, 6), 10_000: (11.0, 13)}
"""Memories a user → highest p50 as a multiple of the bare route's, alone; highest ratio of the rates, 16 at once."""


def search(client: Client, shape: Shape, repeat: int, part: float) -> tuple[str, list[Row], bool]:
    with folder() as directory:
        data.build(directory, shape)
        with recalld(directory) as ours:
            bodies = data.queries(shape, 512, distinct=TEXTS)
            cached = [encoded(body) for body in bodies]
            first = _first_searches(client, ours.port, shape, bodies[0])
            size = round(median(map(len, client.run(Load(ours.port, SEARCH, cached, 1, 512), keep=True).answers)))
            access = [encoded({**body, "record_access": True}) for body in bodies]
            blocks = {which: max(which[1], round(requests * part)) for which, requests in (READING | NOTING).items()}
            live = sum(size for (kind, _), size in blocks.items() if kind == "live") * repeat
            new = iter([encoded(body) for body in data.queries(shape, live, distinct=live, seed=13)])
            pairs: dict[tuple[str, int], list[tuple[Timing, Timing]]] = {which: [] for which in blocks}
            with bare(f"{directory}/bare", size) as other:
                for group, _ in product((READING, NOTING), range(repeat)):
                    for kind, at_once in group:
                        requests = blocks[kind, at_once]
                        sent = {"cached": cached, "access": access}.get(kind) or [next(new) for _ in range(requests)]
                        loads = (Load(server.port, SEARCH, sent, at_once, requests) for server in (other, ours))
                        theirs, mine = (client.run(load) for load in loads)
                        pairs[kind, at_once].append((theirs, mine))
    rows = [{"query": kind, "at once": at_once, **_row(found)} for (kind, at_once), found in pairs.items()]
    title = f"search, {shape} (answers of {size:,} bytes, a user's first search {first:.1f} ms)"
    return title, rows, _met(shape, rows)


def _first_searches(client: Client, port: int, shape: Shape, body: Row) -> float:
    """p50 of the first search of each of many users, whose memories have to be read; ms. 0 where there is one user."""
    client.post(port, SEARCH, body | data.owner(0))
    bodies = [encoded(body | data.owner(number)) for number in range(1, min(shape.users, 64))]
    return client.run(Load(port, SEARCH, bodies, 1, len(bodies))).p50 * 1000 if bodies else 0.0


def _row(pairs: Sequence[tuple[Timing, Timing]]) -> Row:
    row = {
        "p50 ms": median(ours.p50 for _, ours in pairs) * 1000,
        "p95 ms": median(ours.p95 for _, ours in pairs) * 1000,
        "less embedding ms": median(ours.beyond_embedding for _, ours in pairs) * 1000,
        "bare p50 ms": median(bare.p50 for bare, _ in pairs) * 1000,
        "× bare": median(ours.p50 / bare.p50 for bare, ours in pairs),
        "per s": median(ours.rate for _, ours in pairs),
        "bare per s": median(bare.rate for bare, _ in pairs),
        "one in": median(bare.rate / ours.rate for bare, ours in pairs),
    }
    return {name: round(value, 2) for name, value in row.items()}


def _met(shape: Shape, rows: Sequence[Row]) -> bool:
    if shape.each not in TARGETS:
        return True
    most, least = TARGETS[shape.each]
    rows[0]["target"], rows[1]["target"] = f"{most} × bare", f"one in {least}"
    return bool(rows[0]["× bare"] <= most and rows[1]["one in"] <= least)


def add_options(parser: argparse.ArgumentParser) -> None:
    shapes = [Shape.read(text) for text in SHAPES]
    parser.add_argument("--shape", nargs="+", type=Shape.read, default=shapes, metavar="MEMORIES:USERS")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--part", type=float, default=1, help="this part of the requests of each block")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with Client() as client:
        for shape in options.shape:
            yield Section(*search(client, shape, options.repeat, options.part))
