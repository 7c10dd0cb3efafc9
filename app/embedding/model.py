"""The interface of a model runtime: synchronous, pure, called from one thread."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.errors import EmbeddingUnavailable
from app.settings import EmbeddingSettings

Vectors: TypeAlias = NDArray[np.float32]

LATIN_ONLY = ("all-MiniLM-", "all-mpnet-")
"""Beginnings of the names of models that were trained on English alone. Of other models nothing is known, so they are
taken at their vectors."""


def knows_all_scripts(name: str) -> bool:
    """Whether a model's vectors are worth as much in other scripts as in Latin."""
    return not name.rpartition("/")[2].startswith(LATIN_ONLY)


PASSAGE_PROMPTS = ("document", "passage", "corpus")
"""Names under which models keep the prompt of what is stored; sentence-transformers looks in this order."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a model wants before a text, by what the text is for. Most models want nothing."""

    query: str = ""
    passage: str = ""

    @classmethod
    def of(cls, stored: Mapping[str, str], default: str | None = None) -> "Prompts":
        """From the prompts that sentence-transformers keeps with a model, by name. `default`: the name of the one that
        goes before all texts that have none of their own."""
        general = stored.get(default, "") if default else ""
        passage = next((prompt for name in PASSAGE_PROMPTS if (prompt := stored.get(name))), general)
        return cls(stored.get("query") or general, passage)

    def variant(self, digest: str) -> str:
        """Eight hex digits of the weights' hash, by which a model is named, or of that and the prompts: with other
        prompts, a text has another vector."""
        if self == NO_PROMPTS:
            return digest[:8]
        return hashlib.sha256(f"{digest}\0{self.query}\0{self.passage}".encode()).hexdigest()[:8]


NO_PROMPTS = Prompts()


class Model(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    @property
    def prompts(self) -> Prompts:
        """The caller puts these before the texts that it encodes. `split` leaves room for the one of passages."""
        ...

    @property
    def piece_tokens(self) -> int | None:
        """Most tokens of one run while others may wait (or one text): on a CPU large batches gain nothing, and a query
        waits for the run under way. None: batches may be as large as the setting allows (a server, a GPU)."""
        ...

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens that each text will cost, to batch like with like. An estimate does."""
        ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """(n, dim) float32, rows of unit length."""
        ...

    def split(self, text: str) -> list[str]:
        """Parts that `encode` reads whole, at most `windows.MAX_WINDOWS`; the very text where it fits into one.

        Called from any thread. An estimate does.
        """
        ...


def unit(vectors: Vectors) -> Vectors:
    """Rows of length 1. A row that has no direction, or is not finite, comes back as zeros: no vector to store."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    usable = np.isfinite(norms) & (norms > 0)
    result: Vectors = np.divide(vectors, norms, out=np.zeros_like(vectors), where=usable)
    return result


def clipped(text: str, most_chars: int) -> str:
    """Its beginning, as Unicode: a lone surrogate is a str to Python and nothing to a tokenizer."""
    return text[:most_chars].encode("utf-8", "replace").decode()


def estimated_tokens(text: str) -> int:
    """Without a tokenizer: four bytes each. Good enough to batch like with like, in any script."""
    return len(text.encode("utf-8", "replace")) // 4 + 1


def encode_checked(model: Model, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
    """The vectors and which of them are fit to store: NaN, zero or not of unit length is not.

    Raises whatever the model raises, and `EmbeddingUnavailable` when the shape is wrong.
    """
    vectors = np.asarray(model.encode(texts), np.float32)
    if vectors.shape != (len(texts), model.dim):
        raise EmbeddingUnavailable(f"{model.name} gave vectors of shape {vectors.shape} for {len(texts)} texts")
    return vectors, np.abs(np.linalg.norm(vectors, axis=1) - 1) < 1e-2


@dataclass(frozen=True, slots=True)
class Server:
    """Where an OpenAI-compatible `/embeddings` is, and what to ask of it."""

    base_url: str = "https://api.openai.com/v1"
    api_key: str = field(default="", repr=False)
    dimensions: int = 0  # 0: what the server gives
    timeout_seconds: float = 10  # of one batch, retries included
    batch_texts: int = 128


@dataclass(frozen=True, slots=True)
class ExtraOptions:
    text_chars: int = 8192  # of a text, from its beginning
    server: Server = Server()

    @classmethod
    def of(cls, settings: EmbeddingSettings) -> "ExtraOptions":
        server = Server(
            base_url=settings.base_url,
            api_key=settings.api_key.get_secret_value(),
            dimensions=settings.dimensions,
            timeout_seconds=settings.timeout_seconds,
            batch_texts=settings.batch_texts,
        )
        return cls(text_chars=settings.text_chars, server=server)
