"""Whether keys of a turn made by rules raise the recall of turns: no keys beside keys as words, as vectors, as both.

Each set's conversations are split in two halves, in their order. A variant is chosen by the first half and judged on
the second. Ranking and index are the service's own code, with the weights that it has; with --refit also with weights
that are fitted for no keys and for each variant: those of one half's questions on the other halves of all sets. With
--ideal N instead: keys that an ideal extractor would give, which shows what any model could gain at most.
docs/decisions/0020-keys-of-a-turn.md has the figures.
"""

import argparse
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from app.retrieval.model_weights import Weights
from app.retrieval.ranking import rank, top
from benchmarks.evaluation.measures import METRICS, Floats, interval, retrieval
from benchmarks.evaluation.ranking_cases import Case, Embedder, build_cases
from benchmarks.evaluation.sets import Item, Question, World, answerable, load
from benchmarks.evaluation.turn_keys import RULES, keys_of
from benchmarks.harness import Row, Section
from scripts.fit_ranking import RankingData, odds_of, weights_of

DEPTH = 20
NONE = "none"
PLACES = {"words": (True, False), "vectors": (False, True), "both": (True, True)}
"""Whether keys go into the text index, and whether each is a further vector of its turn."""
SHOWN = ("recall@1", "recall@10")
COST_TURNS = 300

