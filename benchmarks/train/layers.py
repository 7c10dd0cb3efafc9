"""A graph of fewer layers, for speed: python -m benchmarks.train.layers OUT --base FOLDER --layers 4

Keeps the first layers of an encoder and teaches them to give the vectors that all of its layers give (1 − cosine), on
the memories and questions of `lives/train`. So the result stands in one space with the whole encoder. OUT is a folder
of sentence-transformers. Seeded; goes on from OUT/state.pt where it was stopped.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from benchmarks.train.encoder import MOST_CHARACTERS, MOST_TOKENS, shortened, teach, vectors_of
from benchmarks.train.measure import encoders
from benchmarks.train.worlds import LIVES, World, lives, without_speakers


def texts_of(worlds: Sequence[World]) -> list[str]:
    """Each memory and each question once."""
    every = (
        text
        for world in worlds
        for text in (*world.texts, *(without_speakers(asked.query, world.speakers) for asked in world.questions))
    )
    return sorted({text[:MOST_CHARACTERS] for text in every})


def batches_of(texts: Sequence[str], size: int, passes: int, chance: random.Random) -> list[list[str]]:
    """Batches of texts of like length, in an order of chance."""
    batches: list[list[str]] = []
    for _ in range(passes):
        mixed = sorted(texts, key=lambda text: len(text.encode()) + chance.random() * 16)
        own = [mixed[begin : begin + size] for begin in range(0, len(mixed), size)]
        chance.shuffle(own)
        batches += own
    return batches


class Copy(torch.nn.Module):  # type: ignore[misc]
    """The shortened encoder, which learns the vectors that the whole one gives its texts."""

    def __init__(self, model: SentenceTransformer, wanted: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.wanted = model, wanted

    def loss(self, batch: Sequence[str]) -> Any:
        wanted = torch.stack([self.wanted[text] for text in batch])
        return (1 - (vectors_of(self.model, batch) * wanted).sum(1)).mean()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers: the whole encoder")
    parser.add_argument(
        "--like", help="what gives the vectors: any MODEL of benchmarks.train.measure; default: the base"
    )
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--texts", type=int, help="no more of them, taken by chance; default: all")
    parser.add_argument("--passes", type=int, default=3, help="over all texts")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args(arguments)
    torch.manual_seed(given.seed)
    torch.set_num_threads(given.threads)
    student = SentenceTransformer(given.base, device="cpu")
    student.max_seq_length = MOST_TOKENS
    shortened(student, given.layers)
    chance = random.Random(given.seed)
    texts = texts_of(lives(LIVES / "train"))
    if given.texts:
        texts = sorted(chance.sample(texts, given.texts))
    _, whole = encoders(given.like or given.base)
    wanted = dict(zip(texts, torch.tensor(whole(texts)), strict=True))
    batches = batches_of(texts, given.batch, given.passes, chance)
    print(f"{len(texts)} texts, {len(batches)} batches", flush=True)
    teach(Copy(student, wanted), batches, given.out, given.rate, 50)
    student.save(str(given.out))


if __name__ == "__main__":
    main()
