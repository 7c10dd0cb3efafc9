"""Which pairs of near texts are merged: by the rule of `app/learning/consolidation_job.py`, and by cosine alone.

    scripts/benchmark merging --pairs

The file holds a pair on each line: {"one", "other", "same"}, `same` saying whether they mean the same.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from app.core.language import wording
from app.embedding.factory import DEFAULT_MODEL, load_model
from app.memories.create import SIMILAR
from benchmarks.harness import ROOT, Section


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=ROOT / "benchmarks" / "data" / "near_pairs.jsonl")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="as RECALLD_EMBEDDING_MODEL names it")
    parser.add_argument("--pairs", action="store_true", help="every pair, with its cosine")


def run(options: argparse.Namespace) -> Iterator[Section]:
    pairs = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
    model = load_model(options.model)
    ones, others = (model.encode([model.prompts.passage + pair[side] for pair in pairs]) for side in ("one", "other"))
    for pair, cosine in zip(pairs, (ones * others).sum(axis=1).tolist(), strict=True):
        pair |= {"cosine": cosine, "near": cosine >= SIMILAR, "merged": wording(pair["one"]) == wording(pair["other"])}
    rows = []
    for meaning, same in (("the same", True), ("something else", False)):
        of = [pair for pair in pairs if pair["same"] is same]
        counts = {"merged": sum(pair["merged"] for pair in of), f"cosine ≥ {SIMILAR}": sum(pair["near"] for pair in of)}
        rows.append({"pairs that mean": meaning, "pairs": len(of), **counts})
    shown = [
        f"{pair['cosine']:.3f} {'merged' if pair['merged'] else '':6} {pair['one']} | {pair['other']}" for pair in pairs
    ]
    yield Section("merging", rows, notes=shown if options.pairs else ())
