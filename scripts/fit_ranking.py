"""Fits the weights of app/memories/ranking.py, and judges them on conversations that they were not fitted on.

    .venv/bin/python scripts/fit_ranking.py --data FILE [--vectors CACHE.npz]     (wants scikit-learn)
    .venv/bin/python scripts/fit_ranking.py --time

Columns, query analysis and features are the service's own code; only the fitting is here. Prints, for each recipe,
recall@5/10/20, hit@10, session hit@5 and MRR leaving one conversation out, the blend's gain over recipe B with its
interval, then the weights to paste.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from app.memories.features import FEATURES, base_score, bm25, scaled_text
from app.memories.query import QueryText
from app.memories.ranking import Blend, Mode, Weights, rank, top
from app.storage.search import Columns, Floats
from scripts.evaluate_locomo import METRICS, Place, figures, load
from scripts.locomo_cases import Case, Embedder, build_cases, links

POOL = 100
"""Candidates of each question that are fitted on: the first of recipe A."""
LOOSE_SHARE = 0.15
"""Share of turns that are made plain facts in the mixed scopes."""
TURN = 8
PLAIN = 3
"""How many of FEATURES, from the first on, are fitted for each kind of memory."""
DRAWS = 10_000

Figures: TypeAlias = tuple[float, ...]


def fit(cases: Sequence[Case], count: int) -> Blend:
    """Weights for the first `count` features: fitted on standardised ones, the standardisation folded in."""
    first = [np.argsort(-case.base, kind="stable")[:POOL] for case in cases]
    values = np.concatenate([case.known[:count, at].T for case, at in zip(cases, first, strict=True)]).astype(float)
    wanted = np.concatenate([case.is_evidence[at] for case, at in zip(cases, first, strict=True)])
    mean, spread = values.mean(axis=0), values.std(axis=0) + 1e-9
    model = LogisticRegression(max_iter=1000).fit((values - mean) / spread, wanted)
    weights = model.coef_[0] / spread
    return Blend(*(round(float(each), 2) for each in (model.intercept_[0] - weights @ mean, *weights)))


def fit_weights(cases: Sequence[Case], plain: Sequence[Case], without: int | None = None) -> Weights:
    return Weights(
        turn=fit([case for case in cases if case.fold != without], TURN),
        plain=fit([case for case in plain if case.fold != without], PLAIN),
    )


def judge(case: Case, score: Floats, among: NDArray[np.bool_] | None = None) -> Figures | None:
    """Figures of one question, for the evidence `among` these documents; None when there is none."""
    turns = case.scope.conversation.turns
    at = np.flatnonzero(case.is_evidence if among is None else case.is_evidence & among)
    if not at.size:
        return None
    order: list[Place] = [turns[i].place for i in np.argsort(-score, kind="stable").tolist()]
    return figures(order, frozenset(turns[i].place for i in at.tolist()))


def blended(case: Case, weights: Weights) -> Floats:
    return rank(case.columns, case.query, "hybrid", int(case.columns.time.max()), weights).score


def _ranks(score: Floats) -> Floats:
    ranks = np.empty(len(score), np.float32)
    ranks[np.argsort(-score, kind="stable")] = np.arange(1, len(score) + 1)
    return ranks


def _rrf(case: Case) -> Floats:
    score: Floats = np.reciprocal(60 + _ranks(case.columns.cosine)) + np.reciprocal(60 + _ranks(_own_text(case)))
    return score


def _own_text(case: Case) -> Floats:
    alone = np.full(len(case.columns.rows), -1)
    return bm25(replace(case.columns, previous=alone, following=alone))


def _text_mode(case: Case) -> Floats:
    return bm25(case.columns) * (case.columns.hits > 0).any(axis=0)


def _weighted(case: Case) -> Floats:
    text = _own_text(case)
    score: Floats = (case.known[0] + text / max(float(text.max()), 1e-6)) / 2
    return score


B = "B: A + 0.1 for the named speaker"
RECIPES: dict[str, Callable[[Case], Floats]] = {
    "vector, raw query": lambda case: case.raw,
    "vector, names stripped (mode vector)": lambda case: case.columns.cosine,
    "BM25, own terms": _own_text,
    "BM25, with neighbours' terms": lambda case: bm25(case.columns),
    "the same, own hit required (mode text)": _text_mode,
    "RRF (k 60)": _rrf,
    "weighted 0.5 / 0.5": _weighted,
    "A: weighted, with neighbours": lambda case: case.base,
    B: lambda case: case.base + 0.1 * case.known[FEATURES.index("speaker")],
}


def report(name: str, found: Sequence[Figures | None]) -> None:
    means = np.mean([each for each in found if each is not None], axis=0)
    print(f"| {name} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")


def report_gain(better: Sequence[Figures | None], base: Sequence[Figures | None]) -> None:
    """Mean difference and its 95 % interval: percentiles of a paired bootstrap over questions."""
    difference = np.array([np.subtract(a, b) for a, b in zip(better, base, strict=True) if a and b])
    drawn = np.random.default_rng(0).integers(len(difference), size=(DRAWS, len(difference)))
    low, high = np.percentile(difference[drawn].mean(axis=1), (2.5, 97.5), axis=0)
    rows = zip(difference.mean(axis=0), low, high, strict=True)
    print("| **C − B** | " + " | ".join(f"{mean:+.3f} ({a:+.3f} … {b:+.3f})" for mean, a, b in rows) + " |")


def evaluate(data: Path, embed: Embedder) -> None:
    conversations = load(data)
    cases = build_cases(conversations, embed, 0.0)
    plain = build_cases(conversations, embed, 1.0)
    mixed = build_cases(conversations, embed, LOOSE_SHARE)
    every = fit_weights(cases, plain)
    held_out = [fit_weights(cases, plain, without=fold) for fold in range(len(conversations))]

    def fitted(case: Case) -> Floats:
        return blended(case, held_out[case.fold])

    print("| recipe | " + " | ".join(METRICS) + " |\n|---|" + "--:|" * len(METRICS))
    for name, recipe in RECIPES.items():
        report(name, [judge(case, recipe(case)) for case in cases])
    by_blend = [judge(case, fitted(case)) for case in cases]
    report("**C: fitted (mode hybrid)**", by_blend)
    report_gain(by_blend, [judge(case, RECIPES[B](case)) for case in cases])
    report("C, not held out", [judge(case, blended(case, every)) for case in cases])
    report("every turn a plain fact, weighted", [judge(case, _weighted(case)) for case in plain])
    report("every turn a plain fact, C", [judge(case, fitted(case)) for case in plain])
    for name, recipe in (("weighted", _weighted), ("B", RECIPES[B]), ("C", fitted)):
        report(f"mixed, its plain facts, {name}", [judge(case, recipe(case), case.scope.loose) for case in mixed])
        report(f"mixed, its turns, {name}", [judge(case, recipe(case), ~case.scope.loose) for case in mixed])
    print(f"\nturn={every.turn}\nplain={every.plain}")


def time_ranking() -> None:
    """Cost of a ranking, single thread: the best of many, for the machine may have other work."""
    print("| memories | hybrid µs | recipe B µs | vector µs | text µs |\n|--:|--:|--:|--:|--:|")
    query = QueryText("", np.arange(8, dtype=np.uint32), 1)
    for n in (100, 600, 1_000, 10_000):
        print(f"| {n:,} | " + " | ".join(f"{cost:.0f}" for cost in _costs(_synthetic(n), query)) + " |")


def _costs(columns: Columns, query: QueryText) -> list[float]:
    now = int(columns.time.max()) + 86_400_000

    def ranked(mode: Mode) -> Callable[[], object]:
        return lambda: top(rank(columns, query, mode, now), columns, 10)

    def recipe_b() -> object:
        return np.argsort(-_recipe_b(columns, query))[:10]

    return [_best_time(work) for work in (ranked("hybrid"), recipe_b, ranked("vector"), ranked("text"))]


def _best_time(work: Callable[[], object]) -> float:
    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(300)) * 1e6


def _recipe_b(columns: Columns, query: QueryText) -> Floats:
    text, near = bm25(columns), columns.cosine
    near = (near - near.min()) / max(float(near.max() - near.min()), 1e-6)
    score = base_score(near, scaled_text(text, float(text.max())), columns)
    score += np.float32(0.1) * (columns.speaker == query.speaker)
    return score


def _synthetic(n: int) -> Columns:
    """Sessions of 20 turns between two speakers; each of 8 query terms is in one document of twenty."""
    random, at, everyone = np.random.default_rng(0), np.arange(n), np.ones(n, np.bool_)
    hits = (random.random((8, n)) < 0.05).astype(np.float32)
    length = random.integers(5, 40, n).astype(np.float32)
    previous, following = links(at // 20)
    time_ms = 1_700_000_000_000 + 60_000 * at
    return Columns(
        rows=at,
        matched=everyone,
        cosine=random.random(n, dtype=np.float32),
        has_vector=everyone,
        hits=hits,
        df=hits.sum(axis=1),
        length=length,
        count=n,
        mean_length=float(length.mean()),
        previous=previous,
        following=following,
        session=at // 20,
        speaker=1 + at % 2,
        time=time_ms,
        flags=random.integers(0, 4, n),
        base_importance=np.full(n, 0.3, np.float32),
        anchor=time_ms,
        pinned=~everyone,
        agent=np.zeros(n, np.int64),
        content=random.integers(0, 1 << 62, n),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="LoCoMo conversations (JSON)")
    parser.add_argument("--vectors", type=Path, help="file to keep the texts' vectors in between runs (.npz)")
    parser.add_argument("--time", action="store_true", help="only measure what a ranking costs")
    options = parser.parse_args()
    if options.time:
        time_ranking()
    elif options.data:
        evaluate(options.data, Embedder(options.vectors))
    else:
        parser.error("--data or --time is needed")


if __name__ == "__main__":
    main()
