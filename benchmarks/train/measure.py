"""Vector search alone, set by set: python -m benchmarks.train.measure MODEL [--data FOLDER] [--lives PART …]

MODEL: a folder of sentence-transformers, or what the service loads: `minilm-int8`, or a folder with `model.onnx`. For
each set: the share of the answering memories among the first ten (recall@10), the mean reciprocal rank of the first one
(MRR), how often it is the very first, and before every wrong one (order); `never`: the area under the curve of the best
cosine of questions that are answered against those whose answer was never said, `small` against those that ask nothing.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.train.worlds import LIVES, MEASURED, TAUGHT, World, lives, sets, without_speakers

Vectors: TypeAlias = NDArray[np.float32]
Encode: TypeAlias = Callable[[Sequence[str]], Vectors]
DEPTH = 10


@dataclass(slots=True)
class Figures:
    recall: list[float] = field(default_factory=list)
    reciprocal: list[float] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)
    order: list[bool] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    never: list[float] = field(default_factory=list)
    small: list[float] = field(default_factory=list)

    def add(self, cosines: Vectors, right: set[int], wrong: set[int], kind: str) -> None:
        best = float(cosines.max()) if len(cosines) else 0.0
        if not right:
            (self.small if kind == "small" else self.never).append(best)
            return
        ranked = np.argsort(-cosines, kind="stable").tolist()
        places = {text: place for place, text in enumerate(ranked)}
        place = min(places[text] for text in right)
        self.recall.append(len(right & set(ranked[:DEPTH])) / len(right))
        self.reciprocal.append(1 / (1 + place))
        self.first.append(place == 0)
        self.answered.append(best)
        if wrong:
            self.order.append(place < min(places[text] for text in wrong))

    def line(self) -> str:
        shown = (_mean(self.recall), _mean(self.reciprocal), _mean(self.first), _mean(self.order))
        curves = (_area(self.answered, self.never), _area(self.answered, self.small))
        return "  ".join(f"{number:5.3f}" for number in (*shown, *curves)) + f"  {len(self.recall):5d}"


def measure(
    encode: Encode, worlds: Sequence[tuple[str, World]], *, languages: bool = False, kinds: bool = False
) -> dict[str, Figures]:
    """The figures of each set, by its name; of lives also by language and by kind of question."""
    figures: dict[str, Figures] = defaultdict(Figures)
    for name, world in worlds:
        texts = encode(world.texts)
        queries = encode([without_speakers(asked.query, world.speakers) for asked in world.questions])
        for query, asked in zip(queries, world.questions, strict=True):
            right, wrong = ({place for place in places if place < asked.known} for places in (asked.right, asked.wrong))
            groups = [name]
            if name.startswith("lives/"):
                groups += [f"in {world.language}"] * languages + [asked.kind] * kinds
            for group in groups:
                figures[group].add(texts[: asked.known] @ query, right, wrong, asked.kind)
    return figures


def encoder(model: str, *, rough: bool = False) -> Encode:
    """`model`: a folder of sentence-transformers, or what the service loads. `rough`: in bfloat16, much
    faster where the processor has AMX: to find negatives."""
    if not (Path(model) / "modules.json").exists():
        from app.embedding.factory import load_model  # noqa: PLC0415 (what is measured needs one of the two)

        served = load_model(model, threads=2)
        return lambda texts: _in_batches(served.encode, texts)
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    taught = SentenceTransformer(model, device="cpu")
    taught.max_seq_length = 256

    if rough:
        taught = taught.bfloat16()

    def encode(texts: Sequence[str]) -> Vectors:
        made: Any = taught.encode(list(texts), batch_size=64, normalize_embeddings=True, convert_to_tensor=True)
        vectors: Vectors = made.float().numpy()
        return vectors

    return encode


def _in_batches(encode: Encode, texts: Sequence[str], size: int = 16) -> Vectors:
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    vectors = np.zeros((len(texts), 384), np.float32)
    for begin in range(0, len(order), size):
        places = order[begin : begin + size]
        vectors[places] = encode([texts[place] for place in places])
    return vectors


def _mean(numbers: Sequence[float]) -> float:
    return float(np.mean(numbers)) if numbers else float("nan")


def _area(higher: Sequence[float], lower: Sequence[float]) -> float:
    """The probability that one of `higher` is above one of `lower`."""
    if not higher or not lower:
        return float("nan")
    above = np.asarray(higher)[:, None] - np.asarray(lower)[None, :]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="folder of the sets that are not in this repository")
    parser.add_argument("--lives", nargs="*", default=["choose"], help="parts, or folders of that shape")
    parser.add_argument("--languages", action="store_true", help="the lives by language, too")
    parser.add_argument("--kinds", action="store_true", help="the lives by kind of question, too")
    given = parser.parse_args()
    worlds = [(f"lives/{Path(part).name}", world) for part in given.lives for world in lives(LIVES / part)]
    if given.data:
        worlds += sets(given.data, (*MEASURED, *TAUGHT))
    print(f"{'':20} recall   MRR  first  order  never  small  questions")
    encode = encoder(given.model)
    for name, figures in measure(encode, worlds, languages=given.languages, kinds=given.kinds).items():
        print(f"{name:20} {figures.line()}", flush=True)


if __name__ == "__main__":
    main()
