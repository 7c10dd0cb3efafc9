"""First hits of the ranking, for a judge of relevance: python -m benchmarks.train.hits make|split|measure FILE…

`make FILE SET…` asks the ranking (the service's own code, without a service) each question of the sets and writes its
first hits: what a judge is taught on, and what it judges. `benchmarks/evaluation/sets.py` describes the sets.

`split FILE` sets each fifth life apart, for `measure --fit`.

`measure FILE…` reads files whose hits `benchmarks.train.relevance` has judged and says what the judge adds to the
ranking as one more feature. The weights are fitted on the files of `--fit`; without them a part of each set's lives is
left out in turn, and the rest is fitted on. `first`: the first hit answers. `MRR`: of the best answer, 0 if none is
among the hits. `never`, `small`: the area under the curve of questions that have an answer against those that were
never answered, and small talk. `service` has the score of the first hit for that, `properties of the query` those of
`of_scope` and the score, `judge alone` its highest number; `both` and `all` have that beside the score, and beside all.
`taken`: the area under the curve of the highest number (of the service: log-odds) of questions with an answer among
the hits, against the same questions once the answers are taken from them. The wording of a question cannot tell these
apart, as it may tell what was never said.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from app.retrieval.first_hits import FIRST, PROPERTIES, asks_for_past, compare_hits, properties
from app.retrieval.model_weights import ModelWeights, weights_for
from app.retrieval.ranking import says_something, term_weights
from app.storage.search import Floats, Ints
from benchmarks.evaluation.measures import auc
from benchmarks.evaluation.ranking_cases import Case, Embedder, build_cases
from benchmarks.evaluation.sets import World, load
from benchmarks.harness import Row, table
from benchmarks.train.asked import Asked, read, used, write
from scripts.fit_ranking import ConditionalLogit, compared, odds_of, score_of

Array: TypeAlias = NDArray[np.float64]
UNANSWERED = ("never", "small")
FOLDS = 5
ONLY_FITTED = -1
"""Instead of a fold, of questions that are not measured."""


def make(paths: Sequence[Path], cache: Path | None) -> Iterator[Asked]:
    embed = Embedder(cache)
    for path in paths:
        for world in load(path):
            for case in build_cases(world.questions[0].group, [world], embed, 1):
                yield _asked(case, world, weights_for(embed.model))
    embed.save()


def _asked(case: Case, world: World, fitted: ModelWeights) -> Asked:
    said = [f"{item.name or item.role}: {item.content}" if item.session else item.content for item in world.items]
    before, parts = compared(case, fitted.weights)
    odds = odds_of(case, fitted.weights)
    order = np.argsort(-odds, kind="stable")[: 2 * FIRST]
    order = order[says_something(parts, order)]
    once = np.sort(np.unique(case.columns.content[order], return_index=True)[1])
    first = order[once][:FIRST]
    known = np.zeros((len(PROPERTIES), 0), np.float32)
    if len(first):
        compared_hits = compare_hits(case.columns, first, later_replaces=not asks_for_past(case.query, parts))
        known = properties(case.columns, before, compared_hits, parts)
    return {
        "set": case.group,
        "life": world.name,
        "kind": case.question.kind,
        "query": case.question.query,
        "language": world.language,
        "score": float(score_of(case, odds, fitted.calibration).max(initial=0)),
        "scope": of_scope(case, odds, first) if len(first) else {},
        "answers": [said[at] for at in np.flatnonzero(case.evidence)],
        "hits": [
            {
                "text": said[at],
                "right": bool(case.evidence[at]),
                "wrong": world.items[at].content in case.question.worse,
                "odds": float(before[at]),
                "known": row.tolist(),
            }
            for at, row in zip(first.tolist(), known.T, strict=True)
        ],
    }


def of_scope(case: Case, odds: Floats, first: Ints) -> dict[str, float]:
    """Properties of the whole query that might tell whether it has an answer, and are as cheap as the ranking."""
    columns = case.columns
    cosine = np.sort(columns.cosine)[::-1].astype(np.float64)
    weights, limit = term_weights(columns)
    weight = weights[:, 0].astype(np.float64)
    has = columns.term_counts > 0
    known = np.any(has, axis=1)
    best = np.sort(odds)[::-1].astype(np.float64)
    shares = np.exp(best - best[0])
    shares /= shares.sum()
    rarest = int(weight.argmax()) if len(weight) else 0
    whole = max(float(limit), 1e-6)
    return {
        "nearest": cosine[0],
        "second": cosine[0] - cosine[min(1, len(cosine) - 1)],
        "tenth": cosine[0] - cosine[min(9, len(cosine) - 1)],
        "z": (cosine[0] - cosine.mean()) / max(cosine.std(), 1e-3),
        "mean": cosine.mean(),
        "spread": cosine.std(),
        "covered": float((has * weights).sum(axis=0).max(initial=0)) / whole,
        "covered_first": float((has[:, first[0]] * weight).sum()) / whole,
        "covered_together": float((has[:, first].any(axis=1) * weight).sum()) / whole,
        "unknown": float((~known * weight).sum()) / whole,
        "rarest": float(has[rarest, first].any()) if len(weight) else 0.0,
        "rarest_known": float(has[rarest].any()) if len(weight) else 0.0,
        "terms": float(np.log1p(len(weight))),
        "gap": float(min(best[0] - best[min(1, len(best) - 1)], 6)),
        "entropy": float(-(shares * np.log(shares + 1e-12)).sum()),
        "first_cosine": float(columns.cosine[first[0]]) - cosine[0],
        "documents": float(np.log1p(columns.count)),
    }


def split(asked: Sequence[Asked]) -> tuple[list[Asked], list[Asked]]:
    """Returns questions to teach a judge on, and those of each fifth life, on which the blend can be fitted: a judge is
    surer of what it was taught."""
    lives = sorted({one["life"] for one in asked})
    kept = set(lives[FOLDS - 1 :: FOLDS])
    return [one for one in asked if one["life"] not in kept], [one for one in asked if one["life"] in kept]


def measure(asked: Sequence[Asked], fit: Sequence[Asked] = ()) -> Iterator[Row]:
    """What is fitted on `fit`, or else on some lives, is measured on the others."""
    lives = sorted({one["life"] for one in asked})
    every = [*fit, *asked]
    folds = [ONLY_FITTED] * len(fit) + [0 if fit else lives.index(one["life"]) % FOLDS for one in asked]
    score, number, scope = scores(every), judged(every), properties_of(every)
    service, both = (ordered(every, folds, with_judge=each) for each in (False, True))
    yield figures("service", asked, service, score[len(fit) :]) | {"taken": taken(asked, "odds")}
    yield figures("properties of the query", asked, service, certainty(scope, every, folds))
    alone = [by_judge(one) for one in asked]
    yield figures("judge alone", asked, alone, number[len(fit) :]) | {"taken": taken(asked, "judged")}
    yield figures("both", asked, both, certainty(np.column_stack([score, number]), every, folds))
    yield figures("all", asked, both, certainty(np.column_stack([scope, number]), every, folds))


def figures(name: str, asked: Sequence[Asked], orders: Sequence[Sequence[bool]], certain: Array) -> Row:
    """`orders`: which hits are right, the first one first. `certain`: how surely each question has an answer."""
    kinds, answered = kinds_of(asked), np.array([bool(one["answers"]) for one in asked])
    ranks = [each.index(True) if True in each else None for each, known in zip(orders, answered, strict=True) if known]
    return {
        "set": asked[0]["set"],
        "": name,
        "questions": len(ranks),
        "first": f"{np.mean([rank == 0 for rank in ranks]):.3f}",
        "MRR": f"{np.mean([0 if rank is None else 1 / (1 + rank) for rank in ranks]):.3f}",
        **{
            kind: f"{auc(certain[answered], certain[kinds == kind]):.3f}" if (kinds == kind).any() else None
            for kind in UNANSWERED
        },
        "taken": None,
    }


def taken(asked: Sequence[Asked], name: str) -> str | None:
    """`name`: of the number that each hit has."""
    used = [one["hits"] for one in asked if len({hit["right"] for hit in one["hits"]}) == 2]
    whole = [max(hit[name] for hit in hits) for hits in used]
    without = [max(hit[name] for hit in hits if not hit["right"]) for hits in used]
    return f"{auc(whole, without):.3f}" if used else None


def kinds_of(asked: Sequence[Asked]) -> NDArray[np.str_]:
    """`answered`, `small`, or `never`, as some sets have other names for it."""
    return np.array(["answered" if one["answers"] else "small" if one["kind"] == "small" else "never" for one in asked])


def scores(asked: Sequence[Asked]) -> Array:
    """Log-odds of the service's score of the first hit."""
    found = np.clip([one["score"] for one in asked], 1e-4, 1 - 1e-4)
    odds: Array = np.log(found / (1 - found))
    return odds


