"""How much of what a question needs stands in the prompt: each question is one context for each budget.

    scripts/benchmark prompts                                   # stories of our own, five languages
    scripts/benchmark prompts --data FILE... --json figures.json

The `text` of the answer is what counts; benchmarks/evaluation/scoring.py says how a memory is counted. A question's
figure is the mean over the memories that it needs, a row's figure the mean over its questions, in brackets the 95 %
bootstrap interval over questions. `tokens` is the mean of the tokens used. `overhead` is what the section `memories`
spends on a memory beyond the memory's own words.

Where each of several memories tells the answer, one of them is enough: with --any a question's figure is the largest of
its memories'. --last asks only the last question of each conversation.

Without --data the stories of benchmarks/data/prompt_stories.json are asked: orders, how-tos, greetings, single words
and pinned rules in five languages; --part selects from them. Without --url a service is started.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.evaluation import scoring, sets
from benchmarks.evaluation.measures import interval
from benchmarks.evaluation.scoring import Passage
from benchmarks.evaluation.service import Service, add_service_options, connection
from benchmarks.evaluation.sets import World, answerable, fewer
from benchmarks.harness import ROOT, Row, Section

Enough = Callable[[Sequence[float]], float]
STORIES = ROOT / "benchmarks" / "data" / "prompt_stories.json"


@dataclass(frozen=True, slots=True)
class Score:
    """One question at one budget."""

    group: str
    kind: str
    budget: int
    share: float
    tokens: int
    overhead: float | None
    """None when no memory was packed."""
    degraded: bool


def ask_world(
    service: Service,
    world: World,
    budgets: Sequence[int],
    *,
    wall_clock: bool,
    fill: bool = False,
    enough: Enough = fmean,
) -> Iterator[Score]:
    """`fill`: fills the budgets. `enough`: makes a question's figure of the shares of its memories."""
    owner = service.owner(world)
    idf = scoring.inverse_frequencies(world.contents)
    memories: dict[str, Passage] = {}
    for step in service.steps(world, owner):
        memories |= {name: scoring.passage(text) for name, text in step.contents.items()}
        now = {} if wall_clock else step.now
        for question in step.questions:
            evidence = [scoring.passage(text) for text in question.evidence]
            windows = [scoring.nearest_window(each, question.query, idf) for each in evidence]
            for budget in budgets:
                asked = {
                    **owner,
                    "query": question.query,
                    "token_budget": budget,
                    **now,
                    **({"fill": True} if fill else {}),
                }
                answer, degraded = service.context(asked)
                prompt = scoring.passage(answer["text"])
                shares = [
                    scoring.evidence_share(each, window, prompt) for each, window in zip(evidence, windows, strict=True)
                ]
                spent = _overhead(answer, memories, prompt)
                used = answer["tokens"]
                yield Score(question.group, question.kind, budget, enough(shares), used, spent, degraded)


def _overhead(answer: dict[str, Any], memories: dict[str, Passage], prompt: Passage) -> float | None:
    section = next((each for each in answer["sections"] if each["name"] == "memories"), None)
    packed = [memories[item["id"]] for item in section["items"] if item["id"] in memories] if section else []
    return scoring.overhead(section["tokens"], packed, prompt) if section and packed else None


def evaluate(
    service: Service,
    worlds: Sequence[World],
    budgets: Sequence[int],
    *,
    wall_clock: bool,
    fill: bool = False,
    enough: Enough = fmean,
) -> list[Score]:
    scores = list[Score]()
    for world in worlds:
        start = time.perf_counter()
        scores += ask_world(service, world, budgets, wall_clock=wall_clock, fill=fill, enough=enough)
        took = time.perf_counter() - start
        print(f"{world.name}: {len(world.questions)} questions in {took:.0f} s", file=sys.stderr)
    return scores


def summary(scores: Sequence[Score]) -> dict[str, dict[str, dict[str, Any]]]:
    """Figures by row and budget, rows in the order in which they were asked."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, budget in dict.fromkeys((score.group, score.budget) for score in scores):
        found.setdefault(group, {})[str(budget)] = _figures(
            [score for score in scores if (score.group, score.budget) == (group, budget)]
        )
    return found


def _figures(scores: Sequence[Score]) -> dict[str, Any]:
    shares = [score.share for score in scores]
    spent = [score.overhead for score in scores if score.overhead is not None]
    kinds = dict.fromkeys(score.kind for score in scores)
    return {
        "questions": len(scores),
        "share": round(fmean(shares), 4),
        "interval": [round(bound, 4) for bound in interval(shares)],
        "tokens": round(fmean(score.tokens for score in scores), 1),
        "overhead": round(fmean(spent), 2) if spent else None,
        "overhead_interval": [round(bound, 2) for bound in interval(spent)] if spent else None,
        "degraded": sum(score.degraded for score in scores),
        "kinds": {kind: round(fmean(s.share for s in scores if s.kind == kind), 4) for kind in kinds},
    }


def section(found: dict[str, dict[str, dict[str, Any]]], budgets: Sequence[int]) -> Section:
    """A row for each set, with its figures at each budget."""
    rows: list[Row] = []
    for group, by_budget in found.items():
        figures = [by_budget[str(budget)] for budget in budgets]
        row: Row = {"set": group, "questions": figures[0]["questions"]}
        for budget, each in zip(budgets, figures, strict=True):
            row[f"{budget:,}"] = f"{each['share']:.3f} ({_span(each['interval'], 2)})"
            row[f"tokens of {budget:,}"] = round(each["tokens"])
        spent = by_budget.get("2000", figures[-1])
        known = spent["overhead"] is not None
        row["overhead"] = f"{spent['overhead']:.1f} ({_span(spent['overhead_interval'], 1)})" if known else None
        rows.append(row)
    lacking = sum(each["degraded"] for by_budget in found.values() for each in by_budget.values())
    notes = [f"{lacking} answers lacked a section, or the vector of the query."] if lacking else []
    return Section("prompts", rows, notes=notes, figures=found)


def _span(bounds: Sequence[float], digits: int) -> str:
    return "–".join(f"{bound:.{digits}f}" for bound in bounds)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_service_options(parser)
    parser.add_argument("--data", type=Path, nargs="+", default=[STORIES], help="conversations and questions (JSON)")
    parser.add_argument("--budgets", type=int, nargs="+", default=[500, 1000, 2000, 4000], help="tokens")
    parser.add_argument("--part", choices=("dev", "held_out", "all"), default="dev", help="which worlds of the stories")
    parser.add_argument("--any", action="store_true", help="one of the memories that a question needs is enough")
    parser.add_argument("--last", action="store_true", help="only the last question of each conversation")
    parser.add_argument("--fill", action="store_true", help="fill the budgets, however little is likely to help")
    parser.add_argument("--reflect", action="store_true", help="let the service reflect before questions are asked")


def run(options: argparse.Namespace) -> Iterator[Section]:
    files = [[answerable(world) for world in sets.load(path, options.part)] for path in options.data]
    worlds = [world for loaded in files for world in fewer(loaded, options.conversations, options.limit)]
    if options.last:
        worlds = [replace(world, questions=world.questions[-1:]) for world in worlds]
    enough: Enough = max if options.any else fmean
    with connection(options.url, options.key) as client:
        service = Service(client, reflects=options.reflect)
        scores = evaluate(
            service, worlds, options.budgets, wall_clock=options.wall_clock, fill=options.fill, enough=enough
        )
    yield section(summary(scores), options.budgets)
