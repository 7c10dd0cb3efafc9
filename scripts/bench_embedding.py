"""What the embedder does on this machine: a lone query, concurrent callers, a query under bulk load.

python scripts/bench_embedding.py [--model minilm-int8] [--threads 1 2] [--batch-tokens 256] [--seconds 5]
python scripts/bench_embedding.py --variants FOLDER [--threads 1 2] [--rounds 9] [--locomo locomo_dev.json]

The second form compares the graphs that `scripts/make_embedding_model --variants FOLDER` wrote
(scripts/embedding_variants.py).
"""

import argparse
import asyncio
import os
import platform
import random
import time
from pathlib import Path

from app.embedding.embedder import Embedder
from app.embedding.factory import DEFAULT_MODEL, open_embedder
from scripts import embedding_variants

WORDS = (
    "the support group made her feel accepted and gave courage to travel with two dogs over mountains in May".split()
)


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)) + f" {rng.random()}"


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] * 1000


async def callers(embedder: Embedder, count: int, seconds: float) -> list[float]:
    """Each of `count` callers asks one ~20-token query after another. Their latencies, in seconds."""
    end = time.perf_counter() + seconds

    async def one(seed: int) -> list[float]:
        rng, taken = random.Random(seed), []
        while (start := time.perf_counter()) < end:
            await embedder.embed_query(text(rng, 12))
            taken.append(time.perf_counter() - start)
        return taken

    return [t for times in await asyncio.gather(*(one(seed) for seed in range(count))) for t in times]


async def bulk(embedder: Embedder, size: int) -> float:
    """Texts a second of one call with `size` texts of 4–60 words."""
    rng = random.Random(7)
    texts = [text(rng, rng.randint(4, 60)) for _ in range(size)]
    start = time.perf_counter()
    await embedder.embed_texts(texts)
    return size / (time.perf_counter() - start)


async def endless(embedder: Embedder) -> None:
    while True:
        await bulk(embedder, 500)


async def measure(args: argparse.Namespace, threads: int) -> None:
    start = time.perf_counter()
    embedder = await open_embedder(args.model, threads=threads, batch_tokens=args.batch_tokens, query_cache=0)
    print(f"\n{embedder.name}, {threads} thread(s), loaded in {time.perf_counter() - start:.2f} s")
    print(f"{'':32}{'p50 ms':>9}{'p95 ms':>9}{'texts/s':>9}")
    for count in (1, 2, 16):
        show(f"queries, {count} caller(s)", await callers(embedder, count, args.seconds), args.seconds)
    print(f"{'bulk of 500 mixed texts':32}{'':18}{await bulk(embedder, 500):9.0f}")
    load = asyncio.create_task(endless(embedder))
    show("a lone query under that bulk", await callers(embedder, 1, args.seconds), args.seconds)
    load.cancel()
    await asyncio.wait([load])
    await embedder.close()


def show(label: str, times: list[float], seconds: float) -> None:
    print(f"{label:32}{percentile(times, 0.5):9.1f}{percentile(times, 0.95):9.1f}{len(times) / seconds:9.0f}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--variants", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="adds recall@10 by vectors alone")
    args = parser.parse_args()
    print(platform.processor() or platform.machine(), f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for threads in args.threads:
        if args.variants:
            embedding_variants.compare(args.variants, threads, args.rounds, args.locomo)
        else:
            await measure(args, threads)


if __name__ == "__main__":
    asyncio.run(main())
