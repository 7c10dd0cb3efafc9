"""Fits the numbers of app/context/packing_weights.py, which say how much of a budget a query is worth, and judges them.

    .venv/bin/python scripts/fit_packing.py collect FOLDER LIFE.json...      # once for each embedding model, minutes
    .venv/bin/python scripts/fit_packing.py fit --train FOLDER... [--judge FOLDER...]

`collect` lives each life in a service inside this process, asks its questions, and writes what the sources found into
FOLDER, a file for each life: the candidates with their scores and tokens, and what the scope has of the query.
Lives have the form of benchmarks/data/lives. `--queries made` asks statements and keywords out of its turns in their
place, for scripts/fit_asking.py. `fit` reads those files, fits, prints the figures of folds that were left
out (a life is in one fold), then those of `--judge`, and the numbers to copy.
"""

import argparse
import asyncio
import os
import pickle
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from app.context.candidates import Candidate
from app.context.expectation import Rest, more_features
from app.context.layout import about_tokens
from app.context.packing import Packer, Section
from app.context.packing_weights import PackingWeights
from app.context.source import part_of
from app.context.stop_rule import NEAREST_TOKENS, StopRule
from benchmarks.collected import Asked, Found, collect, kept_in

FRAME = 30
"""Tokens of the frame."""
FILLED = 2000
FOLDS = 5
LOST_ASKS, QUIET_NEVER, LEAST_REST = 0.004, 0.62, 0.005
"""Share of questions that may be taken for greetings; share of what was never said that gets the nearest entries only;
the least probability that an entry still to come is needed. Chosen on lives/choose."""
UNANSWERED = ("never", "small")
Floats = NDArray[np.float64]


class Traced(Packer):
    """Fills the budget and keeps the order of packing, and what was taken with the tokens before and after."""

    scores: Sequence[float]
    steps: list[tuple[int, Candidate, int, int]]

    def _compete(self, ordered: Sequence[tuple[str, Candidate]]) -> None:
        self.scores = [item.score or 0.0 for _, item in ordered]
        self.steps, tokens = [], 0
        for at, (name, item) in enumerate(ordered):
            cost = self._states[name].cost(item)
            reason = self._take(self._states[name], item, None)
            if reason == "budget":
                break
            if reason is None:
                self.steps.append((at, item, tokens, tokens + cost))
            tokens += cost if reason in {None, "duplicate"} else 0  # as `Packer` counts


def packer(asked: Asked, budget: int, stop: StopRule | None, kind: type[Packer] = Packer) -> Packer:
    return kind([_section(found, budget) for found in asked.sections], budget, FRAME, 0.001, stop)


def _section(found: Found, budget: int) -> Section:
    bound = None if found.share is None else part_of(budget, found.share)
    return Section(
        found.name,
        found.items,
        lambda item: found.tokens[item.id],
        lambda item: 0 if item.heading is None else found.headings[item.heading.key],
        found.title,
        found.limit,
        bound,
        always=found.share is not None,
        compared=found.compared,
        boost=found.boost,
    )


def lacks(asked: Asked, items: Sequence[Candidate]) -> bool:
    """Returns whether something that the answer needs stands in none of the items."""
    dates = (item.heading.date for item in items if item.heading is not None)
    text = "\n".join([*dates, *(f"{item.prefix}{item.text}" for item in items)]).casefold()
    return not all(any(word.casefold() in text for word in group) for group in asked.needed)


@dataclass(frozen=True, slots=True)
class Case:
    """A question with its features and what they are to tell."""

    asked: Asked
    more: list[float]
    rest: list[list[float]]
    later: list[bool]
    """Before each entry: whether it or one behind it has something that is needed and that stands in none before."""
    beyond: bool
    """Whether something that is needed stands behind the nearest entries."""


def case_of(asked: Asked) -> Case | None:
    traced = packer(asked, FILLED, None, Traced)
    assert isinstance(traced, Traced)
    traced.pack(about_tokens)
    if not asked.evidence:
        return None
    most = max(asked.evidence, key=lambda one: one.covered)
    rest = Rest(traced.scores, PackingWeights(0, (), 0, (), 0))
    items = [item for _, item, _, _ in traced.steps]
    done = -1
    if asked.needed and not lacks(asked, items):
        done = next(at for at in range(len(items)) if not lacks(asked, items[: at + 1]))
    return Case(
        asked,
        more_features(most, traced.scores),
        [rest.features(at, before) for at, _, before, _ in traced.steps],
        [number <= done for number in range(len(items))],
        done >= 0 and traced.steps[done][3] > NEAREST_TOKENS,
    )


