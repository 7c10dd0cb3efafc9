"""Directions in the space of an embedding model, of one file each: `data/KIND_MODEL.npy`. Where a query's vector lies
along one says something of the query, whatever it is about: whether it denies (`polarity.py`), whether it asks
(`asking.py`).
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from app.embedding.model import without_runtime
from app.storage.search import Floats

FOLDER = Path(__file__).parent / "data"


def direction(kind: str, model: str, dim: int) -> Floats | None:
    """Returns the direction, shape (dim,): `direction("asks", "recalld-minilm-1:onnx-int8-d4e6ed7b", 384)`. None: the
    model has none, or another model with vectors of another size bears its name."""
    axis = _of_file(kind, without_runtime(model))
    return None if axis is None or len(axis) != dim else axis


@lru_cache(maxsize=16)
def _of_file(kind: str, model: str) -> Floats | None:
    path = FOLDER / f"{kind}_{model}.npy"
    if "/" in model or not path.is_file():
        return None
    axis: Floats = np.load(path)
    return axis
