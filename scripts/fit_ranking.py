"""Fits the weights of app/retrieval/ranking.py and the calibration of its score, and judges both on what was left out.

    .venv/bin/python scripts/fit_ranking.py --fit FILE... [--judge FILE...] [--vectors CACHE.npz] [--folds 5]
        [--model multilingual]

Columns, query analysis and features are the service's own code; only the fitting is here. `--fit` takes the sets to
fit on, `--judge` sets that are only judged; benchmarks/evaluation/sets.py describes the files. Each set of
conversations is fitted in three forms: as it is, with a part of its turns as plain memories, and as plain memories
altogether. A conversation of a fitted set is judged by weights that were fitted without the fold that it is in.

Ranking: conditional logit (McFadden 1974) by L-BFGS-B; the evidence of a question shares its weight. Documents
that no part of the ranking finds near stand for all others like them. Calibration: logistic regression of "the first
hit is evidence", with questions that nothing answers.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from app.embedding.factory import DEFAULT_MODEL
from app.embedding.model import without_runtime
from app.retrieval.calibration import KNEE, describe, log_shares, probabilities
from app.retrieval.first_hits import FIRST, NO_ORDER, PROPERTIES, first_hits, order_first_hits, properties
from app.retrieval.model_weights import Blend, Calibration, CalibrationFactors, FirstHitWeights, Foreign, Weights
from app.retrieval.ranking import FITTED, QUERY_FEATURES, TINY, Ranked, bm25, log_odds
from app.retrieval.time_expressions import when
from app.storage.search import Bools, Floats
from benchmarks.evaluation.measures import METRICS, auc, calibration_error, retrieval
from benchmarks.evaluation.ranking_cases import Case, Embedder, as_plain, build_cases, mixed, small
from benchmarks.evaluation.sets import World, load
from benchmarks.harness import Row, table

Array = NDArray[np.float64]

LIKELY, NEAR, OTHERS = 80, 40, 40
"""Documents of a question that are fitted on: the first by base score, the first by cosine, and a random part of the
rest that stands for all of it."""
RIDGE_RANKING, RIDGE_CALIBRATION = 10.0, 0.1
"""Penalty on squared standardised weights."""
PATIENCE = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-11}
LEVEL = 1e-4
"""Slope of the loss, for each question's weight, at which a fit has ended."""
QUESTIONS = 1000
"""Each set weighs as much as so many questions, times its own weight."""
ECHO, TIMED, LIVES = "echo", "time", "lives"
FEATURES_OF = {
    "person": FITTED,
    "assistant": tuple(n for n in FITTED if n not in {"speaker", "repeats", "coverage", "vector_rank"}),
    "plain": ("vector_scaled", "coverage", "repeats", "session", "number", "question"),
}
"""An assistant without a name is no speaker that a query names, and says so much that it repeats hardly anything. What
else is left out has no weight where it is held at 0 or more."""
ORDERED_BY = {"first_turns": PROPERTIES[:-1], "first_plain": ("newness", "replaced")}
"""What the first hits of a kind are ordered by. Plain memories are so different that the rest would harm some of
them."""
NEVER_AGAINST = {"vector_scaled", "text_scaled", "vector_rank"}
"""What is nearer never counts less: the weights of these are 0 or more."""
LEAST_VECTOR = 0.2
"""Where the embedding model does not know a script and no word is shared, the nearest still comes first."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a set and what it weighs in fitting the ranking, the calibration and the order of the first hits, of
    turns or of plain memories."""

    name: str
    worlds: Sequence[World]
    ranking: float
    calibration: float
    first: float = 0.0


def forms(worlds: Sequence[World]) -> Iterator[Form]:
    name = worlds[0].questions[0].group
    if name.startswith(ECHO):
        asked = [world for world in worlds if world.questions[0].kind != "answers"]  # there the bot holds the answer
        yield Form(name, asked, 0.25, 0.5, 0.5)
    elif name.startswith(TIMED):
        yield Form(name, worlds, 0.3, 0.4)
    elif name.startswith(LIVES):
        yield Form(name, worlds, 1.0, 0.5, 4.0)
        yield Form(f"{name}, plain", [as_plain(world) for world in worlds], 0.0, 0.0, 1.0)
    elif any(item.session is not None for world in worlds for item in world.items):
        yield Form(name, worlds, 1.5, 1.0, 1.0)
        yield Form(f"{name}, in part plain", [mixed(world) for world in worlds], 0.3, 0.0)
        yield Form(f"{name}, plain", [as_plain(world) for world in worlds], 0.4, 0.3)
    else:
        own = name == "plain facts"
        yield Form(name, worlds, 1.0 if own else 0.5, 1.0 if own else 0.02)
        if own:
            yield Form("small scopes", [one for world in worlds for one in small(world)], 0.0, 0.5)


