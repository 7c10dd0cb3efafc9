"""Filters as MongoDB queries. Names come from declarations; values are ours or the caller's, and only ever values."""

from typing import Any, TypeAlias

from app.storage.collection import After, Collection, Order
from app.storage.filters import Absent, And, Eq, Filter, Has, In, Not, Or, Range

Query: TypeAlias = dict[str, Any]

NOTHING: Query = {"_id": {"$in": []}}


def where(collection: Collection, part: Filter) -> Query:
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
    given = {"$gte": part.ge, "$gt": part.gt, "$lte": part.le, "$lt": part.lt}
    return {sign: bound for sign, bound in given.items() if bound is not None} or {"$ne": None}


def of_tenant(collection: Collection, tenant: str | None, part: Filter) -> Query:
    """The filter, of one tenant; None is every tenant."""
    return where(collection, part) if tenant is None else joined({"tenant_id": tenant}, where(collection, part))


def joined(*parts: Query) -> Query:
    """All of `parts`."""
    there = [part for part in parts if part]
    names = [name for part in there for name in part]
    if len(names) == len(set(names)):
        return {name: value for part in there for name, value in part.items()}
    return {"$and": there}


def beyond(collection: Collection, after: After | None, order: Order) -> Query:
    """What comes after a place in a list."""
    if after is None:
        return {}
    sign = "$lt" if order == "desc" else "$gt"
    by = collection.order
    # the bound on the order field alone is what the index can use; the rest settles ties
    return {
        by: {f"{sign}e": after.value},
        "$or": [{by: {sign: after.value}}, {collection.id_field: {sign: after.id}}],
    }


def sorting(collection: Collection, order: Order) -> list[tuple[str, int]]:
    sign = -1 if order == "desc" else 1
    return [(collection.order, sign), (collection.id_field, sign)]


def _path(collection: Collection, field: str) -> str:
    if field not in collection.fields and field not in ("tenant_id", collection.id_field, collection.order):
        raise KeyError(f"{collection.name} declares no field {field}")
    return field
