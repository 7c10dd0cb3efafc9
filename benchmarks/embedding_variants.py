"""The graphs of `benchmark embedding --variants`. In each round every graph takes its turn."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from app.embedding.model import Vectors, unit
from app.embedding.onnx import DATA, MAX_TOKENS, read_session
from app.retrieval.query_analysis import analyse
from benchmarks.evaluation import sets
from benchmarks.evaluation.measures import interval
from benchmarks.harness import ROOT, Row

REFERENCE = ROOT / "tests" / "embedding" / "data"
FORMER = "former"
"""The graph that takes batches; speeds are told as ratios to it, one text a run."""
QUERY_TOKENS, TEXT_TOKENS, TEXTS, BATCH = 12, 64, 32, 8

Ids = list[int]


@dataclass
class Variant:
    name: str
    session: Any
    batch: int = 1
    query: list[float] = field(default_factory=list)
    texts: list[float] = field(default_factory=list)

    def run(self, rows: Sequence[Ids]) -> Vectors:
        """Unit vectors of texts of any lengths, `batch` of them in a run."""
        parts = [self._run(rows[start : start + self.batch]) for start in range(0, len(rows), self.batch)]
        return np.concatenate(parts)

    def _run(self, rows: Sequence[Ids]) -> Vectors:
        shape = len(rows), max(map(len, rows))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, own in enumerate(rows):
            ids[row, : len(own)], mask[row, : len(own)] = own, 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}
        wanted = [entry.name for entry in self.session.get_inputs()]
        output = self.session.run(None, {name: feed[name] for name in wanted})[0]
        return unit(np.asarray((output * mask[..., None]).sum(axis=1), np.float32))


def compare(folder: Path, threads: int, rounds: int, questions: Path | None) -> Iterator[Row]:
    """A row for each graph of the folder."""
    variants = [
        Variant(path.stem, read_session(path.stem, str(path), threads)) for path in sorted(folder.glob("*.onnx"))
    ]
    variants.sort(key=lambda variant: variant.name != FORMER)
    variants.insert(1, Variant(f"{FORMER}, {BATCH} a run", variants[0].session, BATCH))
    _measure(variants, rounds)
    tokenizer = Tokenizer.from_file(str(DATA / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    recalls = _recalls(variants, tokenizer, questions) if questions else {}
    base = variants[0]
    for variant in variants:
        query, texts = min(variant.query), min(variant.texts)
        cosine = _cosine(variant, tokenizer)
        yield {
            "graph": variant.name,
            f"{QUERY_TOKENS} tokens ms": round(query * 1000, 2),
            f"× {base.name}": round(min(base.query) / query, 2),
            f"texts/s of {TEXT_TOKENS}": round(TEXTS / texts),
            f"× {base.name}, texts": round(min(base.texts) / texts, 2),
            "cosine": round(float(cosine.mean()), 4),
            "lowest": round(float(cosine.min()), 4),
            "recall@10": recalls.get(variant.name),
        }


def _measure(variants: Sequence[Variant], rounds: int) -> None:
    rng = np.random.default_rng(7)

    def text(tokens: int) -> Ids:
        return [101, *map(int, rng.integers(2_000, 20_000, tokens - 2)), 102]

    queries, texts = [text(QUERY_TOKENS) for _ in range(20)], [text(TEXT_TOKENS) for _ in range(TEXTS)]
    for _ in range(rounds):
        for variant in variants:
            for query in queries:
                variant.query.append(_seconds(variant, [query]))
            variant.texts.append(_seconds(variant, texts))


def _seconds(variant: Variant, rows: Sequence[Ids]) -> float:
    start = time.perf_counter()
    variant.run(rows)
    return time.perf_counter() - start


def _encode(variant: Variant, tokenizer: Tokenizer, texts: Sequence[str]) -> Vectors:
    return variant.run([encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))])


def _cosine(variant: Variant, tokenizer: Tokenizer) -> Vectors:
    """To what sentence-transformers says of 200 sentences in float32."""
    with np.load(REFERENCE / "reference.npz") as kept:
        reference = unit(kept["vectors"].astype(np.float32))
    sentences = json.loads((REFERENCE / "sentences.json").read_text(encoding="utf-8"))
    return np.asarray((_encode(variant, tokenizer, sentences) * reference).sum(axis=1))


def _recalls(variants: Sequence[Variant], tokenizer: Tokenizer, path: Path) -> dict[str, str]:
    """By vectors alone, speakers' names stripped from questions; against the first with a 95 % interval."""
    worlds = [sets.answerable(world) for world in sets.load(path)]
    told: dict[str, str] = {}
    base: Vectors | None = None
    for variant in variants:
        hits = np.concatenate([_hits(variant, tokenizer, world) for world in worlds])
        base = hits if base is None else base
        apart = hits - base
        low, high = interval(apart)
        told[variant.name] = f"{hits.mean():.3f} ({apart.mean():+.4f}, {low:+.4f} to {high:+.4f})"
    return told


def _hits(variant: Variant, tokenizer: Tokenizer, world: sets.World) -> Vectors:
    """For each question the share of its evidence among the ten nearest turns."""
    texts = [item.content for item in world.items]
    speakers = tuple({item.name or item.role for item in world.items})
    queries = [analyse(question.query, speakers).stripped for question in world.questions]
    turns = _encode(variant, tokenizer, texts)
    nearest = np.argsort(-(_encode(variant, tokenizer, queries) @ turns.T), axis=1)[:, :10]
    found = [{texts[index] for index in row} for row in nearest]
    shares = [
        sum(text in near for text in question.evidence) / len(question.evidence)
        for near, question in zip(found, world.questions, strict=True)
    ]
    return np.array(shares, np.float32)
