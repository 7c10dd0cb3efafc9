"""Pairs of turns as a judge of two statements would meet them behind a write: python -m benchmarks.train.neighbours OUT

For each turn of a person in `lives/train` and `lives/choose`: the nearest earlier turns of the same speaker, by the
vectors that the service makes, so it runs in the service's environment. Writes OUT/train.json and OUT/choose.json. A
pair is a change where a question of the life has the later turn among its right answers and the earlier one among the
wrong ones. No question asks of all changes, so some pairs that are none by this are one.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from app.embedding.onnx import TAUGHT, load_packaged
from app.retrieval.model_weights import weights_for
from benchmarks.train.worlds import LIVES, days_of

NEIGHBOURS = 8


def pairs_of(life: dict[str, Any], model: Any) -> list[dict[str, Any]]:
    turns = [turn for turn in life["turns"] if turn["role"] != "assistant"]
    changes = {(worse, best) for asked in life["questions"] for worse in asked["worse"] for best in asked["best"]}
    vectors, least = model.encode([turn["text"] for turn in turns]), weights_for(model.name).unrelated
    cosines = vectors @ vectors.T
    pairs = []
    for at, later in enumerate(turns):
        speaker = later["role"], later.get("name")
        near = [place for place in range(at) if cosines[at, place] >= least]
        near = [place for place in near if (turns[place]["role"], turns[place].get("name")) == speaker]
        for place in sorted(near, key=lambda place: -cosines[at, place])[:NEIGHBOURS]:
            earlier = turns[place]
            pairs.append(
                {
                    "language": life["language"],
                    "earlier": earlier["text"],
                    "later": later["text"],
                    "change": (earlier["id"], later["id"]) in changes,
                    "days": days_of(later["time"][:10]) - days_of(earlier["time"][:10]),
                }
            )
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    model = load_packaged(TAUGHT)
    for part in ("train", "choose"):
        files = sorted((LIVES / part).glob("*.json"))
        pairs = [pair for file in files for pair in pairs_of(json.loads(file.read_text(encoding="utf-8")), model)]
        (given.out / f"{part}.json").write_text(json.dumps(pairs, ensure_ascii=False), encoding="utf-8")
        print(f"{part}: {len(pairs)} pairs, {sum(pair['change'] for pair in pairs)} of them changes")


if __name__ == "__main__":
    main()