def logistic(features: Sequence[Sequence[float]], labels: Sequence[bool]) -> tuple[float, ...]:
    """Returns the weights of the features, and the constant."""
    values = np.array(features)
    mean, spread = values.mean(axis=0), values.std(axis=0) + 1e-9
    found = LogisticRegression(C=1.0, max_iter=3000).fit((values - mean) / spread, labels)
    weights = found.coef_[0] / spread
    return (*(round(float(one), 3) for one in weights), round(float(found.intercept_[0] - weights @ mean), 3))


def likely(features: Sequence[Sequence[float]], weights: Sequence[float]) -> Floats:
    odds = np.array(features) @ np.array(weights[:-1]) + weights[-1]
    return np.asarray(1 / (1 + np.exp(-odds)))


def fitted(cases: Sequence[Case]) -> PackingWeights:
    questions = [case for case in cases if case.asked.kind != "small"]
    more = logistic([case.more for case in questions], [case.beyond for case in questions])
    rest = logistic(
        [one for case in cases for one in case.rest[::3]], [one for case in cases for one in case.later[::3]]
    )
    never = [case.more for case in cases if case.asked.kind == "never"]
    return PackingWeights(
        round(float(np.quantile([_asks(case.asked) for case in questions], LOST_ASKS)), 3),
        more,
        round(float(np.quantile(likely(never, more), QUIET_NEVER)), 3),
        rest,
        LEAST_REST,
    )


def _asks(asked: Asked) -> float:
    return max(evidence.asks for evidence in asked.evidence if evidence.asks is not None)


def figures(cases: Sequence[Case], weights: PackingWeights | None) -> dict[str, float]:
    """`weights`: None fills the budget."""
    found = defaultdict[str, list[float]](list)
    for case in cases:
        asked = case.asked
        stop = None if weights is None else StopRule(asked.evidence, weights)
        for budget in (600, 2000, 4000):
            packed = packer(asked, budget, stop).pack(about_tokens)
            if asked.kind in UNANSWERED:
                if budget == 2000:
                    found[asked.kind].append(packed.total <= {"small": 60, "never": 500}[asked.kind])
                continue
            found[f"needed {budget}"].append(
                not lacks(asked, [one for items in packed.chosen.values() for one in items])
            )
            found[f"tokens {budget}"].append(packed.total)
    return {name: round(fmean(values), 3) for name, values in found.items()}


def fit(train: Sequence[Path], judge: Sequence[Path]) -> None:
    cases = [case for folder in train for case in load(folder)]
    lives = sorted({case.asked.life for case in cases})
    for name, weights in (("filled", None), ("folds that were left out", ...)):
        rows = list[dict[str, float]]()
        for fold in range(FOLDS):
            left_out = set(lives[fold::FOLDS])
            chosen = fitted([case for case in cases if case.asked.life not in left_out]) if weights is ... else None
            rows.append(figures([case for case in cases if case.asked.life in left_out], chosen))
        print(name, {key: round(fmean(row[key] for row in rows if key in row), 3) for key in rows[0]})
    found = fitted(cases)
    for folder in judge:
        judged = load(folder)
        print(folder.name, "filled", figures(judged, None))
        print(folder.name, figures(judged, found))
    print(found)


def load(folder: Path) -> list[Case]:
    asked = [one for path in sorted(folder.glob("*.pickle")) for one in pickle.loads(path.read_bytes())]
    return [case for case in map(case_of, asked) if case is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("folder", type=Path)
    collecting.add_argument("lives", type=Path, nargs="+")
    collecting.add_argument("--queries", choices=("own", "made"), default="own")
    fitting = commands.add_parser("fit")
    fitting.add_argument("--train", type=Path, nargs="+", required=True)
    fitting.add_argument("--judge", type=Path, nargs="*", default=[])
    given = parser.parse_args()
    if given.command == "collect":
        given.folder.mkdir(parents=True, exist_ok=True)
        new = [life for life in given.lives if not kept_in(given.folder, life).exists()]
        asyncio.run(collect(given.folder, new, made=given.queries == "made"))
    else:
        fit(given.train, given.judge)


if __name__ == "__main__":
    main()