# --- Ranking ----------------------------------------------------------------------------------------------------------

TERMS = (
    *((kind, name) for kind, names in FEATURES_OF.items() for name in names),
    ("assistant", "base"),
    ("plain", "base"),
    *(("foreign", field.name) for field in fields(Foreign)),
    ("when", "when"),
)


def design(case: Case, rows: NDArray[np.int64]) -> Floats:
    """(rows, TERMS)"""
    columns = case.columns
    plain, assistant = (mask[rows].astype(np.float32) for mask in (columns.plain, columns.assistants))
    kind = {"person": 1 - plain - assistant, "assistant": assistant, "plain": plain}
    values = {name: case.known[at][rows] for at, name in enumerate(FITTED)}
    values["base"] = np.ones(len(rows), np.float32)
    foreign = {name: column * case.query.foreign for name, column in values.items()}
    values["when"] = values["base"] * 0 if case.interval is None else when(columns.time[rows], case.interval)
    for name in ("vector_scaled", "vector_rank"):
        values[name] = values[name] - foreign[name]
    by_group = {"foreign": foreign, "when": values}
    made = (by_group[g][n] if g in by_group else kind[g] * values[n] for g, n in TERMS)
    return np.stack(list(made), axis=1).astype(np.float32)


def candidates(case: Case) -> tuple[NDArray[np.int64], Floats]:
    """Documents to fit on, and how many each stands for."""
    n = len(case.evidence)
    if n <= LIKELY + OTHERS:
        return np.arange(n), np.ones(n, np.float32)
    first = np.argpartition(-case.base, LIKELY)[:LIKELY]
    near = np.argpartition(-case.columns.cosine, NEAR)[:NEAR]
    chosen = np.union1d(np.union1d(first, near), np.flatnonzero(case.evidence))
    rest = np.setdiff1d(np.arange(n), chosen)
    if len(rest) <= OTHERS:
        return np.arange(n), np.ones(n, np.float32)
    some = np.random.default_rng(0).choice(rest, OTHERS, replace=False)
    stand_for = np.concatenate((np.ones(len(chosen)), np.full(OTHERS, len(rest) / OTHERS)))
    return np.concatenate((chosen, some)), stand_for.astype(np.float32)


class ConditionalLogit:
    """Log-odds of documents that compete for a question (McFadden 1974), over a list of questions.

    Each question has `values`, shape (documents, features); `right`, the documents that answer it; `offset`, the
    log-odds that the documents have before; its `weight`; and its `fold`. What is fitted is the mean log of the
    probability of each right document, or, if `one_will_do`, of any of them.
    """

    def __init__(self, least: Sequence[float], *, one_will_do: bool = False) -> None:
        """`least`: the lowest that the weight of each feature may be."""
        self._least, self._one_will_do = least, one_will_do
        self._values, self._target, self._offset = list[Floats](), list[Floats](), list[Floats]()
        self._weight, self._fold = list[float](), list[int]()

    def add(self, values: Floats, right: Bools, offset: Floats, weight: float, fold: int) -> None:
        self._values.append(values)
        self._target.append((right / right.sum()).astype(np.float32))
        self._offset.append(offset)
        self._weight.append(weight)
        self._fold.append(fold)

    def fit(self, without: int | None = None) -> Array:
        """Returns the weight of each feature, fitted without a fold."""
        if not self._values:
            return np.zeros(len(self._least))
        values = np.concatenate(self._values)
        spread = values.std(axis=0) + 1e-6
        kept = np.array(self._fold) != (-1 if without is None else without)
        all_sizes = np.array([len(each) for each in self._target])
        of_row = np.repeat(kept, all_sizes)
        values = (values[of_row] / spread).astype(np.float64)
        target, offset = (np.concatenate(each)[of_row] for each in (self._target, self._offset))
        sizes, weight = all_sizes[kept], np.array(self._weight, np.float32)[kept].astype(np.float64)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        case = np.repeat(np.arange(len(sizes)), sizes)

        def loss(found: Array) -> tuple[float, Array]:
            odds = values @ found + offset
            odds -= np.maximum.reduceat(odds, starts)[case]
            part = np.exp(odds)
            whole = np.add.reduceat(part, starts)
            if self._one_will_do:
                of_right = part * (target > 0)
                any_right = np.add.reduceat(of_right, starts) + TINY
                wanted, gained = of_right / any_right[case], np.log(any_right)
            else:
                wanted, gained = target, np.add.reduceat(target * odds, starts)
            lost = weight @ (np.log(whole) - gained)
            gradient = values.T @ (weight[case] * (part / whole[case] - wanted)) + RIDGE_RANKING * found
            return float(lost + RIDGE_RANKING / 2 * found @ found), gradient

        bounds = [(low * each, None) for low, each in zip(self._least, spread, strict=True)]
        ended = minimize(loss, np.zeros(len(spread)), jac=True, method="L-BFGS-B", bounds=bounds, options=PATIENCE)
        # the figures of a fit that does not converge would be too low without anybody seeing why; where the slope is
        # nothing, the search only found no better digits
        assert ended.success or np.abs(ended.jac).max() < LEVEL * weight.sum(), ended.message
        found: Array = ended.x / spread
        return found


