"""How well a running service recalls, and what its score is worth: the questions of any set, over HTTP.

    .venv/bin/python scripts/evaluate_recall.py --data FILE... [--modes hybrid,vector,text] [--url URL] [--key KEY]
        [--conversations N] [--limit N] [--json FILE] [--misses] [--name-users] [--wall-clock]
        [--summaries]

Each conversation becomes a user of its own. Its messages go in through /v1/sessions/{id}/messages, with speaker and
time, its facts through /v1/memories/batch with `event_at`; a question that is asked when only the first items are known
is asked before the others go in. Each question is one search in each mode, with `now` a second after the last known
item.

Prints one table for each file. Recall is the part of a question's evidence that was found, MRR knows the first 20.
Differences are paired. Calibration compares the score of hybrid's first memory with whether it is evidence: expected
calibration error (ECE) in 10 bins of equal mass, and what a perfectly calibrated score of the same values would show by
chance; Brier score; AUC with which the best score tells questions with evidence from those that were never answered.
Without --url a server is started, and stopped at the end. It runs no background work, so that a set's figures are the
same at each run. With --summaries it does, and nothing is asked before each session of 20 messages or more has its
summary: a memory that takes a place, and is not evidence.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.evaluation import sets
from scripts.evaluation.recall import MODES, Set, ask_set
from scripts.evaluation.recall_report import misses, summary, table, to_json
from scripts.evaluation.server import connection
from scripts.evaluation.service import Service

USER_NAME = "Jordan"
RECORDED = ("modes", "conversations", "limit", "name_users", "wall_clock", "summaries")
"""Options that the JSON repeats."""


def main() -> None:
    options = _options()
    asked = [_load(path, options) for path in options.data]
    results = []
    with connection(options.url, options.key, background=options.summaries) as client:
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
        sys.exit(f"{path}: stories are asked by evaluate_prompts.py.")
    if options.name_users:
        worlds = [sets.with_named_users(world, USER_NAME) for world in worlds]
    return Set(path, tuple(worlds))


def _options() -> argparse.Namespace:
    described = f"{__doc__}\n{sets.__doc__}"
    parser = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="conversations and questions")
    parser.add_argument("--modes", type=_modes, default=list(MODES), help="with commas; default: all three")
    parser.add_argument("--url", help="a running service; without it one is started")
    parser.add_argument("--key", help="its API key")
    parser.add_argument("--conversations", type=int, help="only the first N of each file")
    parser.add_argument("--limit", type=int, help="only N questions of each conversation, spread over all")
    parser.add_argument("--json", type=Path, help="write the figures here too, and each question's")
    parser.add_argument("--misses", action="store_true", help="list what the first mode did not find in five memories")
    parser.add_argument("--name-users", action="store_true", help=f"users of messages without a name are {USER_NAME}")
    parser.add_argument("--wall-clock", action="store_true", help="ask without `now`")
    parser.add_argument("--summaries", action="store_true", help="with background work, and the summaries it makes")
    return parser.parse_args()


def _modes(text: str) -> list[str]:
    modes = text.split(",")
    if unknown := set(modes) - set(MODES):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return modes


if __name__ == "__main__":
    main()
