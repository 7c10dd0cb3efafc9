"""Teaches a judge of two statements, and draws its learning curve: python -m benchmarks.train.pairs --base FOLDER

The judge says whether a later statement replaces or corrects an earlier one of the same speaker. Two kinds are tried:
`head`, a small network over the vectors of both texts, and `cross`, a cross-encoder from the same weights that reads
both texts at once. Each is taught on a growing number of pairs of `lives/train` and measured on `lives/choose`:

- `auc`: the probability that a pair that changes something scores above one that does not;
- `recall`: the share of changes found at the lowest threshold with precision ≥ .95;
- `wrong`: of 1,000 pairs that change nothing, how many are above the threshold that finds half of the changes.

`--statements` adds the pairs of `benchmarks/data/statements`. `--near FOLDER` adds neighbours of real turns, as the
judge would meet them behind a write, from the files that `benchmarks.train.neighbours` wrote, and measures on those of
`lives/choose`, too: at each of some thresholds recall and precision on the written pairs, how many of 1,000 neighbours
are above it that no question calls a change, and which share of those that one does.
"""

import argparse
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.train.cross import Cross, teach
from benchmarks.train.worlds import LIVES, STATEMENTS, Pair, neighbours, pairs, statements

Scores: TypeAlias = NDArray[np.float64]
Judge: TypeAlias = Callable[[Sequence[Pair]], Scores]
CHANGES = ("replaces", "corrects")
PRECISION, RECALL = 0.95, 0.5
EPOCHS = 3
BATCH = 32
SORTED = 16
"""So many batches are sorted by length together: a batch is as long as its longest pair."""
NEAR = 5_000
"""So many neighbours are taught besides those that are a change."""
THRESHOLDS = (0, 1, 2, 3, 3.5, 4, 4.5, 5, 5.5, 6)


def changes(of: Sequence[Pair]) -> NDArray[np.bool_]:
    return np.array([pair.does in CHANGES for pair in of])


def figures(scores: Scores, truth: NDArray[np.bool_]) -> dict[str, float]:
    """Returns `auc`, `recall` and `wrong` of the module's docstring."""
    right, rest = scores[truth], scores[~truth]
    above = right[:, None] - rest[None, :]
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(truth[order])
    precision = found / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(precision >= PRECISION)
    half = np.sort(right)[::-1][math.ceil(RECALL * len(right)) - 1]
    return {
        "auc": float(np.mean((above > 0) + 0.5 * (above == 0))),
        "recall": float(found[enough[-1]] / len(right)) if len(enough) else 0.0,
        "wrong": 1000 * float(np.mean(rest >= half)),
    }


def head(taught: Sequence[Pair], vectors: dict[str, Any], seed: int) -> Judge:
    """Teaches a network of one hidden layer over [u, v, |u − v|, u · v, days between them, `shared`]."""

    def rows(of: Sequence[Pair]) -> Any:
        u = torch.stack([vectors[pair.earlier] for pair in of])
        v = torch.stack([vectors[pair.later] for pair in of])
        known = torch.tensor([[math.log1p(max(0, pair.days)), *shared(pair)] for pair in of])
        return torch.cat([u, v, (u - v).abs() * 10, u * v * 50, (u * v).sum(1, keepdim=True), known], 1)

    torch.manual_seed(seed)
    x, y = rows(taught), torch.tensor(changes(taught)).float()
    net = torch.nn.Sequential(
        torch.nn.Dropout(0.2), torch.nn.Linear(x.shape[1], 128), torch.nn.ReLU(), torch.nn.Dropout(0.4),
        torch.nn.Linear(128, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    for _ in range(30):
        for places in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x[places])[:, 0], y[places])
            loss.backward()
            optimizer.step()
    net.eval()

    def judge(of: Sequence[Pair]) -> Scores:
        with torch.no_grad():
            scores: Scores = net(rows(of))[:, 0].double().numpy()
        return scores

    return judge


def cross(base: str, taught: Sequence[Pair], seed: int, layers: int = 6) -> Judge:
    """Teaches a cross-encoder: both texts in one input, one number out."""
    torch.manual_seed(seed)
    chance = random.Random(seed)
    model = Cross(base, layers)
    batches = [batch for _ in range(EPOCHS) for batch in by_length(chance.sample(list(taught), len(taught)), chance)]

    def loss(batch: Sequence[Pair]) -> Any:
        truth = torch.tensor(changes(batch)).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(model(both(batch)), truth)

    teach(model, batches, loss, rate=5e-5)
    return lambda of: model.judge(both(of))