def judged(asked: Sequence[Asked]) -> Array:
    """The judge's highest number of each question."""
    return np.array([max(hit["judged"] for hit in one["hits"]) for one in asked])


def properties_of(asked: Sequence[Asked]) -> Array:
    """The service's score and the properties of the whole query: (questions, properties)."""
    rows = [[odds, *one["scope"].values()] for odds, one in zip(scores(asked).tolist(), asked, strict=True)]
    return np.array(rows)


def by_judge(asked: Asked) -> list[bool]:
    return [hit["right"] for hit in sorted(asked["hits"], key=lambda hit: -hit["judged"])]


def certainty(known: Array, asked: Sequence[Asked], folds: Sequence[int]) -> Array:
    """Log-odds that a question has an answer, fitted without its fold, against questions that were never answered."""
    kinds = kinds_of(asked)
    truth = kinds == "answered"
    found = np.zeros(len(asked))
    for fold in set(folds) - {ONLY_FITTED}:
        left_out = np.array(folds) == fold
        kept = ~left_out & (truth | (kinds == "never"))
        if len(set(truth[kept])) == 2:
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced"))
            model.fit(known[kept], truth[kept])
            found[left_out] = model.decision_function(known[left_out])
    measured: Array = found[np.array(folds) != ONLY_FITTED]
    return measured


