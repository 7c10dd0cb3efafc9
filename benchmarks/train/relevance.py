"""Teaches a judge of relevance, which reads a query and a memory at once: python -m benchmarks.train.relevance OUT …

Of each question it sees one memory that answers it and several that do not: turns that are wrong by then, and first
hits of vector search. Of a question that was never answered, and of small talk, it sees first hits alone. Two losses
are added: that the answer has the highest number of its question, and that the number is the log-odds of an answer.
"""

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.train.cross import Cross, teach
from benchmarks.train.measure import Encode, encoder
from benchmarks.train.worlds import LIVES, TAUGHT, World, lives, sets

MOST_CHARACTERS = 320
FIRST = 12
"""Hits of vector search that negatives are drawn from; the service judges as many."""


@dataclass(frozen=True, slots=True)
class Example:
    query: str
    answer: str | None
    others: tuple[str, ...]


def told(label: str, text: str) -> str:
    """A memory as the judge reads it: who said it and when, then the text."""
    return f"{label}: {text[:MOST_CHARACTERS]}" if label else text[:MOST_CHARACTERS]


def examples(encode: Encode, worlds: Sequence[World], others: int, chance: random.Random) -> list[Example]:
    """One for each question and each memory that answers it, at most two a question."""
    found = []
    for world in worlds:
        texts, queries = (
            encode([text[:MOST_CHARACTERS] for text in world.texts]),
            encode([asked.query for asked in world.questions]),
        )
        labels = world.labels or ("",) * len(world.texts)
        for vector, asked in zip(queries, world.questions, strict=True):
            right = [place for place in asked.right if place < asked.known]
            nearest = np.argsort(-(texts[: asked.known] @ vector))[:FIRST].tolist()
            near = [place for place in nearest if place not in asked.right and place not in asked.wrong]
            wrong = [place for place in asked.wrong if place < asked.known]
            for answer in chance.sample(right, min(2, len(right))) if right else (None,):
                chosen = chance.sample(wrong, min(others // 2, len(wrong)))
                chosen += chance.sample(near, min(others - len(chosen), len(near)))
                shown = tuple(told(labels[place], world.texts[place]) for place in chosen)
                if shown:
                    best = None if answer is None else told(labels[answer], world.texts[answer])
                    found.append(Example(asked.query, best, shown))
    return found


def loss_of(model: Cross, batch: Sequence[Example]) -> Any:
    rows = [(each.query, text) for each in batch for text in (*((each.answer,) if each.answer else ()), *each.others)]
    odds = model(rows)
    truth, losses, begin = torch.zeros(len(rows)), [], 0
    for each in batch:
        end = begin + bool(each.answer) + len(each.others)
        if each.answer:
            truth[begin] = 1
            losses.append(-torch.log_softmax(odds[begin:end], 0)[0])
        begin = end
    order = torch.stack(losses).mean() if losses else odds.sum() * 0
    return order + torch.nn.functional.binary_cross_entropy_with_logits(odds, truth)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers with the weights to begin with")
    parser.add_argument("--encoder", required=True, help="a taught encoder, which finds the negatives")
    parser.add_argument("--data", type=Path, help="folder of the sets that are not in this repository")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--others", type=int, default=4, help="memories a question that do not answer it")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most, without the search for negatives")
    parser.add_argument("--batch", type=int, default=8, help="questions")
    parser.add_argument("--rate", type=float, default=6e-5)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    chance = random.Random(given.seed)
    torch.manual_seed(given.seed)
    worlds = lives(LIVES / "train")
    if given.data:
        worlds += [world for _, world in sets(given.data, TAUGHT)]
    found = examples(encoder(given.encoder, rough=True), worlds, given.others, chance)
    row = [example for _ in range(math.ceil(given.epochs)) for example in chance.sample(found, len(found))]
    row = row[: round(given.epochs * len(found))]
    batches = [row[begin : begin + given.batch] for begin in range(0, len(row), given.batch)]
    print(f"{len(found)} examples, {len(batches)} batches", flush=True)
    model, started = Cross(given.base, given.layers), time.monotonic()

    def each(step: int, mean: float) -> None:
        if step % 50 == 0:
            print(f"step {step} of {len(batches)}, loss {mean:.3f}, {time.monotonic() - started:.0f} s", flush=True)
        if step % 200 == 199:
            model.save(given.out)

    teach(model, batches, lambda batch: loss_of(model, batch), given.rate, each, given.minutes)
    model.save(given.out)


if __name__ == "__main__":
    main()
