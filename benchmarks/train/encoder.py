"""Teaches all-MiniLM-L6-v2 what memory is asked: python -m benchmarks.train.encoder OUT [--data FOLDER] …

Contrastive: a question is drawn to a memory that answers it, away from a wrong or near one of the same life, and from
the memories of the other questions of its batch (InfoNCE, van den Oord et al. 2018; scale as in sentence-transformers'
MultipleNegativesRankingLoss). A batch takes a few questions from each of several lives, so that both the owner's other
memories and strangers' are among what it is drawn away from. A memory that answers a question too is no negative of it.

`--absolute`: weight of a second loss, by which the cosine itself tells an answer (above a threshold that is learned)
from the nearest memory of a question whose answer was never said.

`--teacher MODEL --distil 0.5`: half of what is learned is how near that model holds a question and each memory of the
batch (benchmarks/train/distil.py). `--examples`: no more of them, each language with its share.
`benchmarks.train.variants` compares ways of teaching at a small budget.

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
from benchmarks.train.distil import TeacherVectors
from benchmarks.train.measure import Encode, encoders, kept
from benchmarks.train.worlds import LIVES, TAUGHT, World, lives, sets, without_speakers

MOST_CHARACTERS = 320
"""Of a text while it is taught: longer ones take most of the time and teach no more."""
MOST_TOKENS = 128
PIECE = 16
"""Texts of like length that are read together: a batch as a whole would be padded to its longest text."""
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


def sampled(found: Sequence[Example], worlds: Sequence[World], count: int, chance: random.Random) -> list[Example]:
    """So many examples, of each language its share: of 60 English and 40 French ones, 10 are 6 and 4."""
    by_language: dict[str, list[Example]] = {}
    for example in found:
        by_language.setdefault(worlds[example.world].language, []).append(example)
    count = min(count, len(found))
    exact = {language: count * len(own) / len(found) for language, own in by_language.items()}
    taken = {language: int(share) for language, share in exact.items()}
    by_rest = sorted(exact, key=lambda language: (taken[language] - exact[language], language))
    for language in by_rest[: count - sum(taken.values())]:
        taken[language] += 1
    return [example for language, own in sorted(by_language.items()) for example in chance.sample(own, taken[language])]


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


class Learner(torch.nn.Module):  # type: ignore[misc]
    """The encoder with its loss. `teacher`: a model from which it learns a share `distil`, the rest from answers."""

    def __init__(
        self,
        model: SentenceTransformer,
        scale: float = 20.0,
        absolute: float = 0.0,
        teacher: TeacherVectors | None = None,
        distil: float = 0.5,
    ) -> None:
        super().__init__()
        self.model, self.scale, self.absolute = model, scale, absolute
        self.teacher, self.distil = teacher, distil
        self.odds = torch.nn.Parameter(torch.tensor([10.0, -4.0]))
        """Log-odds that a memory answers: slope · cosine + offset."""

    def loss(self, batch: Sequence[Example]) -> Any:
        asked = [example for example in batch if example.answer is not None]
        told = told_of(asked)
        queries, memories = vectors_of(self.model, [example.query for example in asked]), vectors_of(self.model, told)
        cosines = queries @ memories.T
        blocked = blocked_of(asked, told)
        scores = (cosines * self.scale).masked_fill(blocked, -1e4)
        targets = torch.eye(len(asked), len(told))
        if self.teacher is not None:
            soft = self.teacher.targets([example.query for example in asked], told, blocked)
            targets = (1 - self.distil) * targets + self.distil * soft
        loss = torch.nn.functional.cross_entropy(scores, targets)
        if not self.absolute:
            return loss
        never = [example for example in batch if example.answer is None]
        near = torch.zeros(0)
        if never:
            questions = vectors_of(self.model, [example.query for example in never])
            near = (questions * vectors_of(self.model, [example.negatives[0] for example in never])).sum(-1)
        both = torch.cat([cosines.diagonal(), near])
        truth = torch.cat([torch.ones(len(asked)), torch.zeros(len(near))])
        odds = self.odds[0] * both + self.odds[1]
        return loss + self.absolute * torch.nn.functional.binary_cross_entropy_with_logits(odds, truth)


def told_of(asked: Sequence[Example]) -> list[str]:
    """The memories of a batch: the answer of each question, then what each is drawn away from."""
    return [
        *(example.answer or "" for example in asked),
        *(text for example in asked for text in example.negatives),
    ]


def blocked_of(asked: Sequence[Example], told: Sequence[str]) -> Any:
    """(questions, memories): a memory that answers the question, too, beside the one that it is drawn to."""
    return torch.tensor(
        [
            [place != row and text in example.answers for place, text in enumerate(told)]
            for row, example in enumerate(asked)
        ]
    )


def vectors_of(model: SentenceTransformer, texts: Sequence[str]) -> Any:
    """Unit vectors, (texts, width), with their gradient."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place].encode()))
    made = []
    for begin in range(0, len(order), PIECE):
        tokens = model.preprocess([texts[place] for place in order[begin : begin + PIECE]])
        with precision():
            made.append(model(tokens)["sentence_embedding"].float())
    back = torch.empty(len(order), dtype=torch.long)
    back[order] = torch.arange(len(order))
    return torch.nn.functional.normalize(torch.cat(made)[back], dim=-1)


