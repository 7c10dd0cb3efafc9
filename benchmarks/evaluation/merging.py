"""Which pairs of near texts are merged: by the rule of `app/learning/deduplication.py`, and by cosine alone.

The file holds a pair on each line: {"one", "other", "same"}, `same` saying whether they mean the same.
"""

import argparse
import json
from pathlib import Path

from app.embedding.factory import DEFAULT_MODEL, load_model
from app.learning.deduplication import claim
from app.memories.succession import SIMILAR
from benchmarks.harness import ROOT

DATA = ROOT / "tests" / "data" / "near_pairs.jsonl"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="as RECALLD_EMBEDDING_MODEL names it")
    parser.add_argument("--pairs", action="store_true", help="every pair, with its cosine")


def run(options: argparse.Namespace) -> None:
    pairs = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
    model = load_model(options.model)
    prompt = model.prompts.passage
    ones, others = (model.encode([prompt + pair[side] for pair in pairs]) for side in ("one", "other"))
    cosines = (ones * others).sum(axis=1).tolist()
    merged = [claim(pair["one"]) == claim(pair["other"]) for pair in pairs]
    for meaning in (True, False):
        of = [at for at, pair in enumerate(pairs) if pair["same"] is meaning]
        near = sum(cosines[at] >= SIMILAR for at in of)
        told = "the same" if meaning else "something else"
        print(f"{len(of)} pairs that mean {told}: {sum(merged[at] for at in of)} merged; cosine ≥ {SIMILAR}: {near}")
        for at in of if options.pairs else ():
            mark = "merged" if merged[at] else ""
            print(f"  {cosines[at]:.3f} {mark:6} {pairs[at]['one']} | {pairs[at]['other']}")
