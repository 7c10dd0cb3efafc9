"""Packed records: the head, terms and facets of a document, and the vectors of its text's windows."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import Any
from zlib import crc32

import numpy as np
import simsimd
from numpy.typing import NDArray

from app.core.clock import to_ms
from app.storage.changes import IndexEntry
from app.storage.schema import SearchSchema, top_of, value_at
from app.storage.search import Bools, Floats, Ints
from app.storage.text import LONG, TEXT_FLAGS, IndexedTerms, name_id


def join_windows(windows: Sequence[bytes]) -> bytes:
    """Returns the `vector` field of a record whose windows have these vectors (at least one, all of equal length)."""
    if len(windows) == 1:
        return windows[0]
    return b"".join(windows) + bytes((len(windows),))


def split_windows(vector: bytes, *, long: bool) -> tuple[bytes, bytes]:
    """Splits a record's `vector` field into the vector of the first window and those of the further ones."""
    if not long:
        return vector, b""
    dim = (len(vector) - 1) // vector[-1]
    return vector[:dim], vector[dim:-1]


def holds_windows(length: int, last: int) -> bool:
    """Returns whether a `vector` field of this length and last byte can contain several windows."""
    return last > 1 and length > last and not (length - 1) % last


def norms_of(vectors: NDArray[np.int8]) -> Floats:
    """Returns the lengths of the vectors (n, dim), in int8 units."""
    norms: Floats = np.linalg.norm(vectors.astype(np.float32), axis=1)
    return norms


@dataclass(frozen=True, slots=True)
class Further:
    """The windows after the first, of some entries.

    `vectors` (m, dim) has the windows of one entry in consecutive rows; `per_norm` (m,) is 1 / their lengths. `entries`
    (k,) are the entries, each once; `starts` (k,) is the first row of each.
    """

    vectors: NDArray[np.int8]
    per_norm: Floats
    entries: Ints
    starts: Ints

    def raise_to_best(self, cosine: Floats, wanted: NDArray[np.int8], scale: np.float32, has_vector: Bools) -> None:
        """Raises the cosine of each entry to that of its best window, in place.

        Entries without a vector of the query's model keep theirs, which is 0.
        """
        dots = simsimd.cdist(wanted, self.vectors, metric="dot", out_dtype="float32")
        scores = np.asarray(dots)[0] * self.per_norm
        scores *= scale
        best = np.maximum.reduceat(scores, self.starts)
        best *= has_vector[self.entries]
        cosine[self.entries] = np.maximum(cosine[self.entries], best)


class FurtherWindows:
    """Collects further windows as entries are added. Nothing is removed."""

    def __init__(self, dim: int) -> None:
        self._vectors = np.empty((0, dim), np.int8)
        self._size = 0
        self._entries: list[int] = []
        self._starts: list[int] = []
        self._made: Further | None = None

    @property
    def nbytes(self) -> int:
        return int(self._vectors.nbytes) + 4 * len(self._vectors) + 80 * len(self._entries)

    def add(self, entry: int, vectors: NDArray[np.int8]) -> None:
        """Adds the further windows (at least one) of an entry that has none yet."""
        end = self._size + len(vectors)
        if end > len(self._vectors):
            old = self._vectors
            self._vectors = np.empty((max(end, 2 * len(old)), old.shape[1]), np.int8)
            self._vectors[: self._size] = old[: self._size]
        self._vectors[self._size : end] = vectors
        self._entries.append(entry)
        self._starts.append(self._size)
        self._size, self._made = end, None

    @property
    def result(self) -> Further | None:
        """The collected windows as a query needs them; None if there are none."""
        if self._made is None and self._size:
            vectors = self._vectors[: self._size]
            norms = norms_of(vectors)
            per_norm = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
            self._made = Further(vectors, per_norm, np.array(self._entries, np.int64), np.array(self._starts, np.int64))
        return self._made


TERM = np.dtype([("id", "<u4"), ("count", "u1")])
FACET = np.dtype("<u8")


@cache
def head_dtype(ranges: int) -> np.dtype[np.void]:
    """Returns the layout of a head with this number of ranges.

    `text_rev` is the partition version that last wrote its text, vector, facets or session. A new importance leaves it
    as it is, while the `rev` of the stored row is the version that last wrote anything.
    """
    return np.dtype(
        [
            ("text_rev", "<i8"),
            ("time", "<i8"),
            ("anchor", "<i8"),
            ("content", "<i8"),
            ("session", "<u8"),
            ("ordinal", "<i8"),
            ("ranges", "<f8", (ranges,)),
            ("importance", "<f4"),
            ("norm", "<f4"),
            ("length", "<u4"),
            ("speaker", "<u4"),
            ("model", "<u4"),
            ("flags", "u1"),
            ("pinned", "u1"),
        ]
    )


@dataclass(frozen=True, slots=True)
class PackedRecord:
    """A document in the search index, as bytes."""

    head: bytes
    vector: bytes | None
    """The int8 vectors of all windows; None while the embedding is pending."""
    terms: bytes
    facets: bytes


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


