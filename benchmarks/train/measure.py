"""Vector search alone, set by set: python -m benchmarks.train.measure MODEL [--data FOLDER] [--lives PART …]

MODEL: a folder of sentence-transformers, or what the service loads: `recalld-minilm-1`, a folder with `model.onnx`. For
each set: the share of the answering memories among the first ten (recall@10), the mean reciprocal rank of the first one
(MRR), how often it is the very first, and before every wrong one (order); `never`: the area under the curve of the best
cosine of questions that are answered against those whose answer was never said, `small` against those that ask nothing.

`--sets locomo realtalk --most 3`: only these sets, the first three conversations of each. `--json FILE`: the figures of
every question, which `benchmarks.train.variants` compares. `--time`: milliseconds of processor time for a text, by its
tokens, on one thread.
"""

import argparse
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
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
    of_queries: Encode,
    of_texts: Encode,
    worlds: Sequence[tuple[str, World]],
    *,
    languages: bool = False,
    kinds: bool = False,
) -> dict[str, Figures]:
    """The figures of each set, by its name; of lives also by language and by kind of question."""
    figures: dict[str, Figures] = defaultdict(Figures)
    for name, world in worlds:
        texts = of_texts(world.texts)
        queries = of_queries([without_speakers(asked.query, world.speakers) for asked in world.questions])
        for query, asked in zip(queries, world.questions, strict=True):
            right, wrong = ({place for place in places if place < asked.known} for places in (asked.right, asked.wrong))
            groups = [name]
            if name.startswith("lives/"):
                groups += [f"in {world.language}"] * languages + [asked.kind] * kinds
            for group in groups:
                figures[group].add(texts[: asked.known] @ query, right, wrong, asked.kind)
    return figures


def encoders(model: str, threads: int = 2) -> tuple[Encode, Encode]:
    """Of queries and of texts, with the model's prompts. `model`: a folder of sentence-transformers, or what the
    service loads."""
    if not (Path(model) / "modules.json").exists():
        from app.embedding.factory import load_model  # noqa: PLC0415 (what is measured needs one of the two)

        served = load_model(model, threads=threads)

        def prompted(prompt: str) -> Encode:
            return lambda texts: _in_batches(served.encode, [prompt + text for text in texts])

        return prompted(served.prompts.query), prompted(served.prompts.passage)
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    taught = SentenceTransformer(model, device="cpu")
    taught.max_seq_length = 256

    def encode(texts: Sequence[str]) -> Vectors:
        made: Any = taught.encode(list(texts), batch_size=64, normalize_embeddings=True, convert_to_tensor=True)
        vectors: Vectors = made.float().numpy()
        return vectors

    return encode, encode


def kept(encode: Encode, file: Path) -> Encode:
    """Makes no vector twice: `file` (.npz) holds those of one model, by the hashes of their texts."""
    known: dict[str, Vectors] = {}
    if file.exists():
        with np.load(file) as stored:
            known = dict(zip(stored["hashes"].tolist(), stored["vectors"], strict=True))

    def known_or_made(texts: Sequence[str]) -> Vectors:
        hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        if fresh := {name: text for name, text in zip(hashes, texts, strict=True) if name not in known}:
            known.update(zip(fresh, encode(list(fresh.values())), strict=True))
            unfinished = file.with_name(f"unfinished-{file.name}")
            np.savez(unfinished, hashes=np.array(list(known)), vectors=np.stack(list(known.values())))
            unfinished.replace(file)
        return np.stack([known[name] for name in hashes])

    return known_or_made


def first(worlds: Iterable[tuple[str, World]], most: int | None) -> list[tuple[str, World]]:
    """No more than `most` worlds of each set."""
    sets_of: dict[str, list[World]] = defaultdict(list)
    for name, world in worlds:
        sets_of[name].append(world)
    return [(name, world) for name, own in sets_of.items() for world in own[:most]]


def milliseconds(of_texts: Encode, tokens: int, runs: int = 30) -> float:
    """Processor time for one text of so many tokens; the median of `runs`."""
    spent = []
    for _ in range(runs):
        began = time.process_time()
        of_texts(["the " * (tokens - 2)])  # a word is a token; two more begin and end the text
        spent.append(1000 * (time.process_time() - began))
    return float(np.median(spent))


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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, help="folder of the sets that are not in this repository")
    parser.add_argument("--lives", nargs="*", default=["choose"], help="parts, or folders of that shape")
    parser.add_argument("--sets", nargs="*", help="names of sets in the folder; default: all")
    parser.add_argument("--most", type=int, help="conversations of each set; default: all. Of the lives always all")
    parser.add_argument("--languages", action="store_true", help="the lives by language, too")
    parser.add_argument("--kinds", action="store_true", help="the lives by kind of question, too")
    parser.add_argument("--json", type=Path, help="file for the figures of every question")
    parser.add_argument("--time", action="store_true", help="only the time of texts of 12, 60 and 128 tokens")
    given = parser.parse_args(arguments)
    of_queries, of_texts = encoders(given.model, threads=1 if given.time else 2)
    if given.time:
        print("  ".join(f"{tokens} tokens {milliseconds(of_texts, tokens):.2f} ms" for tokens in (12, 60, 128)))
        return
    worlds = [(f"lives/{Path(part).name}", world) for part in given.lives for world in lives(LIVES / part)]
    if given.data:
        names = (*MEASURED, *TAUGHT) if given.sets is None else tuple(f"{name}_dev.json" for name in given.sets)
        worlds += first(sets(given.data, names), given.most)
    figures = measure(of_queries, of_texts, worlds, languages=given.languages, kinds=given.kinds)
    print(f"{'':20} recall   MRR  first  order  never  small  questions")
    for name, each in figures.items():
        print(f"{name:20} {each.line()}")
    if given.json:
        given.json.write_text(json.dumps({name: asdict(each) for name, each in figures.items()}), encoding="utf-8")


if __name__ == "__main__":
    main()
