"""Filters as MongoDB queries, `$vectorSearch` filters and `$search` operators."""

from typing import Any, TypeAlias

from app.storage.index.record_codec import range_value
from app.storage.mongo.codec import PAIR, Stored
from app.storage.mongo.schema import ABSENT, range_path
from app.storage.protocol import Order
from app.storage.schema import Absent, After, And, Collection, Eq, Filter, Has, In, Not, Or, Range

Query: TypeAlias = dict[str, Any]

NOTHING: Query = {"_id": {"$in": []}}


def where(collection: Collection, part: Filter) -> Query:
    """Returns the filter as a MongoDB query."""
    match part:
        case And(parts):
            return joined(*(where(collection, inner) for inner in parts))
        case Or(parts):
            return {"$or": [where(collection, inner) for inner in parts]} if parts else NOTHING
        case Not(inner):
            return {"$nor": [where(collection, inner)]}
        case Absent(field):
            return {_path(collection, field): None}
        case Eq(field, value) | Has(field, value):
            return {_path(collection, field): {"$eq": value}}
        case In(field, values):
            return {_path(collection, field): {"$in": list(values)}}
        case Range():
            return {_path(collection, part.field): bounds(part)}


def bounds(part: Range) -> Query:
    """Returns the bounds of a range as query operators."""
    given = {"$gte": part.ge, "$gt": part.gt, "$lte": part.le, "$lt": part.lt}
    return {sign: bound for sign, bound in given.items() if bound is not None} or {"$ne": None}


def of_tenant(collection: Collection, tenant: str | None, part: Filter) -> Query:
    """Returns the filter as a query of one tenant, or of all with None."""
    return where(collection, part) if tenant is None else joined({"tenant_id": tenant}, where(collection, part))


def joined(*parts: Query) -> Query:
    """Returns the conjunction of the queries."""
    there = [part for part in parts if part]
    names = [name for part in there for name in part]
    if len(names) == len(set(names)):
        return {name: value for part in there for name, value in part.items()}
    return {"$and": there}


def beyond(collection: Collection, after: After | None, order: Order) -> Query:
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


def sorting(collection: Collection, order: Order) -> list[tuple[str, int]]:
    """Returns the sort keys of a list."""
    sign = -1 if order == "desc" else 1
    return [(collection.order, sign), (collection.id_field, sign)]


def _path(collection: Collection, field: str) -> str:
    if field not in collection.fields and field not in ("tenant_id", collection.id_field, collection.order):
        raise KeyError(f"{collection.name} declares no field {field}")
    return field


Leaf: TypeAlias = Eq | Has | In | Absent | Range

NO_FILTER: Stored = {PAIR: {"$eq": -1}}
NOTHING_TEXT: Stored = {"equals": {"path": PAIR, "value": -1}}


def inwards(part: Filter, negated: bool = False) -> Filter:
    """Returns an equivalent filter with `Not` only around single conditions that are not ranges."""
    match part:
        case Not(inner):
            return inwards(inner, not negated)
        case And(parts) | Or(parts):
            inner_parts = tuple(inwards(inner, negated) for inner in parts)
            return And(inner_parts) if isinstance(part, And) != negated else Or(inner_parts)
        case Range() if negated:
            return Or((Absent(part.field), *_outside(part)))
        case _:
            return Not(part) if negated else part


def _outside(part: Range) -> list[Filter]:
    beyond = {"lt": part.ge, "le": part.gt, "gt": part.le, "ge": part.lt}
    return [Range(part.field, **{name: bound}) for name, bound in beyond.items() if bound is not None]


def _numbers(part: Range, sign: str) -> dict[str, float]:
    given = {"gte": part.ge, "gt": part.gt, "lte": part.le, "lt": part.lt}
    return {f"{sign}{name}": range_value(bound) for name, bound in given.items() if bound is not None}


# --- $vectorSearch ----------------------------------------------------------------------------------------------------


def vector_filter(where: Filter) -> list[Stored]:
    """Returns the conditions that must all hold, for `$vectorSearch`."""
    result = _vector(inwards(where))
    return [result] if result else []


def _vector(part: Filter) -> Stored:
    match part:
        case And(parts):
            every = [result for inner in parts if (result := _vector(inner))]
            return {"$and": every} if every else {}
        case Or(parts):
            some = [_vector(inner) for inner in parts]
            return NO_FILTER if not some else {"$or": some} if all(some) else {}
        case Not(inner):
            return _vector_not(inner)
        case _:
            return _vector_leaf(part)


def _vector_leaf(part: Leaf) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$eq": value}}
        case In(field, values):
            return {field: {"$in": list(values)}} if values else NO_FILTER
        case Absent(field):
            return {ABSENT: {"$eq": field}}
        case Range():
            bounds = _numbers(part, "$")
            return {range_path(part.field): bounds} if bounds else {ABSENT: {"$ne": part.field}}


def _vector_not(part: Filter) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {field: {"$ne": value}}
        case In(field, values):
            return {field: {"$nin": list(values)}} if values else {}
        case Absent(field):
            return {ABSENT: {"$ne": field}}
        case _:
            raise TypeError(f"{part} was not moved inwards")


# --- $search ----------------------------------------------------------------------------------------------------------


def text_filter(where: Filter) -> list[Stored]:
    """Returns the operators that must all match, for `$search`."""
    result = _text(inwards(where))
    return [] if result is None else [result]


def _text(part: Filter) -> Stored | None:
    """Returns the operator, or None if everything matches."""
    match part:
        case And(parts):
            every = [result for inner in parts if (result := _text(inner)) is not None]
            return {"compound": {"filter": every}} if every else None
        case Or(parts):
            some = [_text(inner) for inner in parts]
            if not some:
                return NOTHING_TEXT
            return None if None in some else {"compound": {"should": some, "minimumShouldMatch": 1}}
        case Not(inner):
            return {"compound": {"mustNot": [_text(inner)]}}
        case _:
            return _text_leaf(part)


def _text_leaf(part: Leaf) -> Stored:
    match part:
        case Eq(field, value) | Has(field, value):
            return {"equals": {"path": field, "value": value}}
        case In(field, values):
            return {"in": {"path": field, "value": list(values)}} if values else NOTHING_TEXT
        case Absent(field):
            return {"equals": {"path": ABSENT, "value": field}}
        case Range():
            bounds = _numbers(part, "")
            path = range_path(part.field)
            return {"range": {"path": path, **bounds}} if bounds else {"exists": {"path": path}}
