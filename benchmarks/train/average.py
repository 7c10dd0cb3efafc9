"""Averages the weights of two taught encoders: python -m benchmarks.train.average OUT FIRST SECOND [--share 0.25]

All are folders of sentence-transformers; `--share` is the second one's. Of two seeds, or of a taught one and its base.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from sentence_transformers import SentenceTransformer

from benchmarks.train.encoder import averaged


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--share", type=float, default=0.5)
    given = parser.parse_args(arguments)
    model, other = (SentenceTransformer(folder, device="cpu") for folder in (given.first, given.second))
    averaged(model, other, given.share)
    model.save(str(given.out))


if __name__ == "__main__":
    main()