def by_length(pairs: Sequence[Pair], chance: random.Random) -> list[list[Pair]]:
    batches: list[list[Pair]] = []
    for begin in range(0, len(pairs), BATCH * SORTED):
        part = sorted(pairs[begin : begin + BATCH * SORTED], key=lambda pair: len(pair.earlier) + len(pair.later))
        split = [part[at : at + BATCH] for at in range(0, len(part), BATCH)]
        chance.shuffle(split)
        batches += split
    return batches


def near_changes(scores: Scores, truth: NDArray[np.bool_], near: Scores, known: NDArray[np.bool_]) -> list[str]:
    """Returns a line for each threshold: see the module's docstring."""
    lines = []
    for threshold in THRESHOLDS:
        over = scores >= threshold
        figures = {
            "recall": over[truth].mean(),
            "precision": truth[over].mean() if over.any() else 1.0,
            "near": 1000 * (near[~known] >= threshold).mean(),
            "known": (near[known] >= threshold).mean(),
        }
        lines.append(f"{threshold:4}  " + "  ".join(f"{name} {number:.3f}" for name, number in figures.items()))
    return lines


def shared(pair: Pair) -> tuple[float, ...]:
    """The shares of the words and of the runs of three letters of each text that the other has, and both lengths."""
    words = [set(re.findall(r"\w+", text.casefold())) for text in (pair.earlier, pair.later)]
    runs = [
        {text[at : at + 3] for at in range(len(text) - 2)} for text in (pair.earlier.casefold(), pair.later.casefold())
    ]
    shares = (len(one & other) / max(1, len(side)) for one, other in (words, runs) for side in (one, other))
    return (*shares, math.log1p(len(pair.earlier)), math.log1p(len(pair.later)))


def both(of: Sequence[Pair]) -> list[tuple[str, str]]:
    return [(pair.earlier, pair.later) for pair in of]


def encoded(base: str, of: Sequence[Pair]) -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    texts = sorted({text for pair in of for text in (pair.earlier, pair.later)})
    vectors = SentenceTransformer(base, device="cpu").encode(texts, batch_size=64, normalize_embeddings=True)
    return dict(zip(texts, torch.tensor(vectors), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers")
    parser.add_argument("--kinds", nargs="*", default=["head", "cross"], choices=["head", "cross"])
    parser.add_argument("--sizes", nargs="*", type=int, default=[1_000, 2_000, 4_000])
    parser.add_argument("--languages", nargs="*", default=["en", "all"])
    parser.add_argument("--layers", type=int, default=6, help="of `cross`")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--statements", action="store_true", help="teach benchmarks/data/statements, too")
    parser.add_argument("--near", type=Path, help="folder with train.json and choose.json of neighbours")
    given = parser.parse_args()
    train, choose = pairs(LIVES / "train"), pairs(LIVES / "choose")
    if given.statements:
        train += statements(STATEMENTS)
    near: list[Pair] = []
    if given.near:
        taught, near = (neighbours(given.near / f"{part}.json") for part in ("train", "choose"))
        rest = [pair for pair in taught if pair.does not in CHANGES]
        train += [pair for pair in taught if pair.does in CHANGES]
        train += random.Random(given.seed).sample(rest, min(len(rest), NEAR))
    random.Random(given.seed).shuffle(train)
    vectors = encoded(given.base, [*train, *choose]) if "head" in given.kinds else {}
    for language in given.languages:
        of, measured = ([pair for pair in some if language in ("all", pair.language)] for some in (train, choose))
        for kind in given.kinds:
            for size in dict.fromkeys(min(size, len(of)) for size in given.sizes):
                started = time.monotonic()
                if kind == "head":
                    judge = head(of[:size], vectors, given.seed)
                else:
                    judge = cross(given.base, of[:size], given.seed, given.layers)
                told = figures(judge(measured), changes(measured))
                shown = "  ".join(f"{name} {number:.3f}" for name, number in told.items())
                if near:
                    met = [pair for pair in near if language in ("all", pair.language)]
                    print(*near_changes(judge(measured), changes(measured), judge(met), changes(met)), sep="\n")
                minutes = (time.monotonic() - started) / 60
                where = f"{language:4} {kind:6} {size:5d} of {len(measured)}"
                print(f"{where}  {shown}  {minutes:.1f} min", flush=True)


if __name__ == "__main__":
    main()
