"""Models of the sentence-transformers library, on torch. An optional extra, imported only when such a model is used."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers.utils.logging import disable_progress_bar

from app.embedding.model import ExtraOptions, Prompts, Vectors, by_characters, clipped, split, unit
from app.errors import EmbeddingUnavailable

TOKEN_CHARS = 4
"""Characters of a token in most texts. In scripts with more tokens the end of a window is not read."""
CPU_PIECE_TOKENS = 128
"""Maximum tokens of a run on a CPU.

A run of torch has a fixed cost of some milliseconds, so that very small runs would halve the throughput.
"""


class SentenceTransformersModel:
    """An embedding model of the library."""

    runs_beside_itself = False

    def __init__(self, wanted: str, *, threads: int = 1, options: ExtraOptions | None = None) -> None:
        """Loads the model.

        `wanted`: a folder that the library saved, or a name on the hub. Raises EmbeddingUnavailable.
        """
        torch.set_num_threads(threads)  # for the process; each thread adopts it at its first computation
        disable_progress_bar()  # the log consists of JSON lines
        self._chars = (options or ExtraOptions()).text_chars
        self._model = _load(wanted)
        self.prompts = Prompts.of(self._model.prompts, self._model.default_prompt_name)
        self._window = min((self._model.max_seq_length or self._chars) * TOKEN_CHARS, self._chars)
        self.name = f"{_label(wanted)}:sentence-transformers-{self.prompts.variant(_digest(self._model))}"
        probe = self.encode(["dimension"])
        if probe.ndim != 2 or not probe.any():
            raise EmbeddingUnavailable(f"{self.name} gives no usable vector")
        self.dim = int(probe.shape[1])
        self.piece_tokens = CPU_PIECE_TOKENS if self._model.device.type == "cpu" else None

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Returns vectors, shape (n, dim), float32, of unit length.

        A NaN or empty vector becomes zeros, which are not stored.
        """
        vectors = self._model.encode(
            [clipped(text, self._chars) for text in texts],
            prompt="",  # the caller has already added it
            batch_size=max(1, len(texts)),
            show_progress_bar=False,
        )
        return unit(np.asarray(vectors, np.float32))

    def split(self, text: str) -> list[str]:
        return split(text, by_characters(self._window))


def _load(wanted: str) -> SentenceTransformer:
    """Loads a folder, or a name. A name is downloaded only if it is not in the cache.

    Code that comes with a model is not run.
    """
    folder = Path(wanted).expanduser()
    if folder.is_dir():
        return _tried(str(folder), local=True)
    if wanted.startswith((".", "/", "~")):
        raise EmbeddingUnavailable(f"there is no folder {wanted}")
    try:
        return _tried(wanted, local=True)
    except EmbeddingUnavailable:
        return _tried(wanted, local=False)


def _tried(wanted: str, *, local: bool) -> SentenceTransformer:
    try:
        return SentenceTransformer(wanted, local_files_only=local)
    except Exception as error:  # errors of the library, the hub, torch, or a broken file
        raise EmbeddingUnavailable(f"sentence-transformers cannot load {wanted}: {error}") from error


def _label(wanted: str) -> str:
    folder = Path(wanted).expanduser()
    return folder.resolve().name if folder.is_dir() else wanted.rpartition("/")[2]


def _digest(model: SentenceTransformer) -> str:
    """Returns a hash of the weights as a set. Their names and files differ between versions of the libraries."""
    flat = (weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for weights in model.parameters())
    digests = sorted(hashlib.sha256(numbers.numpy().tobytes()).digest() for numbers in flat)
    return hashlib.sha256(b"".join(digests)).hexdigest()
