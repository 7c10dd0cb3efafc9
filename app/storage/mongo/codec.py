"""A document as MongoDB keeps it: our fields under their own names, and the engine's under `_r`.

`_id` is tenant and id, so that ids of two tenants never clash and a tenant's documents lie together. Fields that hold
callers' objects are JSON text inside `{"json": …}`: whatever their keys ("$where", "a.b", ""), they are never a path,
an operator or an update, and integers, floats, null and the order of keys come back exactly. Their plain strings and
numbers stay as they are.

`_r` holds what no caller sees: `u`, unique keys computed here, so that "null is a value" and conditions of any form
hold on every deployment; and of a searched document `pair`, `rev` (the pair's version that wrote it last), `row` (its
handle) and the packed record (`head`, `vector`, `terms`, `facets`), with what the search indexes read beside it;
`kept` holds the vectors of other models that stand beside `vector`, by the models' codes. A vector index takes one
vector a document: `vector` is that of the first window, and `further` are those of a long text's other windows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import orjson
from bson.binary import Binary, BinaryVectorDtype
from bson.int64 import Int64

from app.storage.filters import matches, value_at
from app.storage.index.record_codec import TERM, PackedRecord, head_dtype, range_value
from app.storage.schema import Collection, Doc, SearchSchema, Unique
from app.storage.text import LONG
from app.storage.windows import joined, parted

Stored: TypeAlias = dict[str, Any]
T = TypeVar("T")

SEPARATOR = "\x1f"
"""Between tenant and id; no tenant's name can hold it (`Identifier`)."""
OWN = "_r"
PLAIN = {OWN: 0}
"""Projection of what callers get."""
PAIR, REV, ROW = f"{OWN}.pair", f"{OWN}.rev", f"{OWN}.row"
PACKED = (f"{OWN}.head", f"{OWN}.vector", f"{OWN}.further", f"{OWN}.terms", f"{OWN}.facets")
VECTOR, MODEL, KEPT = f"{OWN}.vector", f"{OWN}.model", f"{OWN}.kept"
_UNLIKE_ROW = (
    *("u", "writes", "pair", "rev", "head", "vector", "further", "terms", "facets", "model", "words", "ranges"),
    *("absent", "kept"),
)
WITH_ROW = dict.fromkeys((f"{OWN}.{name}" for name in _UNLIKE_ROW), 0)
"""Projection of what callers get, and its handle."""


AT_ONCE = 200
"""Most values in one `$in`."""


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), AT_ONCE):
        yield values[start : start + AT_ONCE]


def key(tenant: str, doc_id: str) -> str:
    return f"{tenant}{SEPARATOR}{doc_id}"


def encode(collection: Collection, fields: Mapping[str, Any]) -> Stored:
    return {name: _sealed(value) if name in collection.opaque else value for name, value in fields.items()}


def decode(collection: Collection, stored: Stored) -> Doc:
    """The document as it was given; `stored` is used up."""
    stored.pop("_id", None)
    stored.pop(OWN, None)
    for name in collection.opaque:
        value = stored.get(name)
        if isinstance(value, dict):
            stored[name] = orjson.loads(value["json"])
    return {name: _plain(value) for name, value in stored.items()}


def _sealed(value: Any) -> Any:
    return {"json": orjson.dumps(value).decode()} if isinstance(value, dict | list) else value


def _plain(value: Any) -> Any:
    """Without the driver's own integers."""
    kind = type(value)
    if kind is Int64:
        return int(value)
    if kind is dict:
        return {name: _plain(part) for name, part in value.items()}
    if kind is list:
        return [_plain(part) for part in value]
    return value


# --- Unique keys ------------------------------------------------------------------------------------------------------


def unique_path(unique: Unique) -> str:
    return f"{OWN}.u.{unique.name}"


def unique_keys(collection: Collection, doc: Doc) -> dict[str, str]:
    """Name → value, for those whose condition the document meets."""
    return {u.name: _unique_key(doc, u) for u in collection.unique if matches(doc, u.when)}


def _unique_key(doc: Doc, unique: Unique) -> str:
    values = [value_at(doc, field) for field in unique.fields]
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    return orjson.dumps([doc["tenant_id"], *whole]).decode()


# --- What search keeps ------------------------------------------------------------------------------------------------


def packed_fields(spec: SearchSchema, doc: Doc, packed: PackedRecord) -> Stored:
    """Fields of `_r`: the record, and what the search indexes filter and match by. None: the field is not there."""
    head = np.frombuffer(packed.head, head_dtype(len(spec.ranges)))[0]
    first, further = None, b""
    if packed.vector is not None:
        first, further = parted(packed.vector, long=bool(head["flags"] & LONG))
    return {
        "head": packed.head,
        "vector": None if first is None else vector_of(first),
        "further": further or None,
        "terms": packed.terms,
        "facets": packed.facets,
        "model": Int64(int(head["model"])),
        "words": term_text(np.frombuffer(packed.terms, TERM)["id"].tolist()),
        "ranges": _ranges(spec, doc),
        "absent": [field for field in spec.ranges if value_at(doc, field) is None],
    }


def term_text(ids: list[int]) -> str:
    """Our own terms as words that a whitespace analyzer keeps apart: both engines find by the same ones."""
    return " ".join(f"{term:08x}" for term in ids)


def _ranges(spec: SearchSchema, doc: Doc) -> dict[str, float]:
    """Numbers and times (milliseconds) as numbers; what is absent is left out."""
    given = {field: value_at(doc, field) for field in spec.ranges}
    return {range_name(field): range_value(value) for field, value in given.items() if value is not None}


def range_name(field: str) -> str:
    return field.replace(".", "_")


def vector_of(raw: bytes) -> Binary:
    """int8 as BSON's own vector type, which vector search indexes as it is."""
    return Binary(bytes((BinaryVectorDtype.INT8.value[0], 0)) + raw, 9)


def raw_vector(stored: bytes) -> bytes:
    return bytes(stored)[2:]


def packed_of(own: Mapping[str, Any]) -> PackedRecord | None:
    """The packed record in `_r`; None where there is none."""
    if "head" not in own:
        return None
    return PackedRecord(own["head"], whole_vector(own), own["terms"], own["facets"])


def whole_vector(own: Mapping[str, Any]) -> bytes | None:
    """The record's `vector`, of all windows."""
    if "vector" not in own:
        return None
    first, further = raw_vector(own["vector"]), own.get("further", b"")
    return joined([first, *(further[at : at + len(first)] for at in range(0, len(further), len(first)))])
