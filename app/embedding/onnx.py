"""Embedding models on ONNX Runtime: text to mean-pooled unit vectors, without torch."""

import hashlib
import json
import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

os.environ["ORT_DISABLE_TELEMETRY"] = (
    "1"  # before the import; else it stores a device id in the home and sends telemetry
)
import onnxruntime as ort
from tokenizers import Encoding, Regex, Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Sequence as Steps
from tokenizers.pre_tokenizers import Split

from app.embedding.model import (
    MAX_WINDOWS,
    NO_PROMPTS,
    Prompts,
    Vectors,
    by_tokens,
    clipped,
    split,
    unit,
)
from app.errors import EmbeddingUnavailable

MAX_TOKENS = 256  # all-MiniLM-L6-v2 was trained on this length; the rest of a window is ignored
MAX_CHARS = 8192  # maximum length of a window, so that one of huge words costs no more than others
SPLIT_CHARS = 32_768  # maximum length of a text that is split into windows

DATA = Path(__file__).parent / "data"
WORDS, WORDS_AT, WORDS_SHAPE = "words", 19_160, (30_522, 384)
"""The word table in a packaged model's file: its name in the graph, its offset in bytes, and its shape in int8."""
TOKENIZER = DATA / "tokenizer.json"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"


@dataclass(frozen=True, slots=True)
class Packaged:
    """A model that comes with the service: the graph of all-MiniLM-L6-v2 with weights of its own."""

    title: str
    sha256: str

    @property
    def file(self) -> Path:
        return DATA / f"{self.title}.onnx"

    @property
    def name(self) -> str:
        return f"{self.title}:onnx-int8-{self.sha256[:8]}"


TAUGHT = Packaged("recalld-minilm-1", "d4e6ed7bd22f84d2b0f20a83fd2821dd3baa7def468ff5fbb79b7ad2c74ccd86")
"""Taught on what memory is asked: benchmarks/train/README.md."""
PACKAGED_DIM = WORDS_SHAPE[1]

Tables: TypeAlias = Mapping[str, ort.OrtValue]


@dataclass(frozen=True, slots=True)
class Kind:
    """Configuration from a model's folder. `pooling`: `mean` or `cls`."""

    pooling: str = "mean"
    prompts: Prompts = NO_PROMPTS


class OnnxModel:
    """A sentence-embedding graph with the input `input_ids`, and perhaps `attention_mask` and `token_type_ids`."""

    piece_tokens = 32
    runs_beside_itself = True

    def __init__(
        self,
        name: str,
        graph: bytes | str,
        tokenizer: Tokenizer,
        *,
        threads: int = 1,
        kind: Kind | None = None,
        tables: Tables | None = None,
    ) -> None:
        """Creates the model.

        `graph`: the model's bytes or path. `tokenizer`: one that `read_tokenizer` returned. `tables`: see
        `read_session`. Raises EmbeddingUnavailable.
        """
        kind = kind or Kind()
        self.name, self.prompts = name, kind.prompts
        self._pooling = kind.pooling
        self._tokenizer = tokenizer
        tokenizer.enable_truncation(MAX_TOKENS)
        tokenizer.no_padding()
        self._room = MAX_TOKENS - len(tokenizer.encode(kind.prompts.passage).ids)  # special tokens are included
        self._session = read_session(name, graph, threads, tables)
        self._tables = tables  # the session reads from them
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        self.dim = int(self.encode(["dimension"]).shape[1])

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Returns vectors, shape (n, dim), float32, of unit length.

        Each text has a run of its own, so its vector is the same to the last bit whatever the other texts are: graphs
        with dynamic quantization scale by the largest value of the whole run. On a CPU a batch would be no faster.
        """
        return np.concatenate([self._vector(encoding) for encoding in self.tokenize(texts)])

    def _vector(self, encoding: Encoding) -> Vectors:
        """Returns the vector of one text, shape (1, dim)."""
        ids = np.array([encoding.ids], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        outputs = self._session.run(None, {name: feed[name] for name in self._inputs})
        output: Vectors = np.asarray(outputs[0], np.float32)
        if output.ndim != 2:  # else the graph pools by itself
            # no division by the count, because `unit` scales the row anyway
            output = output[:, 0] if self._pooling == "cls" else output.sum(axis=1)
        return unit(output)

    def split(self, text: str) -> list[str]:
        if len(text.encode("utf-8", "replace")) <= self._room:  # no token is shorter than a byte
            return [text]
        read = narrow(clipped(text, SPLIT_CHARS))
        spans = self._spans(read)
        if len(spans) <= self._room:
            return [text]
        return split(read, by_tokens(spans, self._room, len(read)))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Returns start and end of each token, up to the size of all windows.

        The tokenizer returns truncated parts separately.
        """
        (first,) = self._tokenizer.encode_batch([text])  # unlike `encode`, it lets other threads run meanwhile
        return [
            span
            for part in [first, *first.overflowing[: MAX_WINDOWS - 1]]
            for span, special in zip(part.offsets, part.special_tokens_mask, strict=True)
            if not special
        ]

    def tokenize(self, texts: Sequence[str]) -> list[Encoding]:
        """Returns the tokens that the model reads of each text, the special ones included."""
        return self._tokenizer.encode_batch_fast([narrow(clipped(text, MAX_CHARS)) for text in texts])


