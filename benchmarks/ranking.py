"""Ranking the memories of a scope, single thread: the best of many, for the machine may have other work."""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from app.retrieval.features import base_score, bm25, scaled_text
from app.retrieval.query_analysis import QueryText
from app.retrieval.ranking import Mode, rank, top
from app.storage.search import Columns, Floats
from app.storage.text import index_text
from benchmarks.evaluation.ranking_cases import blank_columns, links
from benchmarks.harness import Section

QUERY = QueryText("", np.arange(8, dtype=np.uint32), 1)
MODES: tuple[Mode, ...] = ("hybrid", "vector", "text")


def synthetic(n: int) -> Columns:
    """Sessions of 20 turns between two speakers; each of 8 query terms is in one document of twenty."""
    random, at = np.random.default_rng(0), np.arange(n)
    hits = (random.random((8, n)) < 0.05).astype(np.float32)
    length = random.integers(5, 40, n).astype(np.float32)
    previous, following = links(at // 20)
    time_ms = 1_700_000_000_000 + 60_000 * at
    return replace(
        blank_columns([index_text("")] * n, [""] * n),
        cosine=random.random(n, dtype=np.float32),
        hits=hits,
        df=hits.sum(axis=1),
        length=length,
        mean_length=float(length.mean()),
        previous=previous,
        following=following,
        session=at // 20,
        speaker=1 + at % 2,
        time=time_ms,
        anchor=time_ms,
        flags=random.integers(0, 4, n),
        base_importance=np.full(n, 0.3, np.float32),
        content=random.integers(0, 1 << 62, n),
    )


def ranked(columns: Columns, mode: Mode) -> object:
    return top(rank(columns, QUERY, mode, int(columns.time.max()) + 86_400_000), columns, 10)


def recipe_b(columns: Columns) -> object:
    """Half scaled cosine, half scaled BM25, and a bonus for the speaker: the least that a hybrid ranking does."""
    text, near = bm25(columns), columns.cosine
    near = (near - near.min()) / max(float(near.max() - near.min()), 1e-6)
    score: Floats = base_score(near, scaled_text(text, float(text.max())), columns)
    score += np.float32(0.1) * (columns.speaker == QUERY.speaker)
    return np.argsort(-score)[:10]


def best_us(work: Callable[[], object], repeat: int) -> int:
    """Microseconds of the fastest of `repeat` calls."""

    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return round(min(once() for _ in range(repeat)) * 1e6)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memories", type=int, nargs="+", default=[100, 600, 1_000, 10_000])
    parser.add_argument("--repeat", type=int, default=300)


def run(options: argparse.Namespace) -> Iterator[Section]:
    rows = []
    for n in options.memories:
        columns = synthetic(n)
        costs = {f"{mode} µs": best_us(partial(ranked, columns, mode), options.repeat) for mode in MODES}
        rows.append({"memories": n, **costs, "recipe B µs": best_us(partial(recipe_b, columns), options.repeat)})
    yield Section("ranking", rows)