def quantise(vector: Floats) -> NDArray[np.int8]:
    """Converts a unit vector to int8 such that its largest component becomes ±127."""
    whole: NDArray[np.int8] = np.rint(vector * (127.0 / np.abs(vector).max())).astype(np.int8)
    return whole


@cache
def model_id(name: str, dim: int) -> int:
    """Returns the code of a model and its dimension in a record; 0 means no vector."""
    return crc32(f"{name}:{dim}".encode()) or 1


def facet_id(field: str, value: object) -> int:
    """Returns the 64-bit hash of a field's value, which equality filters compare."""
    text = value if isinstance(value, str) else repr(value)
    return int.from_bytes(blake2b(f"{field}\0{text}".encode(), digest_size=8).digest(), "little")


def pack(spec: SearchSchema, doc: Mapping[str, object], entry: IndexEntry, rev: int) -> PackedRecord:
    """Returns the packed record of a document and its index entry, at the partition version `rev`."""
    record = _Head(spec)
    record["text_rev"] = rev
    record["length"], record["flags"] = entry.terms.length, entry.terms.flags & TEXT_FLAGS
    vector = None
    if entry.vector is not None:
        first = quantise(entry.vector)
        whole = first.astype(np.float32)
        record["model"], record["norm"] = model_id(entry.model, len(first)), math.sqrt(whole.dot(whole))
        further = () if entry.further is None else entry.further
        vector = join_windows([first.tobytes(), *(quantise(window).tobytes() for window in further)])
        record["flags"] |= LONG * (len(further) > 0)
    _describe(record, spec, doc)
    return PackedRecord(record.bytes(), vector, _packed_terms(entry.terms), _facets(spec, doc).tobytes())


def repack(
    spec: SearchSchema, doc: Mapping[str, object], old: PackedRecord, rev: int, changed: Set[str] | None = None
) -> PackedRecord:
    """Returns the record of a changed document whose text and vector stayed.

    `changed` are the top-level fields that changed; None means any. `text_rev` moves only if facets or the position in
    the session changed.
    """
    record = _Head(spec, old.head)
    place = record["session"], record["ordinal"]
    _describe(record, spec, doc, changed)
    facets = old.facets
    if changed is None or not changed.isdisjoint(_facet_sources(spec)):
        facets = _facets(spec, doc).tobytes()
    if facets != old.facets or place != (record["session"], record["ordinal"]):
        record["text_rev"] = rev
    return replace(old, head=record.bytes(), facets=facets)


def reword(
    spec: SearchSchema, doc: Mapping[str, object], old: PackedRecord, terms: IndexedTerms, rev: int
) -> PackedRecord:
    """Returns the record of a document with new terms. Its vectors stay; `text_rev` moves if the terms differ."""
    result = repack(spec, doc, old, rev)
    record, packed = _Head(spec, result.head), _packed_terms(terms)
    record["length"], record["flags"] = terms.length, record["flags"] & ~TEXT_FLAGS | terms.flags & TEXT_FLAGS
    if packed != old.terms:
        record["text_rev"] = rev
    return replace(result, head=record.bytes(), terms=packed)


def _packed_terms(terms: IndexedTerms) -> bytes:
    packed = np.empty(len(terms.ids), TERM)
    packed["id"], packed["count"] = terms.ids, terms.counts
    return packed.tobytes()


class _Head:
    """One head, with access to fields by name. Writing fields one by one through numpy takes longer than all the
    rest."""

    __slots__ = ("_layout", "_values")

    def __init__(self, spec: SearchSchema, head: bytes | None = None) -> None:
        self._layout = _layout(len(spec.ranges))
        whole, _ = self._layout
        self._values = list(whole.unpack(bytes(whole.size) if head is None else head))

    def __getitem__(self, name: str) -> Any:
        return self._values[self._layout[1][name]]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[self._layout[1][name]] = value

    def bytes(self) -> bytes:
        return self._layout[0].pack(*self._values)


@cache
def _layout(ranges: int) -> tuple[Struct, dict[str, int | slice]]:
    """Returns the struct of `head_dtype`, and the position of each field among its values."""
    dtype = head_dtype(ranges)
    assert dtype.names is not None
    codes, places, count = "<", dict[str, int | slice](), 0
    for name in dtype.names:
        field = dtype[name]
        size = math.prod(field.shape)
        codes += size * np.dtype(field.base).char.replace("l", "q").replace("L", "Q")
        places[name] = slice(count, count + size) if field.shape else count
        count += size
    return Struct(codes), places


def _describe(record: _Head, spec: SearchSchema, doc: Mapping[str, object], changed: Set[str] | None = None) -> None:
    for name, sources, read in _parts(spec):
        if changed is None or not changed.isdisjoint(sources):
            record[name] = read(doc)
    if spec.flags is not None and (changed is None or not changed.isdisjoint(spec.flag_fields)):
        record["flags"] = record["flags"] & (TEXT_FLAGS | LONG) | spec.flags(doc)