_NARROW = {
    code: form
    for code in range(0xFF00, 0xFFF0)
    if chr(code).isalnum() and len(form := unicodedata.normalize("NFKC", chr(code))) == 1
}
"""Letters and digits by their full-width forms, katakana by its half-width ones: B by Ｂ. Each stays at its place."""


def narrow(text: str) -> str:
    """Folds full-width letters, which vocabularies lack: "Ｂｅｒｌｉｎ" is read as "Berlin"."""
    return text if text.isascii() else text.translate(_NARROW)


def read_tokenizer(file: Path) -> Tokenizer:
    """Returns the tokenizer of a file, which reads symbols that its vocabulary lacks as words of their own.

    WordPiece knows a word as a whole or not at all: of "Berlin🎉" it would give one unknown token. Of "20°C" it knows
    each part. Other models fall back to single characters.
    """
    tokenizer = Tokenizer.from_file(str(file))
    if not isinstance(model := tokenizer.model, WordPiece):
        return tokenizer
    vocabulary, prefix = tokenizer.get_vocab(), model.continuing_subword_prefix
    known = "".join(  # °€→
        token
        for token in vocabulary
        if len(token) == 1 and not token.isascii() and not token.isalpha() and f"{prefix}{token}" in vocabulary
    )
    # emoji and other symbols, numbers in circles, frames of keycaps; what joins emoji was dropped before
    unknown = rf"[\p{{S}}\p{{No}}\p{{Me}}&&[^a{known}]]+"
    steps = [] if tokenizer.pre_tokenizer is None else [tokenizer.pre_tokenizer]
    tokenizer.pre_tokenizer = Steps([*steps, Split(Regex(unknown), "isolated")])
    return tokenizer


@cache
def packaged_tokenizer(file: Path) -> Tokenizer:
    """Returns the tokenizer of the packaged models, read once: the workers that are forked afterwards share it. Raises
    EmbeddingUnavailable if the file has another hash."""
    return read_tokenizer(_checked(file, TOKENIZER_SHA256))


def load_packaged(
    which: Packaged, *, threads: int = 1, weights: Path | None = None, tokenizer: Path = TOKENIZER
) -> OnnxModel:
    """Loads a packaged model in int8, 384 dimensions. Raises EmbeddingUnavailable if a file has another hash."""
    graph = _checked(weights or which.file, which.sha256)
    words = np.memmap(graph, np.int8, "r", WORDS_AT, WORDS_SHAPE)  # half of the file; a text needs a few rows
    return OnnxModel(
        which.name,
        str(graph),
        packaged_tokenizer(tokenizer),
        threads=threads,
        tables={WORDS: ort.OrtValue.ortvalue_from_numpy(words)},
    )


