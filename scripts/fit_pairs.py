"""Fits the weights of pairs that may not both hold (`app/reflection/candidates.py`), and writes them.

    .venv/bin/python scripts/fit_pairs.py [CONVERSATIONS.json]

It fits on the pairs of `tests/data/reflection_training.jsonl` and `reflection_pairs.jsonl`. Near sentences of the
stories `echo`, `never`, `time` and `parallel` (the development halves), which hold beside each other, count as further
pairs that are no contradictions, and so do those of conversations, as `scripts/evaluate` reads them. The weights in the
repository are fitted with three conversations of LoCoMo's development set. Prints what five folds find of the pairs
that they were not fitted on, and what the weights find in the development stories of `benchmarks/reflection.py`, which
they are not fitted on.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.core.characters import is_small_talk  # noqa: E402
from app.embedding.factory import DEFAULT_MODEL, load_model  # noqa: E402
from app.reflection.candidates import FEATURES, NEIGHBOURS, WEIGHTS, PairSide, comparable, features, probability  # noqa: E402
from benchmarks.evaluation import sets  # noqa: E402

DATA = ROOT / "tests" / "data"
FOLDS = 5
PENALTY = 3.0
"""Of the squared weights, in the units of standardised features."""
STEPS = 60
WORLD_WEIGHT = 0.5
"""The weight of a pair of the other stories. Nobody wrote these as hard cases."""
TALKS, TALK_WEIGHT = 3, 0.3
"""The number of conversations, and the weight of a pair of them. A few may be contradictions."""
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)


Place: TypeAlias = tuple[int, int]
"""A message of a story: its session and its number."""


class Pair(NamedTuple):
    """Two texts, and whether they cannot both hold."""

    earlier: str
    later: str
    conflict: bool
    weight: float = 1.0


class Vectors:
    """The vectors of texts, each computed once."""

    def __init__(self) -> None:
        self._model, self._held = load_model(DEFAULT_MODEL), dict[str, NDArray[np.float32]]()

    def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [one for one in dict.fromkeys(texts) if one not in self._held]
        for start in range(0, len(new), 16):
            part = new[start : start + 16]
            self._held |= dict(zip(part, self._model.encode(part), strict=True))
        return np.array([self._held[one] for one in texts])


def written() -> list[Pair]:
    """Returns the pairs that were written for this."""
    lines = [
        line
        for name in ("reflection_training", "reflection_pairs")
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return [Pair(one["earlier"], one["later"], one["conflict"]) for one in map(json.loads, lines)]


def worlds() -> Iterator[list[str]]:
    """Yields the sentences of one user each, which all hold beside each other."""
    for story in _read("echo_dev")["stories"]:
        said = [story["told"], *(one for one in story["distractors"] if one["role"] == "user")]
        yield [one["content"] for one in said]
    for world in _read("never_dev")["worlds"]:
        yield list(world["facts"])
    for world in _read("time_dev")["worlds"]:
        yield [one["content"] for one in world["memories"]]
    yield [one["content"] for one in _read("parallel_dev")["conversations"][0]["items"]]


def _read(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def near(texts: Sequence[str], vectors: Vectors, k: int = NEIGHBOURS) -> Iterator[tuple[int, int]]:
    """Yields the pairs of each text with its nearest ones, in order."""
    found = vectors.of(texts)
    cosines = found @ found.T
    np.fill_diagonal(cosines, -1)
    pairs = {(min(at, other), max(at, other)) for at in range(len(texts)) for other in np.argsort(-cosines[at])[:k]}
    yield from sorted((int(one), int(other)) for one, other in pairs if one != other)


def table(pairs: Sequence[Pair], vectors: Vectors) -> NDArray[np.float64]:
    """Returns the features of pairs, one row each."""
    one, other = (vectors.of([getattr(pair, name) for pair in pairs]) for name in ("earlier", "later"))
    cosines = (one * other).sum(axis=1)
    sides = {text: PairSide.of(text) for pair in pairs for text in (pair.earlier, pair.later)}
    rows = [
        features(sides[pair.earlier], sides[pair.later], float(cos)) for pair, cos in zip(pairs, cosines, strict=True)
    ]
    return np.array(rows)


def fit(rows: NDArray[np.float64], wanted: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the weights of a logistic regression with a penalty on squared weights, by Newton's method."""
    spread = rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    scaled = rows / scale
    held = np.zeros(rows.shape[1])
    penalty = np.full(rows.shape[1], PENALTY)
    penalty[0] = 1e-3
    for _ in range(STEPS):
        said = 1 / (1 + np.exp(-np.clip(scaled @ held, -30, 30)))
        slope = scaled.T @ (weight * (said - wanted)) + penalty * held
        curve = (scaled * (weight * said * (1 - said))[:, None]).T @ scaled + np.diag(penalty)
        held -= np.linalg.solve(curve, slope)
    weights: NDArray[np.float64] = held / scale
    return weights