def of_ranking(cases: Sequence[Case], weights: Mapping[str, float]) -> ConditionalLogit:
    """The likely documents of all questions that have an answer."""
    used = [c for c in cases if weights.get(c.group) and c.evidence.any() and not c.evidence.all()]
    count = Counter(case.group for case in used)
    found = ConditionalLogit([_least(term) for term in TERMS])
    for case in used:
        rows, stand_for = candidates(case)
        weight = QUESTIONS * weights[case.group] / count[case.group]
        found.add(design(case, rows), case.evidence[rows], np.log(stand_for), weight, case.fold)
    return found


def of_first_hits(
    cases: Sequence[Case], by_fold: Sequence[Weights], weights: Mapping[str, float], kind: str
) -> ConditionalLogit:
    """The first hits of all questions whose answer is among them. `by_fold`: the weights without each fold. `kind`: a
    key of `ORDERED_BY`."""
    names = ORDERED_BY[kind]
    wanted = FirstHitWeights(**dict.fromkeys(PROPERTIES, 1.0))
    used = []
    for case in cases:
        if not weights.get(case.group):
            continue
        odds, parts = compared(case, by_fold[case.fold])
        order = np.argsort(-odds, kind="stable")[: 2 * FIRST]
        only: dict[str, Any] = {**dict.fromkeys(ORDERED_BY, NO_ORDER), kind: wanted}
        ordered = replace(by_fold[case.fold], **only)
        first = first_hits(Ranked(order, odds, parts), case.columns, case.query, ordered)
        right = case.evidence[first.group]
        if right.any() and not right.all():
            known = properties(case.columns, odds, first, parts)  # without the texts, none is known to be replaced
            used.append((case, known[[PROPERTIES.index(name) for name in names]].T, right, odds[first.group]))
    count = Counter(case.group for case, *_ in used)
    found = ConditionalLogit([-np.inf] * len(names), one_will_do=True)
    for case, known, right, before in used:
        found.add(known, right, before, QUESTIONS * weights[case.group] / count[case.group], case.fold)
    return found


def _least(term: tuple[str, str]) -> float:
    group, name = term
    if name not in NEVER_AGAINST:
        return -np.inf
    return LEAST_VECTOR if (group, name) == ("foreign", "vector_scaled") else 0.0


def weights_of(found: Array) -> Weights:
    by_group: dict[str, dict[str, float]] = {}
    for (group, name), value in zip(TERMS, found.tolist(), strict=True):
        by_group.setdefault(group, {})[name] = round(value, 2)
    person, assistant, plain = (Blend(**by_group[kind]) for kind in ("person", "assistant", "plain"))
    foreign, inside = Foreign(**by_group["foreign"]), by_group["when"]["when"]
    return Weights(person, assistant, plain, foreign, importance=0.0, recency=0.0, when=inside)


def compared(case: Case, weights: Weights) -> tuple[Floats, dict[str, Floats]]:
    """The log-odds of all documents before the first ones are ordered, and their parts."""
    of_query, of_documents = case.known[: len(QUERY_FEATURES)], case.known[len(QUERY_FEATURES) :]
    return log_odds(
        case.columns, case.query, of_query, of_documents, weights, () if case.interval is None else [case.interval]
    )


