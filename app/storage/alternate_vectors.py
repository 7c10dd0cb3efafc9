"""Alternate vectors: chooses the vector of the model that a search asks for, a record's own or one kept beside it.

A record contains one vector. A migration to another model replaces it and keeps the old one beside it, so that searches
by the old model see rows as they were.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from app.storage.index.record_codec import PackedRecord, head_dtype
from app.storage.index.segment import Row
from app.storage.schema import SearchSchema
from app.storage.text import LONG
from app.storage.windows import norms_of

NONE = bytes(4)
AT_ONCE = 4096


@cache
def model_at(spec: SearchSchema) -> int:
    """Returns the position of the model's code in a head: four bytes."""
    return _place(spec, "model")


@cache
def flags_at(spec: SearchSchema) -> int:
    """Returns the position of the flags in a head: one byte."""
    return _place(spec, "flags")


def is_long(spec: SearchSchema, head: bytes) -> bool:
    """Returns whether the record's `vector` has several windows."""
    return bool(head[flags_at(spec)] & LONG)


def code(model: int) -> bytes:
    """Returns a model's code in the form that a head contains."""
    return model.to_bytes(4, "little")


def model_of(spec: SearchSchema, head: bytes) -> int:
    """Returns the code of the model of a head's vector."""
    at = model_at(spec)
    return int.from_bytes(head[at : at + 4], "little")


def model_of_pair(known: int, written: int, count: int) -> int:
    """Returns the model of all vectors of a partition with `count` documents, one just written; 0 if they may
    differ."""
    return written if count == 1 or written == known else 0


def overlaid(
    spec: SearchSchema, rows: Sequence[Row], model: int, dim: int, find: Callable[[list[int]], Mapping[int, bytes]]
) -> list[Row]:
    """Returns the rows with their alternate vectors of `model` (dimension `dim`) in place of their own, where they have
    one.

    `find` takes the ids of rows that may have an alternate vector, and returns the vectors by row.
    """
    start, fine = model_at(spec), (code(model), NONE)
    end = start + len(NONE)
    others = [row.id for row in rows if row.packed is not None and row.packed.head[start:end] not in fine]
    if not others:
        return list(rows)
    found = find(others)
    kept = [row_id for row_id in others if row_id in found]
    norms = dict(zip(kept, _norms([found[row_id][:dim] for row_id in kept]), strict=True))
    length_at, mark_at = _place(spec, "norm"), flags_at(spec)

    def restored(row: Row) -> Row:
        assert row.packed is not None
        head = bytearray(row.packed.head)
        head[start:end], head[length_at : length_at + 4] = code(model), norms[row.id]
        head[mark_at] = head[mark_at] & ~LONG | LONG * (len(found[row.id]) > dim)
        return Row(row.id, PackedRecord(bytes(head), found[row.id], row.packed.terms, row.packed.facets))

    return [restored(row) if row.id in norms else row for row in rows]


def _norms(vectors: Sequence[bytes]) -> list[bytes]:
    """Returns the lengths in int8 units, in the form that a head contains."""
    result: list[bytes] = []
    for start in range(0, len(vectors), AT_ONCE):
        part = vectors[start : start + AT_ONCE]
        whole = np.frombuffer(b"".join(part), np.int8).reshape(len(part), -1)
        result += [norm.tobytes() for norm in norms_of(whole)]
    return result


@cache
def _place(spec: SearchSchema, name: str) -> int:
    fields = head_dtype(len(spec.ranges)).fields
    assert fields is not None
    return int(fields[name][1])
