"""What a segment reckons once for all queries, until its documents change."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import simsimd
from numpy.typing import NDArray

from app.storage.masks import Masks
from app.storage.packed import model_id, quantise
from app.storage.search import Bools, Floats, Ints, SearchQuery
from app.storage.windows import Further

FADING = ("importance", "anchor", "pinned")
"""Fields of a record that an access may change."""
MAX_QUERIES = 512
_QUERIES: dict[int, tuple[Floats, NDArray[np.int8], np.float32]] = {}
"""By identity of a query's vector, which is held here, so that no other can have it."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """`live`: entries that are not dead, None for all. Of all entries: `model`, 1 / `norm` (0 where there is no
    vector), and the filters' masks."""

    live: Ints | None
    model: NDArray[np.uint32]
    per_norm: Floats
    masks: Masks
    columns: dict[str, Any]
    """Fields of `Columns`."""
    further: Further | None = None
    """None where every text has one window."""
    _of_model: dict[int, tuple[Bools, Floats]] = field(default_factory=dict)

    def with_columns(self, columns: dict[str, Any]) -> "Fixed":
        """The same but for these; what was derived from the others stays."""
        return replace(self, columns=self.columns | columns)

    def cosine(self, query: SearchQuery, vectors: NDArray[np.int8]) -> tuple[Floats, Bools]:
        """Of each entry, whose first windows' `vectors` (n, dim) are; and which of them have a vector of the query's
        model."""
        n, dim = vectors.shape
        if query.vector is None or len(query.vector) != dim or not n:
            return np.zeros(n, np.float32), np.zeros(n, np.bool_)
        wanted, scale = _quantised(query.vector)
        has_vector, per_norm = self._of(model_id(query.model, dim))
        # a product of int8 vectors is a whole number that float32 holds exactly
        dots = simsimd.cdist(wanted, vectors, metric="dot", out_dtype="float32")
        cosine = np.asarray(dots)[0] * per_norm
        cosine *= scale
        if self.further is not None and not query.first_windows:
            self.further.raise_to_best(cosine, wanted, scale, has_vector)
        np.minimum(cosine, 1, out=cosine)  # both are what `clip` would do, at half its price
        np.maximum(cosine, -1, out=cosine)
        return cosine, has_vector

    def _of(self, model: int) -> tuple[Bools, Floats]:
        """Which entries have a vector of the model, and 1 / its norm, 0 for the others."""
        if model not in self._of_model:
            has_vector: Bools = self.model == model
            self._of_model[model] = has_vector, self.per_norm * has_vector
        return self._of_model[model]


def fading(heads: NDArray[np.void], live: Ints | None) -> dict[str, Any]:
    """The columns that say how documents fade, of the entries `live`."""
    at = slice(None) if live is None else live
    return {
        "base_importance": heads["importance"][at].copy(),
        "anchor": heads["anchor"][at].copy(),
        "pinned": heads["pinned"][at].astype(np.bool_),
    }


def _quantised(vector: Floats) -> tuple[NDArray[np.int8], np.float32]:
    """(1, dim) and 1 / its length; kept where nobody can write into the vector, as with those the embedder keeps."""
    held = _QUERIES.get(id(vector))
    if held is None:
        wanted = quantise(vector)
        whole = wanted.astype(np.float32)
        held = vector, wanted[np.newaxis], np.float32(1 / math.sqrt(whole.dot(whole)))
        if not vector.flags.writeable:
            if len(_QUERIES) >= MAX_QUERIES:
                _QUERIES.clear()
            _QUERIES[id(vector)] = held
    return held[1:]
