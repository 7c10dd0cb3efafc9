"""The interface of an embedding model. It is synchronous."""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.core.language import sentence_ends
from app.core.tracing import TraceSpan, span
from app.core.tuning import USUAL
from app.errors import EmbeddingUnavailable
from app.settings import EmbeddingSettings

Vectors: TypeAlias = NDArray[np.float32]

LATIN_ONLY = ("all-MiniLM-", "all-mpnet-", "recalld-minilm-")
"""Prefixes of the names of models that were trained on English only. Other models count as models of all scripts."""


def knows_all_scripts(name: str) -> bool:
    """Returns whether a model's vectors are as good in other scripts as in Latin."""
    return not name.rpartition("/")[2].startswith(LATIN_ONLY)


def without_runtime(name: str) -> str:
    """Returns the name of a model without that of what runs it: `recalld-minilm-1` for `recalld-minilm-1:onnx`. Numbers
    are fitted for a model, whatever runs it."""
    return name.partition(":")[0]


PASSAGE_PROMPTS = ("document", "passage", "corpus")
"""Names of the prompt for stored texts, in the order in which sentence-transformers looks for them."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prefixes that a model expects, for queries and for stored texts. Most models expect none."""

    query: str = ""
    passage: str = ""

    @classmethod
    def of(cls, stored: Mapping[str, str], default: str | None = None) -> "Prompts":
        """Creates prompts from those that sentence-transformers stores with a model, by name.

        `default`: name of the prompt for texts without a prompt of their own.
        """
        general = stored.get(default, "") if default else ""
        passage = next((prompt for name in PASSAGE_PROMPTS if (prompt := stored.get(name))), general)
        return cls(stored.get("query") or general, passage)

    def variant(self, digest: str) -> str:
        """Returns eight hex digits that become part of a model's name.

        They come from the weights' hash, and from the prompts if there are any, because other prompts give other
        vectors.
        """
        if self == NO_PROMPTS:
            return digest[:8]
        return hashlib.sha256(f"{digest}\0{self.query}\0{self.passage}".encode()).hexdigest()[:8]


NO_PROMPTS = Prompts()


class Model(Protocol):
    """An embedding model."""

    @property
    def name(self) -> str:
        """Name of the model and its variant."""

    @property
    def dim(self) -> int:
        """Number of dimensions."""

    @property
    def prompts(self) -> Prompts:
        """Prompts that the caller puts before the texts. `split` leaves room for the prompt of passages."""

    @property
    def piece_tokens(self) -> int | None:
        """Maximum tokens of one run while others may wait, or one text. None: as many as the setting allows (a server,
        a GPU).

        On a CPU large batches are no faster, and a query waits for the run under way.
        """

    @property
    def runs_beside_itself(self) -> bool:
        """Whether `encode` may be called from two threads at once. Else one thread calls it."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Returns vectors, shape (n, dim), float32, of unit length."""

    def split(self, text: str) -> list[str]:
        """Returns the parts of a text that `encode` reads in full, at most `MAX_WINDOWS`.

        The result is the text itself if it fits into one. Token counts may be estimates. It is called from any thread.
        """


