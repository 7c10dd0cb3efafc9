"""Find the directions in which the vectors of the multilingual model differ by language alone.

    python scripts/make_multilingual_model.py FOLDER --plain     # with the packages of requirements/multilingual.txt
    .venv/bin/python scripts/fit_languages.py FOLDER

scripts/multilingual/sentences.json holds the same sentences in 20 languages. Where the means of the languages lie
apart, it is not by what the sentences say. Their first principal directions are written to languages.npy beside them,
after the mean, and make_multilingual_model.py takes them out of all vectors (Yang et al., EMNLP 2021: "A Simple and
Effective Method To Eliminate the Self Language Bias in Multilingual Representations"). Each language has two means,
one by the prompt of queries and one by that of passages, so that the difference between both prompts is taken out, too.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from app.embedding.onnx import load_folder

FOLDER = Path(__file__).parent / "multilingual"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a folder made with --plain")
    model = load_folder(parser.parse_args().model)
    languages = json.loads((FOLDER / "sentences.json").read_text(encoding="utf-8")).values()
    means = np.stack(
        [
            model.encode([prompt + sentence for sentence in sentences]).mean(axis=0)
            for prompt in (model.prompts.passage, model.prompts.query)
            for sentences in languages
        ]
    )
    mean = means.mean(axis=0)
    _, spread, directions = np.linalg.svd(means - mean, full_matrices=False)
    count = len(languages) - 1
    np.save(FOLDER / "languages.npy", np.concatenate((mean[None], directions[:count])))
    share = (spread[:count] ** 2).sum() / (spread**2).sum()
    print(f"{count} directions hold {share:.0%} of what the means of {len(languages)} languages differ by")


if __name__ == "__main__":
    main()