def scores(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the score of each row."""
    found: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
    return found


def talks(path: str) -> Iterator[list[str]]:
    """Yields what each speaker says in the first conversations of a file."""
    for world in sets.load(Path(path), "dev")[:TALKS]:
        said: dict[str, list[str]] = {}
        for item in world.items:
            if not is_small_talk(item.content):
                said.setdefault(item.name or "", []).append(item.content)
        yield from said.values()


def main() -> None:
    """Fits, reports and writes."""
    vectors = Vectors()
    pairs = written()
    hand = len(pairs)
    for texts in worlds():
        pairs += [Pair(texts[one], texts[other], False, WORLD_WEIGHT) for one, other in near(texts, vectors)]
    for texts in talks(sys.argv[1]) if len(sys.argv) > 1 else ():
        pairs += [Pair(texts[one], texts[other], False, TALK_WEIGHT) for one, other in near(texts, vectors)]
    rows = table(pairs, vectors)
    wanted = np.array([pair.conflict for pair in pairs], np.float64)
    weight = np.array([pair.weight for pair in pairs])
    fold = np.arange(len(pairs)) % FOLDS
    out = np.zeros(len(pairs))
    for number in range(FOLDS):
        train = fold != number
        out[~train] = scores(rows[~train], fit(rows[train], wanted[train], weight[train]))
    print(f"{hand} pairs that were written, {int(wanted.sum())} of them contradictions; {len(pairs) - hand} near pairs")
    for least in THRESHOLDS:
        found = out >= least
        print(
            f"  score ≥ {least}: of the contradictions {int((found & (wanted == 1)).sum())} found; false among the "
            f"written {int(found[:hand][wanted[:hand] == 0].sum())} of {int((wanted[:hand] == 0).sum())}, among the "
            f"near ones {int(found[hand:].sum())} of {len(pairs) - hand}"
        )
    weights = fit(rows, wanted, weight)
    told(weights, vectors)
    lines = [f'"{name}" = {value:.4f}' for name, value in zip(FEATURES, weights, strict=True)]
    head = "# Written by scripts/fit_pairs.py: the weights of app/reflection/candidates.py.\n\n[weights]\n"
    WEIGHTS.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def told(weights: NDArray[np.float64], vectors: Vectors) -> None:
    """Prints what is found in the development stories, of each later message the likeliest pair."""
    stories = _read("reflection_dev")
    told_pairs, found = 0, list[tuple[float, bool]]()
    for story in stories:
        said = [
            ((number, turn), message["content"])
            for number, session in enumerate(story["sessions"])
            for turn, message in enumerate(session["messages"])
            if message["role"] == "user" and not is_small_talk(message["content"])
        ]
        true = {(tuple(one["earlier"]), tuple(one["later"])) for one in story["pairs"]}
        told_pairs += len(true)
        best: dict[Place, tuple[float, bool]] = {}
        for (place, text), (other, later) in combinations(said, 2):
            one, two = PairSide.of(text), PairSide.of(later)
            both = vectors.of([text, later])
            cosine = float(both[0] @ both[1])
            if comparable(one, two, cosine):
                score = probability(features(one, two, cosine), weights)
                best[other] = max(best.get(other, (0.0, False)), (score, (place, other) in true))
        found += best.values()
    print(f"{len(stories)} development stories with {told_pairs} pairs")
    for least in THRESHOLDS:
        right, wrong = (sum(one >= least and is_one == wanted for one, is_one in found) for wanted in (True, False))
        print(f"  score ≥ {least}: {right} found, {wrong} false")


if __name__ == "__main__":
    main()