def ordered(asked: Sequence[Asked], folds: Sequence[int], *, with_judge: bool) -> list[list[bool]]:
    """Which of the hits of each question are right, in the order of a ranking fitted without the question's fold."""
    values = [
        np.array(
            [[*hit["known"], *(hit[name] - one["hits"][0][name] for name in ("odds", "judged"))] for hit in one["hits"]]
        )
        for one in asked
    ]
    values = values if with_judge else [each[:, :-1] for each in values]
    data = ConditionalLogit([-np.inf] * (len(PROPERTIES) + 1 + with_judge), one_will_do=True)
    offsets = [np.array([hit["odds"] for hit in one["hits"]]) for one in asked]
    rights = [np.array([hit["right"] for hit in one["hits"]]) for one in asked]
    for each, right, offset, fold in zip(values, rights, offsets, folds, strict=True):
        if right.any() and not right.all():
            data.add(each, right, offset, 1.0, fold)
    weights = {fold: data.fit(fold) for fold in set(folds) - {ONLY_FITTED}}
    return [
        right[np.argsort(-(offset + each @ weights[fold]), kind="stable")].tolist()
        for each, right, offset, fold in zip(values, rights, offsets, folds, strict=True)
        if fold in weights
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("file", type=Path)
    making.add_argument("sets", type=Path, nargs="+")
    making.add_argument("--vectors", type=Path, help="file to keep the texts' vectors in between runs (.npz)")
    splitting = commands.add_parser("split")
    splitting.add_argument("file", type=Path)
    measuring = commands.add_parser("measure")
    measuring.add_argument("files", type=Path, nargs="+")
    measuring.add_argument("--fit", type=Path, nargs="*", default=[], help="files to fit the blend on")
    measuring.add_argument("--language", help="of the lives that are fitted and measured; default: each")
    given = parser.parse_args()
    if given.command == "make":
        write(given.file, make(given.sets, given.vectors))
    elif given.command == "split":
        for name, part in zip(("taught", "fit"), split(read(given.file)), strict=True):
            write(given.file.with_suffix(f".{name}.jsonl"), part)
    else:
        fit, asked = (used(files, given.language) for files in (given.fit, given.files))
        sets = dict.fromkeys(one["set"] for one in asked)
        print(table([row for name in sets for row in measure([one for one in asked if one["set"] == name], fit)]))


if __name__ == "__main__":
    main()
