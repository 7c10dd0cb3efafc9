"""The embedder on this machine: a lone query, concurrent callers, a query under bulk load; and the model against what
the processor could do at most.

    scripts/benchmark embedding --threads 1 2 --seconds 5

Every query is a new text of about 20 tokens. The bulk is one call with texts of 4 to 60 words, again and again.

The roofline counts time of a core, which a busy machine changes little. A run must read all weights once (`weights
ms`: their bytes at the speed at which numpy reads as many), and must multiply (`operations ms`: at four times numpy's
speed in float32, since an instruction for int8 does four times as many multiplications). The longer of both is the
floor; `of the floor` is how often it goes into what a run took. A batch saves nothing: each text is a run.
"""

import argparse
import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import numpy as np

from app.embedding.embedder import Embedder
from app.embedding.factory import DEFAULT_MODEL, open_embedder
from app.embedding.onnx import TAUGHT, load_packaged
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


# --- The roofline -----------------------------------------------------------------------------------------------------

LAYERS, WIDTH, INNER = 6, 384, 1_536
WEIGHTS = LAYERS * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER)
"""Of the layers of the packaged model, a byte each. Each token is multiplied by all of them."""
INT8_PER_FLOAT = 4
"""Multiplications of an instruction for int8 (VNNI), by those of one for float32."""
LENGTHS = (8, 16, 32, 64, 128, 256)
PARTS = 5


def core_seconds(work: Callable[[], object], times: int) -> float:
    """Seconds of a core that one call takes: the least of `PARTS` means."""
    work()
    means = []
    for _ in range(PARTS):
        start = time.process_time()
        for _ in range(times):
            work()
        means.append((time.process_time() - start) / times)
    return min(means)


def roofline(threads: int) -> Iterator[Row]:
    many, one = np.ones((1_024, WIDTH), np.float32), np.ones((WIDTH, INNER), np.float32)
    operations_a_second = INT8_PER_FLOAT * 2 * many.size * INNER / core_seconds(lambda: many @ one, 20)
    read = np.ones(WEIGHTS // 4, np.float32)
    bytes_a_second = read.nbytes / core_seconds(lambda: read @ read, 50)
    peak = f"{operations_a_second / 1e9:,.0f} G operations/s, {bytes_a_second / 1e9:.0f} GB/s of a core"
    yield {"run": f"at most: {peak}"}
    model = load_packaged(TAUGHT, threads=threads)
    texts = {length: " ".join(["word"] * (length - 2)) for length in LENGTHS}  # and two special tokens
    batches = {f"{length} tokens": (length, [text]) for length, text in texts.items()}
    batches["8 texts of 32 tokens"] = 32, [texts[32]] * 8
    for name, (length, batch) in batches.items():
        took = core_seconds(partial(model.encode, batch), 20) / len(batch)
        attention = 2 * LAYERS * length * WIDTH  # of a token with all others, twice
        operations = 2 * length * (WEIGHTS + attention)
        floors = operations / operations_a_second, WEIGHTS / bytes_a_second
        yield {
            "run": name,
            "ms of a core": round(1_000 * took, 2),
            "operations ms": round(1_000 * floors[0], 2),
            "weights ms": round(1_000 * floors[1], 2),
            "of the floor": round(took / max(floors), 1),
            "a token, ms": round(1_000 * took / length, 3),
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5, help="of each load; 0: the roofline alone")


def run(options: argparse.Namespace) -> Iterator[Section]:
    async def rows(threads: int) -> list[Row]:
        return [row async for row in measure(options, threads)]

    for threads in options.threads:
        if options.seconds:
            yield Section(f"{options.model}, {threads} thread(s)", asyncio.run(rows(threads)))
        yield Section(f"the packaged model and the roofline, {threads} thread(s)", [*roofline(threads)])
