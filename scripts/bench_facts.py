"""What asserting a fact, asking as of a day and walking the graph cost over HTTP, beside a bare route.

    python scripts/bench_facts.py [--users 1000] [--requests 400] [--json FILE]   # exit code 0: within the targets

100,000 facts of 1,000 users (100 each: 60 links among 30 people, 30 literals, a home that changes ten times) and one
user with 1,000 links, filled straight into the engine. The embedder answers every text with one vector, at once: what
is timed is everything but the model. The bare server is FastAPI with the same options: one route that makes one
small durable commit through the same engine, one that answers as many bytes as the query does. All calls take turns,
request by request, over kept-alive connections: what the machine does to one it does to all.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from app.core.clock import rfc3339
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.facts.ledger import Book
from app.facts.models import sentence
from app.facts.repository import FactRepository
from app.facts.schemas import FactCreate
from app.facts.service import assertion_of, draft_of
from app.lifespan import COLLECTIONS, RealParts
from app.main import create_app
from app.memories.records import SOURCE
from app.settings import Settings
from app.storage.changes import Change, IndexEntry, Insert
from app.storage.schema import Collection, Doc
from app.storage.scope import Scope
from app.storage.sqlite.store import EmbeddedStore
from app.storage.text import index_text
from scripts.bench_servers import _served

NOTES = Collection("notes", "note_id", {})
AGENT = "bench"
DIM, MODEL = 384, "still"
ONE = np.full(DIM, DIM**-0.5, np.float32)
TODAY = datetime(2026, 6, 1, tzinfo=UTC)
TARGETS = {"assert": 2.0, "as of": 3.0}
"""Most × the bare route's p50."""
HOPS_MS = 10.0
WARM = 20


# --- Servers ----------------------------------------------------------------------------------------------------------


class Still:
    """An embedder that says the same of every text, at once."""

    name, dim, ready = MODEL, DIM, True

    async def embed_query(self, text: str) -> Vectors:  # noqa: ARG002 (the protocol's shape)
        return ONE

    async def embed_texts(self, texts: Sequence[str]) -> Vectors:
        return np.tile(ONE, (len(texts), 1))

    async def windows(self, texts: Sequence[str]) -> list[list[str]]:
        return [[text] for text in texts]

    async def close(self) -> None:
        pass


class Parts(RealParts):
    async def embedder(self, settings: Settings) -> Embedder:  # noqa: ARG002
        return Still()


class Note(BaseModel):
    agent_id: str
    user_id: str
    subject: str
    predicate: str
    object: str


def bare(directory: Path, size: int) -> FastAPI:
    app = FastAPI()
    stores: list[EmbeddedStore] = []
    answer = b"x" * size

    @app.post("/notes", status_code=201)
    async def add(body: Note) -> dict[str, Any]:
        if not stores:
            stores.append(await EmbeddedStore.open(directory, (NOTES,), dim=1))
        note_id = str(time.time_ns())
        doc = {"tenant_id": "t", "note_id": note_id, "created_at": "2026-01-01T00:00:00.000Z", **body.model_dump()}
        await stores[0].commit([Insert(NOTES, doc)])
        return {"note_id": note_id}

    @app.get("/facts")
    async def facts(agent_id: str, user_id: str, subject: str, predicate: str, as_of: str) -> Response:  # noqa: ARG001
        return Response(answer, media_type="application/json")

    return app


def serve(kind: str, port: int, directory: Path, size: int) -> None:
    if kind == "bare":
        app = bare(directory, size)
    else:
        app = create_app(Settings(data_dir=directory, log_level="warning", _env_file=None), Parts())
    uvicorn.run(app, port=port, log_config=None, access_log=False, server_header=False)


@contextmanager
def served(kind: str, directory: Path, size: int = 0) -> Iterator[HTTPConnection]:
    here = str(Path(__file__).resolve())
    quiet = {"RECALLD_JOBS_ENABLED": "false"}
    with _served(lambda port: [here, "--serve", kind, str(port), str(directory), str(size)], quiet) as (port, _):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        yield connection
        connection.close()


# --- What is stored ---------------------------------------------------------------------------------------------------


def owner(user: str) -> dict[str, str]:
    return {"agent_id": AGENT, "user_id": user}


def told(user: str, links: int, literals: int, homes: int, people: int) -> Iterator[FactCreate]:
    """What is asserted of one user, in the order in which it is said."""
    dice, named = random.Random(user), partial(FactCreate, agent_id=AGENT, user_id=user)
    since = rfc3339(TODAY - timedelta(days=900))
    for _ in range(links):
        one, other = (f"Person {number}" for number in dice.sample(range(people), 2))
        yield named(subject=one, predicate="knows", object=other, valid_from=since, cardinality="many")
    for at in range(literals):
        yield named(subject=f"Person {at % people}", predicate=f"score_{at}", object=str(at), valid_from=since)
    for at in range(homes):
        begun = rfc3339(TODAY - timedelta(days=800 - 60 * at))
        yield named(subject="Person 0", predicate="lives_in", object=f"City {at}", valid_from=begun)


def documents(said: Iterator[FactCreate]) -> Iterator[Doc]:
    """As the service would have stored them, each a minute after the one before."""
    books: dict[str, Book] = {}
    clock = (rfc3339(TODAY - timedelta(days=30) + timedelta(minutes=at)) for at in count())
    for body in said:
        draft, now = draft_of(body, dict(SOURCE)), next(clock)
        book = books.setdefault(draft["group_id"], Book(None, [], now))
        book.now = now
        book.tell(draft, assertion_of(body, draft))
    for book in books.values():
        yield from book.written.values()