Keys = Callable[[Item], tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """METRICS of the questions (rows), by half."""

    first: Floats
    second: Floats


def spoken(item: Item, rule: str) -> list[str]:
    """Keys of what a user or a named speaker says; an assistant without a name has none."""
    if item.session is not None and item.role != "user" and item.name is None:
        return []
    keys = keys_of(item.content, rule)
    return [re.sub(r"\buser\b", lambda _: str(item.name), key) for key in keys] if item.name else keys


def variants() -> dict[tuple[str, str], Keys | None]:
    found: dict[tuple[str, str], Keys | None] = {(NONE, ""): None}
    return found | {(rule, place): _keys(rule, *where) for rule in RULES for place, where in PLACES.items()}


def _keys(rule: str, words: bool, vectors: bool) -> Keys:
    def keys(item: Item) -> tuple[Sequence[str], Sequence[str]]:
        found = spoken(item, rule)
        return found if words else (), found if vectors else ()

    return keys


def measured(worlds: Sequence[World], embed: Embedder, keys: Keys | None) -> Outcome:
    return Outcome(*(np.array([_found(case) for case in half]) for half in cases_of(worlds, embed, keys)))


def cases_of(worlds: Sequence[World], embed: Embedder, keys: Keys | None, group: str = "") -> tuple[list[Case], ...]:
    """Cases of the questions that have an answer, of both halves."""
    halves: tuple[list[Case], list[Case]] = ([], [])
    for number, world in enumerate(worlds):
        halves[2 * number >= len(worlds)].extend(build_cases(group, [answerable(world)], embed, 1, keys))
    return halves


def _found(case: Case) -> tuple[float, ...]:
    columns, now = case.columns, int(case.columns.time.max()) + 1000
    ranked = rank(columns, case.query, "hybrid", now, first=DEPTH, interval=case.interval)
    hits = case.evidence[top(ranked, columns, DEPTH)]
    return retrieval(np.flatnonzero(hits).tolist(), len(case.question.evidence))


def rows_of(outcomes: Mapping[tuple[str, str], Outcome]) -> Iterator[Row]:
    """A row for each variant: recall on both halves, and on the second the difference to no keys with its interval."""
    plain = outcomes[NONE, ""]
    for (rule, place), found in outcomes.items():
        row: Row = {"keys": rule, "as": place}
        for half, own, other in (("first", found.first, plain.first), ("second", found.second, plain.second)):
            for name in SHOWN:
                at = METRICS.index(name)
                row[f"{name}, {half}"] = f"{own[:, at].mean():.3f}"
                if rule != NONE:
                    row[f"± {name}, {half}"] = difference(own[:, at], other[:, at])
        yield row


def refitted(sets: Mapping[str, Sequence[World]], embed: Embedder) -> dict[tuple[str, str], dict[str, Outcome]]:
    """Of each variant and set. Weights that judge one half are fitted on the other halves, with the same keys."""
    return {variant: _refitted(sets, embed, keys) for variant, keys in variants().items()}


def _refitted(sets: Mapping[str, Sequence[World]], embed: Embedder, keys: Keys | None) -> dict[str, Outcome]:
    halves = {name: cases_of(worlds, embed, keys, name) for name, worlds in sets.items()}
    first, second = (
        weights_of(
            RankingData([case for both in halves.values() for case in both[half]], dict.fromkeys(sets, 1.0)).fit()
        )
        for half in (0, 1)
    )
    return {
        name: Outcome(*(_by_weights(half, other) for half, other in zip(both, (second, first), strict=True)))
        for name, both in halves.items()
    }


def _by_weights(cases: Sequence[Case], weights: Weights) -> Floats:
    def ranks(case: Case) -> list[int]:
        found: list[int] = np.flatnonzero(case.evidence[np.argsort(-odds_of(case, weights), kind="stable")]).tolist()
        return found

    return np.array([retrieval(found, len(found)) for found in map(ranks, cases)])


def refitted_rows(outcomes: Mapping[tuple[str, str], Mapping[str, Outcome]]) -> Iterator[Row]:
    """recall@10 of all questions of each set, and the differences to no keys on either half and on both."""
    at = METRICS.index("recall@10")
    for (rule, place), found in outcomes.items():
        row: Row = {"keys": rule, "as": place}
        for name, own in found.items():
            plain = outcomes[NONE, ""][name]
            row[name] = f"{np.concatenate((own.first, own.second))[:, at].mean():.3f}"
            if rule != NONE:
                row[f"± {name}, first"] = difference(own.first[:, at], plain.first[:, at])
                row[f"± {name}, second"] = difference(own.second[:, at], plain.second[:, at])
                row[f"± {name}"] = difference(
                    *(np.concatenate((each.first, each.second))[:, at] for each in (own, plain))
                )
        yield row


def difference(own: Floats, other: Floats) -> str:
    """The mean of paired differences with its interval."""
    low, high = interval(own - other)
    return f"{(own - other).mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def chosen(outcomes: Mapping[tuple[str, str], Sequence[Outcome]]) -> str:
    """The variant, keys or none, with the best recall@10 on the first half, the mean of its sets; of equal ones the
    first."""

    def recall(variant: tuple[str, str]) -> float:
        return float(np.mean([found.first[:, METRICS.index("recall@10")].mean() for found in outcomes[variant]]))

    rule, place = max(outcomes, key=recall)
    return f"{rule} as {place}" if place else rule


def cost(worlds: Sequence[World], embed: Embedder) -> Iterator[Row]:
    """What keys add to a turn that may have some: vectors, terms, and CPU time of the rules and of the embedding."""
    items = [item for world in worlds for item in world.items if item.role == "user" or item.name]
    some = [items[at * len(items) // COST_TURNS] for at in range(min(COST_TURNS, len(items)))]
    windows = [window for item in some for window in embed.windows(item.content)]
    own = _cpu_ms(lambda: embed.fresh(windows)) / len(some)
    yield {"keys": NONE, "vectors a turn": f"{len(windows) / len(some):.2f}", "embedding, CPU ms": f"{own:.1f}"}
    for rule in RULES:
        keys: list[str] = []
        by_rules = _cpu_ms(lambda: keys.extend(key for item in some for key in spoken(item, rule))) / len(some)  # noqa: B023
        embedding = _cpu_ms(lambda: embed.fresh(keys)) / len(some)  # noqa: B023
        yield {
            "keys": rule,
            "vectors a turn": f"+ {len(keys) / len(some):.2f}",
            "characters a turn": f"+ {sum(map(len, keys)) / len(some):.0f}",
            "rules, CPU ms": f"{by_rules:.2f}",
            "embedding, CPU ms": f"+ {embedding:.1f}",
        }


def _cpu_ms(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1000


# --- Keys as an ideal extractor would give them -----------------------------------------------------------------------


def ideal(worlds: Sequence[World], embed: Embedder, most: int) -> Iterator[Row]:
    """recall with keys that only somebody who knows the set's questions could give. The key of a turn that answers
    questions is those questions; other turns have the questions that rules make. `others`: all questions of the turn
    but the one that is asked, as an extractor that foresees everything else. `the same`: with it, the ceiling."""
    asked = [(world, question) for world in worlds for question in answerable(world).questions]
    some = [asked[at * len(asked) // most] for at in range(min(most, len(asked)))]
    plain = np.array([_ideal(*each, embed, None) for each in some])
    variants = [(own, place) for own in ("others", "the same") for place in PLACES]
    yield {"keys": NONE, "questions": str(len(some)), "recall@10": f"{plain[:, METRICS.index('recall@10')].mean():.3f}"}
    for own, place in variants:
        found = np.array([_ideal(*each, embed, (own == "the same", place)) for each in some])
        row: Row = {"keys": own, "as": place, "questions": str(len(some))}
        for name in SHOWN:
            at = METRICS.index(name)
            row |= {name: f"{found[:, at].mean():.3f}", f"± {name}": difference(found[:, at], plain[:, at])}
        yield row


def _ideal(world: World, asked: Question, embed: Embedder, how: tuple[bool, str] | None) -> tuple[float, ...]:
    keys = None if how is None else _foreseen(world, asked, *how)
    alone = replace(world, questions=(asked,))
    (case,) = build_cases("", [alone], embed, 1, keys)
    return _found(case)


def _foreseen(world: World, asked: Question, same: bool, place: str) -> Keys:
    words, vectors = PLACES[place]
    answers: dict[str, list[str]] = {}
    for question in world.questions:
        if same or question.query != asked.query:
            for content in question.evidence:
                answers.setdefault(content, []).append(question.query)

    def keys(item: Item) -> tuple[Sequence[str], Sequence[str]]:
        found = answers.get(item.content) or spoken(item, "questions")
        return found if words else (), found if vectors else ()

    return keys


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="sets, benchmarks/evaluation/sets.py")
    parser.add_argument("--refit", action="store_true", help="with weights fitted for keys, too")
    parser.add_argument("--ideal", type=int, help="only ideal keys, by so many questions of each set")
    parser.add_argument("--vectors", type=Path, help="file to keep the texts' vectors in between runs (.npz)")


def run(options: argparse.Namespace) -> Iterator[Section]:
    embed = Embedder(options.vectors)
    sets = {path.stem: load(path) for path in options.data}
    if options.ideal:
        for name, worlds in sets.items():
            yield Section(f"{name}: ideal keys", [*ideal(worlds, embed, options.ideal)])
            embed.save()
        return
    for name, worlds in sets.items():
        outcomes = {variant: measured(worlds, embed, keys) for variant, keys in variants().items()}
        embed.save()
        plain, best = outcomes[NONE, ""], chosen({variant: [found] for variant, found in outcomes.items()})
        counts = f"{len(plain.first)} and {len(plain.second)} questions"
        yield Section(f"{name}: {counts}, the first half chooses {best}", [*rows_of(outcomes)])
        yield Section(f"{name}: cost", [*cost(worlds, embed)])
    if options.refit:
        fitted = refitted(sets, embed)
        best = chosen({variant: [*found.values()] for variant, found in fitted.items()})
        yield Section(
            f"weights fitted for the keys, recall@10: the first halves choose {best}", [*refitted_rows(fitted)]
        )
