"""Asserting a fact, asking as of a day and walking the graph over HTTP, beside a bare route.

    scripts/benchmark facts --users 1000

100,000 facts of 1,000 users (100 each: 60 links among 30 people, 30 literals, a home that changes ten times) and one
user with 1,000 links, filled straight into the engine. The embedder answers every text with one vector, at once: all
but the model is timed. All calls take turns, request by request, over kept-alive connections.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import uvicorn

from app.core.clock import rfc3339
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.facts.aliases import AliasMap
from app.facts.ledger import Ledger
from app.facts.repository import FactRepository
from app.facts.schemas import FactCreate, FactRecord, sentence
from app.facts.service import assertion_of, draft_of
from app.lifespan import COLLECTIONS, RealParts
from app.main import create_app
from app.memories.repository import SOURCE
from app.settings import JobSettings, Settings
from app.storage.changes import Change, IndexEntry
from app.storage.scope import Scope
from app.storage.sqlite.store import EmbeddedStore
from app.storage.text import index_text
from benchmarks import data
from benchmarks.harness import WARM_UP, Connection, Section, Times, alternate, bare, folder, ratio_rows, serving

MODEL = "still"
ONE = np.full(data.DIM, data.DIM**-0.5, np.float32)
TODAY = datetime(2026, 6, 1, tzinfo=UTC)
HUB = "hub"
"""The user with many links."""
COMMIT, ANSWER = "bare commit", "bare answer"
BASES = {
    "assert, first of its kind": COMMIT,
    "assert, one of many": COMMIT,
    "assert, bounds another": COMMIT,
    "as of": ANSWER,
}
TARGETS = {name: 2.0 if base == COMMIT else 3.0 for name, base in BASES.items()}
HOPS_MS = 10.0
"""Highest p50 of a walk."""


class OneVectorEmbedder:
    """Returns the same vector for every text, at once."""

    name, dim, ready = MODEL, data.DIM, True

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
        return OneVectorEmbedder()


# --- What is stored ---------------------------------------------------------------------------------------------------


def owner(user: str) -> dict[str, str]:
    return {"agent_id": data.AGENT, "user_id": user}


def assertions(user: str, links: int, literals: int, homes: int, people: int) -> Iterator[FactCreate]:
    """The facts of one user, in the order in which they are asserted."""
    dice, named = random.Random(user), partial(FactCreate, agent_id=data.AGENT, user_id=user)
    since = rfc3339(TODAY - timedelta(days=900))
    for _ in range(links):
        one, other = (f"Person {number}" for number in dice.sample(range(people), 2))
        yield named(subject=one, predicate="knows", object=other, valid_from=since, cardinality="many")
    for at in range(literals):
        yield named(subject=f"Person {at % people}", predicate=f"score_{at}", object=str(at), valid_from=since)
    for at in range(homes):
        begun = rfc3339(TODAY - timedelta(days=800 - 60 * at))
        yield named(subject="Person 0", predicate="lives_in", object=f"City {at}", valid_from=begun)


def documents(bodies: Iterator[FactCreate]) -> Iterator[FactRecord]:
    """The rows that the service would have stored, each a minute after the one before."""
    books: dict[str, Ledger] = {}
    clock = (rfc3339(TODAY - timedelta(days=30) + timedelta(minutes=at)) for at in count())
    for body in bodies:
        draft, now = draft_of(body, {**SOURCE}), next(clock)
        book = books.setdefault(draft["group_id"], Ledger(None, [], now))
        book.now = now
        book.assert_fact(draft, assertion_of(body, draft, AliasMap()))
    for book in books.values():
        yield from book.written.values()


def changes(users: int) -> Iterator[Change]:
    vectors = np.random.default_rng(7)
    facts = FactRepository(None, Scope("default"))  # type: ignore[arg-type] # it only makes changes here
    everybody = [assertions(f"user-{number}", 60, 30, 10, 30) for number in range(users)]
    for bodies in (*everybody, assertions(HUB, 1000, 0, 0, 300)):
        turned: set[str] = set()
        for doc in documents(bodies):
            vector = data.unit(vectors.standard_normal(data.DIM))
            yield facts.insert(doc, IndexEntry(index_text(sentence(doc)), vector, MODEL))
            if doc["group_id"] not in turned:
                turned.add(doc["group_id"])
                yield facts.turn(None, doc, rfc3339(TODAY - timedelta(days=1)), "one")


async def fill(directory: Path, users: int) -> int:
    """Returns how many changes were stored."""
    store, made, count_of = await EmbeddedStore.open(directory, COLLECTIONS, dim=data.DIM), changes(users), 0
    try:
        while some := list(islice(made, 500)):
            await store.commit(some)
            count_of += len(some)
    finally:
        await store.close()
    return count_of


# --- Measuring --------------------------------------------------------------------------------------------------------


def measure(path: str, users: int, requests: int) -> Times:
    dice = random.Random(5)
    asked = [f"user-{dice.randrange(users)}" for _ in range(requests + WARM_UP)]
    day = rfc3339(TODAY - timedelta(days=400))

    def query(at: int) -> str:
        return f"facts?{urlencode({**owner(asked[at]), 'subject': 'person 0', 'predicate': 'lives_in', 'as_of': day})}"

    def fact(at: int, predicate: str, value: str) -> dict[str, Any]:
        return {**owner(asked[at]), "subject": "Person 0", "predicate": predicate, "object": f"{value} {at}"}

    def hops(at: int, user: str, people: int) -> bytes:
        params = urlencode({**owner(user), "depth": 2})
        return ours.ask("GET", f"/v1/graph/entities/Person%20{at % people}/neighbors?{params}")

    with serving(lambda port: ("-m", "benchmarks.facts", str(port), f"{path}/ours"), {}) as server:
        ours = Connection(server.url)
        size = len(ours.ask("GET", f"/v1/{query(0)}"))
        with bare(f"{path}/bare", size) as plain:
            other = Connection(plain.url)
            many = {"cardinality": "many"}
            calls = {
                COMMIT: lambda at: other.ask("POST", "/notes", fact(at, "lives_in", "x")),
                "assert, first of its kind": lambda at: ours.ask("POST", "/v1/facts", fact(at, f"is_{at}", "A")),
                "assert, one of many": lambda at: ours.ask("POST", "/v1/facts", fact(at, "knows", "Somebody") | many),
                "assert, bounds another": lambda at: ours.ask("POST", "/v1/facts", fact(at, "lives_in", "Town")),
                ANSWER: lambda at: other.ask("GET", f"/{query(at)}"),
                "as of": lambda at: ours.ask("GET", f"/v1/{query(at)}"),
                "two hops, 100 facts": lambda at: hops(at, asked[at], 30),
                "two hops, 1,000 facts": lambda at: hops(at, HUB, 300),
            }
            return asyncio.run(alternate(calls, requests))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=400)


def run(options: argparse.Namespace) -> Iterator[Section]:
    with folder() as path:
        stored = asyncio.run(fill(Path(path) / "ours", options.users))
        times = measure(path, options.users, options.requests)
    rows, met = ratio_rows(times, BASES, TARGETS)
    for row in rows[-2:]:
        row["target"] = f"{HOPS_MS} ms"
        met &= row["p50 ms"] <= HOPS_MS
    yield Section(f"facts, {stored:,} changes stored", rows, met)


if __name__ == "__main__":
    settings = Settings(
        data_dir=Path(sys.argv[2]), jobs=JobSettings(enabled=False), log_level="warning", _env_file=None
    )
    uvicorn.run(
        create_app(settings, Parts()), port=int(sys.argv[1]), log_config=None, access_log=False, server_header=False
    )