def changes(facts: FactRepository, users: int) -> Iterator[Change]:
    vectors = np.random.default_rng(7)
    everybody = [told(f"user-{number}", 60, 30, 10, 30) for number in range(users)]
    for said in (*everybody, told("hub", 1000, 0, 0, 300)):
        turned: set[str] = set()
        for doc in documents(said):
            vector = vectors.standard_normal(DIM).astype(np.float32)
            text = index_text(sentence(doc))
            yield facts.insert(doc, IndexEntry(text, vector / np.float32(np.linalg.norm(vector)), MODEL))
            if doc["group_id"] not in turned:
                turned.add(doc["group_id"])
                yield facts.turn(None, doc, rfc3339(TODAY - timedelta(days=1)), "one")


async def fill(directory: Path, users: int) -> int:
    store = await EmbeddedStore.open(directory, COLLECTIONS, dim=DIM)
    facts, stored = FactRepository(store, Scope("default")), 0
    try:
        made = changes(facts, users)
        while some := list(islice(made, 1000)):
            await store.commit(some)
            stored += sum(isinstance(one, Insert) and one.collection is facts.collection for one in some)
    finally:
        await store.close()
    return stored


# --- Measuring --------------------------------------------------------------------------------------------------------


def ask(connection: HTTPConnection, method: str, path: str, body: Any = None) -> bytes:
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, {"content-type": "application/json"} if sent else {})
    answer = connection.getresponse()
    found = answer.read()
    if answer.status not in (200, 201):
        raise RuntimeError(f"{method} {path}: {answer.status} {found[:300]!r}")
    return found


def measure(calls: dict[str, Callable[[int], bytes]], requests: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(requests + WARM):
        for name, call in calls.items():
            started = time.perf_counter()
            call(number)
            if number >= WARM:
                times[name].append((time.perf_counter() - started) * 1000)
    return times


def run(directory: Path, users: int, requests: int) -> dict[str, list[float]]:
    dice = random.Random(5)
    asked = [f"user-{dice.randrange(users)}" for _ in range(requests + WARM)]
    day = rfc3339(TODAY - timedelta(days=400))

    def query(at: int) -> str:
        return urlencode({**owner(asked[at]), "subject": "person 0", "predicate": "lives_in", "as_of": day})

    def body(at: int, predicate: str, value: str) -> dict[str, Any]:
        return {**owner(asked[at]), "subject": "Person 0", "predicate": predicate, "object": f"{value} {at}"}

    def hops(at: int, user: str, people: int) -> str:
        return f"/v1/graph/entities/Person%20{at % people}/neighbors?{urlencode({**owner(user), 'depth': 2})}"

    with served("ours", directory / "ours") as ours:
        size = len(ask(ours, "GET", f"/v1/facts?{query(0)}"))
        with served("bare", directory / "bare", size) as other:
            note = {"subject": "Person 0", "predicate": "lives_in"}
            return measure(
                {
                    "bare commit": lambda at: ask(other, "POST", "/notes", {**owner(asked[at]), **note, "object": "x"}),
                    "assert, first of its kind": lambda at: ask(ours, "POST", "/v1/facts", body(at, f"is_{at}", "A")),
                    "assert, one of many": lambda at: ask(
                        ours, "POST", "/v1/facts", body(at, "knows", "Somebody") | {"cardinality": "many"}
                    ),
                    "assert, bounds another": lambda at: ask(ours, "POST", "/v1/facts", body(at, "lives_in", "Town")),
                    "bare answer": lambda at: ask(other, "GET", f"/facts?{query(at)}"),
                    "as of": lambda at: ask(ours, "GET", f"/v1/facts?{query(at)}"),
                    "two hops, 100 facts": lambda at: ask(ours, "GET", hops(at, asked[at], 30)),
                    "two hops, 1,000 facts": lambda at: ask(ours, "GET", hops(at, "hub", 300)),
                },
                requests,
            )


def report(times: dict[str, list[float]]) -> tuple[list[dict[str, Any]], bool]:
    rows, met = [], True
    for name, taken in times.items():
        row: dict[str, Any] = {"call": name, "p50_ms": median(taken), "p95_ms": sorted(taken)[int(0.95 * len(taken))]}
        if name.startswith(("assert", "as of")):
            base = times["bare commit" if name.startswith("assert") else "bare answer"]
            row["factor"] = row["p50_ms"] / median(base)
            row["target"] = TARGETS["assert" if name.startswith("assert") else "as of"]
            met &= row["factor"] <= row["target"]
        elif name.startswith("two hops"):
            met &= row["p50_ms"] <= HOPS_MS
        rows.append({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()})
    return rows, met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        kind, port, directory, size = given.serve
        serve(kind, int(port), Path(directory), int(size))
        return 0
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="recalld-bench-", ignore_cleanup_errors=True) as path:
        started = time.perf_counter()
        stored = asyncio.run(fill(Path(path) / "ours", given.users))
        print(f"{stored:,} facts stored in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        times = run(Path(path), given.users, given.requests)
    rows, met = report(times)
    print("| call | p50 ms | p95 ms | × bare | target |\n|---|--:|--:|--:|--:|")
    for row in rows:
        print("|", " | ".join(str(row.get(name, "")) for name in ("call", "p50_ms", "p95_ms", "factor", "target")), "|")
    if given.json:
        given.json.write_text(json.dumps({"facts": stored, "rows": rows}, indent=2) + "\n", encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
