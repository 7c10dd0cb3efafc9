"""Teaches all-MiniLM-L6-v2 what memory is asked: python -m benchmarks.train.encoder OUT [--data FOLDER] …

Contrastive: a question is drawn to a memory that answers it, away from a wrong or near one of the same life, and from
the memories of the other questions of its batch (InfoNCE, van den Oord et al. 2018; scale as in sentence-transformers'
MultipleNegativesRankingLoss). A batch takes a few questions from each of several lives, so that both the owner's other
memories and strangers' are among what it is drawn away from. A memory that answers a question too is no negative of it.

`--absolute`: weight of a second loss, by which the cosine itself tells an answer (above a threshold that is learned)
from the nearest memory of a question whose answer was never said.

Same seed and same data give the same plan of batches. The state is written each `--save` steps into OUT/state.pt; the
same command goes on from there. OUT is a folder of sentence-transformers in the end.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from benchmarks.train.cross import precision
from benchmarks.train.measure import Encode
from benchmarks.train.worlds import LIVES, TAUGHT, World, lives, sets, without_speakers

MOST_CHARACTERS = 320
"""Of a text while it is taught: longer ones take most of the time and teach no more."""
MOST_TOKENS = 128
NEAR = slice(2, 30)
"""Ranks of near misses. The very first may answer too, without being named."""


@dataclass(frozen=True, slots=True)
class Example:
    world: int
    query: str
    answer: str | None
    """None: it was never said."""
    negatives: tuple[str, ...]
    answers: frozenset[str]


def examples(encode: Encode, worlds: Sequence[World], hard: int, chance: random.Random) -> list[Example]:
    """One example for each question and each memory that answers it, at most three a question."""
    found = []
    for number, world in enumerate(worlds):
        texts = encode(world.texts)
        queries = [without_speakers(asked.query, world.speakers) for asked in world.questions]
        for vector, query, asked in zip(encode(queries), queries, world.questions, strict=True):
            if asked.kind == "small":
                continue
            answers = frozenset(world.texts[place][:MOST_CHARACTERS] for place in asked.right)
            ranked = np.argsort(-(texts[: asked.known] @ vector))[NEAR if answers else slice(0, 8)]
            near = [text for place in ranked if (text := world.texts[place][:MOST_CHARACTERS]) not in answers]
            wrong = [world.texts[place][:MOST_CHARACTERS] for place in asked.wrong]
            right = sorted(answers) if len(answers) <= 3 else chance.sample(sorted(answers), 3)
            for answer in (*right,) if right else (None,):
                negatives = chance.sample(wrong, min(hard, len(wrong)))
                negatives += chance.sample(near, min(hard - len(negatives), len(near)))
                if len(negatives) == hard:
                    found.append(Example(number, query, answer, tuple(negatives), answers))
    return found


def plan(
    found: Sequence[Example], size: int, by_world: int, epochs: float, chance: random.Random
) -> list[list[Example]]:
    """Batches of `size`, in which each world has up to `by_world` examples in a row."""
    batches: list[list[Example]] = []
    while len(batches) < epochs * len(found) / size:
        chunks = []
        for number in sorted({example.world for example in found}):
            own = [example for example in found if example.world == number]
            chance.shuffle(own)
            chunks += [own[begin : begin + by_world] for begin in range(0, len(own), by_world)]
        chance.shuffle(chunks)
        row = [example for chunk in chunks for example in chunk]
        batches += [row[begin : begin + size] for begin in range(0, len(row) - size // 2, size)]
    return batches[: round(epochs * len(found) / size)]


class Teacher:
    def __init__(self, model: SentenceTransformer, scale: float, absolute: float) -> None:
        self.model, self.scale, self.absolute = model, scale, absolute
        self.odds = torch.nn.Parameter(torch.tensor([10.0, -4.0]))
        """Log-odds that a memory answers: slope · cosine + offset."""

    def parameters(self) -> list[Any]:
        return [*self.model.parameters(), self.odds]

    def loss(self, batch: Sequence[Example]) -> Any:
        asked = [example for example in batch if example.answer is not None]
        told = [
            *(example.answer or "" for example in asked),
            *(text for example in asked for text in example.negatives),
        ]
        queries, memories = self.vectors([example.query for example in asked]), self.vectors(told)
        cosines = queries @ memories.T
        blocked = torch.tensor(
            [
                [place != row and text in example.answers for place, text in enumerate(told)]
                for row, example in enumerate(asked)
            ]
        )
        scores = (cosines * self.scale).masked_fill(blocked, -1e4)
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(asked)))
        if not self.absolute:
            return loss
        never = [example for example in batch if example.answer is None]
        near = torch.zeros(0)
        if never:
            questions = self.vectors([example.query for example in never])
            near = (questions * self.vectors([example.negatives[0] for example in never])).sum(-1)
        both = torch.cat([cosines.diagonal(), near])
        truth = torch.cat([torch.ones(len(asked)), torch.zeros(len(near))])
        odds = self.odds[0] * both + self.odds[1]
        return loss + self.absolute * torch.nn.functional.binary_cross_entropy_with_logits(odds, truth)

    def vectors(self, texts: Sequence[str]) -> Any:
        tokens = self.model.tokenize(list(texts))
        with precision():
            made = self.model(tokens)["sentence_embedding"]
        return torch.nn.functional.normalize(made.float(), dim=-1)


def teach(teacher: Teacher, batches: Sequence[Sequence[Example]], out: Path, rate: float, save: int) -> None:
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=rate, weight_decay=0.01)
    steps, warm = len(batches), max(1, len(batches) // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
    )
    parts = {"model": teacher.model, "optimizer": optimizer, "schedule": schedule}
    state, begin = out / "state.pt", 0
    if state.exists():
        kept = torch.load(state, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(kept[name])
        teacher.odds.data, begin = kept["odds"], kept["step"]
    teacher.model.train()
    mean = None
    for step in range(begin, steps):
        loss = teacher.loss(batches[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step} of {steps}, loss {mean:.3f}, odds {teacher.odds.tolist()}", flush=True)
        if save and (step + 1) % save == 0:
            out.mkdir(parents=True, exist_ok=True)
            kept = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**kept, "odds": teacher.odds.data, "step": step + 1}, state.with_suffix(".new"))
            state.with_suffix(".new").replace(state)


def averaged(taught: SentenceTransformer, base: SentenceTransformer, share: float) -> None:
    """Moves the taught weights towards the base's: `share` 0.5 is half of each."""
    before = base.state_dict()
    for name, weights in taught.state_dict().items():
        if weights.is_floating_point():
            weights.copy_((1 - share) * weights + share * before[name])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers with the official weights")
    parser.add_argument("--data", type=Path, help="folder of the sets that are not in this repository")
    parser.add_argument("--parts", nargs="*", default=["train"], help="of the lives; choose is for measuring")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hard", type=int, default=1, help="wrong or near memories a question")
    parser.add_argument("--by-world", type=int, default=4, help="questions of one life in a row")
    parser.add_argument("--epochs", type=float, default=1.5)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--absolute", type=float, default=0.0)
    parser.add_argument("--average", type=float, default=0.0, help="share of the base's weights in the result")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=int, default=100)
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    chance = random.Random(given.seed)
    torch.manual_seed(given.seed)
    model = SentenceTransformer(given.base, device="cpu")
    model.max_seq_length = MOST_TOKENS
    worlds = [world for part in given.parts for world in lives(LIVES / part)]
    if given.data:
        worlds += [world for _, world in sets(given.data, TAUGHT)]

    def encode(texts: Sequence[str]) -> Any:
        return model.encode(list(texts), batch_size=64, normalize_embeddings=True)

    found = examples(encode, worlds, given.hard, chance)
    if not given.absolute:
        found = [example for example in found if example.answer is not None]
    batches = plan(found, given.batch, given.by_world, given.epochs, chance)
    print(f"{len(worlds)} worlds, {len(found)} examples, {len(batches)} batches", flush=True)
    teach(Teacher(model, given.scale, given.absolute), batches, given.out, given.rate, given.save)
    model.eval()
    if given.average:
        averaged(model, SentenceTransformer(given.base, device="cpu"), given.average)
    model.save(str(given.out))


if __name__ == "__main__":
    main()