def with_order(weights: Weights, fitted: Mapping[str, ConditionalLogit], without: int | None = None) -> Weights:
    """Returns the weights with those of the order of the first hits."""
    found: dict[str, Any] = {
        kind: FirstHitWeights(
            **dict(zip(ORDERED_BY[kind], (round(value, 2) for value in each.fit(without)), strict=True))
        )
        for kind, each in fitted.items()
    }
    return replace(weights, **found)


def odds_of(case: Case, weights: Weights) -> Floats:
    odds, parts = compared(case, weights)
    ranked = Ranked(np.argsort(-odds, kind="stable"), odds, parts)
    order_first_hits(ranked, case.columns, first_hits(ranked, case.columns, case.query, weights), weights)
    return ranked.score


# --- Calibration ------------------------------------------------------------------------------------------------------


def shows(case: Case, odds: Floats) -> tuple[Array, Array, Array]:
    """(rows, fields of `CalibrationFactors` after `base`), which rows are evidence, and their weights: the first hit,
    the next ones, and every fifth down to the sixtieth."""
    order = np.argsort(-odds, kind="stable")
    rows = np.concatenate((order[:10], order[10:60:5]))
    weight = np.where(np.arange(len(rows)) == 0, 1.0, np.where(np.arange(len(rows)) < 10, 0.1, 0.5))
    shares, _ = log_shares(case.columns, odds, case.columns.matching)
    share = shares[rows].astype(np.float64)
    of_query = np.broadcast_to(
        describe(case.columns, case.query, case.known[: len(QUERY_FEATURES)], ...), (len(rows), 4)
    )
    values = np.column_stack((np.maximum(share, KNEE), np.minimum(share - KNEE, 0), of_query))
    return values, case.evidence[rows].astype(np.float64), weight


def fit_terms(pairs: Sequence[tuple[Case, Floats]], weights: Mapping[str, float]) -> CalibrationFactors:
    count = Counter(case.group for case, _ in pairs)
    shown = [shows(case, odds) for case, odds in pairs]
    values = np.concatenate([each for each, _, _ in shown])
    right = np.concatenate([each for _, each, _ in shown])
    of_case = (QUESTIONS * weights[case.group] / count[case.group] for case, _ in pairs)
    weight = np.concatenate([each * whole for whole, (_, _, each) in zip(of_case, shown, strict=True)])
    mean, spread = values.mean(axis=0), values.std(axis=0) + 1e-6
    model = LogisticRegression(C=1 / RIDGE_CALIBRATION, solver="newton-cholesky", tol=1e-10, max_iter=200)
    model.fit((values - mean) / spread, right, weight)
    each = model.coef_[0] / spread
    return CalibrationFactors(*(round(float(value), 3) for value in (model.intercept_[0] - each @ mean, *each)))


def fit_calibration(
    cases: Sequence[Case], odds: Sequence[Floats], weights: Mapping[str, float], without: int | None = None
) -> Calibration:
    used = [(c, o) for c, o in zip(cases, odds, strict=True) if weights.get(c.group) and c.fold != without and len(o)]
    plain = [(c, o) for c, o in used if c.columns.plain.all()]
    turns = [(c, o) for c, o in used if not c.columns.plain.any()]
    return Calibration(fit_terms(turns, weights), fit_terms(plain, weights))


def score_of(case: Case, odds: Floats, calibration: Calibration) -> Floats:
    known = case.known[: len(QUERY_FEATURES)]
    return probabilities(case.columns, case.query, odds, known, calibration)


# --- Report -----------------------------------------------------------------------------------------------------------

SHOWN = ("recall@1", "recall@5", "recall@10", "recall@20", "MRR")


def figures(case: Case, score: Floats) -> list[float]:
    """SHOWN, as the evaluation over HTTP has them."""
    ranks = np.flatnonzero(case.evidence[np.argsort(-score, kind="stable")]).tolist()
    known = dict(zip(METRICS, retrieval(ranks, len(ranks)), strict=True))
    return [known[name] for name in SHOWN]


