"""Fits the weights of pairs that may not both hold (`app/reflection/candidates.py`), and writes them.

    .venv/bin/python scripts/fit_pairs.py [CONVERSATIONS.json]

It fits on the pairs of `tests/data/reflection_training.jsonl` and `reflection_pairs.jsonl`. Near sentences of the
stories `echo`, `never`, `time` and `parallel` (the development halves), which hold beside each other, count as further
pairs that are no contradictions, and so do those of conversations, as `scripts/benchmark recall` reads them. The
weights in the repository are fitted with three conversations of LoCoMo's development set. It prints what five folds
find of the pairs that they were not fitted on; `scripts/benchmark reflection` measures what the service finds.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.core.characters import is_small_talk  # noqa: E402
from app.reflection.candidates import FEATURES, NEIGHBOURS, WEIGHTS, PairSide, features  # noqa: E402
from benchmarks.evaluation import sets  # noqa: E402
from benchmarks.evaluation.ranking_cases import Embedder  # noqa: E402

DATA = ROOT / "tests" / "data"
FOLDS = 5
PENALTY, BIAS_PENALTY = 3.0, 1e-3
"""Of the squared weights, in the units of standardised features."""
WORLD_WEIGHT = 0.5
"""The weight of a pair of the other stories. Nobody wrote these as hard cases."""
TALKS, TALK_WEIGHT = 3, 0.3
"""The number of conversations, and the weight of a pair of them. A few may be contradictions."""
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)

Array = NDArray[np.float64]


class Pair(NamedTuple):
    """Two texts, and whether they cannot both hold."""

    earlier: str
    later: str
    conflict: bool
    weight: float = 1.0


def written() -> Iterator[Pair]:
    """Yields the pairs that were written for this."""
    for name in ("reflection_training", "reflection_pairs"):
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            yield Pair(one["earlier"], one["later"], one["conflict"])


def worlds() -> Iterator[list[str]]:
    """Yields the sentences of one user each, which all hold beside each other."""
    for story in _read("echo_dev")["stories"]:
        yield [one["content"] for one in (story["told"], *story["distractors"]) if one["role"] == "user"]
    for world in _read("never_dev")["worlds"]:
        yield world["facts"]
    for world in _read("time_dev")["worlds"]:
        yield [one["content"] for one in world["memories"]]
    yield [one["content"] for one in _read("parallel_dev")["conversations"][0]["items"]]


def _read(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def talks(path: Path) -> Iterator[list[str]]:
    """Yields what each speaker says in the first conversations of a file."""
    for world in sets.load(path)[:TALKS]:
        said: dict[str, list[str]] = {}
        for item in world.items:
            if not is_small_talk(item.content):
                said.setdefault(item.name or "", []).append(item.content)
        yield from said.values()


def near(texts: Sequence[str], embed: Embedder, weight: float) -> Iterator[Pair]:
    """Yields the pairs of each text with its nearest ones, in order."""
    vectors = embed.passages(texts)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    nearest = np.argsort(-cosines, axis=1)[:, :NEIGHBOURS].tolist()
    places = {(min(at, other), max(at, other)) for at, others in enumerate(nearest) for other in others if at != other}
    yield from (Pair(texts[one], texts[other], False, weight) for one, other in sorted(places))


def table(pairs: Sequence[Pair], embed: Embedder) -> Array:
    """Returns the features of pairs, one row each."""
    earlier, later = embed.passages([pair.earlier for pair in pairs]), embed.passages([pair.later for pair in pairs])
    sides = {text: PairSide.of(text) for pair in pairs for text in (pair.earlier, pair.later)}
    cosines = (earlier * later).sum(axis=1).tolist()
    return np.array(
        [features(sides[pair.earlier], sides[pair.later], one) for pair, one in zip(pairs, cosines, strict=True)]
    )


def fit(rows: Array, wanted: Array, weight: Array) -> Array:
    """Returns the weights of a logistic regression. The first feature is the bias, which has hardly any penalty."""
    spread = rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    scale[0] = (BIAS_PENALTY / PENALTY) ** 0.5
    model = LogisticRegression(C=1 / PENALTY, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=200)
    weights: Array = model.fit(rows / scale, wanted, weight).coef_[0] / scale
    return weights


def main() -> None:
    """Fits, reports and writes."""
    embed, pairs = Embedder(None), list(written())
    hand = len(pairs)
    for texts in worlds():
        pairs += near(texts, embed, WORLD_WEIGHT)
    for texts in talks(Path(sys.argv[1])) if len(sys.argv) > 1 else ():
        pairs += near(texts, embed, TALK_WEIGHT)
    rows, wanted = table(pairs, embed), np.array([pair.conflict for pair in pairs], np.float64)
    weight, scores = np.array([pair.weight for pair in pairs]), np.zeros(len(pairs))
    for train, left in KFold(FOLDS, shuffle=True, random_state=0).split(rows):
        scores[left] = 1 / (1 + np.exp(-rows[left] @ fit(rows[train], wanted[train], weight[train])))
    print(f"{hand} pairs that were written, {int(wanted.sum())} of them contradictions; {len(pairs) - hand} near pairs")
    for least in THRESHOLDS:
        found, wrong = scores >= least, (scores >= least) & (wanted == 0)
        print(
            f"  score ≥ {least}: of the contradictions {found[wanted == 1].sum()} found; false among the written "
            f"{wrong[:hand].sum()} of {(wanted[:hand] == 0).sum()}, among the near ones {wrong[hand:].sum()} of "
            f"{len(pairs) - hand}"
        )
    lines = [f'"{name}" = {value:.4f}' for name, value in zip(FEATURES, fit(rows, wanted, weight), strict=True)]
    head = "# Written by scripts/fit_pairs.py: the weights of app/reflection/candidates.py.\n\n[weights]\n"
    WEIGHTS.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
