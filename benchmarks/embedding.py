"""The embedder on this machine: a lone query, concurrent callers, a query under bulk load.

    scripts/benchmark embedding --threads 1 2 --seconds 5

Every query is a new text of about 20 tokens. The bulk is one call with texts of 4 to 60 words, again and again.
"""

import argparse
import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator

from app.embedding.embedder import Embedder
from app.embedding.factory import DEFAULT_MODEL, open_embedder
from benchmarks.data import Texts
from benchmarks.harness import Row, Section, p50_p95

BULK = 500


async def callers(embedder: Embedder, count: int, seconds: float) -> list[float]:
    """Milliseconds of the queries (about 20 tokens) of `count` callers, each of whom asks one after another."""
    end = time.perf_counter() + seconds

    async def one(seed: int) -> list[float]:
        texts, taken = Texts(seed), list[float]()
        while (start := time.perf_counter()) < end or not taken:
            await embedder.embed_query(f"{texts.sentence(12)} {seed} {start}")
            taken.append((time.perf_counter() - start) * 1000)
        return taken

    return [t for times in await asyncio.gather(*(one(seed) for seed in range(count))) for t in times]


async def bulk(embedder: Embedder) -> float:
    """Texts a second of one call with texts of 4–60 words."""
    lengths, texts = random.Random(7), Texts(7)
    many = [f"{texts.sentence(lengths.randint(4, 60))} {number}" for number in range(BULK)]
    start = time.perf_counter()
    await embedder.embed_texts(many)
    return BULK / (time.perf_counter() - start)


async def endless(embedder: Embedder) -> None:
    while True:
        await bulk(embedder)


async def measure(options: argparse.Namespace, threads: int) -> AsyncIterator[Row]:
    def row(load: str, times: list[float]) -> Row:
        return {"load": load, **p50_p95(times), "texts/s": round(len(times) / options.seconds)}

    start = time.perf_counter()
    embedder = await open_embedder(options.model, threads=threads, batch_tokens=options.batch_tokens, query_cache=0)
    yield {"load": "loading", "p50 ms": round((time.perf_counter() - start) * 1000)}
    for count in (1, 2, 16):
        yield row(f"queries, {count} caller(s)", await callers(embedder, count, options.seconds))
    yield {"load": f"bulk of {BULK} mixed texts", "texts/s": round(await bulk(embedder))}
    load = asyncio.create_task(endless(embedder))
    yield row("a lone query under that bulk", await callers(embedder, 1, options.seconds))
    load.cancel()
    await asyncio.wait([load])
    await embedder.close()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5)


def run(options: argparse.Namespace) -> Iterator[Section]:
    async def rows(threads: int) -> list[Row]:
        return [row async for row in measure(options, threads)]

    for threads in options.threads:
        yield Section(f"{options.model}, {threads} thread(s)", asyncio.run(rows(threads)))
