"""Documents as MongoDB stores them, and filters as its queries: our fields under their own names, and the engine's
under `_r`.

`_id` is tenant and id, so that ids of two tenants never clash and a tenant's documents are adjacent. Fields that
contain callers' objects are JSON text inside `{"json": …}`: their keys ("$where", "a.b", "") can never be a path, an
operator or an update, and integers, floats, null and the order of keys come back exactly. Plain strings and numbers of
these fields are stored unchanged.

`_r` contains what callers do not see. `u` has the unique keys, which are computed here, so that "null is a value" and
any form of condition work on every deployment. A searched document also has `partition`, `rev` (the version of the
partition that last wrote it), `row` (its handle), the packed record (`head`, `vector`, `terms`, `facets`) and what the
search indexes read. `kept` has alternate vectors, by the codes of their models. A vector index takes one vector for
each document: `vector` is that of the first window, `further` are those of a long text's other windows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, TypeVar, cast

import numpy as np
import orjson
from bson.binary import Binary, BinaryVectorDtype
from bson.int64 import Int64

from app.core.work import json_work, off_loop
from app.storage import schema
from app.storage.index.record_codec import TERM, PackedRecord, head_dtype, join_windows, range_value, split_windows
from app.storage.protocol import Order
from app.storage.records import left_out
from app.storage.text import LONG

Stored: TypeAlias = dict[str, Any]
"""A document as MongoDB has it, whole or in parts, or what an update sets."""


class OwnFields(TypedDict, total=False):
    """What a stored document has under `_r`. A field that it does not need is missing; integers come as `Int64`."""

    u: dict[str, str]
    writes: int
    partition: int
    rev: int
    row: int
    head: bytes
    vector: bytes
    further: bytes
    terms: bytes
    facets: bytes
    model: int
    words: str
    ranges: dict[str, float]
    absent: list[str]
    kept: dict[str, bytes]


T = TypeVar("T")

SEPARATOR = "\x1f"
"""Separates tenant and id. No tenant's name can contain it (`identifiers.TENANT`)."""
OWN = "_r"
PLAIN = {OWN: 0}
"""Projection of a document as callers get it."""
PARTITION, REV, ROW = f"{OWN}.partition", f"{OWN}.rev", f"{OWN}.row"
PACKED = (f"{OWN}.head", f"{OWN}.vector", f"{OWN}.further", f"{OWN}.terms", f"{OWN}.facets")
VECTOR, MODEL, KEPT = f"{OWN}.vector", f"{OWN}.model", f"{OWN}.kept"
_UNLIKE_ROW = (
    *("u", "writes", "partition", "rev", "head", "vector", "further", "terms", "facets", "model", "words", "ranges"),
    *("absent", "kept"),
)
WITH_ROW = dict.fromkeys((f"{OWN}.{name}" for name in _UNLIKE_ROW), 0)
"""Projection of a document as callers get it, and of its handle."""


