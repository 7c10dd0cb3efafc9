"""The vector that a search asks for, where a document has those of two models: its own, or one that was kept.

A document's record holds one vector. Moving to another model puts the new one there and keeps the old one beside it,
so that who still searches by the old model reads rows as they were.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from app.storage.collection import Searched
from app.storage.packed import head_dtype
from app.storage.segment import Row

NONE = bytes(4)
_UINT = np.dtype("<u4")


@cache
def model_at(spec: Searched) -> int:
    """Where in a head the model's code is: four bytes."""
    return _place(spec, "model")


def code(model: int) -> bytes:
    """As a head holds it."""
    return model.to_bytes(4, "little")


def model_of(spec: Searched, head: bytes) -> int:
    at = model_at(spec)
    return int.from_bytes(head[at : at + 4], "little")


def model_of_pair(known: int, written: int, count: int) -> int:
    """The model of all vectors of a pair of `count` documents, one of which was just written; 0: they may differ."""
    return written if count == 1 or written == known else 0


def overlaid(
    spec: Searched, rows: Sequence[Row], model: int, find: Callable[[list[int]], Mapping[int, bytes]]
) -> list[Row]:
    """The rows with the vectors of `model` that were kept, by row, as `find` finds them for rows that may have one."""
    at, own = model_at(spec), code(model)
    heads = [(row.id, row.packed.head[at : at + 4]) for row in rows if row.packed is not None]
    others = [row_id for row_id, of in heads if of not in (own, NONE)]
    found = find(others) if others else {}
    kept = {row_id: found[row_id] for row_id in others if row_id in found}
    return [row if row.id not in kept else restored(spec, row, model, kept[row.id]) for row in rows]


def restored(spec: Searched, row: Row, model: int, vector: bytes) -> Row:
    assert row.packed is not None
    head = bytearray(row.packed.head)
    norm = np.float32(np.linalg.norm(np.frombuffer(vector, np.int8).astype(np.float32)))
    for name, value in (("model", code(model)), ("norm", norm.tobytes())):
        place = _place(spec, name)
        head[place : place + 4] = value
    return Row(row.id, replace(row.packed, head=bytes(head), vector=vector))


@cache
def _place(spec: Searched, name: str) -> int:
    fields = head_dtype(len(spec.ranges)).fields
    assert fields is not None
    return int(fields[name][1])