def load_folder(folder: Path, *, threads: int = 1, name: str | None = None) -> OnnxModel:
    """Loads a model from `model.onnx` or `onnx/model.onnx` beside `tokenizer.json`. Raises EmbeddingUnavailable.

    The name ends in a hash of weights and prompts, so other weights in the same folder are another model.
    """
    graph, digest, tokenizer = read_folder(folder)
    kind = Kind(_pooling(folder), _prompts(folder))
    full_name = f"{name or folder.resolve().name}:onnx-{kind.prompts.variant(digest)}"
    return OnnxModel(full_name, str(graph), tokenizer, threads=threads, kind=kind)


def read_folder(folder: Path) -> tuple[Path, str, Tokenizer]:
    """Returns the path of the graph, the sha256 of all weights, and the tokenizer of an ONNX model in a folder.

    Raises EmbeddingUnavailable.
    """
    graph = next((path for path in (folder / "model.onnx", folder / "onnx/model.onnx") if path.is_file()), None)
    if graph is None or not (folder / "tokenizer.json").is_file():
        raise EmbeddingUnavailable(f"{folder} must hold tokenizer.json and model.onnx or onnx/model.onnx")
    digest = hashlib.sha256()
    for part in (graph, graph.with_name(f"{graph.name}_data")):  # large weights may lie beside the graph
        if part.is_file():
            with part.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
    try:
        return graph, digest.hexdigest(), read_tokenizer(folder / "tokenizer.json")
    except Exception as error:  # the tokenizers library raises Exception itself
        raise EmbeddingUnavailable(f"{folder}/tokenizer.json cannot be read: {error}") from error


def read_session(name: str, graph: bytes | str, threads: int, tables: Tables | None = None) -> Any:
    """Returns ONNX Runtime's session of a graph, given as bytes or path. Raises EmbeddingUnavailable.

    `tables`: constants of the graph by name. The session reads them in place instead of copying them, so the caller has
    to keep them as long as the session, which would otherwise read freed memory. The runtime keeps a copy of a graph
    that is given as bytes.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # The runtime's own pool keeps the memory of the longest text, 13 MB, and is no faster than the C library.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # Spinning threads answer a little sooner and take a core from the event loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        for constant, value in (tables or {}).items():
            options.add_initializer(constant, value)
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EmbeddingUnavailable(f"{name}: ONNX Runtime cannot load the model: {error}") from error


def _pooling(folder: Path) -> str:
    """Returns the pooling from sentence-transformers' configuration; mean if there is none."""
    config = folder / "1_Pooling" / "config.json"
    if not config.is_file():
        return "mean"
    modes = {key for key, value in json.loads(config.read_text()).items() if key.startswith("pooling_mode") and value}
    if modes == {"pooling_mode_cls_token"}:
        return "cls"
    if modes != {"pooling_mode_mean_tokens"}:
        raise EmbeddingUnavailable(f"{folder}: pooling {sorted(modes)} is not supported, only mean or cls")
    return "mean"


def _prompts(folder: Path) -> Prompts:
    """Returns the prompts from sentence-transformers' configuration; none if there is no such file."""
    config = folder / "config_sentence_transformers.json"
    if not config.is_file():
        return NO_PROMPTS
    stored = json.loads(config.read_text(encoding="utf-8"))
    return Prompts.of(stored.get("prompts") or {}, stored.get("default_prompt_name"))


def _checked(path: Path, sha256: str) -> Path:
    """Returns `path` after checking its hash. The file is hashed in blocks, so it is never in memory as a whole.

    Raises EmbeddingUnavailable.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbeddingUnavailable(f"{path.name} cannot be read: {error.strerror}") from error
    if digest != sha256:
        raise EmbeddingUnavailable(f"{path.name} is not the file we know: its sha256 is not {sha256[:8]}…")
    return path