AT_ONCE = 200
"""Maximum number of values in one `$in`."""


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yields the values in slices of `AT_ONCE`."""
    for start in range(0, len(values), AT_ONCE):
        yield values[start : start + AT_ONCE]


def key(tenant: str, doc_id: str) -> str:
    return f"{tenant}{SEPARATOR}{doc_id}"


def id_in(stored: Stored) -> str:
    return str(stored["_id"]).partition(SEPARATOR)[2]


def encode(collection: schema.Collection, fields: Mapping[str, object]) -> Stored:
    """Returns the fields as they are stored: objects and lists of an opaque field as their JSON."""
    return {
        name: {"json": orjson.dumps(value).decode()}
        if name in collection.opaque and isinstance(value, dict | list)
        else value
        for name, value in fields.items()
    }


def json_length(collection: schema.Collection, *stored: Stored) -> int:
    """Returns the characters of JSON that documents have."""
    return sum(
        len(value["json"]) for doc in stored for name in collection.opaque if isinstance(value := doc.get(name), dict)
    )


async def all_decoded(collection: schema.Collection[schema.R], stored: Sequence[Stored]) -> list[schema.R | None]:
    """Returns the documents as they were given, None for each that cannot be read: long ones beside the event loop.
    Modifies `stored`."""
    work = json_work(json_length(collection, *stored))
    return await off_loop(work, lambda: [decoded(collection, doc) for doc in stored])


def decoded(collection: schema.Collection[schema.R], stored: Stored) -> schema.R | None:
    """Returns the document as it was given, or None if it cannot be read. Modifies `stored`."""
    doc_id = id_in(stored)
    try:
        return decode(collection, stored)
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        left_out(collection, doc_id, type(error).__name__)
        return None


def decode(collection: schema.Collection[schema.R], stored: Stored) -> schema.R:
    """Returns the document as it was given. Modifies `stored`."""
    stored.pop("_id", None)
    stored.pop(OWN, None)
    given: Stored = {}
    for name, value in stored.items():
        is_json = name in collection.opaque and isinstance(value, dict)
        given[name] = orjson.loads(value["json"]) if is_json else _plain(value)
    return cast(schema.R, given)


def known_in(collection: schema.Collection, stored: Stored) -> schema.Doc:
    """Returns what a document says that cannot be read: all but its opaque fields."""
    known: schema.Doc = decode(
        collection, {name: value for name, value in stored.items() if name not in collection.opaque}
    )
    return known


def _plain(value: Any) -> Any:
    """Returns the value with the driver's own integers as int."""
    kind = type(value)
    if kind is Int64:
        return int(value)
    if kind is dict:
        return {name: _plain(part) for name, part in value.items()}
    if kind is list:
        return [_plain(part) for part in value]
    return value


# --- Unique keys ------------------------------------------------------------------------------------------------------


def unique_path(unique: schema.Unique) -> str:
    return f"{OWN}.u.{unique.name}"


def unique_keys(collection: schema.Collection, doc: schema.Doc) -> dict[str, str]:
    """Returns the values of the unique keys whose condition the document meets, by name."""
    keys: dict[str, str] = {}
    for unique in collection.unique:
        if schema.matches(doc, unique.when):
            values = [schema.value_at(doc, field) for field in unique.fields]
            whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
            keys[unique.name] = orjson.dumps([doc["tenant_id"], *whole]).decode()
    return keys


# --- Packed records ---------------------------------------------------------------------------------------------------

MOST_REPEATS = 4
"""A document's words tell the search index how often a term occurs, so it finds what our BM25 puts first: with each
term once, it missed 13 of 200 texts among the first ten of 200,000 records. In BM25 a fifth time adds a twentieth."""


def packed_fields(spec: schema.SearchSchema, doc: schema.Doc, packed: PackedRecord) -> Stored:
    """Returns the fields of `_r`: the packed record, and the values that search indexes filter and match by.

    None means that the field is not stored.
    """
    head = np.frombuffer(packed.head, head_dtype(len(spec.ranges)))[0]
    first, further = None, b""
    if packed.vector is not None:
        first, further = split_windows(packed.vector, long=bool(head["flags"] & LONG))
    terms = np.frombuffer(packed.terms, TERM)
    words = np.repeat(terms["id"], np.minimum(terms["count"], MOST_REPEATS))
    values = {field: schema.value_at(doc, field) for field in spec.ranges}
    return {
        "head": packed.head,
        "vector": None if first is None else vector_of(first),
        "further": further or None,
        "terms": packed.terms,
        "facets": packed.facets,
        "model": Int64(int(head["model"])),
        "words": term_text(words.tolist()),
        "ranges": {range_name(field): range_value(value) for field, value in values.items() if value is not None},
        "absent": [field for field, value in values.items() if value is None],
    }


def term_text(ids: list[int]) -> str:
    """Returns term ids as words for a whitespace analyzer, so that both engines search the same terms."""
    return " ".join(f"{term:08x}" for term in ids)


