"""Makes a folder of sentence-transformers of a file that the service loads: python -m benchmarks.train.weights FILE OUT

So one goes on from `recalld-minilm-1`, whose weights are kept in int8 only: undoes `scripts/embedding_graph.py`.
`--average`: share of the base's weights in the result.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from sentence_transformers import SentenceTransformer

from benchmarks.train.encoder import averaged

PARTS = ("query", "key", "value")


def weights_of(file: Path) -> dict[str, Any]:
    """Tensors of BERT by their names. The positions hold the vector of token type 0, whose own is 0."""
    kept = {each.name: numpy_helper.to_array(each) for each in onnx.load(str(file)).graph.initializer}
    found = {
        "embeddings.word_embeddings.weight": kept["words"] * kept["words.scale"],
        "embeddings.position_embeddings.weight": kept["positions"][0],
        "embeddings.token_type_embeddings.weight": np.zeros((2, kept["words"].shape[1])),
        "embeddings.LayerNorm.weight": kept["embedding.gain"],
        "embeddings.LayerNorm.bias": kept["embedding.shift"],
    }
    number = 0
    while f"layer{number}.divisor" in kept:
        here, divisor = f"encoder.layer.{number}", kept[f"layer{number}.divisor"]
        linear = {
            part: (kept[f"layer{number}.{part}.weight"] * kept[f"layer{number}.{part}.scale"]).T
            for part in ("joined", "attention", "inner", "outer")
        }
        bias = {part: kept[f"layer{number}.{part}.bias"] for part in linear}
        joined = zip(PARTS, np.split(linear["joined"], 3), np.split(bias["joined"], 3), strict=True)
        made = {f"attention.self.{part}": both for part, *both in joined} | {
            "attention.output.dense": (linear["attention"], bias["attention"]),
            "attention.output.LayerNorm": [kept[f"layer{number}.mixed.{each}"] * divisor for each in ("gain", "shift")],
            "intermediate.dense": (linear["inner"] / divisor, bias["inner"]),
            "output.dense": (linear["outer"], bias["outer"]),
            "output.LayerNorm": [kept[_last(kept, number, each)] for each in ("gain", "shift")],
        }
        for name, (weight, shift) in made.items():
            found |= {f"{here}.{name}.weight": weight, f"{here}.{name}.bias": shift}
        number += 1
    return {name: torch.tensor(np.asarray(value, np.float32)) for name, value in found.items()}


def _last(kept: dict[str, Any], number: int, each: str) -> str:
    name = f"layer{number}.output.{each}"
    return name if name in kept else f"last_hidden_state.{each}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers with the official weights")
    parser.add_argument("--average", type=float, default=0.0)
    given = parser.parse_args(arguments)
    model, base = (SentenceTransformer(given.base, device="cpu") for _ in range(2))
    bert = model[0].auto_model
    missing = bert.load_state_dict(weights_of(given.file), strict=False)
    assert not missing.unexpected_keys, missing
    print(f"kept of the base: {missing.missing_keys}")
    averaged(model, base, given.average)
    model.save(str(given.out))


if __name__ == "__main__":
    main()
