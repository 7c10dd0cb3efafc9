"""Fits by what a query is told from one that asks for nothing (app/retrieval/query.py), and judges it on lives and
languages that were left out.

    lives=benchmarks/data/lives
    .venv/bin/python -m benchmarks.collected /tmp/train $lives/train/*.json
    .venv/bin/python -m benchmarks.collected /tmp/train-made $lives/train/*.json --queries made
    .venv/bin/python scripts/fit_asking.py --train /tmp/train /tmp/train-made --judge /tmp/choose /tmp/choose-made

Writes `app/retrieval/data/asks_MODEL.npy` and prints the numbers for `weights.toml` beside it. Small talk asks for
nothing; questions, orders, statements and keywords ask. The direction is a logistic regression of the queries' vectors.
The two numbers beside it are fitted on directions that have not seen the life (`FOLDS`).
"""

import argparse
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from sklearn.linear_model import LogisticRegression

from app.embedding.factory import DEFAULT_MODEL, load_model
from app.embedding.model import Model, without_runtime
from app.retrieval.calibration import likely_asks
from app.retrieval.model_weights import AsksWeights
from app.retrieval.query import FOLDER
from app.storage.search import Floats
from benchmarks.collected import Asked
from benchmarks.harness import Row, table

SMALL = "small"
KINDS = ("statement", "keywords", SMALL)
"""All other kinds are questions and orders."""
FOLDS, BATCH, STRENGTH = 5, 16, 1.0
LOST = 0.004
"""Share of the questions that may be taken for small talk, in the table."""


def read(folders: Sequence[Path]) -> list[Asked]:
    """Returns the queries that some collection has documents for."""
    files = [path for folder in folders for path in sorted(folder.glob("*.pickle"))]
    return [query for path in files for query in pickle.loads(path.read_bytes()) if query.evidence]


def with_marks(queries: Sequence[Asked]) -> list[Asked]:
    """Returns the queries, and the keywords among them once more with a question mark: "tea?"."""
    marked = [replace(query, query=f"{query.query}?") for query in queries if query.kind == "keywords"]
    return [*queries, *marked]


def vectors(model: Model, queries: Sequence[Asked]) -> Floats:
    texts = [model.prompts.query + query.query for query in queries]
    made: Floats = np.concatenate([model.encode(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)])
    return made


def asks_in(queries: Sequence[Asked]) -> np.ndarray:
    return np.array([query.kind != SMALL for query in queries])


def covered_in(queries: Sequence[Asked]) -> Floats:
    return np.array([max(evidence.covered for evidence in query.evidence) for query in queries], np.float32)


def direction(of_queries: Floats, asks: np.ndarray) -> Floats:
    """Returns the direction, of shape (dim,): its length makes a place along it log-odds."""
    fitted = LogisticRegression(C=STRENGTH, max_iter=3000, class_weight="balanced").fit(of_queries, asks)
    found: Floats = fitted.coef_[0].astype(np.float32)
    return found


def places_left_out(queries: Sequence[Asked], of_queries: Floats) -> Floats:
    """Returns the place of each query along a direction that was fitted without its life."""
    lives, asks = sorted({query.life for query in queries}), asks_in(queries)
    places = np.zeros(len(queries), np.float32)
    for fold in range(FOLDS):
        out = np.isin([query.life for query in queries], lives[fold::FOLDS])
        places[out] = of_queries[out] @ direction(of_queries[~out], asks[~out])
    return places


def numbers(queries: Sequence[Asked], places: Floats) -> tuple[float, AsksWeights]:
    """Returns the factor of the places and the numbers beside them."""
    fitted = LogisticRegression(C=STRENGTH, max_iter=3000)
    fitted.fit(np.stack([places, covered_in(queries)], axis=1), asks_in(queries))
    along, covered = fitted.coef_[0].tolist()
    return along, AsksWeights(round(covered, 3), round(float(fitted.intercept_[0]), 3))


def judged(name: str, queries: Sequence[Asked], places: Floats, weights: AsksWeights) -> list[Row]:
    """Returns a row for each kind of query: its probabilities, and how many lie under the threshold."""
    likely = [likely_asks(place, covered, weights)
              for place, covered in zip(places.tolist(), covered_in(queries).tolist(), strict=True)]  # fmt: skip
    kinds = np.array([query.kind if query.kind in KINDS else "question" for query in queries])
    by_kind = {kind: np.array(likely)[kinds == kind] for kind in ("question", *KINDS)}
    least = np.quantile(by_kind["question"], LOST)
    return [
        {
            "set": name,
            "kind": kind,
            "queries": len(values),
            "at 1 %, 5 %, 50 %": " ".join(f"{value:.2f}" for value in np.quantile(values, [0.01, 0.05, 0.5])),
            f"under {least:.2f}": f"{(values < least).mean():.3f}",
        }
        for kind, values in by_kind.items()
        if len(values)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, nargs="+", required=True)
    parser.add_argument("--judge", type=Path, nargs="*", default=[])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    given = parser.parse_args()
    model = load_model(given.model)
    train = with_marks(read(given.train))
    of_train = vectors(model, train)
    places = places_left_out(train, of_train)
    scale, weights = numbers(train, places)
    found = scale * direction(of_train, asks_in(train))
    print(table(judged("lives left out", train, scale * places, weights)))
    if judge := read(given.judge):
        print(table(judged("judged", judge, vectors(model, judge) @ found, weights)))
    np.save(FOLDER / f"asks_{without_runtime(model.name)}.npy", found.astype(np.float32))
    print(weights)


if __name__ == "__main__":
    main()
