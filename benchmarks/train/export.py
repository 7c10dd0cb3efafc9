"""Makes the file that the service loads of a taught encoder: python -m benchmarks.train.export OUT FILE

OUT: the folder that `encoder.py` wrote. FILE: `….onnx`, in int8 as scripts/embedding_graph.py describes; its name is
the model's. Prints the sha256, which `app/embedding/onnx.py` and `app/embedding/data/README.md` hold.
"""

import argparse
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from scripts.embedding_graph import build
from scripts.make_embedding_model import ENCODER, read_weights


def layers_of(names: Iterable[str]) -> int:
    """`encoder.layer.3.output.dense.bias` and no higher one: 4."""
    return 1 + max(int(name.split(".")[2]) for name in names if name.startswith("encoder.layer."))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    weights = read_weights((given.out / "model.safetensors").read_bytes())
    made = build(replace(ENCODER, name=given.file.stem, layers=layers_of(weights)), weights)
    given.file.write_bytes(made)
    print(f"{given.file.name}: {len(made)} bytes, sha256 {hashlib.sha256(made).hexdigest()}")


if __name__ == "__main__":
    main()
