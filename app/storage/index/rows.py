"""Rows of the search index on their way into a segment: one by one, or many of them joined in a block."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.storage.index.record_codec import PackedRecord


@dataclass(frozen=True, slots=True)
class Row:
    """A document's handle and its packed record; None if it was deleted."""

    id: int
    packed: PackedRecord | None


@dataclass(frozen=True, slots=True)
class Block:
    """Many documents: their handles, each part of their packed records joined, and the length in bytes of each part.

    A document without a vector has a vector length of 0.
    """

    ids: Sequence[int]
    heads: bytes
    vectors: bytes
    terms: bytes
    facets: bytes
    vector_lengths: Sequence[int]
    term_lengths: Sequence[int]
    facet_lengths: Sequence[int]


JoinedParts: TypeAlias = tuple[bytes, Sequence[int]]
"""Joined parts of packed records, and the length in bytes of each."""


def join_parts(parts: list[JoinedParts]) -> JoinedParts:
    """Joins the parts of several blocks into one."""
    return b"".join([joined for joined, _ in parts]), [length for _, lengths in parts for length in lengths]
