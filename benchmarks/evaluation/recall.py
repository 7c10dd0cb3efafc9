"""How well the service recalls, and what its score is worth: each question is one search in each mode.

A search has `now` a second after the last known item. One table is printed for each file. Recall is the part of a
question's evidence that was found, MRR knows the first 20. Differences are paired. Calibration compares the score of
hybrid's first memory with whether it is evidence: expected calibration error (ECE) in 10 bins of equal mass, and what a
perfectly calibrated score of the same values would show by chance; Brier score; AUC with which the best score tells
questions with evidence from those that were never answered.

A server that is started runs no background work, so that a set's figures are the same at each run. With --summaries it
does, and nothing is asked before each session of 20 messages or more has its summary: a memory that takes a place, and
is not evidence.
"""

import argparse
import sys
from pathlib import Path

import httpx

from benchmarks.evaluation import sets
from benchmarks.evaluation.judging import MODES, Set, ask_set
from benchmarks.evaluation.recall_report import misses, summary, table, to_json
from benchmarks.evaluation.service import Service

USER_NAME = "Jordan"
RECORDED = ("modes", "conversations", "limit", "name_users", "wall_clock", "summaries")
"""Options that the JSON repeats."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="conversations and questions")
    parser.add_argument("--modes", type=_modes, default=list(MODES), help="with commas; default: all three")
    parser.add_argument("--misses", action="store_true", help="list what the first mode did not find in five memories")
    parser.add_argument("--name-users", action="store_true", help=f"users of messages without a name are {USER_NAME}")
    parser.add_argument("--summaries", action="store_true", help="with background work, and the summaries it makes")


def load(options: argparse.Namespace) -> list[Set]:
    return [_load(path, options) for path in options.data]


def run(client: httpx.Client, asked: list[Set], options: argparse.Namespace) -> None:
    results = []
    for each in asked:
        service = Service(client, summaries=options.summaries)
        answers = ask_set(service, each, options.modes, wall_clock=options.wall_clock)
        results.append(summary(each, answers, options.modes))
        print(table(results[-1]), flush=True)
        if options.misses:
            print(misses(answers, options.modes[0]), flush=True)
        print()
    if options.json:
        given = {name: getattr(options, name) for name in RECORDED}
        options.json.write_text(to_json(results, given), encoding="utf-8")


def _load(path: Path, options: argparse.Namespace) -> Set:
    worlds = sets.fewer(sets.load(path), options.conversations, options.limit)
    if any(world.setup for world in worlds):
        sys.exit(f"{path}: stories are asked by `evaluate prompts`.")
    if options.name_users:
        worlds = [sets.with_named_users(world, USER_NAME) for world in worlds]
    return Set(path, tuple(worlds))


def _modes(text: str) -> list[str]:
    modes = text.split(",")
    if unknown := set(modes) - set(MODES):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return modes