def unit(vectors: Vectors) -> Vectors:
    """Returns the rows scaled to length 1.

    A row without direction, or not finite, becomes zeros, which are not stored.
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    usable = np.isfinite(norms) & (norms > 0)
    result: Vectors = np.divide(vectors, norms, out=np.zeros_like(vectors), where=usable)
    return result


def clipped(text: str, most_chars: int) -> str:
    """Returns the beginning of the text as valid Unicode.

    Tokenizers reject lone surrogates, which a Python str may contain.
    """
    return text[:most_chars].encode("utf-8", "replace").decode()


def estimated_tokens(text: str) -> int:
    """Estimates the tokens of a text as a quarter of its bytes.

    This is enough to bound a batch, in any script.
    """
    return len(text.encode("utf-8", "replace")) // 4 + 1


def encode_checked(model: Model, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
    """Returns the vectors, and a mask of those that may be stored: finite and of unit length.

    Raises EmbeddingUnavailable if the shape is wrong, and any exception of the model.
    """
    vectors = np.asarray(model.encode(texts), np.float32)
    if vectors.shape != (len(texts), model.dim):
        raise EmbeddingUnavailable(f"{model.name} gave vectors of shape {vectors.shape} for {len(texts)} texts")
    return vectors, np.abs(np.linalg.norm(vectors, axis=1) - 1) < 1e-2


@dataclass(frozen=True, slots=True)
class Server:
    """Address and parameters of an OpenAI-compatible `/embeddings` endpoint."""

    base_url: str = "https://api.openai.com/v1"
    api_key: str = field(default="", repr=False)
    dimensions: int = 0  # 0: the server's default
    timeout_seconds: float = USUAL.embedding_seconds  # maximum duration of one batch, retries included
    batch_texts: int = 128


@dataclass(frozen=True, slots=True)
class ExtraOptions:
    """Options of the models that are optional extras."""

    text_chars: int = 8192  # maximum length of a text; the rest is cut off
    server: Server = Server()

    @classmethod
    def of(cls, settings: EmbeddingSettings, timeout_seconds: float = USUAL.embedding_seconds) -> "ExtraOptions":
        """Reads the options from the settings."""
        server = Server(
            base_url=settings.base_url,
            api_key=settings.api_key.get_secret_value(),
            dimensions=settings.dimensions,
            timeout_seconds=timeout_seconds,
        )
        return cls(text_chars=settings.text_chars, server=server)


LOCAL_PROVIDER = "recalld"
"""Who runs a model of this process, as traces tell it."""


def span_of(model: Model, texts: int) -> TraceSpan:
    """Returns the span of embedding so many texts."""
    attributes = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": getattr(model, "provider", LOCAL_PROVIDER),
        "gen_ai.request.model": model.name,
        "recalld.embedding.texts": texts,
    }
    return span(f"embeddings {model.name}", attributes, "client")


# --- Windows ----------------------------------------------------------------------------------------------------------

# Windows: the parts of a long text that a model reads in full, each with a vector of its own.


MAX_WINDOWS = 8
"""Maximum number of windows with a vector. All words of a longer text are still indexed."""
EIGHTH = 8
"""A window may end up to an eighth early, at a boundary. The next window repeats up to an eighth of it."""

Reach: TypeAlias = Callable[[int], int]
"""Maps the start of a window to its furthest end. Both are places in the text, and the end lies after the start."""

_SPACE = re.compile(r"\s+")


def split(text: str, reach: Reach) -> list[str]:
    """Splits a text into at most `MAX_WINDOWS` windows, in order. A text that fits into one window is returned whole.

    A window ends after a sentence if one ends in its last eighth, else after a word, else at its limit. The next window
    begins after the first space in that last eighth, or at its begin (scripts without spaces), so the two overlap.
    """
    windows: list[str] = []
    start = 0
    while len(windows) < MAX_WINDOWS:
        limit = reach(start)
        if limit >= len(text):
            windows.append(text[start:])
            break
        slack = (limit - start) // EIGHTH
        low = limit - slack
        ends = [*sentence_ends(text, low, limit)] or [space.end() for space in _SPACE.finditer(text, low, limit)]
        end = ends[-1] if ends else limit
        windows.append(text[start:end])
        space = _SPACE.search(text, end - slack, end)
        start = end - slack if space is None else space.end()
    return [window for window in windows if window.strip()] or [text]  # servers reject blank texts


def by_characters(characters: int) -> Reach:
    """Returns a reach in characters, for models without a local tokenizer."""
    return lambda start: start + characters


def by_tokens(spans: Sequence[tuple[int, int]], room: int, end: int) -> Reach:
    """Returns a reach of `room` tokens. `spans`: start and end of each token, in order; `end`: the end of the text."""
    starts = [begin for begin, _ in spans]

    def reach(start: int) -> int:
        last = bisect_left(starts, start) + room
        return end if last >= len(spans) else max(spans[last - 1][1], start + 1)

    return reach