def teacher_of(model: str, found: Sequence[Example], batches: Sequence[Sequence[Example]]) -> TeacherVectors:
    """The teacher's vectors of all examples; the scale of its cosines is fitted on the batches."""
    teacher = TeacherVectors.of(model, [example.query for example in found], told_of(found))
    told = [(batch, told_of(batch)) for batch in batches]
    teacher.fit([([one.query for one in batch], texts, blocked_of(batch, texts)) for batch, texts in told])
    print(f"scale of the teacher's cosines: {teacher.scale}", flush=True)
    return teacher


def shortened(model: SentenceTransformer, layers: int) -> None:
    """Leaves the first layers of a model."""
    bert: Any = model[0].auto_model
    bert.encoder.layer = bert.encoder.layer[:layers]
    bert.config.num_hidden_layers = layers


def teach(learner: Any, batches: Sequence[Any], out: Path, rate: float, save: int) -> None:
    """Goes over the batches once, with a tenth of them to warm up. `learner`: a module with `loss(batch)`."""
    optimizer = torch.optim.AdamW(learner.parameters(), lr=rate, weight_decay=0.01)
    steps, warm = len(batches), max(1, len(batches) // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
    )
    parts = {"learner": learner, "optimizer": optimizer, "schedule": schedule}
    state, begin = out / "state.pt", 0
    if state.exists():
        kept = torch.load(state, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(kept[name])
        begin = kept["step"]
    learner.train()
    mean = None
    for step in range(begin, steps):
        loss = learner.loss(batches[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step} of {steps}, loss {mean:.4f}", flush=True)
        if save and (step + 1) % save == 0:
            out.mkdir(parents=True, exist_ok=True)
            kept = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**kept, "step": step + 1}, state.with_suffix(".new"))
            state.with_suffix(".new").replace(state)
    learner.eval()


def averaged(taught: SentenceTransformer, base: SentenceTransformer, share: float) -> None:
    """Moves the taught weights towards the base's: `share` 0.5 is half of each."""
    before = base.state_dict()
    for name, weights in taught.state_dict().items():
        if weights.is_floating_point():
            weights.copy_((1 - share) * weights + share * before[name])


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
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
    parser.add_argument("--language", help="of the lives that are taught; default: each")
    parser.add_argument("--examples", type=int, help="at most so many; default: all")
    parser.add_argument("--near", help="MODEL of benchmarks.train.measure that finds near misses; default: the base")
    parser.add_argument("--near-vectors", type=Path, help="file for its vectors (.npz), which another run can use")
    parser.add_argument(
        "--teacher", help="what it learns from beside the answers: any MODEL of benchmarks.train.measure"
    )
    parser.add_argument("--distil", type=float, default=0.5, help="share of the teacher in what is learned")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample-seed", type=int, default=1, help="of the examples that --examples takes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", type=int, default=100)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    chance = random.Random(given.seed)
    torch.manual_seed(given.seed)
    torch.set_num_threads(given.threads)
    model = SentenceTransformer(given.base, device="cpu")
    model.max_seq_length = MOST_TOKENS
    worlds = [world for part in given.parts for world in lives(LIVES / part)]
    if given.data:
        worlds += [world for _, world in sets(given.data, TAUGHT)]
    if given.language:
        worlds = [world for world in worlds if world.language == given.language]

    def encode(texts: Sequence[str]) -> Any:
        return model.encode(list(texts), batch_size=64, normalize_embeddings=True)

    near = encoders(given.near)[1] if given.near else encode
    if given.near_vectors:
        near = kept(near, given.near_vectors)
    found = examples(near, worlds, given.hard, chance)
    if not given.absolute:
        found = [example for example in found if example.answer is not None]
    if given.examples:
        found = sampled(found, worlds, given.examples, random.Random(given.sample_seed))
    batches = plan(found, given.batch, given.by_world, given.epochs, chance)
    print(f"{len(worlds)} worlds, {len(found)} examples, {len(batches)} batches", flush=True)
    teacher = teacher_of(given.teacher, found, batches[:20]) if given.teacher else None
    teach(
        Learner(model, given.scale, given.absolute, teacher, given.distil), batches, given.out, given.rate, given.save
    )
    if given.average:
        averaged(model, SentenceTransformer(given.base, device="cpu"), given.average)
    model.save(str(given.out))


if __name__ == "__main__":
    main()