def report(name: str, scored: Sequence[tuple[Case, Floats]]) -> Row:
    """A row of the table; the calibration is of first hits: `right first` is the share of all questions, also of those
    without an answer, whose first hit is right, and `first score` what the scores say that it is."""
    pairs = [(case, score) for case, score in scored if len(score)]
    means = np.mean([figures(case, score) for case, score in pairs if case.evidence.any()], axis=0)
    best = np.array([score.max() for _, score in pairs], np.float64)
    right = np.array([case.evidence[int(np.argmax(score))] for case, score in pairs])
    answered = np.array([bool(case.question.evidence) for case, _ in pairs])
    return {
        "set": name,
        "questions": len(pairs),
        **{metric: f"{mean:.3f}" for metric, mean in zip(SHOWN, means, strict=True)},
        "right first": f"{right.mean():.3f}",
        "first score": f"{best.mean():.3f}",
        "ECE": f"{calibration_error(best, right):.3f}",
        "right hits' score": f"{np.median(best[right]) if right.any() else 0:.2f}",
        "AUC": None if answered.all() else f"{auc(best[answered], best[~answered]):.3f}",
    }


def evaluate(
    fitted: Sequence[Path], judged: Sequence[Path], cache: Path | None, folds: int, model: str = DEFAULT_MODEL
) -> None:
    embed = Embedder(cache, model)
    made = [form for path in fitted for form in forms(load(path))]
    ranking = {form.name: form.ranking for form in made}
    calibration = {form.name: form.calibration for form in made}
    cases = [case for form in made for case in build_cases(form.name, form.worlds, embed, folds)]
    others = [case for path in judged for case in build_cases(*_judged(path), embed, folds)]
    embed.save()
    data = of_ranking(cases, ranking)
    weights = weights_of(data.fit())
    by_fold = [weights_of(data.fit(fold)) for fold in range(folds)]
    ordered = {form.name: form.first for form in made}
    first = {kind: of_first_hits(cases, by_fold, ordered, kind) for kind in ORDERED_BY}
    weights = with_order(weights, first)
    by_fold = [with_order(each, first, fold) for fold, each in enumerate(by_fold)]
    odds = [odds_of(case, by_fold[case.fold]) for case in cases]
    whole = fit_calibration(cases, odds, calibration)
    left_out = [fit_calibration(cases, odds, calibration, fold) for fold in range(folds)]
    rows, judged_all = list[Row](), list[tuple[Case, Floats]]()
    for name in ranking:
        of_set = [(case, o) for case, o in zip(cases, odds, strict=True) if case.group == name]
        scored = [(case, score_of(case, o, left_out[case.fold])) for case, o in of_set]
        rows.append(report(name, scored))
        judged_all += scored
    for name in dict.fromkeys(case.group for case in others):
        mine = [case for case in others if case.group == name]
        scored = [(case, score_of(case, odds_of(case, weights), whole)) for case in mine]
        rows.append(report(f"{name} (not fitted on)", scored))
        judged_all += scored
        rows.append(report(f"{name}, vector", [(case, case.columns.cosine) for case in mine]))
        rows.append(report(f"{name}, text", [(case, bm25(case.columns)) for case in mine]))
    rows.append(report("all questions together", judged_all))
    name = without_runtime(embed.model)
    numbers = [*tables(f"{name}.weights", weights), *tables(f"{name}.calibration", whole)]
    print("\n\n".join((table(rows), "To paste into app/retrieval/data/weights.toml:", *numbers)))


def tables(path: str, value: Any) -> Iterator[str]:
    """Yields the fitted numbers as TOML, without those that have their default."""
    numbers = [
        f"{field.name} = {number}"
        for field in fields(value)
        if isinstance(number := getattr(value, field.name), float) and number != field.default
    ]
    if numbers:
        yield "\n".join((f"[{path}]", *numbers))
    for field in fields(value):
        if is_dataclass(inner := getattr(value, field.name)):
            yield from tables(f"{path}.{field.name}", inner)


def _judged(path: Path) -> tuple[str, Sequence[World]]:
    worlds = load(path)
    return worlds[0].questions[0].group, worlds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", type=Path, nargs="+", required=True, help="sets to fit on")
    parser.add_argument("--judge", type=Path, nargs="*", default=[], help="sets that are only judged")
    parser.add_argument("--vectors", type=Path, help="file to keep the texts' vectors in between runs (.npz)")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="as RECALLD_EMBEDDING_MODEL names it")
    parser.add_argument("--folds", type=int, default=5, help="a conversation's fold is left out when it is judged")
    options = parser.parse_args()
    evaluate(options.fit, options.judge, options.vectors, options.folds, options.model)


if __name__ == "__main__":
    main()
