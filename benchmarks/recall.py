"""How well the service recalls, and what its score is worth: each question is one search in each mode.

    scripts/benchmark recall --data locomo.json benchmarks/data/plain_facts.jsonl --json figures.json

Each conversation of a set (benchmarks/evaluation/sets.py describes the files) becomes a user of its own. A question is
asked when the items before it are known, with `now` a second after the last of them. One table is printed for each
file. Recall is the part of a question's evidence that was found, MRR knows the first 20. Differences are paired.
Calibration compares the score of hybrid's first memory with whether it is evidence: expected calibration error (ECE) in
10 bins of equal mass, and what a perfectly calibrated score of the same values would show by chance; Brier score; AUC
with which the best score tells questions with evidence from those that were never answered.

Without --url a service is started. It runs no background work, so that a set's figures are the same at each run.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.evaluation import sets
from benchmarks.evaluation.judging import MODES, Set, ask_set
from benchmarks.evaluation.recall_report import misses, section, summary
from benchmarks.evaluation.service import Service, add_service_options, connection
from benchmarks.harness import Section

USER_NAME = "Jordan"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_service_options(parser)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="conversations and questions")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--misses", action="store_true", help="list what the first mode did not find in five memories")
    parser.add_argument("--name-users", action="store_true", help=f"users of messages without a name are {USER_NAME}")


def run(options: argparse.Namespace) -> Iterator[Section]:
    loaded = [_load(path, options) for path in options.data]
    with connection(options.url, options.key, background=False) as client:
        for each in loaded:
            service = Service(client)
            answers = ask_set(service, each, options.modes, wall_clock=options.wall_clock)
            missed = misses(answers, options.modes[0]) if options.misses else []
            yield section(summary(each, answers, options.modes), missed)


def _load(path: Path, options: argparse.Namespace) -> Set:
    worlds = sets.fewer(sets.load(path), options.conversations, options.limit)
    if any(world.setup for world in worlds):
        sys.exit(f"{path}: stories are asked by `benchmark prompts`.")
    if options.name_users:
        worlds = [sets.with_named_users(world, USER_NAME) for world in worlds]
    return Set(path, tuple(worlds))