def range_name(field: str) -> str:
    return field.replace(".", "_")


def vector_of(raw: bytes) -> Binary:
    """Returns an int8 vector as BSON's vector type, which vector search indexes directly."""
    return Binary(bytes((BinaryVectorDtype.INT8.value[0], 0)) + raw, 9)


def raw_vector(stored: bytes) -> bytes:
    """Returns the int8 vector of a BSON vector."""
    return bytes(stored)[2:]


def packed_of(own: OwnFields) -> PackedRecord | None:
    """Returns the packed record in `_r`, or None."""
    if "head" not in own:
        return None
    return PackedRecord(own["head"], whole_vector(own), own["terms"], own["facets"])


def whole_vector(own: OwnFields) -> bytes | None:
    """Returns the record's `vector`, with all windows, or None."""
    if "vector" not in own:
        return None
    first, further = raw_vector(own["vector"]), own.get("further", b"")
    return join_windows([first, *(further[at : at + len(first)] for at in range(0, len(further), len(first)))])


# --- Queries ----------------------------------------------------------------------------------------------------------

Query: TypeAlias = dict[str, Any]

NOTHING: Query = {"_id": {"$in": []}}


def where(collection: schema.Collection, part: schema.Filter) -> Query:
    match part:
        case schema.And(parts):
            return all_of(*(where(collection, inner) for inner in parts))
        case schema.Or(parts):
            return {"$or": [where(collection, inner) for inner in parts]} if parts else NOTHING
        case schema.Not(inner):
            return {"$nor": [where(collection, inner)]}
        case schema.Absent(field):
            return {_path(collection, field): None}
        case schema.Eq(field, value) | schema.Has(field, value):
            return {_path(collection, field): {"$eq": value}}
        case schema.In(field, values):
            return {_path(collection, field): {"$in": list(values)}}
        case schema.Range():
            return {_path(collection, part.field): bounds(part)}


def bounds(part: schema.Range) -> Query:
    given = {"$gte": part.ge, "$gt": part.gt, "$lte": part.le, "$lt": part.lt}
    return {sign: bound for sign, bound in given.items() if bound is not None} or {"$ne": None}


def of_tenant(collection: schema.Collection, tenant: str | None, part: schema.Filter) -> Query:
    """Returns the filter as a query of one tenant, or of all with None."""
    return where(collection, part) if tenant is None else all_of({"tenant_id": tenant}, where(collection, part))


def all_of(*parts: Query) -> Query:
    there = [part for part in parts if part]
    names = [name for part in there for name in part]
    if len(names) == len(set(names)):
        return {name: value for part in there for name, value in part.items()}
    return {"$and": there}


def beyond(collection: schema.Collection, after: schema.After | None, order: Order) -> Query:
    """Returns the query for documents after a position in a list."""
    if after is None:
        return {}
    sign = "$lt" if order == "desc" else "$gt"
    by = collection.order
    # the index can use only the bound on the order field; the rest settles ties
    return {
        by: {f"{sign}e": after.value},
        "$or": [{by: {sign: after.value}}, {collection.id_field: {sign: after.id}}],
    }


def sorting(collection: schema.Collection, order: Order) -> list[tuple[str, int]]:
    sign = -1 if order == "desc" else 1
    return [(collection.order, sign), (collection.id_field, sign)]


def _path(collection: schema.Collection, field: str) -> str:
    if field not in collection.fields and field not in ("tenant_id", collection.id_field, collection.order):
        raise KeyError(f"{collection.name} declares no field {field}")
    return field


def new_document(collection: schema.Collection, doc: schema.Doc) -> Stored:
    """Returns a new document as it is stored, without its packed record."""
    stored = {"_id": key(doc["tenant_id"], str(doc[collection.id_field])), **encode(collection, doc)}
    keys = unique_keys(collection, doc)
    return stored | ({OWN: {"u": keys}} if keys else {})