@cache
def _parts(spec: SearchSchema) -> tuple[tuple[str, frozenset[str], Callable[[Mapping[str, Any]], Any]], ...]:
    """Returns, for each field of the record, its name, the top-level document fields it depends on, and how to read
    it."""

    def path_reader(
        field: str, read: Callable[[Any], Any]
    ) -> tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]]:
        return (field,), lambda doc: read(value_at(doc, field))

    parts = {
        "time": (spec.time, lambda doc: to_ms(_first(doc, spec.time))),
        "anchor": (spec.anchor, lambda doc: to_ms(_first(doc, spec.anchor))),
        "content": (spec.content, lambda doc: int(_first(doc, spec.content, 0))),
        "session": ((spec.session, spec.ordinal, spec.placed or spec.ordinal), lambda doc: _session(spec, doc)),
        "ordinal": path_reader(spec.ordinal, lambda value: value or 0),
        "importance": path_reader(spec.importance, lambda value: value or 0.0),
        "pinned": path_reader(spec.pinned, bool),
        "speaker": path_reader(spec.speaker, lambda value: name_id(value or "")),
        "ranges": (spec.ranges, lambda doc: [range_value(value_at(doc, field)) for field in spec.ranges]),
    }
    return tuple((name, frozenset(map(top_of, fields)), read) for name, (fields, read) in parts.items())


def _session(spec: SearchSchema, doc: Mapping[str, object]) -> int:
    """Returns the session's hash, or 0. Derived records have no session position."""
    session, needed = value_at(doc, spec.session), (spec.ordinal, spec.placed or spec.ordinal)
    if session is None or any(value_at(doc, field) is None for field in needed):
        return 0
    return facet_id(spec.session, session)


def range_value(value: str | float | None) -> float:
    """Converts the value of a range field to a number.

    Times become milliseconds since 1970. Absent becomes NaN, which lies in no range.
    """
    if value is None:
        return float("nan")
    return float(to_ms(value)) if isinstance(value, str) else float(value)


def _first(doc: Mapping[str, object], fields: tuple[str, ...], default: Any = None) -> Any:
    return next((value for field in fields if (value := value_at(doc, field)) is not None), default)


@cache
def sources_of(spec: SearchSchema) -> frozenset[str]:
    """Returns the top-level fields that a record is made of, beside the text: an update of others leaves it as it is,
    such as one more count."""
    return frozenset[str]().union(*(sources for _, sources, _ in _parts(spec)), spec.flag_fields, _facet_sources(spec))


@cache
def _facet_sources(spec: SearchSchema) -> frozenset[str]:
    return frozenset(map(top_of, spec.facets))


def _facets(spec: SearchSchema, doc: Mapping[str, object]) -> NDArray[np.uint64]:
    facet_ids = sorted({facet_id(field, value) for field in spec.facets for value in _values(value_at(doc, field))})
    return np.array(facet_ids, FACET)


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif value is not None:
        yield value


# --- What a head says -------------------------------------------------------------------------------------------------

NO_MODEL = bytes(4)
NORMS_AT_ONCE = 4096


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


def overlaid(
    spec: SearchSchema, rows: Sequence[Row], model: int, dim: int, find: Callable[[list[int]], Mapping[int, bytes]]
) -> list[Row]:
    """Returns the rows with their alternate vectors of `model` (dimension `dim`) in place of their own, where they have
    one.

    `find` takes the ids of rows that may have an alternate vector, and returns the vectors by row.
    """
    start, fine = model_at(spec), (code(model), NO_MODEL)
    end = start + len(NO_MODEL)
    others = [row.id for row in rows if row.packed is not None and row.packed.head[start:end] not in fine]
    if not others:
        return list(rows)
    vectors = find(others)
    replaced = [row_id for row_id in others if row_id in vectors]
    norms: dict[int, bytes] = {}  # in int8 units, in the form that a head contains
    for first in range(0, len(replaced), NORMS_AT_ONCE):
        part = replaced[first : first + NORMS_AT_ONCE]
        windows = np.frombuffer(b"".join([vectors[row_id][:dim] for row_id in part]), np.int8)
        lengths = norms_of(windows.reshape(len(part), -1))
        norms.update(zip(part, (length.tobytes() for length in lengths), strict=True))
    length_at, mark_at = _place(spec, "norm"), flags_at(spec)

    def restored(row: Row) -> Row:
        assert row.packed is not None
        head = bytearray(row.packed.head)
        head[start:end], head[length_at : length_at + 4] = code(model), norms[row.id]
        head[mark_at] = head[mark_at] & ~LONG | LONG * (len(vectors[row.id]) > dim)
        return Row(row.id, PackedRecord(bytes(head), vectors[row.id], row.packed.terms, row.packed.facets))

    return [restored(row) if row.id in norms else row for row in rows]


@cache
def _place(spec: SearchSchema, name: str) -> int:
    fields = head_dtype(len(spec.ranges)).fields
    assert fields is not None
    return int(fields[name][1])


def at_version(spec: SearchSchema, packed: PackedRecord, rev: int) -> PackedRecord:
    """Returns the packed record with the partition version `rev`: versions belong to the store, not to the record."""
    head = np.frombuffer(packed.head, head_dtype(len(spec.ranges)))[0].copy()
    head["text_rev"] = rev
    return replace(packed, head=head.tobytes())
