"""Fits the direction of negation of an embedding model (app/retrieval/query.py), and judges it on languages and
statements that were left out.

    .venv/bin/python scripts/fit_negation.py [--model multilingual]

Writes `app/retrieval/data/negation_MODEL.npy`: the mean difference of the vectors of a statement and of what denies it,
of unit length (benchmarks/data/negation/statements.toml).
"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from numpy.typing import NDArray

from app.embedding.factory import DEFAULT_MODEL, load_model
from app.embedding.model import Model, without_runtime
from app.retrieval.query import FOLDER
from app.storage.search import Floats
from benchmarks.harness import Row, table

STATEMENTS = Path(__file__).resolve().parent.parent / "benchmarks" / "data" / "negation" / "statements.toml"
BATCH = 16


def differences(model: Model, pairs: Sequence[Sequence[str]], things: Sequence[str]) -> Floats:
    """Returns the vector of what denies a statement less that of the statement, shape (pairs, things, dim)."""

    def vectors(side: int) -> Floats:
        texts = [model.prompts.passage + pair[side].format(thing) for pair in pairs for thing in things]
        return np.concatenate([model.encode(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)])

    found: Floats = (vectors(1) - vectors(0)).reshape(len(pairs), len(things), -1)
    return found


def direction(of_languages: Sequence[Floats]) -> NDArray[np.float32]:
    """Returns the mean of all differences, of unit length."""
    mean = np.concatenate([found.reshape(-1, found.shape[-1]) for found in of_languages]).mean(axis=0)
    found: NDArray[np.float32] = (mean / np.linalg.norm(mean)).astype(np.float32)
    return found


def judged(language: str, found: dict[str, Floats]) -> Row:
    """A row of the table: how often what denies lies farther along the direction, and how far, in the mean."""
    others = [each for name, each in found.items() if name != language]
    without = found[language] @ direction(others)
    mine = found[language]
    left_out = [
        mine[at] @ direction([*others, np.delete(mine, at, axis=0)]) for at in range(len(mine))
    ]  # with the other statements of the language
    return {
        "language": language,
        "pairs": without.size,
        "language left out": f"{(without > 0).mean():.2f}",
        "by": f"{without.mean():.3f}",
        "statement left out": f"{(np.concatenate(left_out) > 0).mean():.2f}",
        "by ": f"{np.mean(left_out):.3f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="as RECALLD_EMBEDDING_MODEL names it")
    model = load_model(parser.parse_args().model)
    raw = tomllib.loads(STATEMENTS.read_text(encoding="utf-8"))
    found = {language: differences(model, each["pairs"], each["things"]) for language, each in raw.items()}
    print(table([judged(language, found) for language in found]))
    path = FOLDER / f"negation_{without_runtime(model.name)}.npy"
    np.save(path, direction([*found.values()]))
    print(f"\nWrote {path}")


if __name__ == "__main__":
    main()
